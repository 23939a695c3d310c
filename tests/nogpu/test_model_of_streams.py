"""The performance model of operands that pass once through the registers of warps."""

import csv
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kt.devices.catalog import modelled
from kt.devices.roofline import floor_us
from kt.problems import Problem
from kt.tuner.candidates import STRUCTURE_OF_STREAMS, Candidates
from kt.tuner.model import lay_out
from kt.tuner.stream_tiles import StreamTiles
from support.family_compiles import builtin

SPACE = builtin("skinny")
H200 = modelled("h200")
DECODE = Problem(1, 128256, 4096, "bf16", "nt")
MEASURED = Path(__file__).parent / "data" / "skinny_h200.csv"


def us(problem: Problem, **choices: Any) -> float:
    """Of the space's default for the problem, with changes."""
    candidates = Candidates(problem, H200, [SPACE])
    number = candidates.find(SPACE.config({**SPACE.default, **choices}))
    assert number is not None, "the configuration is valid"
    return candidates.order_us(number)


def test_a_space_that_names_what_is_streamed_has_it_pass_through_warps() -> None:
    assert isinstance(lay_out(DECODE, {"streamed": ["b"], "tile_s": [8], "lane_rows": [2]}), StreamTiles)


@pytest.mark.parametrize(
    ("problem", "choices", "measured"),
    [
        (DECODE, {"lane_rows": 2, "warps_l": 1, "warps_k": 8, "chunks": 2}, 235.1),
        (
            Problem(1, 6144, 4096, "bf16", "nt"),
            {"lane_rows": 2, "warps_l": 1, "warps_k": 8, "chunks": 4, "stages": 2},
            14.2,
        ),
        (
            Problem(8, 96, 5120, "bf16", "nt"),
            {"lane_rows": 2, "warps_l": 1, "warps_k": 8, "chunks": 2, "cluster_k": 8},
            3.9,
        ),
        (
            Problem(156800, 16, 36, "bf16", "nn"),
            {"form": "stretch", "streamed": "a", "tile_s": 16, "warps_l": 4, "warps_k": 1, "stages": 2},
            8.8,
        ),
    ],
)
def test_predictions_are_near_measurements(problem: Problem, choices: dict[str, Any], measured: float) -> None:
    """Within a third, on an H200."""
    assert measured / 1.33 < us(problem, **choices) < measured * 1.33


def test_what_was_seen_to_matter_matters() -> None:
    """Copies of whole lines; where k is short and rows begin anywhere, stretches of them."""
    assert us(DECODE, chunks=2, stages=2) <= us(DECODE, chunks=1)
    tall: dict[str, Any] = {"streamed": "a", "tile_s": 64, "warps_k": 1, "warps_l": 4, "stages": 2}
    odd = Problem(802816, 64, 147, "bf16", "nt")
    assert us(odd, form="stretch", **tall) < us(odd, **tall)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", SPACE.dtypes)
def test_every_candidate_of_the_space_has_a_time(dtype: str, layout: str) -> None:
    for m, n, k in ((16, 28672, 4096), (40000, 8, 48)):
        problem = Problem(m, n, k, dtype, layout)
        landscape = Candidates(problem, H200, [SPACE]).everything()
        assert len(landscape)
        assert landscape.predicted.min() >= floor_us(problem, H200) / 1.5
        assert np.isfinite(landscape.predicted).mean() > 0.9
    assert set(STRUCTURE_OF_STREAMS) <= SPACE.parameters.keys() | SPACE.runtime.keys()


def test_predictions_follow_what_was_measured() -> None:
    """Of 14 shapes: who is predicted first is fast, most pairs are in order, and times are right on the whole."""
    shapes = defaultdict(list)
    with MEASURED.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            extents = (int(row.pop("m")), int(row.pop("n")), int(row.pop("k")))
            problem = Problem(*extents, row.pop("dtype"), row.pop("layout"))
            measured = float(row.pop("time_us"))
            choices = {name: int(value) if value.isdigit() else value for name, value in row.items()}
            shapes[problem].append((measured, us(problem, **choices)))
    assert len(shapes) == 14
    chosen = [min(pairs, key=lambda pair: pair[1])[0] / min(pairs)[0] for pairs in shapes.values()]
    assert np.mean(chosen) < 1.05
    ordered = [late[1] > early[1] for pairs in shapes.values() for early, late in combinations(sorted(pairs), 2)]
    assert np.mean(ordered) > 0.7
    assert 0.9 < np.median([predicted / measured for pairs in shapes.values() for measured, predicted in pairs]) < 1.1
