"""`kt tune` for a GPU that is not here: what a budget cuts short says so, and is in no list of the cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


def test_tune_show_cache_and_prune_agree_on_what_is_partial(
    kt: Command, small_family: tuple[str, ...], tmp_path: Path
) -> None:
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes:\n  - {m: 16, n: 16, k: 16}\n")
    command = ("tune", "gemm", "--shapes", shapes, "--device", "model:h200", *small_family)
    assert "predicted, not measured; search not finished" in kt(*command, "--budget", "2").out
    (listed,) = kt("show-cache", "--json", *small_family).json["entries"]
    assert (listed["state"], listed["complete"], listed["tried"]) == ("predicted", False, 2)
    assert kt("cache", "prune", "--partial", "--dry-run", "--json").json["winners"] == 1
    assert "search not finished" not in kt(*command).out
    (whole,) = kt("show-cache", "--json", *small_family).json["entries"]
    assert (whole["state"], whole["complete"]) == ("predicted", True)
