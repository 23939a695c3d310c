"""What cannot be read is mentioned by each command that passes it over, and its removal can be tried dry."""

import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, Measurement
from kt.cache.store import Store
from kt.problems import Problem

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.fixture
def spoilt(own_environment: Path, make_winner: Callable[..., BestConfig]) -> Path:
    """Two winners, the first without its configuration, and a measurement of an unknown status."""
    with Store.open(own_environment) as store:
        for m in (1, 2):
            store.put_best(make_winner(Problem(m, 512, 512)))
        key = make_winner(Problem(2, 512, 512)).key
        store.put_measurement(key, make_winner().config, "s", Measurement("timeout"))
        store.connection.execute("UPDATE best SET record = json_remove(record, '$.config') WHERE id = 1")
        store.connection.execute("UPDATE measurements SET status = 'odd'")
    return own_environment


def _damage(folder: Path) -> bytes:
    data = (folder / "kt.sqlite3").read_bytes()
    (folder / "kt.sqlite3").write_bytes(data[:200] + b"\xff" * (len(data) - 200))
    return (folder / "kt.sqlite3").read_bytes()


def _count(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "kt.sqlite3")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.parametrize("dry", [("--dry-run",), ()])
def test_pruning_names_what_it_cannot_judge(kt: Command, spoilt: Path, dry: tuple[str, ...]) -> None:
    """An entry that cannot be read has no device that could match: it stays, and is named."""
    command = ("cache", "prune", "--device", "h200", *dry)
    outcome = kt(*command, "--json")
    assert outcome.json["winners"] == 1
    assert ["cache entry 1 (fp32 nn 1x512x512" in text for text in outcome.json["warnings"]] == [True]
    assert "kt: warning: cache entry 1 (fp32 nn 1x512x512" in outcome.err
    assert kt(*command, "-q").err == ""
    assert _count(spoilt, "best") == (2 if dry else 1)


def test_texts_that_are_not_utf_8_are_named_or_passed_over(
    kt: Command, own_environment: Path, make_winner: Callable[..., BestConfig]
) -> None:
    """As one bad byte of a disk leaves them: of a key, of a winner, of its measurements."""
    best = make_winner(Problem(2, 512, 512))
    with Store.open(own_environment) as store:
        store.put_best(best)
        store.put_best(make_winner(Problem(1, 512, 512)))
        store.put_best(replace(best, complete=False))
        for source in ("figure", "config", "sound"):
            store.put_measurement(best.key, best.config, source, Measurement("ok", 5.0, samples=5))
        spoil = "CAST(replace(CAST({} AS BLOB), CAST('{}' AS BLOB), x'74ff') AS TEXT)"
        store.connection.execute(f"UPDATE best SET record = {spoil.format('record', 'launches')} WHERE id = 1")
        store.connection.execute(f"UPDATE best SET record = {spoil.format('record', 'seed')} WHERE id = 3")
        config = spoil.format("config", "tile_m")
        store.connection.execute(f"UPDATE measurements SET config = {config} WHERE source = 'config'")
        store.connection.execute("UPDATE measurements SET spill_bytes = x'ff' WHERE source = 'figure'")
        store.connection.execute("UPDATE keys SET fields = CAST(x'ff' || CAST(fields AS BLOB) AS TEXT) WHERE id = 2")
    outcome = kt("show-cache")
    assert (outcome.code, outcome.err.count("has a byte that is no text")) == (0, 3)
    for command in (("export", "--csv"), ("cache", "prune", "--stale", "--dry-run")):
        assert "Traceback" not in kt(*command).err
    assert kt("cache", "prune", "--unreadable").code == 0
    assert _count(own_environment, "best") == 0
    assert _count(own_environment, "measurements") == 1


def test_a_key_that_cannot_be_read_is_named_with_its_measurements(kt: Command, spoilt: Path) -> None:
    """Its measurements cannot be judged by their device."""
    with closing(sqlite3.connect(spoilt / "kt.sqlite3")) as connection, connection:
        connection.execute("UPDATE keys SET fields = '{}'")
    outcome = kt("cache", "prune", "--failed", "--device", "h200", "--dry-run")
    assert outcome.code == 0
    assert "kt: warning: cache key " in outcome.err


