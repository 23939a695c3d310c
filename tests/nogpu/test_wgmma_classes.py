"""Rows of B in classes, family wgmma: A's copy, what tensor maps show, and the sums that move, run on the CPU."""

from pathlib import Path

from kt import export
from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls

ENCODER = Path(export.__file__).parent / "tensor_map_encoder.cuh"
HEADERS = (
    "common.cuh", "workspace.cuh", "kernels/stored_rows.cuh", "kernels/copy_rows.cuh", "kernels/wgmma_classes.cuh",
    "kernels/copy_classes.cuh",
)  # fmt: skip


def run(calls: list[str], folder: Path) -> None:
    """The header's own `show_class` beside the kernels' headers: it says where the rows of a class begin."""
    before, after = on_cpu("classes").split("// headers\n")
    encoder = ENCODER.read_text()
    headers = [*((INCLUDE / name).read_text() for name in HEADERS), encoder[encoder.index("// Where every") :]]
    run_calls([on_cpu("wide_loads"), before, *headers, after], calls, folder)


@needs_compiler
def test_sums_of_classes_are_those_of_the_product(tmp_path: Path) -> None:
    """Either order of rows, bases off multiples of 16 bytes, NaN wherever nothing is."""
    calls = []
    for classes in (2, 4):
        odd = 8 // classes
        for gap_b, shift_b in ((0, 0), (8 - 2 * odd if classes > 2 else 8, odd), (16, 8 - odd)):
            calls.append(f"multiplied<{classes}, 16, 64, 8>(17, {56 + odd}, 40, 0, 0, {gap_b}, {shift_b})")
        calls.append(f"multiplied<{classes}, 16, 64, 8>(3, {64 + odd}, 44, 4, 0, 0, 0)")  # A ends within an access
        calls.append(f"multiplied<{classes}, 2, 64, 16>(5, {64 + odd}, 67, 3, 5, 0, 0)")
        calls.append(f"multiplied<{classes}, 2, 32, 16>(2, {odd}, {classes}, 0, 1, 24, {odd})")
    run(calls, tmp_path)
