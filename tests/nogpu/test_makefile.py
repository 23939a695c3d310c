"""The Makefile and .ci/run: what they promise to a fresh machine."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from kt.problems.shapes_file import load_shapes

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CI = ROOT / ".ci" / "run"


def _make(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def _python(folder: Path, script: str) -> Path:
    """A command that behaves as `script` says when called as an interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_an_old_python_is_named(tmp_path: Path) -> None:
    """An interpreter below 3.11 ends in one message that says how to name another, and leaves nothing behind."""
    python = _python(tmp_path, "exit 1")
    done = _make(f"PYTHON={python}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/.python")
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert f"'{python}' is not" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    """Some systems split off the venv module: the message says what to install."""
    python = _python(tmp_path, 'case "$1" in -c) exit 0;; *) exit 1;; esac')
    done = _make(f"PYTHON={python}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/.python")
    assert done.returncode != 0
    assert "python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_finished_install_is_not_repeated(tmp_path: Path) -> None:
    """Only a newer pyproject.toml makes `make` install again."""
    venv = tmp_path / "venv"
    venv.mkdir()
    for stamp in (".python", ".dev", ".user"):
        (venv / stamp).touch()
    assert "pip install" not in _make("-n", f"VENV={venv}", "test").stdout
    os.utime(venv / ".dev", (1, 1))
    assert "pip install" in _make("-n", f"VENV={venv}", "test").stdout


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("demo", "kt tune gemm --shapes examples/shapes.yaml --device auto"),
        ("demo", "activate; kt show-cache"),
        ("test", 'pytest -n auto -m "not gpu and not slow"'),
        ("test-all", 'pytest -n auto -m "not gpu"'),
        ("check", "mypy"),
        ("check", "pyright"),
        ("check", "ruff format --check ."),
    ],
)
def test_targets(tmp_path: Path, target: str, command: str) -> None:
    """Each target runs what the README says that it does."""
    assert command in _make("-n", f"VENV={tmp_path}/venv", target).stdout


def test_ci_runs_the_checks_and_the_tests_of_the_readme() -> None:
    """CI is a strict script that runs `make check` and the test command of the README."""
    text = CI.read_text()
    assert os.access(CI, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert re.search(r"^make check test$", text, re.MULTILINE)


@pytest.mark.parametrize("text", [MAKEFILE, CI.read_text()], ids=["Makefile", ".ci/run"])
def test_no_registry_is_named(text: str) -> None:
    """Where packages come from is the business of each machine's own configuration."""
    assert not re.search(r"https?://|index-url|pypi\.", text)


def test_the_examples_are_shapes() -> None:
    """The example file loads: twelve shapes, all fp32, of the models that it names."""
    problems = load_shapes(ROOT / "examples" / "shapes.yaml")
    assert len(problems) == 12
    assert {problem.dtype for problem in problems} == {"fp32"}
    assert {(problem.n, problem.k) for problem in problems} >= {(6144, 4096), (4096, 14336), (1760, 1760)}


def test_the_benchmark_is_shapes() -> None:
    """benchmarks/bench.yaml loads in any operand format."""
    assert len(load_shapes(ROOT / "benchmarks" / "bench.yaml", dtype="fp32")) == 44
    assert len(load_shapes(ROOT / "benchmarks" / "bench.yaml", dtype="bf16")) == 44
