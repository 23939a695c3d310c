"""Merging and pruning: by one rule, in any order, with everything that gives way named."""

import itertools
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kt.cache.entries import entries, select
from kt.cache.merge import MergeReport, read_sources
from kt.cache.merge import merge as merge_sources
from kt.cache.prune import PruneReport, PruneRule, Unreadable, prune, prune_unreadable
from kt.cache.records import BestConfig, Measurement
from kt.cache.store import Store
from kt.devices.device import DeviceIdentity
from kt.errors import InputError
from kt.problems import Problem
from kt.search_spaces.space import Config

Make = Callable[..., BestConfig]
H100 = DeviceIdentity("NVIDIA H100 PCIe", (9, 0), 114, 80)
CONFIG = Config("simt", (("tile_m", 64),))


def cache(folder: Path, *winners: BestConfig, **measured: Measurement) -> Path:
    """A cache with these winners, and measurements of `CONFIG` on the first problem by source digest."""
    with Store.open(folder) as store:
        for winner in winners:
            store.put_best(winner)
        for source, measurement in measured.items():
            store.put_measurement(winners[0].key, CONFIG, source, measurement)
    return folder


def merge(into: Store, paths: Sequence[Path]) -> MergeReport:
    """As `kt cache merge` does."""
    return merge_sources(into, read_sources(paths, into.file))


def contents(folder: Path) -> tuple[list[BestConfig], dict[tuple[str, str], Measurement]]:
    with Store.open(folder, read_only=True) as store:
        winners = [entry.best for entry in entries(store)]
        return winners, store.measurements(winners[0].key)


def test_what_only_one_side_has_is_there_afterwards(tmp_path: Path, make_winner: Make) -> None:
    """B9: winners and measurements of both sides, and the other cache is unchanged."""
    first, second = make_winner(Problem(1, 1, 1)), make_winner(Problem(2, 2, 2), device=H100)
    cache(tmp_path / "a", first, s1=Measurement("ok", 1.0))
    cache(tmp_path / "b", second, s2=Measurement("timeout"))
    with Store.open(tmp_path / "a") as store:
        report = merge(store, [tmp_path / "b"])
        assert (report.winners, report.same, report.conflicts, report.measurements) == (1, 0, [], 1)
        assert [entry.best for entry in entries(store)] == [second, first]
        assert store.measurements(second.key) == {(CONFIG.identity, "s2"): Measurement("timeout")}
    assert contents(tmp_path / "b")[0] == [second]


def test_a_shape_that_both_sides_tuned_is_decided_by_the_rule_and_named(tmp_path: Path, make_winner: Make) -> None:
    """B9: the faster of two complete winners is kept, and the report has both."""
    slow, fast = make_winner(time_us=2.0, tile_m=32), make_winner(time_us=1.0)
    cache(tmp_path / "a", slow)
    cache(tmp_path / "b", fast)
    with Store.open(tmp_path / "a") as store:
        (conflict,) = merge(store, [tmp_path / "b"]).conflicts
        assert (conflict.kept, conflict.dropped) == (fast, slow)
        assert [entry.best for entry in entries(store)] == [fast]
        again = merge(store, [tmp_path / "b"])
        assert (again.winners, again.same, again.conflicts, again.measurements) == (0, 1, [], 0)


def test_the_result_does_not_depend_on_the_order(tmp_path: Path, make_winner: Make) -> None:
    """Three caches with one problem in common, merged in all six orders, end alike, provenance included."""
    sides = [
        (make_winner(time_us=1.0, provenance={"host": "z"}), Measurement("ok", 3.0)),
        (make_winner(time_us=1.0, provenance={"host": "a"}), Measurement("ok", 4.0, refined=True)),
        (make_winner(time_us=0.5, complete=False, tried=2), Measurement("crashed")),
    ]
    for index, (winner, measurement) in enumerate(sides):
        cache(tmp_path / str(index), winner, s=measurement)
    results = []
    for number, order in enumerate(itertools.permutations("012")):
        with Store.open(tmp_path / f"merged-{number}") as store:
            merge(store, [tmp_path / name for name in order])
        results.append(contents(tmp_path / f"merged-{number}"))
    assert all(result == results[0] for result in results)
    assert results[0][0] == [sides[1][0], sides[2][0]]
    assert results[0][1] == {(CONFIG.identity, "s"): Measurement("ok", 4.0, refined=True)}


