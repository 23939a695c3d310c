"""`Recorder`: what a run writes down: each measurement when it is made, and the winner of each shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kt.cache.ranking import rank
from kt.cache.records import UNSEEN, BestConfig, CacheKey, Measurement
from kt.devices.roofline import floor_us
from kt.errors import CacheError
from kt.tuner.causes import Causes
from kt.tuner.pruning import resources
from kt.tuner.shape_run import ShapeRun, Trial
from kt.tuner.winner import edge, lost_by

if TYPE_CHECKING:
    from kt.cache.store import Store
    from kt.search_spaces.space import Config
    from kt.tuner.candidates import Candidates
    from kt.tuner.finals import Decision
    from kt.tuner.observer import Observer
    from kt.tuner.strategies import Search

__all__ = ["Recorder"]

T = TypeVar("T")


@dataclass
class Recorder:
    """Writes to the cache and tells the observer.

    Attributes:
        store: None if nothing is kept; it becomes None, with a warning, when it cannot be written any more.
        toolchain, method: labels of the run's cache keys.
        sources: digest of template, headers and space by family.
        provenance: recorded with each winner.
        resume: take over what earlier runs have measured.
        failures: failures on the GPU by cause.
    """

    store: Store | None
    observer: Observer
    toolchain: str
    method: str
    sources: Mapping[str, str]
    provenance: Mapping[str, str]
    resume: bool = True
    failures: Causes = field(default_factory=Causes)
    _told: set[str] = field(default_factory=set)

    def key(self, candidates: Candidates) -> CacheKey:
        return CacheKey(candidates.problem, candidates.device.identity, self.toolchain, self.method)

    def shape_run(self, candidates: Candidates, search: Search, limit: int | None) -> ShapeRun:
        """The state of one shape, with what earlier runs have measured of it."""
        key = self.key(candidates)
        stored = self.store.measurements(key) if self.store and self.resume else {}
        return ShapeRun(key, candidates, search, stored, lambda trial: self._done(key, trial), limit)

    def unfinished(self, candidates: Candidates) -> BestConfig | None:
        """What an earlier search of these candidates has found that did not end by itself."""
        return self._read(lambda store: store.unfinished(self.key(candidates), self._sources(candidates)))

    def best(self, shape: ShapeRun, decision: Decision, *, unseen: bool = False) -> BestConfig:
        """The winner of a shape, stored; or the stored one, where this search has no more to say than that one's.

        Args:
            unseen: the shape stands for those that nobody lists.
        """
        by_name = {trial.config.identity: trial for trial in shape.trials.values()}
        finals = {name: _complete(by_name[name], one) for name, one in decision.finals.items()}
        best = self._decided(shape, decision, finals)
        for peer, error in decision.peer_errors.items():
            self._tell_once(f"{peer} cannot be timed: {error}")
        self._keep(shape, [(by_name[name], one) for name, one in finals.items()])
        earlier = self.unfinished(shape.candidates)
        if earlier is not None and self.resume:
            best = replace(best, tried=max(best.tried, earlier.tried))
        if unseen:
            best = replace(best, provenance={**best.provenance, UNSEEN: "yes"})
        if earlier is not None and earlier.unseen == unseen and _stands(earlier, best, shape):
            return earlier
        self._write(lambda store: store.put_best(best))
        return best

    def _decided(self, shape: ShapeRun, decision: Decision, finals: Mapping[str, Measurement]) -> BestConfig:
        winner, *tied = decision.ranked
        candidates = shape.candidates
        return BestConfig(
            key=shape.key,
            config=winner.config,
            measurement=finals[winner.config.identity],
            sources=self._sources(candidates),
            launches=winner.launches,
            workspace_bytes=winner.workspace_bytes,
            ties=tuple(trial.config for trial in tied),
            default_us=_default_us(shape, winner, finals),
            baseline=dict(decision.peers),
            floor_us=floor_us(candidates.problem, candidates.device),
            tried=shape.ended,
            total=len(candidates),
            complete=not shape.cut_short,
            edge=edge(candidates.space(winner.number), winner.config, candidates.problem, candidates.device),
            provenance=dict(self.provenance),
        )

    def _sources(self, candidates: Candidates) -> dict[str, str]:
        return {space.family: self.sources[space.family] for space in candidates.spaces}

    def measurements(self, key: CacheKey) -> Mapping[tuple[str, str], Measurement]:
        """What is known of a shape, by configuration and source; nothing if nothing is kept."""
        return self.store.measurements(key) if self.store else {}

    def compared(self, key: CacheKey, config: Config, source: str, measurement: Measurement) -> None:
        """A kernel of another shape's winner ran on this one. What does not compile or fit is no news, what fails is: a
        header might take it for shapes like this one."""
        if not measurement.never_ran:
            self._count(measurement)
            self._write(lambda store: store.put_measurement(key, config, source, measurement))

    def improved(self, best: BestConfig, source: str) -> None:
        """Another shape's kernel has beaten what a search had found."""
        self._write(lambda store: store.put_measurement(best.key, best.config, source, best.measurement))
        self._write(lambda store: store.put_best(best))

    def finish(self) -> None:
        """Make sure that all is where it can be found, while a failure to save can still be told with the results."""
        self._write(lambda store: store.settle())

    def _keep(self, shape: ShapeRun, finals: Sequence[tuple[Trial, Measurement]]) -> None:
        """Compile errors are kept only now that something compiles: if nothing does, the cause is no candidate's."""
        done = [(trial, trial.measurement) for trial in shape.trials.values() if trial.measurement]
        results = [(trial, one) for trial, one in done if one.status == "compile_error"] + list(finals)
        rows = [(trial.config, trial.source, one) for trial, one in results]
        self._write(lambda store: store.put_measurements(shape.key, rows))

    def _done(self, key: CacheKey, trial: Trial) -> None:
        measurement = trial.measurement
        assert measurement is not None
        self._count(measurement)
        if measurement.status != "compile_error":
            source = trial.source
            self._write(lambda store: store.put_measurement(key, trial.config, source, measurement))
        self.observer.candidate_done(key.problem, trial.config, measurement)

    def _count(self, measurement: Measurement) -> None:
        """Failures on the GPU; compile errors are counted where they arise."""
        if measurement.failed:
            self.failures.add(f"{measurement.status}: {measurement.detail}".rstrip(": "))

    def _write(self, action: Callable[[Store], None]) -> None:
        self._read(action)

    def _read(self, action: Callable[[Store], T]) -> T | None:
        """A cache that can no longer be used ends the saving, not the run."""
        if self.store is None:
            return None
        try:
            return action(self.store)
        except CacheError as error:
            self.store = None
            self.observer.warning(f"results are no longer saved: {error.message}")
            return None

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.observer.warning(text)


