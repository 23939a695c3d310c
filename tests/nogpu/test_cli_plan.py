"""`kt plan gemm`: spaces, rejections and estimates, without a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text("shapes:\n  - {m: [64, 100], n: 64, k: 64}\n")
    return path


@pytest.fixture
def narrow(small_family: tuple[str, ...]) -> tuple[str, ...]:
    """The small family with a third tile that no block can hold."""
    space = Path(small_family[1])
    space.write_text(space.read_text().replace("tile: [8, 16]", "tile: [8, 16, 64]"))
    return small_family


def test_rejections_have_counts_and_reasons(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """Each constraint says how many combinations it rejects and why; what is left adds up."""
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow, "--json")
    assert (outcome.code, outcome.json["schema"]) == (0, "kt.plan/1")
    for shape in outcome.json["shapes"]:
        (family,) = shape["families"]
        assert (family["combinations"], family["valid"]) == (6, 4)
        assert family["rejections"][0] == {
            "require": "tile * tile <= 1024", "reason": "a block has at most 1024 threads", "count": 2,
        }  # fmt: skip
        assert shape["config"]["tile"] in (8, 16)


def test_text_for_people(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """Shapes, rejections and the estimate are all there, and the device is named."""
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow)
    assert "fp32 nn 100x64x64" in outcome.out
    assert "a block has at most 1024 threads" in outcome.out
    assert "kernels to compile" in outcome.out
    assert "NVIDIA H200 (modelled)" in outcome.err


def test_compile_shows_resources(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """--compile compiles for the device and shows registers, shared memory and what limits the blocks."""
    command = ("plan", "gemm", "--shapes", shapes, "--device", "model:a100", *narrow, "--compile")
    compiled = kt(*command, "--json").json["compiled"]
    assert {one["problem"]["m"] for one in compiled} == {64, 100}
    assert all(one["registers"] > 0 and one["blocks_per_sm"] > 0 and not one["verdict"] for one in compiled)
    assert "registers" in kt(*command).out


def test_without_shapes_every_format_stands_in(kt: Command) -> None:
    """The built-in spaces are shown for a square problem of each format that they serve."""
    document = kt("plan", "gemm", "--json").json
    assert {shape["problem"]["dtype"] for shape in document["shapes"]} >= {"fp32", "fp64", "fp16", "bf16", "int8"}
    assert {shape["problem"]["m"] for shape in document["shapes"]} == {4096}
    only = kt("plan", "gemm", "--dtype", "fp64", "--json").json["shapes"]
    assert [shape["problem"]["dtype"] for shape in only] == ["fp64"]


def test_a_shape_that_nothing_fits_is_exit_3(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """A space that prunes to nothing for a shape names the shape and the constraint that took the last candidates."""
    space = Path(narrow[1])
    space.write_text(space.read_text().replace("launches:", "  - {require: m >= 80, reason: few rows}\nlaunches:"))
    outcome = kt("plan", "gemm", "--shapes", shapes, *narrow)
    assert outcome.code == 3
    assert "1 of 2 shapes have no valid configuration" in outcome.err
    assert "fp32 nn 64x64x64" in outcome.err
    assert "few rows" in outcome.err


def test_a_format_without_a_family_is_exit_3(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """No family serves it: said by name."""
    outcome = kt("plan", "gemm", "--shapes", shapes, "--dtype", "fp64", *narrow)
    assert outcome.code == 3
    assert "fp64" in outcome.err


def test_the_estimate_follows_the_budget(kt: Command, shapes: Path, narrow: tuple[str, ...]) -> None:
    """A budget of time is an upper bound of the estimate; one of candidates bounds the tries."""
    command = ("plan", "gemm", "--shapes", shapes, *narrow, "--json")
    assert kt(*command, "--budget", "1s").json["seconds"] <= 1
    assert {shape["evaluations"] for shape in kt(*command, "--budget", "2").json["shapes"]} == {2}
