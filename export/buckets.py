"""Buckets: where a size varies at run time, the tuned shapes that serve it, and what that costs between them.

Of each bucket of a range two shapes are tuned, its largest size and a middle one, and each has been timed with the
other's kernel. If one of them is known to be as good for both, its winner serves every size of the bucket; else the
winner of the middle one serves sizes up to a border, where the other one is expected to become faster, or is the one
that can compute them. A size that its part's winner cannot compute is dispatched as any that was not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from kt.export.contents import BucketServed, Contents, Source, group_of, known_device
from kt.export.expected_time import costs_of, expected
from kt.export.runnable import launches_of, names_of
from kt.problems import Problem
from kt.problems.ranges import Bucket, RangedShape

__all__ = ["add_buckets", "computes_all"]

LEAST_LOSS = 0.01  # for less a bucket is not divided: it is noise
SAMPLES = 16  # sizes by which the border is sought
ALONE = 1.0  # gain, as a logarithm, where only one can compute a size

Times = Sequence[Mapping[str, float]]  # of each entry, microseconds by configuration


def add_buckets(
    result: Contents, ranged: Sequence[RangedShape], times: Times, tuned_us: Sequence[float] | None = None
) -> None:
    """Adds those buckets of which both shapes have winners, one of which has not failed on the other.

    Args:
        tuned_us: what the winner of each entry's shape took, where the entry is something else: losses are over that.
    """
    places = {(best.key.device, best.key.problem): index for index, best in enumerate(result.winners)}
    for device in dict.fromkeys(best.key.device for best in result.winners):
        for shape in ranged:
            for bucket in shape.range.buckets:
                numbers = [places.get((device, shape.at(size))) for size in (bucket.last, bucket.middle)]
                entries = [number for number in numbers if number is not None]
                if len(entries) == len(numbers):
                    for one in _served(result, shape, bucket, entries, times):
                        result.buckets.append(one if tuned_us is None else _over_the_winner(result, one, tuned_us))


def computes_all(contents: Contents, served: BucketServed) -> bool:
    """Whether the winner that serves a bucket can compute its sizes, by those at both ends: as many as tell of the
    alignment of rows and of a least or greatest size."""
    first, last = served.bucket.first, served.bucket.last
    ends = {*range(first, min(first + SAMPLES, last + 1)), *range(max(first, last + 1 - SAMPLES), last + 1)}
    return all(_runs(contents, served.entry, served.shape.at(size)) for size in ends)


def _over_the_winner(result: Contents, served: BucketServed, tuned_us: Sequence[float]) -> BucketServed:
    """The same with its loss over what won, in place of over what serves the other shape; infinite if not known."""
    if result.entries[served.entry] in result.generics or result.entries[served.other] in result.generics:
        return replace(served, loss=math.inf)
    own = result.winners[served.other].measurement.time_us or 1.0
    return replace(served, loss=max(0.0, (1.0 + served.loss) * own / tuned_us[served.other] - 1.0))


def _served(
    result: Contents, shape: RangedShape, bucket: Bucket, entries: Sequence[int], times: Times
) -> list[BucketServed]:
    """By the shape whose winner loses less on the other, by the largest if they are equal; or by both."""
    offers = [_loss(result, one, other, times) for one, other in _pairs(entries)]
    losses = [loss for loss, _ in offers]
    (loss, is_known), (entry, other) = min(zip(offers, _pairs(entries), strict=True), key=lambda item: item[0][0])
    has_failed = (math.inf, True) in offers
    if not has_failed and not (is_known and loss < LEAST_LOSS):
        return _divided(_Border(result, shape, bucket, entries, losses))
    source: Source = "measured" if is_known else "expected"
    if any(result.winners[one].measurement.predicted for one in entries):
        source = "predicted"
    return [BucketServed(shape, bucket, entry, other, loss, source)] if math.isfinite(loss) else []


def _divided(border: _Border) -> list[BucketServed]:
    """The middle shape's winner up to a border, and that of the largest beyond."""
    bucket, last = border.bucket, border.last()
    parts = zip((Bucket(bucket.first, last), Bucket(last + 1, bucket.last)), reversed(border.entries), strict=True)
    return [BucketServed(border.shape, part, entry, entry) for part, entry in parts]


