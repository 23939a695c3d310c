"""Merging caches: what several machines or people have tuned, in one file, by one rule and without loss in silence."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kt.cache.key import canonical
from kt.cache.location import database_path
from kt.cache.ranking import listing_order, rank
from kt.cache.records import BestConfig, CacheKey
from kt.cache.rows import (
    BEST_QUERY,
    CacheWarning,
    Stored,
    best_record,
    decode_best_row,
    decode_key_row,
    decode_measurement_row,
)
from kt.cache.schema import MEASUREMENT_COLUMNS
from kt.cache.store import PUT_BEST, PUT_MEASUREMENT, Store
from kt.cache.waiting import Tell, silent
from kt.errors import CacheError, InputError

__all__ = ["Conflict", "MergeReport", "Source", "merge", "read_sources"]


@dataclass(frozen=True)
class Conflict:
    """Two unlike winners for one key, made from the same sources: the one that is kept, the one that gives way."""

    kept: BestConfig
    dropped: BestConfig


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
    report = into.write(lambda: _merge_all(into, sources))
    report.conflicts.sort(key=lambda conflict: listing_order(conflict.kept))
    return report


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
            subject = f"{len(rows) - len(readable)} measurements of {key.problem.label} on {key.device.name}"
            store.warn(CacheWarning(subject, "were left out: unknown status or time"))
        found.append((key, readable))
    return found


def _merge_all(into: Store, sources: Sequence[Source]) -> MergeReport:
    report = MergeReport()
    for source in sources:
        for winner in source.winners:
            _merge_winner(into, winner, report)
        for key, rows in source.measurements:
            report.measurements += _merge_measurements(into, into.key_id(key), rows)
        report.warnings += source.warnings
    return report


def _merge_winner(into: Store, new: Stored, report: MergeReport) -> None:
    old = _counterpart(into, new)
    if old is None:
        report.winners += 1
    elif _without_provenance(old.best) == _without_provenance(new.best):
        report.same += 1
    else:
        kept, dropped = sorted((old, new), key=_standing)
        report.conflicts.append(Conflict(kept.best, dropped.best))
    if old is None or _standing(new) < _standing(old):
        key_id, best = into.key_id(new.best.key), new.best
        values = (key_id, canonical(best.sources), best.complete, best_record(best), new.made_at)
        into.connection.execute(PUT_BEST, values)


def _counterpart(into: Store, new: Stored) -> Stored | None:
    """The winner that `into` has for the same key, sources and completeness, if it can be read."""
    query = f"{BEST_QUERY} WHERE keys.digest = ? AND best.sources = ? AND best.complete = ?"
    row = into.connection.execute(query, (new.digest, canonical(new.best.sources), new.best.complete)).fetchone()
    decoded = decode_best_row(row) if row else None
    return decoded if isinstance(decoded, Stored) else None


def _standing(row: Stored) -> tuple[object, ...]:
    return (*rank(row.best), best_record(row.best), -row.made_at)


def _without_provenance(best: BestConfig) -> str:
    return best_record(replace(best, provenance={}))


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
    return (order, measurement.time_us or 0.0, canonical(values))
