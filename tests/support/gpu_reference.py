"""`GpuReference`: the first GPU, and the reference kernels of each problem's formats, compiled once.

All of a process share one `Gpu`: kernels go to CuPy's current stream, which is that of the last one made, and what is
read back waits for its own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kt.problems import Problem
from kt.tuner.reference import compile_reference, reference_definitions
from kt.tuner.reference_kernels import ReferenceKernels

if TYPE_CHECKING:
    from kt.tuner.cuda import Gpu

__all__ = ["GpuReference"]


class GpuReference:
    """The GPU is not touched before something asks for it."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, ...], ReferenceKernels] = {}

    @property
    def gpu(self) -> Gpu:
        return _first_gpu()

    def kernels(self, problem: Problem) -> ReferenceKernels:
        """Those for the problem's formats."""
        from kt.tuner.cuda import arch_of

        definitions = reference_definitions(problem)
        if definitions not in self._kernels:
            module = self.gpu.load(compile_reference(definitions, arch_of(0)))
            self._kernels[definitions] = ReferenceKernels(self.gpu, module)
        return self._kernels[definitions]


@cache
def _first_gpu() -> Gpu:
    from kt.tuner.cuda import Gpu

    return Gpu(0)
