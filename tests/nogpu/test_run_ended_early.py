"""`tune` with children that only pretend: budgets, interrupts and kills lose no result, and a further run goes on."""

import json
import multiprocessing
import os
import signal
import time
from typing import Any

import pytest

from kt.cache.store import Store
from kt.errors import InputError
from kt.problems import Problem
from kt.tuner.request import Budget
from support.fake_run import ODD, SQUARE, TALL, Bench, Values, bowl, only, winner


def test_a_budget_of_evaluations_bounds_each_shape_and_marks_it(bench: Bench) -> None:
    """CASES B11: n tried of total, and not complete."""
    result = bench.tune(SQUARE, TALL, budget=Budget(evaluations=5))
    for shape in result.shapes:
        best = winner(shape)
        assert best.tried == 5
        assert best.total > 100
        assert not best.complete
    assert len(bench.gpu.screened) == 10
    assert bench.stored(SQUARE) is None
    assert bench.stored(SQUARE, partial=True) is not None


def test_a_further_run_goes_on_from_a_budget(bench: Bench) -> None:
    bench.tune(SQUARE, budget=Budget(evaluations=20))
    first = [values for _, values in bench.gpu.screened]
    bench.again()
    best = winner(only(bench.tune(SQUARE)))
    assert best.complete
    assert not [values for _, values in bench.gpu.screened if values in first]


def test_a_smaller_budget_later_loses_nothing(bench: Bench) -> None:
    """Also where its own search would not propose what the first one has found."""
    first = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=60))))
    for strategy, seed in (("random", 1), ("random", 2), ("auto", 3)):
        bench.again()
        best = winner(only(bench.tune(SQUARE, strategy=strategy, seed=seed, budget=Budget(evaluations=1))))
        assert len(bench.gpu.screened) == 1
        assert (best.config, best.complete) == (first.config, False)
        assert best.tried >= first.tried
        assert bench.stored(SQUARE, partial=True) == best


def test_what_runs_elsewhere_find_meanwhile_stays(bench: Bench) -> None:
    """A run that knows of it only at its end has not measured it; of two unfinished results the faster is kept."""
    good = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=60))))
    with Store.open(bench.folder / "cache") as store:
        store.connection.execute("DELETE FROM best")
        store.connection.execute("DELETE FROM measurements")

    def elsewhere(problem: Problem, values: Values) -> float:
        with Store.open(bench.folder / "cache") as store:
            store.put_best(good)
        return bowl(problem, values)

    bench.again(elsewhere)
    assert winner(only(bench.tune(SQUARE, budget=Budget(evaluations=1)))) == good
    assert bench.stored(SQUARE, partial=True) == good
    bench.again(lambda problem, values: elsewhere(problem, values) / 100)
    best = winner(only(bench.tune(SQUARE, strategy="random", budget=Budget(evaluations=1))))
    assert bench.stored(SQUARE, partial=True) == best != good


def test_retune_measures_what_an_unfinished_search_has_found_first(bench: Bench) -> None:
    """Its time of today counts, and not the one that was asked to be made anew."""
    first = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=60))))
    bench.again(lambda problem, values: 2 * bowl(problem, values))
    best = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=2), retune=True)))
    assert bench.gpu.screened[0][1] == first.config.as_dict()
    assert (best.config, best.tried) == (first.config, 2)
    assert best.measurement.time_us == pytest.approx(2 * (first.measurement.time_us or 0))
    assert bench.stored(SQUARE, partial=True) == best


def test_an_unfinished_retune_has_its_own_results_and_the_cache_keeps_the_complete_winner(bench: Bench) -> None:
    """What was asked to be measured again is not answered by the time that is doubted; an export still takes it."""
    first = winner(only(bench.tune(SQUARE)))
    bench.again(lambda problem, values: 2 * bowl(problem, values))
    best = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=1), retune=True)))
    assert (first.complete, best.complete, best.tried) == (True, False, 1)
    assert (best.measurement.time_us or 0) > (first.measurement.time_us or 0)
    assert bench.stored(SQUARE, partial=True) == bench.stored(SQUARE) == first


