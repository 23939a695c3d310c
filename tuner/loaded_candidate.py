"""`LoadedCandidate`: a candidate's cubin in the CUDA context, and its launches; and `Rotation` over operand sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from kt.problems import Problem
from kt.search_spaces.space import Launch
from kt.tuner.arguments import POINTERS
from kt.tuner.cuda import CUDA_ERRORS, MOST_DYNAMIC_SMEM, cupy, driver, in_words
from kt.tuner.kernel_launch import KernelLaunch, Parameters
from kt.tuner.messages import Candidate
from kt.tuner.tensor_map import TensorMapRefused, tensor_map_argument
from kt.wording import plural

__all__ = ["LaunchRefused", "LoadedCandidate", "Rotation"]

_STATIC_SMEM = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_SMEM_WITHOUT_OPT_IN = 48 << 10
_MOST_BLOCKS = 2**31 - 1


class LaunchRefused(Exception):
    """The candidate cannot be loaded or launched; the CUDA context is as good as before."""


class LoadedCandidate:
    """A module of its own for each candidate, unloaded by `close`: thousands would fill the device.

    Raises:
        LaunchRefused: the cubin does not load here, lacks a kernel, or a launch asks for more than a GPU can give.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.name = candidate.name
        self.runtime = candidate.runtime
        self.workspace_bytes = candidate.workspace_bytes
        self._launches: list[tuple[KernelLaunch, Launch]] = []
        self._module: Any = None
        try:
            self._module = cupy.cuda.function.Module()
            self._module.load(Path(candidate.cubin).read_bytes())
        except OSError as error:
            raise LaunchRefused(f"the cubin cannot be read: {error}") from error
        except CUDA_ERRORS as error:
            raise LaunchRefused(f"the cubin does not load: {in_words(error)}") from error
        self._launches = [(self._launch(launch), launch) for launch in candidate.launches]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unload the module; graphs that hold its kernels must be gone, and the stream idle."""
        self._launches = []
        self._module = None

    @property
    def launches(self) -> list[KernelLaunch]:
        """What is launched, in order."""
        return [kernel for kernel, _ in self._launches]

    def bind(self, problem: Problem, arguments: Any) -> list[Parameters]:
        """What each kernel of the sequence is given: the same `GemmArguments`, and tensor maps of what they point to.

        Raises:
            LaunchRefused: TMA cannot address an operand.
        """
        pointers = {name: int(arguments[name]) for name in POINTERS}
        try:
            return [
                Parameters([arguments, *(tensor_map_argument(one, problem, pointers) for one in launch.tensor_maps)])
                for _, launch in self._launches
            ]
        except TensorMapRefused as error:
            raise LaunchRefused(str(error)) from error

    def enqueue(self, bound: Sequence[Parameters]) -> None:
        """Launch every kernel of the sequence with what `bind` has returned.

        Raises:
            LaunchRefused: CUDA refuses a launch.
        """
        stream = cupy.cuda.get_current_stream().ptr
        for (kernel, launch), parameters in zip(self._launches, bound, strict=True):
            try:
                kernel.enqueue(stream, parameters.address)
            except CUDA_ERRORS as error:
                raise LaunchRefused(f"{_in_words(launch)}: {in_words(error)}") from error

    def _launch(self, launch: Launch) -> KernelLaunch:
        if not 1 <= launch.grid <= _MOST_BLOCKS or launch.block < 1 or launch.smem_bytes < 0:
            raise LaunchRefused(f"{_in_words(launch)}: not a launch that CUDA knows")
        try:
            function = self._module.get_function(launch.kernel)
            static = driver.funcGetAttribute(_STATIC_SMEM, function.ptr)
            if launch.smem_bytes + static > _SMEM_WITHOUT_OPT_IN:
                driver.funcSetAttribute(function.ptr, MOST_DYNAMIC_SMEM, launch.smem_bytes)
            return KernelLaunch(function.ptr, launch)
        except CUDA_ERRORS as error:
            raise LaunchRefused(f"{_in_words(launch)}: {in_words(error)}") from error


class Rotation:
    """Enqueues one run after the other, each on the next operand set."""

    def __init__(self, candidate: LoadedCandidate, bound: Sequence[Sequence[Parameters]]) -> None:
        self._candidate = candidate
        self._bound = bound
        self._next = 0

    def __call__(self) -> None:
        self._candidate.enqueue(self._bound[self._next])
        self._next = (self._next + 1) % len(self._bound)


def _in_words(launch: Launch) -> str:
    blocks = f"{plural(launch.grid, 'block')} of {plural(launch.block, 'thread')}"
    return f"{launch.kernel} with {blocks}, {plural(launch.smem_bytes, 'byte')} of smem"
