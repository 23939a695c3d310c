"""Arrays as `kt.gemm` sees them: how operands lie decides the problem, and what cannot be computed is refused."""

import ctypes
import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kt.cache.key import problem_digest
from kt.errors import InputError
from kt.problems import Problem
from kt.runtime import arrays
from kt.runtime.arrays import Array, Form, read
from kt.runtime.placed_problem import bases_of, placed, tuned_as
from kt.runtime.problem_of import problem_of, rows_apart, standing_for

SIZES = {"fp32": 4, "fp64": 8, "fp16": 2, "bf16": 2, "int8": 1, "int32": 4, "fp8_e4m3": 1, "fp8_e5m2": 1}


def array(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "fp32", device: int = 0) -> Array:
    return Array(shape, strides, dtype, SIZES.get(dtype, 0), device)


def view_of(values: "np.ndarray[Any, Any]", dtype: str = "fp32") -> Array:
    """An array that lies as this one of numpy."""
    return array(values.shape, tuple(stride // values.itemsize for stride in values.strides), dtype)


def asked(a: Array, b: Array, c: Array, **changes: Any) -> Problem:
    how: dict[str, Any] = {"alpha_is_one": True, "beta_use": 0, **changes}
    return problem_of(a, b, c, **how)


def addresses(problem: Problem, operand: str) -> dict[tuple[int, int, int], int]:
    """Where a kernel looks for each element: by (batch, row, column) of the matrix as it is multiplied."""
    rows, columns = {"a": (problem.m, problem.k), "b": (problem.k, problem.n), "c": (problem.m, problem.n)}[operand]
    pitch, stride = getattr(problem, f"ld{operand}"), getattr(problem, f"stride_{operand}")
    by_rows = operand == "c" or problem.layout["ab".index(operand)] == "n"
    return {
        (z, i, j): z * stride + (i * pitch + j if by_rows else j * pitch + i)
        for z in range(problem.batch) for i in range(rows) for j in range(columns)
    }  # fmt: skip


def elements(of: Array) -> dict[tuple[int, int, int], int]:
    """Where they are."""
    batch, steps = (of.shape[0], of.strides) if len(of.shape) == 3 else (1, (0, *of.strides))
    rows, columns = of.shape[-2:]
    return {
        (z, i, j): z * steps[0] + i * steps[1] + j * steps[2]
        for z in range(batch) for i in range(rows) for j in range(columns)
    }  # fmt: skip


def test_a_kernel_finds_every_element_where_it_is() -> None:
    """Any mixture of orders, paddings, slices, batches and extents of 1: addresses are those of the array library."""
    rng = random.Random(3)

    def matrix(rows: int, columns: int, batch: int, may_turn: bool) -> Array:
        shape = (rows + rng.choice([0, 3]), columns + rng.choice([0, 5]))
        turned = may_turn and rng.random() < 0.5
        whole = np.zeros((batch + 1, *(shape[::-1] if turned else shape)), np.float32)
        parts = whole.transpose(0, 2, 1) if turned else whole
        part = parts[1:, :rows, :columns] if batch > 1 else parts[:1, :rows, :columns]
        return view_of(part if batch > 1 else part[0])

    layouts = set()
    for _ in range(400):
        m, n, k = (rng.choice([1, 2, 3, 7]) for _ in range(3))
        batch = rng.choice([1, 1, 2, 3])
        a, b, c = matrix(m, k, batch, True), matrix(k, n, batch, True), matrix(m, n, batch, False)
        problem = asked(a, b, c)
        layouts.add(problem.layout)
        assert (problem.m, problem.n, problem.k, problem.batch) == (m, n, k, batch)
        for name, one in (("a", a), ("b", b), ("c", c)):
            assert addresses(problem, name) == elements(one), (name, one, problem)
    assert layouts == {"nn", "nt", "tn", "tt"}


def test_a_torch_linear_layer_is_nt() -> None:
    """x @ weight.T: the transposed view of rows [n, k], also with one row or column."""
    for n, k in itertools.product((1, 8), (1, 16)):
        weight = np.zeros((n, k), np.float32)
        problem = asked(view_of(np.zeros((4, k), np.float32)), view_of(weight.T), view_of(np.zeros((4, n), np.float32)))
        if n > 1 and k > 1:
            assert (problem.layout, problem.ldb) == ("nt", k)
        assert addresses(problem, "b") == elements(view_of(weight.T))


@pytest.mark.parametrize("extent", [0, 1])
def test_an_inner_extent_of_none_or_one_is_a_product(extent: int) -> None:
    """k = 0 leaves beta C; strides of such arrays may be anything."""
    problem = asked(array((4, extent), (999, 7)), array((extent, 5), (5, 1)), array((4, 5), (5, 1)))
    assert problem.k == extent


@pytest.mark.parametrize(
    ("a", "b", "c", "said"),
    [
        (array((4, 5), (5, 1)), array((6, 7), (7, 1)), array((4, 7), (7, 1)), "cannot be multiplied"),
        (array((4,), (1,)), array((4, 7), (7, 1)), array((7,), (1,)), "cannot be multiplied"),
        (array((2, 4, 5), (20, 5, 1)), array((5, 7), (7, 1)), array((2, 4, 7), (28, 7, 1)), "cannot be multiplied"),
        (array((2, 4, 5), (20, 5, 1)), array((3, 5, 7), (35, 7, 1)), array((2, 4, 7), (28, 7, 1)), "be multiplied"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 8), (8, 1)), "out has the shape"),
        (array((4, 5), (10, 2)), array((5, 7), (7, 1)), array((4, 7), (7, 1)), "rows nor the columns of a"),
        (array((4, 5), (5, 1)), array((5, 7), (-7, 1)), array((4, 7), (7, 1)), "rows nor the columns of b"),
        (array((4, 5), (0, 1)), array((5, 7), (7, 1)), array((4, 7), (7, 1)), "rows nor the columns of a"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 7), (1, 4)), "rows of out are not contiguous"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 7), (3, 1)), "rows of out are not contiguous"),
        (array((2, 4, 5), (0, 5, 1)), array((2, 5, 7), (35, 7, 1)), array((2, 4, 7), (28, 7, 1)), "batches of a are 0"),
        (array((2, 4, 5), (20, 5, 1)), array((2, 5, 7), (35, 7, 1)), array((2, 4, 7), (5, 7, 1)), "would overlap"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1), "fp16"), array((4, 7), (7, 1)), "no kernel for fp32 and fp16"),
        (array((4, 5), (5, 1), "int32"), array((5, 7), (7, 1), "int32"), array((4, 7), (7, 1)), "no kernel for int32"),
        (array((4, 5), (5, 1), ""), array((5, 7), (7, 1), ""), array((4, 7), (7, 1)), "no kernel for another format"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 7), (7, 1), ""), "out is of a format that"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 7), (7, 1), "fp16"), "out_dtype of fp32"),
        (array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 7), (7, 1), device=1), "on the GPUs 0, 0 and 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused(a: Array, b: Array, c: Array, said: str) -> None:
    """One message, before anything is launched."""
    with pytest.raises(InputError, match=said):
        asked(a, b, c)


