"""The order in which candidates are tried: `auto`, `exhaustive` and `random`.

A strategy knows candidates by their number in a `Terrain`. It proposes batches, is told what each one took, and
proposes on; an empty batch means that the search has ended by itself. Every strategy tries the default configurations
first, and the same seed and the same answers give the same proposals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kt.tuner.terrain import Indices, Landscape, Terrain, join

if TYPE_CHECKING:
    from kt.tuner.request import Strategy

__all__ = ["Auto", "Brief", "Exhaustive", "Random", "Search", "Shortlist", "make_search"]

BATCH = 64  # candidates that exhaustive and random hand out at a time


class Search(Protocol):
    """One search over one terrain."""

    @property
    def likely(self) -> int:
        """About how many candidates it will try."""
        ...

    @property
    def ahead(self) -> int:
        """How many candidates may be without an answer when it is asked for more."""
        ...

    def propose(self) -> list[int]:
        """The next candidates, none twice. Empty with nothing left without an answer: the search has ended."""
        ...

    def tell(self, number: int, time_us: float | None) -> None:
        """What a candidate took; None if it failed."""


class _Listed:
    """A search that goes through a fixed order in batches."""

    ahead = BATCH // 2

    def __init__(self, order: Iterable[int]) -> None:
        self._left = list(dict.fromkeys(order))
        self._size = len(self._left)

    @property
    def likely(self) -> int:
        return self._size

    def propose(self) -> list[int]:
        batch, self._left = self._left[:BATCH], self._left[BATCH:]
        return batch

    def tell(self, number: int, time_us: float | None) -> None:
        """Answers do not change the order."""


class Exhaustive(_Listed):
    """Everything that is valid, best predicted first."""

    def __init__(self, terrain: Terrain) -> None:
        landscape = terrain.everything()
        super().__init__((*terrain.defaults, *landscape.numbers[landscape.by_prediction()].tolist()))


class Random(_Listed):
    """Uniformly without replacement."""

    def __init__(self, terrain: Terrain, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(terrain))
        super().__init__((*terrain.defaults, *order.tolist()))


class Brief(_Listed):
    """What has won on the nearest problems, and then of each family in turn the start that the model likes best.

    In turn, for where a problem is so small that little is done, the model does not know which family does it soonest.
    Each binary once: most of the time goes into compiling.
    """

    def __init__(self, terrain: Terrain, count: int, *, starts: Sequence[int] = ()) -> None:
        named = terrain.at(terrain.starts)
        in_family: Counter[int] = Counter()
        known = set(terrain.at(starts).binary.tolist())
        turns: list[tuple[int, float, int]] = []
        for row in named.by_prediction().tolist():
            family, binary = int(named.family[row]), int(named.binary[row])
            if binary not in known:
                known.add(binary)
                turns.append((in_family[family], float(named.predicted[row]), int(named.numbers[row])))
                in_family[family] += 1
        order = [*starts, *(number for _, _, number in sorted(turns))]
        super().__init__((order or terrain.defaults)[:count])


class Shortlist:
    """The best predicted `count`, of each structure only a few: for a device that can only be modelled.

    A candidate that turns out to be unusable is replaced by the next one, at most `count` times.
    """

    PER_STRUCTURE = 2
    ahead = 0

    def __init__(self, terrain: Terrain, count: int) -> None:
        landscape = terrain.sample
        per_structure: Counter[int] = Counter()
        chosen: dict[int, int] = {}  # one candidate of each binary
        for row in landscape.by_prediction().tolist():
            structure, binary = int(landscape.structure[row]), int(landscape.binary[row])
            if len(chosen) == 2 * count or not np.isfinite(landscape.predicted[row]):
                break
            if binary not in chosen and per_structure[structure] < self.PER_STRUCTURE:
                chosen[binary] = int(landscape.numbers[row])
                per_structure[structure] += 1
        self._left = list(dict.fromkeys((*terrain.defaults, *chosen.values())))
        self._wanted = count + len(terrain.defaults)
        self._size = min(self._wanted, len(self._left))

    @property
    def likely(self) -> int:
        return self._size

    def propose(self) -> list[int]:
        batch, self._left, self._wanted = self._left[: self._wanted], self._left[self._wanted :], 0
        return batch

    def tell(self, number: int, time_us: float | None) -> None:
        self._wanted += time_us is None


class Auto:
    """The best predicted of many kinds, then steps from the best measured ones until no step helps.

    First come the defaults, winners of similar problems, and the completions of the spaces' starts, of those that the
    model doubts only a few; of each family the best predicted first, so that a budget that ends early has seen them
    all. The model's error is larger than many differences that it predicts; so for what it chooses
    itself, its order is shuffled by `TRUST`, of each structure and around each choice only a few are taken, and half is
    drawn from all that it puts within a factor `PLAUSIBLE` of its best. Then come rounds: from the fastest `CENTRES`
    binaries every change of one parameter by one step; if none helps, changes of two parameters by one step each. Where
    one that was given still leads, rounds are short: searches that ended with it have taken the steps around it. A
    round begins before the one before has been told whole, so that compilers and GPU have work.

    Args:
        starts: candidates to try besides the first selection, such as winners of similar problems.
        most: candidates in all, for problems whose runs take long.
    """

    FIRST = 56  # candidates of the first selection
    STARTS = 40  # of them, completions of the spaces' starts
    TRUSTED = 1.5  # a start predicted to take so many times the best prediction is doubted
    DOUBTED = 6  # of those, so many are tried
    EARLY = 2  # starts of each family that come before the others
    OWN = 16  # and at least so many that the model chooses
    TRUST = 0.08  # standard deviation of the model's relative error, as it is taken to be
    PLAUSIBLE = 2.0
    PER_STRUCTURE = 3
    NEAR = 2  # chosen candidates that may lie within one changed parameter of a further one
    CENTRES = 3
    WITHIN = 1.10  # a centre is at most this much slower than the best
    ROUND = 16  # candidates of one round
    SHORT_ROUND = 8  # while one that was given leads
    ROUNDS = 15
    LIKELY = 2  # such rounds until the search ends by itself, about
    GAIN = 0.005  # part of the time that a round must gain to count as a step forward
    ahead = 16

    def __init__(self, terrain: Terrain, seed: int, *, starts: Sequence[int] = (), most: int | None = None) -> None:
        self._terrain = terrain
        self._starts = starts
        self._most = len(terrain) if most is None else most
        self._random = np.random.default_rng(seed)
        self._times: dict[int, float] = {}
        self._binary: dict[int, int] = {}
        self._given: set[int] = set()
        self._tried: set[int] = set()
        self._moves: list[Callable[[], list[int]]] = [self._start]
        self._best = float("inf")
        self._rounds = 0

    @property
    def likely(self) -> int:
        return min(len(self._terrain), self._most, self.FIRST + self.LIKELY * self.ROUND)

    def propose(self) -> list[int]:
        """The first selection, then rounds; a round that gains starts again with the smallest steps.

        What is told before the first selection, such as an earlier run's best, is a gain of that selection.
        """
        best = min(self._times.values(), default=float("inf"))
        if self._tried:
            if best < self._best * (1 - self.GAIN):
                self._moves = [self._one_step, self._two_steps]
            self._best = min(self._best, best)
        while self._moves and self._rounds <= self.ROUNDS:
            batch = self._moves.pop(0)()[: self._most - len(self._tried)]
            if batch:
                self._rounds += 1
                self._tried.update(batch)
                return batch
        return []

    def tell(self, number: int, time_us: float | None) -> None:
        if time_us is not None:
            self._times[number] = time_us

    def _start(self) -> list[int]:
        landscape = self._terrain.sample
        known_good = (*self._terrain.defaults, *self._starts)
        starts = self._terrain.starts[: self.STARTS]
        given = list(dict.fromkeys((*known_good, *self._promising(starts))))
        self._given.update(given)
        own = max(self.OWN, self.FIRST - len({*known_good, *starts}))  # what is passed over is not made up for
        order = self._by_expectation(landscape)
        taken = np.isin(landscape.numbers, given)
        known = np.flatnonzero(taken).tolist()
        named = self._terrain.at(given)
        self._note(named, list(range(len(named))))
        per_structure = Counter(named.structure.tolist())
        chosen: list[int] = []
        for row in order.tolist():
            structure = int(landscape.structure[row])
            if len(chosen) >= own // 2:
                break
            if (
                not taken[row]
                and per_structure[structure] < self.PER_STRUCTURE
                and not self._crowded(landscape, row, known + chosen)
            ):
                chosen.append(row)
                per_structure[structure] += 1
        rows = chosen + self._explored(landscape, order, known + chosen, own - len(chosen))
        self._note(landscape, rows)
        return list(dict.fromkeys((*given, *landscape.numbers[rows].tolist())))

    def _promising(self, starts: Sequence[int]) -> Sequence[int]:
        """Those of `starts` that the model does not doubt, and a few more: it may be wrong.

        Best predicted first, but before them all the best few of each family: the model compares within a family
        better than between two.
        """
        named = self._terrain.at(starts)
        best = self._terrain.sample.predicted.min(initial=np.inf)
        trusted = int((named.predicted <= self.TRUSTED * best).sum())
        promising = starts[: trusted + self.DOUBTED]
        family = dict(zip(named.numbers.tolist(), named.family.tolist(), strict=True))
        in_family: Counter[int] = Counter()
        late: dict[int, bool] = {}
        for number in promising:
            late[number] = in_family[family[number]] >= self.EARLY
            in_family[family[number]] += 1
        return sorted(promising, key=late.__getitem__)

    def _explored(self, landscape: Landscape, order: Indices, chosen: list[int], count: int) -> list[int]:
        """Rows drawn from all that are plausible, in the order of expectation."""
        plausible = landscape.predicted <= self.PLAUSIBLE * landscape.predicted.min(initial=np.inf)
        plausible[chosen] = False
        drawn = self._random.permutation(np.flatnonzero(plausible))[: max(0, count)]
        rows: list[int] = order[np.isin(order, drawn)].tolist()
        return rows

    def _crowded(self, landscape: Landscape, row: int, chosen: list[int]) -> bool:
        changed = np.count_nonzero(landscape.digits[chosen] != landscape.digits[row], axis=1)
        near = (changed <= 1) & (landscape.family[chosen] == landscape.family[row])
        return int(near.sum()) >= self.NEAR

    def _by_expectation(self, landscape: Landscape) -> Indices:
        """Row numbers in the model's order, shuffled by as much as the model is taken to err."""
        error = np.exp(self._random.normal(0.0, self.TRUST, len(landscape)))
        return np.argsort(landscape.predicted * error, kind="stable").astype(np.int64)

    def _one_step(self) -> list[int]:
        return self._around(parameters=1)

    def _two_steps(self) -> list[int]:
        return self._around(parameters=2)

    def _around(self, parameters: int) -> list[int]:
        """Untried candidates a step away from the centres, best expected first."""
        landscape = join([self._terrain.near(centre, parameters) for centre in self._centres()])
        rows = [row for row in self._by_expectation(landscape).tolist() if landscape.numbers[row] not in self._tried]
        self._note(landscape, rows)
        return list(dict.fromkeys(landscape.numbers[rows].tolist()))[: self._round_size()]

    def _round_size(self) -> int:
        leads = min(self._times, key=lambda number: (self._times[number], number), default=None)
        return self.SHORT_ROUND if leads in self._given else self.ROUND

    def _note(self, landscape: Landscape, rows: list[int]) -> None:
        self._binary.update(zip(landscape.numbers[rows].tolist(), landscape.binary[rows].tolist(), strict=True))

    def _centres(self) -> list[int]:
        """The fastest candidate of each of the fastest few binaries."""
        ranked = sorted(self._times, key=lambda number: (self._times[number], number))
        centres: dict[int, int] = {}
        for number in ranked:
            if self._times[number] > self.WITHIN * self._times[ranked[0]] or len(centres) == self.CENTRES:
                break
            centres.setdefault(self._binary.get(number, -number), number)
        return list(centres.values())


def make_search(
    strategy: Strategy, terrain: Terrain, seed: int, *, starts: Sequence[int] = (), most: int | None = None
) -> Search:
    """The search that `--strategy` names; `starts` and `most` are for `Auto`."""
    if strategy == "exhaustive":
        return Exhaustive(terrain)
    if strategy == "random":
        return Random(terrain, seed)
    return Auto(terrain, seed, starts=starts, most=most)
