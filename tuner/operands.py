"""`Operands`: the memory of the prepared problem, what is written into it, and the workspace of candidates.

There are operands of whole numbers for the exact pass, and sets of N(0,1) operands: the first verifies the random
pass, all of them rotate while timing. Whatever no kernel may read holds NaN (the largest number, where there is no
NaN), whatever no kernel may write holds a pattern that is looked for afterwards.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from kt.problems import DTYPES, Problem
from kt.tuner.exact_values import ExactValues, exact_values, random_scalars
from kt.tuner.memory_plan import BLOCK_ALIGNMENT, MemoryPlan, plan_memory, round_up
from kt.tuner.reference_kernels import NORMAL, ReferenceKernels

__all__ = ["LEFT_OVER_PATTERN", "OUT_PATTERN", "Operands"]

# Sixteen bits that are, repeated, a NaN in every format of 2, 4 and 8 bytes, and 2147319805 as a 32-bit whole number.
OUT_PATTERN = 0x7FFD
# The same, and in each byte a NaN of the 8-bit formats; 2147450879 as a 32-bit whole number. It is where a kernel finds
# only what it has written itself: in its workspace, shared memory and registers.
LEFT_OVER_PATTERN = 0x7FFF
_BYTE_PATTERN = 0x7F7F  # NaN in both 8-bit floating formats, 127 in int8


class Allocation(Protocol):
    """Device memory that is freed with the object."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...


class DeviceMemory(Protocol):
    """What operands need of the GPU."""

    @property
    def l2_bytes(self) -> int: ...
    def memory(self) -> tuple[int, int]: ...
    def allocate(self, size: int) -> Allocation: ...


class Operands:
    """Everything that belongs to one prepared problem on the GPU; dropping the object frees it.

    Args:
        scalars: pairs of alpha and beta that the exact operands must stay exact with.

    Raises:
        DoesNotFit: the memory is not there; nothing was allocated.
    """

    def __init__(
        self,
        gpu: DeviceMemory,
        kernels: ReferenceKernels,
        problem: Problem,
        seed: int,
        scalars: list[tuple[float, float]],
    ) -> None:
        self.problem = problem
        self.plan: MemoryPlan = plan_memory(problem, gpu.l2_bytes, *gpu.memory())
        self._gpu = gpu
        self._kernels = kernels
        self._seed = seed
        self._exact = exact_values(problem, *scalars)
        self._random = exact_values(problem, random_scalars(problem)) if problem.accumulator == "int32" else NORMAL
        self._block = gpu.allocate(self.plan.bytes)
        self._origin = round_up(self._block.address, max(BLOCK_ALIGNMENT, problem.base_alignment))
        self._workspace: Allocation | None = None

    def address(self, name: str) -> int:
        """Where the contents of a slot begin."""
        return self._origin + self.plan.slots[name].base

    def bounds(self, name: str) -> tuple[int, int]:
        """Where a slot begins and ends, guard bands included."""
        slot = self.plan.slots[name]
        return self._origin + slot.start, self._origin + slot.end

    def pointers(self, which: int | str) -> dict[str, int]:
        """Device addresses of the operands of set `which`, or of the "exact" ones, which share C with set 0."""
        names = {operand: f"{operand}{which}" for operand in "abc"}
        if which == "exact":
            names = {"a": "exact_a", "b": "exact_b", "c": "c0"}
        addresses = {operand: self.address(name) for operand, name in names.items()}
        return {**addresses, "workspace": self._workspace.address if self._workspace else 0}

    def fill(self) -> None:
        """Write all operands, those of timing included."""
        self.restore()
        start, _ = self.bounds("c0")
        _, end = self.bounds(list(self.plan.slots)[-1])
        self._kernels.fill_pattern(start, end - start, self._poison)
        for index in range(self.plan.sets):
            for operand in "abc" if self.problem.beta else "ab":
                if index or operand == "c":
                    self._fill(operand, f"{operand}{index}", self._random)

    def restore(self) -> None:
        """Write again all operands that verification reads, as they were."""
        start, _ = self.bounds("exact_a")
        end, _ = self.bounds("c0")
        self._kernels.fill_pattern(start, end - start, self._poison)
        for operand in "ab":
            self._fill(operand, f"exact_{operand}", self._exact)
            self._fill(operand, f"{operand}0", self._random)

    def poison_c(self, kind: str, beta: float) -> None:
        """Fill C, its padding and guard bands with the pattern; where beta counts, give C's elements values."""
        start, end = self.bounds("c0")
        self._kernels.fill_pattern(start, end - start, OUT_PATTERN)
        if beta:
            self._fill("c", "c0", self._exact if kind == "exact" else self._random)

    def prepare_timing(self) -> None:
        """Give C of set 0, which verification shares, the contents that the other sets have."""
        if self.problem.beta:
            self._fill("c", "c0", self._random)

    def reserve_workspace(self, size: int) -> None:
        """Have at least `size` bytes of workspace.

        Raises:
            DoesNotFit: they are not there; the workspace that was is gone.
        """
        if size > (self._workspace.size if self._workspace else 0):
            self._workspace = None  # freed first: the old and the new one need not fit together
            self._workspace = self._gpu.allocate(round_up(size, 4))

    def poison_workspace(self) -> None:
        if self._workspace:
            self._kernels.fill_pattern(self._workspace.address, self._workspace.size, LEFT_OVER_PATTERN)

    @property
    def _poison(self) -> int:
        return _BYTE_PATTERN if DTYPES[self.problem.dtype].bytes == 1 else OUT_PATTERN

    def _fill(self, operand: str, slot: str, values: ExactValues) -> None:
        self._kernels.fill(self.problem, operand, self.address(slot), _stream_seed(self._seed, slot), values)


def _stream_seed(seed: int, name: str) -> int:
    """A seed for one operand, unlike that of every other operand and every other `seed`."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "little")
