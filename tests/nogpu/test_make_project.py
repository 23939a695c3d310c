"""examples/make-project: from shapes.yaml to a program by make, and nothing twice."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.usefixtures("no_gpu"),
    pytest.mark.skipif(shutil.which("make") is None or shutil.which("nvcc") is None, reason="needs make and nvcc"),
]


@pytest.fixture
def project(tmp_path: Path, own_environment: Path) -> Callable[..., str]:
    """A copy of the example; calling it runs `make` by the model of an H200, and gives what make has said."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "make-project", folder)

    def make(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KT_DEVICE": "model:h200"}
        flags = ["TUNEFLAGS=--progress none", "EXPORTFLAGS=--predicted", f"KT={sys.executable} -m kt"]
        flags += ["NVCCFLAGS=-O1 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror"]
        done = subprocess.run(
            ["make", *flags, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return make


def age(folder: Path) -> None:
    """Make all files older, each as before to the others, so that what is written now is newer to the clock."""
    for path in folder.rglob("*"):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns - 10_000_000_000, status.st_mtime_ns - 10_000_000_000))


def test_the_second_make_does_nothing_and_a_comment_rebuilds_nothing(
    project: Callable[..., str], tmp_path: Path, own_environment: Path
) -> None:
    """The bars of the issue; and a change that matters does rebuild."""
    folder = tmp_path / "project"
    first = project()
    assert "tune gemm" in first
    assert "nvcc" in first
    assert (folder / "program").exists()
    second = project()
    assert "tune" not in second
    assert "nvcc" not in second
    for changed, asked, built in (
        (lambda text: f"# a comment\n{text}", True, False),
        (lambda text: text.replace("m: 512", "m: 511", 1), True, True),
    ):
        for place in (folder, own_environment):
            age(place)
        shapes = folder / "shapes.yaml"
        shapes.write_text(changed(shapes.read_text()))
        time.sleep(0.02)
        said = project()
        assert ("tune gemm" in said, "nvcc" in said) == (asked, built)
        again = project()
        assert ("tune gemm" in again, "nvcc" in again) == (False, False)


def test_clean_leaves_what_a_person_wrote(project: Callable[..., str], tmp_path: Path) -> None:
    """The sources alone."""
    folder = tmp_path / "project"
    before = sorted(path.name for path in folder.iterdir())
    for name in ("program", "kt_gemm.cuh", "kt_gemm.stamp", "kt_gemm.d"):
        (folder / name).touch()
    project("clean")
    assert sorted(path.name for path in folder.iterdir()) == before
