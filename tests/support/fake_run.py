"""A run of `tune` with a worker and compilers that only pretend, and what a test asks of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.devices.catalog import catalog
from kt.problems import Problem
from kt.search_spaces.loader import load_space
from kt.search_spaces.space import SearchSpace
from kt.templates.digest import template_digest
from kt.tuner.messages import Binary, CompileJob, Failure, Prepare, Prepared, Refine, RefineReply, Screen, ScreenReply
from kt.tuner.method import METHOD_LABEL
from kt.tuner.observer import SilentObserver
from kt.tuner.request import ShapeResult, TuneRequest, TuneResult
from kt.tuner.run import tune
from kt.tuner.toolchain import toolchain

__all__ = [
    "HIGH_BEST",
    "MODELLED",
    "ODD",
    "SPACE",
    "SQUARE",
    "TALL",
    "TEMPLATE",
    "WIDE_BEST",
    "Bench",
    "FakeGpu",
    "FakePool",
    "Told",
    "Truth",
    "UnderLoad",
    "Values",
    "bowl",
    "bowl_at",
    "good_binary",
    "only",
    "two_winners",
    "values_of",
    "winner",
]

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
        values = values_of(message.candidate.name)
        self.screened.append((self.problem, values))
        self.stops.append(message.stop_above_us)
        outcome = _raised(self.truth(self.problem, values))
        return outcome if isinstance(outcome, Failure) else ScreenReply(message.candidate.name, _measurement(outcome))

    def _refine(self, message: Refine) -> Any:
        entrants = {candidate.name: values_of(candidate.name) for candidate in message.candidates}
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


def values_of(name: str) -> Values:
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

    def run_started(self, shapes: int, cached: int, unseen: int = 0) -> None:
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


SQUARE, TALL, ODD = Problem(512, 512, 512), Problem(4096, 64, 512), Problem(513, 511, 509)


def only(result: TuneResult) -> ShapeResult:
    assert len(result.shapes) == 1
    return result.shapes[0]


def winner(shape: ShapeResult) -> BestConfig:
    assert shape.best is not None, shape.failure
    return shape.best


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


class UnderLoad(FakeGpu):
    """In finals, at a lower clock, everything takes longer than in a screening."""

    def _refine(self, message: Refine) -> Any:
        reply = super()._refine(message)
        slower = {name: replace(one, time_us=1.3 * (one.time_us or 0.0)) for name, one in reply.measurements.items()}
        return replace(reply, measurements=slower)


MODELLED = replace(catalog()["h200"], modelled=True)
