"""Merging caches: what several machines or people have tuned, in one file, by one rule and without loss in silence."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kt.cache.contest import Conflict, Contest
from kt.cache.key import canonical, key_digest
from kt.cache.location import database_path
from kt.cache.ranking import listing_order
from kt.cache.records import BestConfig, CacheKey
from kt.cache.rows import (
    CacheWarning,
    Stored,
    decode_key_row,
    decode_measurement_row,
)
from kt.cache.schema import MEASUREMENT_COLUMNS
from kt.cache.store import PUT_MEASUREMENT, Store
from kt.cache.waiting import Tell, silent
from kt.errors import CacheError, InputError
from kt.wording import plural, verb

__all__ = ["Conflict", "MergeReport", "Source", "foresee", "merge", "of_winners", "read_sources"]


@dataclass
class MergeReport:
    """What a merge did.

    Attributes:
        winners: winners that are new in the cache.
        same: winners that both sides had alike.
        conflicts: winners that both sides had unlike each other, in listing order.
        measurements: measurements that are new, or replace one of lower standing.
        warnings: what could not be read on the other side and was left out.
    """

    winners: int = 0
    same: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    measurements: int = 0
    warnings: list[CacheWarning] = field(default_factory=list)


_Rows = list[tuple[Any, ...]]  # configuration, source, then the values of MEASUREMENT_COLUMNS
_COLUMNS = f"config, source, {', '.join(MEASUREMENT_COLUMNS)}"


@dataclass(frozen=True)
class Source:
    """What another cache has that can be read, and warnings of the rest."""

    winners: list[Stored]
    measurements: list[tuple[CacheKey, _Rows]]
    warnings: list[CacheWarning]


def read_sources(paths: Sequence[Path], into: Path, tell: Tell = silent) -> list[Source]:
    """Reads other caches (folders or files) for `merge`.

    Args:
        into: the file of the cache that they are for; it is not opened.

    Raises:
        InputError: a path holds no cache, one that cannot be read, or the very one that they are for.
    """
    for path in paths:
        _check_path(into, path)
    return [_read(path, tell) for path in paths]


def merge(into: Store, sources: Sequence[Source]) -> MergeReport:
    """Brings what was read of other caches into `into`, all of it or nothing.

    Of two winners for one key with the same sources and completeness, the one that `kt.cache.ranking` puts first is
    kept; so the result does not depend on the order of merging.

    Raises:
        CacheError: `into` cannot be written.
    """
    return into.write(lambda: _merge_all(into, sources))


def foresee(into: Store, winners: Sequence[Source]) -> MergeReport:
    """What `merge` would do with the winners of `winners`; nothing is changed, and `into` may be for reading only."""
    return _reported(into.look(lambda: _entered(into, winners)), MergeReport(), winners)


def of_winners(winners: Sequence[BestConfig], warnings: Sequence[CacheWarning] = ()) -> Source:
    """Winners that came in another way than as a cache, for `merge`; they count as stored now."""
    now = int(time.time())
    return Source([Stored(0, key_digest(best.key), best, now) for best in winners], [], list(warnings))


def _check_path(into: Path, path: Path) -> None:
    file = database_path(path)
    if not os.path.isfile(file):
        raise InputError(f"{path}: no cache here ({file} does not exist)")
    if os.path.exists(into) and os.path.samefile(file, into):
        raise InputError(f"{path}: is the cache that is merged into")


def _read(path: Path, tell: Tell) -> Source:
    try:
        with Store.open(path, read_only=True, tell=tell) as other:
            return Source(other.stored(), _readable_measurements(other), other.warnings)
    except CacheError as error:  # its hint is for the cache of a run
        hint = "leave that cache out, or name one that this kt can read"
        raise InputError(f"{error.message}; nothing was merged", hint=hint) from error


def _readable_measurements(store: Store) -> list[tuple[CacheKey, _Rows]]:
    found = []
    for key_id, *key_row in store.read("SELECT id, digest, fields FROM keys ORDER BY digest"):
        key = decode_key_row(*key_row)
        if isinstance(key, CacheWarning):
            store.warn(key)
            continue
        rows = store.read(f"SELECT {_COLUMNS} FROM measurements WHERE key_id = ?", (key_id,))
        readable = [row for row in rows if decode_measurement_row(row[2:]) is not None]
        if len(readable) < len(rows):
            lost = len(rows) - len(readable)
            subject = f"{plural(lost, 'measurement')} of {key.problem.label} on {key.device.name}"
            store.warn(CacheWarning(subject, f"{verb(lost, 'was', 'were')} left out: unknown status or time"))
        found.append((key, readable))
    return found


def _merge_all(into: Store, sources: Sequence[Source]) -> MergeReport:
    contest, report = _entered(into, sources), MergeReport()
    contest.settle()
    for source in sources:
        for key, rows in source.measurements:
            report.measurements += _merge_measurements(into, into.key_id(key), rows)
    return _reported(contest, report, sources)


def _entered(into: Store, sources: Sequence[Source]) -> Contest:
    contest = Contest(into)
    for source in sources:
        for winner in source.winners:
            contest.enter(winner)
    return contest


def _reported(contest: Contest, report: MergeReport, sources: Sequence[Source]) -> MergeReport:
    report.winners, report.same = contest.new, contest.same
    report.conflicts = sorted(contest.conflicts, key=lambda conflict: listing_order(conflict.kept))
    report.warnings = [warning for source in sources for warning in source.warnings]
    return report


def _merge_measurements(into: Store, key_id: int, rows: _Rows) -> int:
    query = f"SELECT {_COLUMNS} FROM measurements WHERE key_id = ?"
    present = {row[:2]: row[2:] for row in into.connection.execute(query, (key_id,))}
    taken = [row for row in rows if _outranks(row[2:], present.get(row[:2]))]
    into.connection.executemany(PUT_MEASUREMENT, [(key_id, *row) for row in taken])
    return len(taken)


def _outranks(new: tuple[Any, ...], old: tuple[Any, ...] | None) -> bool:
    return old is None or _measurement_standing(new) < _measurement_standing(old)


def _measurement_standing(values: tuple[Any, ...]) -> tuple[object, ...]:
    """A wrong result on any machine counts everywhere; then refined times, screened ones, other failures."""
    measurement = decode_measurement_row(values)
    if measurement is None:
        return (4,)
    if measurement.status == "wrong_result":
        order = 0
    elif measurement.status == "ok":
        order = 1 if measurement.refined else 2
    else:
        order = 3
    return (order, measurement.time_us or 0.0, measurement.screened_us is None, canonical(values))
