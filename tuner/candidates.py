"""The candidates of one problem: every configuration of the spaces that is valid for it, with predicted times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kt.search_spaces.enumeration import enumerate_space
from kt.tuner.model import predict_us
from kt.tuner.strategies import Landscape

if TYPE_CHECKING:
    import numpy.typing as npt

    from kt.devices.device import Device
    from kt.problems import Problem
    from kt.search_spaces.enumeration import Enumeration
    from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["Candidates", "nothing_valid"]

# Parameters that decide how the problem is cut up; candidates that agree in them differ in details only.
STRUCTURE = ("tile_m", "tile_n", "thread_m", "thread_n", "split_k")


class Candidates:
    """The candidates of one problem, numbered; those of all families together.

    Args:
        spaces: the spaces that serve the problem on the device.
    """

    def __init__(self, problem: Problem, device: Device, spaces: Sequence[SearchSpace]) -> None:
        self.problem, self.device, self.spaces = problem, device, tuple(spaces)
        names = {**device.names(), **problem.names()}
        self.enumerations = [enumerate_space(space, names) for space in spaces]
        self._starts = np.cumsum([0, *(len(found) for found in self.enumerations)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def space(self, number: int) -> SearchSpace:
        return self.spaces[self._family(number)]

    def config(self, number: int) -> Config:
        family = self._family(number)
        return self.enumerations[family].config(number - int(self._starts[family]))

    def find(self, config: Config) -> int | None:
        """The number of `config`, or None if it is not valid here."""
        for family, space in enumerate(self.spaces):
            if space.family == config.family:
                index = self.enumerations[family].index(config)
                return None if index is None else int(self._starts[family]) + index
        return None

    def predict_with(self, number: int, registers: int) -> float:
        """The model's microseconds once the compiler has said how many registers a thread takes."""
        family = self._family(number)
        row = number - int(self._starts[family])
        columns = {name: values[row : row + 1] for name, values in self.enumerations[family].columns.items()}
        return float(predict_us(self.problem, self.device, columns, [registers])[0])

    @cached_property
    def landscape(self) -> Landscape:
        """How a strategy sees them."""
        parts = [_codes(found) for found in self.enumerations]
        family = np.repeat(np.arange(len(parts)), np.diff(self._starts))
        width = max((digits.shape[1] for digits, _, _ in parts), default=0)
        digits = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part, _, _ in parts]
        predicted = [predict_us(self.problem, self.device, found.columns) for found in self.enumerations]
        defaults = [self.find(space.default_config) for space in self.spaces]
        return Landscape(
            np.concatenate([*predicted, np.zeros(0)]),
            np.concatenate([*digits, np.zeros((0, width), np.int16)]),
            family,
            _apart([binary for _, binary, _ in parts], family),
            _apart([structure for _, _, structure in parts], family),
            tuple(number for number in defaults if number is not None),
        )

    def _family(self, number: int) -> int:
        return int(np.searchsorted(self._starts, number, side="right")) - 1


def nothing_valid(candidates: Candidates) -> str:
    """Why no configuration is valid: the constraints that reject most."""
    total = sum(found.total for found in candidates.enumerations)
    rejections = [row for found in candidates.enumerations for row in (*found.rejections, *found.problem_rejections)]
    worst = sorted((row for row in rejections if row.count), key=lambda row: -row.count)[:3]
    causes = "; ".join(f"{row.count} by `{row.require}` ({row.reason})" for row in worst)
    return f"none of {total} configurations is valid: {causes}"


def _codes(found: Enumeration) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Of each survivor: the positions of its values, a number of its binary, and a number of its structure."""
    offered = {**found.space.parameters, **found.space.runtime}
    digits = {name: _positions(found.choices[name], values) for name, values in offered.items()}
    structure = [name for name in STRUCTURE if name in offered] or list(offered)
    table = np.stack(list(digits.values()), axis=1) if digits else np.zeros((len(found), 0), np.int16)

    def code(names: Iterable[str]) -> npt.NDArray[np.int64]:
        number = np.zeros(len(found), np.int64)
        for name in names:
            number = number * len(offered[name]) + digits[name]
        return number

    return table, code(found.space.parameters), code(structure)


def _positions(column: npt.NDArray[Any], offered: Sequence[Value]) -> npt.NDArray[np.int16]:
    """Where each value stands among those offered: by size if they are numbers, else in the order of the file."""
    values = np.array(offered)
    if values.dtype.kind in "iu":
        return np.searchsorted(np.sort(values), column).astype(np.int16)
    order = np.argsort(values, kind="stable")
    return order[np.searchsorted(values[order], column)].astype(np.int16)


def _apart(codes: Sequence[npt.NDArray[np.int64]], family: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Codes of all families in one array, those of different families made different."""
    together = np.concatenate([*codes, np.zeros(0, np.int64)])
    return together * max(1, len(codes)) + family
