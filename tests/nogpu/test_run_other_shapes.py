"""`tune` with children that only pretend: a kernel that wins on one shape is tried on the others."""

from typing import Any

import pytest

from kt.cache.records import Measurement
from kt.cache.store import Store
from kt.problems import Problem
from kt.tuner.messages import Failure, Refine, RefineReply
from kt.tuner.request import Budget
from kt.tuner.worker import WorkerDied
from support.fake_run import (
    HIGH_BEST,
    SQUARE,
    TALL,
    WIDE_BEST,
    Bench,
    FakeGpu,
    Truth,
    UnderLoad,
    Values,
    only,
    two_winners,
    values_of,
    winner,
)


def found_late() -> Truth:
    """As two winners; but the best of SQUARE is that of TALL, and stopped too early until that one has been seen."""
    seen: set[Problem] = set()

    def truth(problem: Problem, values: Values) -> float | Measurement:
        seen.add(problem)
        if problem == SQUARE and values == HIGH_BEST:
            return 50.0 if TALL in seen else Measurement("ok", 400.0, None, 1)
        return two_winners(problem, values)

    return truth


def test_every_shape_is_timed_with_the_kernels_of_the_others(bench: Bench) -> None:
    """The portfolio and the dispatch of a header rest on measurements."""
    bench.gpu.truth = two_winners
    result = bench.tune(SQUARE, TALL)
    winners = [winner(shape).config for shape in result.shapes]
    assert [config.as_dict() for config in winners] == [WIDE_BEST, HIGH_BEST]
    with Store.open(bench.folder / "cache", read_only=True) as store:
        for problem, other, values in ((SQUARE, winners[1], HIGH_BEST), (TALL, winners[0], WIDE_BEST)):
            tried = {name: one for (name, _), one in store.measurements(bench.key(problem)).items()}
            assert tried[other.identity].time_us == pytest.approx(two_winners(problem, values))


def test_a_kernel_that_wins_elsewhere_may_win_here(bench: Bench) -> None:
    """In finals against what the search has found; the cache has it then. Here the search has stopped it too early."""
    bench.gpu.truth = found_late()
    square, tall = bench.tune(SQUARE, TALL, peers=("cublas",)).shapes
    best = winner(square)
    assert best.config.as_dict() == HIGH_BEST
    assert best.measurement.time_us == 50.0
    assert best.launches[0].grid == 4 * 16
    assert best.baseline == {"cublas": 90.0}
    assert best.default_us is None, "it was in other rounds"
    assert bench.stored(SQUARE) == best
    assert winner(tall).config.as_dict() == HIGH_BEST
    assert bench.observer.beaten == [best]


def test_other_shapes_kernels_are_held_against_the_winner_at_one_clock(bench: Bench) -> None:
    """All are screened; so the winner is too, and needs no finals against what only the clock makes faster."""

    def truth(problem: Problem, values: Values) -> float:
        best = HIGH_BEST if problem.m > problem.n else WIDE_BEST
        return 120.0 if values in (HIGH_BEST, WIDE_BEST) and values != best else two_winners(problem, values)

    bench.gpu = UnderLoad(truth)
    square, tall = bench.tune(SQUARE, TALL).shapes
    assert [winner(shape).config.as_dict() for shape in (square, tall)] == [WIDE_BEST, HIGH_BEST]
    assert len(bench.gpu.refined) == 2
    assert (SQUARE, WIDE_BEST) in bench.gpu.screened[-4:], "the winner beside the others"
    assert winner(square).measurement.time_us == pytest.approx(130.0)


def test_a_search_that_goes_on_compares_times_of_one_clock(bench: Bench) -> None:
    """What an earlier run has refined under load counts as it was screened: what is slower there stays slower."""
    bench.gpu = UnderLoad()
    first = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=60))))
    bench.again()
    bench.gpu = UnderLoad()
    bench.tune(SQUARE)
    best_us = first.measurement.screened_us or 0.0
    assert bench.gpu.stops[0] is not None
    assert bench.gpu.stops[0] <= 1.25 * best_us + 1e-6


def test_a_winner_from_another_shape_keeps_its_screening(bench: Bench) -> None:
    """That of the comparison, in which it has challenged the winner."""
    bench.gpu = UnderLoad(found_late())
    best = winner(bench.tune(SQUARE, TALL).shapes[0])
    assert best.config.as_dict() == HIGH_BEST
    assert (best.measurement.time_us, best.measurement.screened_us) == (65.0, 50.0)
    assert bench.stored(SQUARE) == best


