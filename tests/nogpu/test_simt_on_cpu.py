"""The simt family's kernel, run thread by thread on the CPU: right results, and no access outside the operands.

The headers themselves run, but for TMA; copies arrive as late as they may.
"""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest

from kt.devices.catalog import modelled
from kt.problems import Problem
from kt.search_spaces.launch import derive
from kt.search_spaces.space import Config
from kt.templates.render import render
from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls
from support.family_compiles import builtin, valid

pytestmark = needs_compiler
SPACE = builtin("simt")
H200 = modelled("h200")

HEADERS = (
    "common.cuh", "convert.cuh", "workspace.cuh", "scheduler.cuh", "epilogue.cuh",
    "kernels/turned_tile.cuh", "kernels/shifted_tile.cuh", "kernels/simt.cuh",
)  # fmt: skip
# Vectors are read from operands alone; those of turned tiles here.
VECTOR_READS = (
    ("*reinterpret_cast<const Vector<T, kWidth>*>(source)", "cpu::checked<Vector<T, kWidth>>(source)"),
    ("*reinterpret_cast<const Chunk*>(source)", "cpu::checked<Chunk>(source)"),
    ("reinterpret_cast<const Vector<T, 1>*>(source + x)->at[0]", "cpu::checked<T>(source + x)"),
)
SHARED = "extern __shared__ __align__(128) unsigned char shared_bytes[];"
# What the headers take from kt's wrappers of PTX besides block_on_cpu.h.
PTX = """
namespace kt::ptx {
inline unsigned held_shared_address(const void* pointer) { return shared_address(pointer); }
template <class T, int COUNT>
inline void load_shared(T (&to)[COUNT], unsigned source) {
  if (source % sizeof(to)) cpu::fail("misaligned read of shared memory");
  std::memcpy(to, shared + source, sizeof(to));
}
template <class T, int COUNT>
inline void store_shared(unsigned target, const T (&from)[COUNT]) {
  if (target % sizeof(from)) cpu::fail("misaligned write to shared memory");
  std::memcpy(shared + target, from, sizeof(from));
}
inline void store_release(unsigned* flag, unsigned value) { *flag = value; }
inline unsigned load_acquire(const unsigned* flag) {
  cpu::yield();
  return *flag;
}
}  // namespace kt::ptx
template <class T> void __stcg(T* to, T value) { *to = value; }
template <class T> T __ldcg(const T* from) { return *from; }
"""


def call(
    dtype: str, layout: str, tile: tuple[int, int, int], thread: tuple[int, int], lanes_m: int, slices: int,
    stages: int, unroll: int, load: int, vector: int = 0, *, stream: bool = False,
) -> str:  # fmt: skip
    """The call of `run` with the traits that templates/gemm/simt.cu.j2 makes; bytes are widened through registers.

    Loads may be `vector` bytes wide; 0: no wider than rows are aligned, to `load` bytes.
    """
    of_in, of_sum = {"fp32": ("float", "float"), "fp64": ("double", "double"), "int8": ("signed char", "int")}[dtype]
    along_k = (int(layout[0] == "n"), int(layout[1] == "t"))
    store = max(4 if dtype != "fp64" else 8, load)
    traits = (
        f"Tiles<kt::SimtTraits<{of_in}, {of_sum}, {of_sum}, {tile[0]}, {tile[1]}, {tile[2]}, {thread[0]}, {thread[1]},"
        f" {lanes_m}, {slices}, {stages}, {unroll}, kt::kRowsOuter, {along_k[0]}, {along_k[1]}, {int(stream)}, 0, 0,"
        f" {vector or load}, {load}, {load}, {store}, {int(dtype != 'int8')}>>"
    )
    return f"run<{traits}, {along_k[0]}, {along_k[1]}>"


def run(calls: Sequence[str], folder: Path) -> None:
    headers = "".join((INCLUDE / name).read_text() for name in HEADERS)
    for read, checked in VECTOR_READS:
        assert read in headers
        headers = headers.replace(read, checked)
    headers = headers.replace(SHARED, "unsigned char* const shared_bytes = kt::shared;")
    run_calls([PTX, headers, on_cpu("gemm"), on_cpu("simt")], calls, folder, "-O0")


def test_slices_of_k(tmp_path: Path) -> None:
    """Slices of every step meet; operands along k and not; whole and ragged tiles, and k in slices of its own."""
    calls = []
    for layout in ("nt", "tn"):
        one = call("fp32", layout, (32, 32, 16), (4, 4), 4, 1, 2, 16, 4)
        two = call("fp32", layout, (16, 64, 8), (8, 4), 2, 2, 3, 4, 4)
        four = call("fp32", layout, (64, 32, 64), (8, 8), 8, 4, 2, 16, 16)
        calls += [f"{name}(35, 67, {k}, 2, 1, 1, 1, 3)" for name in (one, two) for k in (0, 1, 21)]
        calls += [f"{two}(33, 65, 61, 1, 3, 0, 1, 0)", f"{four}(60, 36, 132, 1, 1, 4, 0, 2)"]
    run([*calls, *map(in_other_format, ("fp64", "int8"))], tmp_path)


