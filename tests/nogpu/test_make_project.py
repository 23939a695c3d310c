"""examples/make-project: from shapes.yaml to a program by make, and nothing twice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.usefixtures("no_gpu"),
    pytest.mark.skipif(shutil.which("make") is None, reason="needs make"),
]


@pytest.fixture
def project(tmp_path: Path, own_environment: Path) -> Callable[..., str]:
    """A copy of the example; calling it runs `make` by the model of an H200, and gives what make has said."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "make-project", folder)

    def make(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KT_DEVICE": "model:h200"}
        flags = ["TUNEFLAGS=--progress none", "EXPORTFLAGS=--predicted", f"KT={sys.executable} -m kt"]
        done = subprocess.run(
            ["make", *flags, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return make


def age(*folders: Path) -> None:
    """Make all files older, each as before to the others, so that what is written now is newer to the clock."""
    for path in (path for folder in folders for path in folder.rglob("*")):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns - 10_000_000_000, status.st_mtime_ns - 10_000_000_000))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_make_builds_the_program_without_a_warning(project: Callable[..., str], tmp_path: Path) -> None:
    """From shapes.yaml to a program; the second `make` does nothing."""
    strict = "NVCCFLAGS=-O1 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror"
    assert "tune gemm" in project(strict)
    assert os.access(tmp_path / "project" / "program", os.X_OK)
    said = project(strict)
    assert "tune" not in said
    assert "nvcc" not in said


COMPILER = "#!/bin/sh\necho compiled >> compiled\ntouch program\n"


def keep_one_shape(folder: Path) -> None:
    """The first one: what is tuned does not matter to when make asks for it."""
    shapes = folder / "shapes.yaml"
    lines = shapes.read_text().splitlines(keepends=True)
    rows = [line for line in lines if line.lstrip().startswith("- {")]
    shapes.write_text("".join(line for line in lines if line not in rows[1:]))


def test_a_comment_rebuilds_nothing(project: Callable[..., str], tmp_path: Path, own_environment: Path) -> None:
    """kt is asked, as the shapes might have changed, and the compiler is not; it is when a shape has changed."""
    folder, compiler = tmp_path / "project", tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    keep_one_shape(folder)

    def make(change: Callable[[str], str] = lambda text: text) -> tuple[bool, int]:
        """Whether kt was asked, and how often the compiler was, after shapes.yaml was saved."""
        age(folder, own_environment)
        shapes = folder / "shapes.yaml"
        text = shapes.read_text()
        if change(text) != text:
            shapes.write_text(change(text))
        said = project(f"NVCC={compiler}")
        return "tune gemm" in said, (folder / "compiled").read_text().count("compiled")

    assert make() == (True, 1)
    assert make() == (False, 1)
    assert make(lambda text: f"# a comment\n{text}") == (True, 1)
    assert make() == (False, 1)
    assert make(lambda text: text.replace("m: 512", "m: 511", 1)) == (True, 2)
    assert make() == (False, 2)


def test_a_header_that_was_deleted_comes_back(
    project: Callable[..., str], tmp_path: Path, own_environment: Path
) -> None:
    """By plain make, as it was, and the program is built again; the stamp alone is no header."""
    folder, compiler = tmp_path / "project", tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    keep_one_shape(folder)
    project(f"NVCC={compiler}")
    before = (folder / "kt_gemm.cuh").read_bytes()
    (folder / "kt_gemm.cuh").unlink()
    age(folder, own_environment)
    assert "export --header" in project(f"NVCC={compiler}")
    assert (folder / "kt_gemm.cuh").read_bytes() == before
    assert (folder / "compiled").read_text().count("compiled") == 2
    age(folder, own_environment)
    assert "kt" not in project(f"NVCC={compiler}").replace("kt_gemm", "")


@pytest.mark.slow
def test_other_flags_ask_kt_again(project: Callable[..., str], tmp_path: Path, own_environment: Path) -> None:
    """So a program of predicted winners does not outlive the flags that wanted it; the same flags ask nothing."""
    folder, compiler = tmp_path / "project", tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    keep_one_shape(folder)
    for flags, asked in (("--progress none", True), ("--progress none", False), ("--progress 'none'", True)):
        age(folder, own_environment)
        assert ("tune gemm" in project(f"NVCC={compiler}", f"TUNEFLAGS={flags}")) == asked
    age(folder, own_environment)
    assert "tune gemm" in project(f"NVCC={compiler}", "TUNEFLAGS=--progress 'none'", "EXPORTFLAGS=--quiet --predicted")
    assert (folder / "compiled").read_text().count("compiled") == 1  # the header has stayed as it was


def test_clean_leaves_what_a_person_wrote(project: Callable[..., str], tmp_path: Path) -> None:
    """The sources alone."""
    folder = tmp_path / "project"
    before = sorted(path.name for path in folder.iterdir())
    for name in ("program", "kt_gemm.cuh", "kt_gemm.stamp", "kt_gemm.flags", "kt_gemm.d"):
        (folder / name).touch()
    project("clean")
    assert sorted(path.name for path in folder.iterdir()) == before
