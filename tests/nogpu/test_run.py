"""`tune` with a worker and compilers that only pretend: every shape ends, and nothing that is known is done again."""

import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.devices.catalog import catalog
from kt.devices.roofline import floor_us
from kt.errors import CacheError, CompilerUnavailable, InputError, KtError, NoUsableGpu, NoValidConfiguration
from kt.problems import Problem
from kt.search_spaces.loader import load_space
from kt.search_spaces.space import Config, SearchSpace
from kt.templates.digest import template_digest
from kt.tuner.messages import (
    Binary,
    CompileJob,
    Failure,
    Prepare,
    Prepared,
    Refine,
    RefineReply,
    Screen,
    ScreenReply,
)
from kt.tuner.method import METHOD_LABEL
from kt.tuner.observer import SilentObserver
from kt.tuner.plan import plan
from kt.tuner.request import MODEL_METHOD, Budget, ShapeResult, TuneRequest, TuneResult
from kt.tuner.run import tune
from kt.tuner.toolchain import toolchain
from kt.tuner.worker import WorkerDied

SPACE = """
op: gemm
family: simt
template: t.cu.j2
dtypes: [fp32, fp64]
parameters: {tile_m: [16, 32, 64, 128], tile_n: [16, 32, 64, 128], tile_k: [8, 16], stages: [2, 3]}
runtime: {split_k: [1, 2, 4]}
default: {tile_m: 32, tile_n: 32, tile_k: 8, stages: 2, split_k: 1}
derived: {smem_bytes: stages * (tile_m + tile_n) * tile_k * sizeof_in}
constraints:
  - {require: smem_bytes <= 30000, reason: shared memory of one block}
  - {require: split_k == 1 or split_k * tile_k <= k, reason: every slice needs a step}
launches:
  - {kernel: kt_gemm, grid: "cdiv(m, tile_m) * cdiv(n, tile_n) * split_k", block: 128, smem_bytes: smem_bytes}
workspace_bytes: "(split_k > 1) * split_k * m * n * 4"
"""
TEMPLATE = """// {{ dtype }} {{ layout }}
// {"tile_m": {{ tile_m }}, "tile_n": {{ tile_n }}, "tile_k": {{ tile_k }}, "stages": {{ stages }}}
extern "C" __global__ void kt_gemm() {}
"""
Values = dict[str, int]
Truth = Callable[[Problem, Values], Any]


def bowl(problem: Problem, values: Values) -> float:
    """Microseconds: best at 64 x 128 x 16, two stages, no split-K."""
    best = {"tile_m": 64, "tile_n": 128, "tile_k": 16, "stages": 2, "split_k": 1}
    return 100.0 * float(1 + 0.2 * sum(abs(values[name] / best[name] - 1) for name in best))


class FakeGpu:
    """A worker whose candidates take what `truth` says: a time, a Measurement, a Failure or an exception to raise."""

    def __init__(self, truth: Truth = bowl, *, prepare: Callable[[Problem], Any] = lambda problem: None) -> None:
        self.truth, self.prepare = truth, prepare
        self.problem = Problem(1, 1, 1)
        self.screened: list[tuple[Problem, Values]] = []
        self.refined: list[list[Values]] = []
        self.stops: list[float | None] = []
        self.closed = False
        self._reply: Any = None

    @property
    def connection(self) -> Connection | None:
        return None

    @property
    def busy(self) -> bool:
        return self._reply is not None

    def submit(self, message: Any, timeout_s: float) -> None:
        assert not self.busy
        assert timeout_s > 0
        self._reply = lambda: self._answer(message)

    def poll(self, timeout: float) -> Any:
        assert self._reply is not None
        answer, self._reply = self._reply, None
        return answer()

    def close(self) -> None:
        self.closed = True

    def _answer(self, message: Any) -> Any:
        if isinstance(message, Prepare):
            self.problem = message.problem
            return _raised(self.prepare(message.problem)) or Prepared(3, True, 1, 2)
        if isinstance(message, Screen):
            return self._screen(message)
        assert isinstance(message, Refine)
        return self._refine(message)

    def _screen(self, message: Screen) -> Any:
        values = _values(message.candidate.name)
        self.screened.append((self.problem, values))
        self.stops.append(message.stop_above_us)
        outcome = _raised(self.truth(self.problem, values))
        return outcome if isinstance(outcome, Failure) else ScreenReply(message.candidate.name, _measurement(outcome))

    def _refine(self, message: Refine) -> Any:
        entrants = {candidate.name: _values(candidate.name) for candidate in message.candidates}
        self.refined.append(list(entrants.values()))
        found = {name: _measurement(_raised(self.truth(self.problem, values))) for name, values in entrants.items()}
        found = {name: replace(one, refined=True) for name, one in found.items()}
        found = dict(sorted(found.items(), key=lambda item: (item[1].time_us or 0.0, item[0])))
        ranked = sorted((one.time_us, name) for name, one in found.items() if one.time_us is not None)
        ties = tuple(name for time_us, name in ranked if time_us <= 1.005 * ranked[0][0])
        peers = {"cublas": 90.0} if "cublas" in message.peers else {}
        errors = {"cublaslt": "libcublasLt is not installed"} if "cublaslt" in message.peers else {}
        return RefineReply(found, ties, peers, errors)


