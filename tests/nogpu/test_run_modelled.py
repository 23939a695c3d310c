"""`tune` for a modelled device: what the model ranks, without a worker."""

import time
from dataclasses import replace
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.devices.catalog import catalog
from kt.devices.roofline import floor_us
from kt.errors import KtError, NoValidConfiguration
from kt.problems import Problem
from kt.search_spaces.space import Config
from kt.tuner import run_predicted
from kt.tuner.clock import Clock
from kt.tuner.compilation import Compilation
from kt.tuner.messages import Binary
from kt.tuner.plan import plan
from kt.tuner.record import Recorder
from kt.tuner.request import MODEL_METHOD, Budget, TuneRequest
from kt.tuner.shape_plan import plan_shape
from support.fake_run import MODELLED, SQUARE, TALL, Bench, FakePool, Values, good_binary, only, winner


def test_a_modelled_device_ranks_without_a_worker(bench: Bench) -> None:
    bench.gpu = None  # type: ignore[assignment]
    device = replace(catalog()["h200"], modelled=True)
    result = bench.tune(SQUARE, Problem(64, 64, 64, "bf16"), device=device)
    best = winner(result.shapes[0])
    assert best.measurement.predicted
    assert not best.measurement.refined
    assert best.measurement.registers == 64
    assert best.key.method == MODEL_METHOD
    assert best.default_us is not None
    assert best.measurement.time_us is not None
    assert best.measurement.time_us <= best.default_us
    assert len(bench.pool.jobs) <= 8
    assert "bf16" in result.shapes[1].failure


def test_an_interrupt_keeps_what_was_ranked(bench: Bench) -> None:
    """As a budget does that ends there: the best so far, as incomplete, and the next run goes on from it."""
    compiled = 0

    def verdict(digest: str, values: Values) -> Binary:
        nonlocal compiled
        compiled += 1
        if compiled == 4:
            raise KeyboardInterrupt
        return good_binary(digest)

    device = replace(catalog()["h200"], modelled=True)
    bench.pool = FakePool(verdict, per_poll=1)
    result = bench.tune(SQUARE, TALL, device=device)
    assert result.interrupted
    best = winner(result.shapes[0])
    assert (best.measurement.predicted, best.complete) == (True, False)
    assert best.tried == 3, "what still waited for a compiler was not tried"
    assert result.shapes[0].statuses == {"ok": 3}
    assert (result.shapes[1].best, result.shapes[1].failure, result.shapes[1].untuned) == (None, "interrupted", True)
    bench.again()
    whole = winner(only(bench.tune(SQUARE, device=device)))
    assert whole.complete


def test_predictions_leave_measured_winners_alone(bench: Bench) -> None:
    device = replace(catalog()["h200"], modelled=True)
    measured = winner(only(bench.tune(SQUARE)))
    bench.again()
    bench.tune(SQUARE, device=device)
    assert bench.stored(SQUARE) == measured
    bench.again()
    assert only(bench.tune(SQUARE, device=device)).cached


def test_spilling_configurations_are_not_ranked(bench: Bench) -> None:
    device = replace(catalog()["h200"], modelled=True)
    default = {name: bench.space.default[name] for name in bench.space.parameters}
    bench.pool.verdict = lambda digest, values: good_binary(digest, spills=0 if values == default else 8)
    best = winner(only(bench.tune(SQUARE, device=device)))
    assert best.config == Config("simt", tuple(default.items()), (("split_k", 1),))


def test_every_error_of_a_modelled_run_is_one_message(bench: Bench) -> None:
    bench.pool.verdict = lambda digest, values: Binary(digest, error="t.cu(3): error: expected a ';'")
    with pytest.raises(KtError) as caught:
        bench.tune(SQUARE, device=replace(catalog()["h200"], modelled=True))
    assert isinstance(caught.value, NoValidConfiguration)
    assert "expected a ';'" in caught.value.message


def test_a_plan_for_a_modelled_device_is_of_what_the_run_does(bench: Bench) -> None:
    request = bench.request(SQUARE, TALL, device=MODELLED)
    planned = plan(request)
    result = bench.tune(SQUARE, TALL, device=MODELLED)
    assert [shape.evaluations for shape in planned.shapes] == [winner(shape).tried for shape in result.shapes]
    assert planned.kernels == len(bench.pool.jobs)
    with Store.open(bench.folder / "cache", read_only=True) as store:
        after = plan(request, store)
    assert all(shape.cached and shape.evaluations == 0 for shape in after.shapes)
    assert (after.kernels, after.seconds) == (0, 0.0)


