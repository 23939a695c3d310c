"""`OpenFile`: the cache file, open; what is put reaches the file that lies under the name, whatever becomes of it."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kt.cache.connection import is_damage, retried, transaction, translated
from kt.cache.damage import set_aside_if_damaged
from kt.cache.location import database_path
from kt.cache.opening import open_for_reading, open_for_writing
from kt.cache.placement import Placement
from kt.cache.rows import CacheWarning
from kt.cache.waiting import Tell, silent
from kt.errors import CacheError

__all__ = ["OpenFile"]

T = TypeVar("T")


class OpenFile:
    """An open cache file. A file that is removed or replaced takes writes without an error, and nobody finds them.

    Attributes:
        file: the SQLite file.
        read_only: nothing is changed on disk, and putting is an error.
        tell: called with a line for people where other processes have to be waited for.
        warnings: what was passed over or set aside so far, for people to be told.
        failure: why something that was put could not be stored, None if all was.
        connection: for the modules of this package.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, read_only: bool, tell: Tell = silent) -> None:
        self.connection = connection
        self.file = file
        self.read_only = read_only
        self.tell = tell
        self.warnings: list[CacheWarning] = []
        self.failure: CacheError | None = None
        self._placement = Placement.of(file)
        self._puts: list[Callable[[], None]] = []  # of this run, to be put again if the file gets lost
        self._changed = False
        self._mending = False

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, tell: Tell = silent) -> Self:
        """Opens the cache of a folder (or the file itself).

        For writing, the folder and file are made, older schemas upgraded, a damaged file is set aside with a warning,
        and a first small write is made, so that a cache that cannot save is found before any work is done. For
        reading, a cache that does not exist is empty.

        Raises:
            CacheError: it is not writable, foreign, newer than this kt, or (reading) damaged.
        """
        file = database_path(path)
        if read_only:
            return cls(open_for_reading(file, tell), file, True, tell)
        connection, aside = open_for_writing(file, tell)
        store = cls(connection, file, False, tell)
        if aside is not None:
            store.warn(CacheWarning(f"the cache {file}", _set_aside(aside)))
        return store

    def settle(self) -> None:
        """Makes sure that what was put lies in the file under its name, also if that was removed or replaced.

        Raises:
            CacheError: it does not, and cannot be stored again.
        """
        if self._changed and self._placement.lost:
            if not self._puts:
                raise self._lost()
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
                self._placement.remove_orphans(self.tell)
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

    def read(self, query: str, values: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.look(lambda: self.connection.execute(query, values).fetchall())

    def look(self, action: Callable[[], T]) -> T:
        """What `action`, which only reads, returns; it runs again if another process was in the way."""
        with translated(self.file):
            return self._mended(action)

    def write(self, action: Callable[[], T]) -> T:
        """Runs `action` in a transaction of its own, again if another process was in the way."""
        if self.read_only:
            raise CacheError(f"the cache {self.file} was opened for reading only")
        if self._placement.lost:
            raise self._lost()

        def attempt() -> T:
            with transaction(self.connection):
                return action()

        with translated(self.file):
            result = self._mended(attempt)
        self._changed = True
        return result

    def put(self, action: Callable[[], None]) -> None:
        """As `write`, and again into another file if this one is removed or replaced later, so that it can be found."""
        self._puts.append(action)
        try:
            self.write(action)
        except CacheError as error:
            if self.read_only or not self._placement.lost:
                self.failure = self.failure or error
                raise
            self._renew()

    def _lost(self) -> CacheError:
        return CacheError(f"the cache {self.file} was removed or replaced while it was in use", hint="try again")

    def _renew(self) -> None:
        """Opens the file that lies under the name now, or a new one, and puts there again what this run has put."""
        try:
            with contextlib.suppress(sqlite3.Error):  # the old file, if it has only another name now, is left whole
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._placement.remove_orphans(self.tell)
            old, (self.connection, aside) = self.connection, open_for_writing(self.file, self.tell)
            old.close()
            self._put_again()
        except CacheError as error:
            self.failure = self.failure or error
            raise
        again = "was removed or replaced during the run; what this run had saved was saved again"
        self.warn(CacheWarning(f"the cache {self.file}", again if aside is None else f"{again}; {_set_aside(aside)}"))

    def _put_again(self) -> None:
        self._placement = Placement.of(self.file)
        self.write(lambda: [put() for put in self._puts])

    def _mended(self, action: Callable[[], T]) -> T:
        """What `action` returns; if the file turns out to be damaged and may be changed, with a new one in its place.

        Opening a file for writing looks at its tables only: to check all of a large one would take seconds each time.
        """
        try:
            return retried(action, self.file, self.tell)
        except sqlite3.Error as error:
            if self.read_only or self._mending or not is_damage(error):
                raise
            self._mending = True
            try:
                if not self._begin_anew():
                    raise
                return retried(action, self.file, self.tell)
            finally:
                self._mending = False

    def _begin_anew(self) -> bool:
        """Sets the file aside and puts into a new one what this run has put; False if nothing is wrong with it."""
        self.connection.close()  # first: a connection that is closed later would remove the new file's journals
        lost = self._placement.lost  # another process may have been faster
        aside = None if lost else set_aside_if_damaged(self.file, self.tell)
        self.connection, found = open_for_writing(self.file, self.tell)
        if not (lost or aside or found):
            return False
        self._put_again()
        if name := aside or found:
            self.warn(CacheWarning(f"the cache {self.file}", _set_aside(name)))
        return True


def _set_aside(aside: Path) -> str:
    return f"was damaged; set aside as {aside}, and a new one begun"
