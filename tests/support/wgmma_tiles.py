"""Where the wgmma family's tiles lie in shared memory: what its headers say in numbers, and a model of TMA.

A program made of the headers and of a table of these numbers is compiled, and the table is read from the binary.
"""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kt.devices.catalog import modelled
from kt.problems import Problem
from kt.search_spaces.space import Config
from kt.templates.render import render
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.toolchain import compile_job, toolchain
from support.family_compiles import builtin

__all__ = ["BASE", "DEVICE", "SPACE", "Operand", "choices", "loaded", "operand", "swizzled", "table"]

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
def table(config: Config, problem: Problem, more: str = "") -> dict[str, tuple[int, ...]]:
    """The numbers of the program for `config`, by the name of their array; `more` defines further arrays."""
    source = render(SPACE, config, problem.signature, DEVICE.arch)
    job = compile_job(source, DEVICE.arch, toolchain())
    load_builtins(toolchain().library)
    text = source.text.split('extern "C"')[0] + FACTS.replace("BASE", str(BASE)) + more
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
