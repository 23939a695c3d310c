"""`Tiles`: configurations laid over a problem, as the performance model sees them; one array element for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kt.problems import Problem

__all__ = ["Numbers", "Tiles", "as_numbers", "column", "count_of", "lay_out"]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tiles:
    """The configurations laid over the problem; every attribute but the first three is an array over them.

    Attributes:
        width_a, width_b: elements that one copy instruction of a thread moves.
        turned_a, turned_b: 1 where k is contiguous in the operand as the kernel reads it, so that tiles are turned.
        min_blocks: blocks per multiprocessor that the compiler leaves registers for.
    """

    problem: Problem
    element_bytes: int
    accumulator_bytes: int
    tile_m: Numbers
    tile_n: Numbers
    tile_k: Numbers
    thread_m: Numbers
    thread_n: Numbers
    warp_m: Numbers
    unroll: Numbers
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


def lay_out(problem: Problem, columns: Mapping[str, Any]) -> Tiles:
    """The configurations of `columns` on `problem`."""
    count = count_of(columns)
    names = problem.names()

    def of(name: str, default: Any) -> Numbers:
        return column(columns, name, count, default)

    tile_m, tile_n, tile_k = of("tile_m", 64), of("tile_n", 64), of("tile_k", 16)
    thread_m, thread_n = of("thread_m", 8), of("thread_n", 8)
    stages = np.maximum(of("stages", 2), 2)
    size = int(problem.element_bytes["a"])
    vector, pack_a, pack_b = of("vector_bytes", 16), of("pack_a", 0), of("pack_b", 0)
    turned_a = (1.0 - pack_a) * (problem.layout[0] == "n")
    turned_b = (1.0 - pack_b) * (problem.layout[1] == "t")
    return Tiles(
        problem, size, int(names["sizeof_acc"]), tile_m, tile_n, tile_k, thread_m, thread_n,
        of("warp_m", 8), of("unroll", 4), stages,
        of("threads", np.maximum(32, tile_m * tile_n / (thread_m * thread_n))), of("min_blocks", 1),
        of("smem_bytes", stages * (tile_m + tile_n) * tile_k * size),
        np.minimum(of("split_k", 1), np.maximum(1, np.ceil(problem.k / tile_k))), of("raster_group", 1),
        _copy_width(problem, "a", vector, turned_a, pack_a), _copy_width(problem, "b", vector, turned_b, pack_b),
        turned_a, turned_b, pack_a, pack_b, of("stream_k", 0),
    )  # fmt: skip


def _copy_width(problem: Problem, operand: str, vector: Numbers, turned: Numbers, packed: Numbers) -> Numbers:
    """Elements that one copy instruction moves: one of a turned tile, else as many as the alignment allows."""
    size = problem.element_bytes[operand]
    whole = np.maximum(1.0, vector // size)
    as_stored = np.maximum(1.0, np.minimum(vector, problem.alignment(operand)) // size)
    return np.where(packed > 0, whole, np.where(turned > 0, 1.0, as_stored))


def count_of(columns: Mapping[str, Any]) -> int:
    """How many configurations the columns describe."""
    return max((np.size(values) for values in columns.values()), default=0)


def column(columns: Mapping[str, Any], name: str, count: int, default: Any) -> Numbers:
    """One column, or `default` for each configuration of a family that has no such quantity."""
    return as_numbers(columns.get(name, default), count)


def as_numbers(values: Any, count: int) -> Numbers:
    """As many floating-point numbers; a single one is repeated."""
    return np.broadcast_to(np.asarray(values, float), (count,))
