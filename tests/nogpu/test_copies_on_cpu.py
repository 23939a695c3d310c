"""How operands are copied before and while they are multiplied, run thread by thread on the CPU.

Every byte arrives, the rest is zero, and no access, however wide, reaches outside the operand.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls

pytestmark = needs_compiler

HEADERS = (
    "common.cuh", "workspace.cuh", "kernels/stored_rows.cuh", "kernels/copy_rows.cuh", "kernels/turn_rows.cuh",
    "kernels/wgmma_feed.cuh",
)  # fmt: skip


def run(calls: Sequence[str], folder: Path) -> None:
    before, after = on_cpu("copies").split("// headers\n")
    headers = [(INCLUDE / name).read_text() for name in HEADERS]
    run_calls([on_cpu("wide_loads"), before, *headers, after], calls, folder)


def test_rows_are_copied_whole_from_any_address(tmp_path: Path) -> None:
    """Rows shorter than an access and longer, with gaps and without; batches that follow each other, and overlap."""
    rows = [(1, 1, 0), (3, 15, 0), (5, 33, 2), (4, 48, 0), (2, 130, 6)]
    batches = [(1, 0), (3, 0), (2, 7)]
    calls = [
        f"copied<{pitch}>({count}, {size}, {gap}, {batch}, {stride}, {shift})"
        for (count, size, gap), (batch, stride), shift in product(rows, batches, range(16))
        for pitch in (16, 128)
    ]
    calls += [f"copied<128>(67, 331, {gap}, 1, 0, 3)" for gap in (0, 5)]  # several blocks, the last one in part
    run(calls, tmp_path)


def test_rows_are_turned_whole_from_any_address(tmp_path: Path) -> None:
    sizes = [(1, 1, 0), (5, 131, 0), (130, 3, 1), (67, 66, 2)]
    calls = [f"turned<unsigned char, 1>({k}, {mn}, {gap}, 2, {shift})" for k, mn, gap in sizes for shift in (0, 1, 3)]
    calls += [f"turned<unsigned char, 4>({k}, {mn}, {gap}, 2, 4)" for k, mn, gap in ((5, 132, 0), (130, 4, 4))]
    calls += [f"turned<unsigned, 4>({k}, {mn}, {gap}, 2, {shift})" for k, mn, gap in sizes for shift in (0, 4)]
    run(calls, tmp_path)


def test_tiles_are_fed_from_within_the_operand(tmp_path: Path) -> None:
    """At each corner of a matrix whose rows are multiples of an access, and of no wider one."""
    calls = [
        f"fed<{access}>({rows}, {size * access}, {gap * access}, {row}, {column}, {access})"
        for access, (rows, size, gap) in product((4, 8), [(1, 1, 0), (67, 39, 1), (64, 32, 0)])
        for row, column in product((0, 64), (0, 128))
        if row < rows and column < size * access
    ]
    run(calls, tmp_path)