def test_a_format_can_be_named_in_place_of_the_arrays_own() -> None:
    """tf32 of fp32, 8-bit floats of bytes; elements of another size, which would be read past the end, are refused."""
    fp32 = array((4, 5), (5, 1)), array((5, 7), (7, 1)), array((4, 7), (7, 1))
    assert asked(*fp32, dtype="tf32").dtype == "tf32"
    raw = Array((4, 5), (5, 1), "", 1, 0), Array((5, 7), (7, 1), "", 1, 0), array((4, 7), (7, 1), "bf16")
    assert asked(*raw, dtype="fp8_e4m3").dtype == "fp8_e4m3"
    for dtype in ("fp16", "fp64", "fp8_e4m3"):
        with pytest.raises(InputError, match=r"have [128] bytes?;"):
            asked(*fp32, dtype=dtype)
    with pytest.raises(InputError, match="fp99"):
        asked(*fp32, dtype="fp99")


def test_each_operand_has_its_own_alignment() -> None:
    """From 16 bytes on, an address is as good as a tuned one; below, the kernel of that operand must know."""
    assert bases_of(0, 256, 48) == ()
    assert bases_of(8, 4, 0x1000) == (8, 4, 16)
    assert bases_of(24, 1, 2) == (8, 1, 2)
    square = array((8, 8), (8, 1))
    signature = asked(square, square, square, bases=(8, 16, 4)).signature
    assert (signature.align_a, signature.align_b, signature.align_c) == (8, 16, 4)
    narrow = array((8, 8), (9, 1))
    assert asked(narrow, square, square, bases=(16, 16, 8)).signature.align_a == 4  # rows count too


def test_a_placed_problem_is_the_tuned_one_to_the_cache() -> None:
    """Its winner is looked up under that name; what is tuned for it is aligned as its worst operand."""
    aligned = Problem(8, 9, 10, "fp16", "nt", out_dtype="fp32", beta=2.0)
    problem = placed(aligned, (4, 16, 8))
    assert problem.as_dict() == aligned.as_dict()
    assert problem_digest(problem) == problem_digest(aligned)
    assert problem != aligned
    assert tuned_as(problem) == (aligned, replace(aligned, base_alignment=4))
    assert tuned_as(aligned) == (aligned,)
    assert "at multiples of 4, 16, 8 bytes" in problem.label
    assert placed(problem, ()) == aligned
    with pytest.raises(InputError, match="c is at a multiple of 2 bytes; an element needs its own size"):
        tuned_as(placed(aligned, (16, 16, 2)))


@pytest.mark.parametrize("bases", [(1, 16, 16), (16, 1, 4), (1, 1, 4)])
def test_narrow_operands_may_lie_where_no_tuned_problem_does(bases: tuple[int, ...]) -> None:
    """An int8 matrix begins at any byte; shapes are tuned at multiples of the int32 results' size at least."""
    aligned = Problem(8, 9, 10, "int8", "nt")
    assert tuned_as(placed(aligned, bases)) == (aligned, replace(aligned, base_alignment=4))


