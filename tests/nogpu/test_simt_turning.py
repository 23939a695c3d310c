"""The simt family's kernel that has TMA copy operands along k as they lie, run thread by thread on the CPU.

The headers themselves run; boxes arrive as late as they may.
"""

from collections.abc import Sequence
from pathlib import Path

from support.cpu_program import headers_on_cpu, needs_compiler, on_cpu, run_calls

pytestmark = needs_compiler

HEADERS = (
    "common.cuh", "convert.cuh", "workspace.cuh", "scheduler.cuh", "epilogue.cuh", "barrier_ring.cuh",
    "kernels/turned_tile.cuh", "kernels/boxed_tile.cuh", "kernels/simt_operand.cuh", "kernels/simt_traits.cuh",
    "kernels/simt_accumulator.cuh", "kernels/simt_loops.cuh", "kernels/simt.cuh", "kernels/class_maps.cuh",
    "kernels/simt_turning.cuh",
)  # fmt: skip


def call(
    tile: tuple[int, int, int], thread: tuple[int, int], lanes_m: int, slices: int, stages: int, unroll: int,
    boxed: tuple[int, int], *, stream: bool = False,
) -> str:  # fmt: skip
    """The call of `run` with the traits that templates/gemm/simt.cu.j2 makes."""
    load = [16 // classes for classes in boxed]
    traits = (
        f"Tiles<kt::SimtTraits<float, float, float, {tile[0]}, {tile[1]}, {tile[2]}, {thread[0]}, {thread[1]},"
        f" {lanes_m}, {slices}, {stages}, {unroll}, kt::kRowsOuter, 1, 1, {int(stream)}, 0, 0,"
        f" {load[0]}, {load[1]}, 4, 1, {boxed[0]}, {boxed[1]}>>"
    )
    return f"run<{traits}, true, true>"


def run(calls: Sequence[str], folder: Path) -> None:
    parts = [on_cpu("simt_ptx"), on_cpu("tma"), headers_on_cpu(HEADERS), on_cpu("gemm"), on_cpu("simt_turning")]
    run_calls(parts, calls, folder, "-O0")


def test_rows_that_begin_at_multiples_of_16_bytes(tmp_path: Path) -> None:
    """k that ends within a step; slices of split-K; batches; tiles of more than one round of straight code."""
    one = call((64, 64, 16), (8, 8), 4, 1, 3, 16, (1, 1))
    two = call((32, 64, 32), (8, 8), 4, 2, 2, 16, (1, 1))
    four = call((64, 32, 64), (8, 8), 8, 4, 4, 16, (1, 1))
    rounds = call((64, 64, 32), (8, 8), 8, 1, 4, 16, (1, 1))
    calls = [f"{one}(68, 72, {k}, 2, 1, 4, 0, 3)" for k in (0, 4, 36)]
    calls += [f"{two}(40, 68, 100, 1, 3, 0, 0, 1)", f"{four}(60, 36, 132, 1, 1, 4, 0, 2)"]
    calls.append(f"{rounds}(60, 132, 68, 1, 1, 4, 0, 2)")
    run(calls, tmp_path)


def test_rows_that_begin_anywhere(tmp_path: Path) -> None:
    """Four and two classes of rows, in their order and turned round, from an operand that begins anywhere itself."""
    one = call((64, 64, 16), (8, 4), 4, 1, 3, 16, (4, 4))
    two = call((32, 64, 32), (8, 8), 4, 2, 2, 16, (4, 4))
    four = call((64, 32, 64), (8, 8), 8, 4, 3, 16, (2, 2))
    calls = [f"{name}(61, 70, {k}, 1, 1, 0, {shift}, 3)" for name in (one, two) for k in (5, 67) for shift in (0, 1, 2)]
    calls += [f"{four}(61, 36, {k}, 1, 1, 0, {shift}, 0)" for k in (6, 130) for shift in (0, 2)]
    rounds = call((64, 128, 32), (8, 16), 4, 1, 3, 16, (4, 4))
    calls.append(f"{rounds}(61, 130, 99, 1, 2, 0, 0, 3)")
    run(calls, tmp_path)


def test_stream_k(tmp_path: Path) -> None:
    """Five blocks share tiles, whose phases go on from one to the next."""
    one = call((32, 32, 32), (8, 4), 4, 2, 3, 16, (1, 1), stream=True)
    two = call((64, 32, 16), (4, 4), 8, 1, 2, 16, (4, 4), stream=True)
    run([f"{one}(70, 68, 100, 1, 1, 0, 0, 2)", f"{two}(150, 67, 97, 1, 1, 0, 0, 0)"], tmp_path)


def test_no_two_lanes_meet_in_a_bank(tmp_path: Path) -> None:
    """As they read what TMA has left, and as they store it turned: every step, class and number of threads."""
    shapes = [(128, 16, 128), (128, 16, 256), (256, 16, 256), (128, 32, 256), (256, 32, 256), (64, 64, 128)]
    boxes = [f"kt::BoxedTile<float, {mn}, {k}, {of}, {threads}>" for mn, k, threads in shapes for of in (1, 2, 4)]
    run([f"check_banks<{box}>()" for box in boxes], tmp_path)
