"""`Tiles`: configurations laid over a problem, as the performance model sees them; one array element for each.

How a family divides the tile of a thread block decides what the block asks of a multiprocessor: see `thread_tiles` and
`warp_tiles`, each of which is one kind of `Tiles`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kt.devices.device import Device
from kt.errors import InputError
from kt.problems import Problem

__all__ = ["Columns", "Demand", "Numbers", "Tiles", "as_numbers", "common", "count_of"]

Numbers = npt.NDArray[np.float64]
WIDE_BYTES = 16  # of the widest copy of one thread
SCHEDULERS = 4  # of one multiprocessor, each issuing one warp instruction a clock
_LATENCY = 1050.0  # cycles from a request to device memory to its data, under load: 0.53 us
_PARKING = 1.5  # endings of a block by which a stream-K kernel ends later: a tile parked, awaited and added
# What a family may not have 0 of: the model divides by them.
_AT_LEAST_ONE = frozenset(
    {
        *("tile_m", "tile_n", "tile_k", "thread_m", "thread_n", "warp_m", "warp_n", "threads"),
        *("split_k", "slices_k", "min_blocks", "raster_group", "unroll", "vector_bytes"),
    }
)
_MOST = 2**31 - 1
SMEM_BYTES = 128  # shared-memory bytes of one multiprocessor per clock, broadcast or not (ncu: docs/perf-log.md)


class Demand(NamedTuple):
    """What a block asks of a multiprocessor for one step along k.

    Attributes:
        issued: cycles of the four schedulers, or of the arithmetic units where these are slower.
        moved: cycles of the shared-memory pipe.
        chained: cycles that a step takes at least, however little there is to do: each piece waits for the one before.
        stall: part of its work by which a scheduler is delayed that has a single warp; with n warps, an n-th of it.
    """

    issued: Numbers
    moved: Numbers
    chained: Numbers | float
    stall: float


@dataclass(frozen=True)
class Tiles(ABC):
    """The configurations laid over the problem; every attribute but the first three is an array over them.

    Attributes:
        width_a, width_b: elements that one copy instruction of a thread moves.
        turned_a, turned_b: 1 where the kernel reads short runs of the operand: k is contiguous in memory, and of each
            row a tile has only so much.
        min_blocks: blocks per multiprocessor that the compiler leaves registers for.
    """

    problem: Problem
    element_bytes: int
    accumulator_bytes: int
    tile_m: Numbers
    tile_n: Numbers
    tile_k: Numbers
    stages: Numbers
    threads: Numbers
    min_blocks: Numbers
    smem_bytes: Numbers
    split_k: Numbers
    raster_group: Numbers
    width_a: Numbers
    width_b: Numbers
    turned_a: Numbers
    turned_b: Numbers
    pack_a: Numbers
    pack_b: Numbers
    stream_k: Numbers
    direct: Numbers  # whether C leaves registers without a detour through shared memory
    held: Numbers  # whether columns of B stay in shared memory while a block walks down the rows of C

    @abstractmethod
    def wanted_registers(self) -> Numbers:
        """Registers of a thread that may have as many as it wants."""

    @abstractmethod
    def least_registers(self) -> Numbers:
        """Below this many a thread spills."""

    @abstractmethod
    def demand(self, device: Device) -> Demand:
        """What a block asks for in one step."""

    @property
    @abstractmethod
    def written_bytes(self) -> Numbers | int:
        """Of one result as a block writes it."""

    @property
    def latency(self) -> float:
        """Cycles from a request to device memory to its data."""
        return _LATENCY

    @property
    def parking(self) -> float:
        """Endings of a block by which a stream-K kernel ends later."""
        return _PARKING

    @property
    def pack_launches(self) -> Numbers:
        """Kernels that copy operands first: one for both."""
        return np.maximum(self.pack_a, self.pack_b)

    @property
    def persistent(self) -> bool:
        """Whether no more than `min_blocks` blocks of a multiprocessor are launched, which go from tile to tile."""
        return False

    @property
    def meeting_warps(self) -> Numbers:
        """Warps that wait for each other in every step."""
        return self.warps

    @property
    def meeting_cycles(self) -> Numbers | float:
        """Cycles in which the sums of a block's slices of k meet."""
        return 0.0

    @property
    def head_start_us(self) -> float:
        """By how much sooner a block begins and ends than those that the constants of the model were fitted to."""
        return 0.0

    @property
    def fetched_rows(self) -> Numbers:
        """Rows of A and columns of B that a block fetches through L2 for one tile."""
        return self.tile_m + self.tile_n * (1 - self.held)

    @property
    def count(self) -> int:
        return len(self.tile_m)

    @property
    def rows(self) -> Numbers:
        return np.ceil(self.problem.m / self.tile_m)

    @property
    def columns(self) -> Numbers:
        return np.ceil(self.problem.n / self.tile_n)

    @property
    def steps(self) -> Numbers:
        """Steps along k of one block."""
        return np.ceil(np.ceil(self.problem.k / self.tile_k) / self.split_k)

    @property
    def warps(self) -> Numbers:
        return self.threads / 32

    @property
    def copies_a(self) -> Numbers:
        """Copy instructions of all threads for one step of A."""
        return self.tile_m * self.tile_k / self.width_a

    @property
    def copies_b(self) -> Numbers:
        return self.tile_n * self.tile_k / self.width_b

    @property
    def grid(self) -> Numbers:
        return self.rows * self.columns * self.split_k * self.problem.batch

    def narrow_copies(self) -> Numbers:
        """Copies of a warp in one step whose threads move less than 16 bytes each."""
        narrow_a, narrow_b = (width * self.element_bytes < WIDE_BYTES for width in (self.width_a, self.width_b))
        return (narrow_a * self.copies_a + narrow_b * self.copies_b) / 32

    def per_clock(self, device: Device, rate: float) -> float:
        """Multiply-adds of one multiprocessor per clock at `rate` operations/s of the device."""
        return rate / (2 * device.sm_count * device.clock_hz)