def test_an_array_that_begins_within_an_element_is_refused() -> None:
    """Each by its own elements: fp16 operands may lie where an fp32 result may not."""
    half, single = array((4, 4), (4, 1), "fp16"), array((4, 4), (4, 1))
    assert asked(half, half, single, bases=(2, 2, 4)).signature.align_a == 2
    for operands, bases in (((half, half, single), (2, 2, 2)), ((single, single, single), (16, 2, 16))):
        with pytest.raises(InputError, match="begins at a multiple of 2 only"):
            asked(*operands, bases=bases)


def test_calls_that_share_a_plan_have_one_problem() -> None:
    """Scalars by their kind: the kernel gets the real ones at run time."""
    same = {standing_for(Problem(8, 8, 8, alpha=alpha, beta=0.25)) for alpha in (1.5, -3.0, 0.0)}
    assert len(same) == 1
    operands = array((8, 8), (8, 1)), array((8, 8), (8, 1)), array((8, 8), (8, 1))
    assert asked(*operands, alpha_is_one=False, beta_use=2) == next(iter(same))
    assert standing_for(Problem(8, 8, 8, beta=1.0)).beta == 1.0
    assert standing_for(Problem(8, 8, 8, base_alignment=16)) == Problem(8, 8, 8)
    assert standing_for(Problem(8, 8, 8, base_alignment=4)) == placed(Problem(8, 8, 8), (4, 4, 4))


def test_rows_of_one_element_or_line_may_have_any_stride() -> None:
    """Libraries leave them undefined."""
    assert rows_apart("out", array((1, 7), (-3, 1))) == 7
    assert rows_apart("out", array((4, 1), (9, 55))) == 9


# What libraries give


class FakeCupy:
    """As CuPy's arrays, but for the memory."""

    data: Any = None

    def __init__(self, values: "np.ndarray[Any, Any]", device: int = 0) -> None:
        self.shape, self.strides, self.dtype = values.shape, values.strides, values.dtype
        self.data = type("Data", (), {"ptr": values.ctypes.data, "device_id": device})()


FakeCupy.__module__ = "cupy._core.core"


class FakeTorch:
    """As PyTorch's tensors."""

    def __init__(self, values: "np.ndarray[Any, Any]", dtype: str, device: int = 0) -> None:
        self.values, self.shape, self.dtype, self.device = values, values.shape, dtype, device

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.values.itemsize for stride in self.values.strides)

    def get_device(self) -> int:
        return self.device


FakeTorch.__module__ = "torch"


class FakeDlpack:
    """What speaks the protocol and says that it is on a GPU."""

    def __init__(self, values: "np.ndarray[Any, Any]", kind: int = 2) -> None:
        self.values, self.kind = values, kind
        self.stream: object = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, *, stream: object = None) -> Any:
        self.stream = stream
        return self.values.__dlpack__()


def test_cupy_and_torch_are_read_by_their_attributes() -> None:
    """Address, shape, strides in elements, format, GPU."""
    values = np.zeros((6, 9), np.float16)[1:, 2:8]
    for one, dtype in ((FakeCupy(values, 3), "fp16"), (FakeTorch(values, "torch.bfloat16", 3), "bf16")):
        address, form = read(one)
        assert address == values.ctypes.data
        assert Array.of(form) == Array((5, 6), (9, 1), dtype, 2, 3)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float32", "fp32"), ("float64", "fp64"), ("float16", "fp16"), ("int8", "int8"), ("int32", "int32")],
)
@pytest.mark.parametrize("turned", [False, True])
def test_dlpack_is_read_by_its_struct(name: str, dtype: str, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with an offset and strides; the producer is told the stream, where 0 is called 1."""
    monkeypatch.setattr("kt.runtime.streams.current_stream", lambda kind, device: 0)
    values = np.arange(63, dtype=name).reshape(7, 9)[2:, 3:]
    values = values.T if turned else values
    given = FakeDlpack(values)
    address, form = read(given)
    assert address == values.ctypes.data
    assert Array.of(form) == view_of(values, dtype)
    assert given.stream == 1
    assert ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))[0] == values.tobytes()[0]


def test_what_is_not_on_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy arrays, tensors of the CPU, lists."""
    monkeypatch.setattr("kt.runtime.streams.current_stream", lambda kind, device: 0)
    for one in (np.zeros((2, 2), np.float32), FakeTorch(np.zeros((2, 2)), "torch.float32", -1)):
        with pytest.raises(InputError, match="not on a GPU"):
            read(one)
    with pytest.raises(InputError, match="list is none"):
        read([[1.0]])


def test_the_forms_of_equal_arrays_are_equal() -> None:
    """A plan is found again for every array that lies alike."""
    first, second = (read(FakeCupy(np.zeros((4, 8), np.float32)))[1] for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != read(FakeCupy(np.zeros((8, 4), np.float32)))[1]
    assert isinstance(first, Form)


def test_a_reader_is_chosen_once_for_a_type() -> None:
    """A call does not ask again what kind of array it has."""
    read(FakeCupy(np.zeros((4, 8), np.float32)))
    assert arrays.reader_of(FakeCupy) is arrays.reader_of(FakeCupy)
