"""`Neighbours`: winners of the problems that are most like another one, to be tried first on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kt.problems import Problem
    from kt.search_spaces.space import Config

__all__ = ["NEAREST", "Neighbours", "distance"]

NEAREST = 6  # winners that are tried first on a problem


@dataclass(frozen=True)
class Neighbours:
    """Problems with their winners."""

    winners: dict[Problem, Config] = field(default_factory=dict)

    def add(self, problem: Problem, winner: Config) -> None:
        self.winners[problem] = winner

    def nearest(self, problem: Problem) -> tuple[Config, ...]:
        """The winners of the nearest problems, no configuration twice; of equally near ones the first added first."""
        known = {other: config for other, config in self.winners.items() if _comparable(problem, other)}
        order = sorted(known, key=lambda other: distance(problem, other))
        return tuple(dict.fromkeys(known[other] for other in order))[:NEAREST]


def distance(one: Problem, other: Problem) -> float:
    """Doublings of an extent between two problems; what makes other kernels of a configuration counts as one each."""
    extents = ((one.m, other.m), (one.n, other.n), (one.k, other.k), (one.batch, other.batch))
    doublings = sum(abs(math.log2(max(1, first) / max(1, second))) for first, second in extents)
    aligned = [_alignments(problem) for problem in (one, other)]
    return doublings + (one.layout != other.layout) + (one.dtype != other.dtype) + (aligned[0] != aligned[1])


def _comparable(one: Problem, other: Problem) -> bool:
    """Elements of one size cut a problem up alike, and fill shared memory alike."""
    return one != other and one.element_bytes["a"] == other.element_bytes["a"]


def _alignments(problem: Problem) -> Mapping[str, int]:
    return {operand: problem.alignment(operand) for operand in ("a", "b", "c")}
