"""`kt tune` with a cache that is lost or full: results are printed, saved where it can be, and never in silence."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.errors import CacheError
from kt.problems import Problem
from kt.tuner import run
from kt.tuner.finals import Decision
from kt.tuner.observer import Observer
from kt.tuner.record import Recorder
from kt.tuner.request import ShapeResult, TuneRequest, TuneResult
from kt.tuner.shape_run import ShapeRun

Command = Callable[..., Any]
Make = Callable[..., BestConfig]
pytestmark = pytest.mark.usefixtures("no_gpu")
TUNE = ("tune", "gemm", "--device", "model:h200", "--shapes")


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text("dtype: fp32\nshapes:\n  - {m: 512, n: 512, k: 512}\n  - {m: 256, n: 512, k: 512}\n")
    return path


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, make_winner: Make) -> Callable[..., None]:
    """Replaces the tuner by one that saves a winner for each shape; before each it does as told."""

    def install(before: Callable[[Store], None], *, without: int = 0, **result: Any) -> None:
        def one(store: Store, problem: Problem) -> ShapeResult:
            before(store)
            if problem.m == without:
                return ShapeResult(problem, None, "no time", untuned=True)
            with contextlib.suppress(CacheError):  # as the tuner goes on
                store.put_best(make_winner(problem, provenance={"notes": "x" * 10000}))  # does not fit beside others
            return ShapeResult(problem, make_winner(problem))

        def tune(request: TuneRequest, store: Store, observer: Observer) -> TuneResult:
            return TuneResult(tuple(one(store, problem) for problem in request.problems), **result)

        monkeypatch.setattr(run, "tune", tune)

    return install


def fill_the_disk(store: Store) -> None:
    """No more pages may be added, which SQLite reports as a full disk."""
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages}")


def remove_the_folder(store: Store) -> None:
    shutil.rmtree(store.file.parent, ignore_errors=True)


def take_its_place(store: Store) -> None:
    """The folder becomes a file, so that no cache can be made there again."""
    remove_the_folder(store)
    store.file.parent.touch()


@pytest.mark.parametrize("quiet", [(), ("-q",)])
@pytest.mark.parametrize("before", [fill_the_disk, take_its_place])
def test_results_that_are_not_saved_are_printed_and_the_run_fails(
    before: Callable[[Store], None], quiet: tuple[str, ...], kt: Command, shapes: Path, tmp_path: Path, tuned: Command
) -> None:
    """A1, A2: exit 1 with the cause, also when quiet; what was found is on standard output and in the table."""
    tuned(before)
    outcome = kt(*TUNE, shapes, "--cache-dir", tmp_path / "c", "-o", tmp_path / "table.json", "--json", *quiet)
    assert outcome.code == 1
    assert "kt: error: not all results were saved: the cache" in outcome.err
    assert "KT_CACHE_DIR" in outcome.err
    assert [shape["result"] is None for shape in outcome.json["shapes"]] == [False, False]
    assert len(json.loads((tmp_path / "table.json").read_text())["rows"]) == 2


def test_a_cache_that_is_removed_is_made_again_with_a_warning(
    kt: Command, shapes: Path, tmp_path: Path, tuned: Command
) -> None:
    """A1: the run has saved everything under the name, says so even when quiet, and succeeds."""
    tuned(remove_the_folder)
    outcome = kt(*TUNE, shapes, "--cache-dir", tmp_path / "c", "-q")
    assert outcome.code == 0
    assert "was removed or replaced during the run" in outcome.err
    with Store.open(tmp_path / "c", read_only=True) as store:
        assert [row.best.key.problem.m for row in store.stored()] == [512, 256]
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["kt.sqlite3"]


@pytest.mark.parametrize("result", [{"without": 256}, {"interrupted": True}])
def test_not_saved_goes_before_the_other_endings(
    result: dict[str, Any], kt: Command, shapes: Path, tmp_path: Path, tuned: Command
) -> None:
    """Codes 5 and 130 promise that the next run goes on from the cache, which would not be true."""
    tuned(fill_the_disk, **result)
    outcome = kt(*TUNE, shapes, "-o", tmp_path / "table.json")
    assert outcome.code == 1
    assert "the cache has every candidate" not in outcome.err
    assert "kt export" not in outcome.err
    assert not (tmp_path / "table.json").exists()


def test_a_loss_after_the_last_result_leaves_the_results_printed(
    kt: Command, shapes: Path, tmp_path: Path, small_family: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: the run itself looks at its end whether all is saved, when what it has found can still be told."""
    best = Recorder.best

    def then_lose(self: Recorder, shape: ShapeRun, decision: Decision) -> BestConfig:
        found = best(self, shape, decision)
        if self.store is not None and shape.key.problem.m == 256:
            take_its_place(self.store)
        return found

    monkeypatch.setattr(Recorder, "best", then_lose)
    outcome = kt(*TUNE, shapes, *small_family, "--cache-dir", tmp_path / "c", "--json")
    assert outcome.code == 1
    assert "kt: warning: results are no longer saved" in outcome.err
    assert "kt: error: not all results were saved" in outcome.err
    assert [shape["outcome"] for shape in outcome.json["shapes"]] == ["predicted", "predicted"]
