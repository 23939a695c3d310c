"""Choosing few of many: the smallest set that covers everything, and the best set of a given size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["best_of", "cheapest_alike", "smallest_cover"]

# Of the exact search: sets, and what they have, that are looked at; beyond it the choice that was found so far stands.
MAX_WORK = 200_000_000


def smallest_cover(covers: Mapping[int, frozenset[int]]) -> list[int]:
    """The fewest keys whose sets together have all that any set has; of equal ones the first in order.

    Exact within `MAX_WORK`, else as good as the greedy choice at least.
    """
    return sorted(_Cover(covers).search())


class _Cover:
    """Branch and bound: what few sets have is decided first, by each of the sets that have it.

    So what one set alone has comes before all: it is no choice. There may be thousands of these, one below the other.
    """

    def __init__(self, covers: Mapping[int, frozenset[int]]) -> None:
        self._covers = {key: items for key, items in sorted(covers.items()) if not _is_dominated(key, covers)}
        self._having: dict[int, list[int]] = {}  # keys of each item
        for key, items in self._covers.items():
            for item in items:
                self._having.setdefault(item, []).append(key)
        self._rarest = sorted(self._having, key=lambda item: (len(self._having[item]), item))

    def search(self) -> list[int]:
        """The fewest keys."""
        best = self._greedy()
        work = sum(1 + len(items) for items in self._covers.values())  # of a branch
        open_branches: list[tuple[frozenset[int], list[int]]] = [(frozenset(self._having), [])]
        for _ in range(MAX_WORK // max(1, work)):
            if not open_branches:
                break
            missing, chosen = open_branches.pop()
            if not missing:
                best = chosen if len(chosen) < len(best) else best
            elif len(chosen) + self._least(missing) < len(best):
                open_branches += reversed(list(self._branches(missing, chosen)))
        return best

    def _least(self, missing: frozenset[int]) -> int:
        """No fewer sets have all of this."""
        largest = max(len(items & missing) for items in self._covers.values())
        return -(-len(missing) // largest)

    def _branches(self, missing: frozenset[int], chosen: list[int]) -> Iterator[tuple[frozenset[int], list[int]]]:
        """One for each set that has the rarest of what is missing, the one that has most of it first."""
        rarest = next(item for item in self._rarest if item in missing)
        for key in sorted(self._having[rarest], key=lambda key: (-len(self._covers[key] & missing), key)):
            yield missing - self._covers[key], [*chosen, key]

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
