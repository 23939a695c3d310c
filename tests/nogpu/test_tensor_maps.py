"""Tensor maps: read from a space, resolved to numbers, stored, and encoded by the driver library or refused."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt import export
from kt.cache.encoding import decode_launch, encode_launch
from kt.cache.fields import FieldError, Fields
from kt.devices.catalog import modelled
from kt.errors import InputError
from kt.problems import Problem
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.loader import load_space, space_digest
from kt.search_spaces.space import Launch, OperandCopy, RowClass, SearchSpace, TensorMap
from kt.tuner import tensor_map as module
from kt.tuner.tensor_map import TensorMapRefused, encode, tensor_map_argument

SPACE = """\
op: gemm
family: sample
template: gemm/sample.cu.j2
dtypes: [bf16, tf32]
parameters: {tile: [64, 128, 512], pack_a: [0, 1], swizzle: [128, 96]}
default: {tile: 64, pack_a: 0, swizzle: 128}
launches:
  - kernel: kt_gemm
    grid: "cdiv(m, tile)"
    block: 128
    tensor_maps:
      - {operand: a, box: [64, tile], swizzle: swizzle, copied: pack_a == 1, offset: 256, pitch: "cdiv(k, 8) * 8"}
      - {operand: b, box: [64, 32], swizzle: 64}
      - {operand: c, box: [32, 16], swizzle: 0, when: align_c >= 16}
"""
PROBLEM = Problem(100, 200, 77, "bf16", "nt")
NAMES = {**modelled("h200").names(), **PROBLEM.names()}
POINTERS = {"a": 0x10000, "b": 0x20000, "c": 0x30000, "workspace": 0x40000}


def load(folder: Path, text: str) -> SearchSpace:
    (folder / "space.yaml").write_text(text)
    return load_space(folder / "space.yaml")


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    return load(tmp_path, SPACE)


def maps(space: SearchSpace, **choices: Any) -> tuple[TensorMap, ...]:
    launches, _ = resolve(space, space.config({**space.default, **choices}), NAMES)
    return launches[0].tensor_maps


def test_maps_are_resolved_to_numbers(space: SearchSpace) -> None:
    of_operands = (TensorMap("a", (64, 64), 128), TensorMap("b", (64, 32), 64))
    assert maps(space) == (*of_operands, TensorMap("c", (32, 16), 0))


def test_a_map_may_be_left_out(space: SearchSpace) -> None:
    names = {**modelled("h200").names(), **Problem(100, 201, 77, "bf16", "nt").names()}
    launches, _ = resolve(space, space.default_config, names)
    assert [one.operand for one in launches[0].tensor_maps] == ["a", "b"]


def test_a_copied_operand_lies_in_the_workspace(space: SearchSpace) -> None:
    assert maps(space, pack_a=1)[0] == TensorMap("a", (64, 64), 128, OperandCopy(256, 80))


def test_boxes_beyond_the_limits_are_rejected_like_launches(space: SearchSpace) -> None:
    config = space.config({**space.default, "tile": 512})
    broken = violated(space, config, NAMES)
    assert broken is not None
    assert broken.reason == "TMA copies boxes of 1 to 256 elements a side for kt_gemm"
    with pytest.raises(InputError, match="TMA cannot copy boxes of 64 x 512 elements of A"):
        maps(space, tile=512)


def test_an_unknown_swizzle_is_refused(space: SearchSpace) -> None:
    with pytest.raises(InputError, match="with a swizzle of 96 bytes"):
        maps(space, swizzle=96)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("operand: b", "operand: d", "tensor_maps[1].operand is the text d; it must be one of a, b, c"),
        ("[64, 32]", "[64]", "tensor_maps[1].box has 1 side"),
        ("[64, 32]", "[64, tle]", "names tle, which is not known; did you mean tile?"),
        (", swizzle: 64}", "}", "tensor_maps[1] has no `swizzle`"),
        ('pitch: "cdiv(k, 8) * 8"', "turned: False", "tensor_maps[0] has no `pitch`"),
        ("operand: b,", "operand: b, at: 3,", "tensor_maps[1].at is not a known key"),
    ],
)
def test_slips_are_reported_with_their_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert SPACE.count(old) == 1
    with pytest.raises(InputError) as caught:
        load(tmp_path, SPACE.replace(old, new))
    assert message in caught.value.message


def test_maps_count_for_the_digest_of_a_space(tmp_path: Path) -> None:
    other = load(tmp_path, SPACE.replace("[64, 32]", "[64, 16]"))
    assert space_digest(load(tmp_path, SPACE)) != space_digest(other)


@pytest.mark.parametrize("rows", [None, RowClass(4, 3)])
@pytest.mark.parametrize(
    "copy", [None, OperandCopy(256, 80), OperandCopy(0, 16, turned=True), OperandCopy(0, 96, width=96)]
)
def test_launches_are_stored_with_their_maps(copy: OperandCopy | None, rows: RowClass | None) -> None:
    launch = Launch("kt_gemm", 4, 128, 1024, (TensorMap("a", (64, 128), 128, copy, rows),))
    assert decode_launch(Fields(encode_launch(launch))) == launch


def test_launches_without_maps_are_stored_as_before() -> None:
    assert encode_launch(Launch("kt_gemm", 4, 128, 1024)) == {
        "kernel": "kt_gemm", "grid": 4, "block": 128, "smem_bytes": 1024,
    }  # fmt: skip


def test_a_stored_map_of_another_form_is_refused() -> None:
    launch = encode_launch(Launch("kt_gemm", 4, 128, 0, (TensorMap("a", (64, 128), 128),)))
    launch["tensor_maps"][0]["box"] = [64]
    with pytest.raises(FieldError, match="box"):
        decode_launch(Fields(launch))
    launch["tensor_maps"][0]["box"] = [64, 128]
    for of, number, wrong in ((3, 0, "of: is 3"), (4, 4, "number: is 4"), (16, 0, "of: is 16")):
        launch["tensor_maps"][0]["rows"] = {"of": of, "number": number}
        with pytest.raises(FieldError, match=f"rows.{wrong}"):
            decode_launch(Fields(launch))


PROMOTIONS = {"NONE": 0, "L2_64B": 1, "L2_128B": 2, "L2_256B": 3}  # CUtensorMapL2promotion of cuda.h


# --- encoding --------------------------------------------------------------------------------------------------------


class Driver:
    """Notes what `cuTensorMapEncodeTiled` is called with, and writes a mark."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.seen: tuple[Any, ...] = ()

    def __call__(self, target: Any, *arguments: Any) -> int:
        address = ctypes.cast(target, ctypes.c_void_p).value or 0
        ctypes.memset(address, 0xAB, 128)
        self.seen = (address, *(list(one) if isinstance(one, ctypes.Array) else one for one in arguments))
        return self.code


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(module, "encoder", lambda: driver)
    return driver


