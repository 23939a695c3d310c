"""The order in which candidates are tried: `auto`, `exhaustive` and `random`.

A strategy knows candidates only by their number in a `Landscape`. It proposes batches, is told what each one took, and
proposes on; an empty batch means that the search has ended by itself. Every strategy tries the default configurations
first, and the same seed and the same answers give the same proposals.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kt.tuner.request import Strategy

__all__ = ["Auto", "Exhaustive", "Landscape", "Random", "Search", "Shortlist", "make_search"]

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

BATCH = 64  # candidates that exhaustive and random hand out at a time


@dataclass(frozen=True)
class Landscape:
    """The candidates of one problem as a strategy sees them; one row or element for each.

    Attributes:
        predicted: the model's microseconds.
        digits: one row of small integers for each candidate: the position of each parameter's value among those
            offered, so that neighbouring values differ by one.
        family: number of the kernel family; candidates of different families are never neighbours.
        binary: equal for candidates that differ in run-time arguments only: they share one compilation.
        structure: equal for candidates that cut the problem up alike (tiles, thread tiles, split-K).
        defaults: the default configurations of the families, as far as they are valid here.
    """

    predicted: Numbers
    digits: npt.NDArray[np.int16]
    family: Indices
    binary: Indices
    structure: Indices
    defaults: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.predicted)

    def by_prediction(self) -> Indices:
        """All candidates, best predicted first; equal predictions in their own order."""
        return np.argsort(self.predicted, kind="stable").astype(np.int64)


class Search(Protocol):
    """One search over one landscape."""

    @property
    def likely(self) -> int:
        """About how many candidates it will try."""
        ...

    def propose(self) -> list[int]:
        """The next candidates, none twice; empty when the search has ended. Called when all before are told."""
        ...

    def tell(self, candidate: int, time_us: float | None) -> None:
        """What a candidate took; None if it failed."""


class _Listed:
    """A search that goes through a fixed order in batches."""

    def __init__(self, order: Iterable[int]) -> None:
        self._left = list(order)
        self._size = len(self._left)

    @property
    def likely(self) -> int:
        return self._size

    def propose(self) -> list[int]:
        batch, self._left = self._left[:BATCH], self._left[BATCH:]
        return batch

    def tell(self, candidate: int, time_us: float | None) -> None:
        """Answers do not change the order."""


class Exhaustive(_Listed):
    """Everything that is valid, best predicted first."""

    def __init__(self, landscape: Landscape) -> None:
        super().__init__(_defaults_first(landscape, landscape.by_prediction()))


class Random(_Listed):
    """Uniformly without replacement."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(landscape)).astype(np.int64)
        super().__init__(_defaults_first(landscape, order))


class Shortlist(_Listed):
    """The best predicted `count` and no more, of each structure only a few: for a device that can only be modelled."""

    PER_STRUCTURE = 2

    def __init__(self, landscape: Landscape, count: int) -> None:
        per_structure: Counter[int] = Counter()
        chosen: dict[int, int] = {}  # one candidate of each binary
        for index in landscape.by_prediction().tolist():
            structure, binary = int(landscape.structure[index]), int(landscape.binary[index])
            if len(chosen) == count or not np.isfinite(landscape.predicted[index]):
                break
            if binary not in chosen and per_structure[structure] < self.PER_STRUCTURE:
                chosen[binary] = index
                per_structure[structure] += 1
        super().__init__(dict.fromkeys((*landscape.defaults, *chosen.values())))


