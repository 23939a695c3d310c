"""SQLite connections to the cache file: how it is opened, waited for, and how its errors are told to people."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from kt.cache.file_system import is_shared_over_network
from kt.cache.location import ELSEWHERE, prune_command
from kt.cache.schema import IncompleteFile
from kt.cache.waiting import HANDLER_S, Tell, Waiting, holders
from kt.errors import CacheError

__all__ = [
    "connect",
    "is_damage",
    "is_full",
    "is_unwritable",
    "readable_text",
    "retried",
    "set_journal_mode",
    "transaction",
    "translated",
]

T = TypeVar("T")


def connect(file: Path, mode: str, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode. `mode` is SQLite's: "ro", "rw" or "rwc"."""
    uri = f"file:{quote(bytes(file.absolute()))}?mode={mode}{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(uri, uri=True, timeout=HANDLER_S, isolation_level=None)
    connection.text_factory = readable_text
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def readable_text(raw: bytes) -> str:
    """A column's text. Python would end the whole query over one bad byte; so each row can be judged by itself."""
    return raw.decode(errors="replace")


def set_journal_mode(connection: sqlite3.Connection, file: Path) -> None:
    """Write-ahead log where the file system can share memory between processes, else a rollback journal.

    With the log, a commit survives the death of the process and NORMAL keeps the file sound over a power cut; the
    rollback journal needs FULL for the same.
    """
    wanted = "delete" if is_shared_over_network(file.parent) else "wal"
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != wanted:
        (mode,) = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")


def retried(action: Callable[[], T], file: Path, tell: Tell) -> T:
    """What `action` returns, repeated while other processes hold the file, for at most `kt.cache.waiting.BUSY_S`."""
    waiting = Waiting(file, tell)
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or not waiting.goes_on():
                raise


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, also when interrupted; the write lock is taken at the start, so it cannot fail half-way."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_damage(error: BaseException) -> bool:
    """The file's contents are at fault."""
    return isinstance(error, IncompleteFile) or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_unwritable(error: BaseException) -> bool:
    """The file or its folder cannot be opened as asked."""
    return _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def is_full(error: BaseException) -> bool:
    """The disk has no room for the file or its journals, or failed."""
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Failures of the file or its disk become `CacheError`s; faulty SQL stays what it is, a bug."""
    try:
        yield
    except OSError as error:
        raise CacheError(f"the cache {file} cannot be opened: {error.strerror or error}", hint=ELSEWHERE) from error
    except sqlite3.Error as error:
        message = _message(error, file)
        if not message:
            raise
        raise CacheError(message[0], hint=message[1]) from error


def _message(error: sqlite3.Error, file: Path) -> tuple[str, str] | None:
    if is_damage(error):
        return (
            f"the cache {file} is damaged: {error}",
            f"`{prune_command(file, '--damaged')}` sets it aside under another name and begins a new one",
        )
    if is_unwritable(error):
        return f"the cache {file} cannot be opened or written: {error}", f"check its permissions, or {ELSEWHERE}"
    if is_full(error):
        return (
            f"the cache {file} could not be written: {error}; what was stored before is intact",
            f"free some disk space or quota, or {ELSEWHERE}",
        )
    if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return f"the cache {file} is held by {holders(file)}: {error}", f"end that process, or {ELSEWHERE}"
    return None


def _code(error: BaseException) -> int:
    """SQLite's primary result code, 0 where there is none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