def in_other_format(dtype: str) -> str:
    """Two elements in 16 bytes, and elements that are widened on the way."""
    size = {"fp64": 8, "int8": 1}[dtype]
    return f"{call(dtype, 'nt', (64, 32, 16), (8, 4), 8, 4, 2, 4, size)}(67, 45, 21, 1, 1, 1, 1, 3)"


def test_operands_turned_in_registers(tmp_path: Path) -> None:
    """Units of four rows by one, two and four k; several in a thread, fewer than threads; rows beyond the operand."""
    calls = []
    for load, extra in ((4, 1), (8, 2), (16, 4)):
        one = call("fp32", "nn", (64, 64, 16), (8, 8), 4, 1, 2, 16, load)  # 16 registers
        both = call("fp32", "nt", (8, 32, 32), (2, 4), 4, 1, 2, 16, load)  # A has a unit for each second thread
        calls += [f"{name}(53, 68, {k}, 2, 1, {extra}, {extra}, 1)" for name in (one, both) for k in (4, 36)]
    calls.append(f"{call('fp64', 'nn', (32, 32, 8), (4, 4), 8, 1, 2, 4, 16)}(37, 36, 22, 1, 1, 2, 2, 0)")
    most = call("fp32", "nt", (32, 32, 16), (8, 4), 4, 1, 2, 16, 16)  # 32 registers
    calls.append(f"{most}(37, 36, 28, 1, 1, 4, 4, 0)")
    run(calls, tmp_path)


def test_rows_that_begin_anywhere_are_loaded_wide(tmp_path: Path) -> None:
    """Shifted rows: chunks of two and four elements, one unit of a thread or several, further chunks of fewer and more
    rows than threads; odd leading dimensions, operands that begin anywhere; k below a step, whole steps and others."""
    four = call("fp32", "nt", (64, 64, 16), (8, 8), 8, 1, 2, 16, 4, 16)
    two = call("fp32", "nn", (64, 64, 8), (8, 8), 4, 1, 2, 8, 4, 16)
    passes = call("fp32", "tt", (16, 128, 16), (4, 8), 2, 1, 2, 16, 8, 16)  # more columns than threads
    calls = [loads(four, 4, 4), loads(two, 2, 0), loads(passes, 0, 4)]
    for extra, shift in ((1, 0), (3, 1), (0, 2), (2, 3)):
        calls += [f"{four}(67, 70, {k}, 1, 1, {extra}, {shift}, 0)" for k in (1, 3, 37)]
        calls.append(f"{four}(64, 128, 49, 1, 1, {extra}, {shift}, 0)")  # whole tiles: steps begin at -15, 1, 17, 33
        calls += [f"{two}(65, 66, {k}, 2, 1, {extra}, {shift}, 2)" for k in (2, 21)]
    calls += [f"{passes}(16, 260, {k}, 1, 2, {2 * extra}, {2 * extra}, 0)" for k, extra in ((18, 1), (50, 2), (64, 3))]
    run([*calls, f"{four}(64, 64, 0, 1, 1, 1, 1, 3)"], tmp_path)


def test_shifted_rows_of_slices_and_of_other_tiles(tmp_path: Path) -> None:
    """Slices of k; a step of 64; doubles; 12 columns of a thread; two, whose rows are not shifted."""
    slices = call("fp32", "nt", (32, 32, 32), (8, 4), 4, 2, 2, 16, 4, 16)
    deep = call("fp32", "nn", (16, 64, 64), (8, 4), 2, 4, 2, 16, 4, 16)
    twelve = call("fp32", "nt", (64, 48, 8), (8, 12), 8, 1, 2, 8, 4, 16)
    pairs = call("fp32", "nt", (16, 32, 16), (8, 2), 2, 1, 2, 16, 4, 16)
    doubles = call("fp64", "nt", (32, 32, 8), (4, 4), 8, 1, 2, 4, 8, 16)
    calls = [loads(slices, 4, 4), loads(deep, 2, 0), loads(twelve, 4, 4), loads(pairs, 2, 1), loads(doubles, 2, 2)]
    calls += [
        f"{slices}(45, 35, 75, 1, 1, 1, 1, 0)", f"{slices}(32, 64, 133, 1, 2, 0, 0, 0)",
        f"{deep}(17, 129, 197, 1, 1, 1, 0, 0)", f"{twelve}(67, 101, 43, 1, 1, 0, 2, 1)",
        f"{pairs}(64, 35, 49, 1, 1, 0, 3, 0)", f"{doubles}(37, 37, 23, 2, 1, 0, 1, 2)",
    ]  # fmt: skip
    run(calls, tmp_path)


def loads(name: str, of_a: int, of_b: int) -> str:
    """A statement that says how many elements a load of each operand has; 0: it is not turned in registers."""
    return f"{name.replace('run<', 'expect_loads<')}({of_a}, {of_b})"


