"""Rows of B in classes, family wgmma: A's copy, what tensor maps show, and the sums that move, run on the CPU."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kt import export
from kt.templates.lookup import BUILTIN

INCLUDE = BUILTIN / "include" / "kt"
ENCODER = Path(export.__file__).parent / "tensor_map_encoder.cuh"
DATA = Path(__file__).parent / "data"
HEADERS = (
    "common.cuh", "workspace.cuh", "kernels/copy_rows.cuh", "kernels/wgmma_classes.cuh", "kernels/copy_classes.cuh",
)  # fmt: skip


def run(calls: list[str], folder: Path) -> None:
    """The header's own `show_class` beside the kernels' headers: it says where the rows of a class begin."""
    before, after = (DATA / "classes_on_cpu.h").read_text().split("// headers\n")
    encoder = ENCODER.read_text()
    headers = "".join((INCLUDE / name).read_text() for name in HEADERS) + encoder[encoder.index("// Where every") :]
    source = folder / "classes.cpp"
    main = "int main() {\n" + "\n".join(f"  {call};" for call in calls) + "\n}\n"
    source.write_text((DATA / "block_on_cpu.h").read_text() + before + headers + after + main)
    program = folder / "classes"
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-o", program, source], check=True)
    outcome = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run the headers on the CPU")
@pytest.mark.parametrize("counts", [(2, 4), pytest.param((8,), marks=pytest.mark.slow)])  # the space has no eight
def test_sums_of_classes_are_those_of_the_product(counts: tuple[int, ...], tmp_path: Path) -> None:
    """Either order of rows, bases off multiples of 16 bytes, NaN wherever nothing is."""
    calls = []
    for classes in counts:
        odd = 8 // classes
        for gap_b, shift_b in ((0, 0), (8 - 2 * odd if classes > 2 else 8, odd), (16, 8 - odd)):
            calls.append(f"multiplied<{classes}, 16, 64, 8>(17, {56 + odd}, 40, 0, 0, {gap_b}, {shift_b})")
        calls.append(f"multiplied<{classes}, 2, 64, 16>(5, {64 + odd}, 67, 3, 5, 0, 0)")
        calls.append(f"multiplied<{classes}, 2, 32, 16>(2, {odd}, {classes}, 0, 1, 24, {odd})")
    run(calls, tmp_path)
