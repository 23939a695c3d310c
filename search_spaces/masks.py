"""How constraints thin the product of parameters without walking all of it.

First, one mask grows over the parameters that constraints have asked for so far: what a constraint rejects counts for
all combinations of the other parameters at once. When the mask would become too large, its survivors are taken out and
meet the next constraint's parameters in blocks, and so on. So memory is bounded by some blocks and by what survives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kt.errors import InputError
from kt.search_spaces.arithmetic import ExpressionError, is_scalar, truth
from kt.search_spaces.names import PROBLEM_SIZES, Names, leaves
from kt.search_spaces.space import Constraint, SearchSpace, Value

__all__ = ["BLOCK", "Axis", "Check", "Rejection", "surviving_ranks"]

BLOCK = 2**20  # combinations whose masks are held at once
FEW = 16  # below one survivor in so many, a constraint is evaluated on the survivors alone

Grid = NDArray[Any]


@dataclass(frozen=True)
class Rejection:
    """How many combinations one constraint rejects, of those that all constraints before it allow."""

    require: str
    reason: str
    count: int


class Axis:
    """One parameter with its values; `stride` is what a step along it adds to the rank of a combination."""

    def __init__(self, name: str, values: Sequence[Value], stride: int) -> None:
        self.name = name
        self.values = np.array(values)
        self.stride = stride

    def __len__(self) -> int:
        return len(self.values)


class Check:
    """One constraint, and what it has rejected so far."""

    def __init__(self, where: str, rule: Constraint, space: SearchSpace) -> None:
        self.rule = rule
        self.needed = leaves(rule.require.names, space.derived)
        self.of_sizes = bool(self.needed & PROBLEM_SIZES)
        self.count = 0
        self._where = where
        self._parameters = [name for name in (*space.parameters, *space.runtime) if name in self.needed]

    @property
    def rejection(self) -> Rejection:
        return Rejection(self.rule.require.text, self.rule.reason, self.count)

    def apply(self, mask: Grid, names: Names, weight: int) -> None:
        """Clear the elements of `mask` that break the constraint; each stands for `weight` combinations."""
        before = int(np.count_nonzero(mask))
        if not before:
            return
        allowed = self._ask(names) if self._size(names) <= FEW * before else None
        if allowed is not None:
            np.logical_and(mask, allowed, out=mask)
        else:
            mask[mask] = self._ask_survivors(mask, names)
        self.count += weight * (before - int(np.count_nonzero(mask)))

    def is_idle(self, axes: Sequence[Axis], given: Mapping[str, Any], space: SearchSpace) -> bool:
        """Whether it looks at one parameter at most and allows all its values, so that it never rejects anything."""
        if len(self._parameters) > 1:
            return False
        alone = {axis.name: axis.values for axis in axes if axis.name in self._parameters}
        answer = self._ask(Names({**given, **alone}, space.derived))
        return answer is not None and bool(np.all(answer))

    def _size(self, names: Names) -> int:
        """Elements of the product of what the constraint needs."""
        values = [names[name] for name in self.needed]
        return math.prod(np.broadcast_shapes(*(value.shape for value in values if not is_scalar(value))))

    def _ask(self, names: Names) -> Any:
        """Whether the constraint holds; None if it has no value for some element."""
        try:
            return truth(self.rule.require.evaluate(names))
        except ExpressionError:
            return None

    def _ask_survivors(self, mask: Grid, names: Names) -> Any:
        survivors, _ = names.restricted(self.rule.require.names, mask)
        try:
            return truth(self.rule.require.evaluate(survivors))
        except ExpressionError as error:
            raise self._unanswered(error, mask, names) from None

    def _unanswered(self, error: ExpressionError, mask: Grid, names: Names) -> InputError:
        """The error, with the first combination that has it; halving the survivors finds it."""
        survivors = np.flatnonzero(mask)
        while len(survivors) > 1:
            part = np.zeros(mask.size, dtype=bool)
            part[survivors[: len(survivors) // 2]] = True
            half, _ = names.restricted(self.rule.require.names, part.reshape(mask.shape))
            middle = len(survivors) // 2
            survivors = survivors[:middle] if self._ask(half) is None else survivors[middle:]
        part = np.zeros(mask.size, dtype=bool)
        part[survivors] = True
        one, _ = names.restricted(self._parameters, part.reshape(mask.shape))
        shown = " ".join(f"{name}={np.ravel(one[name])[0]}" for name in self._parameters)
        return InputError(
            f"{self._where}: the constraint {error.message}" + (f", for {shown}" if shown else ""),
            hint="put a constraint above it that rejects such combinations, or protect it: b != 0 and a % b == 0",
        )


def surviving_ranks(
    axes: Sequence[Axis], checks: Sequence[Check], given: Mapping[str, Any], space: SearchSpace
) -> Iterator[NDArray[np.int64]]:
    """Ranks of the combinations that pass every check, in parts and in no order; the checks count what they reject."""
    # What never rejects would make its parameters be unfolded earlier than need be.
    checks = [check for check in checks if not check.is_idle(axes, given, space)]
    mask, left = _grow(axes, checks, Names({**given, **_open_grid(axes)}, space.derived))
    covered = [len(axis) == length for axis, length in zip(axes, mask.shape, strict=True)]
    rest = [axis for axis, done in zip(axes, covered, strict=True) if not done]
    places = [(axis, place) for axis, place, done in zip(axes, np.nonzero(mask), covered, strict=True) if done]
    rows = Rows(_rank(places, int(np.count_nonzero(mask))), {axis.name: axis.values[place] for axis, place in places})
    yield from _expand(rows, rest, left, given, space)


@dataclass(frozen=True)
class Rows:
    """Combinations of the parameters covered so far: the rank of each, and the values that later checks need."""

    ranks: NDArray[np.int64]
    values: Mapping[str, Grid]

    def chosen(self, places: Grid) -> Rows:
        return Rows(self.ranks[places], {name: values[places] for name, values in self.values.items()})


def _grow(axes: Sequence[Axis], checks: Sequence[Check], grid: Names) -> tuple[Grid, Sequence[Check]]:
    """The mask over the parameters that the first checks need, a dimension for each axis, and the checks left over."""
    mask = np.ones([1] * len(axes), dtype=bool)
    total = math.prod(map(len, axes))
    for index, check in enumerate(checks):
        shape = [len(a) if a.name in check.needed else n for a, n in zip(axes, mask.shape, strict=True)]
        if math.prod(shape) > BLOCK:
            return mask, checks[index:]
        mask = mask if list(mask.shape) == shape else np.broadcast_to(mask, shape).copy()
        check.apply(mask, grid, total // mask.size)
    return mask, ()


def _expand(
    rows: Rows, rest: Sequence[Axis], checks: Sequence[Check], given: Mapping[str, Any], space: SearchSpace
) -> Iterator[NDArray[np.int64]]:
    """Ranks of what remains of `rows` times the axes `rest`: first those that the next check needs, then the others."""
    new = [axis for axis in rest if not checks or axis.name in checks[0].needed]
    rest = [axis for axis in rest if axis not in new]
    reached = {axis.name for axis in rest}
    now = next((i for i, check in enumerate(checks) if check.needed & reached), len(checks))
    later = frozenset[str]().union(*(check.needed for check in checks[now:]))
    weight = math.prod(map(len, rest))
    for part, tail in _blocks(rows, new):
        column = (-1, *[1] * len(tail))
        values = {name: value.reshape(column) for name, value in part.values.items()}
        values |= {name: grid[np.newaxis] for name, grid in _open_grid(tail).items()}
        mask = np.ones([len(part.ranks), *map(len, tail)], dtype=bool)
        names = Names({**given, **values}, space.derived)
        for check in checks[:now]:
            check.apply(mask, names, weight)
        row, *places = np.nonzero(mask)
        along = list(zip(tail, places, strict=True))
        kept = {name: value[row] for name, value in part.values.items() if name in later}
        kept |= {axis.name: axis.values[place] for axis, place in along if axis.name in later}
        found = Rows(part.ranks[row] + _rank(along, len(row)), kept)
        if rest and len(row):
            yield from _expand(found, rest, checks[now:], given, space)
        elif len(row):
            yield found.ranks


def _blocks(rows: Rows, axes: Sequence[Axis]) -> Iterator[tuple[Rows, Sequence[Axis]]]:
    """Rows times `axes` in blocks of bounded size: some of the axes made part of the rows, and those left open."""
    lead, tail = _split(axes)
    lengths = [len(axis) for axis in lead]
    repeats = math.prod(lengths)
    count = len(rows.ranks) * repeats
    step = max(1, BLOCK // math.prod(map(len, tail)))
    for start in range(0, count, step):
        row, turn = np.divmod(np.arange(start, min(start + step, count)), repeats)
        part = rows.chosen(row)
        along = list(zip(lead, np.unravel_index(turn, lengths) if lead else (), strict=True))
        values = {axis.name: axis.values[place] for axis, place in along}
        yield Rows(part.ranks + _rank(along, len(row)), {**part.values, **values}), tail


def _rank(along: Sequence[tuple[Axis, Grid]], count: int) -> NDArray[np.int64]:
    return sum((place * axis.stride for axis, place in along), np.zeros(count, np.int64))


def _split(axes: Sequence[Axis]) -> tuple[Sequence[Axis], Sequence[Axis]]:
    """The axes in two: the last ones, as many as fit a block together, and those before them."""
    split, size = len(axes), 1
    while split and size * len(axes[split - 1]) <= BLOCK:
        split -= 1
        size *= len(axes[split])
    return axes[:split], axes[split:]


def _open_grid(axes: Sequence[Axis]) -> dict[str, Grid]:
    """Each axis as an array along its own dimension; they broadcast to the product."""
    shapes = [tuple(-1 if i == j else 1 for j in range(len(axes))) for i in range(len(axes))]
    return {axis.name: axis.values.reshape(shape) for axis, shape in zip(axes, shapes, strict=True)}
