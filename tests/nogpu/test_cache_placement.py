"""A cache file that is removed or replaced while it is open: nothing that a run has found may go where nobody looks."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kt.cache.records import BestConfig, Measurement
from kt.cache.store import Store
from kt.errors import CacheError, InputError
from kt.problems import Problem
from kt.search_spaces.space import Config

Make = Callable[..., BestConfig]
Loss = Callable[[Path], None]
NAME = "kt.sqlite3"
FIRST, SECOND, OTHER = Problem(64, 64, 64), Problem(128, 64, 64), Problem(256, 64, 64)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def remove_file(folder: Path) -> None:
    (folder / NAME).unlink()


def rename_file(folder: Path) -> None:
    (folder / NAME).rename(folder / "old.sqlite3")


def put_another_in_place(folder: Path) -> None:
    os.replace(folder.parent / "other" / NAME, folder / NAME)


LOSSES = [remove_folder, remove_file, rename_file, put_another_in_place]


@pytest.fixture
def folder(tmp_path: Path, make_winner: Make) -> Path:
    """A folder for a cache; beside it lies another cache with one winner."""
    with Store.open(tmp_path / "other") as store:
        store.put_best(make_winner(OTHER))
    return tmp_path / "cache"


@pytest.fixture(params=["wal", "delete"])
def journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which SQLite keeps its journal: on local disks, and on network file systems."""
    mode = str(request.param)
    monkeypatch.setattr("kt.cache.connection.is_shared_over_network", lambda folder: mode == "delete")
    return mode


def problems(folder: Path) -> set[Problem]:
    with Store.open(folder, read_only=True) as store:
        assert store.read("PRAGMA integrity_check") == [("ok",)]
        return {row.best.key.problem for row in store.stored()}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_noticed_at_the_next_put(loss: Loss, journal: str, folder: Path, make_winner: Make) -> None:
    """What the run put before and after is in the file under the name, with a warning, and no journal is left."""
    with Store.open(folder) as store:
        config = Config("simt", (("tile_m", 8),))
        store.put_measurement(make_winner(FIRST).key, config, "s", Measurement("ok", 2.0))
        store.put_best(make_winner(FIRST))
        loss(folder)
        store.put_best(make_winner(SECOND))
        assert "removed or replaced" in str(store.warnings[0])
        assert store.measurements(make_winner(FIRST).key) == {(config.identity, "s"): Measurement("ok", 2.0)}
        assert store.failure is None
    assert problems(folder) == {FIRST, SECOND} | ({OTHER} if loss is put_another_in_place else set())
    assert {path.name for path in folder.iterdir()} - {"old.sqlite3"} == {NAME}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_after_the_last_put_is_noticed_at_the_end(
    loss: Loss, journal: str, folder: Path, make_winner: Make
) -> None:
    """The results of the last minutes are as good as those before."""
    with Store.open(folder) as store:
        store.put_best(make_winner(FIRST))
        loss(folder)
    assert store.warnings
    assert problems(folder) == {FIRST} | ({OTHER} if loss is put_another_in_place else set())
    assert {path.name for path in folder.iterdir()} - {"old.sqlite3"} == {NAME}


def test_a_renamed_cache_is_left_whole(folder: Path, make_winner: Make) -> None:
    """What lay in its write-ahead log, also from earlier runs, goes into the file before the log is removed."""
    earlier = Store.open(folder)
    earlier.put_best(make_winner(FIRST))
    with Store.open(folder) as store:
        store.put_best(make_winner(SECOND))
        rename_file(folder)
    earlier.connection.close()
    assert problems(folder) == {SECOND}
    with Store.open(folder / "old.sqlite3", read_only=True) as store:
        assert {row.best.key.problem for row in store.stored()} == {FIRST, SECOND}


def test_what_cannot_be_made_again_is_a_failure(folder: Path, make_winner: Make) -> None:
    """A folder whose place is taken: an error that names the file, once, and what was stored can still be read."""
    with Store.open(folder) as store:
        store.put_best(make_winner(FIRST))
        remove_folder(folder)
        folder.touch()
        with pytest.raises(CacheError, match=NAME) as caught:
            store.put_best(make_winner(SECOND))
        assert store.failure is caught.value
        assert len(store.stored()) == 1
    assert folder.is_file()


def test_a_failure_at_the_end_is_raised_unless_another_error_is_on_its_way(folder: Path, make_winner: Make) -> None:
    """Leaving the store never ends in silence, and never hides the first cause."""

    def lose(store: Store, error: Exception | None = None) -> None:
        store.put_best(make_winner(FIRST))
        remove_folder(folder)
        folder.touch()
        if error:
            raise error

    with pytest.raises(CacheError, match=NAME), Store.open(folder) as store:
        lose(store)
    folder.unlink()
    with pytest.raises(InputError, match="first"), Store.open(folder) as store:
        lose(store, InputError("first"))


def test_a_removed_cache_is_not_made_again_for_nothing(folder: Path, make_winner: Make) -> None:
    """A run that has put nothing respects that the file is gone, and leaves nothing behind; so does a reader."""
    for read_only in (False, True):
        with Store.open(folder) as store:
            store.put_best(make_winner(FIRST))
        with Store.open(folder, read_only=read_only) as store:
            assert len(store.stored()) == 1
            remove_file(folder)
        assert list(folder.iterdir()) == []


def test_changes_that_belong_to_the_lost_file_are_refused(folder: Path, make_winner: Make) -> None:
    """Rows to remove were chosen in a file that is no longer there; in another they would be other rows."""
    with Store.open(folder) as store:
        store.put_best(make_winner(FIRST))
    with Store.open(folder) as store:
        put_another_in_place(folder)
        with pytest.raises(CacheError, match="removed or replaced"):
            store.remove([1])
    assert problems(folder) == {OTHER}


def test_changes_that_went_with_the_file_are_not_called_done(folder: Path, make_winner: Make) -> None:
    """What was removed from a file that is gone is not removed from the one that lies there now."""
    with Store.open(folder) as store:
        store.put_best(make_winner(FIRST))
    store = Store.open(folder)
    store.remove([1])
    put_another_in_place(folder)
    with pytest.raises(CacheError, match="removed or replaced"):
        store.close()
    assert problems(folder) == {OTHER}
