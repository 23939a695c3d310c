"""`ThreadTiles`: tiles that are divided among threads, which multiply on the plain units (family `simt`).

Every thread reads the values it multiplies from shared memory. Operands in which k is contiguous are turned on the way
there, element by element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kt.devices.device import Device
from kt.problems import Problem
from kt.tuner.tiles import SCHEDULERS, SMEM_BYTES, Columns, Demand, Numbers, Tiles, common

__all__ = ["ThreadTiles"]

# Fitted, and rounded to what the measurements can tell.
_STALL = 0.38
_STREAM_K = 33.0  # registers of a thread that walks over parts of tiles, if it may have them
_LEAST_STREAM_K = 9.0  # and if not: beside 64 results in 128 registers half of such kernels spill, by 24 bytes
_TURN = 200.0  # cycles in which half of the slices' sums change hands, besides moving them: not measured
_PIECE = 0.5  # steps of k lost where a piece of straight code ends: the next fragments are not read early
_TURNED_SLOTS = 7.0  # issue slots of 32 elements that are turned in registers
_TURNED_CYCLES = 2.0  # and cycles of the shared-memory pipe
_BOXED_SLOTS = 1.3  # of 32 elements that lie in shared memory as TMA has copied them: four are read, and stored at once
_BOXED_CYCLES = 3.2  # copied, read and stored
_NARROW_SLOTS = 9.0  # issue slots of a copy narrower than 16 bytes, with its address and its predicate
_NARROW_CYCLES = 2.5  # cycles of the shared-memory pipe for such a copy of a warp; a wide one costs it none


@dataclass(frozen=True)
class ThreadTiles(Tiles):
    """A thread has thread_m x thread_n results; `unroll` steps of k are one piece of straight code.

    Attributes:
        slices_k: groups of warps with the same results, each for its part of every step; their sums meet at the end.
        turned_words: registers of a thread in which operands that lie along k are turned; 0 where copies turn them.
        turn_tma: 1 where TMA copies these as they lie, and threads turn them in shared memory.
    """

    thread_m: Numbers
    thread_n: Numbers
    unroll: Numbers
    slices_k: Numbers
    turned_words: Numbers
    turn_tma: Numbers

    @staticmethod
    def lay_out(problem: Problem, columns: Columns) -> ThreadTiles:
        of = columns.of
        thread_m, thread_n = of("thread_m", 8), of("thread_n", 8)
        slices_k = of("slices_k", 1)
        threads = slices_k * np.maximum(32, of("tile_m", 64) * of("tile_n", 64) / (thread_m * thread_n))
        vector, pack_a, pack_b = of("vector_bytes", 16), of("pack_a", 0), of("pack_b", 0)
        turned_a = (1.0 - pack_a) * (problem.layout[0] == "n")
        turned_b = (1.0 - pack_b) * (problem.layout[1] == "t")
        return ThreadTiles(
            **common(problem, columns, threads),
            width_a=_copy_width(problem, "a", vector, turned_a, pack_a),
            width_b=_copy_width(problem, "b", vector, turned_b, pack_b),
            turned_a=turned_a, turned_b=turned_b, thread_m=thread_m, thread_n=thread_n, unroll=of("unroll", 4),
            slices_k=slices_k, turned_words=of("turned_words", 0), turn_tma=of("turn_tma", 0),
        )  # fmt: skip

    def wanted_registers(self) -> Numbers:
        """A linear fit to 2,130 kernels (NVRTC 13.0, sm_90a, fp32), 14 registers off; copies stand for addresses."""
        copies = np.maximum(1.0, self.copies_a / self.threads) + np.maximum(1.0, self.copies_b / self.threads)
        copies = np.where(self.turn_tma > 0, 0.0, copies)
        results = 1.15 * self._words * self.thread_m * self.thread_n
        return 50 + results + 1.2 * copies + _STREAM_K * self.stream_k + self.turned_words

    def least_registers(self) -> Numbers:
        """Accumulators, two fragments of each operand, addresses, and the walk of stream-K."""
        values = self.thread_m * self.thread_n + 2 * (self.thread_m + self.thread_n)
        return self._words * values + 24 + _LEAST_STREAM_K * self.stream_k + self.turned_words

    def demand(self, device: Device) -> Demand:
        return Demand(self._issue_cycles(device), self._smem_cycles(), 0.0, _STALL)

    @property
    def written_bytes(self) -> int:
        return self.accumulator_bytes

    @property
    def pack_launches(self) -> Numbers:
        """One for each operand, which turns it round."""
        return self.pack_a + self.pack_b

    @property
    def meeting_cycles(self) -> Numbers:
        """Half of the slices hands its sums to the other half, until one has all: each turn has two barriers."""
        moved = 2 * (self.slices_k - 1) * self.tile_m * self.tile_n * self.accumulator_bytes / SMEM_BYTES
        return moved + _TURN * np.log2(self.slices_k)

    @property
    def _words(self) -> int:
        return max(1, self.accumulator_bytes // 4)

    def _issue_cycles(self, device: Device) -> Numbers:
        """Cycles in which the schedulers issue one step of a block: multiply-adds, fragment reads and copies.

        Where the device has few units for a format, these are the limit instead.
        """
        products = self.thread_m * self.thread_n * (1 + _PIECE / self.unroll)
        reads = self._reads(self.thread_m) + self._reads(self.thread_n)
        copies = (self.copies_a + self.copies_b) / 32 + (_NARROW_SLOTS - 1) * self._narrow()
        copies += (_TURNED_SLOTS - 1) * self._turned()
        copies = np.where(self.turn_tma > 0, _BOXED_SLOTS * self._boxed(), copies)
        issued = (self.warps * self._slice_steps * (products + reads) + copies) / SCHEDULERS
        rates = device.simt_flops if self.problem.dtype in device.simt_flops else device.flops
        per_clock = self.per_clock(device, rates[self.problem.dtype])
        return np.maximum(issued, self.tile_m * self.tile_n * self.tile_k / per_clock)

    def _smem_cycles(self) -> Numbers:
        """Cycles of the shared-memory pipe: all threads' fragments, and copies in small pieces."""
        values = (self.thread_m + self.thread_n) * self._slice_steps * self.threads
        copies = _NARROW_CYCLES * self._narrow() + _TURNED_CYCLES * self._turned()
        copies = np.where(self.turn_tma > 0, _BOXED_CYCLES * self._boxed(), copies)
        return values * self.accumulator_bytes / SMEM_BYTES + copies

    def _turned(self) -> Numbers:
        """Warps' worth of elements that are turned in registers in one step."""
        return np.where(self.turned_words > 0, self.turned_a * self.copies_a + self.turned_b * self.copies_b, 0.0) / 32

    def _boxed(self) -> Numbers:
        """Warps' worth of elements that are turned in shared memory in one step."""
        return (self.turned_a * self.copies_a + self.turned_b * self.copies_b) / 32

    def _narrow(self) -> Numbers:
        return self.narrow_copies() - self._turned()

    @property
    def _slice_steps(self) -> Numbers:
        """Of the k of a step, those that one warp takes."""
        return self.tile_k / self.slices_k

    def _reads(self, thread: Numbers) -> Numbers:
        """Instructions that read one fragment: at most 16 bytes each."""
        return thread / np.minimum(thread, 16 / self.accumulator_bytes)


def _copy_width(problem: Problem, operand: str, vector: Numbers, turned: Numbers, packed: Numbers) -> Numbers:
    """Elements that one copy instruction moves: one of a turned tile, else as many as the alignment allows."""
    size = problem.element_bytes[operand]
    whole = np.maximum(1.0, vector // size)
    as_stored = np.maximum(1.0, np.minimum(vector, problem.alignment(operand)) // size)
    return np.where(packed > 0, whole, np.where(turned > 0, 1.0, as_stored))
