"""Rows of tf32 tiles that come to wgmma from registers: every element finds its way from TMA's tile to C.

The headers say in numbers where lanes load and store (`support/wgmma_tiles.py` has how they are asked). The model
knows from NVIDIA's documents how TMA swizzles, which elements of its first operand a lane gives to wgmma, and which
elements of the product it has. Both must meet in every element, and no bank of shared memory may be hit twice by one
access.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.problems import Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Config
from support.wgmma_tiles import BASE, DEVICE, SPACE, choices, loaded, operand, swizzled, table

LANES = 128  # of a warpgroup
SIDE = 32  # of a panel
FACTS = """
namespace {
using Fragments = Traits::Fragments;
using Panels = Traits::PanelStore;
constexpr int kSteps = Traits::Rows::kSteps;
struct Lanes {
  long long rows[128][2], loads[128][Traits::kTilesM][kSteps][2], stores[128][4][2];
};
__host__ __device__ constexpr Lanes lanes() {
  Lanes found{};
  for (int thread = 0; thread < 128; ++thread) {
    const unsigned warp = thread / 32, lane = thread % 32, place = BASE + Fragments::place_of(warp, lane);
    for (int half = 0; half < 2; ++half) found.rows[thread][half] = Fragments::row_of(warp, lane / 4, half);
    for (int i = 0; i < Traits::kTilesM; ++i)
      for (int step = 0; step < kSteps; ++step)
        for (int further = 0; further < 2; ++further)
          found.loads[thread][i][step][further] = Fragments::at(place, i, step, further != 0);
    for (int j = 0; j < 4; ++j)
      for (int second = 0; second < 2; ++second)
        found.stores[thread][j][second] = Panels::at(Panels::place_of(warp, lane), j, second);
  }
  return found;
}
struct Pairs {
  long long first[4][2][2];
};
__host__ __device__ constexpr Pairs pairs() {
  Pairs found{};
  for (int j = 0; j < 4; ++j)
    for (int second = 0; second < 2; ++second)
      for (int upper = 0; upper < 2; ++upper) found.first[j][second][upper] = Panels::first_of_pair(j, second, upper);
  return found;
}
}  // namespace
extern "C" __constant__ Lanes kt_lanes = lanes();
extern "C" __constant__ Pairs kt_pairs = pairs();
extern "C" __constant__ long long kt_shape[] = {
    Traits::kTilesM, kSteps, Panels::kPanels, Panels::kSums, Panels::kWithinPair, Traits::kExchanged, Traits::kRows,
    Traits::kColumns, Panels::kSlotBytes};