@pytest.mark.parametrize("readable", [True, False], ids=["device known", "no device known"])
def test_a_shape_whose_entry_cannot_be_read_was_tuned(
    kt: Command, spoilt: Path, tmp_path: Path, readable: bool
) -> None:
    """`never tuned` would be wrong; a shape that nobody tuned still says that."""
    if not readable:
        with closing(sqlite3.connect(spoilt / "kt.sqlite3")) as connection, connection:
            connection.execute("UPDATE best SET record = '{}'")
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes: [{m: [1, 3], n: 512, k: 512}]\n")
    outcome = kt("show-cache", "--shapes", shapes, "--json")
    assert outcome.code == 5
    reasons = {item["problem"]["m"]: item["reason"] for item in outcome.json["missing"]}
    assert reasons == {1: "its entry cannot be read or used", 3: "never tuned"}


def test_a_plan_names_what_it_could_not_use(
    kt: Command, own_environment: Path, tmp_path: Path, small_family: tuple[str, ...]
) -> None:
    """Its shape is planned as one that nobody has tuned."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes: [{m: 16, n: 16, k: 16}]\n")
    options = ("gemm", "--shapes", shapes, "--device", "model:h200", *small_family)
    assert kt("tune", *options, "-q").code == 0
    assert kt("plan", *options, "--json").json["cached"] == 1
    with closing(sqlite3.connect(own_environment / "kt.sqlite3")) as connection, connection:
        connection.execute("UPDATE best SET record = '{}'")
    outcome = kt("plan", *options, "--json")
    assert outcome.json["cached"] == 0
    assert "kt: warning: cache entry 1 (fp32 nn 16x16x16" in outcome.err
    assert "cache entry" not in kt("plan", *options, "-q").err


def test_the_removal_of_what_cannot_be_read_can_be_tried(kt: Command, spoilt: Path) -> None:
    """--dry-run says the same and changes nothing."""
    before = (spoilt / "kt.sqlite3").read_bytes()
    dry = kt("cache", "prune", "--unreadable", "--dry-run", "--json").json
    assert (spoilt / "kt.sqlite3").read_bytes() == before
    assert kt("cache", "prune", "--unreadable", "--dry-run").out.startswith(
        "1 winner and 1 measurement would be removed\n"
    )
    done = kt("cache", "prune", "--unreadable", "--json").json
    assert (dry.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert dry == done
    assert (_count(spoilt, "best"), _count(spoilt, "measurements")) == (1, 0)


def test_setting_aside_can_be_tried(kt: Command, spoilt: Path) -> None:
    """--damaged --dry-run looks through the whole file and leaves it where it is."""
    assert kt("cache", "prune", "--damaged", "--dry-run").out == "the file is sound\n"
    left = _damage(spoilt)
    outcome = kt("cache", "prune", "--damaged", "--dry-run", "--json")
    assert outcome.code == 0
    assert (outcome.json["damaged"], outcome.json["set_aside"]) == (True, None)
    assert [path.name for path in spoilt.iterdir()] == ["kt.sqlite3"]
    assert (spoilt / "kt.sqlite3").read_bytes() == left


@pytest.mark.parametrize("name", ["usual", "other", "with space", "file"])
def test_the_remedy_of_damage_is_for_the_cache_that_is_damaged(
    kt: Command, spoilt: Path, tmp_path: Path, name: str
) -> None:
    """What is typed as the hint says sets that file aside, and no other."""
    folder = spoilt
    given: list[Any] = []
    if name != "usual":
        folder = tmp_path / name
        spoilt.rename(folder)
        given = ["--cache-dir", folder]
    _damage(folder)
    if name == "file":
        (folder / "kt.sqlite3").rename(folder / "mine.sqlite3")
        given = ["--cache-dir", folder / "mine.sqlite3"]
    hint = kt("show-cache", *given).err.splitlines()[-1]
    command = shlex.split(hint.split("`")[1])
    assert command[:4] == ["kt", "cache", "prune", "--damaged"]
    assert ("--cache-dir" in command) == (name != "usual")
    assert kt(*command[1:], "--json").json["set_aside"]
    assert kt("show-cache", *given).code == 0
