"""The cache file in every state it may be found in: damaged, foreign, older, newer, read-only, on a full disk."""

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kt.cache import file_system, opening
from kt.cache.connection import connect
from kt.cache.prune import prune_damaged
from kt.cache.records import BestConfig, Measurement
from kt.cache.schema import APPLICATION_ID, SCHEMA
from kt.cache.store import Store
from kt.errors import CacheError, KtError
from kt.problems import Problem
from kt.search_spaces.space import Config

Make = Callable[..., BestConfig]
SIMT = {"simt": "digest-1"}
NAME = "kt.sqlite3"


@pytest.fixture
def filled(tmp_path: Path, make_winner: Make) -> Path:
    """A folder with a cache of one winner and many measurements, so that it has many pages."""
    key = make_winner().key
    with Store.open(tmp_path) as store:
        store.put_best(make_winner())
        results = [(Config("simt", (("i", i),)), "s" * 64, Measurement("ok", 1.0 + i)) for i in range(500)]
        store.put_measurements(key, results)
    return tmp_path


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """File permissions bind root too while this lasts."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach (pytest's own is closed to others)."""
    folder = Path(tempfile.mkdtemp(prefix="kt-test-"))
    folder.chmod(0o777)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777)
    shutil.rmtree(folder)


# Damage


def overwrite_header(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(bytes(100) + data[100:])


def overwrite_root_pages(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xa5" * 4096 * 6 + data[4096 * 7 :])


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def cut_inside_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:10])


