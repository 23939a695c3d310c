"""`LibraryChecks`: products of an exported library, verified in full on the GPU of this process."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kt.problems import Problem
from kt.tuner.operands import Operands
from kt.tuner.reference import compile_reference, reference_definitions
from kt.tuner.reference_kernels import ReferenceKernels
from kt.tuner.verify import Scalars, Verifier, scalars_of_passes
from support.exported_library import ExportedLibrary
from support.family_checks import OneSet

if TYPE_CHECKING:
    from kt.tuner.cuda import Gpu

__all__ = ["LibraryChecks"]

SEED = 3


class LibraryChecks:
    """Checks of one library on the first GPU."""

    def __init__(self, library: ExportedLibrary) -> None:
        self.library = library
        self._kernels: dict[tuple[str, ...], ReferenceKernels] = {}

    def check(self, problem: Problem, *, asked: Problem | None = None, workspace: int = -1) -> str:
        """Where the configuration is from; the results are right.

        Args:
            asked: what the library is told, if that is not the truth.
            workspace: bytes that it is given; -1 for what it needs.
        """
        told = asked or problem
        needed = max(self.library.workspace_bytes(one) for one in (problem, told))
        assert needed >= 0, problem.label
        size = needed if workspace < 0 else workspace
        kernels = self._reference(problem)
        operands = Operands(OneSet(self.gpu), kernels, problem, SEED, scalars_of_passes(problem))
        operands.fill()
        operands.reserve_workspace(size)
        found: set[str] = set()

        def launch(pointers: dict[str, int], scalars: Scalars) -> None:
            found.add(self.library.gemm(told, pointers, scalars, size, self.gpu.stream.ptr))

        detail = Verifier(self.gpu, kernels, operands).full([launch])
        assert detail == [""], f"{problem.label}: {detail[0]}"
        return min(found)  # scalars other than those of the problem may find another one

    @cached_property
    def gpu(self) -> Gpu:
        from kt.tuner.cuda import Gpu

        return Gpu(0)

    def _reference(self, problem: Problem) -> ReferenceKernels:
        from kt.tuner.cuda import arch_of

        definitions = reference_definitions(problem)
        if definitions not in self._kernels:
            module = self.gpu.load(compile_reference(definitions, arch_of(0)))
            self._kernels[definitions] = ReferenceKernels(self.gpu, module)
        return self._kernels[definitions]
