"""Library baselines on the same operand sets: cuBLAS's own choice, the fastest of cuBLASLt's heuristic candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from kt.problems import Problem
from kt.tuner.cublas import Algorithm, Cublas, CublasLt
from kt.tuner.cuda import CUDA_ERRORS, Gpu, runtime
from kt.tuner.library_limits import unmet_requirements
from kt.tuner.measure import screen
from kt.tuner.operands import Operands
from kt.tuner.refinement import PeerNotInstalled, PeerUnavailable
from kt.tuner.sampling import Run, Stopwatch, TimerStuck

__all__ = ["LibraryPeers", "load_libraries"]

_WORKSPACE = 32 << 20  # what cuBLAS recommends for Hopper; older GPUs need less
_SCALAR_TYPES = {"fp16": np.float16, "fp32": np.float32, "fp32_fast": np.float32, "fp64": np.float64, "int32": np.int32}


def load_libraries(names: Sequence[str], device_index: int) -> None:
    """Load what peers of these names need, from any thread; what cannot be loaded is an error of `make`."""
    with suppress(PeerUnavailable, *CUDA_ERRORS):
        runtime.setDevice(device_index)
        if "cublas" in names:
            _cublas()


@cache
def _cublas() -> Cublas:
    """The one handle of this process, which works on one GPU."""
    return Cublas()


class LibraryPeers:
    """Makes the runs that `refine` times beside the candidates; one object serves all problems of a worker."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._workspace: Any = None
        self._scalars: Any = None
        self._lt: CublasLt | None = None
        self._algorithm: Algorithm | None = None

    def make(self, name: str, problem: Problem, operands: Operands, stopwatch: Stopwatch) -> Run:
        """The run of peer `name` over the operand sets of `problem`.

        Raises:
            PeerUnavailable: the library is not there, or refuses the problem; DoesNotFit: nor does its workspace.
        """
        if self._workspace is None:
            self._workspace = self._gpu.allocate(_WORKSPACE)
        self._scalars = np.array([problem.alpha, problem.beta], _SCALAR_TYPES[problem.accumulator])
        sets = [operands.pointers(index) for index in range(operands.plan.sets)]
        with _explained(name, problem):
            if name == "cublas":
                return self._default(problem, sets)
            if name == "cublaslt":
                return self._best(problem, sets, stopwatch)
        raise PeerUnavailable(f"{name} is no library that kt knows; there are cublas and cublaslt")

    def close(self) -> None:
        """Give back what belongs to the last problem; the library stays loaded."""
        if self._lt:
            self._lt.close()
        self._lt = self._algorithm = self._workspace = None

    @property
    def _scalar_addresses(self) -> tuple[int, int]:
        first = self._scalars.ctypes.data
        return first, first + self._scalars.itemsize

    def _default(self, problem: Problem, sets: Sequence[dict[str, int]]) -> Run:
        library = _cublas()
        library.use(self._gpu.stream.ptr, self._workspace.address, self._workspace.size)
        arguments = [library.arguments(problem, pointers, *self._scalar_addresses) for pointers in sets]

        def call(values: tuple[Any, ...]) -> None:
            with _explained("cublas", problem):
                library.gemm(problem.batch > 1, values)

        return _Rotation(call, arguments)

    def _best(self, problem: Problem, sets: Sequence[dict[str, int]], stopwatch: Stopwatch) -> Run:
        """The fastest of the heuristic candidates, each timed as a candidate of ours is screened."""
        if self._lt:
            self._lt.close()
        library = self._lt = CublasLt(problem)
        best: tuple[float, Run] | None = None
        errors = ["cuBLASLt: no algorithm for this problem"]
        for algorithm in library.algorithms(self._workspace.size):
            run = self._with(library, sets, algorithm)
            try:
                time_us = screen(stopwatch, run, len(sets), 0.0, best[0] if best else None).time_us
            except (PeerUnavailable, TimerStuck) as error:
                errors.append(str(error))
                continue
            if time_us is not None and (best is None or time_us < best[0]):
                best, self._algorithm = (time_us, run), algorithm
        if best is None:
            raise PeerUnavailable(errors[-1])
        return best[1]

    def _with(self, library: CublasLt, sets: Sequence[dict[str, int]], algorithm: Algorithm) -> Run:
        stream, workspace = self._gpu.stream.ptr, self._workspace.address
        arguments = [
            library.arguments(pointers, *self._scalar_addresses, algorithm, workspace, stream) for pointers in sets
        ]
        return _Rotation(library.matmul, arguments, keep=algorithm)


@contextmanager
def _explained(name: str, problem: Problem) -> Iterator[None]:
    """To what a library says when it refuses, add what it is documented to want."""
    try:
        yield
    except PeerNotInstalled:
        raise
    except PeerUnavailable as error:
        why = unmet_requirements(name, problem)
        raise PeerUnavailable(f"{error} ({why})") if why else error from None


class _Rotation:
    """Enqueues one call after the other, each with the next arguments; `keep` is what they point into."""

    def __init__(self, call: Any, arguments: Sequence[tuple[Any, ...]], keep: object = None) -> None:
        self._call = call
        self._arguments = arguments
        self._keep = keep
        self._next = 0

    def __call__(self) -> None:
        self._call(self._arguments[self._next])
        self._next = (self._next + 1) % len(self._arguments)
