"""Light commands stay light: what they import, and the processor time that they take.

The time is told in that of a Python which imports the libraries that every command needs, measured beside it: machines
differ, and a slow one must not fail the test.
"""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.store import Store

ROOT = Path(__file__).parents[2]
HEAVY = ("cupy", "cupy_backends", "jinja2", "numpy", "rich", "torch")
LIBRARIES = ("-c", "import pydantic, sqlite3, typer, yaml")
# Name, arguments, times that of the libraries that it may take, modules that it must not import.
LIGHT = [
    ("help", ("--help",), 1.8, (*HEAVY, "yaml", "pydantic", "sqlite3")),
    ("version", ("--version",), 1.8, (*HEAVY, "yaml", "sqlite3")),
    ("show-cache", ("show-cache",), 5.0, HEAVY),
    ("cache path", ("cache", "path"), 2.5, HEAVY),
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


def _times_the_libraries(arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> float:
    """Processor time of the command over that of the libraries; medians of five runs, in turns."""

    def once(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], env=environment, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(once("-m", "kt", *arguments), once(*LIBRARIES)) for _ in range(5)]
    return statistics.median(one for one, _ in pairs) / statistics.median(other for _, other in pairs)


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
    """In processor time: a busy machine must not fail the test."""
    assert _times_the_libraries(arguments, _environment(tmp_path), tmp_path) < limit


@pytest.mark.parametrize("made", [False, True], ids=["missing", "empty"])
def test_a_cache_without_winners_is_listed_without_search_spaces(tmp_path: Path, made: bool) -> None:
    """To read them all takes several times as long as all else."""
    if made:
        Store.open(tmp_path).close()
    done = _with_modules(("show-cache",), _environment(tmp_path), tmp_path)
    assert f"kt: no results in {tmp_path}" in done.stderr
    assert "kt.search_spaces.loader" not in done.stderr.splitlines()[-1].split()


def test_before_it_listens_to_ctrl_c_kt_loads_next_to_nothing(tmp_path: Path) -> None:
    """What comes earlier is Python's own to deal with, by a traceback."""
    code = "import sys; before = {*sys.modules}; import kt.__main__; print(*sorted({*sys.modules} - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import contextlib, signal; {code}"], env=_environment(tmp_path),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["kt", "kt.__main__", "kt.interrupts"]


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
    assert _times_the_libraries(arguments, environment, tmp_path) < 6.0
