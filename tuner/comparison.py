"""`Comparison`: after the searches, each shape is also timed with the kernels that have won other shapes.

A search tries what suits its own shape. A header with few kernels, and the rule for shapes that were not tuned, ask how
a kernel does elsewhere: these times are the answer. Where a kernel of another shape is faster than what the search has
found, the two meet in finals, and the faster one is the winner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kt.cache.records import BestConfig, Measurement
from kt.tuner.messages import Binary, Candidate, Failure, Prepare, Refine, RefineReply, Screen, ScreenReply
from kt.tuner.pruning import prune, resources
from kt.tuner.rivals import Rival, Rivals
from kt.tuner.winner import edge, lost_by
from kt.tuner.worker import WorkerDied

if TYPE_CHECKING:
    from kt.search_spaces.space import Config, SearchSpace
    from kt.tuner.clock import Clock
    from kt.tuner.gpu_access import GpuAccess
    from kt.tuner.record import Recorder
    from kt.tuner.request import TuneRequest

__all__ = ["Comparison"]

AHEAD = 8  # shapes whose kernels are at the compilers together
STOP_ABOVE = 2.0  # times as long as the winner: what one run finds slower than this is timed no more
ENOUGH_SAMPLES = 3  # of an earlier measurement that is not made again; one that a search stopped has fewer
CHALLENGES_BELOW = 0.985  # of the winner's time in a screening: beyond what two measurements of one kernel differ by
MOST_CHALLENGERS = 3
FINALS_S = 1.0
PREPARE_LIMIT_S, SCREEN_LIMIT_S, FINALS_LIMIT_S = 180.0, 6.0, 60.0  # after which the worker is ended
LIMIT_TIMES = 500  # of the winner's time, besides these limits
WAIT_S = 0.1


@dataclass(frozen=True)
class Challenger:
    """A rival that was faster than the winner when both were screened."""

    rival: Rival
    measurement: Measurement

    @property
    def screened_us(self) -> float:
        return self.measurement.time_us or 0.0


@dataclass
class Comparison:
    """What is done once every shape of a run has its winner.

    Attributes:
        bests: the winners, those from the cache among them.
    """

    request: TuneRequest
    gpu: GpuAccess
    clock: Clock
    recorder: Recorder
    bests: Sequence[BestConfig]

    def run(self, shapes: Sequence[BestConfig]) -> Iterator[BestConfig]:
        """Time the shapes of these winners; yields each winner that another shape's kernel has beaten, as it is now."""
        rivals = Rivals(self.request, self.gpu.compilation, self.bests)
        planned: deque[list[Rival]] = deque()
        for done, best in enumerate(shapes):
            for ahead in shapes[done + len(planned) : done + AHEAD]:
                planned.append(self._planned(ahead, rivals))
            if self.clock.left <= 0:
                return
            unknown = planned.popleft()
            better = self._better(best, rivals, unknown) if unknown else None
            self.recorder.observer.compared(done + 1, len(shapes), better)
            if better is not None:
                yield better

    def _planned(self, best: BestConfig, rivals: Rivals) -> list[Rival]:
        """What is to be timed on a shape, at the compilers."""
        unknown = self._unknown(best, rivals)
        for one in unknown:
            self.gpu.compilation.request(one.kernel, one.launches)
        return unknown

    def _better(self, best: BestConfig, rivals: Rivals, unknown: Sequence[Rival]) -> BestConfig | None:
        """Time rivals on a shape; the new winner if one of them is faster."""
        try:
            holder = rivals.rival(best.config, best.key.problem)
            challengers = self._compare(best, holder, unknown)
            if not (holder and challengers):
                return None
            if best.unseen:
                return self._as_screened(best, challengers[0])
            return self._finals(best, holder, challengers)
        except WorkerDied:
            return None  # over the shape as such, not over a kernel: its winner stands

    def _unknown(self, best: BestConfig, rivals: Rivals) -> list[Rival]:
        """The rivals that no earlier run has timed on the shape."""
        known = self.recorder.measurements(best.key)

        def is_known(one: Rival) -> bool:
            earlier = known.get((one.config.identity, one.source))
            return earlier is not None and (earlier.status != "ok" or earlier.samples >= ENOUGH_SAMPLES)

        return [one for one in rivals.of(best) if not is_known(one)]

    def _compare(self, best: BestConfig, holder: Rival | None, rivals: Sequence[Rival]) -> list[Challenger]:
        """Time rivals on a shape; those that are faster than its winner, the holder, as it is timed beside them."""
        message = Prepare(best.key.problem, self.request.seed, self.request.peers)
        if isinstance(self.gpu.ask(message, PREPARE_LIMIT_S), Failure):
            return []
        won_us = self._screened_us(best, holder)
        faster: list[Challenger] = []
        for one in rivals:
            if self.clock.left <= 0:
                break
            measurement = self._measured(one, won_us)
            self.recorder.compared(best.key, one.config, one.source, measurement)
            if measurement.time_us is not None and measurement.time_us < CHALLENGES_BELOW * won_us:
                faster.append(Challenger(one, measurement))
        return sorted(faster, key=lambda one: (one.screened_us, one.rival.config.identity))[:MOST_CHALLENGERS]

    def _screened_us(self, best: BestConfig, holder: Rival | None) -> float:
        """The winner's time in a screening like the rivals': finals are of another clock, up to 17% lower."""
        won_us = best.measurement.time_us or 0.0
        again = self._measured(holder, won_us) if holder else None
        return again.time_us if again and again.status == "ok" and again.time_us else won_us

    def _measured(self, one: Rival, won_us: float) -> Measurement:
        binary = self._binary(one)
        verdict = prune(binary, one.launches, self.request.device, keep_spills=False)
        if verdict:
            return verdict
        message = Screen(_candidate(one, binary), won_us * STOP_ABOVE)
        try:
            reply = self.gpu.ask(message, SCREEN_LIMIT_S + LIMIT_TIMES * won_us / 1e6)
        except WorkerDied as died:
            return Measurement(died.status, detail=died.detail)
        if isinstance(reply, Failure):
            return Measurement(reply.status, detail=reply.detail)  # type: ignore[arg-type]
        assert isinstance(reply, ScreenReply)
        return _with_resources(reply.measurement, one, binary)

    def _finals(self, best: BestConfig, holder: Rival, challengers: Sequence[Challenger]) -> BestConfig | None:
        """The winner against its challengers, verified in full; None if it stays."""
        by_name = {one.rival.config.identity: one for one in challengers}
        running = {one.config.identity: one for one in (holder, *(one.rival for one in challengers))}
        candidates = tuple(_candidate(one, self._binary(one)) for one in running.values())
        limit = FINALS_LIMIT_S + LIMIT_TIMES * (best.measurement.time_us or 0.0) / 1e6
        try:
            reply = self.gpu.ask(Refine(candidates, self.request.peers, FINALS_S), limit)
        except WorkerDied as died:
            reply = Failure(died.status, died.detail, died.candidate)
        self._note_failures(best, running, reply)
        if not isinstance(reply, RefineReply):
            return None
        ranked = [name for name, one in reply.measurements.items() if one.status == "ok"]
        fastest = ranked[0] if ranked else best.config.identity
        if best.config.identity in (fastest, *reply.ties):
            return None
        return self._won(best, by_name[fastest], reply)

    def _note_failures(self, best: BestConfig, running: Mapping[str, Rival], reply: RefineReply | Failure) -> None:
        """What passed the screening may fail where every element is verified."""
        if isinstance(reply, RefineReply):
            failed = {name: one for name, one in reply.measurements.items() if one.status != "ok"}
        else:
            failed = {reply.candidate: Measurement(reply.status, detail=reply.detail)}  # type: ignore[arg-type]
        for name in sorted(running.keys() & failed.keys()):
            one = running[name]
            self.recorder.compared(best.key, one.config, one.source, failed[name])

    def _won(self, best: BestConfig, challenger: Challenger, reply: RefineReply) -> BestConfig:
        one = challenger.rival
        final = replace(reply.measurements[one.config.identity], screened_us=challenger.screened_us)
        better = replace(
            self._by(best, one, _with_resources(final, one, self._binary(one))),
            baseline=dict(reply.peers) or best.baseline,
            default_us=self._default_us(self._space(one), one.config, reply),
        )
        self.recorder.improved(better, one.source)
        return better

    def _as_screened(self, best: BestConfig, challenger: Challenger) -> BestConfig:
        """Of a shape that stands for others: it is not worth finals."""
        better = replace(self._by(best, challenger.rival, challenger.measurement), default_us=None)
        self.recorder.improved(better, challenger.rival.source)
        return better

    def _by(self, best: BestConfig, one: Rival, measurement: Measurement) -> BestConfig:
        """The winner of a shape with another configuration."""
        return replace(
            best,
            config=one.config,
            measurement=measurement,
            launches=one.launches,
            workspace_bytes=one.workspace_bytes,
            ties=(),
            edge=edge(self._space(one), one.config, best.key.problem, self.request.device),
        )

    def _space(self, one: Rival) -> SearchSpace:
        return next(space for space in self.request.spaces if space.family == one.config.family)

    def _default_us(self, space: SearchSpace, won: Config, reply: RefineReply) -> float | None:
        """From these finals, if the default is among those that the winner has beaten: earlier ones were of another
        clock."""
        default = reply.measurements.get(space.default_config.identity)
        if default is None or default.status != "ok":
            return None
        return lost_by(default, reply.measurements[won.identity])

    def _binary(self, one: Rival) -> Binary:
        self.gpu.compilation.request(one.kernel, one.launches)
        while one.kernel.job_digest not in self.gpu.compilation.binaries:
            self.gpu.compilation.collect(WAIT_S)
        return self.gpu.compilation.binaries[one.kernel.job_digest]


def _candidate(one: Rival, binary: Binary) -> Candidate:
    runtime = {name: value for name, value in one.config.runtime if isinstance(value, int)}
    return Candidate(one.config.identity, binary.path, one.launches, one.workspace_bytes, runtime)


def _with_resources(measurement: Measurement, one: Rival, binary: Binary) -> Measurement:
    registers, spills, smem = resources(binary, one.launches)
    return replace(measurement, registers=registers, spill_bytes=spills, smem_bytes=smem)
