"""`WarpTiles`: tiles that are divided among warps, which multiply on the tensor cores by mma.sync (family `mma`).

A warp reads the rows and columns that it multiplies from shared memory, once for all of its results: every 32 bytes
along k of each. Tiles keep the order that the operand has in memory, so nothing is turned, and copies are as wide as
the alignment allows.

What is fitted for `simt` holds here as far as it is about memory. What stands below follows from the hardware or is an
estimate; only the stall of schedulers has been compared with measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kt.devices.device import Device, rate_of
from kt.problems import Problem
from kt.tuner.tiles import SCHEDULERS, SMEM_BYTES, Columns, Demand, Numbers, Tiles, common

__all__ = ["WarpTiles"]

# Of the hardware.
_STEP_BYTES = 32  # bytes along k of a row that one mma takes, whatever the format
_CHAIN = 36.0  # cycles from one mma to the next one that adds to its result
_MATRIX_BYTES = 512  # what one ldmatrix or vector read of a warp reads
_WORD_BYTES = 4  # the narrowest asynchronous copy

# From two measurements: bf16 at 4096 and 8192 cubed, H200, in short bursts (the power limit is not modelled).
_STALL = 0.25

# Estimates.
_ADDRESSES = 36.0  # registers of a thread besides accumulators and fragments
_COPY_SLOTS = 3.0  # issue slots of an asynchronous copy, with its address and its predicate
_SHIFTED_SLOTS = 12.0  # of a word that is put together from two in registers, because the operand is less aligned
_SHIFTED_CYCLES = 2.0  # of the shared-memory pipe, which reads of device memory pass as well, for such words of a warp


@dataclass(frozen=True)
class WarpTiles(Tiles):
    """A warp has warp_m x warp_n results.

    Attributes:
        shifted_a, shifted_b: 1 where the operand is less aligned than asynchronous copies need.
        by_tma: 1 where TMA copies, without instructions of the warps, and rounds tf32.
        stated_registers: of a thread, where the space derives `registers`; else 0.
    """

    warp_m: Numbers
    warp_n: Numbers
    shifted_a: Numbers
    shifted_b: Numbers
    by_tma: Numbers
    stated_registers: Numbers

    @staticmethod
    def lay_out(problem: Problem, columns: Columns) -> WarpTiles:
        of = columns.of
        warp_m, warp_n = of("warp_m", 32), of("warp_n", 32)
        threads = np.maximum(32, 32 * of("tile_m", 64) * of("tile_n", 64) / (warp_m * warp_n))
        pack_a, pack_b = of("pack_a", 0), of("pack_b", 0)
        return WarpTiles(
            **common(problem, columns, threads),
            width_a=_copy_width(problem, "a", of("vector_bytes", 16), pack_a),
            width_b=_copy_width(problem, "b", of("vector_bytes", 16), pack_b),
            turned_a=of("", problem.layout[0] == "n"), turned_b=of("", problem.layout[1] == "t"),
            warp_m=warp_m, warp_n=warp_n,
            shifted_a=(1 - pack_a) * (problem.alignment("a") < _WORD_BYTES),
            shifted_b=(1 - pack_b) * (problem.alignment("b") < _WORD_BYTES),
            by_tma=of("tma", 0),
            stated_registers=of("registers", 0),
        )  # fmt: skip

    def wanted_registers(self) -> Numbers:
        """What the space says, or accumulators, fragments of two steps, addresses."""
        estimate = self._accumulators + 2 * self._fragments + _ADDRESSES
        return np.where(self.stated_registers > 0, self.stated_registers, estimate)

    def least_registers(self) -> Numbers:
        return self._accumulators + 1.5 * self._fragments + 24

    def demand(self, device: Device) -> Demand:
        chained = self.tile_k * self.element_bytes / _STEP_BYTES * _CHAIN
        slots = self._slots(self._conversions(device))
        return Demand(np.maximum(self._unit_cycles(device), slots / SCHEDULERS), self._moved(), chained, _STALL)

    @property
    def written_bytes(self) -> Numbers:
        """Slices are written as they are summed, C in its own format."""
        return np.where(self.split_k > 1, self.accumulator_bytes, self.problem.element_bytes["c"])

    @property
    def _accumulators(self) -> Numbers:
        return self.warp_m * self.warp_n * self.accumulator_bytes / (4 * 32)

    @property
    def _fragments(self) -> Numbers:
        """Registers of a thread that hold both operands of one step."""
        return (self.warp_m + self.warp_n) * _STEP_BYTES / (4 * 32)

    @property
    def _read_bytes(self) -> Numbers:
        """What the warps of a block read from shared memory in one step."""
        return self.warps * (self.warp_m + self.warp_n) * self.tile_k * self.element_bytes

    def _unit_cycles(self, device: Device) -> Numbers:
        """Cycles of the tensor cores, or of the plain units where the device has none for the format."""
        problem = self.problem
        formats = problem.dtype, problem.accumulator
        rate = rate_of(device.mma_flops, *formats) or rate_of(device.simt_flops, *formats)
        return self.tile_m * self.tile_n * self.tile_k / self.per_clock(device, rate)

    def _slots(self, conversions_each: Numbers) -> Numbers:
        """Warp instructions of one step: products, reads, conversions and copies."""
        products = self.tile_m * self.tile_n * self.tile_k * self.element_bytes / (16 * 8 * _STEP_BYTES)
        conversions = self._read_bytes / (4 * 32) * conversions_each
        shifted = (self.shifted_a * self.copies_a + self.shifted_b * self.copies_b) / 32
        copies = (self.copies_a + self.copies_b) / 32
        return (
            products
            + self._read_bytes / _MATRIX_BYTES
            + conversions
            + _COPY_SLOTS * copies * (1 - self.by_tma)
            + (_SHIFTED_SLOTS - _COPY_SLOTS) * shifted
        )

    def _conversions(self, device: Device) -> Numbers:
        """Instructions for each register of a fragment before it is multiplied."""
        if self.problem.dtype == "tf32":
            return (1 - self.by_tma) * (1.0 if device.compute_capability >= (9, 0) else 2.0)  # rounded
        native = device.compute_capability >= (12, 0) or (
            device.compute_capability < (9, 0) and self.problem.accumulator == "fp32_fast"
        )
        if self.problem.dtype.startswith("fp8") and not native:
            return np.asarray(4.0)  # widened to fp16
        across = (self.problem.layout[0] == "t") + (self.problem.layout[1] == "n")  # operands not contiguous along k
        return np.asarray(0.5 * across if self.element_bytes == 1 else 0.0)

    def _moved(self) -> Numbers:
        """Cycles of the shared-memory pipe: what warps read, and what copies write."""
        written = (self.tile_m + self.tile_n) * self.tile_k * self.element_bytes
        shifted = (self.shifted_a * self.copies_a + self.shifted_b * self.copies_b) / 32
        return (self._read_bytes + written) / SMEM_BYTES + _SHIFTED_CYCLES * shifted


def _copy_width(problem: Problem, operand: str, vector: Numbers, packed: Numbers) -> Numbers:
    """Elements that one copy moves: as many as the alignment allows, and at least a word, shifted or not."""
    size = problem.element_bytes[operand]
    as_stored = np.minimum(vector, max(problem.alignment(operand), _WORD_BYTES, size))
    return np.where(packed > 0, vector, as_stored) / size
