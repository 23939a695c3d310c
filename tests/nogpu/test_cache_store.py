"""The open cache: what is put is there, for the key, configuration and source that it was put for, and no other."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kt.cache.location import cache_dir, database_path
from kt.cache.records import STATUSES, BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.errors import CacheError
from kt.problems import Problem
from kt.search_spaces.space import Config

Make = Callable[..., BestConfig]
SIMT = {"simt": "digest-1"}


def config(tile_m: int, **more: int) -> Config:
    return Config("simt", (("tile_m", tile_m), *more.items()), (("split_k", 1),))


def test_measurements_come_back_as_they_were_put(tmp_path: Path, make_winner: Make) -> None:
    """Every status and field survives, for numbers and for failures."""
    key = make_winner().key
    put = {
        (config(index).identity, "source"): Measurement(
            status,  # type: ignore[arg-type]
            1.25 if status == "ok" else None,
            0.02 if status == "ok" else None,
            samples=index,
            refined=index % 2 == 0,
            noisy=index == 0,
            detail=f"because {status} \N{SNOWMAN}",
            registers=255,
            spill_bytes=16,
            smem_bytes=49152,
            screened_us=1.125 if status == "ok" else None,
        )
        for index, status in enumerate(STATUSES)
    }
    with Store.open(tmp_path) as store:
        store.put_measurements(key, [(config(i), "source", m) for i, m in enumerate(put.values())])
    with Store.open(tmp_path, read_only=True) as store:
        assert store.measurements(key) == put


@pytest.mark.parametrize("spread", [math.nan, math.inf])
def test_a_spread_of_one_sample_is_unknown_not_nan(spread: float, tmp_path: Path, make_winner: Make) -> None:
    """E8: a deviation that is not a number is stored as none at all, of a candidate and of a winner."""
    key = make_winner().key
    with Store.open(tmp_path) as store:
        store.put_measurement(key, config(8), "s", Measurement("ok", 1.0, spread=spread, samples=1))
        store.put_best(make_winner(spread=spread))
        assert store.measurements(key)[config(8).identity, "s"].spread is None
        assert store.stored()[0].best.measurement.spread is None


def test_figures_beside_a_winner_that_are_no_numbers_are_unknown(tmp_path: Path, make_winner: Make) -> None:
    """E8: a library's time that came out as nothing does not cost the winner of the whole search."""
    with Store.open(tmp_path) as store:
        store.put_best(
            make_winner(default_us=math.nan, floor_us=math.inf, baseline={"cublas": math.nan, "cublaslt": 2.0})
        )
        best = store.stored()[0].best
    assert (best.default_us, best.floor_us, best.baseline) == (None, None, {"cublaslt": 2.0})


@pytest.mark.parametrize(
    "wrong",
    [
        Measurement("ok"),
        Measurement("ok", 0.0),
        Measurement("ok", -1.0),
        Measurement("ok", math.nan),
        Measurement("ok", math.inf),
        Measurement("ok", 1e-320),
        Measurement("timeout", 5.0),
    ],
)
def test_a_failure_is_never_a_number_and_a_time_never_nothing(
    wrong: Measurement, tmp_path: Path, make_winner: Make
) -> None:
    """E4: times are positive and finite, and only an `ok` has one; anything else is a bug of the caller.

    The same holds for a winner, so that a whole search is not made for a result that is then refused.
    """
    with Store.open(tmp_path) as store:
        with pytest.raises(ValueError, match="time_us"):
            store.put_measurement(make_winner().key, config(8), "s", wrong)
        with pytest.raises(ValueError, match=r"time_us|JSON|status"):
            store.put_best(make_winner(**vars(wrong)))


