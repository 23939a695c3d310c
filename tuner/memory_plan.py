"""Where everything that a problem needs lies in one block of device memory, and whether that block fits.

The plan is made before anything is allocated. The block holds, in this order: the exact operands, the reference and
its helpers, the first set of random operands, C between its guard bands, and the further sets that only timing uses.
A kernel that writes past the end of C meets the guard band and then operands that nothing but the clock depends on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kt.problems import Problem
from kt.tuner.method import MAX_SETS, ROTATION_FACTOR

__all__ = [
    "DoesNotFit",
    "MemoryPlan",
    "Slot",
    "check_fits",
    "gib",
    "memory_margin",
    "plan_memory",
    "round_up",
    "sets_wanted",
]

SLOT = 256  # slots begin and end at multiples of this many bytes
REPORT_BYTES = 256  # counters that comparing kernels write
SCRATCH_BYTES = 32 << 20  # fp64 partial sums of the reference where it splits k
LEAST_GUARD = 64 << 10
MOST_GUARD = 4 << 20
BLOCK_ALIGNMENT = 256  # what the CUDA allocator guarantees


class DoesNotFit(Exception):
    """The block is larger than the memory that is free; the text has the figures."""


@dataclass(frozen=True)
class Slot:
    """A part of the block, as offsets in bytes: guard band from `start`, contents from `base`, guard band to `end`."""

    start: int
    base: int
    end: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets of everything, and the size of the block.

    Attributes:
        slots: by name: "report", "scratch", "reference", "row_norms", "column_norms", "exact_a", "exact_b", "a0", "b0",
            "c0", "a1", "b1", "c1", …
        sets: number of operand sets that rotate.
        cold: the sets together exceed `ROTATION_FACTOR` times the L2 cache.
        bytes: size of the block.
    """

    slots: dict[str, Slot]
    sets: int
    cold: bool
    bytes: int


@dataclass
class _Layout:
    """Places slots one after the other."""

    slots: dict[str, Slot] = field(default_factory=dict)
    end: int = 0

    def place(self, name: str, size: int, alignment: int = SLOT, guard: int = 0) -> None:
        """Put `size` bytes at an address that is aligned to `alignment` and, below `SLOT`, to no more than that."""
        base = round_up(self.end + guard, max(alignment, SLOT))
        if alignment < SLOT:
            base += alignment
        end = round_up(base + size + guard, SLOT)
        self.slots[name] = Slot(self.end, base, end)
        self.end = end


def sets_wanted(problem: Problem, l2_bytes: int) -> int:
    """Operand sets that a rotation needs in order to exceed `ROTATION_FACTOR` times the L2 cache; at most MAX_SETS."""
    return max(1, min(MAX_SETS, math.ceil(ROTATION_FACTOR * l2_bytes / set_bytes(problem))))


def set_bytes(problem: Problem) -> int:
    """Bytes of A, B and C of one set."""
    return max(1, sum(problem.footprint(name) for name in "abc"))


def plan_memory(problem: Problem, l2_bytes: int, free: int, total: int) -> MemoryPlan:
    """The plan for `problem` with as many sets as are wanted and fit.

    Raises:
        DoesNotFit: not even one set fits into `free` bytes less the margin.
    """
    budget = free - memory_margin(total)
    wanted = sets_wanted(problem, l2_bytes)
    one = _plan(problem, 1, l2_bytes)
    check_fits(one.bytes, free, total)
    if wanted == 1:
        return one
    each = _plan(problem, 2, l2_bytes).bytes - one.bytes
    return _plan(problem, min(wanted, 1 + (budget - one.bytes) // each), l2_bytes)


def check_fits(size: int, free: int, total: int) -> None:
    """Refuse an allocation that would not leave the margin free.

    Raises:
        DoesNotFit: with the figures.
    """
    needed = size + memory_margin(total)
    if needed > free:
        raise DoesNotFit(f"needs {gib(needed)}, {gib(free)} free of {gib(total)}")


def memory_margin(total: int) -> int:
    """Bytes left to the driver, libraries and local memory of kernels."""
    return max(256 << 20, total // 50)


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"


def _plan(problem: Problem, sets: int, l2_bytes: int) -> MemoryPlan:
    layout = _Layout()
    alignment = problem.base_alignment
    footprint = {name: problem.footprint(name) for name in "abc"}
    elements = problem.m * problem.n * problem.batch
    layout.place("report", REPORT_BYTES)
    layout.place("scratch", SCRATCH_BYTES)
    layout.place("reference", elements * max(4, problem.element_bytes["c"]))
    layout.place("row_norms", 4 * problem.m * problem.batch)
    layout.place("column_norms", 4 * problem.n * problem.batch)
    for name in "ab":
        layout.place(f"exact_{name}", footprint[name], alignment, _guard(problem, name))
    for name in "ab":
        layout.place(f"{name}0", footprint[name], alignment, _guard(problem, name))
    layout.place("c0", footprint["c"], alignment, _guard(problem, "c"))
    for index in range(1, sets):
        for name in "abc":
            layout.place(f"{name}{index}", footprint[name], alignment)
    # The allocator aligns to 256 bytes; a larger base alignment is met by moving the block's origin up.
    size = layout.end + max(0, alignment - BLOCK_ALIGNMENT)
    return MemoryPlan(layout.slots, sets, sets * set_bytes(problem) >= ROTATION_FACTOR * l2_bytes, size)


def _guard(problem: Problem, operand: str) -> int:
    """Bytes of a guard band: two rows of the operand, so that a write to the row after the last one lands in it."""
    row = getattr(problem, f"ld{operand}") * problem.element_bytes[operand]
    return round_up(min(max(2 * row, LEAST_GUARD), MOST_GUARD), SLOT)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