class Columns:
    """Columns of a space by name; a quantity that a family does not have takes a neutral value."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self.count = count_of(columns)

    def of(self, name: str, default: Any) -> Numbers:
        """One column, or `default` for each configuration.

        Raises:
            InputError: a family has something else under this name than the model takes it for.
        """
        if name not in self._columns:
            return as_numbers(default, self.count)
        _check_known(name, np.asarray(self._columns[name]))
        return as_numbers(self._columns[name], self.count)

    def words(self, name: str, word: str) -> Numbers:
        """1 where the column has this word, else 0."""
        return as_numbers(np.asarray(self._columns.get(name, "")) == word, self.count)


def _check_known(name: str, values: npt.NDArray[Any]) -> None:
    least = 1 if name in _AT_LEAST_ONE else 0
    whole = values.dtype.kind != "U"
    if whole and (not values.size or least <= values.min() <= values.max() <= _MOST):
        return
    found = values.flat[0] if not whole else values.min() if values.min() < least else values.max()
    raise InputError(
        f"{name} is {found} in a configuration; kt takes what has this name to be from {least} to {_MOST}",
        hint="reject such configurations by a constraint, or give the quantity of the search space another name",
    )


def common(problem: Problem, columns: Columns, threads: Any) -> dict[str, Any]:
    """What every kind of `Tiles` has, but for the way in which operands are read."""
    of, size = columns.of, int(problem.element_bytes["a"])
    tile_m, tile_n, tile_k = of("tile_m", 64), of("tile_n", 64), of("tile_k", 16)
    stages = np.maximum(of("stages", 2), 2)
    return {
        "problem": problem, "element_bytes": size, "accumulator_bytes": int(problem.names()["sizeof_acc"]),
        "tile_m": tile_m, "tile_n": tile_n, "tile_k": tile_k, "stages": stages,
        "threads": of("threads", threads), "min_blocks": of("min_blocks", 1),
        "smem_bytes": of("smem_bytes", stages * (tile_m + tile_n) * tile_k * size),
        "split_k": np.minimum(of("split_k", 1), np.maximum(1, np.ceil(problem.k / tile_k))),
        "raster_group": of("raster_group", 1), "pack_a": of("pack_a", 0), "pack_b": of("pack_b", 0),
        "stream_k": of("stream_k", 0), "direct": of("direct", 0),
        "held": of("hold_b", 0),
    }  # fmt: skip


def count_of(columns: Mapping[str, Any]) -> int:
    """How many configurations the columns describe."""
    return max((np.size(values) for values in columns.values()), default=0)


def as_numbers(values: Any, count: int) -> Numbers:
    """As many floating-point numbers; a single one is repeated."""
    return np.broadcast_to(np.asarray(values, float), (count,))