def test_a_budget_of_time_holds_and_is_shared_out(bench: Bench) -> None:
    """CASES C9: the limit of the run is kept, and every shape gets its part of it."""

    def slow(problem: Problem, values: Values) -> float:
        time.sleep(0.02)
        return bowl(problem, values)

    bench.gpu.truth = slow
    began = time.monotonic()
    result = bench.tune(SQUARE, TALL, ODD, strategy="exhaustive", budget=Budget(seconds=1.5))
    assert time.monotonic() - began < 3.0
    assert all(shape.best and not shape.best.complete for shape in result.shapes)


def test_a_shape_whose_share_is_over_before_a_time_is_known_goes_on(bench: Bench) -> None:
    """The first shape waits for workers to start; it is not given up while the run has time."""
    bench.gpu.prepare = lambda problem: time.sleep(0.5 if problem == SQUARE else 0.0)
    result = bench.tune(SQUARE, TALL, ODD, budget=Budget(seconds=1.2))
    assert [shape.best is not None for shape in result.shapes] == [True, True, True]
    assert not winner(result.shapes[0]).complete


def test_a_budget_that_is_over_leaves_shapes_untuned(bench: Bench) -> None:
    bench.gpu.prepare = lambda problem: time.sleep(0.3)
    result = bench.tune(SQUARE, TALL, budget=Budget(seconds=0.2))
    assert result.shapes[1].untuned
    assert "budget" in result.shapes[1].failure
    assert not result.interrupted


@pytest.mark.parametrize("budget", [Budget(seconds=0), Budget(seconds=-1), Budget(evaluations=0)])
def test_a_budget_of_nothing_is_refused(bench: Bench, budget: Budget) -> None:
    """CASES C13."""
    with pytest.raises(InputError, match="budget"):
        bench.tune(SQUARE, budget=budget)


def test_ctrl_c_keeps_what_was_measured(bench: Bench) -> None:
    """CASES C15: children are ended, the shape at work is stored as incomplete, the rest is untuned."""
    count = 0

    def truth(problem: Problem, values: Values) -> Any:
        nonlocal count
        count += problem == TALL
        return KeyboardInterrupt() if count == 7 else bowl(problem, values)

    bench.gpu.truth = truth
    result = bench.tune(SQUARE, TALL, ODD)
    assert result.interrupted
    assert bench.gpu.closed
    assert bench.pool.closed
    assert winner(result.shapes[0]).complete
    assert not winner(result.shapes[1]).complete
    assert winner(result.shapes[1]).tried == sum(result.shapes[1].statuses.values()) >= 6
    assert result.shapes[1].untuned
    assert (result.shapes[2].best, result.shapes[2].failure, result.shapes[2].untuned) == (None, "interrupted", True)
    assert bench.stored(TALL) is None
    assert bench.stored(TALL, partial=True) is not None
    before = [values for problem, values in bench.gpu.screened if problem == TALL][:6]
    bench.again()
    rerun = bench.tune(SQUARE, TALL, ODD)
    assert [shape.cached for shape in rerun.shapes] == [True, False, False]
    assert not [values for problem, values in bench.gpu.screened if problem == TALL and values in before]


def test_a_kill_loses_at_most_the_candidate_in_flight(bench: Bench) -> None:
    """SIGKILL in the middle of the second shape: what was finished is kept, the rerun does the rest only."""
    seen = bench.folder / "seen"

    def truth(problem: Problem, values: Values) -> Any:
        if problem == TALL:
            with seen.open("a") as file:
                file.write(json.dumps(values, sort_keys=True) + "\n")
            if len(seen.read_text().splitlines()) == 7:
                os.kill(os.getpid(), signal.SIGKILL)
        return bowl(problem, values)

    bench.gpu.truth = truth
    child = multiprocessing.get_context("fork").Process(target=bench.tune, args=(SQUARE, TALL))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    before = [json.loads(line) for line in seen.read_text().splitlines()][:6]
    bench.again()
    rerun = bench.tune(SQUARE, TALL, ODD)
    assert [shape.cached for shape in rerun.shapes] == [True, False, False]
    assert all(shape.best and shape.best.complete for shape in rerun.shapes)
    assert not [values for problem, values in bench.gpu.screened if problem == TALL and values in before]
