"""One constraint as masks over blocks of the product of parameters.

A constraint is evaluated on the parameters that it needs, not on all combinations: once for the whole space if their
product is small, else block by block, and on the survivors alone where they are few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kt.errors import InputError
from kt.search_spaces.arithmetic import ExpressionError, truth
from kt.search_spaces.names import PROBLEM_SIZES, Names, leaves
from kt.search_spaces.space import Constraint, SearchSpace, Value

__all__ = ["BLOCK", "Axis", "Check", "Rejection", "open_grid"]

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
    """One parameter with more than one value."""

    def __init__(self, name: str, values: Sequence[Value]) -> None:
        self.name = name
        self.values = np.array(values)


def open_grid(axes: Sequence[Axis], cut: Sequence[slice] | None = None) -> dict[str, Grid]:
    """Each axis (or its `cut`) as an array along its own dimension; they broadcast to the product."""
    cut = cut or [slice(None)] * len(axes)
    shapes = [tuple(-1 if i == j else 1 for j in range(len(axes))) for i in range(len(axes))]
    return {axis.name: axis.values[part].reshape(s) for axis, part, s in zip(axes, cut, shapes, strict=True)}


class Check:
    """One constraint at work on blocks of combinations."""

    def __init__(
        self,
        where: str,
        rule: Constraint,
        axes: Sequence[Axis],
        given: Mapping[str, Any],
        space: SearchSpace,
        grid: Names,
    ) -> None:
        needed = leaves(rule.require.names, space.derived)
        self.rule = rule
        self.count = 0
        self.of_sizes = bool(needed & PROBLEM_SIZES)
        self._where = where
        self._axes = axes
        self._given = given
        self._derived = space.derived
        self._needed = [axis.name in needed for axis in axes]
        self._whole = self._on_whole_grid(grid)

    @property
    def rejection(self) -> Rejection:
        return Rejection(self.rule.require.text, self.rule.reason, self.count)

    def apply(self, mask: Grid, cut: Sequence[slice], block: Names) -> None:
        """Clear the elements of `mask`, the block at `cut`, that break the constraint, and count them."""
        before = int(np.count_nonzero(mask))
        if not before:
            return
        allowed = self._on_block(cut, block, before)
        if allowed is not None:
            np.logical_and(mask, allowed, out=mask)
        else:
            places = np.nonzero(mask)
            mask[places] = self._on_survivors(places, cut)
        self.count += before - int(np.count_nonzero(mask))

    def _on_whole_grid(self, grid: Names) -> Any:
        """The constraint on the whole product of what it needs, if that is small and it has a value everywhere."""
        if math.prod(self._sizes([len(axis.values) for axis in self._axes])) > BLOCK:
            return None
        return self._try(grid)

    def _on_block(self, cut: Sequence[slice], block: Names, survivors: int) -> Any:
        """The constraint on the product of what it needs within a block; None if the survivors alone are better."""
        if self._whole is not None:
            fits = getattr(self._whole, "ndim", 0)
            return self._whole[tuple(_cut(self._whole.shape, cut))] if fits else self._whole
        if math.prod(self._sizes([part.stop - part.start for part in cut])) > FEW * survivors:
            return None
        return self._try(block)

    def _sizes(self, lengths: Sequence[int]) -> list[int]:
        return [length for length, needed in zip(lengths, self._needed, strict=True) if needed]

    def _try(self, names: Names) -> Any:
        try:
            return truth(self.rule.require.evaluate(names))
        except ExpressionError:
            return None

    def _on_survivors(self, places: tuple[Grid, ...], cut: Sequence[slice]) -> Any:
        choices = {
            axis.name: axis.values[part.start + place]
            for axis, part, place, needed in zip(self._axes, cut, places, self._needed, strict=True)
            if needed
        }
        try:
            return truth(self.rule.require.evaluate(Names({**self._given, **choices}, self._derived)))
        except ExpressionError as error:
            raise self._unanswered(error, choices) from None

    def _unanswered(self, error: ExpressionError, choices: Mapping[str, Grid]) -> InputError:
        """The error, with the first combination that has it; halving finds it."""
        low, high = 0, len(next(iter(choices.values()), np.zeros(1)))
        while high - low > 1:
            middle = (low + high) // 2
            part = {name: values[low:middle] for name, values in choices.items()}
            failed = self._try(Names({**self._given, **part}, self._derived)) is None
            low, high = (low, middle) if failed else (middle, high)
        shown = " ".join(f"{name}={values[low]}" for name, values in choices.items())
        return InputError(
            f"{self._where}: the constraint {error.message}" + (f", for {shown}" if shown else ""),
            hint="put a constraint above it that rejects such combinations, or protect it: b != 0 and a % b == 0",
        )


def _cut(shape: Sequence[int], cut: Sequence[slice]) -> Iterator[slice]:
    """`cut` for an array that is broadcast along its dimensions of length 1."""
    return (part if length > 1 else slice(None) for length, part in zip(shape, cut, strict=True))
