"""The statistics of timing and the decisions made from them: pure functions of numbers, no clock and no GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kt.cache.records import Measurement
from kt.tuner.method import CLEARLY, GRAPH_BELOW_US, LEAST_ROUNDS, MIN_ROUNDS, NOISE_LIMIT, TIE

__all__ = [
    "BatchShape",
    "Verdict",
    "batch_shape",
    "compare",
    "fastest_first",
    "measurement_of",
    "order_of_round",
    "ratio_interval",
    "repeats_for",
    "screen_samples",
    "settled",
    "spread",
    "stop_early",
    "tied_at_the_end",
]

Verdict = Literal["slower", "tied", "open"]

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class BatchShape:
    """What one sample is made of: `runs` consecutive runs, captured in a CUDA graph or launched one by one."""

    runs: int
    graph: bool


def batch_shape(estimate_us: float, sets: int) -> BatchShape:
    """How to time runs of about `estimate_us` over `sets` operand sets.

    A graph holds at least one whole rotation: replaying less would read operands from the cache.
    """
    if estimate_us >= GRAPH_BELOW_US:
        return BatchShape(1, False)
    return BatchShape(max(sets, math.ceil(GRAPH_BELOW_US / 2 / max(estimate_us, 1.0))), True)


def repeats_for(batch_us: float, sample_us: float) -> int:
    """How often a batch that takes `batch_us` is repeated within one sample of at least `sample_us`."""
    return max(1, math.ceil(sample_us / batch_us)) if batch_us > 0 else 2


def screen_samples(sample_us: float, budget_us: float) -> int:
    """Samples of a screening: as many as the budget holds, at least one and at most five."""
    return max(1, min(5, int(budget_us / sample_us)))


def stop_early(time_us: float, stop_above_us: float | None, slack_us: float = 0.0) -> bool:
    """Whether a candidate is out after a run that took `time_us`, of which the host may have caused `slack_us`."""
    return stop_above_us is not None and time_us - slack_us > stop_above_us


def spread(samples: Sequence[float]) -> float | None:
    """Interquartile range divided by the median; None with fewer than three samples."""
    if len(samples) < 3:
        return None
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle


def measurement_of(samples: Sequence[float], *, refined: bool, retries_ran_out: bool = False) -> Measurement:
    """The `ok` measurement behind `samples`, in microseconds, all of them positive."""
    width = spread(samples)
    return Measurement(
        "ok",
        statistics.median(samples),
        width,
        len(samples),
        refined=refined,
        noisy=retries_ran_out and width is not None and width > NOISE_LIMIT,
    )


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float]:
    """A confidence interval for the median of `ratios`: the sign test turned around, free of any distribution.

    The interval from the j-th smallest to the j-th largest holds the median unless fewer than j of n coin tosses fall
    on one side. With few ratios it spans all of them.
    """
    ordered, count = sorted(ratios), len(ratios)
    rank, outside = 1, 2 * 0.5**count
    while rank < (count + 1) // 2:
        outside += 2 * math.comb(count, rank) * 0.5**count
        if outside > 1 - _CONFIDENCE:
            break
        rank += 1
    return ordered[rank - 1], ordered[count - rank]


def compare(best: Sequence[float], other: Sequence[float]) -> Verdict:
    """How `other` stands to `best`, from samples that were taken in the same rounds.

    "slower": the ratio is above 1 by more than a tie, and the interval says so too. "tied": the whole interval lies
    within a tie of 1. An interval that is itself no wider than a tie has nothing more to tell: then the median decides.
    "open": more rounds could tell. Who is far slower in every round need not stay for as many as an interval wants.
    """
    ratios = _by_round(best, other)
    if len(ratios) < MIN_ROUNDS:
        return "slower" if len(ratios) >= LEAST_ROUNDS and min(ratios) > 1 + CLEARLY else "open"
    low, high = ratio_interval(ratios)
    if low > 1 + TIE:
        return "slower"
    if low >= 1 - TIE and high <= 1 + TIE:
        return "tied"
    if high - low > TIE:
        return "open"
    return "tied" if statistics.median(ratios) <= 1 + TIE else "slower"


def tied_at_the_end(best: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the two count as equally fast when no more rounds are taken: not told apart, or nearer than a tie."""
    ratios = _by_round(best, other)
    low, high = ratio_interval(ratios)
    return abs(statistics.median(ratios) - 1) <= TIE or low <= 1 <= high


def fastest_first(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """Names by median time; equal medians in the order given."""
    return sorted(samples, key=lambda name: statistics.median(samples[name]))


def settled(samples: Mapping[str, Sequence[float]]) -> bool:
    """Whether every one of `samples` is told apart from the fastest, or tied with it for good."""
    if len(samples) < 2:
        return all(len(values) >= MIN_ROUNDS for values in samples.values())
    best, *others = fastest_first(samples)
    return all(compare(samples[best], samples[name]) != "open" for name in others)


def order_of_round(names: Sequence[str], number: int) -> list[str]:
    """The order in which a round times `names`: rotated by one every second round, and backwards in between.

    No candidate always follows the same other one, whose heat and cache contents it would inherit.
    """
    start = number // 2 % len(names) if names else 0
    order = [*names[start:], *names[:start]]
    return order[::-1] if number % 2 else order


def _by_round(best: Sequence[float], other: Sequence[float]) -> list[float]:
    """The ratios of `other` to `best`, of the rounds that both took part in."""
    return [late / early for early, late in zip(best, other, strict=False)]
