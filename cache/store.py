"""`Store`: the open cache file. Every measurement is committed when it is put."""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from kt.cache.encoding import encode_key
from kt.cache.key import canonical, key_digest, problem_digest
from kt.cache.open_file import OpenFile
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
from kt.cache.schema import MEASUREMENT_COLUMNS, IncompleteFile
from kt.cache.validity import serves, unfit
from kt.cache.waiting import Tell, silent
from kt.search_spaces.space import Config, SearchSpace
from kt.wording import plural, verb

__all__ = ["PUT_BEST", "PUT_MEASUREMENT", "Store"]

_COLUMNS = ", ".join(MEASUREMENT_COLUMNS)
PUT_MEASUREMENT = (
    f"INSERT OR REPLACE INTO measurements (key_id, config, source, {_COLUMNS}) "
    f"VALUES (?, ?, ?{', ?' * len(MEASUREMENT_COLUMNS)})"
)
PUT_BEST = "INSERT OR REPLACE INTO best (key_id, sources, complete, record, made_at) VALUES (?, ?, ?, ?, ?)"


class Store(OpenFile):
    """One cache, open: its measurements and winners. Use it in a `with` statement, in one thread."""

    def __init__(self, connection: sqlite3.Connection, file: Path, read_only: bool, tell: Tell = silent) -> None:
        super().__init__(connection, file, read_only, tell)
        self._unfit: Callable[[BestConfig], str] = lambda best: ""

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

        self.put(insert)

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
            lost = len(decoded) - len(found)
            subject = f"{plural(lost, 'measurement')} of {key.problem.label} on {key.device.name}"
            made = verb(lost, "it is", "they are")
            self.warn(CacheWarning(subject, f"cannot be used: unknown status or time; {made} made again"))
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

        self.put(insert)

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

    def unfinished(self, key: CacheKey, sources: Mapping[str, str]) -> BestConfig | None:
        """What a search among exactly these sources has found that did not end by itself."""
        rows = self.stored("WHERE keys.digest = ? AND best.sources = ?", (key_digest(key), canonical(sources)))
        found = choose(row.best for row in rows if not row.best.complete)
        return found and replace(found, key=key)

    def stored(self, where: str = "", values: tuple[str, ...] = ()) -> list[Stored]:
        """Every stored winner that can be read, in the order of storing; the others become warnings."""
        judged = self._judged(where, values).values()
        for warning in judged:
            if isinstance(warning, CacheWarning):
                self.warn(warning)
        return [row for row in judged if isinstance(row, Stored)]

    def has_winners(self) -> bool:
        """Whether any is stored, be it readable or not."""
        return bool(self.read("SELECT 1 FROM best LIMIT 1"))

    def unreadable(self) -> dict[int, CacheWarning]:
        """What `stored` passes over, by its row: what cannot be read, and what is not of the expected spaces."""
        return {row_id: warning for row_id, warning in self._judged().items() if isinstance(warning, CacheWarning)}

    def remove(self, ids: Iterable[int]) -> int:
        """Removes stored winners by their row; the number that were there."""
        rows = [(row_id,) for row_id in ids]
        return self.write(lambda: self.connection.executemany("DELETE FROM best WHERE id = ?", rows).rowcount)

    def _judged(self, where: str = "", values: tuple[str, ...] = ()) -> dict[int, Stored | CacheWarning]:
        found: dict[int, Stored | CacheWarning] = {}
        for row in self.read(f"{BEST_QUERY} {where} ORDER BY best.id", values):
            found[row[0]] = decoded = decode_best_row(row)
            if isinstance(decoded, Stored) and (reason := self._unfit(decoded.best)):
                found[row[0]] = entry_warning(decoded.id, decoded.best.key, reason)
        return found

    # For the modules of this package

    def key_id(self, key: CacheKey) -> int:
        """The row of a key, made if it is new; within `write` only."""
        digest = key_digest(key)
        self.connection.execute(
            "INSERT OR IGNORE INTO keys (digest, problem_digest, fields) VALUES (?, ?, ?)",
            (digest, problem_digest(key.problem), canonical(encode_key(key))),
        )
        row = self.connection.execute("SELECT id FROM keys WHERE digest = ?", (digest,)).fetchone()
        if row is None or row[0] is None:
            raise IncompleteFile("the index of keys leads to no row")
        return int(row[0])