def test_keys_do_not_see_each_others_measurements(tmp_path: Path, make_winner: Make) -> None:
    """A1, A2: the same configuration on another problem or dtype has to be measured there."""
    first, second = make_winner(Problem(64, 64, 64)).key, make_winner(Problem(64, 64, 64, dtype="fp16")).key
    with Store.open(tmp_path) as store:
        store.put_measurement(first, config(8), "s", Measurement("ok", 1.0))
        assert store.measurements(second) == {}


def test_adding_a_value_to_a_space_re_measures_nothing_old(tmp_path: Path, make_winner: Make) -> None:
    """A5: measurements belong to a configuration and its rendered source, not to the space that offered it."""
    key = make_winner().key
    with Store.open(tmp_path) as store:
        for tile in (32, 64):
            store.put_measurement(key, config(tile), f"source-{tile}", Measurement("ok", float(tile)))
        known = store.measurements(key)
    wanted = {(config(tile).identity, f"source-{tile}") for tile in (32, 64, 128)}
    assert wanted - set(known) == {(config(128).identity, "source-128")}


def test_a_new_parameter_or_source_is_another_candidate(tmp_path: Path, make_winner: Make) -> None:
    """A4: neither a parameter that was added nor a changed template or header can be answered by the old result."""
    key = make_winner().key
    with Store.open(tmp_path) as store:
        store.put_measurement(key, config(64), "old source", Measurement("ok", 1.0))
        known = store.measurements(key)
    assert (config(64, unroll=4).identity, "old source") not in known
    assert (config(64).identity, "new source") not in known


def test_the_order_of_parameters_does_not_matter(tmp_path: Path, make_winner: Make) -> None:
    """A space whose file lists its parameters in another order finds what was measured before."""
    one, other = Config("simt", (("a", 1), ("b", 2))), Config("simt", (("b", 2), ("a", 1)))
    with Store.open(tmp_path) as store:
        store.put_measurement(make_winner().key, one, "s", Measurement("ok", 1.0))
        assert (other.identity, "s") in store.measurements(make_winner().key)


def test_a_winner_comes_back_whole(tmp_path: Path, make_winner: Make) -> None:
    """Everything that is known of a winner is stored, and the next process reads the same."""
    best = make_winner(ties=(config(32),), edge=("tile_m",), workspace_bytes=4096, floor_us=None, spread=None)
    with Store.open(tmp_path) as store:
        store.put_best(best)
    with Store.open(tmp_path, read_only=True) as store:
        assert store.best(best.key, SIMT) == best


def test_shapes_tuned_one_after_the_other_are_all_there(tmp_path: Path, make_winner: Make) -> None:
    """A8, B10: a later run, of whatever dtype, adds to the cache and discards nothing."""
    problems = [Problem(64, 64, 64, dtype=dtype) for dtype in ("fp16", "fp32")]
    for problem in problems:
        with Store.open(tmp_path) as store:
            store.put_best(make_winner(problem))
    with Store.open(tmp_path, read_only=True) as store:
        assert [store.best(make_winner(problem).key, SIMT) for problem in problems] == [
            make_winner(problem) for problem in problems
        ]


def test_another_value_of_alpha_is_answered_with_the_key_that_was_asked_for(tmp_path: Path, make_winner: Make) -> None:
    """Alpha 1.5 and 2 have one winner; the caller gets it under its own problem."""
    with Store.open(tmp_path) as store:
        store.put_best(make_winner(Problem(64, 64, 64, alpha=1.5)))
        asked = make_winner(Problem(64, 64, 64, alpha=2.0)).key
        found = store.best(asked, SIMT)
    assert found is not None
    assert found.key == asked


