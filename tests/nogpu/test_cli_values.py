"""The values of options: what they may be, and that those that cannot be meant are refused before any work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")

SHAPES = "dtype: fp32\nshapes:\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(SHAPES + "  - {m: 64, n: 64, k: 64}\n  - {m: 32, n: 64, k: 64}\n")
    return path


def test_several_shapes_files_count_as_one(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """--shapes twice: all shapes in the order of the files; what stands in both stands once."""
    more = tmp_path / "more.yaml"
    more.write_text(SHAPES + "  - {m: 32, n: 64, k: 64}\n  - {m: 16, n: 64, k: 64}\n")
    outcome = kt("plan", "gemm", "--device", "model:h200", "--shapes", shapes, "--shapes", more, "--json")
    assert outcome.code == 0
    assert [shape["problem"]["m"] for shape in outcome.json["shapes"]] == [64, 32, 16]


def test_standard_input_named_twice_is_read_once(kt_process: Command) -> None:
    """`--shapes - --shapes -` is not an empty second file."""
    document = SHAPES + "  - {m: 64, n: 64, k: 64}\n"
    given = ("plan", "gemm", "--device", "model:h200", "--shapes", "-", "--shapes", "-", "--json")
    outcome = kt_process(*given, stdin=document)
    assert outcome.code == 0, outcome.err
    assert len(outcome.json["shapes"]) == 1


def test_a_negative_seed_is_refused(kt: Command, shapes: Path) -> None:
    """--seed is 0 or more, as random number generators want it."""
    outcome = kt("tune", "gemm", "--device", "model:h200", "--shapes", shapes, "--seed", "-1")
    assert outcome.code == 2
    assert "invalid value for '--seed'" in outcome.err