def make_a_schema_that_never_was(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute("PRAGMA user_version = -5")


def drop_a_table(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE best")


DAMAGES = [
    overwrite_header,
    overwrite_root_pages,
    cut_short,
    cut_inside_header,
    drop_a_table,
    make_a_schema_that_never_was,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_with_a_warning_and_work_goes_on(
    damage: Callable[[Path], None], filled: Path, make_winner: Make
) -> None:
    """B1: what is damaged is never served and never thrown away; the person is told where it is."""
    damage(filled / NAME)
    broken = (filled / NAME).read_bytes()
    with Store.open(filled) as store:
        assert store.stored() == []
        assert f"{NAME}.damaged-1" in str(store.warnings[0])
        store.put_best(make_winner())
    assert (filled / f"{NAME}.damaged-1").read_bytes() == broken
    with Store.open(filled) as store:
        assert store.warnings == []
        assert len(store.stored()) == 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_for_reading(damage: Callable[[Path], None], filled: Path) -> None:
    """A command that only looks changes nothing: it names the file, and the command that sets it aside."""
    damage(filled / NAME)
    broken = (filled / NAME).read_bytes()
    with pytest.raises(CacheError, match="damaged") as caught, Store.open(filled, read_only=True) as store:
        store.stored()
    assert str(filled / NAME) in caught.value.message
    assert "kt cache prune --damaged" in (caught.value.hint or "")
    assert (filled / NAME).read_bytes() == broken


def test_a_second_damaged_file_does_not_replace_the_first(filled: Path, make_winner: Make) -> None:
    """Names of files that were set aside count up."""
    for _ in range(2):
        cut_short(filled / NAME)
        with Store.open(filled) as store:
            store.put_best(make_winner())
    assert {path.name for path in filled.iterdir()} >= {f"{NAME}.damaged-1", f"{NAME}.damaged-2"}


def test_damage_behind_the_first_pages_is_found_on_demand(filled: Path) -> None:
    """Opening looks at the beginning of each table only; `kt cache prune --damaged` checks the whole file."""
    assert prune_damaged(filled) is None
    data = bytearray((filled / NAME).read_bytes())
    data[-3 * 4096 : -2 * 4096] = b"\xa5" * 4096
    (filled / NAME).write_bytes(data)
    with Store.open(filled) as store:
        assert store.warnings == []
    assert prune_damaged(filled) == filled / f"{NAME}.damaged-1"
    assert not (filled / NAME).exists()


def test_reading_a_damaged_page_in_the_middle_names_the_file(filled: Path, make_winner: Make) -> None:
    """Damage that shows up in the middle of reading is one message with the remedy, not a raw SQLite error."""
    data = bytearray((filled / NAME).read_bytes())
    data[len(data) // 2 :] = b"\xa5" * (len(data) - len(data) // 2)
    (filled / NAME).write_bytes(data)
    with Store.open(filled, read_only=True) as store, pytest.raises(CacheError, match="damaged"):
        store.measurements(make_winner().key)
    assert (filled / NAME).read_bytes() == data


def root_page(file: Path, name: str) -> slice:
    """Where the first page of a table or index lies in the file."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return slice(4096 * (page - 1), 4096 * page)


@pytest.mark.parametrize("index", ["sqlite_autoindex_best_1", "sqlite_autoindex_keys_1", "keys_by_problem"])
@pytest.mark.parametrize("first", ["read", "write"])
def test_damage_that_is_met_during_a_run_is_set_aside_too(
    index: str, first: str, filled: Path, make_winner: Make
) -> None:
    """Opening does not look at the indexes. What the run puts is in the new file, whatever came before the damage."""
    data = bytearray((filled / NAME).read_bytes())
    data[root_page(filled / NAME, index)] = b"\xa5" * 4096
    (filled / NAME).write_bytes(data)
    key, best = make_winner().key, make_winner(Problem(1, 2, 3))
    with Store.open(filled) as store:
        assert store.warnings == []
        if first == "read":
            store.best(key, best.sources)
            store.measurements(key)
        store.put_measurement(best.key, best.config, "s", Measurement("ok", 5.0))
        store.put_best(best)
        store.put_best(make_winner(Problem(3, 2, 1)))
        assert store.best(best.key, best.sources) == best
        (warning,) = store.warnings
        assert f"set aside as {filled / NAME}.damaged-1" in str(warning)
    with Store.open(filled, read_only=True) as store:
        assert len(store.stored()) == 2
        assert len(store.measurements(best.key)) == 1
    assert prune_damaged(filled) is None
    assert sorted(path.name for path in filled.iterdir()) == [NAME, f"{NAME}.damaged-1"]


def test_an_index_that_does_not_fit_its_table_is_damage(tmp_path: Path, make_winner: Make) -> None:
    """Each page is sound by itself, and look-ups find the wrong rows or none."""
    for folder, sizes in (("one", (1, 2)), ("other", (1, 3))):
        with Store.open(tmp_path / folder) as store:
            for m in sizes:
                store.put_best(make_winner(Problem(m, 64, 64)))
    one, other = tmp_path / "one" / NAME, tmp_path / "other" / NAME
    page = root_page(other, "sqlite_autoindex_keys_1")
    data = bytearray(one.read_bytes())
    data[root_page(one, "sqlite_autoindex_keys_1")] = other.read_bytes()[page]
    one.write_bytes(data)
    assert prune_damaged(one) == one.with_name(f"{NAME}.damaged-1")
    assert prune_damaged(other) is None


def test_processes_that_find_the_damage_together_set_it_aside_once(filled: Path) -> None:
    """The file that the first one begins is not taken for the damaged one by the second."""
    cut_short(filled / NAME)
    code = (
        "import sys; from pathlib import Path; from kt.cache.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store: print(len(store.warnings))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(filled)], stdout=subprocess.PIPE, text=True) for _ in range(8)
    ]
    counts = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(counts) == 1
    names = {path.name for path in filled.iterdir()}  # its journals move along if a process had it open
    assert names - {f"{NAME}.damaged-1-wal", f"{NAME}.damaged-1-shm"} == {NAME, f"{NAME}.damaged-1"}


# Foreign files


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("content", [b"notes: not a cache\n", b"[1, 2]", b"\x7fELF" + bytes(5000)])
def test_a_file_of_another_format_is_refused_and_untouched(content: bytes, read_only: bool, tmp_path: Path) -> None:
    """G5: kt neither reads nor replaces what is not its own."""
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(CacheError, match="not a kt cache") as caught:
        Store.open(tmp_path, read_only=read_only)
    assert "--cache-dir" in (caught.value.hint or "")
    with pytest.raises(CacheError, match="not a kt cache"):
        prune_damaged(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_a_file_in_place_of_the_folder_is_not_to_be_moved_away(tmp_path: Path) -> None:
    """It is the person's own, as a shapes file: what is wrong is the name of the folder."""
    (tmp_path / "shapes.yaml").write_text("shapes: []\n")
    with pytest.raises(CacheError, match=r"shapes\.yaml is not a kt cache") as caught:
        Store.open(tmp_path / "shapes.yaml")
    assert caught.value.hint == "a cache is a folder: name another folder with --cache-dir or KT_CACHE_DIR"


@pytest.mark.parametrize("read_only", [False, True])
def test_another_programs_database_is_refused_and_untouched(read_only: bool, tmp_path: Path) -> None:
    """An SQLite file without kt's mark may hold someone's data."""
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(CacheError, match="another program"):
        Store.open(tmp_path, read_only=read_only)
    with pytest.raises(CacheError, match="another program"):
        prune_damaged(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_other_files_in_the_folder_are_ignored(filled: Path) -> None:
    """G5: the cache is one file of a fixed name; notes beside it are nobody's business."""
    (filled / "notes.json").write_text("[1, 2, 3]")
    with Store.open(filled) as store:
        assert len(store.stored()) == 1
        assert store.warnings == []


@pytest.mark.parametrize("read_only", [False, True])
def test_an_empty_file_is_a_cache_that_is_just_being_made(read_only: bool, tmp_path: Path) -> None:
    """Another process may have made the file a moment ago and not yet its tables."""
    (tmp_path / NAME).touch()
    with Store.open(tmp_path, read_only=read_only) as store:
        assert store.stored() == []


# Schemas


def make_schema_0(file: Path, best: BestConfig) -> None:
    """A file as the first sketch of kt wrote it: no spread, no samples, winners without ties and baselines."""
    with Store.open(file.parent / "current") as store:
        store.put_best(best)
        ((key_row,), (best_row,)) = (store.read(f"SELECT * FROM {table}") for table in ("keys", "best"))
    record = json.loads(best_row[4])
    old = {name: record[name] for name in ("config", "launches", "tried", "total", "complete")}
    old["measurement"] = {name: record["measurement"][name] for name in ("status", "time_us")}
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(
            f"""PRAGMA application_id = {APPLICATION_ID};
            CREATE TABLE keys (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, problem_digest TEXT NOT NULL,
                fields TEXT NOT NULL);
            CREATE TABLE measurements (key_id INTEGER NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
                config TEXT NOT NULL, source TEXT NOT NULL, status TEXT NOT NULL, time_us REAL,
                made_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (key_id, config, source)) WITHOUT ROWID;
            CREATE TABLE best (id INTEGER PRIMARY KEY, key_id INTEGER NOT NULL REFERENCES keys (id), sources TEXT
                NOT NULL, complete INTEGER NOT NULL, record TEXT NOT NULL, made_at INTEGER NOT NULL DEFAULT 0,
                UNIQUE (key_id, sources, complete));"""
        )
        connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", key_row)
        connection.execute("INSERT INTO measurements VALUES (1, 'c', 's', 'ok', 2.5, 7)")
        connection.execute("INSERT INTO measurements VALUES (1, 'd', 's', 'timeout', NULL, 7)")
        connection.execute("INSERT INTO best VALUES (?, ?, ?, ?, ?, ?)", (*best_row[:4], json.dumps(old), 7))


@pytest.mark.parametrize("read_only", [False, True])
def test_an_older_schema_is_upgraded_without_loss(read_only: bool, tmp_path: Path, make_winner: Make) -> None:
    """B6: fields that were added since have their neutral value; for reading, the file itself stays as it is."""
    expected = make_winner(
        spread=None, samples=0, refined=False, registers=None,
        default_us=None, baseline={}, floor_us=None, provenance={},
    )  # fmt: skip
    make_schema_0(tmp_path / NAME, expected)
    before = (tmp_path / NAME).read_bytes()
    with Store.open(tmp_path, read_only=read_only) as store:
        assert store.best(expected.key, SIMT) == expected
        assert store.measurements(expected.key) == {
            ("c", "s"): Measurement("ok", 2.5),
            ("d", "s"): Measurement("timeout"),
        }
        assert store.read("PRAGMA user_version") == [(SCHEMA,)]
        assert store.warnings == []
    assert ((tmp_path / NAME).read_bytes() == before) == read_only


def as_of_schema_1(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA user_version = 1")
        connection.execute("ALTER TABLE measurements DROP COLUMN screened_us")
        connection.execute("UPDATE best SET record = json_remove(record, '$.measurement.screened_us')")


@pytest.mark.parametrize("read_only", [False, True])
def test_schema_1_did_not_know_the_screening_of_finalists(read_only: bool, tmp_path: Path, make_winner: Make) -> None:
    """What it has is read, and the time of the screening is unknown; winners may be stored beside it then."""
    old, refined = make_winner(), Measurement("ok", 4.0, 0.01, 9, refined=True)
    with Store.open(tmp_path) as store:
        store.put_best(old)
        store.put_measurement(old.key, old.config, "s", refined)
    as_of_schema_1(tmp_path / NAME)
    with Store.open(tmp_path, read_only=read_only) as store:
        assert store.best(old.key, SIMT) == old
        assert store.measurements(old.key) == {(old.config.identity, "s"): refined}
        assert store.warnings == []
        if not read_only:
            store.put_measurement(old.key, old.config, "s", replace(refined, screened_us=3.5))
            assert store.measurements(old.key)[old.config.identity, "s"].screened_us == 3.5


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("begin", "reason"),
    [(b'{"measurement":' + 200_000 * b"[", "recursion"), (b'{"name":"\xff",', "byte that is no text")],
)
def test_a_damaged_record_is_as_damaged_after_the_upgrade(
    begin: bytes, reason: str, read_only: bool, tmp_path: Path, make_winner: Make
) -> None:
    """One warning, as in a file of today; and the record itself stays byte for byte."""
    with Store.open(tmp_path) as store:
        store.put_best(make_winner())
    as_of_schema_1(tmp_path / NAME)
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as connection, connection:
        (record,) = connection.execute("SELECT CAST(record AS BLOB) FROM best").fetchone()
        spoilt = begin + record[1:]
        connection.execute("UPDATE best SET record = CAST(? AS TEXT)", (spoilt,))
    with Store.open(tmp_path, read_only=read_only) as store:
        assert store.stored() == []
        assert [reason in str(one) for one in store.warnings] == [True]
        assert store.read("SELECT CAST(record AS BLOB) FROM best") == [(spoilt,)]


def test_an_older_kt_may_write_on_after_the_upgrade(tmp_path: Path, make_winner: Make) -> None:
    """Its records lack the time of the screening, which is unknown then; the winner is not lost."""
    best = make_winner()
    with Store.open(tmp_path) as store:
        store.put_best(best)
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as connection, connection:
        connection.execute("UPDATE best SET record = json_remove(record, '$.measurement.screened_us')")
    with Store.open(tmp_path) as store:
        assert store.best(best.key, SIMT) == best
        assert store.warnings == []


def test_an_upgrade_that_fails_leaves_the_old_file(tmp_path: Path, make_winner: Make) -> None:
    """The upgrade is one transaction."""
    make_schema_0(tmp_path / NAME, make_winner())
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as connection, connection:
        connection.execute("ALTER TABLE keys RENAME COLUMN fields TO other")
    with pytest.raises(CacheError, match="damaged"):
        Store.open(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)
        assert [row[1] for row in connection.execute("PRAGMA table_info(measurements)")][-1] == "made_at"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_refused_and_not_overwritten(read_only: bool, filled: Path) -> None:
    """B6: a file that a later kt wrote is not understood, so it is not touched, whatever its tables look like."""
    with contextlib.closing(sqlite3.connect(filled / NAME)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute("DROP TABLE best")
        connection.execute("PRAGMA user_version = 999")
    before = (filled / NAME).read_bytes()
    with pytest.raises(CacheError, match="schema 999"):
        Store.open(filled, read_only=read_only)
    with pytest.raises(CacheError, match="schema 999"):
        prune_damaged(filled)
    assert (filled / NAME).read_bytes() == before


# Places that cannot be written


@pytest.mark.parametrize("leftover", [False, True])
def test_a_read_only_cache_can_be_read_and_not_opened_for_writing(
    leftover: bool, shared: Path, make_winner: Make
) -> None:
    """B4, B5: reading works, also beside the journal of a killed process; writing fails before any work is done."""
    folder = shared / "cache"
    with Store.open(folder) as store:
        store.put_best(make_winner())
        if leftover:
            shutil.copytree(folder, shared / "copy")
    if leftover:
        folder = shared / "copy"
        (folder / f"{NAME}-shm").unlink()
        assert (folder / f"{NAME}-wal").stat().st_size > 0
    (folder / NAME).chmod(0o444)
    folder.chmod(0o555)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with unprivileged():
        with Store.open(folder, read_only=True) as store:
            assert store.best(make_winner().key, SIMT) == make_winner()
        with pytest.raises(CacheError) as caught:
            Store.open(folder)
    assert str(folder / NAME) in caught.value.message
    assert "--cache-dir or KT_CACHE_DIR" in (caught.value.hint or "")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_read_only_file_in_a_writable_folder_can_be_read(shared: Path, make_winner: Make) -> None:
    """A file that only its owner may write is still everyone's to read."""
    with Store.open(shared) as store:
        store.put_best(make_winner())
    (shared / NAME).chmod(0o444)
    with unprivileged():
        with Store.open(shared, read_only=True) as store:
            assert len(store.stored()) == 1
        with pytest.raises(CacheError, match=r"cannot be opened or written"):
            Store.open(shared)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_another_user_is_named(read_only: bool, shared: Path) -> None:
    """B4: a cache that this user may not even read is one line with the path and the way out."""
    Store.open(shared).close()
    (shared / NAME).chmod(0o600)
    with unprivileged(), pytest.raises(CacheError, match=r"kt\.sqlite3") as caught:
        Store.open(shared, read_only=read_only)
    assert "KT_CACHE_DIR" in (caught.value.hint or "")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_cache_in_a_closed_folder_is_named(read_only: bool, shared: Path) -> None:
    """B4: another user's home, closed to this one."""
    Store.open(shared / "home" / "cache").close()
    (shared / "home").chmod(0o700)
    with unprivileged(), pytest.raises(CacheError, match="Permission denied") as caught:
        Store.open(shared / "home" / "cache", read_only=read_only)
    assert "KT_CACHE_DIR" in (caught.value.hint or "")


def test_a_folder_that_cannot_be_made_is_named(shared: Path) -> None:
    """B5: HOME=/nonexistent, a closed parent, a file in the way: found before tuning."""
    (shared / "file").touch()
    shared.chmod(0o555)
    with unprivileged():
        for folder in (shared / "new", shared / "file" / "below"):
            with pytest.raises(CacheError, match="cannot be opened") as caught:
                Store.open(folder)
            assert "KT_CACHE_DIR" in (caught.value.hint or "")


@contextlib.contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file can grow beyond `limit` bytes: what a full disk or a spent quota looks like to SQLite."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_disk_that_fills_up_costs_only_what_was_not_yet_stored(
    journal: str, filled: Path, make_winner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B5: the write fails by name, the file is intact, and what was stored before can still be read and printed."""
    monkeypatch.setattr("kt.cache.connection.is_shared_over_network", lambda folder: journal == "delete")
    limit = (filled / NAME).stat().st_size + 20000
    with Store.open(filled) as store:
        stored: list[BestConfig] = []

        def fill() -> None:
            for k in range(1000):
                best = make_winner(Problem(64, 64, 64 + k), edge=("x" * 500,))
                store.put_best(best)
                stored.append(best)

        with pytest.raises(CacheError, match="intact") as caught, file_size_limit(limit):
            fill()
        assert len(stored) > 0
        assert "disk space" in (caught.value.hint or "")
        assert len(store.stored()) == len(stored) + 1
    with Store.open(filled) as store:
        assert store.read("PRAGMA integrity_check") == [("ok",)]
        assert len(store.stored()) == len(stored) + 1
        store.put_best(make_winner(Problem(1, 1, 1)))


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_disk_that_is_full_from_the_start_is_found_when_opening(
    journal: str, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B5: nothing is tuned that could not be saved."""
    monkeypatch.setattr("kt.cache.connection.is_shared_over_network", lambda folder: journal == "delete")
    Store.open(filled).close()
    with file_size_limit(0), pytest.raises(CacheError, match="intact"):
        Store.open(filled)
    with Store.open(filled) as store:
        assert len(store.stored()) == 1


def test_reading_needs_no_room_for_files(filled: Path) -> None:
    """`ulimit -f 0`: the attempt to open the file as usual leaves an empty journal, which is no reason for a copy."""
    with file_size_limit(0):
        for _ in range(2):
            with Store.open(filled, read_only=True) as store:
                assert len(store.stored()) == 1


@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR | 19 << 8])
def test_a_cache_on_a_full_disk_can_be_read(
    code: int, leftover: bool, tmp_path: Path, make_winner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C26: what is stored can be listed before space is freed, also beside a journal and without temporary files."""
    folder = tmp_path / "cache"
    with Store.open(folder) as store:
        store.put_best(make_winner())
        shutil.copytree(folder, tmp_path / "copy")
    if leftover:
        folder = tmp_path / "copy"
        (folder / f"{NAME}-shm").unlink()
        assert (folder / f"{NAME}-wal").stat().st_size > 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def no_room(file: Path, mode: str, *, immutable: bool = False) -> sqlite3.Connection:
        """As SQLite where it cannot make its shared memory beside the file, nor in a temporary folder on that disk."""
        if not immutable and file.is_relative_to(tmp_path):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = code
            raise error
        return connect(file, mode, immutable=immutable)

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(opening, "connect", no_room)
    with Store.open(folder, read_only=True) as store:
        assert store.best(make_winner().key, SIMT) == make_winner()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_cache_is_used_under_any_name_of_its_file(filled: Path) -> None:
    """`kt cache merge` takes folders and files, also copies under other names."""
    copy = shutil.copy(filled / NAME, filled / "backup.db")
    for path in (filled, filled / NAME, Path(copy)):
        with Store.open(path, read_only=True) as store:
            assert len(store.stored()) == 1


# File systems


@pytest.mark.parametrize(
    ("folder", "network"),
    [
        ("/", False),
        ("/home/ann", True),
        ("/home/ann/local/cache", False),
        ("/homework", False),
        ("/mnt/with space/x", True),
        ("/scratch", True),
        ("/box", True),
    ],
)
def test_network_file_systems_are_told_by_the_mount_table(
    folder: str, network: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest mount point above the folder decides; names are compared by component."""
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/vda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/vdb /home/ann/local xfs rw 0 0\n"
        "//nas/share /mnt/with\\040space cifs rw 0 0\nfs /scratch lustre rw 0 0\nsshfs /box fuse.sshfs rw 0 0\n"
    )
    monkeypatch.setattr(file_system, "_MOUNTS", table)
    monkeypatch.setattr(os.path, "realpath", lambda path: str(path))
    assert file_system.is_shared_over_network(Path(folder)) is network


def test_every_refusal_is_an_error_for_people(tmp_path: Path) -> None:
    """What a command shows is a `KtError` with the exit code of a failure, not a traceback."""
    (tmp_path / NAME).write_text("x")
    with pytest.raises(KtError) as caught:
        Store.open(tmp_path)
    assert caught.value.exit_code == 1
