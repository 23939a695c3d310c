"""`kt.gemm` and `kt.warmup` with what cannot be used: one error of kt's own, never CuPy's or Python's."""

from typing import Any

import pytest

import kt
from kt.errors import InputError, KtError, NoUsableGpu
from kt.problems import Problem
from kt.runtime.current_gpu import refusal
from kt.runtime.shapes import problems_of

SHAPE = {"m": 8, "n": 8, "k": 8}
pytestmark = pytest.mark.usefixtures("no_gpu")


class OnGpu:
    """An array of DLPack that says it is on a GPU."""

    def __dlpack__(self, **_: Any) -> object:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.mark.parametrize("shapes", [[SHAPE], [Problem(8, 8, 8)], []], ids=["mapping", "problem", "none"])
@pytest.mark.parametrize("device", [None, 0, 10**30, -1])
def test_warmup_without_a_gpu_says_so(shapes: list[Any], device: int | None) -> None:
    """With a hint, as the command line does."""
    with pytest.raises(NoUsableGpu) as raised:
        kt.warmup(shapes, device=device)
    assert raised.value.hint


def test_a_product_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the result must be made first."""
    from kt.runtime import gemm as module
    from kt.runtime.arrays import Form

    monkeypatch.setattr(module, "read", lambda _: (4096, Form("dlpack", (8, 8), (8, 1), "float32", 0)))
    for out in (None, OnGpu()):
        with pytest.raises(NoUsableGpu):
            kt.gemm(OnGpu(), OnGpu(), out)


def test_cuda_that_refuses_a_gpu_that_is_there_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words, on one line."""
    monkeypatch.setattr("kt.devices.local.local_device", lambda ordinal=0: None)
    error = refusal(RuntimeError("cudaErrorDevicesUnavailable:\nbusy"), 1)
    assert (type(error), error.message) == (KtError, "GPU 1 cannot be used: cudaErrorDevicesUnavailable: busy")


@pytest.mark.parametrize("device", ["model:h200", "0", 1.0, True])
def test_a_device_is_a_number(device: Any) -> None:
    """Not what `--device` takes."""
    with pytest.raises(InputError, match="must be the number of a GPU"):
        kt.warmup([SHAPE], device=device)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"m": -1}, "shape 0 lacks n, k"),
        (SHAPE | {"m": -1}, "shape 0: m is -1; it must be a whole number from 1 to"),
        (SHAPE | {"m": 1e3}, r"m is 1000\.0; it must be a whole number"),
        (SHAPE | {"m": True}, "m is True; it must be a whole number"),
        (Problem(1e3, 8, 8), r"m is 1000\.0"),  # type: ignore[arg-type]
        (SHAPE | {"beta": 10**400}, "beta is 10+…; it must be a finite number"),
        (SHAPE | {"beta": 10**5000}, "beta is a number of thousands of digits"),
        (SHAPE | {"alpha": float("nan")}, "alpha is nan"),
        (SHAPE | {"dtype": 3}, "dtype is 3; it must be text"),
        (SHAPE | {"dtype": "fp31"}, "shape 0: dtype is 'fp31'; it must be one of"),
        (SHAPE | {"M": 3}, "has no field 'M'"),
        ("m", "shape 0 is 'm'; it must be a mapping"),
    ],
)
def test_a_shape_that_is_none_is_named(shape: Any, message: str) -> None:
    """Field, value and limit, before any GPU is looked for."""
    with pytest.raises(InputError, match=message):
        kt.warmup([shape])


@pytest.mark.parametrize("shapes", [SHAPE, Problem(8, 8, 8), 8])
def test_one_shape_is_no_list(shapes: Any) -> None:
    """The mapping of one shape would be read letter by letter."""
    with pytest.raises(InputError, match="it must be a list of shapes"):
        kt.warmup(shapes)


def test_a_problem_may_be_given_by_all_its_fields() -> None:
    """Zero stands for dense, as in its constructor."""
    problem = Problem(8, 9, 10, "bf16", "nt", batch=3, beta=1.0)
    assert problems_of([problem.as_dict(), problem, SHAPE | {"lda": 0}]) == [problem, problem, Problem(8, 8, 8)]
