"""`Covering`: few configurations and problems in which all pairs of choices of a kernel family come together.

Most faults of a kernel need one or two choices at once to show: a tile with a layout, an alignment with a number of
stages. So configurations are picked one by one, each of those drawn the one with most pairs that have not occurred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from kt.devices.device import Device
from kt.problems import Problem
from kt.search_spaces.enumeration import enumerate_space
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["Covering"]

DRAWN = 300


class Covering:
    """Picks configurations of `space` for one problem after the other; the same problems get the same ones again."""

    def __init__(self, space: SearchSpace, device: Device, seed: int = 0) -> None:
        self.space, self.device = space, device
        self._random = np.random.default_rng(seed)
        self._codes: dict[tuple[str, Any], int] = {}
        self._seen: dict[tuple[int, int], set[int]] = {}

    def choose(self, problem: Problem, count: int, fixed: Mapping[str, Value] | None = None) -> list[Config]:
        """At most `count` different configurations that are valid for `problem`, of those with the choices `fixed`."""
        offered = {**self.space.parameters, **self.space.runtime}
        if any(value not in offered.get(name, ()) for name, value in (fixed or {}).items()):
            return []
        found = enumerate_space(_with(self.space, fixed or {}), {**self.device.names(), **problem.names()})
        rows = self._random.permutation(len(found))[:DRAWN]
        if not len(rows):
            return []
        features = self._features(found.choices_at(rows), problem)
        chosen: list[int] = []
        for _ in range(min(count, len(rows))):
            gain = self._unseen(features)
            gain[chosen] = -1
            best = int(np.argmax(gain))
            chosen.append(best)
            self._note(features[best])
        return [found.config(int(rows[index])) for index in chosen]

    @property
    def pairs(self) -> int:
        """Different pairs of choices that have come together."""
        return sum(len(pairs) for pairs in self._seen.values())

    def _features(self, choices: Mapping[str, npt.NDArray[Any]], problem: Problem) -> npt.NDArray[np.int64]:
        """A row of numbers for each configuration, one for each of its choices and for what the problem is like."""
        count = len(next(iter(choices.values())))
        columns = [[self._code(name, value) for value in column.tolist()] for name, column in choices.items()]
        columns += [[self._code(name, value)] * count for name, value in _likeness(problem).items()]
        return np.array(columns, np.int64).T

    def _code(self, name: str, value: Any) -> int:
        return self._codes.setdefault((name, value), len(self._codes))

    def _unseen(self, features: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        gain = np.zeros(len(features), np.int64)
        for (i, j), pairs in self._pairs(features):
            gain += ~np.isin(pairs, list(self._seen.get((i, j), ())))
        return gain

    def _note(self, features: npt.NDArray[np.int64]) -> None:
        for place, pairs in self._pairs(features[None]):
            self._seen.setdefault(place, set()).add(int(pairs[0]))

    @staticmethod
    def _pairs(features: npt.NDArray[np.int64]) -> list[tuple[tuple[int, int], npt.NDArray[np.int64]]]:
        places = combinations(range(features.shape[1]), 2)
        return [((i, j), features[:, i] * 4096 + features[:, j]) for i, j in places]


def _with(space: SearchSpace, fixed: Mapping[str, Value]) -> SearchSpace:
    """The part of the space that has these values: far quicker to go through than all of it."""

    def narrowed(offered: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
        return {name: (fixed[name],) if name in fixed else values for name, values in offered.items()}

    return replace(space, parameters=narrowed(space.parameters), runtime=narrowed(space.runtime)) if fixed else space


def _likeness(problem: Problem) -> dict[str, Any]:
    """What of a problem decides which code runs."""
    return {
        "layout": problem.layout, "dtype": problem.dtype, "accumulator": problem.accumulator, "out": problem.out_dtype,
        "align_a": problem.alignment("a"), "align_b": problem.alignment("b"), "align_c": problem.alignment("c"),
        "beta": problem.beta != 0, "batch": problem.batch > 1,
    }  # fmt: skip