@pytest.mark.parametrize(
    ("dtype", "layout", "k"), [("fp32", "nt", 77), ("fp32", "nt", 78), ("fp32", "nn", 77), ("fp64", "nt", 77)]
)
def test_the_space_derives_what_the_kernel_does(dtype: str, layout: str, k: int, tmp_path: Path) -> None:
    """Shared memory, registers and loads of random configurations, most of which turn operands in registers."""
    problem = Problem(516, 516, k, dtype, layout)
    survivors = valid(SPACE, problem, H200)
    two_stages = (survivors.columns["stages"] == 2).nonzero()[0].tolist()
    picked = [*Random(k).sample(two_stages, 24), *Random(k).sample(range(len(survivors)), 4)]
    run([expectation(problem, survivors.config(number)) for number in picked], tmp_path)


def expectation(problem: Problem, config: Config) -> str:
    """The statement that compares the kernel's numbers with the space's."""
    of = derive(SPACE, config, {**H200.names(), **problem.names()})
    traits = re.search(r"using Traits = (.*?);", render(SPACE, config, problem.signature, H200.arch).text, re.DOTALL)
    assert traits
    turned = of["turned_words"] > 0
    widths = [of[f"wide_{one}"] * of[f"turned_{one}"] if turned else 0 for one in "ab"]
    numbers = (of["smem_bytes"] - of["barrier_bytes"], of["turned_words"], *widths)
    return f"expect<{traits[1]}>{numbers}"


@pytest.mark.parametrize(("size", "group"), [(4, 4), (8, 2)])
def test_stores_of_shifted_rows_meet_no_bank_twice(size: int, group: int) -> None:
    """Whatever the shifts of the rows are: units of 16 bytes, eight lanes at once, and single further elements."""
    for width in (2, 4)[: group // 2]:
        for block_k in (8, 16, 32, 64):
            for difference, first in product(range(width), range(width)):
                shifts = [(first + row * difference) % width for row in range(width)]
                assert units_of_eight_lanes(size, group, width, block_k, shifts) == {8}


def units_of_eight_lanes(size: int, group: int, width: int, block_k: int, shifts: list[int]) -> set[int]:
    """How many different places of 16 bytes, of the eight in a line of banks, each store of eight lanes writes to."""
    block_mn, lanes = 64, block_k // width
    pad = group * max(1, 8 // lanes)

    def place(thread: int, x: int) -> int:
        unit, column = thread // lanes, thread % lanes
        k = column * width + x - shifts[unit % width]
        return (k * block_mn + k // width * pad + unit * group) * size // 16 % 8

    stores = [(first, x) for first in range(0, 32, 8) for x in range(width)]
    return {len({place(first + lane, x) for lane in range(8)}) for first, x in stores}


def test_stream_k_with_slices_of_k(tmp_path: Path) -> None:
    """Five blocks share more tiles than blocks, and fewer; whole ones and ragged ones, which leave by shared memory."""
    one = call("fp32", "nt", (32, 32, 16), (4, 4), 4, 1, 2, 16, 4, 16, stream=True)
    two = call("fp32", "nt", (32, 32, 32), (8, 4), 4, 2, 3, 16, 4, stream=True)
    four = call("fp32", "tn", (16, 32, 64), (4, 4), 4, 4, 2, 16, 16, stream=True)
    run(
        [
            f"{one}(70, 67, 50, 1, 1, 1, 1, 0)", f"{two}(96, 64, 45, 1, 1, 0, 0, 0)",
            f"{two}(70, 67, 97, 1, 1, 1, 1, 2)", f"{two}(33, 20, 230, 1, 1, 1, 0, 0)",
            f"{four}(20, 64, 460, 1, 1, 0, 0, 0)", f"{four}(16, 32, 300, 2, 1, 4, 0, 1)",
        ],
        tmp_path,
    )  # fmt: skip


def test_tiles_of_48_and_96_columns(tmp_path: Path) -> None:
    """Threads of 12 columns; 64 and 128 lie in shared memory, of which the last ones belong to other blocks."""
    run([*threads_of_12_columns("nn"), *threads_of_12_columns("nt")], tmp_path)


def threads_of_12_columns(layout: str) -> list[str]:
    one = call("fp32", layout, (64, 48, 16), (8, 12), 8, 1, 2, 16, 16)
    two = call("fp32", layout, (32, 96, 32), (4, 12), 8, 2, 3, 16, 4)
    four = call("fp32", layout, (64, 48, 16), (8, 12), 8, 4, 2, 4, 8)
    calls = [f"{one}(67, 36, 28, 1, 1, 4, 4, 2)", f"{one}(60, 96, 28, 1, 1, 0, 4, 0)"]
    calls += [f"{two}(33, 101, 45, 2, 1, 1, 1, 0)", f"{four}(60, 130, 36, 1, 2, 0, 2, 0)"]
    calls.append(f"{call('fp64', layout, (32, 48, 16), (4, 12), 8, 1, 2, 16, 16)}(37, 82, 22, 1, 1, 2, 2, 1)")
    bytes_ = call("int8", layout, (64, 48, 8), (8, 12), 8, 1, 2, 4, {"nn": 16, "nt": 1}[layout])
    return [*calls, f"{bytes_}(65, 48, 20, 1, 1, 0, 0, 0)"]
