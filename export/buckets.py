"""Buckets: where a size varies at run time, the tuned shapes that serve it, and what that costs between them.

Of each bucket of a range two shapes are tuned, its largest size and a middle one, and each has been timed with the
other's kernel. If one of them is known to be as good for both, its winner serves every size of the bucket; else the
winner of the middle one serves sizes up to a border, where the other one is expected to become faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from kt.export.contents import BucketServed, Contents, Source, group_of, known_device
from kt.export.expected_time import costs_of, expected
from kt.export.runnable import launches_of, names_of
from kt.problems import Problem
from kt.problems.ranges import Bucket, RangedShape

__all__ = ["add_buckets"]

LEAST_LOSS = 0.01  # for less a bucket is not divided: it is noise
SAMPLES = 16  # sizes by which the border is sought

Times = Sequence[Mapping[str, float]]  # of each entry, microseconds by configuration


def add_buckets(result: Contents, ranged: Sequence[RangedShape], times: Times) -> None:
    """Adds those buckets of which both shapes have winners, one of which has not failed on the other."""
    places = {(best.key.device, best.key.problem): index for index, best in enumerate(result.winners)}
    for device in dict.fromkeys(best.key.device for best in result.winners):
        for shape in ranged:
            for bucket in shape.range.buckets:
                numbers = [places.get((device, shape.at(size))) for size in (bucket.last, bucket.middle)]
                entries = [number for number in numbers if number is not None]
                if len(entries) == len(numbers):
                    result.buckets += _served(result, shape, bucket, entries, times)


def _served(
    result: Contents, shape: RangedShape, bucket: Bucket, entries: Sequence[int], times: Times
) -> list[BucketServed]:
    """By the shape whose winner loses less on the other, by the largest if they are equal; or by both."""
    offers = [_loss(result, one, other, times) for one, other in _pairs(entries)]
    losses = [loss for loss, _ in offers]
    (loss, is_known), (entry, other) = min(zip(offers, _pairs(entries), strict=True), key=lambda item: item[0][0])
    both = all(_runs(result, one, result.winners[other].key.problem) for one, other in _pairs(entries))
    if both and max(losses) < math.inf and not (is_known and loss < LEAST_LOSS):
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
        known = math.log1p(losses[0]), -math.log1p(losses[1])
        ends = self._expected_gain(bucket.middle) or 0.0, self._expected_gain(bucket.last) or 0.0
        self._errors = [one - other for one, other in zip(known, ends, strict=True)]

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
        of both ends; 0 if only one of them can compute it."""
        found = self._expected_gain(size)
        if found is None:
            return 0.0
        least = max(1, self.bucket.middle)
        part = math.log(max(1, size) / least) / (math.log(self.bucket.last / least) or 1.0)  # from 0 to 1 there is none
        return found + (1.0 - part) * self._errors[0] + part * self._errors[1]

    def _expected_gain(self, size: int) -> float | None:
        problem = self.shape.at(size)
        if not all(_runs(self._result, entry, problem) for entry in self.entries):
            return None
        of_last, of_middle = (_expected_us(self._result, entry, problem) for entry in self.entries)
        return math.log(of_last / of_middle)


def _pairs(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(entries, reversed(entries), strict=True)


def _loss(result: Contents, entry: int, other: int, times: Times) -> tuple[float, bool]:
    """By which part the winner of one shape is slower on another than that one's own, and whether its time there is
    known; else it is expected."""
    best = result.winners[other]
    won = best.measurement.time_us or 1.0
    known = times[other].get(result.winners[entry].config.identity)
    if known is None and result.may_fail(result.winners[entry].config, other):
        return math.inf, True
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