def test_what_is_predicted_at_the_roofline_has_an_order(bench: Bench) -> None:
    """Many candidates at the same least time: the model's terms decide among them, and not the simplest one."""
    real = winner(only(bench.tune(SQUARE, device=MODELLED, store=False)))
    device = replace(MODELLED, flops={**MODELLED.flops, "fp32": 1e9})
    bench.again()
    best = winner(only(bench.tune(SQUARE, device=device, store=False)))
    assert best.measurement.time_us == best.floor_us == floor_us(SQUARE, device)
    assert (best.config, best.ties) == (real.config, real.ties)
    assert plan(bench.request(SQUARE, device=device)).shapes[0].predicted_us == floor_us(SQUARE, device)


def test_a_budget_of_candidates_bounds_a_ranking(bench: Bench) -> None:
    """What is cut short is kept as such, as a measured search would be, and the next run goes on from there."""
    best = winner(only(bench.tune(SQUARE, device=MODELLED, budget=Budget(evaluations=3))))
    assert (best.tried, best.complete) == (3, False)
    assert _winners(bench) == [best]
    bench.again()
    result = only(bench.tune(SQUARE, device=MODELLED))
    best = winner(result)
    assert not result.cached
    assert best.tried > 3
    assert best.complete
    assert _winners(bench) == [best]


def test_a_smaller_budget_for_a_ranking_loses_nothing(bench: Bench) -> None:
    """Also where candidates before the winner cannot be used: each run meets those again, and none counts twice."""

    def verdict(digest: str, values: Values) -> Binary:
        return good_binary(digest, spills=0 if values in good else 8)

    good: list[Values] = []
    bench.tune(SQUARE, device=MODELLED, budget=Budget(evaluations=6), store=False)
    good.append(bench.pool.jobs[-1])
    bench.pool = FakePool(verdict)
    first = winner(only(bench.tune(SQUARE, device=MODELLED, budget=Budget(evaluations=6))))
    assert (first.tried, first.complete) == (6, False)
    for tried in (7, 8):
        bench.again()
        bench.pool = FakePool(verdict)
        best = winner(only(bench.tune(SQUARE, device=MODELLED, budget=Budget(evaluations=1))))
        assert (best.config, best.tried, best.complete) == (first.config, tried, False)
        assert _winners(bench) == [best]


def _winners(bench: Bench) -> list[BestConfig]:
    with Store.open(bench.folder / "cache", read_only=True) as store:
        return [row.best for row in store.stored()]


def test_no_shape_is_planned_after_the_budget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even its candidates are enumerated: of many shapes that took as long as the budget itself."""
    planned: list[Problem] = []

    def planning(request: TuneRequest, recorder: Recorder, compilation: Compilation, problem: Problem) -> Any:
        planned.append(problem)
        if len(planned) == 2:
            monkeypatch.setattr(Clock, "left", 0.0)
        return plan_shape(request, recorder, compilation, problem)

    monkeypatch.setattr(run_predicted, "plan_shape", planning)
    shapes = [Problem(64 * number, 64, 64) for number in range(1, 9)]
    result = bench.tune(*shapes, device=MODELLED, budget=Budget(seconds=1000))
    assert planned == shapes[:2]
    assert [shape.failure for shape in result.shapes] == ["the budget ended before this shape"] * 8
    assert all(shape.untuned for shape in result.shapes)


def test_a_budget_of_time_ends_a_ranking_within_a_shape(bench: Bench) -> None:
    def slow(digest: str, values: Values) -> Binary:
        time.sleep(0.15)
        return good_binary(digest)

    bench.pool = FakePool(slow, per_poll=1)
    result = bench.tune(SQUARE, TALL, device=MODELLED, budget=Budget(seconds=0.5))
    first, second = result.shapes
    assert first.untuned or not winner(first).complete
    assert second.untuned
    assert "budget" in second.failure
    assert _winners(bench) == [shape.best for shape in result.shapes if shape.best]


def test_what_has_no_effect_on_a_model_is_told(bench: Bench) -> None:
    bench.tune(SQUARE, device=MODELLED, strategy="exhaustive", seed=7)
    (text,) = bench.observer.warnings
    assert text.startswith("strategy exhaustive and seed 7 without effect: nothing is measured")
    bench.again()
    bench.tune(TALL, device=MODELLED, budget=Budget(evaluations=3))
    bench.tune(TALL, strategy="random", seed=7)
    assert bench.observer.warnings == []
