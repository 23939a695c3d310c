"""Removing from the cache what is no longer wanted, chosen by conditions that must all hold."""

import contextlib
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from kt.cache.connection import translated
from kt.cache.damage import alone, is_damaged, refuse_other_formats, set_aside_if_damaged
from kt.cache.location import database_path
from kt.cache.opening import open_for_reading
from kt.cache.records import BestConfig
from kt.cache.rows import CacheWarning, Stored, decode_key_row, decode_measurement_row
from kt.cache.schema import MEASUREMENT_COLUMNS
from kt.cache.store import Store
from kt.cache.validity import OtherSpaces, changed_since
from kt.cache.waiting import HANDLER_S, Tell, silent
from kt.errors import InputError

__all__ = ["PruneReport", "PruneRule", "Unreadable", "find_damage", "prune", "prune_damaged", "prune_unreadable"]


@dataclass(frozen=True)
class PruneRule:
    """What to remove: that for which every condition given holds.

    Attributes:
        stale: winners made from other sources than these (family to digest as they are today).
        other_spaces: with `stale`, what is of another space than the one that is asked about stays.
        partial: winners of searches that did not end by themselves, be they measured or predicted, stale or not.
        failed: measurements that ended as a failure, so that they are tried again.
        predicted: what the model ranked and nothing measured.
        older_than: what was stored longer ago.
        device: what is of a device that matches this part of its label.
    """

    stale: Mapping[str, str] | None = None
    partial: bool = False
    failed: bool = False
    predicted: bool = False
    older_than: timedelta | None = None
    device: str = ""
    other_spaces: OtherSpaces = field(default_factory=OtherSpaces)

    @property
    def takes_winners(self) -> bool:
        """No condition is given that only a measurement can meet."""
        return not self.failed

    @property
    def takes_measurements(self) -> bool:
        """No condition is given that only a winner can meet: measurements are known by their rendered source."""
        return self.stale is None and not self.partial

    @property
    def made_before(self) -> int:
        """Seconds since 1970; later ones stay."""
        return int(time.time() - self.older_than.total_seconds()) if self.older_than is not None else 2**62


@dataclass(frozen=True)
class PruneReport:
    """How many winners and measurements were removed (or would be), and by how many bytes the file shrank."""

    winners: int
    measurements: int
    freed_bytes: int = 0


def prune(store: Store, rule: PruneRule, *, dry_run: bool = False) -> PruneReport:
    """Removes what the rule takes, and gives the space back to the file system.

    What cannot be read is never taken: `store.warnings` names it.

    Raises:
        InputError: the rule has no condition; an empty cache is made by deleting the file.
    """
    if rule == PruneRule():
        raise InputError("nothing to prune by", hint="give at least one condition, e.g. --stale or --older-than 90d")
    before = _size(store.file)
    winners = [row.id for row in store.stored() if _takes_winner(rule, row)]
    if dry_run:
        return PruneReport(len(winners), sum(_count(store, rule, key_id) for key_id in _keys(store, rule)))
    removed = store.remove(winners)
    measurements = store.write(lambda: sum(_delete(store, rule, key_id) for key_id in _keys(store, rule)))
    _shrink(store)
    return PruneReport(removed, measurements, max(before - _size(store.file), 0))


@dataclass(frozen=True)
class Unreadable:
    """What no command can use: which winners, and how many measurements."""

    winners: list[CacheWarning]
    measurements: int


def prune_unreadable(store: Store, *, dry_run: bool = False) -> Unreadable:
    """Removes what other commands name and pass over: winners that cannot be read (a field is missing or unknown) or
    are not of the spaces that the store expects, and measurements that cannot be read.
    """
    winners = store.unreadable()
    columns = ", ".join(MEASUREMENT_COLUMNS)
    rows = store.read(
        f"SELECT key_id, CAST(config AS BLOB), CAST(source AS BLOB), digest, fields, {columns} "
        "FROM measurements JOIN keys ON keys.id = key_id"
    )
    readable = {key: not isinstance(decode_key_row(*key), CacheWarning) for key in {row[3:5] for row in rows}}
    bad = [row[:3] for row in rows if not (readable[row[3:5]] and _is_readable(row))]
    if not dry_run:
        store.remove(winners)
        query = "DELETE FROM measurements WHERE key_id = ? AND CAST(config AS BLOB) = ? AND CAST(source AS BLOB) = ?"
        store.write(lambda: store.connection.executemany(query, bad))
        _shrink(store)
    return Unreadable(list(winners.values()), len(bad))


