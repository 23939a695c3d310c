"""Which of several winners for one problem is used: one rule for look-up, export and merge.

Measured before predicted; complete before partial; where method or toolchain differ, times are not compared and the
later label in natural order wins; then the fastest; then the configuration's text, so that the pick never depends on
the order in which winners were found.
"""

import re
from collections.abc import Iterable

from kt.cache.key import canonical, key_digest
from kt.cache.records import BestConfig

__all__ = ["Rank", "choose", "listing_order", "rank"]

Rank = tuple[bool, bool, "Descending", "Descending", float, str, str, str]


class Descending:
    """A label with numbers in it, ordered so that the later one comes first: 13.10 before 13.9."""

    def __init__(self, label: str) -> None:
        parts = re.split(r"([0-9]+)", label)
        self._parts = [(*_size(part), part) if part.isdecimal() else (-1, "", part) for part in parts]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(tuple(self._parts))

    def __lt__(self, other: "Descending") -> bool:
        return self._parts > other._parts


def _size(digits: str) -> tuple[int, str]:
    """What orders numbers of any length by their size."""
    significant = digits.lstrip("0")
    return len(significant), significant


def rank(best: BestConfig) -> Rank:
    """Sort key: the smallest is the one to use."""
    return (
        best.measurement.predicted,
        not best.complete,
        Descending(best.key.method),
        Descending(best.key.toolchain),
        best.measurement.time_us or 0.0,
        best.config.identity,
        canonical(best.sources),
        key_digest(best.key),
    )


def preference(taken: BestConfig, other: BestConfig) -> str:
    """Why `rank` puts one before the other, in words that follow "because"."""
    if taken.measurement.predicted != other.measurement.predicted:
        return "it was measured"
    if taken.complete != other.complete:
        return "its search was finished"
    for what, one, another in (
        ("method", taken.key.method, other.key.method),
        ("toolchain", taken.key.toolchain, other.key.toolchain),
    ):
        if one != another:
            return f"it is of the later {what}"
    return "it is faster" if taken.measurement.time_us != other.measurement.time_us else "it is first by its text"


def choose(candidates: Iterable[BestConfig]) -> BestConfig | None:
    """The one to use, None of none."""
    found = list(candidates)
    return found[0] if len(found) == 1 else min(found, key=rank, default=None)  # a look-up finds one, as a rule


def listing_order(best: BestConfig) -> tuple[object, ...]:
    """Sort key of listings and tables: by device, then problem, then `rank`."""
    problem, device = best.key.problem, best.key.device
    sizes = (problem.m, problem.n, problem.k, problem.batch, problem.lda, problem.ldb, problem.ldc)
    rest = (problem.stride_a, problem.stride_b, problem.stride_c, problem.accumulator, problem.out_dtype)
    return (
        device.name, device.compute_capability, device.sm_count, device.memory_gib,
        problem.dtype, problem.layout, *sizes, *rest, problem.epilogue, problem.base_alignment,
        problem.alpha, problem.beta, *rank(best),
    )  # fmt: skip