@pytest.mark.parametrize(
    ("kept", "other"),
    [
        (Measurement("wrong_result", detail="row 3"), Measurement("ok", 1.0, refined=True)),
        (Measurement("ok", 2.0, refined=True), Measurement("ok", 1.0)),
        (Measurement("ok", 1.0), Measurement("ok", 2.0)),
        (Measurement("ok", 2.0, refined=True, screened_us=1.9), Measurement("ok", 2.0, refined=True)),
        (Measurement("ok", 1.0), Measurement("timeout")),
    ],
)
def test_of_two_measurements_the_one_of_higher_standing_is_kept(
    kept: Measurement, other: Measurement, tmp_path: Path, make_winner: Make
) -> None:
    """A wrong result anywhere counts everywhere; a refined time before a screened one; a time before a failure."""
    for first, second in ((kept, other), (other, kept)):
        folder = tmp_path / ("kept" if first is kept else "other")
        cache(folder / "a", make_winner(), s=first)
        cache(folder / "b", make_winner(), s=second)
        with Store.open(folder / "a") as store:
            merge(store, [folder / "b"])
        assert contents(folder / "a")[1] == {(CONFIG.identity, "s"): kept}


@pytest.mark.parametrize("known_here", [True, False])
def test_what_one_side_knows_of_the_screening_is_kept(known_here: bool, tmp_path: Path, make_winner: Make) -> None:
    """A cache of an older schema, or a table, has the same winner without it; that is no conflict."""
    old = make_winner(refined=True)
    new = replace(old, measurement=replace(old.measurement, screened_us=0.9 * (old.measurement.time_us or 0.0)))
    sides = (new, old) if known_here else (old, new)
    for name, winner in zip("ab", sides, strict=True):
        cache(tmp_path / name, winner)
    with Store.open(tmp_path / "a") as store:
        report = merge(store, [tmp_path / "b"])
    assert (report.same, report.conflicts) == (1, [])
    assert contents(tmp_path / "a")[0] == [new]


def test_unlike_screenings_are_unlike_winners(tmp_path: Path, make_winner: Make) -> None:
    winners = [make_winner(screened_us=screened_us) for screened_us in (1.0, 2.0)]
    for name, winner in zip("ab", winners, strict=True):
        cache(tmp_path / name, winner)
    with Store.open(tmp_path / "a") as store:
        report = merge(store, [tmp_path / "b"])
    assert (report.same, len(report.conflicts)) == (0, 1)


def test_partial_and_complete_stay_side_by_side_and_the_export_knows(tmp_path: Path, make_winner: Make) -> None:
    """B8: a partial search from another machine does not replace a finished one, nor vanish."""
    complete, partial = make_winner(time_us=2.0), make_winner(time_us=1.0, complete=False)
    cache(tmp_path / "a", complete)
    cache(tmp_path / "b", partial)
    with Store.open(tmp_path / "a") as store:
        merge(store, [tmp_path / "b"])
        listed = entries(store)
        assert [entry.state for entry in listed] == ["valid", "partial"]
        assert [entry.best for entry in select(listed).chosen] == [complete]