def encoded(driver: Driver, tensor_map: TensorMap, problem: Problem) -> tuple[Any, ...]:
    """format, address, extents, strides, box, swizzle"""
    assert bytes(tensor_map_argument(tensor_map, problem, POINTERS).tobytes()) == b"\xab" * 128
    target, form, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill = driver.seen
    assert target % 128 == 0
    assert (rank, steps, interleave, promotion, fill) == (3, [1, 1, 1], 0, PROMOTIONS["L2_128B"], 0)
    return form, address.value, extents, strides, box, swizzle


@pytest.mark.parametrize("name", ["gemm_calls.cuh.j2", "repro.cu.j2"])
def test_exported_programs_have_l2_read_as_much_at_once_as_the_tuner(driver: Driver, name: str) -> None:
    """What was measured is what is exported."""
    encode(0x10000, (64, 64, 1), (128, 8192), (64, 64), 128, 2)
    promotion = driver.seen[-2]
    text = (Path(export.__file__).parent / name).read_text()
    assert [PROMOTIONS[one] for one in re.findall(r"CU_TENSOR_MAP_L2_PROMOTION_(\w+)", text)] == [promotion]


def test_an_operand_is_encoded_as_it_is_stored(driver: Driver) -> None:
    problem = Problem(100, 200, 77, "bf16", "nt", lda=80, ldb=88)
    seen = encoded(driver, TensorMap("a", (64, 128), 128), problem)
    assert seen == (1, 0x10000, [77, 100, 1], [160, 16000], [64, 128, 1], 3)
    seen = encoded(driver, TensorMap("b", (32, 32), 64), Problem(100, 200, 77, "bf16", "nn", ldb=208))
    assert seen[2:4] == ([200, 77, 1], [416, 416 * 77])
    assert seen[5] == 2


def test_batches_are_the_third_dimension(driver: Driver) -> None:
    problem = Problem(16, 32, 64, "bf16", batch=5, stride_c=1024)
    seen = encoded(driver, TensorMap("c", (32, 16), 0), problem)
    assert seen[2:4] == ([32, 16, 5], [64, 2048])


def test_a_copy_is_encoded_where_it_lies(driver: Driver) -> None:
    seen = encoded(driver, TensorMap("a", (64, 128), 128, OperandCopy(256, 80)), PROBLEM)
    assert seen[1:4] == (0x40100, [77, 100, 1], [160, 16000])
    seen = encoded(driver, TensorMap("a", (64, 128), 128, OperandCopy(256, 112, turned=True)), PROBLEM)
    assert seen[1:4] == (0x40100, [100, 77, 1], [224, 224 * 77])


def test_a_copy_may_have_longer_rows(driver: Driver) -> None:
    seen = encoded(driver, TensorMap("a", (64, 128), 128, OperandCopy(256, 96, width=96)), PROBLEM)
    assert seen[1:4] == (0x40100, [96, 100, 1], [192, 19200])