"""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Registers:
    """What the headers say of a configuration.

    Attributes:
        rows: of a lane, [lane, half], among the 64 rows of one wgmma.
        loads: addresses, [lane, 64 rows, step, first or further k].
        stores: places in a panel, [lane, 8 columns, pair].
        pairs: first accumulators of pairs, [8 columns, pair, lane of the upper rows].
        within_pair: from a pair's first accumulator to its second.
    """

    rows: Numbers
    loads: Numbers
    stores: Numbers
    pairs: Numbers
    within_pair: int
    exchanged: bool
    all_rows: int
    columns: int
    slot_bytes: int

    @property
    def of_wgmma(self) -> Numbers:
        """Which row of 64 of the tile each row of wgmma is."""
        found = np.empty(64, np.int64)
        for lane, rows in enumerate(self.rows):
            found[lane // 32 * 16 + lane % 32 // 4 + np.array([0, 8])] = rows
        return found


def registers(config: Config, problem: Problem) -> Registers:
    numbers = table(config, problem, FACTS.replace("BASE", str(BASE)))
    tiles, steps, panels, sums, within_pair, exchanged, all_rows, columns, slot_bytes = numbers["kt_shape"]
    assert (panels * SIDE, sums) == (columns, SIDE // 2)
    lanes = np.array(numbers["kt_lanes"], np.int64)
    rows, loads, stores = np.split(lanes, np.cumsum([LANES * 2, LANES * tiles * steps * 2]))
    return Registers(
        rows.reshape(LANES, 2), loads.reshape(LANES, tiles, steps, 2), stores.reshape(LANES, 4, 2),
        np.array(numbers["kt_pairs"], np.int64).reshape(4, 2, 2), within_pair, bool(exchanged), all_rows, columns,
        slot_bytes,
    )  # fmt: skip


def conflicts(addresses: Numbers) -> int:
    """How often more than once the busiest bank is hit by accesses of 8 bytes: half a warp at a time, along axis 0."""
    banks = np.stack([addresses // 4 % 32, addresses // 4 % 32 + 1]).reshape(2, LANES // 16, 16, -1)
    counts = (banks[..., None] == np.arange(32)).sum(axis=(0, 2))
    return int(counts.max()) - 1


CASES = [
    ("tt", choices()),
    ("tt", choices(tile_n=256, stages=4)),
    ("tt", choices(tile_m=256, tile_n=96, stages=4)),
    ("tt", choices(schedule="pingpong", cluster_n=2, stages=6)),
    ("tt", choices(tile_m=64, consumers=1, tile_k_bytes=256, stages=4)),
    ("nn", choices()),
    ("nn", choices(tile_m=256, stages=4, cluster_m=2)),
    ("nn", choices(tile_m=192, tile_n=192, consumers=3, stages=4)),
    ("nn", choices(tile_m=64, tile_n=256, tile_k_bytes=256, stages=2)),
    ("tn", choices(pack_b=1)),
    ("tn", choices(pack_a=1, tile_m=192, tile_n=128, stages=4)),
]


@pytest.mark.parametrize(("layout", "config"), CASES)
def test_lanes_give_wgmma_the_rows_that_tma_has_written(layout: str, config: Config) -> None:
    """Register by register what the PTX document says of m64n*k8; `row_of` names each of 64 rows once."""
    problem = Problem(512, 512, 512, "tf32", layout)
    facts = registers(config, problem)
    assert (np.sort(facts.rows[::4], axis=None) == np.arange(64)).all()
    tile = operand(config, problem, "b" if facts.exchanged else "a")
    k_extent = int(dict(config.parameters)["tile_k_bytes"]) // 4
    memory = loaded(tile, False, facts.all_rows, k_extent, 4)
    tiles, steps = facts.loads.shape[1:3]
    of_consumer = 2 * tiles * tile.panel_bytes
    for first_row in range(0, facts.all_rows, 64 * tiles):
        for lane in range(LANES):
            for i, step, further in np.ndindex(tiles, steps, 2):
                address = facts.loads[lane, i, step, further] + first_row // (64 * tiles) * of_consumer
                assert address % 8 == 0
                for half in range(2):  # registers 2 * further + half
                    row, k = first_row + 64 * i + facts.rows[lane, half], 8 * step + 4 * further + lane % 4
                    assert (memory[address + 4 * half : address + 4 * half + 4] == 4096 * row + k).all()
    assert conflicts(facts.loads.reshape(LANES, -1)) == 0


def panels(facts: Registers, product: Numbers) -> list[Numbers]:
    """Shared memory after a warpgroup has written one panel: that of each of its two pairs of warps, in words.

    Args:
        product: the panel's accumulators, [row of wgmma, column].
    """
    memory = [np.full(facts.slot_bytes // 4, -1, np.int64) for _ in range(2)]
    for lane in range(LANES):
        row, column, upper = lane // 32 * 16 + lane % 32 // 4, lane % 4 * 2, lane // 8 % 2
        sums = [
            product[row + 8 * half, 8 * j + column + second]
            for j in range(4)
            for half in range(2)
            for second in range(2)
        ]
        for j, second in np.ndindex(4, 2):
            first, word = facts.pairs[j, second, upper], facts.stores[lane, j, second] // 4
            target = memory[lane // 64]
            assert (target[word : word + 2] == -1).all()
            target[word : word + 2] = sums[first], sums[first + facts.within_pair]
    return memory


def stored(memory: Numbers) -> Numbers:
    """The panel as TMA reads it: [row of C, column of C]."""
    row, column = np.mgrid[0:SIDE, 0:SIDE]
    found: Numbers = memory[swizzled(row * 128 + column * 4, 128) // 4]
    return found


@pytest.mark.parametrize(("layout", "config"), CASES)
def test_panels_are_parts_of_c(layout: str, config: Config) -> None:
    """Each element of a panel comes from the row and the column that its place in C means."""
    facts = registers(config, Problem(512, 512, 512, "tf32", layout))
    row, column = np.mgrid[0:64, 0:SIDE]
    for pair, memory in enumerate(panels(facts, 4096 * facts.of_wgmma[row] + column)):
        at_row, at_column = np.mgrid[0:SIDE, 0:SIDE]
        of_tile, of_columns = (at_column, at_row) if facts.exchanged else (at_row, at_column)
        assert (stored(memory) == 4096 * (SIDE * pair + of_tile) + of_columns).all()
    assert conflicts(facts.stores.reshape(LANES, -1)) == 0


@pytest.mark.parametrize("ldc", [512, 513, 514])
@pytest.mark.parametrize(("layout", "config"), CASES)
def test_the_space_asks_for_what_the_headers_take(layout: str, config: Config, ldc: int) -> None:
    """Boxes of rows along k and of panels, and shared memory; rows from registers need no copy of their operand."""
    problem = Problem(512, 512, 512, "tf32", layout, ldc=ldc)
    launches, workspace = resolve(SPACE, config, {**DEVICE.names(), **problem.names()})
    main = launches[-1]
    _, staged, threads, _, _ = table(config, problem)["kt_block"]
    assert (main.block, main.smem_bytes) == (threads, staged + 2048)
    boxes = [(one.row_elements, one.box_rows) for one in (operand(config, problem, name) for name in "ab")]
    assert [one.box for one in main.tensor_maps] == [*boxes, *[(SIDE, SIDE)] * (ldc == 512)]
    packed = dict(config.parameters)["pack_a"] == 1 or dict(config.parameters)["pack_b"] == 1
    assert [one.kernel for one in launches[:-1]] == ["kt_gemm_turn_rows"] * packed
    assert (workspace > 0) == packed


def product(problem: Problem, config: Config, a: Any, b: Any) -> Numbers:
    """C of one tile, computed the way the kernel does: by fragments, wgmma and panels."""
    facts = registers(config, problem)
    rows, columns = (b.T, a.T) if facts.exchanged else (a, b)  # [row, k], [k, column]
    c = np.full(
        (columns.shape[1], rows.shape[0]) if facts.exchanged else (rows.shape[0], columns.shape[1]), -1, np.int64
    )
    for first in range(0, facts.all_rows, 64):
        sums = rows[first + facts.of_wgmma] @ columns
        for panel in range(0, facts.columns, SIDE):
            for pair, memory in enumerate(panels(facts, sums[:, panel : panel + SIDE])):
                row, column = first + SIDE * pair, panel
                if facts.exchanged:
                    row, column = column, row
                c[row : row + SIDE, column : column + SIDE] = stored(memory)
    return c


@pytest.mark.parametrize(("layout", "config"), CASES)
def test_a_tile_of_c_is_the_product(layout: str, config: Config) -> None:
    values, draw = dict(config.parameters), np.random.default_rng(1)
    k = int(values["tile_k_bytes"]) // 4
    a = draw.integers(-9, 10, (int(values["tile_m"]), k))
    b = draw.integers(-9, 10, (k, int(values["tile_n"])))
    assert (product(Problem(512, 512, 512, "tf32", layout), config, a, b) == a @ b).all()
