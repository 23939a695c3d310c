"""Opening the cache file, for writing or for reading only, whatever state it is found in."""

import contextlib
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

from kt import __version__
from kt.cache.connection import (
    connect,
    is_damage,
    is_full,
    is_unwritable,
    readable_text,
    retried,
    set_journal_mode,
    transaction,
    translated,
)
from kt.cache.damage import SIDECARS, opening, refuse_other_formats, set_aside_if_damaged
from kt.cache.location import ELSEWHERE
from kt.cache.schema import SCHEMA, check_tables, create, file_kind, upgrade
from kt.cache.waiting import Tell
from kt.errors import CacheError

__all__ = ["open_for_reading", "open_for_writing"]

_MEMORY = Path("/dev/shm")


def open_for_writing(file: Path, tell: Tell) -> tuple[sqlite3.Connection, Path | None]:
    """A connection that has proved it can write, and the name under which a damaged file was set aside."""
    with translated(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        refuse_other_formats(file)
        try:
            with opening(file, tell):
                return retried(lambda: _writable(file), file, tell), None
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
        aside = set_aside_if_damaged(file, tell)
        with opening(file, tell):
            return retried(lambda: _writable(file), file, tell), aside


def _writable(file: Path) -> sqlite3.Connection:
    connection = connect(file, "rwc")
    try:
        _refuse_foreign(connection, file)
        set_journal_mode(connection, file)
        with transaction(connection):
            _refuse_foreign(connection, file)  # again, under the lock: another process may have been faster
            _make_current(connection)
            connection.execute("INSERT OR REPLACE INTO writers VALUES (?, ?)", (__version__, int(time.time())))
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: sqlite3.Connection, file: Path) -> None:
    kind = file_kind(connection)
    if kind.foreign:
        raise CacheError(
            f"{file} is another program's SQLite database. It was left as it is", hint=f"move it away, or {ELSEWHERE}"
        )
    if kind.version > SCHEMA:
        raise CacheError(
            f"the cache {file} has schema {kind.version}; kt {__version__} knows schemas up to {SCHEMA}. "
            "It was left as it is",
            hint=f"use the kt that made it, which is later than this one, or {ELSEWHERE}",
        )


def _make_current(connection: sqlite3.Connection) -> None:
    kind = file_kind(connection)
    if kind.empty:
        create(connection)
    elif kind.version < SCHEMA:
        upgrade(connection, kind.version)
    check_tables(connection)


def open_for_reading(file: Path, tell: Tell) -> sqlite3.Connection:
    """A connection that cannot change the contents; a cache that does not exist yet reads as an empty one."""
    with translated(file):
        refuse_other_formats(file)
        if not file.exists():
            return _in_memory(None)
        with opening(file, tell):
            connection = retried(lambda: _readable(file), file, tell)
        if file_kind(connection).version == SCHEMA:
            return connection
        with contextlib.closing(connection):
            return _in_memory(connection)


def _readable(file: Path) -> sqlite3.Connection:
    try:
        # Not mode "ro": SQLite would leave its journal files behind. A file without write permission opens as well.
        connection = _checked(connect(file, "rw"), file)
        connection.execute("PRAGMA query_only = ON")
        return connection
    except sqlite3.Error as error:
        if not (is_unwritable(error) or is_full(error)):
            raise
    # SQLite needs to write beside a file that has a journal. Where it cannot, a sound file is read as it lies, and
    # one that was left with something in a journal is read from a copy.
    if any(_has_contents(Path(f"{file}{suffix}")) for suffix in SIDECARS):
        return _from_copy(file)
    return _checked(connect(file, "ro", immutable=True), file)


def _has_contents(journal: Path) -> bool:
    """An empty one, such as the attempt to open the file leaves where nothing can be written, says nothing."""
    try:
        return journal.stat().st_size > 0
    except FileNotFoundError:
        return False


def _checked(connection: sqlite3.Connection, file: Path) -> sqlite3.Connection:
    try:
        _refuse_foreign(connection, file)
        if file_kind(connection).version == SCHEMA:
            check_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _from_copy(file: Path) -> sqlite3.Connection:
    """Read from a copy with its journals; in memory if the disk of temporary files is full too."""
    try:
        return _from_copy_in(None, file)
    except (OSError, sqlite3.OperationalError):
        if not _MEMORY.is_dir():
            raise
        return _from_copy_in(_MEMORY, file)


def _from_copy_in(parent: Path | None, file: Path) -> sqlite3.Connection:
    with tempfile.TemporaryDirectory(prefix="kt-cache-", dir=parent) as folder:
        copy = Path(folder) / file.name
        for suffix in ("", "-wal", "-journal"):
            if Path(f"{file}{suffix}").exists():
                shutil.copyfile(f"{file}{suffix}", f"{copy}{suffix}")
        with contextlib.closing(_checked(connect(copy, "rw"), file)) as connection:
            return _in_memory(connection)


def _in_memory(origin: sqlite3.Connection | None) -> sqlite3.Connection:
    """A copy of `origin` (None: nothing) in the current schema, read-only from now on."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.text_factory = readable_text
    if origin is not None:
        origin.backup(connection)
    with transaction(connection):
        _make_current(connection)
    connection.execute("PRAGMA query_only = ON")
    return connection
