"""The simt family's kernel, run thread by thread on the CPU: right results, and no access outside the operands.

The headers themselves run, but for TMA; copies arrive as late as they may.
"""

from collections.abc import Sequence
from pathlib import Path

from support.cpu_program import headers_on_cpu, needs_compiler, on_cpu, run_calls

pytestmark = needs_compiler

HEADERS = (
    "common.cuh", "convert.cuh", "workspace.cuh", "scheduler.cuh", "epilogue.cuh",
    "kernels/turned_tile.cuh", "kernels/simt_operand.cuh", "kernels/simt_traits.cuh", "kernels/simt_accumulator.cuh",
    "kernels/simt_loops.cuh", "kernels/simt.cuh",
)  # fmt: skip


def call(
    dtype: str, layout: str, tile: tuple[int, int, int], thread: tuple[int, int], lanes_m: int, slices: int,
    stages: int, unroll: int, load: int, *, stream: bool = False,
) -> str:  # fmt: skip
    """The call of `run` with the traits that templates/gemm/simt.cu.j2 makes; bytes are widened through registers."""
    of_in, of_sum = {"fp32": ("float", "float"), "fp64": ("double", "double"), "int8": ("signed char", "int")}[dtype]
    along_k = (int(layout[0] == "n"), int(layout[1] == "t"))
    store = max(4 if dtype != "fp64" else 8, load)
    traits = (
        f"Tiles<kt::SimtTraits<{of_in}, {of_sum}, {of_sum}, {tile[0]}, {tile[1]}, {tile[2]}, {thread[0]}, {thread[1]},"
        f" {lanes_m}, {slices}, {stages}, {unroll}, kt::kRowsOuter, {along_k[0]}, {along_k[1]}, {int(stream)}, 0, 0,"
        f" {load}, {load}, {store}, {int(dtype != 'int8')}>>"
    )
    return f"run<{traits}, {along_k[0]}, {along_k[1]}>"


def run(calls: Sequence[str], folder: Path) -> None:
    run_calls([on_cpu("simt_ptx"), headers_on_cpu(HEADERS), on_cpu("gemm"), on_cpu("simt")], calls, folder, "-O0")


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


def test_stream_k_with_slices_of_k(tmp_path: Path) -> None:
    """Five blocks share more tiles than blocks, and fewer; whole ones and ragged ones, which leave by shared memory."""
    one = call("fp32", "nt", (32, 32, 16), (4, 4), 4, 1, 2, 16, 4, stream=True)
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
