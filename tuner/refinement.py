"""`refine`: timing the best few candidates and library peers against each other, in interleaved rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kt.cache.records import Measurement
from kt.tuner.method import (
    LEAD_BELOW_US,
    LEAST_ROUNDS,
    MAX_ROUNDS,
    NOISE_LIMIT,
    NOISE_RETRIES,
    REFINE_SAMPLE_US,
    WARM_UP_US,
)
from kt.tuner.sampling import ONE_RUN, Run, Sample, Stopwatch, timed
from kt.tuner.timing_rules import (
    BatchShape,
    batch_shape,
    compare,
    fastest_first,
    measurement_of,
    order_of_round,
    repeats_for,
    settled,
    spread,
    tied_at_the_end,
)

__all__ = ["PeerNotInstalled", "PeerUnavailable", "Refined", "refine"]


class PeerUnavailable(Exception):
    """A library peer is not installed, or refuses the problem."""


class PeerNotInstalled(PeerUnavailable):
    """The library was not found, or cannot be loaded.

    Args:
        library: its name, e.g. "libcublas".
        remedy: what to do about it.
    """

    def __init__(self, library: str, remedy: str) -> None:
        super().__init__(f"{library} is not installed: {remedy}")
        self.library = library
        self.remedy = remedy


@dataclass(frozen=True)
class Refined:
    """The outcome of `refine`: measurements fastest first, names tied with the first, peers in microseconds."""

    measurements: dict[str, Measurement]
    ties: tuple[str, ...]
    peers: dict[str, float]
    peer_errors: dict[str, str]


def refine(
    stopwatch: Stopwatch,
    candidates: Mapping[str, Run],
    peers: Mapping[str, Run],
    sets: int,
    max_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Refined:
    """Time `candidates` and `peers` in interleaved rounds until the candidates are told apart or time is up.

    Every round times each candidate that is still in the running, and each peer, once. One that is clearly slower
    than the fastest leaves. Rounds without consequences come first, so that the times of one that leaves early and of
    one that stays are of one clock. If the fastest is noisy at the end, the rounds are repeated at most
    `NOISE_RETRIES` times, and then it is marked.
    """
    field_ = _Field(stopwatch, sets)
    errors = field_.enter(candidates, peers)
    field_.warm_up(min(WARM_UP_US, 1e6 * max_seconds / 4))
    deadline = clock() + max_seconds
    field_.race(deadline, clock)
    retries = 0
    while field_.noisy and retries < NOISE_RETRIES:
        retries += 1
        field_.forget()
        field_.race(clock() + max_seconds / 2, clock)
    return field_.result(retries_ran_out=retries == NOISE_RETRIES, errors=errors)


@dataclass
class _Field:
    """Those that are timed against each other, and their times so far, one per round.

    Attributes:
        entered: samples by name, candidates and peers.
        running: candidates that no faster one has put out of the running.
        worked_us: for so long the GPU has worked before the first round, without a pause worth mentioning.
        times: microseconds per run by name.
    """

    stopwatch: Stopwatch
    sets: int
    entered: dict[str, Sample] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0
    lead: bool = True
    worked_us: float = 0.0

    def enter(self, candidates: Mapping[str, Run], peers: Mapping[str, Run]) -> dict[str, str]:
        """Make everybody's batch, all of one shape; returns the peers that cannot be timed, with the cause."""
        estimates, errors = self._estimate(candidates, peers)
        if not estimates:
            return errors
        shape = batch_shape(min(estimates.values()), self.sets)
        self.lead = min(estimates.values()) < LEAD_BELOW_US
        self.worked_us = 0.0 if self.lead else sum(estimates.values())
        for name, estimate in estimates.items():
            known = estimate if name in candidates and not shape.graph else None
            try:
                self.entered[name] = self._sample({**candidates, **peers}[name], shape, known)
            except PeerUnavailable as error:
                errors[name] = str(error)
        self.running = [name for name in candidates if name in self.entered]
        self.peers = [name for name in peers if name in self.entered]
        self.times = {name: [] for name in self.entered}
        return errors

    def _estimate(
        self, candidates: Mapping[str, Run], peers: Mapping[str, Run]
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Microseconds of one run by name. A library may load what it needs in its first run, a candidate has run."""
        estimates: dict[str, float] = {}
        errors: dict[str, str] = {}
        for name, run in {**candidates, **peers}.items():
            one = Sample(self.stopwatch.batch(run, ONE_RUN))
            try:
                estimate = timed(self.stopwatch, [one], lead=None)[0] if name in candidates else 0.0
                if estimate < LEAD_BELOW_US:
                    estimate = timed(self.stopwatch, [one], lead=one)[0]
                estimates[name] = estimate
            except PeerUnavailable as error:
                errors[name] = str(error)
        return estimates, errors

    def _sample(self, run: Run, shape: BatchShape, known_us: float | None) -> Sample:
        """Enough repetitions of a batch; `known_us` is the time of one, if it is known."""
        sample = Sample(self.stopwatch.batch(run, shape))
        once = known_us or timed(self.stopwatch, [sample], lead=sample)[0] * sample.runs
        sample.repeats = repeats_for(once, REFINE_SAMPLE_US)
        return sample

    def warm_up(self, microseconds: float) -> None:
        """Rounds that are not counted, until the GPU has worked so long without a pause."""
        worked = self.worked_us
        while self.entered and worked < microseconds:
            self._round()
            worked += sum(self.times[name][-1] * sample.runs for name, sample in self.entered.items())
        self.forget()
        self.rounds = 0

    def race(self, deadline: float, clock: Callable[[], float]) -> None:
        """Rounds until all are told apart or tied for good, or the time is up; `LEAST_ROUNDS` in any case."""
        last, least = self.rounds + MAX_ROUNDS, self.rounds + LEAST_ROUNDS
        while self.entered and self.rounds < last:
            self._round()
            self._retire()
            told_apart = settled({name: self.times[name] for name in self.running or self.peers})
            if self.rounds >= least and (told_apart or clock() >= deadline):
                return

    def _round(self) -> None:
        order = order_of_round([*self.running, *self.peers], self.rounds)
        samples = [self.entered[name] for name in order]
        lead = Sample(samples[0].batch) if self.lead else None
        for name, value in zip(order, timed(self.stopwatch, samples, lead), strict=True):
            self.times[name].append(value)
        self.rounds += 1

    def _retire(self) -> None:
        """Put those out of the running that are clearly slower than the fastest."""
        if not self.running:
            return
        best = fastest_first({name: self.times[name] for name in self.running})[0]
        times = self.times
        self.running = [name for name in self.running if compare(times[best], times[name]) != "slower"]

    @property
    def noisy(self) -> bool:
        """Whether the fastest varies more than the limit."""
        if not self.running:
            return False
        best = fastest_first({name: self.times[name] for name in self.running})[0]
        return (spread(self.times[best]) or 0.0) > NOISE_LIMIT

    def forget(self) -> None:
        """Drop the times of those that are timed again."""
        for name in (*self.running, *self.peers):
            self.times[name] = []

    def result(self, *, retries_ran_out: bool, errors: Mapping[str, str]) -> Refined:
        times = {name: values for name, values in self.times.items() if name not in self.peers and values}
        order = self._ranked(times)
        ties = [name for name in order[1:] if name in self.running and tied_at_the_end(times[order[0]], times[name])]
        measurements = {
            name: measurement_of(times[name], refined=True, retries_ran_out=retries_ran_out) for name in order
        }
        peers = {name: statistics.median(self.times[name]) for name in self.peers if self.times[name]}
        return Refined(measurements, tuple(ties), peers, dict(errors))

    def _ranked(self, times: Mapping[str, Sequence[float]]) -> list[str]:
        """Those still in the running first: a retired one lost in direct comparison, whatever its median."""
        in_running = {name: values for name, values in times.items() if name in self.running}
        retired = {name: values for name, values in times.items() if name not in self.running}
        return [*fastest_first(in_running), *fastest_first(retired)]
