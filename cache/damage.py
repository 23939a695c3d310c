"""What is done about a file in the cache's place that is not a sound cache: refuse it, or set it aside."""

import contextlib
import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kt.cache.connection import connect, is_damage
from kt.cache.location import DATABASE_NAME, ELSEWHERE
from kt.cache.schema import SCHEMA, check_tables, file_kind
from kt.cache.waiting import Tell, Waiting, holders
from kt.errors import CacheError

__all__ = ["SIDECARS", "alone", "is_damaged", "opening", "refuse_other_formats", "set_aside_if_damaged"]

SIDECARS = ("-wal", "-shm", "-journal")
_MAGIC = b"SQLite format 3\0"


def refuse_other_formats(file: Path) -> None:
    """Raises CacheError if the file is something else than an SQLite database; it is not touched.

    An empty file is one that is just being made; one that begins with zeros or is cut short is a damaged database.
    """
    try:
        if stat.S_ISFIFO(os.stat(file).st_mode):  # to open it would wait for a writer, maybe for ever
            raise CacheError(f"{file} is not a kt cache: it is a pipe", hint=f"remove it, or {ELSEWHERE}")
        with file.open("rb") as stream:
            start = stream.read(len(_MAGIC))
    except FileNotFoundError:
        return
    if not (_MAGIC.startswith(start) or start == bytes(len(start))):
        raise CacheError(
            f"{file} is not a kt cache: it is no SQLite database. It was left as it is",
            hint=f"move it away, or {ELSEWHERE}" if file.name == DATABASE_NAME else f"a cache is a folder: {ELSEWHERE}",
        )


def is_damaged(file: Path) -> bool:
    """The whole file is checked, and found wanting. Never true of an empty file or another program's."""
    try:
        with contextlib.closing(connect(file, "rw")) as connection:
            kind = file_kind(connection)
            if kind.empty or kind.foreign or kind.version > SCHEMA:
                return False
            if kind.version == SCHEMA:
                check_tables(connection)
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
    except sqlite3.Error as error:
        return is_damage(error)


def set_aside_if_damaged(file: Path, tell: Tell) -> Path | None:
    """Renames a damaged file (with its journals) to the first free `<name>.damaged-<n>`; None if it is sound.

    Processes that find the damage at the same time take turns, so the new file of the first is left alone.
    """
    with alone(file, tell):
        if not file.exists() or not is_damaged(file):
            return None
        aside = _free_name(file)
        for suffix in (*SIDECARS, ""):  # journals first: a new file must never meet those of the old one
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{file}{suffix}", f"{aside}{suffix}")
        return aside


def _free_name(file: Path) -> Path:
    number = 1
    while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
        number += 1
    return aside


@contextmanager
def opening(file: Path, tell: Tell) -> Iterator[None]:
    """While this lasts, no other process sets the cache aside; any number may be opening it."""
    with _locked(file, fcntl.LOCK_SH, tell):
        yield


@contextmanager
def alone(file: Path, tell: Tell) -> Iterator[None]:
    """While this lasts, no other process opens the cache."""
    with _locked(file, fcntl.LOCK_EX, tell):
        yield


@contextmanager
def _locked(file: Path, kind: int, tell: Tell) -> Iterator[None]:
    """A lock on the folder itself leaves no file behind. Where the file system has none, it is not held."""
    descriptor = -1
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(file.parent, os.O_RDONLY)
            _lock(descriptor, kind, file, tell)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lock(descriptor: int, kind: int, file: Path, tell: Tell) -> None:
    waiting = Waiting(file, tell)
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not waiting.goes_on():
                raise CacheError(
                    f"the cache {file} is held by {holders(file)}", hint=f"end that process, or {ELSEWHERE}"
                ) from None
