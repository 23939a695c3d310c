"""Tuning on a real GPU: each shape is prepared, its candidates compiled, screened and refined, one shape at a time.

The GPU is the scarce thing. So compilers work while it measures, the first kernels of the next shape are compiled while
the finalists of this one are refined, and a candidate is given up as soon as it is clearly behind the best.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kt.cache.records import Measurement
from kt.errors import KtError, NoUsableGpu
from kt.tuner.comparison import Comparison
from kt.tuner.finals import REFINE_S, Finals, screened
from kt.tuner.messages import Failure, Prepare, Screen
from kt.tuner.neighbours import Neighbours
from kt.tuner.record import Recorder
from kt.tuner.request import ShapeResult
from kt.tuner.shape_plan import plan_shape
from kt.tuner.shape_run import ShapeFailed, ShapeRun, Trial
from kt.tuner.worker import WorkerDied

if TYPE_CHECKING:
    from kt.cache.records import BestConfig
    from kt.problems import Problem
    from kt.tuner.clock import Clock
    from kt.tuner.gpu_access import GpuAccess
    from kt.tuner.request import TuneRequest

__all__ = ["MeasuredRun"]

PREPARE_LIMIT_S = 180.0  # operands and reference of the largest problem
SCREEN_LIMIT_S = 6.0  # after which the worker is ended, besides this many times the best time so far, or predicted:
SCREEN_LIMIT_TIMES = 500
STOP_ABOVE = 1.25  # of the best so far: a candidate that one run finds slower than this has lost
WAIT_S = 0.1
BRIEF_SHARE = 0.2  # of the time of a listed shape, that one has which stands for others


@dataclass
class MeasuredRun:
    """One run over several shapes.

    Attributes:
        waiting: the problems that have not begun.
        neighbours: what won on other problems, of this run and as the cache knows them.
        errors: of shapes that failed for a cause that may be common to all.
    """

    request: TuneRequest
    gpu: GpuAccess
    clock: Clock
    recorder: Recorder
    waiting: deque[Problem]
    neighbours: Neighbours = field(default_factory=Neighbours)
    errors: list[KtError] = field(default_factory=list)
    _current: ShapeRun | None = None
    _planned: dict[Problem, ShapeRun | ShapeFailed] = field(default_factory=dict)
    _gpu_works: bool = False

    def next_shape(self) -> ShapeResult:
        """Tune the first of the waiting problems to its end: a winner, or a failure that says why."""
        problem = self.waiting.popleft()
        self.clock.begin_shape(self._share_of_others(problem))
        self._current = None
        try:
            best = self._tune(problem)
        except ShapeFailed as failed:
            return self._failure(problem, failed)
        except WorkerDied as died:
            return self._failure(problem, ShapeFailed(f"the GPU worker {died.status}: {died.detail}"))
        return ShapeResult(problem, best, statuses=self._statuses())

    def partial(self, problem: Problem) -> ShapeResult:
        """What is known of the shape that was interrupted; its best so far is stored as incomplete."""
        shape = self._current
        if shape is None or shape.candidates.problem != problem or shape.best_us is None:
            return ShapeResult(problem, None, "interrupted", untuned=True, statuses=self._statuses())
        shape.cut_short = True
        best = self.recorder.best(shape, screened(shape))
        return ShapeResult(problem, best, untuned=True, statuses=self._statuses())

    def compare(self, tuned: Sequence[BestConfig], others: Sequence[BestConfig]) -> Iterator[BestConfig]:
        """Time the shapes that were tuned with each other's kernels and those of `others`; yields what has changed.

        A person who limits the candidates of each shape wants no others; and without a cache, nothing would be left.
        """
        wanted = self.request.strategy == "auto" and self.request.budget.evaluations is None
        if wanted and self.recorder.store and len(tuned) + len(others) > 1:
            yield from Comparison(self.request, self.gpu, self.clock, self.recorder, (*tuned, *others)).run(tuned)

    def _tune(self, problem: Problem) -> BestConfig:
        if self.clock.left <= 0:
            raise ShapeFailed("the budget ended before this shape", untuned=True)
        message = Prepare(problem, self.request.seed, self.request.peers)
        self.gpu.begin(message, PREPARE_LIMIT_S)
        try:
            shape = self._current = self._shape(problem)
        except ShapeFailed:
            self.gpu.abandon()
            raise
        self.recorder.observer.shape_started(problem, shape.search.likely)
        self._prepared(message)
        self._screen(shape)
        best = self._decide(shape)
        self.neighbours.add(problem, best.config)
        return best

    def _share_of_others(self, problem: Problem) -> float:
        """How many shapes like this one the time is shared with, that wait."""
        brief = sum(one in self.request.unseen for one in self.waiting)
        if problem in self.request.unseen:
            return brief
        return len(self.waiting) - brief + BRIEF_SHARE * brief

    # Planning

    def _shape(self, problem: Problem) -> ShapeRun:
        """The shape with its first candidates at the compilers."""
        planned = self._planned.pop(problem, None) or self._plan(problem)
        if isinstance(planned, ShapeFailed):
            raise planned
        planned.ask_again(self.gpu.compilation)
        return planned

    def _plan(self, problem: Problem) -> ShapeRun | ShapeFailed:
        winners = self.neighbours.nearest(problem)
        return plan_shape(self.request, self.recorder, self.gpu.compilation, problem, winners)

    def _plan_ahead(self) -> None:
        """Give idle compilers the first candidates of the next shape."""
        if not self.waiting or self.waiting[0] in self._planned or self.gpu.compilation.pending:
            return
        self._planned[self.waiting[0]] = self._plan(self.waiting[0])

    # On the GPU

    def _prepared(self, message: Prepare) -> None:
        """Wait until the problem is ready on the GPU; a worker that dies over it gets a second chance."""
        try:
            reply = self.gpu.reply()
        except WorkerDied as died:
            if not self._gpu_works:
                text = f"the GPU worker cannot start: {died.detail}"
                raise NoUsableGpu(text, hint="`kt doctor` checks GPU, driver and CuPy") from died
            reply = self.gpu.ask(message, PREPARE_LIMIT_S)
        self._gpu_works = True
        if isinstance(reply, Failure):
            raise ShapeFailed(f"{reply.status.replace('_', ' ')}: {reply.detail}")

    def _screen(self, shape: ShapeRun) -> None:
        """Measure candidates until the search ends, the shape's time is over, or all fail alike."""
        compilation = self.gpu.compilation
        reserve = min(REFINE_S, 0.25 * self.clock.shape_left)
        while not shape.all_alike():
            shape.take_binaries(compilation)
            self._give_up_if_hopeless(shape)
            if self._time_is_over(shape, reserve):
                shape.cut_short = True
                compilation.cancel()
                return
            more = shape.unfinished <= shape.search.ahead and shape.propose(compilation)
            trial = shape.next_ready()
            if trial is not None:
                shape.finish(trial, self._measure(shape, trial))
            elif shape.waiting:
                compilation.collect(WAIT_S)
            elif not more:
                return

    def _time_is_over(self, shape: ShapeRun, reserve: float) -> bool:
        """A shape without any time yet goes on while the run has some: the first one waits for all to start, too."""
        return (self.clock.left if shape.best_us is None else self.clock.shape_left) <= reserve

    def _give_up_if_hopeless(self, shape: ShapeRun) -> None:
        error = self.gpu.compilation.hopeless(shape.candidates.problem.signature)
        if error is not None:
            self.gpu.compilation.cancel()
            raise ShapeFailed(error.message, error=error)

    def _measure(self, shape: ShapeRun, trial: Trial) -> Measurement:
        best = shape.best_us
        message = Screen(trial.message, best * STOP_ABOVE if best is not None else None)
        fastest = best if best is not None else float(shape.candidates.sample.predicted.min())
        limit = SCREEN_LIMIT_S + SCREEN_LIMIT_TIMES * fastest / 1e6
        try:
            reply = self.gpu.ask(message, min(limit, max(1.0, self.clock.left)))
        except WorkerDied as died:
            return Measurement(died.status, detail=died.detail)
        if isinstance(reply, Failure):
            return Measurement(reply.status, detail=reply.detail)  # type: ignore[arg-type]
        measurement: Measurement = reply.measurement
        return measurement

    def _decide(self, shape: ShapeRun) -> BestConfig:
        """Refine the best few, or take the best as it stands: if there is no time left, or it stands for others."""
        unseen = shape.candidates.problem in self.request.unseen
        if unseen or self.clock.shape_left <= 0:
            shape.cut_short = True
            return self.recorder.best(shape, screened(shape), unseen=unseen)
        if timed := shape.timed():  # as yet: the next shape is planned during the finals, and is often like this one
            self.neighbours.add(shape.candidates.problem, timed[0].config)
        return self.recorder.best(
            shape, Finals(self.gpu, self.clock, shape, self.request.peers, self._plan_ahead).run()
        )

    def _failure(self, problem: Problem, failed: ShapeFailed) -> ShapeResult:
        if failed.error:
            self.errors.append(failed.error)
        return ShapeResult(problem, None, failed.cause, untuned=failed.untuned, statuses=self._statuses())

    def _statuses(self) -> dict[str, int]:
        return self._current.statuses() if self._current else {}
