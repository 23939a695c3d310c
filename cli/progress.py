"""What a person sees while a run goes on: bars on a terminal, one line per shape elsewhere, all on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kt.cli.figures import rate_text, time_text
from kt.cli.options import ProgressMode
from kt.cli.outcome import note
from kt.cli.printable import printable
from kt.tuner.observer import Observer, SilentObserver
from kt.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from rich.progress import Progress, TaskID

    from kt.cache.records import BestConfig, Measurement
    from kt.problems import Problem
    from kt.search_spaces.space import Config

__all__ = ["BarProgress", "LineProgress", "RunDisplay", "counted", "progress"]

LINE_AFTER_S = 2.0  # what takes longer says how far it is
LINE_EVERY_S = 10.0
RATE_AFTER_S = 1.0


class RunDisplay(Observer, Protocol):
    """An observer that is entered before the run and left after it."""

    def __enter__(self) -> RunDisplay: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress(mode: ProgressMode, *, quiet: bool, verbose: bool) -> RunDisplay:
    """The display for these options and for where standard error goes."""
    if quiet:
        return _Silent()
    if mode is ProgressMode.none:
        return _Warnings()
    if mode is ProgressMode.auto and _on_terminal():
        return BarProgress(verbose=verbose)
    return LineProgress(verbose=verbose)


@contextmanager
def counted(what: str, mode: ProgressMode, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A display of things done one by one, to be called with how many are done and how many there are.

    It says nothing of what takes a moment only.
    """
    if quiet or mode is ProgressMode.none:
        yield lambda done, total: None
    elif mode is ProgressMode.auto and _on_terminal():
        with _bars() as bars:
            task = bars.add_task(what, total=None, detail="")
            yield lambda done, total: bars.update(task, completed=done, total=total)
    else:
        yield _CountLines(what)


class _CountLines:
    """A line now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + LINE_AFTER_S

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            note(f"{done} of {total} {self._what}")
            self._next = time.monotonic() + LINE_EVERY_S


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class _Silent(SilentObserver):
    """No display, but still a context manager."""

    def __enter__(self) -> RunDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Warnings(_Silent):
    """Only what a person should know."""

    def warning(self, text: str) -> None:
        note(f"warning: {text}")


class LineProgress(_Warnings):
    """One line per shape; with `verbose` also one per candidate."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._shapes = 0
        self._finished = 0
        self._candidates: Counter[Problem] = Counter()
        self._comparing = _CountLines("shapes timed with the kernels of the others")

    def run_started(self, shapes: int, cached: int, unseen: int = 0) -> None:
        self._shapes, self._finished = shapes, cached
        others = f" and {unseen} that nobody lists" if unseen else ""
        note(
            f"{plural(shapes - unseen, 'shape')}{others}{f', {cached} of them in the cache' if cached else ' to tune'}"
        )

    def candidate_done(self, problem: Problem, config: Config, measurement: Measurement) -> None:
        self._candidates[problem] += 1
        if self._verbose:
            note(f"  {problem.label}: {config.label}: {outcome_text(measurement)}")

    def shape_finished(self, problem: Problem, best: BestConfig | None, failure: str) -> None:
        self._finished += 1
        count = self._candidates.pop(problem, 0)
        tried = f", {plural(count, 'candidate')} in this run" if count else ""
        note(f"[{self._finished}/{self._shapes}] {finished_text(problem, best, failure)}{tried}")

    def compared(self, done: int, total: int, better: BestConfig | None) -> None:
        if better is not None:
            note(improved_text(better))
        self._comparing(done, total)


class BarProgress(_Silent):
    """Bars for shapes, compilations and the candidates of the shape at work, with rate and remaining time."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._bars = _bars()
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> RunDisplay:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def run_started(self, shapes: int, cached: int, unseen: int = 0) -> None:
        self._set("shapes", cached, shapes)

    def compiled(self, done: int, total: int) -> None:
        self._set("kernels compiled", done, total)

    def shape_started(self, problem: Problem, candidates: int) -> None:
        self._restart("candidates", candidates)
        self._bars.update(self._tasks["candidates"], detail=problem.label)

    def candidate_done(self, problem: Problem, config: Config, measurement: Measurement) -> None:
        if "candidates" in self._tasks:
            self._bars.advance(self._tasks["candidates"])
        if self._verbose:
            self._print(f"{problem.label}: {config.label}: {outcome_text(measurement)}")

    def shape_finished(self, problem: Problem, best: BestConfig | None, failure: str) -> None:
        if "shapes" in self._tasks:
            self._bars.advance(self._tasks["shapes"])
        self._print(finished_text(problem, best, failure))

    def compared(self, done: int, total: int, better: BestConfig | None) -> None:
        self._set("timed with others' kernels", done, total)
        if better is not None:
            self._print(improved_text(better))

    def warning(self, text: str) -> None:
        self._print(f"kt: warning: {text}")

    def _set(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, detail="")
        self._bars.update(self._tasks[name], completed=done, total=total)

    def _restart(self, name: str, total: int) -> None:
        """A fresh task: its rate must not include the shape before."""
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        self._set(name, 0, total)

    def _print(self, text: str) -> None:
        self._bars.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Rate(ProgressColumn):
        """Steps a second, once known."""

        def render(self, task: Task) -> Text:
            return Text(speed_text(task.speed, task.completed, task.elapsed), style="progress.data.speed")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        Remaining(compact=True),
        TextColumn("{task.fields[detail]}"),
        console=Console(stderr=True),
        transient=True,
    )


def speed_text(recent: float | None, done: float, elapsed_s: float | None) -> str:
    """Steps a second, of late or on the whole if that is less: several that end at one moment are no speed."""
    if not recent or not elapsed_s or elapsed_s < RATE_AFTER_S:
        return ""
    return f"{min(recent, done / elapsed_s):.1f}/s"


def outcome_text(measurement: Measurement) -> str:
    """What became of one candidate, in a few words."""
    if measurement.time_us is None:
        return f"{measurement.status}: {measurement.detail}" if measurement.detail else measurement.status
    return f"{time_text(measurement.time_us)} us" + (" predicted" if measurement.predicted else "")


def finished_text(problem: Problem, best: BestConfig | None, failure: str) -> str:
    """How one shape ended, in one line."""
    if best is None or best.measurement.time_us is None:
        return f"{problem.label}: {failure or 'no result'}"
    rate = problem.flops / best.measurement.time_us / 1e6
    return f"{problem.label}: {outcome_text(best.measurement)}, {rate_text(rate)} TFLOP/s, {best.config.family}"


def improved_text(better: BestConfig) -> str:
    """A winner that another shape's kernel has beaten, in one line."""
    return f"{finished_text(better.key.problem, better, '')}: a kernel that has won another shape is faster here"