class Auto:
    """The best predicted of many kinds, then steps from the best measured ones until no step helps.

    The model's error is larger than many differences that it predicts. So its order is shuffled by `TRUST`, of each
    structure and around each choice only a few are taken, and `EXPLORED` candidates of the first selection are drawn
    from all that the model puts within a factor `PLAUSIBLE` of its best. Then come rounds: from the fastest `CENTRES`
    binaries every change of one parameter by one step; if none helps, changes of two parameters by one step each.

    Args:
        starts: candidates to try besides the first selection, such as winners of similar problems.
        most: candidates in all, for problems whose runs take long.
    """

    FIRST = 48  # candidates of the first selection
    EXPLORED = 24  # of them, drawn at random
    TRUST = 0.12  # standard deviation of the model's relative error, as it is taken to be
    PLAUSIBLE = 2.0
    PER_STRUCTURE = 3
    NEAR = 2  # chosen candidates that may lie within one changed parameter of a further one
    CENTRES = 3
    WITHIN = 1.10  # a centre is at most this much slower than the best
    ROUND = 24  # candidates of one round
    ROUNDS = 10
    GAIN = 0.005  # part of the time that a round must gain to count as a step forward

    def __init__(self, landscape: Landscape, seed: int, *, starts: Sequence[int] = (), most: int | None = None) -> None:
        self._landscape = landscape
        self._starts = starts
        self._most = len(landscape) if most is None else most
        self._random = np.random.default_rng(seed)
        self._expected = landscape.predicted * np.exp(self._random.normal(0.0, self.TRUST, len(landscape)))
        self._times: dict[int, float] = {}
        self._tried: set[int] = set()
        self._moves: list[Callable[[], list[int]]] = [self._start]
        self._best = float("inf")
        self._rounds = 0

    @property
    def likely(self) -> int:
        return min(len(self._landscape), self._most, self.FIRST + 4 * self.ROUND)

    def propose(self) -> list[int]:
        """The first selection, then rounds; a round that gains starts again with the smallest steps."""
        best = min(self._times.values(), default=float("inf"))
        if best < self._best * (1 - self.GAIN) and self._tried:
            self._moves = [self._one_step, self._two_steps]
        self._best = min(self._best, best)
        while self._moves and self._rounds <= self.ROUNDS:
            batch = self._moves.pop(0)()[: self._most - len(self._tried)]
            if batch:
                self._rounds += 1
                self._tried.update(batch)
                return batch
        return []

    def tell(self, candidate: int, time_us: float | None) -> None:
        if time_us is not None:
            self._times[candidate] = time_us

    def _start(self) -> list[int]:
        chosen = list(dict.fromkeys((*self._landscape.defaults, *self._starts)))
        per_structure = Counter(int(self._landscape.structure[index]) for index in chosen)
        for index in self._by_expectation(np.arange(len(self._landscape))):
            structure = int(self._landscape.structure[index])
            if len(chosen) >= self.FIRST - self.EXPLORED:
                break
            if (
                index not in chosen
                and per_structure[structure] < self.PER_STRUCTURE
                and not self._crowded(index, chosen)
            ):
                chosen.append(index)
                per_structure[structure] += 1
        return chosen + self._explored(chosen)

    def _explored(self, chosen: list[int]) -> list[int]:
        best = float(self._landscape.predicted.min(initial=np.inf))
        plausible = np.flatnonzero(self._landscape.predicted <= self.PLAUSIBLE * best)
        others = plausible[~np.isin(plausible, chosen)]
        drawn = self._random.permutation(others)[: max(0, self.FIRST - len(chosen))]
        return self._by_expectation(drawn)

    def _by_expectation(self, candidates: Indices) -> list[int]:
        order = np.argsort(self._expected[candidates], kind="stable")
        return [int(index) for index in candidates[order]]

    def _crowded(self, index: int, chosen: list[int]) -> bool:
        digits = self._landscape.digits
        changed = np.count_nonzero(digits[chosen] != digits[index], axis=1)
        near = (changed <= 1) & (self._landscape.family[chosen] == self._landscape.family[index])
        return int(near.sum()) >= self.NEAR

    def _one_step(self) -> list[int]:
        return self._around(parameters=1)

    def _two_steps(self) -> list[int]:
        return self._around(parameters=2)

    def _around(self, parameters: int) -> list[int]:
        """Untried candidates a step away from the centres in at most so many parameters, best predicted first."""
        near = np.zeros(len(self._landscape), bool)
        for centre in self._centres():
            near |= self._within_one_step(centre, parameters)
        near[list(self._tried)] = False
        return self._by_expectation(np.flatnonzero(near))[: self.ROUND]

    def _within_one_step(self, centre: int, parameters: int) -> npt.NDArray[np.bool_]:
        steps = np.abs(self._landscape.digits - self._landscape.digits[centre])
        few = (steps.max(axis=1, initial=0) <= 1) & (np.count_nonzero(steps, axis=1) <= parameters)
        same: npt.NDArray[np.bool_] = few & (self._landscape.family == self._landscape.family[centre])
        return same

    def _centres(self) -> list[int]:
        """The fastest candidate of each of the fastest few binaries."""
        ranked = sorted(self._times, key=lambda index: (self._times[index], index))
        centres: dict[int, int] = {}
        for index in ranked:
            if self._times[index] > self.WITHIN * self._times[ranked[0]] or len(centres) == self.CENTRES:
                break
            centres.setdefault(int(self._landscape.binary[index]), index)
        return list(centres.values())


def make_search(
    strategy: Strategy, landscape: Landscape, seed: int, *, starts: Sequence[int] = (), most: int | None = None
) -> Search:
    """The search that `--strategy` names; `starts` and `most` are for `Auto`."""
    if strategy == "exhaustive":
        return Exhaustive(landscape)
    if strategy == "random":
        return Random(landscape, seed)
    return Auto(landscape, seed, starts=starts, most=most)


def _defaults_first(landscape: Landscape, order: Indices) -> list[int]:
    rest = order[~np.isin(order, landscape.defaults)]
    return [*landscape.defaults, *(int(index) for index in rest)]
