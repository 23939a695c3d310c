"""`Range`: a size that is known at run time only, as buckets that are tuned and measured by a few sizes each.

Every bucket has a representative, its largest size, and a size in the middle. Both are tuned, and each is timed with
the other's kernel: `kt.export.buckets` says which of them serves which sizes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kt.errors import InputError
from kt.problems.problem import Problem
from kt.wording import plural

__all__ = ["MAX_BUCKETS", "NAMES", "Bucket", "Range", "RangedShape", "read_range"]

NAMES = ("m", "n", "k", "batch")  # what may vary
MAX_BUCKETS = 256
_RANGE = re.compile(r"(?P<name>\w+)=(?P<first>[0-9]{1,10}):(?P<last>[0-9]{1,10})(?::(?P<buckets>[0-9]{1,10}))?")


@dataclass(frozen=True)
class Bucket:
    """Sizes from `first` to `last`, the representative."""

    first: int
    last: int

    @property
    def middle(self) -> int:
        """A size about as far from both ends, by their ratio; `last` if there is no other."""
        return max(self.first, min(self.last, math.isqrt(self.first * self.last)))


@dataclass(frozen=True)
class Range:
    """Sizes from `first` to `last` in buckets that grow by one factor.

    Attributes:
        wanted: number of buckets; there are fewer where a bucket would have no size of its own.
    """

    first: int
    last: int
    wanted: int

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise InputError(f"the range from {self.first} to {self.last} is empty", hint="give the smaller one first")
        if not 1 <= self.wanted <= MAX_BUCKETS:
            raise InputError(f"it has {plural(self.wanted, 'bucket')}; there must be 1 to {MAX_BUCKETS}")

    @staticmethod
    def doubling(first: int, last: int) -> "Range":
        """A bucket for each doubling."""
        return Range(first, last, max(1, min(MAX_BUCKETS, (-(-last // max(1, first)) - 1).bit_length())))

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets, smallest sizes first; together they have every size of the range once."""
        least = max(1, self.first)
        ends = [round(least * (self.last / least) ** (number / self.wanted)) for number in range(1, self.wanted)]
        lasts = sorted({self.last, *(end for end in ends if self.first <= end < self.last)})
        firsts = [self.first, *(end + 1 for end in lasts[:-1])]
        return tuple(Bucket(first, last) for first, last in zip(firsts, lasts, strict=True))

    @property
    def sizes(self) -> tuple[int, ...]:
        """What is tuned: of each bucket the middle and the representative."""
        return tuple(sorted({size for bucket in self.buckets for size in (bucket.middle, bucket.last)}))


@dataclass(frozen=True)
class RangedShape:
    """A problem one of whose sizes is a range.

    Attributes:
        name: of the size.
        values: the other fields of the problem, as they were given.
    """

    name: str
    range: Range
    values: Mapping[str, Any]

    def at(self, size: int) -> Problem:
        return Problem(**{**self.values, self.name: size})


def read_range(text: str) -> tuple[str, Range]:
    """`m=1:4096` or, with the number of buckets, `m=1:4096:12`.

    Raises:
        InputError: it is neither.
    """
    form = _RANGE.fullmatch(text.strip())
    if form is None or form["name"] not in NAMES:
        raise InputError("it is no range", hint=f"m=1:4096, or m=1:4096:12 for 12 buckets; of {', '.join(NAMES)}")
    first, last = int(form["first"]), int(form["last"])
    if form["buckets"] is None:
        return form["name"], Range.doubling(first, last)
    return form["name"], Range(first, last, int(form["buckets"]))
