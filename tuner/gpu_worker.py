"""The worker process: `python -m kt.tuner.gpu_worker` owns one GPU and serves the messages of `kt.tuner.messages`.

What goes wrong with a candidate becomes its measurement. Only an error that ends the CUDA context is a `Failure` with
the status "crashed"; the parent then replaces this process.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from kt.errors import KtError
from kt.problems import Problem
from kt.tuner.child_process import serve
from kt.tuner.cuda import CUDA_ERRORS, Gpu, arch_of, context_is_dead, in_words
from kt.tuner.library_peers import LibraryPeers, load_libraries
from kt.tuner.loaded_candidate import LaunchRefused
from kt.tuner.memory_plan import DoesNotFit
from kt.tuner.messages import (
    Failure,
    MemoryReply,
    Prepare,
    Prepared,
    Refine,
    Release,
    Screen,
    ScreenReply,
)
from kt.tuner.prepared_problem import ContextLost, PreparedProblem
from kt.tuner.reference import compile_reference, reference_definitions
from kt.tuner.reference_kernels import ReferenceKernels
from kt.tuner.sampling import TimerStuck
from kt.tuner.stopwatch import CudaStopwatch
from kt.tuner.worker import DEVICE_VARIABLE

__all__ = ["Session"]

_GPU_ERRORS: tuple[type[Exception], ...] = (LaunchRefused, TimerStuck, *CUDA_ERRORS)


class Session:
    """The state of a worker process. The GPU is touched with the first request, so that its absence is an answer.

    Args:
        device_index: which of the visible GPUs it owns.
    """

    def __init__(self, device_index: int = 0) -> None:
        self._device_index = device_index
        self._kernels: dict[tuple[str, ...], ReferenceKernels] = {}
        self._prepared: PreparedProblem | None = None

    def handle(self, request: Any) -> Any:
        """Answer one request; raises only for bugs."""
        try:
            return self._answer(request)
        except DoesNotFit as error:
            return Failure("out_of_memory", str(error))
        except ContextLost as error:
            return Failure("crashed", str(error), error.candidate)
        except KtError as error:
            return Failure("crashed", error.message)
        except _GPU_ERRORS as error:
            detail = in_words(error)
        full = "MemoryAllocation" in detail and not context_is_dead()
        return Failure("out_of_memory" if full else "crashed", detail)

    def _answer(self, request: Any) -> Any:
        match request:
            case Prepare(problem=problem, seed=seed, peers=peers):
                with ThreadPoolExecutor(1) as beside:  # loading a library takes as long as making the CUDA context
                    beside.submit(load_libraries, peers, self._device_index)
                    return self._prepare(problem, seed)
            case Screen(candidate=candidate, stop_above_us=stop_above_us):
                return ScreenReply(candidate.name, self.prepared.screen(candidate, stop_above_us))
            case Refine():
                return self.prepared.refine(request, self.peers)
            case Release():
                self._release()
                return MemoryReply(*self.gpu.memory())
            case _:
                raise TypeError(f"the worker does not know {type(request).__name__}")

    @cached_property
    def gpu(self) -> Gpu:
        return Gpu(self._device_index)

    @cached_property
    def stopwatch(self) -> CudaStopwatch:
        return CudaStopwatch(self.gpu)

    @cached_property
    def peers(self) -> LibraryPeers:
        return LibraryPeers(self.gpu)

    @property
    def prepared(self) -> PreparedProblem:
        if self._prepared is None:
            raise RuntimeError("no problem is prepared")
        return self._prepared

    def _prepare(self, problem: Problem, seed: int) -> Prepared:
        kernels = self._reference_kernels(problem)
        self._release()
        free, _ = self.gpu.memory()
        self._prepared = PreparedProblem(self.gpu, kernels, self.stopwatch, problem, seed)
        self.gpu.synchronize()
        plan = self._prepared.operands.plan
        return Prepared(plan.sets, plan.cold, plan.bytes, free)

    def _reference_kernels(self, problem: Problem) -> ReferenceKernels:
        """The reference for the problem's formats; the first is compiled while the CUDA context is being made."""
        definitions = reference_definitions(problem)
        if definitions not in self._kernels:
            with ThreadPoolExecutor(1) as pool:
                cubin = pool.submit(compile_reference, definitions, arch_of(self._device_index))
                gpu = self.gpu
                self._kernels[definitions] = ReferenceKernels(gpu, gpu.load(cubin.result()))
        return self._kernels[definitions]

    def _release(self) -> None:
        self._prepared = None
        self.peers.close()
        self.gpu.release_pools()


if __name__ == "__main__":
    serve(Session(int(os.environ.get(DEVICE_VARIABLE, "0"))).handle)
