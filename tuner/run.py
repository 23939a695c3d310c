"""`tune`: from problems to winners. What the cache knows is not tuned again; the rest is measured or predicted."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import kt
from kt.cache.records import CacheKey
from kt.cache.validity import SPACE
from kt.search_spaces.launch import violated
from kt.tuner.clock import Clock, check_budget
from kt.tuner.method import METHOD_LABEL
from kt.tuner.neighbours import Neighbours
from kt.tuner.refusal import common_error, refusal, too_large
from kt.tuner.request import MODEL_METHOD, ShapeResult, TuneRequest, TuneResult
from kt.tuner.toolchain import check_target, toolchain

if TYPE_CHECKING:
    from kt.cache.records import BestConfig
    from kt.cache.store import Store
    from kt.errors import KtError
    from kt.problems import Problem
    from kt.search_spaces.space import SearchSpace
    from kt.tuner.compilation import Compilation, Pool
    from kt.tuner.cubin_cache import CubinCache
    from kt.tuner.gpu_access import WorkerLike
    from kt.tuner.observer import Observer
    from kt.tuner.record import Recorder

__all__ = ["stored_best", "tune"]

OpenWorker = Callable[[TuneRequest], "WorkerLike"]
OpenPool = Callable[[TuneRequest, "CubinCache", Callable[[str], None]], "Pool"]


class Run(Protocol):
    """A run over the shapes that wait: on the GPU, or on the model."""

    waiting: deque[Problem]
    errors: list[KtError]

    def next_shape(self) -> ShapeResult: ...
    def partial(self, problem: Problem) -> ShapeResult: ...
    def compare(self, tuned: Sequence[BestConfig], others: Sequence[BestConfig]) -> Iterable[BestConfig]: ...


def _open_worker(request: TuneRequest) -> WorkerLike:
    from kt.tuner.worker import Worker

    return Worker(request.device.ordinal)


def _open_pool(request: TuneRequest, cubins: CubinCache, warn: Callable[[str], None]) -> Pool:
    from kt.tuner.compile_pool import CompilePool

    return CompilePool(request.compilers, cubins, request.compile_limit_s, warn=warn)


def tune(
    request: TuneRequest,
    store: Store | None,
    observer: Observer,
    *,
    open_worker: OpenWorker = _open_worker,
    open_pool: OpenPool = _open_pool,
) -> TuneResult:
    """Find the fastest configuration for every problem of `request`.

    Every problem ends as a winner or as a failure with its cause, and none stops the others. Ctrl-C ends the run with
    what there is. Each measurement is stored when it is made; with `store` None nothing is kept.

    Raises:
        InputError: the budget allows nothing.
        NoUsableGpu: the worker cannot start on the GPU.
        CompilerUnavailable: there is no compiler for the device.
        KtError: every shape failed, all for this one cause.
    """
    check_budget(request.budget)
    if request.without_effect:
        observer.warning(request.without_effect)
    clock = Clock(request.budget.seconds)
    results = _look_up(request, store)
    waiting = deque(problem for problem in (*request.problems, *request.unseen) if problem not in results)
    cached = sum(result.cached for result in results.values())
    observer.run_started(len(results) + len(waiting), cached, len(request.unseen))
    for problem, result in results.items():
        if not result.cached:
            observer.shape_finished(problem, None, result.failure)
    if not waiting:
        return _result(request, results, clock)
    from kt.tuner.cubin_cache import CubinCache  # here, for a run that the cache answers has no use for it

    check_target(toolchain(), request.device.arch, request.device.driver)
    with ExitStack() as children:
        folder = store.file.parent if store else Path(children.enter_context(tempfile.TemporaryDirectory()))
        cubins = CubinCache(folder)
        children.callback(cubins.close)
        compilation = _compilation(request, observer, cubins, open_pool)
        children.callback(compilation.close)
        compilation.start(request.budget.evaluations)
        recorder = _recorder(request, store, observer)
        children.callback(recorder.finish)
        run = _run(request, clock, recorder, compilation, waiting, _neighbours(results), open_worker, children)
        interrupted = _work(run, results, observer)
    if error := common_error(run.errors, len(results)):
        raise error
    recorder.failures.update(compilation.failure_counts())
    return replace(
        _result(request, results, clock),
        failures=recorder.failures.counts(),
        compiled=compilation.compiled,
        interrupted=interrupted,
    )


def _look_up(request: TuneRequest, store: Store | None) -> dict[Problem, ShapeResult]:
    """The problems that need no work: a winner is in the cache, or they cannot be tuned on this device at all."""
    results = {}
    for problem in (*request.problems, *request.unseen):
        unseen = problem in request.unseen
        if failure := refusal(request, problem):
            results[problem] = ShapeResult(problem, None, failure)
        elif store and not request.retune and (best := stored_best(request, store, problem, partial=unseen)):
            results[problem] = ShapeResult(problem, best, cached=True)
    return results


def stored_best(request: TuneRequest, store: Store, problem: Problem, *, partial: bool = False) -> BestConfig | None:
    """The winner in the cache, if it is valid here: a configuration is checked again wherever it is used.

    With `partial`, the winner of a search that did not end by itself will do where there is no other.
    """
    key = CacheKey(problem, request.device.identity, toolchain().label, _method(request))
    spaces = {space.family: space for space in request.spaces_for(problem)}
    sources = _sources(request, spaces.values())
    store.expect(spaces, sources)
    best = store.best(key, sources, partial=partial)
    if best is None or too_large(problem, request.device, best.workspace_bytes):
        return None
    names = {**request.device.names(), **problem.names()}
    return best if violated(spaces[best.config.family], best.config, names) is None else None


def _sources(request: TuneRequest, spaces: Iterable[SearchSpace]) -> dict[str, str]:
    return {space.family: request.sources[space.family] for space in spaces}


def _method(request: TuneRequest) -> str:
    return MODEL_METHOD if request.device.modelled else METHOD_LABEL


def _compilation(request: TuneRequest, observer: Observer, cubins: CubinCache, open_pool: OpenPool) -> Compilation:
    from kt.tuner.compilation import Compilation

    return Compilation(
        request.device.arch,
        lambda: open_pool(request, cubins, observer.warning),
        request.template_dirs,
        observer.compiled,
        cubins.cache_dir / "failures",
    )


def _recorder(request: TuneRequest, store: Store | None, observer: Observer) -> Recorder:
    from kt.tuner.record import Recorder

    driver = request.device.driver
    provenance = {
        "kt": kt.__version__,
        "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}" if driver else "",
        "strategy": "shortlist" if request.device.modelled else request.strategy,
        "seed": str(request.seed),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if request.space:
        provenance[SPACE] = request.space
    return Recorder(
        store, observer, toolchain().label, _method(request), request.sources, provenance, resume=not request.retune
    )


def _run(
    request: TuneRequest,
    clock: Clock,
    recorder: Recorder,
    compilation: Compilation,
    waiting: deque[Problem],
    neighbours: Neighbours,
    open_worker: OpenWorker,
    children: ExitStack,
) -> Run:
    if request.device.modelled:
        from kt.tuner.run_predicted import PredictedRun

        return PredictedRun(request, compilation, clock, recorder, waiting)
    from kt.tuner.gpu_access import GpuAccess
    from kt.tuner.run_measured import MeasuredRun

    worker = open_worker(request)
    children.callback(worker.close)
    return MeasuredRun(request, GpuAccess(worker, compilation), clock, recorder, waiting, neighbours)


def _neighbours(results: Mapping[Problem, ShapeResult]) -> Neighbours:
    """What the cache knows of other problems that were asked for."""
    return Neighbours({problem: result.best.config for problem, result in results.items() if result.best})


def _work(run: Run, results: dict[Problem, ShapeResult], observer: Observer) -> bool:
    """Bring every waiting problem to its end; True if Ctrl-C came before."""
    while run.waiting:
        problem = run.waiting[0]
        try:
            results[problem] = result = run.next_shape()
        except KeyboardInterrupt:
            results[problem] = run.partial(problem)
            results.update((left, ShapeResult(left, None, "interrupted", untuned=True)) for left in run.waiting)
            return True
        observer.shape_finished(problem, result.best, result.failure)
    try:
        _compare(run, results)
    except KeyboardInterrupt:
        return True
    return False


def _compare(run: Run, results: dict[Problem, ShapeResult]) -> None:
    """Every shape that was tuned meets the kernels of the others."""
    found = [shape.best for shape in results.values() if shape.best is not None and not shape.cached]
    others = [shape.best for shape in results.values() if shape.best is not None and shape.cached]
    for better in run.compare(found, others):
        results[better.key.problem] = replace(results[better.key.problem], best=better)


def _result(request: TuneRequest, results: Mapping[Problem, ShapeResult], clock: Clock) -> TuneResult:
    listed, unseen = (
        tuple(results[problem] for problem in problems) for problems in (request.problems, request.unseen)
    )
    return TuneResult(listed, seconds=clock.elapsed, unseen=unseen)
