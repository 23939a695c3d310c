"""`StreamTiles`: a long operand that passes once through the registers of warps, times a few rows (family `skinny`).

The streamed operand goes through shared memory in pieces of 16 bytes, which the thread that copied them reads back; the
held one is read through the L1 cache, by every warp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kt.devices.device import Device, rate_of
from kt.problems import Problem
from kt.tuner.tiles import SCHEDULERS, SMEM_BYTES, WIDE_BYTES, Columns, Demand, Numbers, Tiles, common

__all__ = ["StreamTiles"]

_CHUNK_BYTES = 64  # of k that a warp multiplies at once
_OCTET = 8  # rows of the held operand in one mma
_LOOP_SLOTS = 24.0  # issue slots of a step besides copies, reads and products
_MMA_SLOTS = 3.0  # of two products of a piece, with the words moved to where mma takes them
_ADDRESSES = 40.0  # registers of a thread besides sums, rows and held pieces

# Fitted to 72 shapes of few rows or columns in seven formats on an H200, and rounded.
_COPY_SLOTS = 12.0  # issue slots of an asynchronous copy, with its address, its predicate and what waits behind it
_SHIFTED_SLOTS = 20.0  # of a piece that is read in five words, which are shifted
_EXCHANGE = 16.0  # times that a sum of a block of a cluster costs what a written one does
_REQUEST_CYCLES = 3.0  # of one line in a copy of a warp; 16 lines in 512 bytes at 2.1 TB/s would make it 3.4


@dataclass(frozen=True)
class StreamTiles(Tiles):
    """A warp has eight times `lane_rows` rows of the streamed operand and `tile_s` of the held one.

    Attributes:
        chunks: of 64 bytes along k in one step of a warp.
        streamed_a: 1 where the streamed operand is A.
        cluster_k: blocks that share k in a cluster.
        stretch: 1 where whole rows are copied as one stretch of memory, whatever they are aligned to.
    """

    lane_rows: Numbers
    tile_s: Numbers
    chunks: Numbers
    streamed_a: Numbers
    cluster_k: Numbers
    stretch: Numbers

    @staticmethod
    def lay_out(problem: Problem, columns: Columns) -> StreamTiles:
        of, size = columns.of, problem.element_bytes["a"]
        none = of("", 0)
        return StreamTiles(
            **common(problem, columns, of("threads", 256)),
            width_a=of("", problem.alignment("a") / size), width_b=of("", problem.alignment("b") / size),
            turned_a=none, turned_b=none, lane_rows=of("lane_rows", 4), tile_s=of("tile_s", 8),
            chunks=of("chunks", 1), streamed_a=columns.words("streamed", "a"), cluster_k=of("cluster_k", 1),
            stretch=columns.words("form", "stretch"),
        )  # fmt: skip

    def wanted_registers(self) -> Numbers:
        """Sums, the rows of a chunk, what is held of it, addresses."""
        return self._sums + 4 * self.lane_rows * (1 + self._turned) + self._held_pieces * 4 + _ADDRESSES

    def least_registers(self) -> Numbers:
        return self._sums + 4 * self.lane_rows + self._held_pieces * 4 + 24

    def demand(self, device: Device) -> Demand:
        """Of a step of the block: `chunks` pieces of k in each of its warps."""
        wide = (self._access_bytes >= WIDE_BYTES) | (self.stretch > 0)
        copies = self.lane_rows * np.where(wide, 1.0, WIDE_BYTES / self._access_bytes)
        turning = self._turned * 4 * self.lane_rows * (4 / self.element_bytes if self.element_bytes < 4 else 0)
        slots = self.chunks * (
            _COPY_SLOTS * copies
            + self.lane_rows * self._piece_reads
            + self._held_reads
            + turning
            + self._product_slots(device)
        )
        lines = np.where((self.chunks == 1) & (self._turned == 0), 8, 4) * copies / self.lane_rows
        read = self.lane_rows * (1 + np.minimum(2.0, self._piece_reads)) + self._held_reads
        moved = self.chunks * 32 * WIDE_BYTES * read / SMEM_BYTES
        moved = np.maximum(moved, self.chunks * self.lane_rows * lines * _REQUEST_CYCLES)
        return Demand(self.warps * (slots + _LOOP_SLOTS) / SCHEDULERS, self.warps * moved, 0.0, 0.25)

    @property
    def written_bytes(self) -> Numbers:
        size = np.where(self.split_k > 1, self.accumulator_bytes, self.problem.element_bytes["c"]) / self.cluster_k
        exchanged = np.where(self.cluster_k > 1, _EXCHANGE * self.accumulator_bytes, 0.0)
        return size + exchanged

    @property
    def steps(self) -> Numbers:
        return np.ceil(super().steps / self.cluster_k)

    @property
    def grid(self) -> Numbers:
        return super().grid * self.cluster_k

    @property
    def _plain(self) -> bool:
        """Multiplied by the plain units instead of the tensor cores."""
        return self.problem.dtype == "fp32"

    @property
    def _octets(self) -> Numbers:
        return np.maximum(1.0, self.tile_s / _OCTET)

    @property
    def _sums(self) -> Numbers:
        words = max(1, self.accumulator_bytes // 4)
        each = self.tile_s if self._plain else 2 * self._octets
        return words * self.lane_rows * each

    @property
    def _held_pieces(self) -> Numbers:
        """Pieces of 16 bytes that a lane holds at once."""
        return np.minimum(self.tile_s, _OCTET) if self._plain else self._octets

    @property
    def _held_reads(self) -> Numbers:
        """Reads of a lane for the held pieces of one chunk."""
        along_k = np.where(self.streamed_a > 0, self.problem.layout[1] == "t", self.problem.layout[0] == "n")
        width = np.where(self.streamed_a > 0, self.width_b, self.width_a) * self.element_bytes
        pieces = self.tile_s if self._plain else self._octets
        across = np.minimum(WIDE_BYTES, np.minimum(width, pieces * self.element_bytes))
        reads: Numbers = pieces * WIDE_BYTES / np.where(along_k, np.minimum(WIDE_BYTES, width), across)
        return np.where(self.stretch > 0, pieces, reads)  # stretches have them arranged in shared memory

    @property
    def _access_bytes(self) -> Numbers:
        return np.where(self.streamed_a > 0, self.width_a, self.width_b) * self.element_bytes

    @property
    def _piece_reads(self) -> Numbers:
        """Instructions in which a lane reads a piece of a row; where rows of a stretch begin anywhere, with shifts."""
        along_k = (self.stretch > 0) & (self._turned == 0)
        words = np.where(
            self._access_bytes < 4, _SHIFTED_SLOTS, WIDE_BYTES / np.clip(self._access_bytes, 4, WIDE_BYTES)
        )
        return np.where(along_k & (self._access_bytes < WIDE_BYTES), words, 1.0)

    @property
    def _turned(self) -> Numbers:
        """1 where the streamed operand is not contiguous along k: its squares are turned in registers."""
        layout = self.problem.layout
        return np.where(self.streamed_a > 0, layout[0] == "t", layout[1] == "n").astype(float)

    def _product_slots(self, device: Device) -> Numbers:
        """Issue slots of a warp for the products of one chunk, or the time of the tensor cores in them."""
        if self._plain:
            return self.lane_rows * self.tile_s * 4
        problem = self.problem
        rate = rate_of(device.mma_flops, problem.dtype, problem.accumulator) or rate_of(
            device.simt_flops, problem.dtype, problem.accumulator
        )
        products = self.lane_rows * _OCTET * self._octets * _OCTET * _CHUNK_BYTES / self.element_bytes
        busy = products / self.per_clock(device, rate) * SCHEDULERS
        return np.maximum(busy, _MMA_SLOTS * self.lane_rows * self._octets)
