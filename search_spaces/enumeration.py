"""The valid configurations of a space on one problem and device, and how many each constraint rejects.

A combination is charged to the first constraint, in the order of the file, that it breaks; a constraint is not asked
about combinations that an earlier one rejects. How that is done without walking the product is told in `masks`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kt.errors import InputError
from kt.search_spaces.arithmetic import as_array
from kt.search_spaces.launch import launch_limits
from kt.search_spaces.masks import Axis, Check, Rejection, surviving_ranks
from kt.search_spaces.names import Names, lacks_sizes, leaves
from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["MAX_COMBINATIONS", "MAX_VALID", "Enumeration", "Rejection", "enumerate_space", "which_are_valid"]

MAX_COMBINATIONS = 2**32
MAX_VALID = 2_000_000

Grid = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Enumeration:
    """The combinations of a space that meet every constraint, in the order of the file, the last parameter fastest.

    Attributes:
        space: what was enumerated.
        total: number of combinations before any constraint.
        rejections: one for each constraint that does not depend on the problem's size, in order.
        problem_rejections: one for each that does, as far as the sizes were known. CUDA's limits on launches come last
            in both, where they reject anything.
    """

    space: SearchSpace
    total: int
    rejections: tuple[Rejection, ...]
    problem_rejections: tuple[Rejection, ...]
    _ranks: NDArray[np.int64] = field(repr=False)  # of the survivors among all combinations, ascending
    _given: Mapping[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self._ranks)

    def config(self, index: int) -> Config:
        """The survivor at `index`."""
        places = np.unravel_index(int(self._ranks[index]), self._shape)
        offered = {**self.space.parameters, **self.space.runtime}
        return self.space.config({name: offered[name][int(i)] for name, i in zip(offered, places, strict=True)})

    def index(self, config: Config) -> int | None:
        """Where `config` stands among the survivors, or None if it is not one of them."""
        choices = config.as_dict()
        offered = {**self.space.parameters, **self.space.runtime}
        try:
            places = tuple(offered[name].index(choices[name]) for name in offered)
        except (KeyError, ValueError):
            return None
        rank = int(np.ravel_multi_index(places, self._shape))
        index = int(np.searchsorted(self._ranks, rank))
        return index if index < len(self._ranks) and self._ranks[index] == rank else None

    def matching(self, choices: Mapping[str, Value]) -> NDArray[np.int64]:
        """The survivors with these values of the parameters that `choices` names, ascending."""
        offered = {**self.space.parameters, **self.space.runtime}
        each, first = self.total, 0
        leading = list(itertools.takewhile(choices.__contains__, offered))
        for name in leading:  # what agrees in the leading parameters stands in one piece
            each //= len(offered[name])
            first += each * offered[name].index(choices[name])
        begin, end = np.searchsorted(self._ranks, [first, first + each]).tolist()
        found = np.arange(begin, end, dtype=np.int64)
        for name in [name for name in offered if name not in leading]:
            each //= len(offered[name])
            if name in choices:
                places = self._ranks[found] // each % len(offered[name])
                found = found[places == offered[name].index(choices[name])]
        return found

    @property
    def last_rejection(self) -> Rejection | None:
        """The rejection after which nothing else is rejected, None if there is none: what empties a space, if it is."""
        order = {rule.require.text: index for index, rule in enumerate(self.space.constraints)}
        rejecting = [row for row in (*self.rejections, *self.problem_rejections) if row.count]
        return max(rejecting, key=lambda row: order.get(row.require, len(order)), default=None)

    @cached_property
    def columns(self) -> dict[str, Grid]:
        """Parameters, run-time parameters and derived quantities by name, one element per survivor.

        Derived quantities of the problem's size are left out if the sizes were not known.
        """
        columns = dict(self.choices)
        names = Names({**self._given, **columns}, self.space.derived)
        for name in self.space.derived:
            if not lacks_sizes([name], self.space.derived, names):
                columns[name] = _compact(np.broadcast_to(as_array(names[name]), (len(self),)))
        return columns

    @cached_property
    def choices(self) -> dict[str, Grid]:
        """The parameters and run-time parameters among `columns`."""
        return self.choices_at(np.arange(len(self)))

    def choices_at(self, indices: NDArray[np.int64]) -> dict[str, Grid]:
        """Parameters and run-time parameters by name, one element for each of these survivors."""
        places = np.unravel_index(self._ranks[indices], self._shape)
        offered = {**self.space.parameters, **self.space.runtime}
        return {name: np.array(offered[name])[i] for name, i in zip(offered, places, strict=True)}

    @cached_property
    def compilations(self) -> int:
        """Distinct choices of the compile-time parameters among the survivors."""
        each = math.prod(len(values) for values in self.space.runtime.values())  # run-time parameters vary fastest
        return int(np.count_nonzero(np.diff(self._ranks // each, prepend=-1)))

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(len(values) for values in (*self.space.parameters.values(), *self.space.runtime.values()))


def enumerate_space(space: SearchSpace, names: Mapping[str, Any]) -> Enumeration:
    """All valid configurations of `space`.

    Args:
        names: values of the names of device and problem; constraints on sizes that are not there are skipped.

    Raises:
        InputError: there are more than `MAX_COMBINATIONS` combinations or `MAX_VALID` valid ones, or a constraint has
            no value for a combination that those above it allow.
    """
    where = space.source or space.family
    _check_size(where, space)
    checks = _checks(where, space, names)
    single = {name: values[0] for name, values in {**space.parameters, **space.runtime}.items() if len(values) == 1}
    limits = launch_limits(space)
    ranks = _survivors(where, space, checks, {**names, **single})
    counted = [check for check in checks if check.count or check.rule not in limits]
    return Enumeration(
        space,
        space.size,
        tuple(check.rejection for check in counted if not check.of_sizes),
        tuple(check.rejection for check in counted if check.of_sizes),
        ranks,
        names,
    )


def which_are_valid(space: SearchSpace, given: Mapping[str, Any], count: int) -> NDArray[np.bool_]:
    """Which of several problems, or configurations, meet every constraint and CUDA's limits, all at once.

    Args:
        given: every name with its value, an array of `count` elements where it varies.
    """
    mask, names = np.ones(count, dtype=bool), Names(given, space.derived)
    for check in _checks(space.source or space.family, space, given):
        check.apply(mask, names, 1)
    return mask


def _checks(where: str, space: SearchSpace, names: Mapping[str, Any]) -> list[Check]:
    """The space's constraints that the names decide, then CUDA's limits as far as they do."""
    known = {**space.parameters, **space.runtime, **names}.keys()
    asked = [rule for rule in space.constraints if not lacks_sizes(rule.require.names, space.derived, names)]
    for rule in asked:
        for name in sorted(leaves(rule.require.names, space.derived) - known):
            raise InputError(f"{where}: the constraint `{rule.require.text}`: {name} has no value")
    limits = [rule for rule in launch_limits(space) if leaves(rule.require.names, space.derived) <= known]
    return [Check(where, rule, space) for rule in (*asked, *limits)]


def _check_size(where: str, space: SearchSpace) -> None:
    if space.size > MAX_COMBINATIONS:
        name, values = max({**space.parameters, **space.runtime}.items(), key=lambda item: len(item[1]))
        raise InputError(
            f"{where}: the space has {space.size:,} combinations; kt enumerates at most {MAX_COMBINATIONS:,}",
            hint=f"shorten its lists of values; the longest is {name} with {len(values)}",
        )


def _survivors(where: str, space: SearchSpace, checks: Sequence[Check], given: Mapping[str, Any]) -> NDArray[np.int64]:
    """Ranks of the combinations that pass every check, ascending."""
    found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    valid = 0
    for ranks in surviving_ranks(_axes(space), checks, given, space):
        found.append(ranks)
        valid += ranks.size
        if valid > MAX_VALID:
            raise InputError(
                f"{where}: more than {MAX_VALID:,} of {space.size:,} combinations are valid",
                hint="add constraints, or shorten the lists of values",
            )
    return np.sort(np.concatenate(found))


def _axes(space: SearchSpace) -> list[Axis]:
    """The parameters with more than one value, or one that stands for all."""
    offered = {**space.parameters, **space.runtime}
    stride, axes = space.size, []
    for name, values in offered.items():
        stride //= len(values)
        axes.append(Axis(name, values, stride))
    return [axis for axis in axes if len(axis) > 1] or axes[:1]


def _compact(column: Grid) -> Grid:
    """Python ints as int64 where all fit."""
    if column.dtype != object or any(not -(2**63) <= value < 2**63 for value in column):
        return column
    return column.astype(np.int64)