@pytest.mark.parametrize(
    ("base", "row_class", "begin", "extents"),
    [
        (0x20000, RowClass(2, 0), 0x20000, [200, 4, 1]),
        (0x20000, RowClass(2, 1), 0x20000 + 408 - 8, [204, 3, 1]),
        (0x20008, RowClass(2, 0), 0x20008 + 408, [200, 3, 1]),  # the second row is the first that begins at 16 bytes
        (0x20008, RowClass(2, 1), 0x20000, [204, 4, 1]),
    ],
)
def test_a_class_of_rows_is_a_matrix(
    driver: Driver, base: int, row_class: RowClass, begin: int, extents: list[int]
) -> None:
    """From the multiple of 16 bytes before its first row on; which rows it has depends on the operand's address."""
    problem = Problem(100, 200, 7, "bf16", "nn", ldb=204)
    one = TensorMap("b", (64, 32), 128, rows=row_class)
    tensor_map_argument(one, problem, {**POINTERS, "b": base})
    _, _, _, address, seen, strides, *_ = driver.seen
    assert (address.value, seen, strides) == (begin, extents, [816, 816 * extents[1]])


def test_rows_of_eight_classes_begin_anywhere(driver: Driver) -> None:
    problem = Problem(100, 200, 16, "bf16", "nn", ldb=203)
    firsts = []
    for number in range(8):
        tensor_map_argument(TensorMap("b", (64, 32), 128, rows=RowClass(8, number)), problem, POINTERS)
        address = driver.seen[3].value
        row, early = divmod(address + 2 * number - POINTERS["b"], 406)
        assert (early, driver.seen[4]) == (0, [200 + number, 2, 1])
        firsts.append(row)
    assert sorted(firsts) == list(range(8))


@pytest.mark.parametrize(("ldb", "of"), [(208, 2), (204, 4), (204, 8)])
def test_rows_of_other_classes_are_refused(driver: Driver, ldb: int, of: int) -> None:
    problem = Problem(100, 200, 77, "bf16", "nn", ldb=ldb)
    with pytest.raises(TensorMapRefused, match=f"{2 * ldb} bytes apart, do not fall into {of} classes"):
        tensor_map_argument(TensorMap("b", (64, 32), 128, rows=RowClass(of, 1)), problem, POINTERS)
    assert driver.seen == ()


def test_a_space_says_which_class_a_map_shows(tmp_path: Path) -> None:
    text = SPACE.replace("swizzle: 64}", "swizzle: 64, classes: 4, number: 3}")
    assert maps(load(tmp_path, text))[1] == TensorMap("b", (64, 32), 64, rows=RowClass(4, 3))
    for classes, number in ((3, 0), (4, 4), (16, 1)):
        wrong = SPACE.replace("swizzle: 64}", f"swizzle: 64, classes: {classes}, number: {number}}}")
        with pytest.raises(InputError, match=f"no class {number} of {classes}"):
            maps(load(tmp_path, wrong))


def test_a_map_of_one_class_shows_no_second_batch(tmp_path: Path) -> None:
    """Its rows may fall into other classes: a space without a constraint for that is told so."""
    space = load(tmp_path, SPACE.replace("swizzle: 64}", "swizzle: 64, classes: 4, number: 3}"))
    with pytest.raises(InputError, match="one class of rows of B shows one batch"):
        resolve(space, space.default_config, {**NAMES, "batch": 2})


def test_operands_of_tf32_are_rounded_and_the_result_is_not(driver: Driver) -> None:
    problem = Problem(64, 64, 64, "tf32")
    assert encoded(driver, TensorMap("a", (32, 64), 128), problem)[0] == 11
    assert encoded(driver, TensorMap("c", (32, 64), 128), problem)[0] == 2


def test_an_empty_sum_has_a_map_nobody_reads(driver: Driver) -> None:
    """TMA knows no extents of 0; with k = 0 nothing is loaded."""
    assert encoded(driver, TensorMap("a", (64, 64), 128), Problem(8, 8, 0, "bf16", lda=8))[2:4] == (
        [1, 8, 1],
        [16, 128],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0x10008, [64, 64, 1], [128, 8192], [64, 64], 128, 2), "not 0x10008"),
        ((0x10000, [64, 64, 1], [130, 8192], [64, 64], 128, 2), "one is 130"),
        ((0x10000, [64, 64, 1], [128, 2**40], [64, 64], 128, 2), "one is 1099511627776"),
        ((0x10000, [64, 64, 1], [128, 8192], [64, 320], 128, 2), "not 64 x 320"),
        ((0x10000, [64, 64, 1], [128, 8192], [64, 64], 64, 2), "have 128 bytes, more than the swizzle's 64"),
    ],
)
def test_limits_are_told_with_the_figures(driver: Driver, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TensorMapRefused, match=message):
        encode(*arguments)
    assert driver.seen == ()


def test_a_refusal_of_the_driver_is_told_with_the_figures(driver: Driver) -> None:
    driver.code = 1
    with pytest.raises(TensorMapRefused, match=r"error 1: address 0x10000, extents \(64, 64, 1\)"):
        encode(0x10000, [64, 64, 1], [128, 8192], [64, 64], 128, 2)


@pytest.mark.parametrize("fails", [OSError("no such file"), AttributeError("no such function")])
def test_no_driver_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch, fails: Exception) -> None:
    def missing(name: str) -> Callable[..., Any]:
        raise fails

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(TensorMapRefused, match="no such"):
        module.encoder.__wrapped__()
