"""What timing is written against: runs, batches of them, samples, and the `Stopwatch` that times samples.

The GPU stands behind the stopwatch in the worker, a simulated clock in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kt.tuner.method import MAX_DOUBLINGS
from kt.tuner.timing_rules import BatchShape
from kt.wording import plural

__all__ = ["ONE_RUN", "Batch", "Run", "Sample", "Stopwatch", "TimerStuck", "timed"]

Run = Callable[[], None]  # enqueues one run on the next operand set
ONE_RUN = BatchShape(1, False)


class TimerStuck(Exception):
    """The timer shows no positive time, however many runs are timed together."""


class Batch(Protocol):
    """A number of runs that are enqueued together."""

    @property
    def runs(self) -> int: ...

    def enqueue(self) -> None: ...


@dataclass
class Sample:
    """A batch, and how often it is repeated within one timed sample."""

    batch: Batch
    repeats: int = 1

    @property
    def runs(self) -> int:
        return self.batch.runs * self.repeats


class Stopwatch(Protocol):
    """Times batches of runs that follow each other without a gap."""

    def batch(self, run: Run, shape: BatchShape) -> Batch:
        """Make a batch; a graph is captured here."""
        ...

    def time(self, samples: Sequence[Sample]) -> list[float]:
        """Enqueue all samples, wait for them, and return the time of each in microseconds."""
        ...


def timed(stopwatch: Stopwatch, samples: Sequence[Sample], lead: Sample | None) -> list[float]:
    """Microseconds per run of each sample; `lead` runs before them, so that the first does not wait for the host.

    A time that is zero or negative is never returned: the samples are made longer until the timer resolves them.

    Raises:
        TimerStuck: after `MAX_DOUBLINGS`.
    """
    front = [lead] if lead else []
    for _ in range(MAX_DOUBLINGS + 1):
        elapsed = stopwatch.time([*front, *samples])[len(front) :]
        if min(elapsed) > 0:
            return [total / sample.runs for total, sample in zip(elapsed, samples, strict=True)]
        for sample in {id(sample): sample for sample in samples}.values():
            sample.repeats *= 2
    raise TimerStuck(f"the event timer shows no time for {plural(samples[0].runs, 'run')}")
