"""The wgmma family's walk over tiles, compiled for the CPU: every step is computed once, in a safe order."""

import shutil
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kt.templates.lookup import BUILTIN

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run the header on the CPU")

INCLUDE = BUILTIN / "include" / "kt"
SHIM = """
#include <cstdio>
#include <cstdlib>
#define __host__
#define __device__
#define __forceinline__ inline
struct Index { unsigned x; };
static Index blockIdx, gridDim;
static unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
"""
MAIN = """
int main(int count, char** values) {
  kt::GemmArguments args{};
  int number[8];
  for (int i = 0; i < 8; ++i) number[i] = std::atoi(values[i + 1]);
  args.m = number[0]; args.n = number[1]; args.k = number[2]; args.batch = number[3];
  args.split_k = number[4]; args.raster_group = number[5]; args.stream_k = number[6];
  gridDim.x = unsigned(number[7]);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
    Walk walk(args);
    for (kt::WgmmaTile tile; walk.next(tile);) {
      std::printf("%u %d %d %d %d %d %d %d %d %d\\n", blockIdx.x, tile.m, tile.n, tile.batch, tile.slice,
                  tile.first_step, tile.steps, tile.first_block, tile.ends, Walk::one_row(args));
    }
  }
}
"""


@dataclass(frozen=True)
class Piece:
    """A piece of work as `WgmmaTile` describes it, and the block that has it."""

    block: int
    m: int
    n: int
    batch: int
    slice: int
    first_step: int
    steps: int
    first_block: int
    ends: int
    one_row: int

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.m, self.n, self.batch


