"""The performance model of tiles that warpgroups multiply by wgmma."""

from typing import Any

import numpy as np
import pytest

from kt.devices.catalog import modelled
from kt.devices.roofline import floor_us
from kt.problems import Problem
from kt.tuner.candidates import STRUCTURE_OF_GROUPS, Candidates
from kt.tuner.group_tiles import GroupTiles
from kt.tuner.model import lay_out, order_us
from support.family_compiles import builtin

SPACE = builtin("wgmma")
H200 = modelled("h200")
LARGE = Problem(8192, 8192, 8192, "bf16", "nt")
SMALL = {"tile_m": 64, "consumers": 1, "threads": 256}


def us(problem: Problem, **choices: Any) -> float:
    """Of 128 x 256 tiles in four stages, with changes."""
    names = {
        "tile_m": 128, "tile_n": 256, "tile_k": 64, "stages": 4, "consumers": 2, "schedule": "cooperative",
        "threads": 384, "smem_bytes": 230000, "raster_group": 8,
    }  # fmt: skip
    columns = {name: np.atleast_1d(value) for name, value in {**names, **choices}.items()}
    return float(order_us(problem, H200, columns)[0])


def test_a_space_that_names_consumers_has_warpgroups_multiply() -> None:
    assert isinstance(lay_out(LARGE, {"tile_m": [128], "consumers": [2], "schedule": ["pingpong"]}), GroupTiles)


@pytest.mark.parametrize(
    ("problem", "choices", "measured"),
    [
        (LARGE, {"cluster_m": 2}, 1350.0),
        (Problem(4096, 4096, 4096, "bf16"), {"cluster_m": 2}, 172.7),
        (Problem(4096, 4096, 4096, "bf16"), {"tile_n": 128, "stages": 6, "schedule": "pingpong"}, 175.8),
        (Problem(2048, 4096, 8192, "bf16", "nt"), {"cluster_n": 2}, 173.1),
        (Problem(2048, 2048, 2048, "bf16"), {"cluster_m": 2}, 24.4),
        (Problem(1024, 1024, 1024, "bf16"), {**SMALL, "tile_n": 128, "stages": 8}, 5.9),
        (Problem(1024, 1024, 1024, "bf16"), {"tile_n": 128, "stages": 6}, 8.05),
        (Problem(512, 512, 512, "bf16"), {**SMALL, "tile_n": 64, "tile_k": 128, "stages": 6}, 3.39),
        (Problem(256, 256, 256, "bf16"), {**SMALL, "tile_n": 16, "tile_k": 128, "stages": 8}, 2.72),
        (Problem(64, 7168, 8192, "bf16", "nt"), {**SMALL, "tile_n": 64, "tile_k": 128, "stages": 6}, 32.0),
    ],
)
def test_predictions_are_near_measurements(problem: Problem, choices: dict[str, Any], measured: float) -> None:
    """Within a sixth, on an H200."""
    assert measured / 1.17 < us(problem, **choices) < measured * 1.17


def test_what_was_seen_to_matter_matters() -> None:
    """Large tiles before small ones, turns where k is short, rows of tiles walked together."""
    short = Problem(8192, 8192, 512, "bf16", "nt")
    small = {"tile_m": 64, "tile_n": 64, "consumers": 1, "threads": 256}
    assert us(LARGE) < us(LARGE, **small)
    assert us(short, tile_n=128, schedule="pingpong") < us(short, tile_n=128)
    assert us(LARGE) <= us(LARGE, raster_group=1)


def test_every_candidate_of_the_space_has_a_time() -> None:
    problem = Problem(4096, 4096, 4096, "bf16", "nn")
    landscape = Candidates(problem, H200, [SPACE]).everything()
    assert np.isfinite(landscape.predicted).all()
    assert landscape.predicted.min() >= floor_us(problem, H200) / 1.5
    assert set(STRUCTURE_OF_GROUPS) <= SPACE.parameters.keys() | SPACE.runtime.keys()


def test_rows_from_registers_are_columns_of_c_where_those_are_of_b() -> None:
    """So it is of C's columns that a consumer had better have few: 256 x 128 tiles."""
    problem = Problem(8192, 8192, 8192, "tf32", "nn")
    wide, tall = {"tile_m": 128, "tile_n": 256}, {"tile_m": 256, "tile_n": 128}
    assert us(problem, **tall, registers_b=1, tile_k=32) <= us(problem, **wide, registers_b=1, tile_k=32)
    assert us(problem, **tall, registers_b=1, tile_k=32) < us(problem, **tall, pack_b=1, tile_k=32)


def test_what_begins_at_multiples_of_16_bytes_is_not_counted_as_copied() -> None:
    """A kernel that can copy reads it as it lies."""
    odd = Problem(2048, 1024, 479, "bf16", "nt")
    packed = {"pack_a": 1, "pack_b": 1}
    assert us(odd, **packed, copying=0) == us(odd)
    assert us(odd, **packed, copying=1) > us(odd) + 2.0