@pytest.mark.parametrize(
    ("sources", "asked", "served"),
    [
        ({"simt": "1"}, {"simt": "1"}, True),
        ({"simt": "1"}, {"simt": "2"}, False),
        ({"simt": "1"}, {"simt": "1", "mma": "1"}, False),
        ({"simt": "1", "mma": "1"}, {"simt": "1"}, True),
        ({"simt": "1", "mma": "1"}, {"mma": "1"}, False),
        ({"simt": "1", "mma": "1"}, {"simt": "1", "mma": "2"}, False),
        ({"simt": "1"}, {}, False),
    ],
)
def test_a_winner_is_served_only_for_the_sources_it_competed_with(
    sources: dict[str, str], asked: dict[str, str], served: bool, tmp_path: Path, make_winner: Make
) -> None:
    """A changed template, header or space, and a family that did not compete, need a new search."""
    with Store.open(tmp_path) as store:
        store.put_best(make_winner(sources=sources))
        assert (store.best(make_winner().key, asked) is not None) == served


def test_what_an_unfinished_search_has_found_is_that_of_the_same_sources(tmp_path: Path, make_winner: Make) -> None:
    """With the key that was asked for, and also beside a complete winner."""
    partial = make_winner(Problem(64, 64, 64, alpha=1.5), time_us=1.0, complete=False)
    asked = make_winner(Problem(64, 64, 64, alpha=2.0)).key
    with Store.open(tmp_path) as store:
        assert store.unfinished(asked, SIMT) is None
        store.put_best(partial)
        assert store.unfinished(asked, SIMT) == replace(partial, key=asked)
        assert store.unfinished(asked, {"simt": "changed"}) is None
        store.put_best(replace(partial, complete=True))
        assert store.unfinished(asked, SIMT) is None
        store.put_best(partial)
        assert store.unfinished(asked, SIMT) == replace(partial, key=asked)


def test_a_partial_winner_is_served_only_when_asked_for(tmp_path: Path, make_winner: Make) -> None:
    """B8, B11: an interrupted search is not an answer; a complete one goes before it even if it is slower."""
    partial = make_winner(time_us=1.0, complete=False, tried=3)
    with Store.open(tmp_path) as store:
        store.put_best(partial)
        assert store.best(partial.key, SIMT) is None
        assert store.best(partial.key, SIMT, partial=True) == partial
        complete = make_winner(time_us=2.0)
        store.put_best(complete)
        store.put_best(partial)
        assert store.best(partial.key, SIMT, partial=True) == complete


def test_among_complete_winners_the_fastest_is_served(tmp_path: Path, make_winner: Make) -> None:
    """B8: winners of several searches that all answer the question are ranked by time."""
    slow = make_winner(time_us=3.0, sources={"simt": "1"})
    fast = make_winner(time_us=2.0, sources={"simt": "1", "mma": "1"})
    with Store.open(tmp_path) as store:
        store.put_best(fast)
        store.put_best(slow)
        assert store.best(slow.key, {"simt": "1"}) == fast


def test_tuning_again_replaces_the_winner_even_by_a_slower_one(tmp_path: Path, make_winner: Make) -> None:
    """`--retune` is asked for because the old time is doubted; of the same search only the newest stays."""
    with Store.open(tmp_path) as store:
        store.put_best(make_winner(time_us=1.0))
        store.put_best(make_winner(time_us=2.0))
        assert [row.best.measurement.time_us for row in store.stored()] == [2.0]


def test_a_prediction_is_under_another_key_than_a_measurement(tmp_path: Path, make_winner: Make) -> None:
    """The model's method is its own, so its times are never ranked with measured ones."""
    predicted = make_winner(time_us=0.1, predicted=True, method="model/1")
    with Store.open(tmp_path) as store:
        store.put_best(predicted)
        assert store.best(make_winner().key, SIMT) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "timeout", "time_us": None},
        {"config": Config("simt", ())},
    ],
)
def test_what_is_no_winner_cannot_be_stored_as_one(
    changes: dict[str, object], tmp_path: Path, make_winner: Make
) -> None:
    """G11: a failure, or a configuration without parameters, is a bug of the caller and never an entry."""
    with Store.open(tmp_path) as store:
        with pytest.raises(ValueError, match=r"status|parameters"):
            store.put_best(make_winner(**changes))
        assert store.stored() == []


