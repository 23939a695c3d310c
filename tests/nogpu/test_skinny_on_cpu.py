"""The skinny family's kernel, run thread by thread on the CPU: right results, and no access outside the operands.

Not only the arithmetic of indices but the kernel's own headers run; formats stand for their sizes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kt.problems import LAYOUTS
from kt.search_spaces.loader import BUILTIN, load_space
from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls

pytestmark = needs_compiler

HEADERS = (
    "common.cuh", "convert.cuh", "epilogue.cuh", "kernels/skinny_streamed.cuh", "kernels/skinny_held.cuh",
    "kernels/skinny_sums.cuh", "kernels/skinny.cuh", "kernels/skinny_stretch_source.cuh",
    "kernels/skinny_stretch_sums.cuh", "kernels/skinny_stretch_results.cuh", "kernels/skinny_stretch.cuh",
)  # fmt: skip
# format, its type, of sums, of C
FORMATS = {
    "fp32": ("", "float", "float", "float"),
    "tf32": ("kTf32", "float", "float", "float"),
    "bf16": ("kBf16", "unsigned short", "float", "Bf16"),
    "int8": ("kInt8", "signed char", "int", "int"),
    "fp64": ("kFp64", "double", "double", "double"),
}
OUT_SIZE = {"Bf16": 2, "float": 4, "int": 4, "double": 8}
SIZE = {"fp32": 4, "tf32": 4, "bf16": 2, "int8": 1, "fp64": 8}


def sums(dtype: str, lane_rows: int, tile_s: int, held: str, ahead: int = 1) -> str:
    if dtype == "fp32":
        return f"kt::ThreadSums<{lane_rows}, {tile_s}, {held}, {ahead if tile_s < 16 else 1}>"
    return f"kt::TensorSums<kt::Format::{FORMATS[dtype][0]}, {FORMATS[dtype][2]}, {lane_rows}, {held}, {ahead}>"


def call(dtype: str, layout: str, streamed_a: bool, load: int, choices: Mapping[str, int]) -> str:
    """The call of `run` with the traits that templates/gemm/skinny.cu.j2 makes."""
    _, of_in, of_sum, of_out = FORMATS[dtype]
    along = {"a": layout[0] == "n", "b": layout[1] == "t"}
    streamed, held = (along["a"], along["b"]) if streamed_a else (along["b"], along["a"])
    rows, short, size = choices["lane_rows"], choices["tile_s"], OUT_SIZE[of_out]
    store = size if load == 1 else max(load, size)
    begin = f"{int(streamed_a)}, {short}, {rows}, {choices['warps_l']}"
    if "warps_k" in choices:
        reader = "kt::HeldRows" if dtype == "fp32" else "kt::HeldOctets"
        total = sums(dtype, rows, short, f"{reader}<{of_in}, {short}, {int(held)}, {load}>", choices.get("ahead", 1))
        numbers = f"{choices['warps_k']}, {choices['chunks']}, {choices['stages']}, {choices.get('cluster_k', 1)}"
        types = f"{of_in}, {of_sum}, {of_out}"
        traits = f"kt::SkinnyTraits<{types}, {begin}, {numbers}, {int(streamed)}, {load}, {store}, {total}>"
    else:
        group = min(short // 4, 16 // size) if streamed_a else 2
        reader = f"kt::StretchRows<{short}>" if dtype == "fp32" else f"kt::StretchOctets<{short}, {group}>"
        turned, length = not streamed_a and dtype != "fp32", min(16 // size, 2 * rows)
        neighbours = f"kt::RowsTogether<{min(rows, 16 // SIZE[dtype])}>"
        order = f"kt::RowsInPairs<{length}>" if turned else "kt::RowsApart" if streamed_a and streamed else neighbours
        halves = int(dtype not in ("fp32", "fp64"))
        source = f"kt::{'Row' if streamed else 'Line'}Stretch<{of_in}, {rows}, {load}, {order}, {halves}>"
        total = sums(dtype, rows, short, reader)
        if turned:
            total = f"kt::TurnedSums<kt::Format::{FORMATS[dtype][0]}, {of_sum}, {rows}, {reader}, {length}>"
        types = f"{of_in}, {of_sum}, {of_out}, {int(of_out == 'Bf16')}"
        traits = f"kt::StretchTraits<{types}, {begin}, {choices['stages']}, {int(held)}, {store}, {source}, {total}>"
    return f"run<{traits}, {int(along['a'])}, {int(along['b'])}>"


def run(calls: Sequence[str], folder: Path) -> None:
    read_only = (INCLUDE / "ptx" / "read_only.cuh").read_text()
    row = "namespace kt::ptx {\n" + read_only[read_only.index("// `BYTES` in a row") :]
    headers = [(INCLUDE / name).read_text() for name in HEADERS]
    run_calls([row, *headers, on_cpu("gemm"), on_cpu("skinny")], calls, folder)


# Each format in two of the layouts; the slow tests have the others.
EVERY = [
    pytest.param(dtype, layout, marks=[pytest.mark.slow] if (i + j) % 2 else [])
    for i, dtype in enumerate(FORMATS)
    for j, layout in enumerate(LAYOUTS)
]
# m or n, the other one, k, batch, slices of k, elements between rows, elements from the alignment, beta
Case = tuple[int, int, int, int, int, int, int, int]


def calls(dtype: str, layout: str, load: int, choices: Mapping[str, int], cases: Sequence[Case]) -> list[str]:
    """Each case with either operand streamed."""
    found = []
    for streamed_a in (False, True):
        name = call(dtype, layout, streamed_a, load, choices)
        for short, long, *others in cases:
            m, n = (long, short) if streamed_a else (short, long)
            found.append(f"{name}({m}, {n}, {', '.join(map(str, others))})")
    return found


def shorts(dtype: str) -> tuple[int, int]:
    """Few held rows, and many."""
    return (2, 16) if dtype == "fp32" else (8, 32)


@pytest.mark.parametrize(("dtype", "layout"), EVERY)
def test_streams(dtype: str, layout: str, tmp_path: Path) -> None:
    """Whole and narrow accesses, ragged sizes, empty sums, batches, slices, several stages, clusters."""
    size, wide = SIZE[dtype], 16 // SIZE[dtype]
    few, many = shorts(dtype)
    rows = max(4, 16 // size)
    small = {"tile_s": few, "lane_rows": 4, "warps_l": 1, "warps_k": 2, "chunks": 1, "stages": 3}
    large = {"tile_s": many, "lane_rows": rows, "warps_l": 2, "warps_k": 2, "chunks": 2, "stages": 2, "ahead": 2}
    deep = {"tile_s": few, "lane_rows": 8, "warps_l": 1, "warps_k": 1, "chunks": 4, "stages": 2, "ahead": 2}
    narrow = {**small, "tile_s": many}
    shared = {**small, "cluster_k": 4}
    # Rows of the held operand that are contiguous are whole accesses, of as many elements as it has rows, or more.
    held_whole = [few] if few >= wide or (layout[0] == "n" and layout[1] == "t") else []
    whole: list[Case] = [
        case
        for short in held_whole
        for case in ((short, 48, 16 * wide, 1, 1, 0, 0, 0), (short, 16, 29 * wide, 2, 3, wide, 0, 2))
    ]
    run(
        [
            *calls(dtype, layout, 16, small, whole),
            *calls(dtype, layout, 16, deep, whole),
            *calls(dtype, layout, 16, shared, whole),
            *calls(dtype, layout, 16, large, [(many, 160, 5 * wide, 1, 2, 0, 0, 0)]),
            *calls(
                dtype, layout, size, narrow,
                [(many - 3, 67, 131, 2, 1, 1, 1, 3), (1, 5, 1, 1, 1, 0, 0, 0), (2, 70, 0, 1, 1, 0, 1, 2)],
            ),
        ],
        tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "layout"), EVERY)
def test_the_kernel_of_tiny_problems(dtype: str, layout: str, tmp_path: Path) -> None:
    """One for every number of held rows up to eight, rows at any alignment, all of k at once, a part of it, or none."""
    tiny = load_space(BUILTIN / "gemm" / "skinny.yaml").tiny
    assert tiny is not None
    choices = {name: value for name, value in tiny.choose.items() if isinstance(value, int) and name != "split_k"}
    whole = 1024 // SIZE[dtype]
    cases: list[Case] = [
        (short, 37, 13 * short, 1 + short % 2, 1, short % 3, short % 2, short % 4) for short in range(1, 9)
    ]
    cases += [(5, 40, whole, 1, 1, 0, 0, 0), (3, 1, whole - 1, 1, 1, 0, 0, 2), (1, 33, 0, 1, 1, 0, 0, 3)]
    run(calls(dtype, layout, SIZE[dtype], choices, cases), tmp_path)


@pytest.mark.parametrize(("dtype", "layout"), EVERY)
def test_stretches(dtype: str, layout: str, tmp_path: Path) -> None:
    """Short rows, dense along k or lines across, at any alignment; more stretches than warps, the last one ragged.

    Where it ends within 16 bytes, they are not read as a whole.
    """
    size, wide = SIZE[dtype], 16 // SIZE[dtype]
    few, many = shorts(dtype)
    small = {"tile_s": few, "lane_rows": 4, "warps_l": 2, "stages": 2}
    large = {"tile_s": many, "lane_rows": max(4, 16 // size), "warps_l": 1, "stages": 3}
    run(
        [
            *calls(dtype, layout, 16, large, [(many, 16 * 37, 3 * wide, 1, 1, 0, 0, 0)]),
            *calls(dtype, layout, 16, large, [(many, 16 * 37, 5 * wide, 1, 1, wide, 0, 2)]),
            *calls(
                dtype, layout, size, small,
                [(few, 301, 67, 1, 1, 1, 0, 3), (1, 303, 1, 1, 1, 0, 1, 0), (few - 1, 67, 13, 1, 1, 3, 1, 0)],
            ),
            *calls(dtype, layout, size, small, [(1, 33, 1, 1, 1, 0, 0, 0)]),  # the last stretch is one element
        ],
        tmp_path,
    )  # fmt: skip
