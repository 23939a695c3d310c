"""Rows of A that begin anywhere, family wgmma: what tensor maps of their classes bring and what lanes make of it, run
on the CPU; and what the space asks the host for."""

from pathlib import Path

import pytest

from kt import export
from kt.problems import Problem
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.space import RowClass
from support.cpu_program import INCLUDE, needs_compiler, on_cpu, run_calls
from support.wgmma_tiles import DEVICE, SPACE, choices

ENCODER = Path(export.__file__).parent / "tensor_map_encoder.cuh"
KERNELS = INCLUDE / "kernels"


def strip_rows() -> str:
    """The order of rows alone: the rest of its header is about writing C."""
    text = (KERNELS / "wgmma_epilogue.cuh").read_text()
    first = text.index("// Which rows of a tile a strip has")
    return "namespace kt {\n" + text[first : text.index("\n};\n", first)] + "\n};\n}\n"


def run(calls: list[str], folder: Path) -> None:
    """The header's own `show_class` beside the kernels' headers: it says where the rows of a class begin."""
    before, after = on_cpu("shifted").split("// headers\n")
    encoder = ENCODER.read_text()
    maps = (KERNELS / "wgmma_classes.cuh").read_text()
    headers = [
        (INCLUDE / "common.cuh").read_text(),
        "inline float __shfl_sync(unsigned, float value, int) { return value; }\n",
        maps, strip_rows(), (KERNELS / "wgmma_shifted.cuh").read_text(), encoder[encoder.index("// Where every") :],
    ]  # fmt: skip
    run_calls([before, *headers, after], calls, folder)


@needs_compiler
def test_lanes_give_wgmma_rows_that_begin_anywhere(tmp_path: Path) -> None:
    """Every class of rows first, in either order; bases off multiples of 16 bytes, gaps of no numbers, few rows."""
    calls = []
    for classes, extents in ((8, (128,)), (4, (64, 128)), (2, (64, 128))):
        odd = 8 // classes  # elements by which rows miss multiples of 16 bytes
        for extent in extents:
            for block in (64, 128):
                for k, gap, shift in ((block + odd, 0, 0), (2 * block - odd, 0, odd), (block - 8 + odd, 8, 8 - odd)):
                    calls.append(f"shifted<{extent}, {block}, {classes}>({extent + 9}, {k}, {gap}, {shift})")
        calls.append(f"shifted<128, 64, {classes}>({classes}, 1, {7 + odd}, {odd})")  # a single element of each row
    calls += [f"shifted<128, 64, 8>(131, 69, 0, {shift})" for shift in range(8)]
    run(calls, tmp_path)


@needs_compiler
def test_strips_of_one_warp_are_where_stores_look_for_them(tmp_path: Path) -> None:
    tiles = {1: (1, 2, 4), 2: (1, 2, 4), 4: (1, 2, 4), 8: (2, 4)}
    run([f"same_warp<{apart}, {count}>()" for apart, counts in tiles.items() for count in counts], tmp_path)


@pytest.mark.parametrize(("k", "classes"), [(1029, 8), (1030, 4), (1028, 2)])
def test_each_class_has_a_map(k: int, classes: int) -> None:
    """Boxes that are 16 bytes wider than a step, of all rows of a class; nothing of A is copied."""
    problem = Problem(300, 520, k, "bf16", "nn")
    config = choices(shift_a=1, tile_n=256, stages=4)
    assert violated(SPACE, config, {**DEVICE.names(), **problem.names()}) is None
    launches, workspace = resolve(SPACE, config, {**DEVICE.names(), **problem.names()})
    maps = launches[-1].tensor_maps
    assert [one.operand for one in maps] == [*"a" * classes, "b", "c"]
    assert [one.rows for one in maps[:classes]] == [RowClass(classes, number) for number in range(classes)]
    assert {(one.box, one.swizzle, one.copy) for one in maps[:classes]} == {((72, 128 // classes), 0, None)}
    assert ([one.kernel for one in launches], workspace) == (["kt_gemm"], 0)


@pytest.mark.parametrize("problem", [
    Problem(4096, 4096, 4096, "bf16"), Problem(300, 520, 1029, "bf16", "tn"), Problem(300, 520, 1029, "tf32"),
    Problem(7, 520, 1029, "bf16"), Problem(300, 520, 1029, "bf16", batch=2), Problem(300, 520, 1029, "bf16", lda=1030),
], ids=lambda problem: problem.label)  # fmt: skip
def test_other_rows_are_not_shifted(problem: Problem) -> None:
    """Aligned ones, those along m, of other formats, too few for all classes, of several matrices, in fewer classes."""
    for packed in (0, 1):
        config = choices(shift_a=1, pack_b=packed, tile_n=256, stages=4)
        assert violated(SPACE, config, {**DEVICE.names(), **problem.names()}) is not None
