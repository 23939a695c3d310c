"""The candidates of one problem: every configuration of the spaces that is valid for it, with predicted times."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kt.devices.roofline import floor_us
from kt.errors import InputError
from kt.search_spaces.enumeration import enumerate_space
from kt.search_spaces.names import Names
from kt.tuner.model import order_us
from kt.tuner.terrain import Landscape, join
from kt.wording import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from kt.devices.device import Device
    from kt.problems import Problem
    from kt.search_spaces.enumeration import Enumeration, Rejection
    from kt.search_spaces.space import Config, SearchSpace, Value

    Rows = npt.NDArray[np.int64]

__all__ = ["Candidates", "nothing_valid"]

# Parameters that decide how the problem is cut up; candidates that agree in them differ in details only. A tile is cut
# into those of threads or of warps: `warp_m` beside `thread_m` is another thing, the arrangement of a warp's threads.
STRUCTURE = ("tile_m", "tile_n", "thread_m", "thread_n", "split_k", "stream_k", "pack_a", "pack_b", "turn_tma")
STRUCTURE_OF_WARPS = ("tile_m", "tile_n", "warp_m", "warp_n", "split_k", "stream_k", "hold_b", "pack_a", "pack_b")
STRUCTURE_OF_GROUPS = (
    "tile_m", "tile_n", "rows_loaded", "consumers", "schedule", "split_k", "stream_k", "pack_a", "pack_b", "shift_a",
    "classes_b", "stretch_b",
)  # fmt: skip
STRUCTURE_OF_STREAMS = ("form", "tile_s", "lane_rows", "warps_l", "warps_k", "cluster_k", "split_k")
COMPLETIONS = 3  # of one start
MOST_CAUSES = 3  # why nothing is valid, besides what took the rest
SAMPLE = 60_000  # candidates of a family that the model is asked about at first; it takes 40 ms for as many


class Candidates:
    """The candidates of one problem, numbered; those of all families together. A `Terrain` for strategies.

    Args:
        spaces: the spaces that serve the problem on the device.
    """

    def __init__(self, problem: Problem, device: Device, spaces: Sequence[SearchSpace]) -> None:
        self.problem, self.device, self.spaces = problem, device, tuple(spaces)
        self._names = {**device.names(), **problem.names()}
        self.enumerations = [enumerate_space(space, self._names) for space in spaces]
        self._starts = np.cumsum([0, *(len(found) for found in self.enumerations)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def space(self, number: int) -> SearchSpace:
        return self.spaces[self._place(number)[0]]

    def config(self, number: int) -> Config:
        family, row = self._place(number)
        return self.enumerations[family].config(row)

    def find(self, config: Config) -> int | None:
        """The number of `config`, or None if it is not valid here."""
        for family, space in enumerate(self.spaces):
            if space.family == config.family:
                return self._number(family, self.enumerations[family].index(config))
        return None

    def structures(self, numbers: Sequence[int]) -> dict[int, int]:
        """For each of these candidates a number that those share which cut the problem up alike."""
        found = self.at(numbers)
        return dict(zip(found.numbers.tolist(), found.structure.tolist(), strict=True))

    def predicted_us(self, number: int, registers: int | None = None) -> float:
        """The model's microseconds, never below the roofline; with the registers that the compiler says, if known."""
        return max(self.order_us(number, registers), floor_us(self.problem, self.device))

    def order_us(self, number: int, registers: int | None = None) -> float:
        """What puts candidates in order: `predicted_us`, or what is below it where that is the roofline."""
        family, row = self._place(number)
        known = None if registers is None else [registers]
        return float(self._predict(family, self._choices(family, np.array([row])), known)[0])

    @property
    def defaults(self) -> tuple[int, ...]:
        """The default configurations of the families, as far as they are valid here."""
        return self._defaults

    @property
    def starts(self) -> tuple[int, ...]:
        """Of each of the spaces' starts the completions that the model likes best; best predicted first."""
        parts = [self._family_starts(family) for family in range(len(self.spaces))]
        chosen = join(parts)
        return tuple(dict.fromkeys(chosen.numbers[chosen.by_prediction()].tolist()))

    @property
    def sample(self) -> Landscape:
        """All candidates, or of a large family a random part of them; always the same one."""
        return self._sample

    @cached_property
    def _defaults(self) -> tuple[int, ...]:
        found = [self._default(family) for family in range(len(self.spaces))]
        return tuple(number for number in found if number is not None)

    @cached_property
    def _sample(self) -> Landscape:
        parts = []
        for family, found in enumerate(self.enumerations):
            rows = np.arange(len(found))
            if len(found) > SAMPLE:
                rows = np.sort(np.random.default_rng(0).choice(rows, SAMPLE, replace=False))
            parts.append(self._landscape(family, rows))
        return join(parts)

    def at(self, numbers: Sequence[int]) -> Landscape:
        """These candidates, family by family."""
        places = [self._place(number) for number in numbers]
        rows = [np.array([row for one, row in places if one == family], np.int64) for family in range(len(self.spaces))]
        return join([self._landscape(family, part) for family, part in enumerate(rows) if len(part)])

    def everything(self) -> Landscape:
        """All candidates."""
        return join([self._landscape(family, np.arange(len(found))) for family, found in enumerate(self.enumerations)])

    def near(self, number: int, parameters: int) -> Landscape:
        """The candidates that differ in at most so many parameters, by one step each."""
        family, row = self._place(number)
        found = self.enumerations[family]
        indices = [found.index(config) for config in _stepped(found.space, found.config(row), parameters)]
        return self._landscape(family, np.array([index for index in indices if index is not None], np.int64))

    def _place(self, number: int) -> tuple[int, int]:
        """Family and row of a candidate."""
        family = int(np.searchsorted(self._starts, number, side="right")) - 1
        return family, number - int(self._starts[family])

    def _number(self, family: int, row: int | None) -> int | None:
        return None if row is None else int(self._starts[family]) + row

    def _choices(self, family: int, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        return self.enumerations[family].choices_at(rows)

    def _predict(
        self, family: int, choices: Mapping[str, npt.NDArray[Any]], registers: Sequence[int] | None = None
    ) -> npt.NDArray[np.float64]:
        if not len(next(iter(choices.values()))):
            return np.empty(0)  # of a family that the problem has no valid configuration in
        derived = self.spaces[family].derived
        values = Names({**self._names, **choices}, derived)
        columns = {**choices, **{name: values[name] for name in derived if not isinstance(values[name], str)}}
        try:
            return order_us(self.problem, self.device, columns, registers)
        except InputError as error:
            space = self.spaces[family]
            raise InputError(f"{space.source or space.family}: {error.message}", hint=error.hint) from None

    def _landscape(self, family: int, rows: Rows) -> Landscape:
        found = self.enumerations[family]
        choices = self._choices(family, rows)
        offered = _offered(found.space)
        shared = [name for name in _structure(offered) if name in offered] or list(offered)
        digits = [_positions(choices[name], values) for name, values in offered.items()]
        return Landscape(
            rows + int(self._starts[family]),
            self._predict(family, choices),
            np.stack(digits, axis=1) if digits else np.zeros((len(rows), 0), np.int16),
            np.full(len(rows), family, np.int64),
            self._code(found, found.space.parameters, choices),
            self._code(found, shared, choices),
        )

    def _code(self, found: Enumeration, names: Iterable[str], choices: Mapping[str, npt.NDArray[Any]]) -> Rows:
        """A number for each configuration, equal where all of the named choices and the family are."""
        offered = _offered(found.space)
        code = np.zeros(len(next(iter(choices.values()), ())), np.int64)
        for name in names:
            code = code * len(offered[name]) + _positions(choices[name], offered[name])
        return code * len(self.spaces) + self.spaces.index(found.space)

    def _family_starts(self, family: int) -> Landscape:
        """The best predicted completions of each start, each of another structure."""
        found = self.enumerations[family]
        matching = [found.matching(start) for start in found.space.starts]
        rows = np.concatenate([*matching, np.zeros(0, np.int64)])
        if not len(rows):
            return join([])
        landscape = self._landscape(family, rows)
        of_start = np.repeat(np.arange(len(matching)), [len(part) for part in matching])
        left = Counter[int]()
        seen: set[tuple[int, int]] = set()
        chosen = []
        for row in landscape.by_prediction().tolist():
            start, structure = int(of_start[row]), int(landscape.structure[row])
            if left[start] < COMPLETIONS and (start, structure) not in seen:
                left[start] += 1
                seen.add((start, structure))
                chosen.append(row)
        return landscape.part(np.array(chosen, np.int64))

    def _default(self, family: int) -> int | None:
        """The family's default configuration; where its run-time choices are not valid here, the nearest valid ones."""
        found, default = self.enumerations[family], self.spaces[family].default_config
        row = found.index(default)
        if row is None:
            same = np.ones(len(found), bool)
            for name, value in default.parameters:
                same &= found.choices[name] == value
            rows = np.flatnonzero(same)
            changes = np.zeros(len(rows))
            for name, value in default.runtime:
                changes += found.choices[name][rows] != value
            row = int(rows[np.argmin(changes)]) if len(rows) else None
        return self._number(family, row)


def nothing_valid(candidates: Candidates) -> str:
    """Why no configuration is valid: of each family the constraint that took the rest, then those that reject most.

    What decides is often the one that rejects least, as a person's own that no configuration can meet.
    """
    total = sum(found.total for found in candidates.enumerations)
    rejections = [row for found in candidates.enumerations for row in (*found.rejections, *found.problem_rejections)]
    worst = sorted((row for row in rejections if row.count), key=lambda row: -row.count)[:MOST_CAUSES]
    last = {found.space.family: row for found in candidates.enumerations if (row := found.last_rejection)}
    others = [f"{row.count} {_by(row)}" for row in worst if row not in last.values()]
    before = f"; before, {'; '.join(others)}" if others else ""
    counts = _counts_by_constraint(last)
    word = "the last " if others or len(counts) > 1 else ""
    deciding = [f"{word}{count} {by}" for by, count in counts.items()]
    return f"none of {plural(total, 'configuration')} is valid: {'; '.join(deciding)}{before}"


def _counts_by_constraint(last: Mapping[str, Rejection]) -> dict[str, str]:
    """What takes the rest of several families is told once, with how many it takes of each."""
    counts: dict[str, list[str]] = {}
    for family, row in last.items():
        counts.setdefault(_by(row), []).append(f"{row.count} of {family}" if len(last) > 1 else str(row.count))
    return {by: " and ".join(found) for by, found in counts.items()}


def _by(row: Rejection) -> str:
    return f"by `{row.require}` ({row.reason})"


def _structure(offered: Mapping[str, tuple[Value, ...]]) -> tuple[str, ...]:
    """What decides how the problem is cut up, by the parameter that tells the kind of tiles, as in the model."""
    kinds = (("consumers", STRUCTURE_OF_GROUPS), ("streamed", STRUCTURE_OF_STREAMS), ("warp_n", STRUCTURE_OF_WARPS))
    return next((structure for name, structure in kinds if name in offered), STRUCTURE)


def _offered(space: SearchSpace) -> dict[str, tuple[Value, ...]]:
    return {**space.parameters, **space.runtime}


def _ordered(offered: Sequence[Value]) -> list[Value]:
    """By size if they are numbers, else in the order of the file."""
    numbers = all(isinstance(value, int) for value in offered)
    return sorted(offered, key=int) if numbers else list(offered)


def _positions(column: npt.NDArray[Any], offered: Sequence[Value]) -> npt.NDArray[np.int16]:
    """Where each value stands among those offered."""
    values = np.array(_ordered(offered))
    order = np.argsort(values, kind="stable")
    return order[np.searchsorted(values[order], column)].astype(np.int16)


def _stepped(space: SearchSpace, config: Config, parameters: int) -> Iterator[Config]:
    """Every change of at most so many parameters to a neighbouring value."""
    choices = config.as_dict()
    steps = []
    for name, offered in _offered(space).items():
        values = _ordered(offered)
        place = values.index(choices[name])
        steps.append([(name, values[i]) for i in (place - 1, place + 1) if 0 <= i < len(values)])
    for count in range(1, parameters + 1):
        for chosen in itertools.combinations(steps, count):
            for change in itertools.product(*chosen):
                yield space.config({**choices, **dict(change)})
