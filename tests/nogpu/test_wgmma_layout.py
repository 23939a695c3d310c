"""Where the wgmma family's tiles lie in shared memory: a model of TMA and of wgmma agrees with the headers.

The headers say in numbers what they ask of TMA and what their descriptors are: a program made of them and of a table of
these numbers is compiled, and the table is read from the binary. The model knows from NVIDIA's documents how TMA
swizzles and where wgmma looks for an element. Both must meet in every element of a tile.
"""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.devices.catalog import modelled
from kt.problems import Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Config
from kt.templates.render import render
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.toolchain import compile_job, toolchain
from support.family_compiles import builtin

SPACE = builtin("wgmma")
DEVICE = modelled("h200")
BASE = 0x8400  # where a stage begins: any multiple of 1024

FACTS = """
namespace {
template <class Operand>
struct Steps {
  long long at[5 + Operand::kSteps];
};
template <class Operand>
__host__ __device__ constexpr Steps<Operand> steps() {
  Steps<Operand> found{};
  for (int i = 0; i < Operand::kSteps; ++i) found.at[i] = Operand::after_steps(i);
  for (int i = 0; i < 5; ++i) found.at[Operand::kSteps + i] = Operand::after_elements(64 * i);
  return found;
}
}  // namespace
#define KT_OPERAND(Operand)                                                                                     \\
  Operand::kRowElements, Operand::kBoxRows, Operand::kPanels, Operand::kBoxes, Operand::kShareRows,              \\
      Operand::kPanelBytes, Operand::kRowBytes, Operand::kBytes, Operand::kSteps, (long long)Operand::descriptor(BASE)
extern "C" __constant__ long long kt_operand_a[] = {KT_OPERAND(Traits::A)};
extern "C" __constant__ long long kt_operand_b[] = {KT_OPERAND(Traits::B)};
extern "C" __constant__ Steps<Traits::A> kt_steps_a = steps<Traits::A>();
extern "C" __constant__ Steps<Traits::B> kt_steps_b = steps<Traits::B>();
#define KT_FEED(Feed) Feed::kOfRow, Feed::kLanes, Feed::kRowsAtOnce, Feed::kTimes
extern "C" __constant__ long long kt_feed_a[] = {KT_FEED(Traits::FeedA)};
extern "C" __constant__ long long kt_feed_b[] = {KT_FEED(Traits::FeedB)};
extern "C" __constant__ long long kt_block[] = {
    Traits::kStageBytes, kt::WgmmaShared<Traits>::kTiles, Traits::kThreads, Traits::kStoreRowBytes,
    sizeof(Traits::TOut)};
"""


@dataclass(frozen=True)
class Operand:
    """What the header says of one operand's tile."""

    row_elements: int
    box_rows: int
    panels: int
    boxes: int
    share_rows: int
    panel_bytes: int
    row_bytes: int
    bytes: int
    steps: int
    descriptor: int
    after_steps: tuple[int, ...]
    after_elements: tuple[int, ...]  # after 0, 64, 128, … elements


def choices(**changes: Any) -> Config:
    """The default with changes, whether or not the space allows them for some problem."""
    return SPACE.config({**SPACE.default, **changes})


@cache
def table(config: Config, problem: Problem) -> dict[str, tuple[int, ...]]:
    """The numbers of the program for `config`, by the name of their array."""
    source = render(SPACE, config, problem.signature, DEVICE.arch)
    job = compile_job(source, DEVICE.arch, toolchain())
    load_builtins(toolchain().library)
    text = source.text.split('extern "C"')[0] + FACTS.replace("BASE", str(BASE))
    result = Nvrtc(toolchain().library).compile(text, (f"--gpu-architecture={DEVICE.arch}", *job.options))
    assert result.result == 0, result.log
    return constants(result.cubin)


def constants(cubin: bytes) -> dict[str, tuple[int, ...]]:
    """The 64-bit numbers of each named object of an ELF file."""
    (sections_at,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count = struct.unpack_from("<HH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, sections_at + size * i) for i in range(count)]
    found = {}
    for kind, offset, length, link in ((one[1], one[4], one[5], one[6]) for one in headers):
        if kind != 2:  # SHT_SYMTAB
            continue
        for at in range(offset, offset + length, 24):
            name_at, info, _, section, value, extent = struct.unpack_from("<IBBHQQ", cubin, at)
            start = headers[link][4] + name_at
            name = cubin[start : cubin.index(b"\0", start)].decode()
            if info % 16 == 1 and name.startswith("kt_"):  # STT_OBJECT
                data = headers[section][4] + value
                found[name] = struct.unpack_from(f"<{extent // 8}q", cubin, data)
    return found


def operand(config: Config, problem: Problem, name: str) -> Operand:
    numbers = table(config, problem)
    facts, moves = numbers[f"kt_operand_{name}"], numbers[f"kt_steps_{name}"]
    row_elements, box_rows, panels, boxes, share_rows, panel_bytes, row_bytes, all_bytes, steps, descriptor = facts
    return Operand(
        row_elements, box_rows, panels, boxes, share_rows, panel_bytes, row_bytes, all_bytes, steps,
        descriptor % 2**64, moves[:steps], moves[steps:],
    )  # fmt: skip


# --- the model -------------------------------------------------------------------------------------------------------


def swizzled(address: Any, row_bytes: int) -> Any:
    """Where TMA and wgmma put a byte: 16-byte units change places within `row_bytes`, by address bits from 7 on."""
    return address ^ ((address >> 7 & (row_bytes // 16 - 1)) << 4)


def loaded(tile: Operand, k_major: bool, mn_extent: int, k_extent: int, size: int) -> npt.NDArray[np.int64]:
    """Shared memory, byte by byte, after TMA has written a tile; its element (mn, k) has the number 4096 * mn + k.

    Raises:
        AssertionError: a byte is written twice.
    """
    memory = np.full(BASE + tile.bytes, -1, np.int64)
    sharers = (mn_extent if k_major else k_extent) // tile.share_rows
    rows, columns = np.mgrid[0 : tile.box_rows, 0 : tile.row_elements]
    for share in range(sharers):
        for panel in range(tile.panels):
            for box in range(tile.boxes):
                first = share * tile.share_rows + box * tile.box_rows
                row, column = first + rows, panel * tile.row_elements + columns
                target = BASE + panel * tile.panel_bytes + first * tile.row_bytes
                number = 4096 * row + column if k_major else 4096 * column + row
                for byte in range(size):
                    at = swizzled(target + rows * tile.row_bytes + columns * size + byte, tile.row_bytes)
                    assert (memory[at] == -1).all()
                    memory[at] = number
    return memory


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


FED = [
    ("bf16", "nn", 516, choices()),
    ("bf16", "nn", 514, choices()),
    ("bf16", "nn", 516, choices(tile_m=64, tile_n=16, tile_k_bytes=256, consumers=1)),
    ("bf16", "nn", 516, choices(tile_n=48)),
    ("bf16", "nn", 514, choices(tile_n=256, stages=3)),
    ("bf16", "nn", 516, choices(tile_n=176)),
    ("bf16", "tt", 514, choices(tile_m=256, tile_n=96, stages=3)),
    ("int8", "nt", 516, choices(tile_k_bytes=256, stages=2)),
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
@pytest.mark.parametrize(("dtype", "layout", "config"), CASES)
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
