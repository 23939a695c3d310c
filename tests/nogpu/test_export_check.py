"""`kt export --check`: for scripts that want to know without changing anything."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.location import database_path
from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources, current_spaces
from kt.problems import Problem
from kt.tuner.method import METHOD_LABEL
from support.commands import Command

Make = Callable[..., BestConfig]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.fixture
def put(make_winner: Make, own_environment: Path) -> Callable[..., None]:
    """Stores a winner of today's sources for m x 512 x 512."""
    sources, space = {"simt": current_sources(None, ())["simt"]}, current_spaces(None)["simt"]

    def store_it(m: int, **changes: Any) -> None:
        today = {"sources": sources, "method": METHOD_LABEL, "config": space.default_config}
        with Store.open(own_environment) as store:
            store.put_best(make_winner(Problem(m, 512, 512), **today | changes))

    return store_it


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text("shapes: [{m: [512, 256], n: 512, k: 512}]\n")
    return path


def test_all_there_is_quiet(kt: Command, put: Callable[..., None], shapes: Path) -> None:
    """Exit 0 and not a word, though there is something that an export would leave out and name."""
    put(512)
    put(256)
    put(256, sources={"simt": "old"})
    outcome = kt("export", "--check", "--shapes", shapes)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_missing_shapes_are_exit_5(kt: Command, put: Callable[..., None], shapes: Path) -> None:
    """They are named; one message, and nothing else with -q."""
    put(512)
    outcome = kt("export", "--check", "--shapes", shapes, "-q")
    assert outcome.code == 5
    assert outcome.err.startswith("kt: error: 1 of 2 shapes has no winner\n  fp32 nn 256x512x512\nhint: kt tune")
    assert outcome.out == ""


def test_the_hint_is_the_command_that_measures_into_this_very_cache(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """With the options that were given here."""
    outcome = kt("export", "--check", "--shapes", shapes, "--cache-dir", tmp_path / "other")
    assert f"hint: kt tune gemm --shapes {shapes} --cache-dir {tmp_path / 'other'} measures" in outcome.err


def test_stale_entries_are_exit_6(kt: Command, put: Callable[..., None], shapes: Path) -> None:
    """With what has changed."""
    put(512)
    put(256, sources={"simt": "old"})
    outcome = kt("export", "--check", "--shapes", shapes)
    assert outcome.code == 6
    assert "1 of 2 shapes has only a stale winner" in outcome.err
    assert "256x512x512: stale (template or space of simt changed)" in outcome.err


def test_missing_outranks_stale(kt: Command, put: Callable[..., None], shapes: Path) -> None:
    """Both want tuning; the first is told."""
    put(256, sources={"simt": "old"})
    outcome = kt("export", "--check", "--shapes", shapes)
    assert outcome.code == 5
    assert "512x512x512" in outcome.err
    assert "256x512x512" not in outcome.err


def test_predicted_and_partial_count_as_an_export_counts_them(
    kt: Command, put: Callable[..., None], shapes: Path
) -> None:
    """Only with --predicted; and not with --complete."""
    put(512, complete=False)
    put(256, predicted=True, method="model/1")
    assert "256x512x512: predicted" in kt("export", "--check", "--shapes", shapes).err
    assert kt("export", "--check", "--shapes", shapes, "--predicted").code == 0
    assert kt("export", "--check", "--shapes", shapes, "--predicted", "--complete").code == 5


def test_a_device_filter_applies(kt: Command, put: Callable[..., None], shapes: Path) -> None:
    """A winner on another GPU is none."""
    put(512)
    put(256)
    assert kt("export", "--check", "--shapes", shapes, "--device", "h200").code == 0
    assert kt("export", "--check", "--shapes", shapes, "--device", "a100").code == 5


def test_an_entry_that_cannot_be_read_is_missing(
    kt: Command, put: Callable[..., None], shapes: Path, own_environment: Path
) -> None:
    """And the warning says why."""
    put(512)
    put(256)
    with sqlite3.connect(database_path(own_environment)) as database:
        database.execute("UPDATE best SET record = '{}' WHERE id = 2")
    database.close()
    outcome = kt("export", "--check", "--shapes", shapes)
    assert outcome.code == 5
    assert "cannot be used" in outcome.err


def test_no_cache_is_missing_everything_and_none_is_made(kt: Command, shapes: Path, own_environment: Path) -> None:
    """A check changes nothing."""
    assert kt("export", "--check", "--shapes", shapes).code == 5
    assert not database_path(own_environment).exists()


@pytest.mark.parametrize("option", ["--json", "--csv", "--header"])
def test_a_file_is_compared_with_what_would_be_written(
    kt: Command, put: Callable[..., None], shapes: Path, tmp_path: Path, option: str
) -> None:
    """Missing and different are exit 6; the file is not touched."""
    put(512)
    put(256)
    target = tmp_path / "out"
    arguments = ("export", option, "-o", target, "-q")
    assert "does not exist" in kt(*arguments, "--check").err
    assert not target.exists()
    assert kt(*arguments).code == 0
    assert kt(*arguments, "--check").code == 0
    assert kt(*arguments, "--check", "--shapes", shapes).code == 0
    put(128)
    os.utime(target, (1, 1))
    outcome = kt(*arguments, "--check")
    assert outcome.code == 6
    assert "is not what the cache says now" in outcome.err
    assert target.stat().st_mtime == 1
    assert kt(*arguments, "--check", "--shapes", shapes).code == 0  # of the shapes of the file, nothing has changed


def test_a_check_wants_to_read_only(kt: Command, put: Callable[..., None], tmp_path: Path) -> None:
    """Neither a write-protected file nor one that few kernels were chosen for takes another word; a pipe is no file."""
    put(512)
    target = tmp_path / "out"
    arguments = ("export", "--header", "--max-kernels", "1", "-o", target)
    assert kt(*arguments, "-q").code == 0
    target.chmod(0o444)
    outcome = kt(*arguments, "--check")
    assert (outcome.code, outcome.err) == (0, "")
    target.unlink()
    os.mkfifo(target)
    for other in (target, "/dev/zero", tmp_path):
        outcome = kt("export", "--header", "-o", other, "--check")
        assert (outcome.code, "is no file" in outcome.err) == (2, True)


@pytest.mark.parametrize(
    "given",
    [
        ("--check",),
        ("--check", "-o", "x"),
        ("--check", "--json"),
        ("--check", "--json", "-o", "-"),
        ("--check", "--json", "--csv", "-o", "x"),
        ("--check", "--json", "-o", "x", "--depfile", "y"),
    ],
)
def test_what_makes_no_check_is_refused(kt: Command, given: tuple[str, ...]) -> None:
    """Exit 2."""
    assert kt("export", *given).code == 2