def _is_readable(row: tuple[Any, ...]) -> bool:
    _, config, source, _, _, *values = row
    return config.isascii() and source.isascii() and decode_measurement_row(values) is not None


def find_damage(path: Path, tell: Tell = silent) -> bool:
    """Checks the whole file of a cache, and leaves it as it is.

    Raises:
        CacheError: the file is not a kt cache, or is of a newer kt.
    """
    file = database_path(path)
    if not file.exists():
        return False
    refuse_other_formats(file)
    with translated(file), alone(file, tell):
        damaged = is_damaged(file)
    if not damaged:
        open_for_reading(file, tell).close()
    return damaged


def prune_damaged(path: Path, tell: Tell = silent) -> Path | None:
    """Sets the file of a cache aside if `find_damage` finds some: its new name, None if it is sound.

    Raises:
        CacheError: the file is not a kt cache, or is of a newer kt; it is not touched.
    """
    file = database_path(path)
    if not find_damage(path, tell):
        return None
    with translated(file):
        return set_aside_if_damaged(file, tell)


def _takes_winner(rule: PruneRule, row: Stored) -> bool:
    best = row.best
    return (
        rule.takes_winners
        and (rule.stale is None or _is_stale(rule, rule.stale, best))
        and not (rule.partial and not best.unfinished)
        and not (rule.predicted and not best.measurement.predicted)
        and row.made_at < rule.made_before
        and best.key.device.matches(rule.device)
    )


def _is_stale(rule: PruneRule, sources: Mapping[str, str], best: BestConfig) -> bool:
    return changed_since(best, sources) != "" and not rule.other_spaces.reason(best)


def _keys(store: Store, rule: PruneRule) -> list[int]:
    """Rows of the keys whose measurements the rule may take."""
    if not rule.takes_measurements:
        return []
    rows = store.connection.execute("SELECT id, digest, fields FROM keys").fetchall()
    keys = [(row_id, decode_key_row(digest, fields)) for row_id, digest, fields in rows]
    for _, key in keys:
        if isinstance(key, CacheWarning):
            store.warn(key)
    return [row_id for row_id, key in keys if not isinstance(key, CacheWarning) and key.device.matches(rule.device)]


def _where(rule: PruneRule) -> str:
    conditions = ["key_id = ?", "made_at < ?"]
    conditions += ["status != 'ok'"] if rule.failed else []
    conditions += ["predicted = 1"] if rule.predicted else []
    return " AND ".join(conditions)


def _count(store: Store, rule: PruneRule, key_id: int) -> int:
    query = f"SELECT count(*) FROM measurements WHERE {_where(rule)}"
    return int(store.connection.execute(query, (key_id, rule.made_before)).fetchone()[0])


def _delete(store: Store, rule: PruneRule, key_id: int) -> int:
    query = f"DELETE FROM measurements WHERE {_where(rule)}"
    return store.connection.execute(query, (key_id, rule.made_before)).rowcount


def _shrink(store: Store) -> None:
    """Removes keys that nothing belongs to any more, then rewrites the file without holes where that can be done."""
    store.write(
        lambda: store.connection.execute(
            "DELETE FROM keys WHERE id NOT IN (SELECT key_id FROM best) AND id NOT IN (SELECT key_id FROM measurements)"
        )
    )
    # Not possible on a full disk or beside other processes; then the space is used again by later results.
    store.connection.execute("PRAGMA busy_timeout = 100")
    with contextlib.suppress(sqlite3.OperationalError):
        store.connection.execute("VACUUM")
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.connection.execute(f"PRAGMA busy_timeout = {int(HANDLER_S * 1000)}")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
