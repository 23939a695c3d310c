"""Choosing few of many: the smallest set that covers everything, and the best set of a given size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["best_of", "cheapest_alike", "smallest_cover"]

MAX_STEPS = 200_000  # of the exact search; beyond it the set that was found so far stands


def smallest_cover(covers: Mapping[int, frozenset[int]]) -> list[int]:
    """The fewest keys whose sets together have all that any set has; of equal ones the first in order.

    Exact within `MAX_STEPS` branches, else as good as the greedy choice at least.
    """
    search = _Cover(covers)
    search.branch(frozenset().union(*covers.values()), [])
    return sorted(search.best)


class _Cover:
    """Branch and bound: what few sets have is decided first, by each of the sets that have it."""

    def __init__(self, covers: Mapping[int, frozenset[int]]) -> None:
        self._covers = {key: items for key, items in sorted(covers.items()) if not _is_dominated(key, covers)}
        self._steps = 0
        self.best = self._greedy()

    def branch(self, missing: frozenset[int], chosen: list[int]) -> None:
        if not missing:
            if len(chosen) < len(self.best):
                self.best = list(chosen)
            return
        self._steps += 1
        largest = max(len(items & missing) for items in self._covers.values())
        if self._steps > MAX_STEPS or len(chosen) + -(-len(missing) // largest) >= len(self.best):
            return
        having = {item: [key for key, items in self._covers.items() if item in items] for item in sorted(missing)}
        rarest = min(having.values(), key=len)
        for key in sorted(rarest, key=lambda key: (-len(self._covers[key] & missing), key)):
            self.branch(missing - self._covers[key], [*chosen, key])

    def _greedy(self) -> list[int]:
        missing = frozenset().union(*self._covers.values())
        chosen: list[int] = []
        while missing:
            key = min(self._covers, key=lambda key: (-len(self._covers[key] & missing), key))
            chosen.append(key)
            missing -= self._covers[key]
        return chosen


def _is_dominated(key: int, covers: Mapping[int, frozenset[int]]) -> bool:
    """Whether another set has all of this one and more, or as much and stands before it."""
    items = covers[key]
    return any(items < other or (items == other and name < key) for name, other in covers.items())


def cheapest_alike(cover: Sequence[int], costs: Mapping[int, Mapping[int, float]]) -> list[int]:
    """As many keys as `cover` has, which serve all that it serves for less, as far as exchanges of one for another go.

    Args:
        costs: of each key, by item; an item that it does not serve is not there.
    """
    keys = sorted(costs)
    places = [keys.index(key) for key in cover]
    return sorted(keys[place] for place in _exchanged(places, _rows([costs[key] for key in keys], math.inf)))


def best_of(costs: Sequence[Mapping[int, float]], count: int, absent: float) -> list[int]:
    """At most `count` choices with a small sum, over all items, of the least cost that a chosen one has for the item.

    Greedy, then exchanges of one choice for another as long as these help.

    Args:
        costs: of each choice, by item; an item that it does not serve is not there.
        absent: cost of an item that nothing chosen serves.
    """
    rows = _rows(costs, absent)
    chosen: list[int] = []
    for _ in range(min(count, len(rows))):
        known = _least(chosen, rows)
        others = [one for one in range(len(rows)) if one not in chosen]
        best = min(others, key=lambda one: (_total(known, rows[one]), one))
        if chosen and _total(known, rows[best]) >= sum(known):
            break
        chosen.append(best)
    return sorted(_exchanged(chosen, rows))


Row = list[float]  # what one choice costs for each item


def _rows(costs: Sequence[Mapping[int, float]], absent: float) -> list[Row]:
    items = sorted({item for one in costs for item in one})
    return [[min(absent, one.get(item, absent)) for item in items] for one in costs]


def _least(chosen: Iterable[int], rows: Sequence[Row]) -> Row:
    """Of each item what it costs with these choices; with none of them as much as with the worst."""
    found = [rows[one] for one in chosen]
    columns = zip(*(found or rows), strict=True)
    return [min(column) for column in columns] if found else [max(column) for column in columns]


def _total(known: Row, row: Row) -> float:
    """The sum with one choice more."""
    return sum(map(min, known, row))


def _exchanged(chosen: list[int], rows: Sequence[Row]) -> list[int]:
    """After every exchange that helps, the best one first."""
    while chosen:
        least = sum(_least(chosen, rows))
        swaps = [
            (_total(known, rows[new]), [one if one != out else new for one in chosen])
            for out in chosen
            for known in [_least([one for one in chosen if one != out], rows)]
            for new in range(len(rows))
            if new not in chosen
        ]
        total, swap = min(swaps, default=(least, chosen))
        if total >= least - 1e-12:
            break
        chosen = swap
    return chosen