class Walker:
    """Programs of the header, one for each shape of tile and cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def walk(
        self, cluster: tuple[int, int], grid: int, *, m: int, n: int, k: int, height: int = 128, **more: int
    ) -> list[Piece]:
        values = {"batch": 1, "split_k": 1, "raster_group": 1, "stream_k": 0, **more}
        order = ("batch", "split_k", "raster_group", "stream_k")
        program = self._program(cluster, height)
        numbers = [m, n, k, *(values[name] for name in order), grid]
        output = subprocess.run([program, *map(str, numbers)], check=True, capture_output=True, text=True).stdout
        return [Piece(*map(int, line.split())) for line in output.splitlines()]

    def _program(self, cluster: tuple[int, int], height: int) -> Path:
        program = self._folder / f"walk{cluster[0]}x{cluster[1]}x{height}"
        if not program.exists():
            headers = "".join((INCLUDE / name).read_text() for name in ("common.cuh", "kernels/wgmma_walk.cuh"))
            using = f"using Walk = kt::WgmmaWalk<{height}, 64, 32, {cluster[0]}, {cluster[1]}>;"
            source = program.with_suffix(".cpp")
            source.write_text(SHIM + headers + using + MAIN)
            subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-o", program, source], check=True)
        return program


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Walker:
    return Walker(tmp_path_factory.mktemp("walk"))


def up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


PROBLEMS: list[tuple[tuple[int, int], int, dict[str, Any]]] = [
    ((1, 1), 132, {"m": 1, "n": 1, "k": 1}),
    ((1, 1), 7, {"m": 1000, "n": 700, "k": 100, "raster_group": 3}),
    ((1, 1), 132, {"m": 1000, "n": 5000, "k": 64, "raster_group": 16, "batch": 3}),
    ((2, 1), 12, {"m": 900, "n": 700, "k": 100, "raster_group": 2}),
    ((1, 2), 12, {"m": 900, "n": 700, "k": 100, "raster_group": 4, "batch": 2}),
    ((1, 1), 132, {"m": 300, "n": 200, "k": 1000, "split_k": 7}),
    ((2, 1), 130, {"m": 300, "n": 200, "k": 96, "split_k": 4, "batch": 2}),
    ((1, 1), 9, {"m": 300, "n": 200, "k": 0}),
    ((1, 1), 132, {"m": 2100, "n": 1300, "k": 1000, "stream_k": 1, "raster_group": 4}),
    ((1, 1), 132, {"m": 1000, "n": 1000, "k": 4000, "stream_k": 1}),
    ((1, 1), 100, {"m": 128, "n": 64, "k": 32000, "stream_k": 1}),
    ((2, 1), 132, {"m": 2100, "n": 1300, "k": 1000, "stream_k": 1, "raster_group": 2, "batch": 2}),
    ((1, 1), 132, {"m": 129, "n": 7168, "k": 96}),
    ((1, 2), 132, {"m": 128, "n": 7168, "k": 96, "batch": 2, "stream_k": 1}),
    ((1, 2), 14, {"m": 2100, "n": 1300, "k": 40, "stream_k": 1, "raster_group": 8}),
]


@pytest.mark.parametrize(("cluster", "grid", "problem"), PROBLEMS)
def test_every_step_of_every_tile_is_computed_once(
    walker: Walker, cluster: tuple[int, int], grid: int, problem: dict[str, Any]
) -> None:
    pieces = walker.walk(cluster, grid, **problem)
    seen = Counter((*one.tile, step) for one in pieces for step in range(one.first_step, one.first_step + one.steps))
    rows = range(0, up(problem["m"], 128 * cluster[0]), 128)
    columns = range(0, up(problem["n"], 64 * cluster[1]), 64)
    batches, steps = range(problem.get("batch", 1)), range(up(problem["k"], 32) // 32)
    assert seen == Counter((m, n, batch, step) for m in rows for n in columns for batch in batches for step in steps)
    assert {one.tile for one in pieces} == {(m, n, batch) for m in rows for n in columns for batch in batches}


@pytest.mark.parametrize("height", [80, 96, 112])
@pytest.mark.parametrize(("cluster", "grid"), [((1, 1), 106), ((2, 1), 106), ((1, 1), 132)])
def test_every_row_is_of_one_tile_whatever_its_height(
    walker: Walker, height: int, cluster: tuple[int, int], grid: int
) -> None:
    """Tiles of fewer rows than are multiplied follow each other without a gap, in each batch."""
    pieces = walker.walk(cluster, grid, m=8457, n=35, k=96, batch=2, raster_group=8, height=height)
    rows = range(0, up(8457, height * cluster[0]), height)
    assert Counter(one.tile for one in pieces) == Counter((m, 0, batch) for m in rows for batch in range(2))
    assert {(one.first_step, one.steps, one.one_row) for one in pieces} == {(0, 3, 0)}


@pytest.mark.parametrize(("cluster", "grid", "problem"), PROBLEMS)
def test_of_one_row_of_tiles_each_step_reads_its_own_part_of_b(
    walker: Walker, cluster: tuple[int, int], grid: int, problem: dict[str, Any]
) -> None:
    """What L2 is told may leave first is not needed again."""
    pieces = walker.walk(cluster, grid, **problem)
    seen = Counter(
        (one.n, one.batch, step) for one in pieces for step in range(one.first_step, one.first_step + one.steps)
    )
    read_once = max(seen.values(), default=1) == 1
    assert {one.one_row for one in pieces if problem["k"]} <= {int(read_once)}


@pytest.mark.parametrize(("cluster", "grid", "problem"), PROBLEMS)
def test_blocks_of_a_cluster_have_neighbouring_tiles(
    walker: Walker, cluster: tuple[int, int], grid: int, problem: dict[str, Any]
) -> None:
    """They share what they load, so they must walk in step."""
    of_block = defaultdict(list)
    for one in walker.walk(cluster, grid, **problem):
        of_block[one.block].append(one)
    size = cluster[0] * cluster[1]
    for first in range(0, grid, size):
        for rank in range(size):
            moved = [
                (one.m - 128 * (rank % cluster[0]), one.n - 64 * (rank // cluster[0]), one.first_step, one.steps)
                for one in of_block[first + rank]
            ]
            assert moved == [(one.m, one.n, one.first_step, one.steps) for one in of_block[first]]


def test_every_slice_is_written(walker: Walker) -> None:
    """Slices without steps too, for they are summed."""
    pieces = walker.walk((1, 1), 20, m=300, n=200, k=96, split_k=5)
    assert Counter((one.m, one.n, one.slice) for one in pieces) == Counter(
        (m, n, part) for m in (0, 128, 256) for n in (0, 64, 128, 192) for part in range(5)
    )


STREAMED = [one for one in PROBLEMS if one[2].get("stream_k")]


@pytest.mark.parametrize(("cluster", "grid", "problem"), STREAMED)
def test_pieces_are_parked_once_and_before_they_are_waited_for(
    walker: Walker, cluster: tuple[int, int], grid: int, problem: dict[str, Any]
) -> None:
    """A block parks one piece at most, before it waits for any; who ends a tile waits for lower blocks of its rank."""
    size = cluster[0] * cluster[1]
    pieces = walker.walk(cluster, grid, **problem)
    parked = {one.block: one for one in pieces if not one.ends}
    assert len(parked) == sum(1 for one in pieces if not one.ends)
    for one in pieces:
        waits_for = range(one.first_block, one.block, size)
        assert all(block % size == one.block % size for block in waits_for)
        if not one.ends:
            before = [other for other in pieces[: pieces.index(one)] if other.block == one.block]
            assert all(other.first_block == other.block for other in before)
            continue
        parts = [parked[block] for block in waits_for]
        assert all(part.tile == one.tile for part in parts)
        assert sum(part.steps for part in parts) == one.first_step


@pytest.mark.parametrize(("cluster", "grid", "problem"), STREAMED)
def test_blocks_have_as_many_steps_as_each_other(
    walker: Walker, cluster: tuple[int, int], grid: int, problem: dict[str, Any]
) -> None:
    steps = Counter[int]()
    for one in walker.walk(cluster, grid, **problem):
        steps[one.block] += one.steps
    assert len(steps) == grid
    assert max(steps.values()) - min(steps.values()) <= 1


@pytest.mark.parametrize(("cluster", "grid", "problem"), STREAMED)
def test_what_is_shared_comes_before_tiles_of_whole_rounds(
    walker: Walker, cluster: tuple[int, int], grid: int, problem: dict[str, Any]
) -> None:
    """So that adding up pieces ends behind products, not behind the last one."""
    pieces = walker.walk(cluster, grid, **problem)
    tiles = len({one.tile for one in pieces})
    dealt = max(tiles // grid - 1, 0)  # to each block
    for block in range(grid):
        own = [one for one in pieces if one.block == block]
        shared, whole = own[: len(own) - dealt], own[len(own) - dealt :]
        assert sum(one.steps for one in shared) <= 2 * up(problem["k"], 32) // 32
        assert all(one.ends and one.first_step == 0 for one in whole)
