"""Where the wgmma family's tiles lie in shared memory: a model of TMA and of wgmma agrees with the headers.

The headers say in numbers what they ask of TMA and what their descriptors are (`support/wgmma_tiles.py`). The model
knows from NVIDIA's documents how TMA swizzles and where wgmma looks for an element. Both must meet in every element of
a tile.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.problems import Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Config
from support.wgmma_tiles import BASE, DEVICE, SPACE, Operand, choices, loaded, operand, swizzled, table


def fed(tile: Operand, feed: tuple[int, ...], access: int) -> npt.NDArray[np.int64]:
    """Where in memory `WgmmaFeed` puts the bytes of a tile's rows: [row, byte].

    Raises:
        AssertionError: a byte is put twice, or none is.
    """
    of_row, lanes, rows_at_once, times = feed

    def swizzle(row: int) -> int:
        return row * tile.row_bytes // 128 % (tile.row_bytes // 16) << 4

    places = np.full((rows_at_once * times, of_row * access), -1, np.int64)
    for thread in range(lanes * rows_at_once):
        place, row = thread % lanes * access, thread // lanes
        if place >= of_row * access:
            continue
        target = BASE + place // tile.row_bytes * tile.panel_bytes + row * tile.row_bytes
        target += place % tile.row_bytes ^ swizzle(row)
        for step in range(0, rows_at_once * times, rows_at_once):
            at = (target ^ swizzle(step)) + step * tile.row_bytes
            assert (places[row + step, place : place + access] == -1).all()
            places[row + step, place : place + access] = at + np.arange(access)
    assert (places >= 0).all()
    return places


def read(descriptor: int, k_major: bool, mn_extent: int, size: int) -> Any:
    """Addresses of the elements that one wgmma reads, as [mn, k]: the canonical layouts of the PTX document."""
    start = (descriptor & 0x3FFF) << 4
    panel_stride, core_stride = (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    row_bytes = {1: 128, 2: 64, 3: 32}[descriptor >> 62]
    mn, k = np.mgrid[0:mn_extent, 0 : 32 // size]
    if k_major:
        return swizzled(start + mn // 8 * core_stride + mn % 8 * row_bytes + k * size, row_bytes)
    per_row = row_bytes // size
    unswizzled = start + mn // per_row * panel_stride + mn % per_row * size + k // 8 * core_stride + k % 8 * row_bytes
    return swizzled(unswizzled, row_bytes)


def found(tile: Operand, k_major: bool, extents: tuple[int, int], size: int, parts: list[tuple[int, int]]) -> Any:
    """The numbers that wgmma finds for the whole tile; `parts` are first mn and width of the instructions."""
    mn_extent, k_extent = extents
    memory = loaded(tile, k_major, mn_extent, k_extent, size)
    result = np.full(extents, -1, np.int64)
    each = 32 // size
    for step in range(tile.steps):
        for first, width in parts:
            moved = tile.descriptor + tile.after_steps[step] + tile.after_elements[first // 64]
            addresses = read(moved, k_major, width, size)
            result[first : first + width, step * each : (step + 1) * each] = memory[addresses]
    return result


def expected(extents: tuple[int, int]) -> Any:
    mn, k = np.mgrid[0 : extents[0], 0 : extents[1]]
    return 4096 * mn + k


CASES = [
    ("bf16", "nt", choices()),
    ("bf16", "nt", choices(tile_n=320, stages=3)),
    ("bf16", "nt", choices(tile_m=64, tile_n=16, consumers=1, cluster_m=2)),
    ("bf16", "nt", choices(tile_m=64, tile_n=56, tile_k_bytes=256, consumers=1, cluster_n=2)),
    ("bf16", "nt", choices(tile_m=64, tile_n=24, consumers=1, min_blocks=2)),
    ("tf32", "nt", choices(tile_m=64, tile_n=40, consumers=1)),
    ("fp8_e4m3", "nt", choices(tile_m=64, tile_n=56, tile_k_bytes=256, consumers=1)),
    ("bf16", "nt", choices(tile_m=192, tile_n=240, consumers=3, cluster_n=2, stages=2)),
    ("bf16", "nt", choices(tile_k_bytes=256, stages=2)),
    ("bf16", "nn", choices()),
    ("bf16", "nn", choices(tile_m=64, tile_n=16, tile_k_bytes=256, consumers=1)),
    ("bf16", "nn", choices(tile_n=32, cluster_m=2)),
    ("bf16", "nn", choices(tile_n=48)),
    ("bf16", "nn", choices(tile_n=320, stages=3)),
    ("bf16", "nn", choices(tile_n=240, cluster_m=2, stages=4)),
    ("bf16", "tn", choices(tile_m=256, tile_n=96, stages=3)),
    ("bf16", "tt", choices(tile_m=192, tile_n=176, consumers=3, cluster_n=2, stages=3)),
    ("tf32", "nt", choices(tile_n=256, stages=3)),
    ("tf32", "nn", choices(tile_k_bytes=256, stages=2, pack_b=1)),
    ("int8", "nt", choices(tile_k_bytes=256, stages=2, cluster_m=2)),
    ("int8", "tn", choices(tile_m=256, pack_a=1, pack_b=1, stages=3)),
    ("fp8_e4m3", "tt", choices(pack_a=1)),
]


@pytest.mark.parametrize(("dtype", "layout", "config"), CASES)
def test_wgmma_finds_what_tma_has_written(dtype: str, layout: str, config: Config) -> None:
    problem, values = Problem(512, 512, 512, dtype, layout), dict(config.parameters)
    size = problem.element_bytes["a"]
    for name, extent, along_k, packed in (
        ("a", int(values["tile_m"]), layout[0] == "n", values["pack_a"]),
        ("b", int(values["tile_n"]), layout[1] == "t", values["pack_b"]),
    ):
        k_major = along_k or packed == 1
        tile, extents = operand(config, problem, name), (extent, int(values["tile_k_bytes"]) // size)
        parts = [(0, extent)] if name == "b" and extent <= 256 else [(first, 64) for first in range(0, extent, 64)]
        assert (found(tile, k_major, extents, size, parts) == expected(extents)).all()


TILE = """
extern "C" __constant__ long long kt_tile[] = {Traits::kHeight, Traits::kCut, Traits::kTilesM};
"""
FEW_ROWS = [
    ("bf16", "nt", choices(tile_m=64, tile_n=32, rows_loaded=32, consumers=1)),
    ("bf16", "nt", choices(tile_m=64, tile_n=64, rows_loaded=32, consumers=1, stages=8)),
    ("bf16", "nt", choices(tile_m=64, tile_n=24, rows_loaded=16, tile_k_bytes=256, consumers=1)),
    ("bf16", "nn", choices(tile_m=64, tile_n=96, rows_loaded=16, tile_k_bytes=256, consumers=1, cluster_n=2)),
    ("int8", "nt", choices(tile_m=64, tile_n=48, rows_loaded=16, consumers=2, schedule="pingpong")),
]


# Tiles of fewer rows of C than are multiplied; the last panel of A has no more behind it than B's bytes.
HEIGHTS = [
    ("bf16", "nt", choices(tile_n=48, rows_loaded=96, stages=8)),
    ("bf16", "nn", choices(tile_n=48, rows_loaded=96, tile_k_bytes=256, stages=5, consumers=1)),
    ("bf16", "nn", choices(tile_n=32, rows_loaded=96, stages=8, schedule="pingpong")),
    ("bf16", "nt", choices(tile_n=32, rows_loaded=96, stages=8)),
    ("tf32", "nn", choices(tile_n=48, rows_loaded=96, stages=8, cluster_m=2, pack_b=1)),
    ("int8", "nt", choices(tile_n=32, rows_loaded=96, stages=8, cluster_n=2)),
]


@pytest.mark.parametrize(("dtype", "layout", "config"), [*FEW_ROWS, *HEIGHTS])
def test_rows_that_are_not_loaded_are_read_within_the_stage(dtype: str, layout: str, config: Config) -> None:
    """Those that are lie where wgmma looks for the first ones; what follows is B's, or another panel."""
    problem, values = Problem(512, 512, 512, dtype, layout), dict(config.parameters)
    size, rows = problem.element_bytes["a"], int(values["rows_loaded"])
    tile, each = operand(config, problem, "a"), 32 // problem.element_bytes["a"]
    memory = loaded(tile, True, rows, int(values["tile_k_bytes"]) // size, size)
    for step, first in itertools.product(range(tile.steps), range(0, int(values["tile_m"]), 64)):
        addresses = read(tile.descriptor + tile.after_steps[step] + tile.after_elements[first // 64], True, 64, size)
        assert addresses.max() + size <= BASE + table(config, problem)["kt_block"][0]
        mn, k = np.mgrid[first : min(first + 64, rows), step * each : (step + 1) * each]
        assert (memory[addresses[: len(mn)]] == 4096 * mn + k).all()


FED = [
    ("bf16", "nn", 516, choices()),
    ("bf16", "nn", 514, choices()),
    ("bf16", "nn", 516, choices(tile_m=64, tile_n=16, tile_k_bytes=256, consumers=1)),
    ("bf16", "nn", 516, choices(tile_n=48)),
    ("bf16", "nn", 514, choices(tile_n=256, stages=3)),
    ("bf16", "nn", 516, choices(tile_n=176)),
    ("bf16", "tt", 514, choices(tile_m=256, tile_n=96, stages=3)),
    ("int8", "nt", 516, choices(tile_k_bytes=256, stages=2)),
    ("bf16", "nt", 514, choices(tile_m=64, tile_n=40, consumers=1)),
    ("bf16", "nt", 516, choices(tile_m=64, tile_n=56, tile_k_bytes=256, consumers=1)),
]


@pytest.mark.parametrize(("dtype", "layout", "ld", "config"), FED)
def test_threads_copy_to_where_tma_would(dtype: str, layout: str, ld: int, config: Config) -> None:
    problem, values = Problem(512, 512, 512, dtype, layout, lda=ld, ldb=ld), dict(config.parameters)
    size, access = problem.element_bytes["a"], problem.alignment("a")
    for name, extent, k_major in (
        ("a", int(values["tile_m"]), layout[0] == "n"),
        ("b", int(values["tile_n"]), layout[1] == "t"),
    ):
        tile, k_extent = operand(config, problem, name), int(values["tile_k_bytes"]) // size
        memory = loaded(tile, k_major, extent, k_extent, size)
        places = fed(tile, table(config, problem)[f"kt_feed_{name}"], access)
        mn, k = np.mgrid[0:extent, 0:k_extent]
        numbers = 4096 * mn + k
        assert (memory[places] == np.repeat(numbers if k_major else numbers.T, size, axis=1)).all()


@pytest.mark.parametrize("ldc", [512, 513, 516])
@pytest.mark.parametrize(("dtype", "layout", "config"), [*CASES, *FEW_ROWS, *HEIGHTS])
def test_the_space_asks_for_what_the_headers_take(dtype: str, layout: str, config: Config, ldc: int) -> None:
    """Boxes, swizzles, threads and shared memory of the launch are those of the kernel, also where C is not TMA's."""
    problem = Problem(512, 512, 512, dtype, layout, ldc=ldc)
    launches, _ = resolve(SPACE, config, {**DEVICE.names(), **problem.names()})
    main = next(launch for launch in launches if launch.kernel == "kt_gemm")
    stage_bytes, staged, threads, store_row_bytes, out_bytes = table(config, problem)["kt_block"]
    tiles = [operand(config, problem, name) for name in "ab"]
    boxes = [((tile.row_elements, tile.box_rows), tile.row_bytes) for tile in tiles]
    if problem.alignment("c") == 16:
        boxes.append(((store_row_bytes // out_bytes, 16), store_row_bytes))
    assert [(one.box, one.swizzle) for one in main.tensor_maps] == boxes
    assert main.block == threads
    assert main.smem_bytes == staged + 2048
    assert stage_bytes == sum(tile.bytes for tile in tiles)


@pytest.mark.parametrize(("dtype", "layout", "config"), [CASES[0], *FEW_ROWS, *HEIGHTS])
def test_each_row_of_c_is_of_one_tile_and_of_one_strip(dtype: str, layout: str, config: Config) -> None:
    """The launch has as many blocks as there are tiles; warps write a tile's rows, and none of the next one's."""
    problem, values = Problem(8457, 16, 512, dtype, layout), config.as_dict()
    numbers = table(config, problem, TILE)["kt_tile"]
    height, cut, tiles_m, step = numbers[0], numbers[1], numbers[2], 64 * numbers[2]
    assert height == (values["rows_loaded"] if int(values["rows_loaded"]) > 64 else values["tile_m"])
    launches, _ = resolve(SPACE, config, {**DEVICE.names(), **problem.names()})
    cluster = int(values["cluster_m"]) * int(values["cluster_n"])
    rows = height * int(values["cluster_m"])
    assert launches[-1].grid == min(DEVICE.sm_count // cluster, -(-problem.m // rows)) * cluster
    sharers = 1 if values["schedule"] == "pingpong" else int(values["consumers"])
    firsts = [step * one + 16 * warp + 64 * i for one in range(sharers) for warp in range(4) for i in range(tiles_m)]
    written = [first + row for first in firsts if not cut or first < height for row in range(16)]
    assert sorted(written) == list(range(height))
