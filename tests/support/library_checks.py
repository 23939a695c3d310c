"""`LibraryChecks`: products of an exported library, verified in full on the GPU of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.problems import Problem
from kt.tuner.operands import Operands
from kt.tuner.verify import Scalars, Verifier, scalars_of_passes
from support.exported_library import ExportedLibrary
from support.family_checks import OneSet
from support.gpu_reference import GpuReference

if TYPE_CHECKING:
    pass

__all__ = ["LibraryChecks"]

SEED = 3


class LibraryChecks:
    """Checks of one library on the first GPU."""

    def __init__(self, library: ExportedLibrary) -> None:
        self.library = library
        self.reference = GpuReference()

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
        kernels = self.reference.kernels(problem)
        operands = Operands(OneSet(self.reference.gpu), kernels, problem, SEED, scalars_of_passes(problem))
        operands.fill()
        operands.reserve_workspace(size)
        found: set[str] = set()

        def launch(pointers: dict[str, int], scalars: Scalars) -> None:
            found.add(self.library.gemm(told, pointers, scalars, size, self.reference.gpu.stream.ptr))

        detail = Verifier(self.reference.gpu, kernels, operands).full([launch])
        assert detail == [""], f"{problem.label}: {detail[0]}"
        return min(found)  # scalars other than those of the problem may find another one