def test_a_reading_store_refuses_to_write(tmp_path: Path, make_winner: Make) -> None:
    """Commands that only look cannot change the cache by mistake, nor make one."""
    with Store.open(tmp_path, read_only=True) as store, pytest.raises(CacheError, match="reading only"):
        store.put_best(make_winner())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        "status = 'great'",
        "time_us = 1e-320",
        "time_us = 'x'",
        "spread = 'x'",
        "samples = 'x'",
        "detail = x'00'",
        "screened_us = 0",
    ],
)
def test_a_damaged_measurement_is_passed_over_with_a_warning(damage: str, tmp_path: Path, make_winner: Make) -> None:
    """G4: a status that this kt does not know costs that measurement, not the run; a value of no sense too."""
    key = make_winner().key
    with Store.open(tmp_path) as store:
        store.put_measurements(key, [(config(i), "s", Measurement("ok", 1.0)) for i in (1, 2)])
        store.connection.execute(f"UPDATE measurements SET {damage} WHERE config = ?", (config(1).identity,))
        assert list(store.measurements(key)) == [(config(2).identity, "s")]
        assert "1 measurement of fp32 nn 512x512x512" in str(store.warnings[0])


def test_paths_with_any_characters_work(tmp_path: Path, make_winner: Make) -> None:
    """F5: spaces, other scripts, `?`, `%` and `#` in the folder's name are only a name."""
    folder = tmp_path / "José-é 目录 ?x=1#%41"
    with Store.open(folder) as store:
        store.put_best(make_winner())
    with Store.open(folder, read_only=True) as store:
        assert len(store.stored()) == 1
    assert database_path(folder).is_file()


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: flag before KT_CACHE_DIR before the user's own folder; an empty variable is no variable."""
    monkeypatch.setenv("KT_CACHE_DIR", str(tmp_path / "env"))
    assert cache_dir(tmp_path / "flag") == tmp_path / "flag"
    assert cache_dir() == tmp_path / "env"
    monkeypatch.setenv("KT_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "kt"


def test_a_relative_cache_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes and later changes of the working folder see the same cache."""
    monkeypatch.chdir(tmp_path)
    assert cache_dir(Path("here")) == tmp_path / "here"


_WRITER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from kt.cache.records import CacheKey, Measurement
from kt.cache.store import Store
from kt.devices.device import DeviceIdentity
from kt.problems import Problem
from kt.search_spaces.space import Config

folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if len(sys.argv) > 4:
    import kt.cache.connection
    kt.cache.connection.is_shared_over_network = lambda folder: True
key = CacheKey(Problem(64, 64, 64), DeviceIdentity("G", (9, 0), 1, 1), "t", "m")
with Store.open(folder) as store:
    for index in range(count):
        store.put_measurement(key, Config("simt", (("i", index), ("by", name))), "s", Measurement("ok", 1.0))
        print(index, flush=True)
    assert not store.warnings, store.warnings
"""


def writer(folder: Path, name: str, count: int, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), name, str(count), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("network", "journal"), [((), "wal"), (("network",), "delete")])
def test_eight_processes_share_one_cache(network: tuple[str, ...], journal: str, tmp_path: Path) -> None:
    """B1, B2: processes that make the cache at the same moment and write to it all succeed, and nothing is lost.

    On a network file system the write-ahead log does not work, so there a rollback journal does the same.
    """
    folder = tmp_path / "cache"
    processes = [writer(folder, str(number), 25, *network) for number in range(8)]
    outcomes = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [code for _, code in outcomes] == [0] * 8, outcomes
    with Store.open(folder, read_only=True) as store:
        assert store.read("PRAGMA journal_mode") == [(journal,)]
        assert store.read("SELECT count(*) FROM measurements") == [(200,)]
    assert [path.name for path in folder.iterdir()] == ["kt.sqlite3"]


