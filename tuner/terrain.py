"""`Terrain` and `Landscape`: the candidates of a problem as a search sees them, numbers and arrays only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Indices", "Landscape", "Numbers", "Terrain", "join"]

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Landscape:
    """Candidates as a strategy sees them; one row or element for each.

    Attributes:
        numbers: of the candidates.
        predicted: the model's microseconds, below the roofline too where its terms add up to that: for the order.
        digits: one row of small integers for each candidate: the position of each parameter's value among those
            offered, so that neighbouring values differ by one.
        family: number of the kernel family; candidates of different families are never neighbours.
        binary: equal for candidates that differ in run-time arguments only: they share one compilation.
        structure: equal for candidates that cut the problem up alike (tiles, thread or warp tiles, split-K).
    """

    numbers: Indices
    predicted: Numbers
    digits: npt.NDArray[np.int16]
    family: Indices
    binary: Indices
    structure: Indices

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, rows: Indices) -> Landscape:
        """The candidates in these rows."""
        return Landscape(**{name: column[rows] for name, column in vars(self).items()})

    def by_prediction(self) -> Indices:
        """Row numbers, best predicted first; equal predictions in their own order."""
        return np.argsort(self.predicted, kind="stable").astype(np.int64)


def join(parts: Sequence[Landscape]) -> Landscape:
    """Landscapes of several families, or around several candidates, in one."""
    width = max((part.digits.shape[1] for part in parts), default=0)
    digits = [np.pad(part.digits, ((0, 0), (0, width - part.digits.shape[1]))) for part in parts]
    whole = np.zeros(0, np.int64)
    return Landscape(
        np.concatenate([*(part.numbers for part in parts), whole]),
        np.concatenate([*(part.predicted for part in parts), np.zeros(0)]),
        np.concatenate([*digits, np.zeros((0, width), np.int16)]),
        np.concatenate([*(part.family for part in parts), whole]),
        np.concatenate([*(part.binary for part in parts), whole]),
        np.concatenate([*(part.structure for part in parts), whole]),
    )


class Terrain(Protocol):
    """All candidates of one problem."""

    def __len__(self) -> int: ...
    @property
    def defaults(self) -> tuple[int, ...]:
        """The default configurations of the families."""
        ...

    @property
    def starts(self) -> tuple[int, ...]:
        """Completions of the spaces' starts, best predicted first."""
        ...

    @property
    def sample(self) -> Landscape:
        """All candidates, or of very many a random part."""
        ...

    def at(self, numbers: Sequence[int]) -> Landscape:
        """These candidates, in any order."""
        ...

    def everything(self) -> Landscape:
        """All candidates."""
        ...

    def near(self, number: int, parameters: int) -> Landscape:
        """The candidates that differ from one in at most so many parameters, by one step each."""
        ...
