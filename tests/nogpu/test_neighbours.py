"""Which problems are near each other, and whose winners are tried first."""

from __future__ import annotations

import pytest

from kt.problems import Problem
from kt.search_spaces.space import Config
from kt.tuner.neighbours import NEAREST, Neighbours, distance


def config(tile: int) -> Config:
    return Config("simt", (("tile_m", tile),))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Problem(512, 512, 512), 0.0),
        (Problem(1024, 512, 256), 2.0),
        (Problem(512, 512, 512, layout="nt"), 1.0),
        (Problem(512, 512, 512, dtype="tf32"), 1.0),
        (Problem(512, 512, 512, lda=513), 1.0),
        (Problem(512, 512, 0), 10.0),  # rows of A lie at other multiples of bytes too
    ],
)
def test_near_are_extents_that_are_alike(other: Problem, expected: float) -> None:
    assert distance(Problem(512, 512, 512), other) == distance(other, Problem(512, 512, 512)) == expected


def test_the_nearest_come_first_and_no_configuration_twice() -> None:
    winners = {Problem(512, 512, 512 + 8 * step): config(step // 2) for step in range(40, 0, -1)}
    nearest = Neighbours(winners).nearest(Problem(512, 512, 512))
    assert nearest == tuple(config(tile) for tile in range(NEAREST))


def test_formats_of_one_size_learn_from_each_other() -> None:
    known = Neighbours()
    known.add(Problem(512, 512, 512, dtype="bf16"), config(64))
    assert known.nearest(Problem(512, 512, 512, dtype="fp16")) == (config(64),)
    assert known.nearest(Problem(512, 512, 512, dtype="tf32")) == ()
    assert known.nearest(Problem(512, 512, 512, dtype="bf16")) == ()
