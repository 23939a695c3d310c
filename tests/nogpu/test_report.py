"""benchmarks/report.py: what is told of whole suites is what the files of results say."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


report: Any = script(ROOT / "benchmarks" / "report.py")


def shape(m: int, time_us: float, peers_us: dict[str, float | None], failure: str | None = None) -> dict[str, Any]:
    problem = {"m": m, "n": 8, "k": 4, "layout": "nt"}
    return {"problem": problem, "time_us": time_us, "peers_us": peers_us, "failure": failure}


def written(folder: Path, *shapes: dict[str, Any]) -> Path:
    about = {"dtype": "bf16", "commit": "0123456789", "device": "G", "driver": "1", "tune_seconds": 9.6}
    path = folder / "suite.json"
    path.write_text(json.dumps({**about, "bench": {"shapes": list(shapes)}}))
    return path


def test_ratios_are_over_the_fastest_library(tmp_path: Path) -> None:
    path = written(
        tmp_path, shape(1, 10.0, {"cublas": 30.0, "cublaslt": 20.0}), shape(2, 10.0, {"cublas": 5.0, "cublaslt": None})
    )
    suite = report.read_suite(path)
    assert suite.ratios == [2.0, 0.5]
    assert suite.geometric_mean == pytest.approx(1.0)
    assert "| bf16 | 2 | 1.000× | 1 of 2 | 1 | 2.00× (1×8×4) | 0.50× (2×8×4) | 10 s |" in report.table([suite])
    assert report.losses(suite) == "2×8×4 nt 0.500"


def test_a_run_that_finished_what_a_budget_had_left_counts_as_tuning(tmp_path: Path) -> None:
    path = written(tmp_path, shape(1, 10.0, {"cublas": 20.0}))
    path.write_text(json.dumps({**json.loads(path.read_text()), "further_seconds": [30.0]}))
    assert report.read_suite(path).tune_seconds == pytest.approx(39.6)


def test_a_shape_that_no_library_accepts_counts_as_a_shape_only(tmp_path: Path) -> None:
    path = written(tmp_path, shape(1, 10.0, {"cublas": None}), shape(2, 10.0, {"cublas": 20.0}))
    assert "| bf16 | 2 | 2.000× | 1 of 1 |" in report.table([report.read_suite(path)])


def test_a_suite_with_a_failed_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 shape has no time"):
        report.read_suite(written(tmp_path, shape(1, 1.0, {}), shape(2, 0.0, {}, "no valid configuration")))


def test_the_readme_shows_what_the_results_say() -> None:
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- python3 benchmarks/report\.py (.+) -->\n((?:\|.*\n)+)", readme)
    assert found
    suites = [report.read_suite(ROOT / path) for word in found[1].split() for path in _expanded(word)]
    assert found[2].rstrip() == report.table(suites)


def _expanded(word: str) -> list[str]:
    """A word as the shell expands it: each name of a group in braces in turn."""
    before, _, rest = word.partition("{")
    names, _, after = rest.partition("}")
    return [f"{before}{name}{after}" for name in names.split(",")]
