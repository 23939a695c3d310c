"""Tuning for a GPU that is not here: compile for it, and rank by the model with the compiler's real figures.

Nothing runs, so nothing is verified: every result says `predicted`, has the model as its method, and is never put
before a measured one. A ranking that a budget cut short is kept as not complete; the next run goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kt.cache.records import BestConfig, Measurement
from kt.errors import KtError
from kt.tuner.finals import Decision
from kt.tuner.pruning import resources
from kt.tuner.record import Recorder
from kt.tuner.refusal import too_large
from kt.tuner.request import ShapeResult
from kt.tuner.shape_plan import plan_shape
from kt.tuner.shape_run import ShapeFailed, ShapeRun, Trial
from kt.tuner.winner import pick

if TYPE_CHECKING:
    from kt.problems import Problem
    from kt.tuner.clock import Clock
    from kt.tuner.compilation import Compilation
    from kt.tuner.request import TuneRequest

__all__ = ["PredictedRun"]

AHEAD = 3  # shapes whose kernels are at the compilers together
TIE = 0.001  # predictions closer than this are one and the same
WAIT_S = 0.1


@dataclass
class PredictedRun:
    """One run over several shapes on a modelled device.

    Attributes:
        waiting: the problems that have not begun.
        errors: of shapes that failed for a cause that may be common to all.
    """

    request: TuneRequest
    compilation: Compilation
    clock: Clock
    recorder: Recorder
    waiting: deque[Problem]
    errors: list[KtError] = field(default_factory=list)
    _planned: dict[Problem, ShapeRun | ShapeFailed] = field(default_factory=dict)
    _current: ShapeRun | None = None

    def next_shape(self) -> ShapeResult:
        """Rank the candidates of the first waiting problem, if there is time: to enumerate them takes some, too."""
        for problem in list(self.waiting)[:AHEAD]:
            if problem not in self._planned and self.clock.left > 0:
                self._planned[problem] = plan_shape(self.request, self.recorder, self.compilation, problem)
        problem = self.waiting.popleft()
        shape = self._planned.pop(problem, None) or _too_late()
        try:
            return self._rank(problem, shape)
        except ShapeFailed as failed:
            if failed.error:
                self.errors.append(failed.error)
            statuses = shape.statuses() if isinstance(shape, ShapeRun) else {}
            return ShapeResult(problem, None, failed.cause, untuned=failed.untuned, statuses=statuses)

    def compare(self, tuned: Sequence[BestConfig], others: Sequence[BestConfig]) -> tuple[BestConfig, ...]:
        """Nothing: the model has ranked every candidate already."""
        return ()

    def partial(self, problem: Problem) -> ShapeResult:
        """The best so far of the shape that was interrupted, stored as incomplete, as when a budget ends."""
        shape = self._current
        if shape is None or shape.candidates.problem != problem:
            return ShapeResult(problem, None, "interrupted", untuned=True)
        if not shape.timed():
            return ShapeResult(problem, None, "interrupted", untuned=True, statuses=shape.statuses())
        shape.cut_short = True
        best = self.recorder.best(shape, self._decide(shape))
        return ShapeResult(problem, best, untuned=True, statuses=shape.statuses())

    def _rank(self, problem: Problem, shape: ShapeRun | ShapeFailed) -> ShapeResult:
        if isinstance(shape, ShapeFailed):
            raise shape
        if self.clock.left <= 0:
            raise _too_late()
        self._current = shape
        self.recorder.observer.shape_started(problem, shape.search.likely)
        self._work(shape)
        best = self.recorder.best(shape, self._decide(shape))
        return ShapeResult(problem, best, statuses=shape.statuses())

    def _work(self, shape: ShapeRun) -> None:
        """Compile and predict until the search ends or the time is over."""
        while not shape.idle or shape.propose(self.compilation):
            self.compilation.collect(WAIT_S)
            self._predict_compiled(shape)
            error = self.compilation.hopeless(shape.candidates.problem.signature)
            if error is not None:
                raise ShapeFailed(error.message, error=error)
            if self.clock.left <= 0 and not shape.idle:
                shape.cut_short = True
                self.compilation.cancel()
                return

    def _predict_compiled(self, shape: ShapeRun) -> None:
        shape.take_binaries(self.compilation)
        while (trial := shape.next_ready()) is not None:
            shape.finish(trial, self._predicted(shape, trial))

    def _predicted(self, shape: ShapeRun, trial: Trial) -> Measurement:
        """The model's time with the registers that the compiler reports; none for what would not fit the device."""
        excess = too_large(shape.candidates.problem, self.request.device, trial.workspace_bytes)
        if excess:
            return Measurement("out_of_memory", detail=excess)
        time_us = shape.candidates.predicted_us(trial.number, _registers(trial))
        return Measurement("ok", time_us=time_us, predicted=True)

    def _decide(self, shape: ShapeRun) -> Decision:
        """The best predicted, which may be one of several at the roofline; among equal predictions the simplest."""
        timed = shape.timed()
        if not timed and shape.cut_short and not shape.idle:
            raise ShapeFailed("the budget ended before a candidate was compiled", untuned=True)
        if not timed:
            raise shape.without_winner()
        trials = {trial.config.identity: trial for trial in timed}
        finals = {name: trial.measurement for name, trial in trials.items() if trial.measurement}
        order = {name: shape.candidates.order_us(trial.number, _registers(trial)) for name, trial in trials.items()}
        ties = [name for name, order_us in order.items() if order_us <= min(order.values()) * (1 + TIE)]
        fastest_first = sorted(finals, key=lambda name: (order[name], name))
        ordered = {name: replace(finals[name], time_us=order[name]) for name in fastest_first}
        return Decision(pick(ordered, ties, trials), finals)


def _too_late() -> ShapeFailed:
    return ShapeFailed("the budget ended before this shape", untuned=True)


def _registers(trial: Trial) -> int | None:
    """Of a thread of the main kernel, as the compiler reports now, or has reported to an earlier run."""
    if trial.binary is None:
        return trial.measurement.registers if trial.measurement else None
    registers, _, _ = resources(trial.binary, trial.launches)
    return registers
