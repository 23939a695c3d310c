"""The commands on a real GPU: tune, again from the cache, bench, export."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

Command = Callable[..., Any]
SHAPES = "layout: nn\nshapes:\n  - {m: [64, 127], n: 96, k: 100}\n  - {m: 1, n: 256, k: 512}\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(SHAPES)
    return path


def test_tune_then_cached_then_bench(kt_process: Command, shapes: Path, small_family: tuple[str, ...]) -> None:
    """Every shape gets a measured winner; a second run touches nothing; a bench times each winner once more."""
    tune = ("tune", "gemm", "--shapes", shapes, *small_family, "--json")
    first = kt_process(*tune)
    assert first.code == 0, first.err
    assert [shape["outcome"] for shape in first.json["shapes"]] == ["tuned"] * 3
    for shape in first.json["shapes"]:
        result = shape["result"]
        assert (result["kind"], result["complete"], result["tried"]) == ("measured", True, 4)
        assert result["time_us"] <= result["default_us"]
    second = kt_process(*tune)
    assert [shape["outcome"] for shape in second.json["shapes"]] == ["cached"] * 3
    assert second.json["compiled"] == 0
    bench = kt_process("bench", "gemm", "--shapes", shapes, *small_family, "--json")
    assert bench.code == 0, bench.err
    for row in bench.json["shapes"]:
        assert row["time_us"] > 0
        assert set(row["peers_us"]) | set(row["peer_errors"]) == {"cublas", "cublaslt"}


def test_the_built_in_family_end_to_end(kt_process: Command, shapes: Path, tmp_path: Path) -> None:
    """With a small budget, the built-in family tunes every shape, and table and header hold exactly these."""
    table, header = tmp_path / "table.json", tmp_path / "gemm_table.h"
    tuned = kt_process("tune", "gemm", "--shapes", shapes, "--budget", "24", "-o", table)
    assert tuned.code == 0, tuned.err
    assert kt_process("export", "--header", "--shapes", shapes, "-o", header).code == 0
    exported = kt_process("export", "--json", "--shapes", shapes)
    assert {row["problem"]["m"] for row in exported.json["rows"]} == {1, 64, 127}
    assert {row["kind"] for row in exported.json["rows"]} == {"measured"}
    assert "#pragma once" in header.read_text() or "#ifndef" in header.read_text()


def test_doctor_finds_the_gpu(kt_process: Command) -> None:
    """GPU and driver are described, and the real compilation is for this GPU."""
    checks = {check["name"]: check for check in kt_process("doctor", "--json").json["checks"]}
    assert checks["gpu"]["state"] == checks["driver"]["state"] == "ok"
    assert checks["compilation"]["state"] == "ok"
