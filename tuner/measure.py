"""`screen`: timing one candidate quickly, and less than that if it is seen to be slow."""

from __future__ import annotations

from kt.cache.records import Measurement
from kt.tuner.method import (
    DIRECT_SLACK_US,
    FIRST_RUN_SLACK_US,
    LEAD_BELOW_US,
    SCREEN_BUDGET_US,
    SCREEN_SAMPLE_US,
)
from kt.tuner.sampling import ONE_RUN, Run, Sample, Stopwatch, timed
from kt.tuner.timing_rules import batch_shape, measurement_of, repeats_for, screen_samples, stop_early

__all__ = ["screen"]


def screen(stopwatch: Stopwatch, run: Run, sets: int, first_us: float, stop_above_us: float | None) -> Measurement:
    """Time a candidate whose first run took `first_us`; stop as soon as it is seen to be slower than `stop_above_us`.

    Raises:
        TimerStuck: no sample is positive.
    """
    if stop_early(first_us, stop_above_us, FIRST_RUN_SLACK_US):
        return measurement_of([first_us], refined=False)
    one = Sample(stopwatch.batch(run, ONE_RUN))
    if first_us >= FIRST_RUN_SLACK_US + LEAD_BELOW_US:  # long: one run on random operands tells enough
        return measurement_of(timed(stopwatch, [one], lead=None), refined=False)
    estimate = timed(stopwatch, [one], lead=one)[0]
    if stop_early(estimate, stop_above_us, DIRECT_SLACK_US):
        return measurement_of([estimate], refined=False)
    sample = Sample(stopwatch.batch(run, batch_shape(estimate, sets)))
    first = estimate if sample.runs == 1 else timed(stopwatch, [sample], lead=sample)[0]
    if stop_early(first, stop_above_us):
        return measurement_of([first], refined=False)
    return measurement_of(_screen_samples(stopwatch, sample, first), refined=False)


def _screen_samples(stopwatch: Stopwatch, sample: Sample, first_us: float) -> list[float]:
    """Microseconds per run in a few samples; the time of the first batch is one of them if it is long enough."""
    sample_us = first_us * sample.runs
    sample.repeats = max(sample.repeats, repeats_for(sample_us, SCREEN_SAMPLE_US))
    count = screen_samples(first_us * sample.runs, SCREEN_BUDGET_US)
    samples = [first_us] if sample_us >= SCREEN_SAMPLE_US else []
    if count > len(samples):
        lead = Sample(sample.batch)
        samples += timed(stopwatch, [sample] * (count - len(samples)), lead)
    return samples