def test_a_kernel_of_another_shape_does_not_win_by_the_median_of_cooler_rounds(bench: Bench) -> None:
    """One that has left the finals has lost there, whatever its median is."""

    class Throttled(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            reply = super()._refine(message)
            if len(self.refined) <= 2:
                return reply
            order = sorted(reply.measurements, key=lambda name: values_of(name) != WIDE_BEST)
            return RefineReply({name: reply.measurements[name] for name in order}, (), {})

    bench.gpu = Throttled(found_late())
    square = bench.tune(SQUARE, TALL).shapes[0]
    assert len(bench.gpu.refined) == 3
    assert winner(square).config.as_dict() == WIDE_BEST


def test_a_shape_that_comes_later_meets_the_winners_of_the_cache(bench: Bench) -> None:
    """The shapes of the cache are left alone."""
    bench.gpu.truth = two_winners
    bench.tune(SQUARE)
    bench.again(two_winners)
    bench.tune(SQUARE, TALL)
    assert {problem for problem, _ in bench.gpu.screened} == {TALL}
    assert WIDE_BEST in [values for _, values in bench.gpu.screened]
    bench.again(two_winners)
    bench.tune(SQUARE, TALL)
    assert not bench.gpu.screened


def test_a_limit_of_candidates_holds_for_other_shapes_kernels_too(bench: Bench) -> None:
    bench.gpu.truth = two_winners
    bench.tune(SQUARE, TALL, budget=Budget(evaluations=5))
    assert len([problem for problem, _ in bench.gpu.screened if problem == SQUARE]) == 5
    bench.again(two_winners)
    bench.tune(SQUARE, TALL, store=False)
    assert [problem for problem, _ in bench.gpu.screened] == sorted(
        (problem for problem, _ in bench.gpu.screened), key=[SQUARE, TALL].index
    )


@pytest.mark.parametrize(
    "fault",
    [
        WorkerDied("crashed", "it faults"),
        Failure("crashed", "it faults"),
        Measurement("wrong_result", detail="it faults"),
    ],
)
def test_another_shapes_kernel_that_fails_here_changes_no_winner(bench: Bench, fault: Any) -> None:
    """It is told, and not tried again."""
    seen: set[Problem] = set()

    def truth(problem: Problem, values: Values) -> Any:
        seen.add(problem)
        return fault if problem == SQUARE and TALL in seen else two_winners(problem, values)

    bench.gpu.truth = truth
    result = bench.tune(SQUARE, TALL)
    assert [winner(shape).config.as_dict() for shape in result.shapes] == [WIDE_BEST, HIGH_BEST]
    assert [text.partition(": ")[2] for text in result.failures] == ["it faults"]
    with Store.open(bench.folder / "cache") as store:
        failed = {config for (config, _), one in store.measurements(bench.key(SQUARE)).items() if one.status != "ok"}
    assert bench.space.config(HIGH_BEST).identity in failed


@pytest.mark.parametrize("fault", ["wrong_result", "crashed"])
def test_another_shapes_kernel_that_fails_in_the_finals_is_told(bench: Bench, fault: Any) -> None:
    """It was faster when a part of its result was looked at; the winner stays."""
    name = bench.space.config(HIGH_BEST).identity
    seen: set[Problem] = set()
    runs: list[Values] = []

    def truth(problem: Problem, values: Values) -> Any:
        seen.add(problem)
        if problem != SQUARE or values != HIGH_BEST:
            return two_winners(problem, values)
        if TALL not in seen:
            return Measurement("ok", 400.0, None, 1)
        runs.append(values)
        if len(runs) == 1:
            return 50.0
        return WorkerDied(fault, "it faults", name) if fault == "crashed" else Measurement(fault, detail="it faults")

    bench.gpu.truth = truth
    result = bench.tune(SQUARE, TALL)
    assert winner(result.shapes[0]).config.as_dict() == WIDE_BEST
    assert list(result.failures) == [f"{fault}: it faults"]
    with Store.open(bench.folder / "cache") as store:
        found = {config: one.status for (config, _), one in store.measurements(bench.key(SQUARE)).items()}
    assert (found[name], len(runs)) == (fault, 2)


def test_an_interrupt_during_the_comparison_keeps_every_winner(bench: Bench) -> None:
    seen: set[Problem] = set()

    def truth(problem: Problem, values: Values) -> Any:
        seen.add(problem)
        return KeyboardInterrupt() if problem == SQUARE and TALL in seen else two_winners(problem, values)

    bench.gpu.truth = truth
    result = bench.tune(SQUARE, TALL)
    assert result.interrupted
    assert [winner(shape).config.as_dict() for shape in result.shapes] == [WIDE_BEST, HIGH_BEST]


def test_a_default_that_is_beaten_by_another_shapes_kernel_is_timed_beside_it(bench: Bench) -> None:
    """Where it had won before: then it is in the finals in which it loses."""
    found = found_late()
    bench.gpu.truth = lambda problem, values: (
        60.0 if problem == SQUARE and values == bench.default else found(problem, values)
    )
    best = winner(bench.tune(SQUARE, TALL).shapes[0])
    assert (best.measurement.time_us, best.default_us) == (50.0, 60.0)
