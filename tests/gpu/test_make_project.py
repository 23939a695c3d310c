"""examples/make-project on a GPU: what make builds runs, is right, and uses what was tuned."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")]


def test_the_program_of_the_example_runs(tmp_path: Path, own_environment: Path) -> None:
    """Built by its own Makefile, after a short search; every call found its configuration."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "make-project", folder)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    flags = [f"KT={sys.executable} -m kt", "TUNEFLAGS=--budget 24 --peers none"]
    done = subprocess.run(
        ["make", *flags, "run"], cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[0-9.]+ us for both layers; 202 of 202 calls found", done.stdout, re.MULTILINE)
    assert "0 of 20 elements differ" in done.stdout