class _Border:
    """Where the winner of the largest size becomes faster than that of the middle one.

    Args:
        entries: of the largest size and of the middle one.
        losses: of each one's winner on the other shape.
    """

    def __init__(
        self, result: Contents, shape: RangedShape, bucket: Bucket, entries: Sequence[int], losses: Sequence[float]
    ) -> None:
        self.shape, self.bucket, self.entries = shape, bucket, entries
        self._result = result
        known = (bucket.middle, math.log1p(losses[0])), (bucket.last, -math.log1p(losses[1]))
        self._errors = [gain - self._expected_gain(size) if math.isfinite(gain) else 0.0 for size, gain in known]

    def last(self) -> int:
        """The last size that is the middle one's: by the sum of what it gains, in the last step by bisection."""
        sizes = self._sizes()
        sums = list(accumulate(self._gain(size) for size in sizes[:-1]))
        place = max(range(len(sums)), key=sums.__getitem__)
        low, high = sizes[place], sizes[place + 1]
        while high - low > 1:
            between = (low + high) // 2
            low, high = (between, high) if self._gain(between) > 0 else (low, between)
        return low

    def _sizes(self) -> list[int]:
        """From the middle one to the largest, as far from each other by their ratio."""
        least, last = max(1, self.bucket.middle), self.bucket.last
        between = (round(least * (last / least) ** (i / SAMPLES)) for i in range(1, SAMPLES))
        return sorted({self.bucket.middle, last, *between})

    def _gain(self, size: int) -> float:
        """How much less the middle one's winner takes (logarithm of the ratio): as expected, corrected by what is known
        of both ends; where only one of them can compute it, as if that took much less."""
        found = self._expected_gain(size)
        if math.isinf(found):
            return math.copysign(ALONE, found)
        least = max(1, self.bucket.middle)
        part = math.log(max(1, size) / least) / (math.log(self.bucket.last / least) or 1.0)  # from 0 to 1 there is none
        return found + (1.0 - part) * self._errors[0] + part * self._errors[1]

    def _expected_gain(self, size: int) -> float:
        """The same as expected alone: infinite where only one of them can compute it, 0 where neither can."""
        problem = self.shape.at(size)
        runs = [_runs(self._result, entry, problem) for entry in self.entries]
        if not all(runs):
            return math.inf * (runs[1] - runs[0]) if any(runs) else 0.0
        of_last, of_middle = (_expected_us(self._result, entry, problem) for entry in self.entries)
        return math.log(of_last / of_middle)


def _pairs(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(entries, reversed(entries), strict=True)


def _loss(result: Contents, entry: int, other: int, times: Times) -> tuple[float, bool]:
    """By which part the winner of one shape is slower on another than that one's own, and whether its time there is
    known; else it is expected. Infinite if it has failed there, which is known, or cannot compute it."""
    best = result.winners[other]
    won = best.measurement.time_us or 1.0
    known = times[other].get(result.winners[entry].config.identity)
    if known is None and result.may_fail(result.winners[entry].config, other):
        return math.inf, True
    if known is None and not _runs(result, entry, best.key.problem):
        return math.inf, False
    time_us = known if known is not None else _expected_us(result, entry, best.key.problem)
    return max(0.0, time_us / won - 1.0), known is not None


def _runs(result: Contents, entry: int, problem: Problem) -> bool:
    """Whether the winner of a shape can compute another problem."""
    variant = result.kernels.variants[result.entries[entry]]
    device = known_device(result.winners[entry].key.device)
    return launches_of(result.kernels.kernels[variant.kernel], variant.runtime, problem, device) is not None


def _expected_us(result: Contents, entry: int, problem: Problem) -> float:
    device, variant = result.winners[entry].key.device, result.kernels.variants[result.entries[entry]]
    kernel = result.kernels.kernels[variant.kernel]
    costs = costs_of(
        result.cost_rules[kernel.config.family], names_of(kernel, variant.runtime, problem, known_device(device))
    )
    for candidate in result.groups[group_of(result.winners[entry])]:  # a kernel may be in those of several GPUs
        if result.entries[entry] in candidate.variants:
            return expected(candidate.points, costs, result.traffic[device])[0] / 1e6
    return math.inf