def test_an_entry_that_cannot_be_read_is_left_out_and_named(tmp_path: Path, make_winner: Make) -> None:
    """G4: the rest of that cache is merged."""
    folder = cache(tmp_path / "b", make_winner(Problem(1, 1, 1)), make_winner(Problem(2, 2, 2)), s=Measurement("ok", 1))
    with Store.open(folder) as other:
        other.connection.execute("UPDATE best SET record = json_remove(record, '$.config') WHERE id = 1")
        other.connection.execute("UPDATE measurements SET status = 'odd'")
    with Store.open(tmp_path / "a") as store:
        report = merge(store, [folder])
        assert report.winners == 1
        assert report.measurements == 0
        assert [str(warning) for warning in report.warnings] == [
            "cache entry 1 (fp32 nn 1x1x1 on NVIDIA H200): cannot be used: config: missing",
            "1 measurement of fp32 nn 1x1x1 on NVIDIA H200: was left out: unknown status or time",
        ]


def test_a_path_without_a_cache_or_the_cache_itself_is_refused_before_anything_is_merged(
    tmp_path: Path, make_winner: Make
) -> None:
    """A mistyped path is an error, not an empty cache."""
    good = cache(tmp_path / "good", make_winner())
    with Store.open(tmp_path / "a") as store:
        for wrong in (tmp_path / "nowhere", tmp_path / "a", tmp_path / "a" / "kt.sqlite3"):
            with pytest.raises(InputError):
                merge(store, [good, wrong])
        assert entries(store) == []


def _not_a_cache(file: Path) -> None:
    file.write_text("not a cache")


def _damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:200] + b"\xff" * 8000)


def _newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize("spoil", [_not_a_cache, _damaged, _newer])
def test_one_bad_source_and_nothing_is_merged(
    spoil: Callable[[Path], None], kt: Callable[..., Any], tmp_path: Path, make_winner: Make
) -> None:
    """All sources are read before anything is written, and no cache is made. The way out is not that of kt's own."""
    good, bad = cache(tmp_path / "good", make_winner()), cache(tmp_path / "bad", make_winner())
    spoil(bad / "kt.sqlite3")
    left = (bad / "kt.sqlite3").read_bytes()
    outcome = kt("cache", "merge", good, bad, "--cache-dir", tmp_path / "new")
    assert outcome.code == 2
    message, hint = outcome.err.splitlines()
    assert str(bad / "kt.sqlite3") in message
    assert message.endswith("; nothing was merged")
    assert "--cache-dir" not in hint
    assert "prune" not in hint
    assert not (tmp_path / "new").exists()
    assert (bad / "kt.sqlite3").read_bytes() == left


