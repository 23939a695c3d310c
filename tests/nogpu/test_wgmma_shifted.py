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
@pytest.mark.parametrize(("element", "in_16_bytes"), [("unsigned short", 8), ("unsigned", 4)])
def test_lanes_give_wgmma_rows_that_begin_anywhere(element: str, in_16_bytes: int, tmp_path: Path) -> None:
    """Every class of rows first, in either order; bases off multiples of 16 bytes, gaps of no numbers, few rows."""
    calls, step = [], 8 * in_16_bytes
    for classes in {8, 4, 2} & set(range(in_16_bytes + 1)):
        odd = in_16_bytes // classes  # elements by which rows miss multiples of 16 bytes
        early = in_16_bytes - odd
        for extent in (64, 128) if classes < 8 else (128,):
            for block in (step, 2 * step):
                of_a = f"shifted<{element}, {extent}, {block}, {classes}>"
                for k, gap, shift in (
                    (block + odd, 0, 0),
                    (2 * block - odd, 0, odd),
                    (block - early, in_16_bytes, early),
                ):
                    calls.append(f"{of_a}({extent + 9}, {k}, {gap}, {shift})")
        # A single element of each row.
        calls.append(f"shifted<{element}, 128, {step}, {classes}>({classes}, 1, {in_16_bytes - 1 + odd}, {odd})")
    most = f"shifted<{element}, 128, {step}, {in_16_bytes}>"
    calls += [f"{most}(131, {step + 5}, 0, {shift})" for shift in range(in_16_bytes)]
    run(calls, tmp_path)


@needs_compiler
def test_strips_of_one_warp_are_where_stores_look_for_them(tmp_path: Path) -> None:
    tiles = {1: (1, 2, 4), 2: (1, 2, 4), 4: (1, 2, 4), 8: (2, 4)}
    run([f"same_warp<{apart}, {count}>()" for apart, counts in tiles.items() for count in counts], tmp_path)


@pytest.mark.parametrize(
    ("dtype", "layout", "lda", "classes", "copies"),
    [
        ("bf16", "nn", 1029, 8, []),
        ("bf16", "nn", 1030, 4, []),
        ("bf16", "nn", 1028, 2, []),
        ("tf32", "nt", 1029, 4, []),
        ("tf32", "nt", 1030, 2, []),
        ("tf32", "nn", 1029, 4, ["kt_gemm_turn_rows"]),
    ],
)
def test_each_class_has_a_map(dtype: str, layout: str, lda: int, classes: int, copies: list[str]) -> None:
    """Boxes that are 16 bytes wider than a step, of all rows of a class; nothing of A is copied, and of B what wgmma
    cannot read as it lies."""
    problem = Problem(300, 520, 1024, dtype, layout, lda=lda)
    config = choices(shift_a=1, pack_b=len(copies), tile_n=256, stages=4)
    assert violated(SPACE, config, {**DEVICE.names(), **problem.names()}) is None
    launches, workspace = resolve(SPACE, config, {**DEVICE.names(), **problem.names()})
    maps = launches[-1].tensor_maps
    columns = 144 // problem.element_bytes["a"]
    assert [one.operand for one in maps] == [*"a" * classes, "b", "c"]
    assert [one.rows for one in maps[:classes]] == [RowClass(classes, number) for number in range(classes)]
    assert {(one.box, one.swizzle, one.copy) for one in maps[:classes]} == {((columns, 128 // classes), 0, None)}
    assert ([one.kernel for one in launches], workspace > 0) == ([*copies, "kt_gemm"], bool(copies))


def test_one_operand_comes_to_wgmma_from_registers() -> None:
    """A B of tf32 along n would come so as well, without a copy."""
    problem = Problem(300, 520, 1029, "tf32", "nn")
    broken = violated(SPACE, choices(shift_a=1, tile_n=256, stages=4), {**DEVICE.names(), **problem.names()})
    assert broken is not None
    assert "from registers" in broken.reason


@pytest.mark.parametrize("problem", [
    Problem(4096, 4096, 4096, "bf16"), Problem(300, 520, 1029, "bf16", "tn"), Problem(301, 520, 1029, "tf32", "tn"),
    Problem(300, 520, 1029, "int8"),
    Problem(7, 520, 1029, "bf16"), Problem(300, 520, 1029, "bf16", batch=2), Problem(300, 520, 1029, "bf16", lda=1030),
], ids=lambda problem: problem.label)  # fmt: skip
def test_other_rows_are_not_shifted(problem: Problem) -> None:
    """Aligned ones, those along m, bytes, too few for all classes, of several matrices, in fewer classes."""
    for packed in (0, 1):
        config = choices(shift_a=1, pack_b=packed, tile_n=256, stages=4)
        assert violated(SPACE, config, {**DEVICE.names(), **problem.names()}) is not None
