"""The skinny family's kernel, run thread by thread on the CPU: right results, and no access outside the operands.

Not only the arithmetic of indices but the kernel's own headers run; formats stand for their sizes.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kt.templates.lookup import BUILTIN

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run the headers on the CPU")

INCLUDE = BUILTIN / "include" / "kt"
DATA = Path(__file__).parent / "data"
HEADERS = (
    "common.cuh", "convert.cuh", "epilogue.cuh", "kernels/skinny_streamed.cuh", "kernels/skinny_held.cuh",
    "kernels/skinny_sums.cuh", "kernels/skinny.cuh",
)  # fmt: skip
# format, its type, of sums, of C
FORMATS = {
    "fp32": ("", "float", "float", "float"),
    "tf32": ("kTf32", "float", "float", "float"),
    "bf16": ("kBf16", "unsigned short", "float", "float"),
    "int8": ("kInt8", "signed char", "int", "int"),
    "fp64": ("kFp64", "double", "double", "double"),
}
SIZE = {"fp32": 4, "tf32": 4, "bf16": 2, "int8": 1, "fp64": 8}


def kernel(dtype: str, layout: str, streamed_a: bool, load: int, **choices: int) -> str:
    """The call of `run` with the traits that templates/gemm/skinny.cu.j2 makes."""
    form, of_in, of_sum, of_out = FORMATS[dtype]
    along = {"a": layout[0] == "n", "b": layout[1] == "t"}
    streamed, held = ("a", "b") if streamed_a else ("b", "a")
    rows, short = choices["lane_rows"], choices["tile_s"]
    read = f"{of_in}, {short}, {int(along[held])}, {load}"
    sums = f"kt::ThreadSums<{rows}, {short}, kt::HeldRows<{read}>>"
    if dtype != "fp32":
        sums = f"kt::TensorSums<kt::Format::{form}, {of_sum}, {rows}, kt::HeldOctets<{read}>>"
    numbers = f"{short}, {rows}, {choices['warps_l']}, {choices['warps_k']}, {choices['chunks']}, {choices['stages']}"
    store = SIZE[dtype] if of_out != "float" else 4
    traits = (
        f"kt::SkinnyTraits<{of_in}, {of_sum}, {of_out}, {int(streamed_a)}, {numbers}, {int(along[streamed])},"
        f" {load}, {store}, {sums}>"
    )
    return f"run<{traits}, {int(along['a'])}, {int(along['b'])}>"


def run(calls: Sequence[str], folder: Path) -> None:
    text = (DATA / "block_on_cpu.h").read_text()
    read_only = (INCLUDE / "ptx" / "read_only.cuh").read_text()
    row = "namespace kt::ptx {\n" + read_only[read_only.index("// `BYTES` in a row") :]
    text += row + "".join((INCLUDE / name).read_text() for name in HEADERS) + (DATA / "skinny_on_cpu.h").read_text()
    source = folder / "skinny.cpp"
    source.write_text(text + "int main() {\n" + "\n".join(f"  {call};" for call in calls) + "\n}\n")
    program = folder / "skinny"
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-o", program, source], check=True)
    outcome = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "")


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_results_and_accesses(dtype: str, layout: str, tmp_path: Path) -> None:
    """Both operands streamed, whole and narrow accesses, ragged sizes, empty sums, batches, slices, several stages."""
    size = SIZE[dtype]
    least = max(4, 16 // size)
    small = {"lane_rows": 4, "warps_l": 1, "warps_k": 2, "chunks": 1, "stages": 3}
    large = {"lane_rows": least, "warps_l": 2, "warps_k": 2, "chunks": 2, "stages": 2}
    one, many = (8, 32) if dtype != "fp32" else (2, 16)
    calls = []
    wide = 16 // size
    for streamed_a in (False, True):
        whole = kernel(dtype, layout, streamed_a, 16, tile_s=one, **small)
        more = kernel(dtype, layout, streamed_a, 16, tile_s=many, **large)
        narrow = kernel(dtype, layout, streamed_a, size, tile_s=many, **small)
        for call, short, long, k, batch, split, extra, shift, beta in (
            (whole, wide * max(1, one // wide // 2), 48, 16 * wide, 1, 1, 0, 0, 0),
            (whole, wide * max(1, one // wide), 16, 29 * wide, 2, 3, wide, 0, 2),
            (more, wide * max(1, many // wide), 160, 5 * wide, 1, 2, 0, 0, 0),
            (narrow, many - 3, 67, 131, 2, 1, 1, 1, 3),
            (narrow, 1, 5, 1, 1, 1, 0, 0, 0),
            (narrow, 2, 70, 0, 1, 1, 0, 1, 2),
        ):
            if short > (one if call is whole else many):
                continue
            m, n = (long, short) if streamed_a else (short, long)
            calls.append(f"{call}({m}, {n}, {k}, {batch}, {split}, {extra}, {shift}, {beta})")
    run(calls, tmp_path)