def test_a_merge_that_cannot_be_written_changes_nothing(
    tmp_path: Path, make_winner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All comes in, or nothing."""
    folder = cache(tmp_path / "b", make_winner(Problem(1, 1, 1)), make_winner(Problem(2, 2, 2)), s=Measurement("ok", 1))

    def fail(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kt.cache.merge._merge_measurements", fail)
    with Store.open(tmp_path / "a") as store:
        with pytest.raises(KeyboardInterrupt):
            merge(store, [folder])
        assert entries(store) == []


# Pruning


@pytest.fixture
def store(tmp_path: Path, make_winner: Make) -> Store:
    """A valid, a stale, a partial and a predicted winner, one of another device, and one good and two bad measurements.

    What belongs to the first problem was stored 100 days ago.
    """
    winners = [
        make_winner(Problem(1, 1, 1)),
        make_winner(Problem(2, 2, 2), sources={"simt": "digest-0"}),
        make_winner(Problem(3, 3, 3), complete=False),
        make_winner(Problem(4, 4, 4), predicted=True, method="model/1"),
        make_winner(Problem(5, 5, 5), device=H100),
    ]
    measured = {"s1": Measurement("ok", 1.0), "s2": Measurement("timeout"), "s3": Measurement("wrong_result")}
    store = Store.open(cache(tmp_path / "cache", *winners, **measured))
    store.put_measurement(winners[4].key, CONFIG, "s", Measurement("crashed"))
    store.put_measurement(winners[3].key, CONFIG, "s", Measurement("ok", 1.0, predicted=True))
    store.connection.execute("UPDATE best SET made_at = made_at - 100 * 86400 WHERE id = 1")
    store.connection.execute("UPDATE measurements SET made_at = made_at - 100 * 86400 WHERE key_id = 1")
    return store


NOW = {"simt": "digest-1"}
RULES = [
    (PruneRule(stale=NOW), {2}, 0),
    (PruneRule(partial=True), {3}, 0),
    (PruneRule(predicted=True), {4}, 1),
    (PruneRule(failed=True), set(), 3),
    (PruneRule(device="h100"), {5}, 1),
    (PruneRule(device="h100", failed=True), set(), 1),
    (PruneRule(device="h100", stale=NOW), set(), 0),
    (PruneRule(older_than=timedelta(days=90)), {1}, 3),
    (PruneRule(older_than=timedelta(days=110)), set(), 0),
    (PruneRule(older_than=timedelta(days=90), failed=True), set(), 2),
    (PruneRule(device="NVIDIA"), {1, 2, 3, 4, 5}, 5),
]


@pytest.mark.parametrize(("rule", "winners", "measurements"), RULES)
def test_pruning_takes_what_meets_every_condition_and_nothing_else(
    rule: PruneRule, winners: set[int], measurements: int, store: Store
) -> None:
    """The dry run says the same numbers as the real one, and changes nothing."""
    expected = PruneReport(len(winners), measurements)
    assert prune(store, rule, dry_run=True) == expected
    assert len(entries(store)) == 5
    report = prune(store, rule)
    assert (report.winners, report.measurements) == (expected.winners, expected.measurements)
    assert {entry.best.key.problem.m for entry in entries(store)} == {1, 2, 3, 4, 5} - winners
    assert store.read("SELECT count(*) FROM measurements") == [(5 - measurements,)]


def test_keys_that_nothing_belongs_to_go_too_and_the_file_shrinks(store: Store, make_winner: Make) -> None:
    """A pruned cache does not keep the size of what it once held."""
    results = [(Config("simt", (("i", i),)), "s" * 64, Measurement("crashed")) for i in range(3000)]
    store.put_measurements(make_winner(Problem(9, 9, 9)).key, results)
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    report = prune(store, PruneRule(failed=True))
    assert report.measurements == 3003
    assert report.freed_bytes > 200_000
    assert store.read("SELECT count(*) FROM keys") == [(5,)]


def test_pruning_by_nothing_is_refused(store: Store) -> None:
    """An empty rule would mean all; that must be said."""
    with pytest.raises(InputError, match="nothing to prune by"):
        prune(store, PruneRule())
    assert len(entries(store)) == 5


def test_unreadable_entries_can_be_removed_by_name(store: Store) -> None:
    """G4: what listings warn about can be got rid of, and only that."""
    store.connection.execute("UPDATE best SET record = '{}' WHERE id = 2")
    store.connection.execute("UPDATE measurements SET status = 'odd' WHERE source = 's2'")
    removed = prune_unreadable(store)
    assert [warning.subject for warning in removed.winners] == ["cache entry 2 (fp32 nn 2x2x2 on NVIDIA H200)"]
    assert removed.measurements == 1
    assert len(entries(store)) == 4
    assert store.read("SELECT count(*) FROM measurements") == [(4,)]
    assert prune_unreadable(store) == Unreadable([], 0)


def test_what_belongs_to_an_unreadable_key_goes_with_it(store: Store) -> None:
    """No look-up finds it again: its winner and its three measurements, and the key itself."""
    store.connection.execute("UPDATE keys SET fields = json_set(fields, '$.problem.m', 65) WHERE id = 1")
    removed = prune_unreadable(store)
    assert (len(removed.winners), removed.measurements) == (1, 3)
    assert store.read("SELECT count(*) FROM keys") == [(4,)]


def test_pruning_beside_a_reader_works(store: Store) -> None:
    """The file cannot be rewritten while someone reads it; what was asked for is removed all the same."""
    with Store.open(store.file, read_only=True) as reader:
        reader.connection.execute("BEGIN")
        reader.connection.execute("SELECT count(*) FROM best").fetchone()
        assert prune(store, PruneRule(stale=NOW)).winners == 1
    assert len(entries(store)) == 4
