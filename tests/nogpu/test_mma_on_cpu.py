"""The mma family's kernel for doubles, run thread by thread on the CPU: right results, no access outside the operands.

What is special to it runs here: results that leave registers without a detour, and columns of B that stay in shared
memory.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kt.problems import LAYOUTS
from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls

pytestmark = needs_compiler

HEADERS = (
    "common.cuh", "convert.cuh", "workspace.cuh", "parking.cuh", "scheduler.cuh", "epilogue.cuh",
    "kernels/mma_operand.cuh", "kernels/mma_fragment.cuh", "kernels/mma_form.cuh",
    "kernels/mma_traits.cuh", "kernels/mma_sums.cuh", "kernels/mma_pipeline.cuh", "kernels/mma_epilogue.cuh",
    "kernels/mma.cuh",
)  # fmt: skip
# m, n, k, batch, slices of k, elements between rows, elements from the alignment, beta
Case = tuple[int, int, int, int, int, int, int, float]


def run(calls: Sequence[str], folder: Path) -> None:
    before, after = on_cpu("mma").split("// headers\n")
    headers = [(INCLUDE / name).read_text() for name in HEADERS]
    run_calls([before, *headers, on_cpu("gemm"), after], calls, folder)


def calls(layout: str, tiles: str, load: int, held: bool, cases: Sequence[Case]) -> list[str]:
    """`tiles`: of the block, of a warp, stages."""
    along = f"{int(layout[0] == 'n')}, {int(layout[1] == 't')}"
    name = f"run<Doubles<{tiles}, {along}, {load}, {int(held)}>, {along}>"
    return [f"{name}({', '.join(map(str, case))})" for case in cases]


@pytest.mark.parametrize("layout", [*LAYOUTS[:1], *(pytest.param(one, marks=pytest.mark.slow) for one in LAYOUTS[1:])])
def test_products_are_right(layout: str, tmp_path: Path) -> None:
    """All in one program, most of whose time is that of reading the headers."""
    run([*columns_stay(layout), *(results_leave_in_lines() if layout == "nn" else [])], tmp_path)


def columns_stay(layout: str) -> list[str]:
    """Shares that end inside of a column, with fewer and more steps of k than stages, ragged tiles, batches, C read."""
    listed = []
    for load in (8, 16):
        odd = int(load == 8)
        cases: list[Case] = [
            (140, 70, 40, 1, 1, 2, odd, 0), (38, 10, 16, 3, 1, 0, 0, 0), (64, 64, 66 + odd, 2, 1, 2, 0, 0.5),
        ]  # fmt: skip
        listed += calls(layout, "32, 32, 16, 32, 3", load, True, cases)
    return listed


def results_leave_in_lines() -> list[str]:
    """Tiles that lie inside of C, and some that do not; C that is read; slices."""
    cases: list[Case] = [
        (64, 64, 16, 1, 1, 0, 0, 0), (70, 50, 34, 2, 1, 2, 0, 0), (64, 32, 16, 1, 1, 2, 0, 2),
        (33, 34, 40, 1, 2, 0, 0, 0),
    ]  # fmt: skip
    return calls("nn", "32, 32, 32, 16, 2", 16, False, cases)
