"""`kt.gemm` and `kt.warmup` with what cannot be used: one error of kt's own, never CuPy's or Python's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kt
from kt.errors import InputError, KtError, NoUsableGpu
from kt.problems import Problem
from kt.runtime.current_gpu import refusal
from kt.runtime.shapes import problems_of

ROOT = Path(__file__).parents[2]
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
    """With a hint for Python, which has no `--device`."""
    with pytest.raises(NoUsableGpu) as raised:
        kt.warmup(shapes, device=device)
    assert raised.value.hint
    assert "--device" not in raised.value.hint


def test_a_product_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the result must be made first."""
    from kt.runtime import gemm as module
    from kt.runtime.arrays import Form

    monkeypatch.setattr(module, "read", lambda _: (4096, Form("dlpack", (8, 8), (8, 1), "float32", 0)))
    for out in (None, OnGpu()):
        with pytest.raises(NoUsableGpu):
            kt.gemm(OnGpu(), OnGpu(), out)


WITHOUT_CUPY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cupy", "cupy_backends"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import kt
from kt.errors import KtError
for call in (kt.calls, kt.gemm, kt.warmup):
    try:
        call([])
    except KtError as error:
        print(error.message, "|", error.hint)
"""


def test_without_cupy_each_function_says_what_to_install() -> None:
    """As `kt doctor` does; the names are there all the same."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_CUPY], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.partition(" needs CuPy, which is not installed | pip install")[0] for line in lines] == [
        "kt.calls", "kt.gemm", "kt.warmup",
    ]  # fmt: skip
    assert all("[cuda13]" in line for line in lines)


def test_a_console_completes_what_is_not_imported_yet() -> None:
    """`dir(kt)` has every public name, and does not import what takes CuPy."""
    code = "import sys, kt; print(set(kt.__all__) <= set(dir(kt)), 'cupy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True False\n"


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


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    """Sizes that a program has reckoned; they become Python's own, as JSON and keys need them. Its truths are none."""
    sizes: dict[str, Any] = {"m": np.int64(64), "n": np.uint8(8), "k": np.int32(16), "alpha": np.int64(2)}
    for shape in (sizes, Problem(**sizes)):
        (found,) = problems_of([shape])
        assert found == Problem(64, 8, 16, alpha=2)
        assert {type(found.m), type(found.n), type(found.k)} == {int}
    with pytest.raises(InputError, match=r"m is np.True_; it must be a whole number"):
        problems_of([SHAPE | {"m": np.True_}])
    with pytest.raises(InputError, match=r"m is np.int64\(-1\)|m is -1"):
        problems_of([SHAPE | {"m": np.int64(-1)}])
    with pytest.raises(NoUsableGpu):  # and not: must be the number of a GPU
        kt.warmup([sizes], device=np.int64(0))  # type: ignore[arg-type]


def test_a_problem_may_be_given_by_all_its_fields() -> None:
    """Zero stands for dense, as in its constructor."""
    problem = Problem(8, 9, 10, "bf16", "nt", batch=3, beta=1.0)
    assert problems_of([problem.as_dict(), problem, SHAPE | {"lda": 0}]) == [problem, problem, Problem(8, 8, 8)]
