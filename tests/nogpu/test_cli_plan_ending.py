"""A plan ends with the exit code, and the error, with which a run of the same shapes ends."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kt.cache.store import Store

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")
TARGET = ("--device", "model:h200")


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text("shapes:\n  - {m: [64, 100], n: 64, k: 64}\n  - {m: 64, n: 64, k: 64, layout: nt}\n")
    return path


def _error(outcome: Any) -> list[str]:
    """Its last message."""
    lines = outcome.err.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("kt: error: ")]
    return lines[starts[-1] :] if starts else []


def _newer(folder: Path) -> Path:
    Store.open(folder).close()
    with closing(sqlite3.connect(folder / "kt.sqlite3")) as connection:
        connection.execute("PRAGMA user_version = 99")
    return folder


def _file(folder: Path) -> Path:
    folder.write_text("text")
    return folder


def _below_a_file(folder: Path) -> Path:
    return _file(folder) / "cache"


def _foreign(folder: Path) -> Path:
    folder.mkdir()
    _file(folder / "kt.sqlite3")
    return folder


@pytest.mark.parametrize("make", [_newer, _file, _below_a_file, _foreign])
@pytest.mark.parametrize("compiled", [(), ("--compile",)])
def test_a_cache_that_a_run_cannot_use(
    kt: Command, shapes: Path, small_family: tuple[str, ...], tmp_path: Path,
    make: Callable[[Path], Path], compiled: tuple[str, ...],
) -> None:  # fmt: skip
    """The plan is printed all the same, without the cache."""
    options = ("--shapes", shapes, *TARGET, *small_family, "--cache-dir", make(tmp_path / "cache"))
    plan, run = kt("plan", "gemm", *options, *compiled), kt("tune", "gemm", *options)
    assert (plan.code, _error(plan)) == (run.code, _error(run))
    assert plan.code == 1
    assert "fp32 nn 100x64x64" in plan.out


def test_many_shapes_without_a_configuration_are_told_by_their_cause(kt: Command, tmp_path: Path) -> None:
    """As a run tells them, in a line: not one for each of ten thousand."""
    (tmp_path / "many.yaml").write_text(f"shapes: [{{m: {list(range(1, 101))}, n: 64, k: 64}}]\n")
    (tmp_path / "space.yaml").write_text("family: wgmma\n")  # nothing for fp32
    given = ("--shapes", tmp_path / "many.yaml", "--space", tmp_path / "space.yaml", "--device", "model:h200")
    plan, run = kt("plan", "gemm", *given), kt("tune", "gemm", *given)
    first = ", ".join(f"fp32 nn {m}x64x64" for m in range(1, 9))
    for outcome in (plan, run):
        assert outcome.code == 3
        assert "kt: error: 100 of 100 shapes have no valid configuration\n" in outcome.err
        assert outcome.err.splitlines()[-1].startswith(f"  {first} and 92 more: no kernel family serves fp32")
    assert "0 kernels to compile" not in plan.out


def test_a_cache_that_another_process_holds(
    kt: Command, shapes: Path, small_family: tuple[str, ...], own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a run would wait, then exit 1."""
    monkeypatch.setattr("kt.cache.waiting.BUSY_S", 0.1)
    Store.open(own_environment).close()
    with closing(sqlite3.connect(own_environment / "kt.sqlite3", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = delete")
        other.execute("BEGIN EXCLUSIVE")
        outcome = kt("plan", "gemm", "--shapes", shapes, *TARGET, *small_family)
    assert outcome.code == 1
    assert "is held by" in outcome.err


def test_a_damaged_cache_is_no_reason_to_end(
    kt: Command, shapes: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """A run sets it aside; a plan leaves it alone, and says that it did without."""
    (own_environment / "kt.sqlite3").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    options = ("--shapes", shapes, *TARGET, *small_family)
    plan = kt("plan", "gemm", *options)
    assert plan.code == 0
    assert "warning: planned without the cache" in plan.err
    assert kt("tune", "gemm", *options).code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{{ tile }}", "{% if %}"),
        ("{{ tile }}", "{{ tiel }}"),
        ("{{ tile }}", "{{ 1 // 0 }}"),
    ],
    ids=["syntax", "name", "value"],
)
def test_a_template_that_cannot_be_rendered(
    kt: Command, shapes: Path, small_family: tuple[str, ...], old: str, new: str
) -> None:
    """Exit 2 with file and line, without --compile too."""
    template = Path(small_family[3]) / "gemm" / "small.cu.j2"
    assert old in template.read_text()
    template.write_text(template.read_text().replace(old, new, 1))
    options = ("--shapes", shapes, *TARGET, *small_family)
    plans = kt("plan", "gemm", *options), kt("plan", "gemm", *options, "--compile")
    run = kt("tune", "gemm", *options)
    assert run.code == 2
    assert f"{template}:" in run.err
    for plan in plans:
        assert (plan.code, _error(plan)) == (2, _error(run))