def _complete(trial: Trial, measurement: Measurement) -> Measurement:
    """A final measurement with what the trial's screening and its binary say."""
    if measurement.refined:
        measurement = replace(measurement, screened_us=_screened_us(trial))
    if trial.binary is None:
        return measurement
    registers, spills, smem = resources(trial.binary, trial.launches)
    return replace(measurement, registers=registers, spill_bytes=spills, smem_bytes=smem)


def _screened_us(trial: Trial) -> float | None:
    """None if an earlier run has refined it and did not remember."""
    known = trial.measurement
    return trial.time_us if known is not None and (known.screened_us or not known.refined) else None


def _stands(earlier: BestConfig, best: BestConfig, shape: ShapeRun) -> bool:
    """Whether an unfinished search's result is the better one of two: a budget may end before it is measured again."""
    number = shape.candidates.find(earlier.config)
    if best.complete or number is None:
        return False
    trial = shape.trials.get(number)
    judged = trial is not None and trial.measurement is not None  # then it was among those that `best` was chosen of
    return not judged and rank(earlier) < rank(best)


def _default_us(shape: ShapeRun, winner: Trial, finals: Mapping[str, Measurement]) -> float | None:
    """The time of the default configuration of the winner's family, from the same rounds: of the finals, or from the
    screening of a search that ended before these.

    None if it was not in them; or if it left them early, while the GPU was at a higher clock: it has lost there,
    whatever its median says.
    """
    won = finals[winner.config.identity]
    for trial in shape.timed():
        if trial.default and trial.config.family == winner.config.family:
            measured = finals.get(trial.config.identity) or trial.measurement
            if measured is not None and measured.refined == won.refined:
                return lost_by(measured, won)
    return None
