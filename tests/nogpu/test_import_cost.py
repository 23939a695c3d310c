"""Light commands stay light: what they import, and the processor time that they take."""

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("cupy", "cupy_backends", "jinja2", "numpy", "nvmath", "rich", "torch")
# Name, arguments, seconds allowed (medians), modules that it must not import.
LIGHT = [
    ("help", ("--help",), 0.25, (*HEAVY, "yaml", "pydantic", "sqlite3")),
    ("version", ("--version",), 0.25, (*HEAVY, "yaml", "sqlite3")),
    ("show-cache", ("show-cache",), 0.35, HEAVY),
    ("cache path", ("cache", "path"), 0.35, HEAVY),
]


def _environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "KT_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(("arguments", "heavy"), [(row[1], row[3]) for row in LIGHT], ids=[row[0] for row in LIGHT])
def test_light_commands_import_nothing_heavy(
    arguments: tuple[str, ...], heavy: tuple[str, ...], tmp_path: Path
) -> None:
    """No light command imports CuPy, and none imports what it has no use for."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(' '.join(sys.modules), file=sys.stderr))\n"
        f"sys.argv = ['kt', *{arguments!r}]\n"
        "from kt.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(tmp_path), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    imported = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    assert "typer" in imported  # the list was read at the end, not before the command
    assert not imported & set(heavy)


@pytest.mark.parametrize(("arguments", "limit"), [(row[1], row[2]) for row in LIGHT], ids=[row[0] for row in LIGHT])
def test_light_commands_are_quick(arguments: tuple[str, ...], limit: float, tmp_path: Path) -> None:
    """The median of five runs is below the limit, in processor time: a busy machine must not fail the test."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "kt", *arguments],
            env=_environment(tmp_path), cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert statistics.median(seconds() for _ in range(5)) < limit
