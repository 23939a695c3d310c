"""`GroupTiles`: tiles that warpgroups multiply by wgmma, from shared memory that TMA fills (family `wgmma`).

Consumers read both operands from shared memory for each 64 rows anew, and TMA writes them there. Blocks are persistent,
so as many run as the configuration says, and their producers fetch the next tile while C is written. The constants were
fitted to what searches measured on an H200: 151 problems, in formats of 16, 32 and 8 bits, about 60 configurations each
(docs/how-a-winner-is-found.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kt.devices.device import Device
from kt.problems import Problem
from kt.tuner.tiles import SMEM_BYTES, WIDE_BYTES, Columns, Demand, Numbers, Tiles, common

__all__ = ["GroupTiles"]

_ROWS = 64  # of one wgmma
_WIDEST = 256  # columns of one wgmma
_REGISTERS = 65536  # of one multiprocessor
_READ_SHARE = 0.4  # of the time that shared memory takes to read operands: wgmma overlaps with it
_HEAD_START_US = 1.4  # the first copy follows one barrier of the block, and the last sums are written at once
_ENDING = 0.3  # part of the writing of C that is not hidden behind the other consumer's products
_ENDING_IN_TURNS = 0.15  # the same where consumers take turns
_L2_SHARE = 0.5  # of the time that single copies take in L2: TMA fetches whole lines, at 42 bytes a clock and more
_LATENCY = 1800.0  # cycles from TMA's request to the barrier that tells of its bytes, under load: 0.9 us
_MOVING = 20.0 / 32.0  # of the cost of a byte of C: a warp's shuffle moves 32 sums in a clock of its multiprocessor
_UNALIGNED = 1.25  # rows of a box of 128 bytes that begin anywhere touch five sectors of L2 in place of four
_SHIFTED = 1.5  # words of a 16-bit A that are read for each: rows that begin within a word, every second one, have two
_PARKING = 6.0  # endings by which stream-K ends later: large tiles in fp32 are parked, and nothing else hides it


@dataclass(frozen=True)
class GroupTiles(Tiles):
    """A block has one producer and `consumers` warpgroups that multiply.

    Attributes:
        in_turns: 1 where each consumer has tiles of its own.
        cluster_m, cluster_n: blocks along m that share what they load of B, and along n of A.
        exchanged: 1 where wgmma takes columns of C for rows: B comes to it from registers.
        width: columns of C of one tile, fewer than it multiplies where rows of B fall into classes.
        classes: how many of these there are, else 1.
        shifted: 1 where A comes to wgmma from registers, shifted there.
        multiplied_m: rows of a tile that are multiplied: more than it has (`tile_m`) where the last are not loaded.
    """

    in_turns: Numbers
    cluster_m: Numbers
    cluster_n: Numbers
    exchanged: Numbers
    width: Numbers
    classes: Numbers
    shifted: Numbers
    multiplied_m: Numbers

    @staticmethod
    def lay_out(problem: Problem, columns: Columns) -> GroupTiles:
        of, size = columns.of, int(problem.element_bytes["a"])
        wide, none = of("", WIDE_BYTES / size), of("", 0)
        shared = common(problem, columns, 128 * (1 + of("consumers", 2)))
        # Operands that begin at multiples of 16 bytes are read as they lie by kernels that can copy, too.
        shared |= {name: shared[name] * of("copying", 1) for name in ("pack_a", "pack_b")}
        multiplied_m = shared["tile_m"]
        shared["tile_m"] = of("height", multiplied_m)
        return GroupTiles(
            **shared,
            width_a=wide, width_b=wide, turned_a=none, turned_b=none,
            in_turns=columns.words("schedule", "pingpong"), cluster_m=of("cluster_m", 1), cluster_n=of("cluster_n", 1),
            exchanged=of("registers_b", 0), width=of("width", columns.of("tile_n", 64)), classes=of("classes", 1),
            shifted=of("shift_a", 0), multiplied_m=multiplied_m,
        )  # fmt: skip

    def wanted_registers(self) -> Numbers:
        """All there are: consumers take what the producer leaves."""
        return np.minimum(255, _REGISTERS // (self.threads * self.min_blocks) // 8 * 8)

    def least_registers(self) -> Numbers:
        return 0 * self.threads

    def demand(self, device: Device) -> Demand:
        products = self.multiplied_m * self.tile_n * self.tile_k
        cycles = products / self.per_clock(device, device.flops[self.problem.dtype])
        rows = np.where(self.exchanged > 0, self.tile_n, self.multiplied_m)
        columns = self.multiplied_m + self.tile_n - rows
        parts = np.ceil(columns / _WIDEST)
        of_rows = _ROWS * np.where(self.shifted > 0, _SHIFTED if self.element_bytes == 2 else 1.0, parts)
        read = rows / _ROWS * (of_rows + columns)
        moved = (_READ_SHARE * read + self.tile_m + self.tile_n) * self.tile_k * self.element_bytes / SMEM_BYTES
        return Demand(cycles, moved, 0.0, 0.0)

    @property
    def written_bytes(self) -> Numbers:
        size = np.where(self.split_k > 1, self.accumulator_bytes, self.problem.element_bytes["c"])
        moved = (self.classes - 1) * _MOVING  # sums, between the classes of B's rows
        return size * np.where(self.in_turns > 0, _ENDING_IN_TURNS, _ENDING) + moved

    @property
    def columns(self) -> Numbers:
        return np.ceil(self.problem.n / self.width)

    @property
    def meeting_warps(self) -> Numbers:
        """None: consumers follow the copies, each for itself."""
        return np.ones_like(self.threads)

    @property
    def head_start_us(self) -> float:
        return _HEAD_START_US

    @property
    def latency(self) -> float:
        return _LATENCY

    @property
    def parking(self) -> float:
        return _PARKING

    @property
    def persistent(self) -> bool:
        return True

    @property
    def fetched_rows(self) -> Numbers:
        """A cluster fetches each row once for both of its blocks."""
        of_a = self.tile_m * np.where(self.shifted > 0, _UNALIGNED, 1.0)
        of_b = self.tile_n * np.where(self.classes > 1, _UNALIGNED, 1.0)
        return _L2_SHARE * (of_a / self.cluster_n + of_b / self.cluster_m)
