"""Buckets: where a size varies at run time, the tuned shapes that serve it, and what that costs between them.

Of each bucket of a range two shapes are tuned, its largest size and a middle one. The winner of the one that loses less
on the other serves every size of the bucket: the loss is measured, for each has been timed with the other's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kt.devices.device import DeviceIdentity
from kt.export.contents import BucketServed, Contents, known_device
from kt.export.dispatch import expected
from kt.problems.ranges import Bucket, RangedShape

__all__ = ["add_buckets"]


def add_buckets(result: Contents, ranged: Sequence[RangedShape], times: Sequence[Mapping[str, float]]) -> None:
    """Adds those buckets of which both shapes have winners, one of which has not failed on the other.

    Args:
        times: for each entry, microseconds by configuration.
    """
    places = {(best.key.device, best.key.problem): index for index, best in enumerate(result.winners)}
    for device in dict.fromkeys(best.key.device for best in result.winners):
        for shape in ranged:
            for bucket in shape.range.buckets:
                numbers = [places.get((device, shape.at(size))) for size in (bucket.last, bucket.middle)]
                entries = [number for number in numbers if number is not None]
                if len(entries) == len(numbers):
                    served = _served(result, shape, bucket, entries, times)
                    result.buckets += [served] if math.isfinite(served.loss) else []


def _served(
    result: Contents, shape: RangedShape, bucket: Bucket, entries: Sequence[int], times: Sequence[Mapping[str, float]]
) -> BucketServed:
    """By the shape whose winner loses less on the other; by the largest if they are equal."""
    offers = [_loss(result, one, other, times) for one, other in _pairs(entries)]
    (loss, is_measured), entry = min(zip(offers, entries, strict=True), key=lambda item: item[0][0])
    return BucketServed(shape, bucket, entry, loss, is_measured)


def _pairs(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(entries, reversed(entries), strict=True)


def _loss(result: Contents, entry: int, other: int, times: Sequence[Mapping[str, float]]) -> tuple[float, bool]:
    """By which part the winner of one shape is slower on another than that one's own, and whether that was measured."""
    best = result.winners[other]
    won = best.measurement.time_us or 1.0
    known = times[other].get(result.winners[entry].config.identity)
    if known is None and result.may_fail(result.winners[entry].config, other):
        return math.inf, True
    time_us = known if known is not None else _expected_us(result, entry, other, best.key.device)
    ran = not (best.measurement.predicted or result.winners[entry].measurement.predicted)
    return max(0.0, time_us / won - 1.0), known is not None and ran


def _expected_us(result: Contents, entry: int, other: int, device: DeviceIdentity) -> float:
    problem, variant = result.winners[other].key.problem, result.entries[entry]
    for group in result.groups.values():
        for candidate in group:
            if variant in candidate.variants:
                return expected(result, candidate, problem, known_device(device))[variant][0] / 1e6
    return float("inf")
