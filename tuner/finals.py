"""The finals of a shape: the best few and their defaults, verified in full and timed against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kt.cache.records import Measurement
from kt.tuner.messages import Failure, Refine, RefineReply
from kt.tuner.pruning import lacking
from kt.tuner.ptxas_log import first_error
from kt.tuner.shape_run import ShapeFailed, ShapeRun, Trial
from kt.tuner.winner import finalists, pick
from kt.tuner.worker import WorkerDied

if TYPE_CHECKING:
    from kt.tuner.clock import Clock
    from kt.tuner.gpu_access import GpuAccess

__all__ = ["REFINE_S", "Decision", "Finals", "screened"]

REFINE_S = 2.0
ALONE_S = 0.3  # for each finalist, where they cannot run together
LIMIT_S = 60.0  # after which the worker is ended, besides this many times the slowest finalist's time:
LIMIT_TIMES = 500
WAIT_S = 0.1


@dataclass(frozen=True)
class Decision:
    """How a shape was decided.

    Attributes:
        ranked: the winner, then those tied with it, fastest first.
        finals: final measurements by name.
        peers, peer_errors: of the libraries that ran beside them.
    """

    ranked: list[Trial]
    finals: dict[str, Measurement]
    peers: dict[str, float] = field(default_factory=dict)
    peer_errors: dict[str, str] = field(default_factory=dict)


def screened(shape: ShapeRun) -> Decision:
    """The best as it was screened, for a search that ended before the finals.

    Raises:
        ShapeFailed: nothing was measured.
    """
    timed = shape.timed()
    if not timed or timed[0].measurement is None:
        raise ShapeFailed("the budget ended before a candidate was measured", untuned=True)
    return Decision([timed[0]], {timed[0].config.identity: timed[0].measurement})


@dataclass
class Finals:
    """The finals of one shape.

    Attributes:
        peers: libraries to time beside the finalists.
        meanwhile: called while the GPU is busy.
    """

    gpu: GpuAccess
    clock: Clock
    shape: ShapeRun
    peers: tuple[str, ...]
    meanwhile: Callable[[], None]
    _dropped: set[int] = field(default_factory=set)

    def run(self) -> Decision:
        """The winner; finalists that fail make room for the next ones.

        Raises:
            ShapeFailed: none is left.
        """
        while True:
            chosen = finalists(self.shape.timed(), self._dropped, self.shape.candidates.structures)
            if not chosen:
                raise self.shape.without_winner()
            entrants = [*chosen, *self._defaults(chosen)]
            reply = self._refine(entrants)
            trials = {trial.config.identity: trial for trial in entrants}
            finals = {name: one for name, one in reply.measurements.items() if one.status == "ok"}
            for name in reply.measurements.keys() - finals.keys():
                self._drop(trials[name], reply.measurements[name])
            if any(trial.config.identity in finals for trial in chosen):
                ranked = pick(finals, [name for name in reply.ties if name in finals], trials)
                return Decision(ranked, finals, reply.peers, reply.peer_errors)

    def _defaults(self, chosen: Sequence[Trial]) -> list[Trial]:
        """Default configurations of the finalists' families: every winner is compared with its family's own.

        Those of other families can be far slower. They would take most of the time, and let the GPU cool down.
        """
        families = {trial.config.family for trial in chosen}
        return [
            trial
            for trial in self.shape.timed()
            if trial.default
            and trial.config.family in families
            and trial not in chosen
            and trial.number not in self._dropped
        ]

    def _refine(self, entrants: Sequence[Trial]) -> RefineReply:
        """Time them together; who ends the worker is dropped, and the others start again."""
        running = self._with_binaries(entrants)
        while running:
            try:
                return self._ask(running, self.peers, REFINE_S)
            except WorkerDied as died:
                guilty = [trial for trial in running if trial.config.identity == died.candidate]
                for trial in guilty:
                    self._drop(trial, Measurement(died.status, detail=died.detail))
            if not guilty:
                return self._one_by_one(running)
            running = [trial for trial in running if trial.number not in self._dropped]
        return RefineReply({}, (), {})

    def _one_by_one(self, running: Sequence[Trial]) -> RefineReply:
        """Each alone, where they cannot run together and no one is known to be at fault."""
        measurements: dict[str, Measurement] = {}
        for trial in running:
            try:
                measurements |= self._ask([trial], (), ALONE_S).measurements
            except WorkerDied as died:
                measurements[trial.config.identity] = Measurement(died.status, detail=died.detail)
        order = sorted(measurements, key=lambda name: measurements[name].time_us or 0.0)
        return RefineReply({name: measurements[name] for name in order}, (), {})

    def _ask(self, running: Sequence[Trial], peers: tuple[str, ...], seconds: float) -> RefineReply:
        seconds = min(seconds, max(0.2, self.clock.shape_left))
        longest = max(trial.time_us or 0.0 for trial in running) / 1e6
        message = Refine(tuple(trial.message for trial in running), peers, seconds)
        reply = self.gpu.ask(message, LIMIT_S + seconds + LIMIT_TIMES * longest, self.meanwhile)
        if isinstance(reply, Failure):  # such as too little memory for all of them together
            raise WorkerDied(reply.status, reply.detail, reply.candidate)  # type: ignore[arg-type]
        assert isinstance(reply, RefineReply)
        return reply

    def _with_binaries(self, entrants: Sequence[Trial]) -> list[Trial]:
        """Those with a binary; for results of an earlier run it comes from the cubin cache, or is made again."""
        compilation = self.gpu.compilation
        for trial in entrants:
            compilation.request(trial.kernel, trial.launches)
        while any(trial.kernel.job_digest not in compilation.binaries for trial in entrants):
            compilation.collect(WAIT_S)
        for trial in entrants:
            trial.binary = compilation.binaries[trial.kernel.job_digest]
            fault = first_error(trial.binary.error) or lacking(trial.binary, trial.launches)
            if fault:
                self._drop(trial, Measurement("compile_error", detail=fault))
        return [trial for trial in entrants if trial.number not in self._dropped]

    def _drop(self, trial: Trial, measurement: Measurement) -> None:
        self._dropped.add(trial.number)
        self.shape.finish(trial, measurement)