class FakePool:
    """Compilers that answer at once; `verdict` makes a binary of the parameters, `limit` compilations at a poll."""

    def __init__(self, verdict: Callable[[str, Values], Binary] | None = None, *, per_poll: int = 8) -> None:
        self.verdict = verdict or (lambda digest, values: good_binary(digest))
        self.per_poll = per_poll
        self.jobs: list[Values] = []
        self.compiled = 0
        self.closed = False
        self._waiting: list[CompileJob] = []

    @property
    def pending(self) -> int:
        return len(self._waiting)

    @property
    def connections(self) -> list[Connection]:
        return []

    def start(self, jobs: int | None) -> None:
        self.started = jobs

    def submit(self, job: CompileJob) -> None:
        self.jobs.append(json.loads(job.source.splitlines()[1].removeprefix("//")))
        self._waiting.append(job)

    def poll(self, timeout: float = 0.0) -> list[Binary]:
        done, self._waiting = self._waiting[: self.per_poll], self._waiting[self.per_poll :]
        self.compiled += len(done)
        return [self.verdict(job.digest, json.loads(job.source.splitlines()[1].removeprefix("//"))) for job in done]

    def cancel_pending(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self.closed = True


def good_binary(digest: str, *, registers: int = 64, spills: int = 0) -> Binary:
    return Binary(digest, f"/cubins/{digest}", {"kt_gemm": registers}, {"kt_gemm": spills}, {"kt_gemm": 0})


def _values(name: str) -> Values:
    _, parameters, runtime = json.loads(name)
    return {**parameters, **runtime}


def _raised(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _measurement(outcome: Any) -> Measurement:
    return outcome if isinstance(outcome, Measurement) else Measurement("ok", float(outcome), 0.01, 5)


class Told(SilentObserver):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.finished: list[tuple[Problem, str]] = []
        self.started: tuple[int, int] = (0, 0)
        self.beaten: list[BestConfig] = []

    def compared(self, done: int, total: int, better: BestConfig | None) -> None:
        self.beaten += [better] if better else []

    def run_started(self, shapes: int, cached: int) -> None:
        self.started = (shapes, cached)

    def shape_finished(self, problem: Problem, best: BestConfig | None, failure: str) -> None:
        self.finished.append((problem, failure))

    def warning(self, text: str) -> None:
        self.warnings.append(text)


class Bench:
    """A folder with a space, a template and a cache, and what runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.observer = Told()
        self.gpu, self.pool = FakeGpu(), FakePool()
        (folder / "t.cu.j2").write_text(TEMPLATE)
        self.space = self.load(SPACE)

    def load(self, text: str) -> SearchSpace:
        (self.folder / "space.yaml").write_text(text)
        return load_space(self.folder / "space.yaml")

    @property
    def default(self) -> Values:
        return {name: int(value) for name, value in self.space.default.items()}

    def request(self, *problems: Problem, **changes: Any) -> TuneRequest:
        values: dict[str, Any] = {"device": catalog()["h200"], "template_dirs": (self.folder,)}
        return TuneRequest(problems, [self.space], **(values | changes))

    def tune(self, *problems: Problem, store: bool = True, **changes: Any) -> TuneResult:
        request = self.request(*problems, **changes)
        if not store:
            return self._tune(request, None)
        with Store.open(self.folder / "cache") as opened:
            return self._tune(request, opened)

    def _tune(self, request: TuneRequest, store: Store | None) -> TuneResult:
        return tune(
            request, store, self.observer, open_worker=lambda _: self.gpu, open_pool=lambda *_: self.pool
        )  # fmt: skip

    def again(self, truth: Truth = bowl) -> None:
        """Fresh children, for a second run."""
        self.gpu, self.pool, self.observer = FakeGpu(truth), FakePool(), Told()

    def key(self, problem: Problem) -> CacheKey:
        return CacheKey(problem, catalog()["h200"].identity, toolchain().label, METHOD_LABEL)

    def stored(self, problem: Problem, *, partial: bool = False) -> BestConfig | None:
        with Store.open(self.folder / "cache", read_only=True) as store:
            sources = {"simt": template_digest(self.space, (self.folder,))}
            return store.best(self.key(problem), sources, partial=partial)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


SQUARE, TALL, ODD = Problem(512, 512, 512), Problem(4096, 64, 512), Problem(513, 511, 509)


def only(result: TuneResult) -> ShapeResult:
    assert len(result.shapes) == 1
    return result.shapes[0]


def winner(shape: ShapeResult) -> BestConfig:
    assert shape.best is not None, shape.failure
    return shape.best


# What comes out


class Busy(FakeGpu):
    """Takes a moment over the finals, in which the next shape is planned."""

    pause = False

    def submit(self, message: Any, timeout_s: float) -> None:
        super().submit(message, timeout_s)
        self.pause = isinstance(message, Refine)

    def poll(self, timeout: float) -> Any:
        if self.pause:
            self.pause = False
            return None
        return super().poll(timeout)


def test_the_next_shape_begins_with_what_has_led_on_this_one(bench: Bench) -> None:
    """It is planned during the finals, when the winner is not known yet."""
    bench.gpu = Busy()
    alike = Problem(512, 512, 640)
    bench.tune(SQUARE, alike)
    leader = {"tile_m": 64, "tile_n": 128, "tile_k": 16, "stages": 2, "split_k": 1}
    assert [values for problem, values in bench.gpu.screened if problem == alike][:2] == [bench.default, leader]


def test_the_fastest_configuration_wins(bench: Bench) -> None:
    best = winner(only(bench.tune(SQUARE)))
    assert best.config.as_dict() == {"tile_m": 64, "tile_n": 128, "tile_k": 16, "stages": 2, "split_k": 1}
    assert best.measurement.refined
    assert best.measurement.time_us == pytest.approx(100.0)
    assert (best.measurement.registers, best.measurement.smem_bytes) == (64, 2 * 192 * 16 * 4)
    assert best.complete
    assert best.tried <= best.total
    assert best.default_us == pytest.approx(bowl(SQUARE, bench.default))
    assert best.launches[0].grid == 8 * 4
    assert best.floor_us is not None
    assert best.provenance["seed"] == "0"


def test_three_shapes_in_three_results_out_in_order(bench: Bench) -> None:
    """CASES G10 and C6: exact set equality between what was asked and what is answered."""
    result = bench.tune(SQUARE, TALL, ODD)
    assert [shape.problem for shape in result.shapes] == [SQUARE, TALL, ODD]
    assert all(shape.best for shape in result.shapes)
    assert [problem for problem, _ in bench.observer.finished] == [SQUARE, TALL, ODD]
    for problem in (SQUARE, TALL, ODD):
        assert bench.stored(problem) is not None


def test_one_compilation_serves_all_shapes_of_a_signature(bench: Bench) -> None:
    bench.tune(SQUARE, TALL, Problem(1024, 1024, 1024), strategy="exhaustive")
    assert len(bench.pool.jobs) == len({tuple(job.items()) for job in bench.pool.jobs})


def bowl_at(**best: int) -> Truth:
    """Microseconds: best at these choices."""

    def truth(problem: Problem, values: Values) -> float:
        return 100.0 * float(1 + 0.2 * sum(abs(values[name] / value - 1) for name, value in best.items()))

    return truth


WIDE_BEST = {"tile_m": 32, "tile_n": 128, "tile_k": 8, "stages": 2, "split_k": 1}
HIGH_BEST = {"tile_m": 128, "tile_n": 32, "tile_k": 8, "stages": 2, "split_k": 1}


def two_winners(problem: Problem, values: Values) -> float:
    """Tall problems like tall tiles, all others wide ones."""
    best = HIGH_BEST if problem.m > problem.n else WIDE_BEST
    return float(bowl_at(**best)(problem, values))


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


class UnderLoad(FakeGpu):
    """In finals, at a lower clock, everything takes longer than in a screening."""

    def _refine(self, message: Refine) -> Any:
        reply = super()._refine(message)
        slower = {name: replace(one, time_us=1.3 * (one.time_us or 0.0)) for name, one in reply.measurements.items()}
        return replace(reply, measurements=slower)


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


def test_a_finalist_keeps_what_its_screening_said(bench: Bench) -> None:
    """So that times of two clocks can be compared: of the winner, of the other finalists, and where a later run goes
    on with what this one has refined."""
    bench.gpu = UnderLoad()
    first = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=20)))).measurement
    bench.again()
    bench.gpu = UnderLoad()
    best = winner(only(bench.tune(SQUARE))).measurement
    for one in (first, best):
        assert one.refined
        assert one.time_us == pytest.approx(1.3 * (one.screened_us or 0.0))
    with Store.open(bench.folder / "cache", read_only=True) as store:
        every = store.measurements(bench.key(SQUARE)).values()
    assert {one.screened_us is not None for one in every if one.refined} == {True}
    assert {one.screened_us is not None for one in every if not one.refined} == {False}
    assert best in every


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
            order = sorted(reply.measurements, key=lambda name: _values(name) != WIDE_BEST)
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


def test_exhaustive_tries_everything(bench: Bench) -> None:
    best = winner(only(bench.tune(SQUARE, strategy="exhaustive")))
    assert best.tried == best.total == len(bench.gpu.screened)


def test_the_same_seed_makes_the_same_run(bench: Bench) -> None:
    bench.tune(SQUARE, store=False)
    first = bench.gpu.screened
    bench.again()
    bench.tune(SQUARE, store=False)
    assert bench.gpu.screened == first


def test_candidates_far_behind_are_stopped_early(bench: Bench) -> None:
    bench.tune(SQUARE)
    assert bench.gpu.stops[0] is None
    assert min(stop for stop in bench.gpu.stops if stop is not None) == pytest.approx(125.0)


def test_ties_go_to_the_simplest(bench: Bench) -> None:
    bench.gpu.truth = lambda problem, values: 50.0
    best = winner(only(bench.tune(SQUARE, strategy="exhaustive")))
    values = best.config.as_dict()
    assert (values["split_k"], values["stages"]) == (1, 2)
    assert len(best.ties) > 0


def test_the_winner_is_never_slower_than_the_default(bench: Bench) -> None:
    """CASES E7: a simpler configuration within the noise of the best does not win if the default beats it."""

    def truth(problem: Problem, values: Values) -> float:
        if values == bench.default:
            return 50.0
        return 50.2 if values["tile_m"] == 16 else 60.0

    bench.gpu.truth = truth
    best = winner(only(bench.tune(SQUARE, strategy="exhaustive")))
    assert best.default_us == 50.0
    assert best.measurement.time_us == 50.0


def test_values_at_the_edge_of_the_space_are_told(bench: Bench) -> None:
    best = winner(only(bench.tune(SQUARE)))
    assert best.edge == ("stages",)
    assert best.config.as_dict()["tile_n"] == 128  # the largest offered; 256 would not fit shared memory
    assert "split_k" not in best.edge  # 1 is a natural limit


def test_peers_are_recorded_and_a_missing_one_is_told_once(bench: Bench) -> None:
    result = bench.tune(SQUARE, TALL, peers=("cublas", "cublaslt"))
    assert winner(result.shapes[0]).baseline == {"cublas": 90.0}
    assert [text for text in bench.observer.warnings if "cublaslt" in text] == [
        "cublaslt cannot be timed: libcublasLt is not installed"
    ]


# The cache


def test_what_the_cache_knows_is_served_without_children(bench: Bench) -> None:
    first = bench.tune(SQUARE)
    bench.gpu, bench.pool = None, None  # type: ignore[assignment]
    second = bench.tune(SQUARE)
    assert only(second).cached
    assert winner(only(second)).config == winner(only(first)).config
    assert second.compiled == 0
    assert bench.observer.started == (1, 1)


def test_retune_measures_again(bench: Bench) -> None:
    bench.tune(SQUARE)
    screened = len(bench.gpu.screened)
    bench.again()
    assert not only(bench.tune(SQUARE, retune=True)).cached
    assert len(bench.gpu.screened) == screened


def test_a_stored_winner_that_is_not_valid_here_is_tuned_again(bench: Bench, make_winner: Any) -> None:
    """CASES C16: a configuration is checked where it is used."""
    too_large = bench.space.config({"tile_m": 128, "tile_n": 128, "tile_k": 16, "stages": 3, "split_k": 1})
    key = bench.key(SQUARE)
    stored = make_winner(SQUARE, config=too_large, device=key.device, toolchain=key.toolchain, method=key.method)
    sources = {"simt": template_digest(bench.space, (bench.folder,))}
    with Store.open(bench.folder / "cache") as store:
        store.put_best(replace(stored, sources=sources))
    assert bench.stored(SQUARE) is not None
    shape = only(bench.tune(SQUARE))
    assert not shape.cached
    assert winner(shape).config.as_dict()["tile_m"] == 64


def test_a_new_value_measures_new_candidates_only(bench: Bench) -> None:
    """CASES A5: widening the space does not throw away what is known."""
    bench.tune(SQUARE, strategy="exhaustive")
    known = {tuple(sorted(values.items())) for _, values in bench.gpu.screened}
    bench.space = bench.load(SPACE.replace("tile_k: [8, 16]", "tile_k: [8, 16, 32]"))
    bench.again()
    bench.tune(SQUARE, strategy="exhaustive")
    assert bench.gpu.screened
    assert {values["tile_k"] for _, values in bench.gpu.screened} == {32}
    assert not known & {tuple(sorted(values.items())) for _, values in bench.gpu.screened}


def test_a_changed_template_makes_everything_new(bench: Bench) -> None:
    bench.tune(SQUARE)
    (bench.folder / "t.cu.j2").write_text(TEMPLATE + "// changed\n")
    bench.again()
    assert not only(bench.tune(SQUARE)).cached
    assert bench.gpu.screened


def test_a_cache_that_fails_midway_ends_the_saving_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES B5: the disk fills up during the run."""

    def full(*_: Any) -> None:
        raise CacheError("database or disk is full")

    monkeypatch.setattr(Store, "put_measurement", full)
    assert only(bench.tune(SQUARE)).best is not None
    assert bench.observer.warnings == ["results are no longer saved: database or disk is full"]


# Candidates that fail


def test_failing_candidates_are_named_and_the_others_go_on(bench: Bench) -> None:
    """CASES C1, C3, C5: one candidate per kind of failure."""

    def truth(problem: Problem, values: Values) -> Any:
        kinds = {
            (16, 16): WorkerDied("crashed", "an illegal memory access was encountered"),
            (16, 32): WorkerDied("timeout", "no answer within 6 s"),
            (32, 16): Measurement("wrong_result", detail="1 of 262144 elements differs"),
            (16, 64): Measurement("launch_error", detail="too many resources requested"),
        }
        return kinds.get((values["tile_m"], values["tile_n"]), bowl(problem, values))

    bench.gpu.truth = truth
    bench.pool.verdict = lambda digest, values: (
        Binary(digest, error="t.cu(3): error: identifier is undefined")
        if values["stages"] == 3
        else good_binary(digest, spills=8 if values["tile_k"] == 8 and values["tile_m"] == 128 else 0)
    )
    result = bench.tune(SQUARE, strategy="exhaustive")
    shape = only(result)
    assert winner(shape).config.as_dict()["tile_n"] == 128
    assert {"ok", "pruned", "compile_error", "crashed", "timeout", "wrong_result", "launch_error"} == set(
        shape.statuses
    )
    assert shape.statuses["compile_error"] > 0
    assert any("identifier is undefined" in cause for cause in result.failures)
    assert "crashed: an illegal memory access was encountered" in result.failures
    assert "timeout: no answer within 6 s" in result.failures, "figures are for people to read"
    counts = list(result.failures.values())
    assert counts == sorted(counts, reverse=True)


def test_only_failures_that_last_are_taken_over(bench: Bench) -> None:
    """What was wrong stays wrong; what crashed or ran out of time is tried again."""

    def truth(problem: Problem, values: Values) -> Any:
        if values["tile_m"] == 16:
            return WorkerDied("crashed", "gone")
        return Measurement("wrong_result", detail="x") if values["tile_m"] == 32 else bowl(problem, values)

    bench.gpu.truth = truth
    bench.tune(SQUARE, strategy="exhaustive", budget=Budget(evaluations=10**6))
    with Store.open(bench.folder / "cache") as store:
        store.remove(row.id for row in store.stored())
    bench.again(truth)
    bench.tune(SQUARE, strategy="exhaustive")
    assert {values["tile_m"] for _, values in bench.gpu.screened} == {16}


def test_a_default_that_has_left_the_finals_says_nothing_by_a_better_median(bench: Bench) -> None:
    """It has lost in the same rounds; its median is of the first ones, where the GPU was at a higher clock."""

    class Throttled(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            reply = super()._refine(message)
            early = {name: one for name, one in reply.measurements.items() if _values(name) == bench.default}
            cooler = {name: replace(one, time_us=99.0) for name, one in early.items()}
            return RefineReply({**reply.measurements, **cooler}, (), {})

    bench.gpu = Throttled()
    best = winner(only(bench.tune(SQUARE)))
    assert best.measurement.time_us == pytest.approx(100.0)
    assert best.default_us is None


def test_a_default_that_is_beaten_by_another_shapes_kernel_is_timed_beside_it(bench: Bench) -> None:
    """Where it had won before: then it is in the finals in which it loses."""
    found = found_late()
    bench.gpu.truth = lambda problem, values: (
        60.0 if problem == SQUARE and values == bench.default else found(problem, values)
    )
    best = winner(bench.tune(SQUARE, TALL).shapes[0])
    assert (best.measurement.time_us, best.default_us) == (50.0, 60.0)


def test_a_default_that_spills_is_measured_all_the_same(bench: Bench) -> None:
    default = {name: bench.space.default[name] for name in bench.space.parameters}
    bench.pool.verdict = lambda digest, values: good_binary(digest, spills=16 if values == default else 0)
    assert winner(only(bench.tune(SQUARE))).default_us is not None


@pytest.mark.parametrize("device", ["measured", "modelled"])
def test_a_budget_that_ends_among_candidates_that_cannot_be_used(bench: Bench, device: str) -> None:
    """There are others, so the shape has not failed: more budget may help."""

    def excessive(digest: str, values: Values) -> Binary:
        return good_binary(digest, registers=256)

    bench.pool.verdict = excessive
    changes: dict[str, Any] = {"device": MODELLED} if device == "modelled" else {}
    result = only(bench.tune(SQUARE, budget=Budget(evaluations=2), **changes))
    assert result.untuned
    match = re.match(r"the budget ended with (\d+) of (\d+) candidates not tried: none of 2 candidates", result.failure)
    assert match
    assert int(match[2]) - int(match[1]) == 2
    assert "needs 256 registers" in result.failure
    bench.again()
    bench.pool.verdict = excessive
    result = only(bench.tune(SQUARE, **changes))
    assert not result.untuned
    assert result.failure.startswith("none of ")


def test_kernels_that_cannot_be_launched_are_pruned_with_figures(bench: Bench) -> None:
    """CASES C2 and C4: need and limit are named, and nothing is launched."""
    bench.pool.verdict = lambda digest, values: good_binary(digest, registers=256 if values["tile_n"] == 16 else 64)
    bench.tune(SQUARE, strategy="exhaustive")
    assert 16 not in {values["tile_n"] for _, values in bench.gpu.screened}
    with Store.open(bench.folder / "cache") as store:
        pruned = [one for one in store.measurements(bench.key(SQUARE)).values() if one.status == "pruned"]
    assert pruned
    assert all("needs 256 registers" in one.detail and "65536" in one.detail for one in pruned)


def test_when_all_compilations_fail_alike_the_cause_is_told_once(bench: Bench) -> None:
    """CASES C7: stops early, one message, nothing cached."""
    log = 'kt.cu(2): catastrophic error: could not open source file "cuda_fp16.h" (no directories in search list)'
    bench.pool.verdict = lambda digest, values: Binary(digest, error=log)
    with pytest.raises(CompilerUnavailable, match=r"cuda_fp16\.h"):
        bench.tune(SQUARE, TALL, strategy="exhaustive")
    assert bench.pool.compiled <= 2 * bench.pool.per_poll
    assert bench.pool.closed
    assert bench.gpu.closed
    assert bench.stored(SQUARE, partial=True) is None
    with Store.open(bench.folder / "cache") as store:
        assert store.measurements(bench.key(SQUARE)) == {}


def test_a_template_that_serves_one_format_fails_the_other_only(bench: Bench) -> None:
    """CASES F3: fp32 still tunes."""
    text = TEMPLATE.replace(
        "// {{ dtype }}", '{% if dtype == "fp64" %}#include <cuda_missing.h>{% endif %}// {{ dtype }}'
    )
    (bench.folder / "t.cu.j2").write_text(text)
    double = Problem(512, 512, 512, "fp64")
    result = bench.tune(double, SQUARE)
    assert result.shapes[0].best is None
    assert "cuda_missing.h" in result.shapes[0].failure
    assert result.shapes[1].best is not None


def test_a_broken_template_is_told_once_with_its_line(bench: Bench) -> None:
    (bench.folder / "t.cu.j2").write_text("{{ tile_q }}")
    with pytest.raises(InputError, match=r"t\.cu\.j2:1.*tile_q"):
        bench.tune(SQUARE, TALL)
    assert bench.gpu.closed


def test_a_reference_that_nothing_agrees_with_is_suspect(bench: Bench) -> None:
    """CASES D6."""
    bench.gpu.truth = lambda problem, values: Measurement("wrong_result", detail="all elements differ")
    shape = only(bench.tune(SQUARE))
    assert shape.best is None
    assert "the reference is suspect" in shape.failure
    assert len(bench.gpu.screened) < 40
    assert bench.stored(SQUARE, partial=True) is None


def test_one_wrong_kernel_says_nothing_of_the_reference(bench: Bench) -> None:
    bench.gpu.truth = lambda problem, values: Measurement("wrong_result", detail="all elements differ")
    shape = only(bench.tune(SQUARE, budget=Budget(evaluations=1)))
    assert "1 wrong_result; for example: all elements differ" in shape.failure
    assert "suspect" not in shape.failure


def test_a_finalist_that_fails_in_full_makes_room_for_the_next(bench: Bench) -> None:
    """The exact pass of the screening cannot see everything; the full verification decides."""
    screened = FakeGpu()

    class Strict(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            self.truth = lambda problem, values: (
                Measurement("wrong_result", detail="last column") if values["tile_n"] == 128 else bowl(problem, values)
            )
            return super()._refine(message)

    assert screened.truth is bowl
    bench.gpu = Strict()
    best = winner(only(bench.tune(SQUARE)))
    assert best.config.as_dict()["tile_n"] != 128


def test_who_left_the_finals_early_does_not_win_by_the_median_of_cooler_rounds(bench: Bench) -> None:
    """Times are compared within rounds; the order that the rounds gave stands, whatever the medians are."""

    class Throttled(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            reply = super()._refine(message)
            first, *left = reply.measurements
            slow = replace(reply.measurements[first], time_us=10 * (reply.measurements[first].time_us or 0.0))
            return RefineReply({first: slow, **{name: reply.measurements[name] for name in left}}, (), {})

    undisturbed = winner(only(bench.tune(SQUARE)))
    bench.gpu = Throttled()
    best = winner(only(bench.tune(SQUARE, retune=True)))
    assert best.config == undisturbed.config
    assert best.measurement.time_us == pytest.approx(10 * (undisturbed.measurement.time_us or 0.0))


@pytest.mark.parametrize("named", [True, False])
def test_a_finalist_that_ends_the_worker_is_dropped(bench: Bench, named: bool) -> None:
    class Fatal(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            for candidate in message.candidates:
                if _values(candidate.name)["tile_n"] == 128:
                    raise WorkerDied("crashed", "misaligned address", candidate.name if named else "")
            return super()._refine(message)

    bench.gpu = Fatal()
    shape = only(bench.tune(SQUARE))
    assert winner(shape).config.as_dict()["tile_n"] != 128
    assert shape.statuses["crashed"] >= 1


# Shapes that fail


def test_a_space_that_prunes_to_nothing_is_a_named_failure(bench: Bench) -> None:
    """CASES G11: no entry with an empty configuration."""
    bench.space = bench.load(SPACE.replace("smem_bytes <= 30000", "smem_bytes <= m - 512"))
    result = bench.tune(SQUARE, Problem(65536, 64, 64))
    assert result.shapes[0].best is None
    assert "smem_bytes <= m - 512" in result.shapes[0].failure
    assert "shared memory of one block" in result.shapes[0].failure
    assert result.shapes[1].best is not None
    assert bench.stored(SQUARE, partial=True) is None


def test_a_format_that_no_family_serves_is_a_named_failure(bench: Bench) -> None:
    result = bench.tune(Problem(64, 64, 64, "bf16"), SQUARE)
    assert "no kernel family serves bf16" in result.shapes[0].failure
    assert "simt serves fp32, fp64" in result.shapes[0].failure
    assert result.shapes[1].best is not None


def test_what_nothing_serves_is_not_told_as_cached(bench: Bench) -> None:
    """The observer hears of every shape that has no winner in the cache, also of one that no family serves."""
    unserved = Problem(64, 64, 64, "bf16")
    bench.tune(SQUARE)
    bench.observer.finished.clear()
    result = bench.tune(unserved, SQUARE)
    assert bench.observer.started == (2, 1)
    assert bench.observer.finished == [(unserved, result.shapes[0].failure)]


def test_a_shape_that_does_not_fit_is_refused_with_figures(bench: Bench) -> None:
    """CASES C11: marked without trying; the next one is tuned."""
    huge = Problem(200_000, 200_000, 200_000)
    result = bench.tune(huge, SQUARE)
    assert result.shapes[0].failure.startswith("out of memory: needs 447.0 GiB")
    assert "139.8 GiB" in result.shapes[0].failure
    assert result.shapes[1].best is not None
    assert {problem for problem, _ in bench.gpu.screened} == {SQUARE}


@pytest.mark.parametrize("modelled", [False, True])
def test_the_model_refuses_what_a_measurement_would(bench: Bench, modelled: bool) -> None:
    """What cannot exist on the device is not predicted either; a plan says so too, and nothing is compiled for it."""
    huge, device = Problem(200_000, 200_000, 200_000), replace(catalog()["h200"], modelled=modelled)
    failure = "out of memory: needs 447.0 GiB for its operands; NVIDIA H200 has 139.8 GiB"
    assert only(bench.tune(huge, device=device)).failure == failure
    assert plan(bench.request(huge, device=device)).shapes[0].failure == failure
    assert bench.pool.jobs == []


def test_a_candidate_whose_workspace_does_not_fit_is_not_ranked(bench: Bench) -> None:
    """Operands of 128 GiB fit, slices of further 64 GiB do not: the failure has both figures."""
    bench.space = bench.load(SPACE.replace("split_k: [1, 2, 4]", "split_k: [1, 4]"))
    problem = Problem(65536, 65536, 229376)
    device = replace(catalog()["h200"], modelled=True)
    shape = only(bench.tune(problem, device=device))
    assert winner(shape).config.as_dict()["split_k"] == 1
    with Store.open(bench.folder / "cache") as store:  # as an older kt would have left it
        store.put_best(replace(winner(shape), workspace_bytes=4 * 65536 * 65536 * 4))
    bench.again()
    assert not only(bench.tune(problem, device=device)).cached
    bench.again()
    bench.space = bench.load(SPACE.replace("split_k: [1, 2, 4]", "split_k: [4]").replace("split_k: 1}", "split_k: 4}"))
    shape = only(bench.tune(problem, device=device))
    assert shape.best is None
    assert "out_of_memory" in shape.failure
    assert "needs 128.0 GiB for its operands and 64.0 GiB of workspace; NVIDIA H200 has 139.8 GiB" in shape.failure


def test_the_workers_own_refusal_is_passed_on(bench: Bench) -> None:
    bench.gpu.prepare = lambda problem: (
        Failure("out_of_memory", "needs 30.0 GiB, 12.1 GiB free of 139.8 GiB") if problem == TALL else None
    )
    result = bench.tune(TALL, SQUARE)
    assert result.shapes[0].failure == "out of memory: needs 30.0 GiB, 12.1 GiB free of 139.8 GiB"
    assert result.shapes[1].best is not None


def test_a_worker_that_dies_over_one_shape_costs_that_shape(bench: Bench) -> None:
    deaths: list[Problem] = []

    def prepare(problem: Problem) -> Any:
        if problem == TALL:
            deaths.append(problem)
            return WorkerDied("crashed", "ended by SIGKILL")
        return None

    bench.gpu.prepare = prepare
    result = bench.tune(SQUARE, TALL, ODD)
    assert [bool(shape.best) for shape in result.shapes] == [True, False, True]
    assert "SIGKILL" in result.shapes[1].failure
    assert len(deaths) == 2  # a second chance, and no third


def test_a_worker_that_never_starts_ends_the_run(bench: Bench) -> None:
    bench.gpu.prepare = lambda problem: WorkerDied("crashed", "ended with exit code 1: No module named 'cupy'")
    with pytest.raises(NoUsableGpu, match="No module named 'cupy'") as caught:
        bench.tune(SQUARE, TALL)
    assert caught.value.hint
    assert bench.gpu.closed
    assert bench.pool.closed


# Budgets and interrupts


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


def test_eight_processes_share_one_cache(bench: Bench) -> None:
    """CASES B1: all shapes present and valid, and nobody fails."""
    problems = [Problem(256 * size, 256, 512) for size in range(1, 5)]
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=bench.tune, args=(*problems[turn % 4 :], *problems[: turn % 4])) for turn in range(8)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * 8
    for problem in problems:
        stored = bench.stored(problem)
        assert stored is not None
        assert stored.complete


def test_without_a_store_nothing_is_kept(bench: Bench) -> None:
    assert winner(only(bench.tune(SQUARE, store=False))).complete
    assert not (bench.folder / "cache").exists()


def test_what_was_launched_otherwise_is_measured_again(bench: Bench) -> None:
    """A mended grid is no other source, but another run: wrong results of the old one do not hold."""
    bench.space = bench.load(SPACE.replace("cdiv(n, tile_n)", "(n // tile_n)"))
    bench.gpu = FakeGpu(lambda problem, values: Failure("wrong_result", "differs"))
    assert only(bench.tune(ODD)).best is None
    bench.space = bench.load(SPACE)
    bench.again()
    assert winner(only(bench.tune(ODD))).complete


def without(kernel: str, *there: str) -> Callable[[str, Values], Binary]:
    """Compilers whose binaries have other kernels than `kernel`."""
    assert kernel not in there
    names = dict.fromkeys(there, 64)
    return lambda digest, values: Binary(digest, f"/cubins/{digest}", names, dict.fromkeys(there, 0), names)


@pytest.mark.parametrize("modelled", [False, True])
def test_a_binary_without_a_kernel_to_launch_is_a_failure_with_names(bench: Bench, modelled: bool) -> None:
    """Nothing is launched, ranked or kept; the cause names the kernel, those that are there, and the source."""
    bench.pool.verdict = without("kt_gemm", "kt_gem", "kt_other")
    with pytest.raises(NoValidConfiguration) as caught:
        bench.tune(SQUARE, device=replace(catalog()["h200"], modelled=modelled))
    assert "no kernel kt_gemm, which `launches` names; its kernels are: kt_gem, kt_other" in caught.value.message
    assert str(bench.folder / "cache" / "failures") in caught.value.message
    assert not bench.gpu.screened
    assert len(bench.pool.jobs) <= 40  # given up, not tried to the end


def test_only_candidates_that_launch_the_missing_kernel_fail(bench: Bench) -> None:
    reduce = '  - {kernel: kt_reduce, when: split_k > 1, grid: "1", block: 128}\nworkspace_bytes'
    bench.space = bench.load(SPACE.replace("workspace_bytes", reduce))
    shape = only(bench.tune(SQUARE))
    assert winner(shape).config.as_dict()["split_k"] == 1
    assert shape.statuses["compile_error"] > 0
    assert {values["split_k"] for _, values in bench.gpu.screened} == {1}


def test_a_finalist_of_an_earlier_run_needs_its_kernels_too(bench: Bench) -> None:
    """Its time is taken over, its binary is not trusted: the launches of the space may have changed."""
    bench.tune(SQUARE, budget=Budget(evaluations=8))
    bench.again()
    bench.pool.verdict = without("kt_gemm", "kt_gem")
    with pytest.raises(NoValidConfiguration, match="no kernel kt_gemm"):
        bench.tune(SQUARE, budget=Budget(evaluations=8))
    assert not bench.gpu.refined


# The modelled device


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


MODELLED = replace(catalog()["h200"], modelled=True)


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