def test_a_killed_process_loses_nothing_that_it_had_put(tmp_path: Path) -> None:
    """Every measurement is committed when made: SIGKILL leaves all of them, a sound file and no lock."""
    process = writer(tmp_path, "a", 100000)
    assert process.stdout is not None
    told = -1
    while told < 50:
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0].split()
    told = int(rest[-1]) if rest else told
    started = time.monotonic()
    with Store.open(tmp_path) as store:
        (count,) = store.read("SELECT count(*) FROM measurements")[0]
        assert store.read("PRAGMA integrity_check") == [("ok",)]
    assert count >= told + 1
    assert time.monotonic() - started < 5


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_inside_a_transaction_leaves_no_half(tmp_path: Path, make_winner: Make) -> None:
    """Ctrl-C between two statements of one write undoes both, and the store stays usable."""
    key = make_winner().key

    def interrupted() -> None:
        store.key_id(key)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    with Store.open(tmp_path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.write(interrupted)
        assert store.read("SELECT count(*) FROM keys") == [(0,)]
        store.put_best(make_winner())
        assert len(store.stored()) == 1


def test_a_process_that_holds_the_cache_is_waited_for_then_named(
    tmp_path: Path, make_winner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that never goes away ends in one message with the file's name, not in a raw SQLite error."""
    monkeypatch.setattr("kt.cache.waiting.BUSY_S", 0.2)
    monkeypatch.setattr("kt.cache.connection.HANDLER_S", 0.05)
    with Store.open(tmp_path) as store, Store.open(tmp_path) as holder:
        holder.connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(CacheError, match=r"kt\.sqlite3 is held by another process") as caught:
            store.put_best(make_winner())
        holder.connection.execute("ROLLBACK")
        assert caught.value.hint
        store.put_best(make_winner())


HOLDER = """
import fcntl, os, sqlite3, sys
if sys.argv[1] == "folder":
    fcntl.flock(os.open(sys.argv[2], os.O_RDONLY), fcntl.LOCK_EX)
else:
    connection = sqlite3.connect(sys.argv[2] + "/kt.sqlite3", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(what: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the cache's file or its folder until its standard input ends."""
    command = [sys.executable, "-c", HOLDER, what, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_wait_for_another_process_is_told_with_its_number(
    tmp_path: Path, what: str, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within two seconds: for whom, and for how long at most; then the work goes on when the other one is done."""
    monkeypatch.setattr("kt.cache.connection.is_shared_over_network", lambda folder: journal == "delete")
    with Store.open(tmp_path):
        pass
    told: list[tuple[float, str]] = []

    def tell(text: str) -> None:
        told.append((time.monotonic() - began, text))
        assert process.stdin is not None
        process.stdin.close()

    with holder(what, tmp_path) as process:
        began = time.monotonic()
        with Store.open(tmp_path, tell=tell) as store:
            assert store.read("PRAGMA journal_mode") == [(journal,)]
    ((after, text),) = told
    assert text == f"waiting at most 60 s for process {process.pid}: the cache {tmp_path / 'kt.sqlite3'} is in use"
    assert after < 2


def test_a_process_that_never_lets_go_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path):
        pass
    monkeypatch.setattr("kt.cache.waiting.BUSY_S", 0.2)
    for what in ("file", "folder"):
        with holder(what, tmp_path) as process, pytest.raises(CacheError, match=rf"held by process {process.pid}\b"):
            Store.open(tmp_path)


def test_two_problems_with_one_key_text_do_not_exist(tmp_path: Path, make_winner: Make) -> None:
    """The key that is stored is the key that was put, field by field."""
    key: CacheKey = make_winner(Problem(3, 5, 7, "int8", "tt", batch=2, beta=2.0)).key
    with Store.open(tmp_path) as store:
        store.put_best(dataclasses.replace(make_winner(), key=key))
        assert store.stored()[0].best.key == key
