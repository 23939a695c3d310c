"""Light commands stay light: what they import, and the processor time that they take."""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("cupy", "cupy_backends", "jinja2", "numpy", "rich", "torch")
# Name, arguments, seconds allowed (medians), modules that it must not import.
LIGHT = [
    ("help", ("--help",), 0.25, (*HEAVY, "yaml", "pydantic", "sqlite3")),
    ("version", ("--version",), 0.25, (*HEAVY, "yaml", "sqlite3")),
    ("show-cache", ("show-cache",), 0.35, HEAVY),
    ("cache path", ("cache", "path"), 0.35, HEAVY),
]


def _with_modules(
    arguments: tuple[str, ...], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """A command that ends well; the last line on standard error names the modules that it has imported."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(' '.join(sys.modules), file=sys.stderr))\n"
        f"sys.argv = ['kt', *{arguments!r}]\n"
        "from kt.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def _seconds(arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> float:
    """Processor time of the command; the median of five runs."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "kt", *arguments], env=environment, cwd=folder, check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return statistics.median(once() for _ in range(5))


def _environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "KT_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(("arguments", "heavy"), [(row[1], row[3]) for row in LIGHT], ids=[row[0] for row in LIGHT])
def test_light_commands_import_nothing_heavy(
    arguments: tuple[str, ...], heavy: tuple[str, ...], tmp_path: Path
) -> None:
    """No light command imports CuPy, and none imports what it has no use for."""
    done = _with_modules(arguments, _environment(tmp_path), tmp_path)
    imported = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    assert "typer" in imported  # the list was read at the end, not before the command
    assert not imported & set(heavy)


@pytest.mark.parametrize(("arguments", "limit"), [(row[1], row[2]) for row in LIGHT], ids=[row[0] for row in LIGHT])
def test_light_commands_are_quick(arguments: tuple[str, ...], limit: float, tmp_path: Path) -> None:
    """The median of five runs is below the limit, in processor time: a busy machine must not fail the test."""
    assert _seconds(arguments, _environment(tmp_path), tmp_path) < limit


def test_a_run_that_the_cache_answers_imports_no_tuner(
    small_family: tuple[str, ...], tmp_path: Path, kt_process: Callable[..., Any]
) -> None:
    """What enumerates, renders, compiles and measures is not loaded, and the second run is over in a moment."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes:\n  - {m: [16, 32], n: 16, k: 16}\n")
    arguments = ("tune", "gemm", "--shapes", str(shapes), "--device", "model:h200", *small_family, "-q")
    environment = _environment(tmp_path)
    assert kt_process(*arguments, env=environment).code == 0
    done = _with_modules(arguments, environment, tmp_path)
    assert done.stdout.count("from the cache") == 2
    imported = set(done.stderr.splitlines()[-1].split())
    assert "kt.tuner.run" in imported
    unwanted = {*HEAVY, "kt.tuner.candidates", "kt.tuner.compile_pool", "kt.tuner.cubin_cache", "kt.tuner.messages"}
    assert not imported & unwanted
    assert _seconds(arguments, environment, tmp_path) < 0.5
