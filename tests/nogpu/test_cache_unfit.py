"""Entries that can be decoded and still are no winners: each is named and passed over, and tuned again."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.fixture
def cache(kt: Command, tmp_path: Path, small_family: tuple[str, ...], own_environment: Path) -> Path:
    """The shapes file of a cache with two winners that the model has ranked."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("dtype: fp32\nshapes:\n  - {m: 64, n: 64, k: 64}\n  - {m: 128, n: 64, k: 64}\n")
    assert kt("tune", "gemm", "--device", "model:h200", "--shapes", shapes, *small_family).code == 0
    return shapes


def spoil(folder: Path, expression: str) -> None:
    """Changes the record of the first winner by an SQL expression."""
    with closing(sqlite3.connect(folder / "kt.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE best SET record = {expression} WHERE id = 1")


SPOILT = [
    ("json_remove(record, '$.config.parameters.tile')", "parameter tile is missing"),
    ("json_insert(record, '$.config.parameters.more', 1)", "family small has no parameter more"),
    ("json_insert(record, '$.config.runtime.more', 1)", "family small has no run-time parameter more"),
    ("json_set(record, '$.config.parameters.tile', 7)", "parameter tile is 7, which family small does not offer"),
    ("json_set(record, '$.ties', json_array(json_remove(json_extract(record, '$.config'), '$.parameters.unroll')))",
     "parameter unroll is missing"),
    ("json_set(record, '$.launches', json_array())", "launches: is empty"),
    ("json_set(record, '$.measurement.time_us', 1e-320)", "measurement.time_us: is 1e-320"),
    ("json_set(record, '$.baseline', json_object('cublas', 1e-320))", "baseline.cublas: is 1e-320"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "reason"), SPOILT)
def test_listings_and_exports_name_the_entry_and_leave_it_out(
    expression: str, reason: str, kt: Command, cache: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """A9, G4, B22: no entry is presented that could not be run or has figures of no meaning."""
    spoil(own_environment, expression)
    listed = kt("show-cache", "--json", *small_family)
    assert [entry["problem"]["m"] for entry in listed.json["entries"]] == [128]
    for outcome in (listed, kt("show-cache", *small_family), kt("export", "--json", "--predicted", *small_family)):
        assert outcome.code == 0
        assert "cache entry 1 (fp32 nn 64x64x64 on NVIDIA H200): cannot be used: " in outcome.err
        assert reason in outcome.err
    table = kt("export", "--json", "--predicted", *small_family).json
    assert [row["problem"]["m"] for row in table["rows"]] == [128]
    assert "configurations; entries: 1," in kt("export", "--header", "--predicted", *small_family).out


@pytest.mark.parametrize(("expression", "reason"), SPOILT)
def test_what_is_no_winner_is_tuned_again(
    expression: str, reason: str, kt: Command, cache: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """A9: one bad entry costs the work for it, not the run; afterwards it is replaced and nothing is said any more."""
    spoil(own_environment, expression)
    tune = ("tune", "gemm", "--device", "model:h200", "--shapes", cache, "--json", *small_family)
    again = kt(*tune)
    assert again.code == 0
    assert [shape["outcome"] for shape in again.json["shapes"]] == ["predicted", "cached"]
    assert reason in again.err
    quiet = kt(*tune, "-q")
    assert [shape["outcome"] for shape in quiet.json["shapes"]] == ["cached", "cached"]
    assert quiet.err == ""


@pytest.mark.parametrize(("expression", "reason"), SPOILT)
def test_what_is_no_winner_can_be_removed(
    expression: str, reason: str, kt: Command, cache: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """What listings name is what `--unreadable` removes, with its count; a good winner and other spaces' stay."""
    spoil(own_environment, expression)
    with closing(sqlite3.connect(own_environment / "kt.sqlite3")) as connection, connection:
        connection.execute("UPDATE measurements SET time_us = -1 WHERE key_id = 2")
        (odd,) = connection.execute("SELECT count(*) FROM measurements WHERE key_id = 2").fetchone()
    pruned = kt("cache", "prune", "--unreadable", *small_family)
    assert pruned.code == 0
    assert pruned.out.splitlines()[0] == f"1 winner and {odd} measurements removed"
    assert reason in pruned.out
    listed = kt("show-cache", "--json", *small_family)
    assert [entry["problem"]["m"] for entry in listed.json["entries"]] == [128]
    assert listed.err == ""
    again = kt("cache", "prune", "--unreadable", "--json", *small_family).json
    assert (again["removed"], again["measurements"]) == ([], 0)


def test_stale_winners_are_told_by_the_space_that_is_given(
    kt: Command, cache: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """With the space that they were tuned with winners are stale if it has changed; without it they are another's."""
    assert kt("cache", "prune", "--stale", "--dry-run", "--json", *small_family).json["winners"] == 0
    space = Path(small_family[1])
    space.write_text(space.read_text().replace("unroll: [1, 2]", "unroll: [1]"))
    assert kt("cache", "prune", "--stale", "--dry-run", "--json", *small_family).json["winners"] == 2
    assert kt("cache", "prune", "--stale", "--dry-run", "--json").json["winners"] == 0


def test_an_entry_of_another_space_is_stale_not_wrong(
    kt: Command, cache: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """Only entries that say they are of the present space are judged by it."""
    space = Path(small_family[1])
    space.write_text(space.read_text().replace("unroll: [1, 2]", "unroll: [1]"))
    listed = kt("show-cache", "--json", *small_family)
    assert [entry["state"] for entry in listed.json["entries"]] == ["stale", "stale"]
    assert "cannot be used" not in listed.err


def test_a_time_of_storing_that_is_none_is_named(
    kt: Command, cache: Path, small_family: tuple[str, ...], own_environment: Path
) -> None:
    """B22: pruning by age passes over an entry whose age is unknown."""
    with closing(sqlite3.connect(own_environment / "kt.sqlite3")) as connection, connection:
        connection.execute("UPDATE best SET made_at = 'x' WHERE id = 1")
    outcome = kt("cache", "prune", "--older-than", "0m", "--dry-run")
    assert outcome.code == 0
    assert "made_at: must be a whole number, not 'x'" in kt("show-cache", *small_family).err
