"""`ShapeRun`: one problem on its way to a winner: what is proposed, compiled, ready to run and measured.

It decides and remembers; it neither compiles nor measures. Results of an earlier run that was cut off are taken over,
so that a run goes on from where the last one ended.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kt.cache.records import NEVER_RAN
from kt.errors import KtError
from kt.search_spaces.launch import resolve
from kt.tuner.launched import launched_digest
from kt.tuner.messages import Candidate
from kt.tuner.pruning import prune, resources
from kt.wording import part, plural

if TYPE_CHECKING:
    from kt.cache.records import CacheKey, Measurement
    from kt.search_spaces.space import Config, Launch
    from kt.tuner.candidates import Candidates
    from kt.tuner.compilation import Compilation, Kernel
    from kt.tuner.messages import Binary
    from kt.tuner.strategies import Search

__all__ = ["ShapeFailed", "ShapeRun", "Trial"]

# Outcomes of an earlier run that hold for this one too. What ran out of time or memory or died is tried again.
LASTING = frozenset({"ok", "wrong_result", "launch_error"})
ENOUGH_ALIKE = 16  # candidates that all failed on the GPU in one way, after which no other is tried


class ShapeFailed(Exception):
    """A shape ends without a winner.

    Attributes:
        cause: one line.
        untuned: the budget ended before it could be tuned.
        error: the error behind it, where there is one.
    """

    def __init__(self, cause: str, *, untuned: bool = False, error: KtError | None = None) -> None:
        super().__init__(cause)
        self.cause, self.untuned, self.error = cause, untuned, error


@dataclass
class Trial:
    """One candidate of a shape.

    Attributes:
        number: in `Candidates`.
        order: in which it was proposed.
        launches, workspace_bytes: resolved for the problem.
        default: it is the default configuration of its family.
        binary: once it is compiled.
        measurement: once it is done.
    """

    number: int
    order: int
    config: Config
    kernel: Kernel
    launches: tuple[Launch, ...]
    workspace_bytes: int
    default: bool
    binary: Binary | None = None
    measurement: Measurement | None = None

    @cached_property
    def source(self) -> str:
        """Digest of all that runs: the rendered source, and how it is launched."""
        return launched_digest(self.kernel.source_digest, self.launches, self.workspace_bytes)

    @property
    def time_us(self) -> float | None:
        """Of its screening, also where an earlier run has refined it: finals are of a lower clock."""
        if self.measurement is None or self.measurement.status != "ok":
            return None
        return self.measurement.screened_us or self.measurement.time_us

    @property
    def message(self) -> Candidate:
        """What the worker needs to run it."""
        assert self.binary is not None
        runtime = {name: value for name, value in self.config.runtime if isinstance(value, int)}
        return Candidate(self.config.identity, self.binary.path, self.launches, self.workspace_bytes, runtime)


@dataclass
class ShapeRun:
    """The state of one problem.

    Attributes:
        key: under which its measurements are stored.
        stored: measurements of earlier runs, by configuration and source.
        record: called with each trial that was done in this run.
        limit: candidates that this run may try; None for no limit.
        tried: candidates begun in this run, results of earlier runs not counted.
        cut_short: the limit or the clock ended the search, not the search itself.
        best_us: the fastest time so far.
    """

    key: CacheKey
    candidates: Candidates
    search: Search
    stored: Mapping[tuple[str, str], Measurement]
    record: Callable[[Trial], None]
    limit: int | None = None
    trials: dict[int, Trial] = field(default_factory=dict)
    tried: int = 0
    cut_short: bool = False
    best_us: float | None = None
    _on_gpu: Counter[str] = field(default_factory=Counter)  # statuses of what ran
    _waiting: dict[str, list[Trial]] = field(default_factory=dict)  # for a binary, by its digest
    _ready: list[tuple[int, Trial]] = field(default_factory=list)  # a heap in the order of proposal

    @property
    def waiting(self) -> bool:
        """Something is being compiled."""
        return bool(self._waiting)

    @property
    def unfinished(self) -> int:
        """Candidates that are being compiled, or ready to run."""
        return sum(map(len, self._waiting.values())) + len(self._ready)

    @property
    def idle(self) -> bool:
        """Nothing is left to do until the search proposes more."""
        return not self._waiting and not self._ready

    def propose(self, compilation: Compilation) -> bool:
        """Take the search's next batch and have it compiled; False if the search has ended or may not go on.

        Raises:
            ShapeFailed: a candidate cannot be rendered, or nothing can be compiled for this problem.
        """
        batch = [] if self.cut_short else self.search.propose()
        for number in batch:
            if self._full and not self.stored:
                self.cut_short = True
                break
            self._try(number, compilation)
        return bool(batch)

    def go_on_from(self, config: Config, compilation: Compilation) -> None:
        """Try what an unfinished search has found before anything else, whether the search proposes it or not.

        Raises:
            ShapeFailed: it cannot be rendered.
        """
        number = self.candidates.find(config)
        if number is not None:
            self._try(number, compilation)

    def ask_again(self, compilation: Compilation) -> None:
        """Have what is waited for compiled, in case that was cancelled."""
        for trials in self._waiting.values():
            compilation.request(trials[0].kernel, trials[0].launches)

    def take_binaries(self, compilation: Compilation) -> None:
        """Make the candidates ready whose binary has come, or end them if it cannot run."""
        for digest in [digest for digest in self._waiting if digest in compilation.binaries]:
            for trial in self._waiting.pop(digest):
                self._compiled(trial, compilation.binaries[digest])

    def next_ready(self) -> Trial | None:
        """The candidate to run next: the first proposed of those that are compiled."""
        return heapq.heappop(self._ready)[1] if self._ready else None

    def finish(self, trial: Trial, measurement: Measurement) -> None:
        """A trial was done in this run."""
        if trial.binary and measurement.status != "compile_error":
            registers, spills, smem = resources(trial.binary, trial.launches)
            measurement = replace(measurement, registers=registers, spill_bytes=spills, smem_bytes=smem)
        self._take(trial, measurement)
        self.record(trial)

    @property
    def _full(self) -> bool:
        return self.limit is not None and self.tried >= self.limit

    def _take(self, trial: Trial, measurement: Measurement) -> None:
        trial.measurement = measurement
        if not measurement.never_ran:
            self._on_gpu[measurement.status] += 1
        if trial.time_us is not None:
            self.best_us = min(self.best_us or trial.time_us, trial.time_us)
        self.search.tell(trial.number, trial.time_us)

    def _trial(self, number: int, compilation: Compilation) -> Trial:
        config, space = self.candidates.config(number), self.candidates.space(number)
        problem, device = self.candidates.problem, self.candidates.device
        launches, workspace = resolve(space, config, {**device.names(), **problem.names()})
        kernel = compilation.kernel(space, config, problem.signature)
        default = number in self.candidates.defaults
        return Trial(number, len(self.trials), config, kernel, launches, workspace, default)

    def _try(self, number: int, compilation: Compilation) -> None:
        if number in self.trials:
            return
        try:
            self._begin(self._trial(number, compilation), compilation)
        except KtError as error:
            raise ShapeFailed(error.message, error=error) from error

    def _begin(self, trial: Trial, compilation: Compilation) -> None:
        """Take over what is known of a candidate, or have it compiled if the limit allows."""
        earlier = self.stored.get((trial.config.identity, trial.source))
        if earlier and earlier.status in LASTING:
            self.trials[trial.number] = trial
            self._take(trial, earlier)
            return
        # What never ran is made again, from kept binaries, and a limit does not count it again: else one run after the
        # other would end over the same ones.
        again = earlier is not None and earlier.never_ran
        if self._full and not again:
            self.cut_short = True
            return
        self.trials[trial.number] = trial
        self.tried += not again
        self._waiting.setdefault(trial.kernel.job_digest, []).append(trial)
        compilation.request(trial.kernel, trial.launches)

    def _compiled(self, trial: Trial, binary: Binary) -> None:
        trial.binary = binary
        verdict = prune(binary, trial.launches, self.candidates.device, keep_spills=trial.default)
        if verdict:
            self.finish(trial, verdict)
        else:
            heapq.heappush(self._ready, (trial.order, trial))

    def timed(self) -> list[Trial]:
        """The trials that ran well, fastest first."""
        timed = [trial for trial in self.trials.values() if trial.time_us is not None]
        return sorted(timed, key=lambda trial: (trial.time_us or 0.0, trial.number))

    @property
    def ended(self) -> int:
        """How many candidates have an outcome; others wait for a compiler or the GPU, or did when a search was cut."""
        return sum(trial.measurement is not None for trial in self.trials.values())

    def statuses(self) -> dict[str, int]:
        """How many candidates ended in which way."""
        return dict(Counter(trial.measurement.status for trial in self.trials.values() if trial.measurement))

    def all_alike(self) -> str:
        """The status that many candidates, and all so far, ended with on the GPU; "" if there is none."""
        if len(self._on_gpu) != 1 or self._on_gpu["ok"] or self._on_gpu.total() < ENOUGH_ALIKE:
            return ""
        return next(iter(self._on_gpu))

    def without_winner(self) -> ShapeFailed:
        """The failure of a shape of which nothing that was tried can be used; not its own if a budget left others."""
        left = len(self.candidates) - self.ended
        if not self.cut_short or not left or self.all_alike():
            return ShapeFailed(self._why_none())
        total = len(self.candidates)
        return ShapeFailed(
            f"the budget ended with {part(left, total, 'candidate')} not tried: {self._why_none()}", untuned=True
        )

    def _why_none(self) -> str:
        """Why no candidate can be used, in one line."""
        statuses = self.statuses()
        details = [trial.measurement.detail for trial in self.trials.values() if trial.measurement]
        example = next((detail for detail in details if detail), "")
        tail = f"; for example: {example}" if example else ""
        count = statuses.get("wrong_result", 0)
        if count > 1 and statuses.keys() - NEVER_RAN == {"wrong_result"}:  # that many are seldom wrong alike
            ran = plural(count, "candidate")
            return f"all {ran} that ran differ from the reference, so the reference is suspect{tail}"
        counted = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
        return f"none of {plural(self.ended, 'candidate')} can be used: {counted or 'none was tried'}{tail}"
