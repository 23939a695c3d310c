"""Times of one shape at one clock: that of the finals in which its winner has won."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from kt.cache.records import BestConfig, Measurement
from kt.search_spaces.space import Config
from kt.tuner.method import DIRECT_SLACK_US

__all__ = ["at_the_winners_clock", "counting", "lower_clock"]

# Of a measurement that counts. With fewer samples it may be of one run; that of a short kernel is mostly its launch,
# but what one run gives up takes longer than `DIRECT_SLACK_US`: whatever is below was timed in a graph of many runs.
LEAST_SAMPLES = 3
LONG_US = 1000.0
LOWER_CLOCKS = (0.8, 1.5)  # of finals against screenings; beyond these one of the two was no time of the kernel


def at_the_winners_clock(best: BestConfig, of_shape: Mapping[Config, Measurement]) -> Mapping[Config, Measurement]:
    """What was measured on a shape, with finalists of other finals as they would be in the winner's.

    A shape may have been decided more than once, as against other shapes' kernels: each time at the clock that the GPU
    had then. No finalist that is not tied with the winner is faster than it, so where one seems to be, all of them are
    taken to be slower by the same part.
    """
    others = {config for config, one in of_shape.items() if one.refined and config not in (best.config, *best.ties)}
    won_us, most = best.measurement.time_us or 0.0, LOWER_CLOCKS[1]
    ratios = [won_us / us for config in others if (us := counting(of_shape[config], 1.0)) is not None]
    scale = max([ratio for ratio in ratios if ratio <= most], default=1.0)
    if scale <= 1.0 or not best.measurement.refined:
        return of_shape
    return {config: _scaled(one, scale) if config in others else one for config, one in of_shape.items()}


def _scaled(measurement: Measurement, scale: float) -> Measurement:
    return replace(measurement, time_us=measurement.time_us * scale) if measurement.time_us else measurement


def lower_clock(won: Measurement, of_shape: Mapping[Config, Measurement]) -> float:
    """How many times as long as in its screening a kernel takes in finals, where the GPU is under load for long.

    By the median of those of the shape of which both times are known; 1 where nothing is, as in caches of schema 1. One
    odd screening of a shape that has no other says nothing.
    """
    every = [(one.time_us, one.screened_us) for one in (won, *of_shape.values()) if one.refined]
    ratios = [time_us / screened_us for time_us, screened_us in every if time_us and screened_us]
    least, most = LOWER_CLOCKS
    return statistics.median([one for one in ratios if least <= one <= most] or [1.0])


def counting(measurement: Measurement, lower_clock: float) -> float | None:
    """The time of a measurement that counts, as it would be in finals."""
    if measurement.predicted or measurement.time_us is None:
        return None
    of_one_run = measurement.samples < LEAST_SAMPLES and DIRECT_SLACK_US <= measurement.time_us < LONG_US
    scale = 1.0 if measurement.refined else lower_clock
    return None if of_one_run else measurement.time_us * scale
