"""`Store`: the open cache file. Every measurement is committed when it is put."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kt.cache.connection import retried, transaction, translated
from kt.cache.encoding import encode_key
from kt.cache.key import canonical, key_digest, problem_digest
from kt.cache.location import database_path
from kt.cache.opening import open_for_reading, open_for_writing
from kt.cache.placement import Placement
from kt.cache.ranking import choose
from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.rows import (
    BEST_QUERY,
    CacheWarning,
    Stored,
    best_record,
    decode_best_row,
    decode_measurement_row,
    entry_warning,
    measurement_values,
)
from kt.cache.schema import MEASUREMENT_COLUMNS
from kt.cache.validity import serves, unfit
from kt.errors import CacheError
from kt.search_spaces.space import Config, SearchSpace

__all__ = ["PUT_BEST", "PUT_MEASUREMENT", "Store"]

T = TypeVar("T")

_COLUMNS = ", ".join(MEASUREMENT_COLUMNS)
PUT_MEASUREMENT = (
    f"INSERT OR REPLACE INTO measurements (key_id, config, source, {_COLUMNS}) "
    f"VALUES (?, ?, ?{', ?' * len(MEASUREMENT_COLUMNS)})"
)
PUT_BEST = "INSERT OR REPLACE INTO best (key_id, sources, complete, record, made_at) VALUES (?, ?, ?, ?, ?)"


class Store:
    """One cache, open. Use it in a `with` statement, in one thread.

    Attributes:
        file: the SQLite file.
        read_only: nothing is changed on disk, and putting is an error.
        warnings: what was passed over or set aside so far, for people to be told.
        failure: why something that was put could not be stored, None if all was.
        connection: for the modules of this package.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, read_only: bool) -> None:
        self.connection = connection
        self.file = file
        self.read_only = read_only
        self.warnings: list[CacheWarning] = []
        self.failure: CacheError | None = None
        self._unfit: Callable[[BestConfig], str] = lambda best: ""
        self._placement = Placement.of(file)
        self._puts: list[Callable[[], None]] = []  # of this run, to be put again if the file gets lost

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Opens the cache of a folder (or the file itself).

        For writing, the folder and file are made, older schemas upgraded, a damaged file is set aside with a warning,
        and a first small write is made, so that a cache that cannot save is found before any work is done. For
        reading, a cache that does not exist is empty.

        Raises:
            CacheError: it is not writable, foreign, newer than this kt, or (reading) damaged.
        """
        file = database_path(path)
        if read_only:
            return cls(open_for_reading(file), file, True)
        connection, aside = open_for_writing(file)
        store = cls(connection, file, False)
        if aside is not None:
            store.warn(CacheWarning(f"the cache {file}", _set_aside(aside)))
        return store

    def settle(self) -> None:
        """Makes sure that what was put lies in the file under its name, also if that was removed or replaced.

        Raises:
            CacheError: it does not, and cannot be stored again.
        """
        if self._puts and self._placement.lost:
            self._renew()

    def close(self) -> None:
        """Closes the file, settled.

        Raises:
            CacheError: as for `settle`, unless a failure to store was raised before.
        """
        try:
            if self.failure is None:
                self.settle()
        finally:
            if self._placement.lost:
                self._placement.remove_orphans()
            self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(*[CacheError] if error else []):  # the error that is on its way comes first
            self.close()

    def warn(self, warning: CacheWarning) -> None:
        """Remembers a warning once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    # Measurements

    def put_measurement(self, key: CacheKey, config: Config, source_digest: str, measurement: Measurement) -> None:
        """Stores what became of one candidate; the newest for the same key, configuration and source stays.

        Raises:
            CacheError: it could not be stored; all that was stored before is intact.
        """
        self.put_measurements(key, [(config, source_digest, measurement)])

    def put_measurements(self, key: CacheKey, results: Iterable[tuple[Config, str, Measurement]]) -> None:
        """Stores several at once, all or none."""
        now = int(time.time())
        values = [(config.identity, source, *measurement_values(result, now)) for config, source, result in results]

        def insert() -> None:
            key_id = self.key_id(key)
            self.connection.executemany(PUT_MEASUREMENT, [(key_id, *row) for row in values])

        self._put(insert)

    def measurements(self, key: CacheKey) -> dict[tuple[str, str], Measurement]:
        """What is known of a key's candidates, by (configuration's identity, digest of the rendered source)."""
        query = (
            f"SELECT config, source, {_COLUMNS} FROM measurements "
            "JOIN keys ON keys.id = measurements.key_id WHERE keys.digest = ?"
        )
        rows = self.read(query, (key_digest(key),))
        decoded = {(config, source): decode_measurement_row(values) for config, source, *values in rows}
        found = {name: measurement for name, measurement in decoded.items() if measurement is not None}
        if len(found) < len(decoded):
            subject = f"{len(decoded) - len(found)} measurements of {key.problem.label} on {key.device.name}"
            self.warn(CacheWarning(subject, "cannot be used: unknown status or time; they are made again"))
        return found

    # Winners

    def expect(self, spaces: Mapping[str, SearchSpace], sources: Mapping[str, str]) -> None:
        """From now on, winners of these very `sources` that are not of the `spaces` count as unreadable."""
        self._unfit = lambda best: unfit(best, spaces, sources)

    def put_best(self, best: BestConfig) -> None:
        """Stores a winner; it replaces an earlier one of the same key and sources.

        A complete one also replaces a partial one. A partial one stands beside a complete one, and is not served.
        """
        record, sources, now = best_record(best), canonical(best.sources), int(time.time())

        def insert() -> None:
            key_id = self.key_id(best.key)
            if best.complete:
                self.connection.execute("DELETE FROM best WHERE key_id = ? AND sources = ?", (key_id, sources))
            self.connection.execute(PUT_BEST, (key_id, sources, best.complete, record, now))

        self._put(insert)

    def best(self, key: CacheKey, sources: Mapping[str, str], *, partial: bool = False) -> BestConfig | None:
        """The winner of the key among the families of `sources` (family to digest) as they are today.

        Args:
            partial: accept the winner of a search that did not end by itself, if there is no other.
        """
        rows = self.stored("WHERE keys.digest = ?", (key_digest(key),))
        found = choose(
            row.best
            for row in rows
            if (row.best.complete or partial) and serves(row.best.sources, row.best.config.family, sources)
        )
        return found and replace(found, key=key)

    def stored(self, where: str = "", values: tuple[str, ...] = ()) -> list[Stored]:
        """Every stored winner that can be read, in the order of storing; the others become warnings."""
        found = []
        for row in self.read(f"{BEST_QUERY} {where} ORDER BY best.id", values):
            decoded = decode_best_row(row)
            if isinstance(decoded, CacheWarning):
                self.warn(decoded)
            elif reason := self._unfit(decoded.best):
                self.warn(entry_warning(decoded.id, decoded.best.key, reason))
            else:
                found.append(decoded)
        return found

    def remove(self, ids: Iterable[int]) -> int:
        """Removes stored winners by their row; the number that were there."""
        rows = [(row_id,) for row_id in ids]
        return self.write(lambda: self.connection.executemany("DELETE FROM best WHERE id = ?", rows).rowcount)

    # For the modules of this package

    def key_id(self, key: CacheKey) -> int:
        """The row of a key, made if it is new; within `write` only."""
        digest = key_digest(key)
        self.connection.execute(
            "INSERT OR IGNORE INTO keys (digest, problem_digest, fields) VALUES (?, ?, ?)",
            (digest, problem_digest(key.problem), canonical(encode_key(key))),
        )
        return int(self.connection.execute("SELECT id FROM keys WHERE digest = ?", (digest,)).fetchone()[0])

    def read(self, query: str, values: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with translated(self.file):
            return retried(lambda: self.connection.execute(query, values).fetchall())

    def write(self, action: Callable[[], T]) -> T:
        """Runs `action` in a transaction of its own, again if another process was in the way."""
        if self.read_only:
            raise CacheError(f"the cache {self.file} was opened for reading only")
        if self._placement.lost:
            raise CacheError(f"the cache {self.file} was removed or replaced while it was in use", hint="try again")

        def attempt() -> T:
            with transaction(self.connection):
                return action()

        with translated(self.file):
            return retried(attempt)

    # A file that is removed or replaced while it is open takes writes without an error, and nobody finds them

    def _put(self, action: Callable[[], None]) -> None:
        """Writes what stays even if the file does not: into the file that lies under its name then."""
        self._puts.append(action)
        try:
            self.write(action)
        except CacheError as error:
            if self.read_only or not self._placement.lost:
                self.failure = self.failure or error
                raise
            self._renew()

    def _renew(self) -> None:
        """Opens the file that lies under the name now, or a new one, and puts there again what this run has put."""
        try:
            with contextlib.suppress(sqlite3.Error):  # the old file, if it has only another name now, is left whole
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._placement.remove_orphans()
            old, (self.connection, aside) = self.connection, open_for_writing(self.file)
            old.close()
            self._placement = Placement.of(self.file)
            self.write(lambda: [put() for put in self._puts])
        except CacheError as error:
            self.failure = self.failure or error
            raise
        again = "was removed or replaced during the run; what this run had saved was saved again"
        self.warn(CacheWarning(f"the cache {self.file}", again if aside is None else f"{again}; {_set_aside(aside)}"))


def _set_aside(aside: Path) -> str:
    return f"was damaged; set aside as {aside}, and a new one begun"
