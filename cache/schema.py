"""The tables of the cache file, its version, and the steps that upgrade older files."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from kt.cache.stored_text import UNREADABLE, parsed

__all__ = [
    "APPLICATION_ID",
    "MEASUREMENT_COLUMNS",
    "SCHEMA",
    "FileKind",
    "IncompleteFile",
    "check_tables",
    "create",
    "file_kind",
    "upgrade",
]

APPLICATION_ID = 0x6B74_6331  # "ktc1": tells a kt cache from any other SQLite file
SCHEMA = 2

# Columns of a measurement after its key, configuration and source, in the order of the fields of `Measurement`.
MEASUREMENT_COLUMNS: dict[str, str] = {
    "status": "TEXT NOT NULL DEFAULT 'ok'",
    "time_us": "REAL",
    "spread": "REAL",
    "samples": "INTEGER NOT NULL DEFAULT 0",
    "refined": "INTEGER NOT NULL DEFAULT 0",
    "noisy": "INTEGER NOT NULL DEFAULT 0",
    "predicted": "INTEGER NOT NULL DEFAULT 0",
    "detail": "TEXT NOT NULL DEFAULT ''",
    "registers": "INTEGER",
    "spill_bytes": "INTEGER",
    "smem_bytes": "INTEGER",
    "screened_us": "REAL",
    "made_at": "INTEGER NOT NULL DEFAULT 0",
}

_TABLES = (
    """CREATE TABLE keys (
        id INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        problem_digest TEXT NOT NULL,
        fields TEXT NOT NULL
    )""",
    "CREATE INDEX keys_by_problem ON keys (problem_digest)",
    f"""CREATE TABLE measurements (
        key_id INTEGER NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
        config TEXT NOT NULL,
        source TEXT NOT NULL,
        {", ".join(f"{name} {kind}" for name, kind in MEASUREMENT_COLUMNS.items())},
        PRIMARY KEY (key_id, config, source)
    ) WITHOUT ROWID""",
    """CREATE TABLE best (
        id INTEGER PRIMARY KEY,
        key_id INTEGER NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
        sources TEXT NOT NULL,
        complete INTEGER NOT NULL,
        record TEXT NOT NULL,
        made_at INTEGER NOT NULL DEFAULT 0,
        UNIQUE (key_id, sources, complete)
    )""",
    "CREATE TABLE writers (version TEXT PRIMARY KEY, opened INTEGER NOT NULL)",
)

_PROBES = (
    "SELECT id, digest, problem_digest, fields FROM keys LIMIT 1",
    f"SELECT key_id, config, source, {', '.join(MEASUREMENT_COLUMNS)} FROM measurements LIMIT 1",
    "SELECT id, key_id, sources, complete, record, made_at FROM best LIMIT 1",
    "SELECT version, opened FROM writers LIMIT 1",
)


@dataclass(frozen=True)
class FileKind:
    """What an open SQLite file is: `empty`, some other program's (`foreign`), or kt's in schema `version`."""

    empty: bool
    foreign: bool
    version: int


class IncompleteFile(sqlite3.DatabaseError):
    """A file that says it is a kt cache of this schema but lacks a table or column, or has a schema that never was."""


def file_kind(connection: sqlite3.Connection) -> FileKind:
    """Reads the file's marks, all as of one moment: another process may be making its tables. Changes nothing."""
    own_transaction = not connection.in_transaction
    if own_transaction:
        connection.execute("BEGIN")
    try:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    finally:
        if own_transaction:
            connection.execute("ROLLBACK")
    if application == APPLICATION_ID and version < 0:
        raise IncompleteFile(f"schema {version} never was")
    empty = objects == 0 and application == 0 and version == 0
    return FileKind(empty, not empty and application != APPLICATION_ID, version)


def check_tables(connection: sqlite3.Connection) -> None:
    """Reads one row of every table, so that a file that cannot serve is found before it is relied on."""
    for probe in _PROBES:
        try:
            connection.execute(probe).fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
                raise IncompleteFile(str(error)) from error
            raise


def create(connection: sqlite3.Connection) -> None:
    """Makes the tables of the current schema; the caller holds the transaction."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Brings a file of schema `version` to the current one, step by step; the caller holds the transaction."""
    for step in range(version, SCHEMA):
        _STEPS[step](connection)
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _add_what_schema_0_lacked(connection: sqlite3.Connection) -> None:
    """Schema 0 knew only status and time of a measurement, and winners without ties, samples and spread."""
    _add_columns(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS writers (version TEXT PRIMARY KEY, opened INTEGER NOT NULL)")
    _complete_winners(connection, _LACKED_BY_0, _LACKED_BY_0_OF_MEASUREMENTS)


def _add_what_schema_1_lacked(connection: sqlite3.Connection) -> None:
    """Schema 1 forgot what a finalist's screening had said."""
    _add_columns(connection)
    _complete_winners(connection, {}, {"screened_us": None})


def _add_columns(connection: sqlite3.Connection) -> None:
    """What `measurements` lacks of the columns of today."""
    present = {row[1] for row in connection.execute("PRAGMA table_info(measurements)")}
    for name, kind in MEASUREMENT_COLUMNS.items():
        if name not in present:
            connection.execute(f"ALTER TABLE measurements ADD COLUMN {name} {kind}")


_Lacked = dict[str, object]


def _complete_winners(connection: sqlite3.Connection, lacked: _Lacked, of_measurement: _Lacked) -> None:
    for row_id, record in connection.execute("SELECT id, record FROM best").fetchall():
        completed = _completed(record, lacked, of_measurement)
        if completed is not None:
            connection.execute("UPDATE best SET record = ? WHERE id = ?", (completed, row_id))


def _completed(record: str, lacked: _Lacked, of_measurement: _Lacked) -> str | None:
    """A winner's record with the fields that an older schema lacked; None for one that cannot be read.

    That one stays as it is, byte for byte: written anew, what is damaged might look sound.
    """
    try:
        data = parsed(record)
        data["measurement"] = of_measurement | data["measurement"]
    except (*UNREADABLE, KeyError):
        return None
    return json.dumps(lacked | data)


_LACKED_BY_0_OF_MEASUREMENTS: _Lacked = {
    "spread": None, "samples": 0, "refined": False, "noisy": False, "predicted": False, "detail": "",
    "registers": None, "spill_bytes": None, "smem_bytes": None,
}  # fmt: skip
_LACKED_BY_0: _Lacked = {
    "workspace_bytes": 0, "ties": [], "default_us": None, "baseline": {}, "floor_us": None, "edge": [],
    "provenance": {},
}  # fmt: skip

_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {
    0: _add_what_schema_0_lacked,
    1: _add_what_schema_1_lacked,
}
