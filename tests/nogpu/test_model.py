"""The performance model puts the right kind of configuration first, and never promises the impossible."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kt.devices.catalog import catalog
from kt.devices.roofline import floor_us
from kt.problems import Problem
from kt.tuner.model import estimate_registers, predict_us

H200, T4 = catalog()["h200"], catalog()["t4"]
Columns = dict[str, Any]

OFFERED: dict[str, list[int]] = {
    "tile_m": [8, 16, 32, 64, 128, 256], "tile_n": [16, 32, 64, 128, 256], "tile_k": [8, 16, 32],
    "thread_m": [1, 2, 4, 8, 16], "thread_n": [2, 4, 8, 16], "warp_m": [1, 2, 4, 8], "stages": [2, 3],
    "split_k": [1, 4, 16, 64, 256], "raster_group": [1, 8],
}  # fmt: skip


@pytest.fixture(scope="module")
def columns() -> Columns:
    """A GEMM space of about 140,000 configurations, as `Enumeration.columns` gives it."""
    grid = np.meshgrid(*(np.array(values) for values in OFFERED.values()), indexing="ij")
    found = {name: values.ravel() for name, values in zip(OFFERED, grid, strict=True)}
    found["threads"] = (found["tile_m"] // found["thread_m"]) * (found["tile_n"] // found["thread_n"])
    found["smem_bytes"] = found["stages"] * (found["tile_m"] + found["tile_n"]) * found["tile_k"] * 4
    valid = (
        (found["threads"] >= 32)
        & (found["threads"] <= 512)
        & (found["tile_m"] % (found["warp_m"] * found["thread_m"]) == 0)
        & (found["tile_n"] % (32 // found["warp_m"] * found["thread_n"]) == 0)
        & (found["thread_m"] * found["thread_n"] <= 128)
        & (found["smem_bytes"] <= H200.smem_per_block_optin)
    )
    return {name: values[valid] for name, values in found.items()}


def top(problem: Problem, columns: Columns, count: int) -> list[dict[str, int]]:
    order = np.argsort(predict_us(problem, H200, columns), kind="stable")[:count]
    return [{name: int(values[index]) for name, values in columns.items()} for index in order]


def best_with(problem: Problem, columns: Columns, **choice: int) -> float:
    """The least predicted time among the configurations with these values."""
    rows = np.ones(len(columns["tile_m"]), bool)
    for name, value in choice.items():
        rows &= columns[name] == value
    return float(predict_us(problem, H200, {name: values[rows] for name, values in columns.items()}).min())


def test_large_square_wants_large_tiles(columns: Columns) -> None:
    problem = Problem(4096, 4096, 4096)
    first = top(problem, columns, 20)
    assert all(config["tile_m"] * config["tile_n"] >= 64 * 128 for config in first)
    assert any(config["tile_m"] * config["tile_n"] >= 128 * 128 for config in first[:3])
    assert all(config["split_k"] == 1 for config in first[:3])
    best = best_with(problem, columns)
    assert best_with(problem, columns, tile_m=32, tile_n=32) > 1.1 * best
    assert best_with(problem, columns, tile_m=8) > 1.3 * best


def test_long_k_wants_many_slices(columns: Columns) -> None:
    problem = Problem(32, 32, 60000, layout="tn")
    assert all(config["split_k"] >= 64 for config in top(problem, columns, 20))
    assert best_with(problem, columns, split_k=1) > 5 * best_with(problem, columns)


def test_one_row_wants_the_smallest_tile_of_rows(columns: Columns) -> None:
    problem = Problem(1, 28672, 4096, layout="nt")
    assert top(problem, columns, 1)[0]["tile_m"] == 8
    assert best_with(problem, columns, tile_m=128) > 2 * best_with(problem, columns)


def test_few_tiles_leave_multiprocessors_idle(columns: Columns) -> None:
    """At 1024 cubed the largest tiles make 32 blocks for 132 multiprocessors."""
    problem = Problem(1024, 1024, 1024)
    large = best_with(problem, columns, tile_m=256, tile_n=128, split_k=1)
    assert large > 1.5 * best_with(problem, columns)


def test_whole_waves_count(columns: Columns) -> None:
    """One tile more than fills the machine costs a further wave."""
    config = {name: values[:1] for name, values in columns.items()} | {
        "tile_m": [128], "tile_n": [128], "tile_k": [16], "thread_m": [8], "thread_n": [8], "threads": [256],
        "warp_m": [8], "smem_bytes": [200_000], "split_k": [1], "raster_group": [1], "stages": [3],
    }  # fmt: skip
    full, more = (float(predict_us(Problem(128 * tiles, 128, 8192), H200, config)[0]) for tiles in (132, 133))
    assert more > 1.7 * full


@pytest.mark.parametrize(
    "problem",
    [
        Problem(4096, 4096, 4096),
        Problem(1, 6144, 4096, layout="nt"),
        Problem(32, 32, 60000, layout="tn"),
        Problem(802816, 64, 147, layout="nt"),
        Problem(32768, 32768, 64),
        Problem(512, 512, 512, batch=64, beta=1.0),
        Problem(4093, 4099, 4091, "fp64"),
        Problem(1024, 1024, 1024, "int8"),
        Problem(1, 1, 0),
    ],
    ids=lambda problem: problem.label,
)
def test_no_prediction_is_below_the_roofline(problem: Problem, columns: Columns) -> None:
    times = predict_us(problem, H200, columns)
    launch_only = floor_us(problem, H200) <= 2.0
    assert not np.isnan(times).any()
    assert times.min() >= (1.0 if launch_only else floor_us(problem, H200))


def test_what_cannot_be_launched_takes_forever() -> None:
    columns: Columns = {"tile_m": [64, 64], "tile_n": [64, 64], "tile_k": [8, 8], "smem_bytes": [8192, 10**6]}
    times = predict_us(Problem(512, 512, 512), H200, columns)
    assert np.isfinite(times[0])
    assert np.isinf(times[1])


def test_more_registers_never_help(columns: Columns) -> None:
    few = {name: values[::97] for name, values in columns.items()}
    count = len(few["tile_m"])
    problem = Problem(4096, 4096, 4096)
    times = [predict_us(problem, H200, few, np.full(count, registers)) for registers in (32, 64, 128, 200, 255)]
    for fewer, more in itertools.pairwise(times):
        assert (more >= 0.999 * fewer).mean() > 0.95  # fewer resident blocks may quantise better


def test_spills_cost(columns: Columns) -> None:
    """A block of 512 threads has 128 registers a thread; 16 x 8 accumulators do not fit."""
    config: Columns = {
        "tile_m": [256],
        "tile_n": [256],
        "tile_k": [8],
        "thread_m": [16],
        "thread_n": [8],
        "threads": [512],
    }
    problem = Problem(4096, 4096, 4096)
    assert estimate_registers(problem, config)[0] > 128
    assert predict_us(problem, H200, config)[0] > 1.5 * predict_us(problem, H200, config, [128])[0]


def test_groups_of_tile_rows_save_traffic_when_memory_is_slow(columns: Columns) -> None:
    slow = replace(H200, bandwidth=2e11)
    config: Columns = {"tile_m": [128] * 2, "tile_n": [128] * 2, "tile_k": [16] * 2, "raster_group": [1, 8]}
    alone, grouped = predict_us(Problem(16384, 16384, 4096), slow, config)
    assert grouped < 0.7 * alone


def test_packing_pays_for_itself_only_where_the_operand_is_used_often() -> None:
    """One copy more of a k-contiguous operand buys wide reads of it."""
    config: Columns = {
        "tile_m": [128] * 2, "tile_n": [128] * 2, "tile_k": [16] * 2, "pack_a": [0, 1], "pack_b": [0, 1],
    }  # fmt: skip
    large, packed = predict_us(Problem(8192, 8192, 8192, layout="nt"), H200, config)
    assert packed < large
    small, packed = predict_us(Problem(256, 256, 512, layout="nt"), H200, config)
    assert packed > small


def test_stream_k_fills_the_last_wave() -> None:
    """133 tiles on 132 multiprocessors: shared out evenly they take little more than one wave, else two."""
    config: Columns = {"tile_m": [128] * 2, "tile_n": [128] * 2, "tile_k": [16] * 2, "stream_k": [0, 1]}
    waves, even = predict_us(Problem(128 * 133, 128, 8192), H200, config)
    assert even < 0.8 * waves


def test_double_precision_is_slow_where_its_units_are_few() -> None:
    config: Columns = {"tile_m": [64], "tile_n": [64], "tile_k": [8], "thread_m": [4], "thread_n": [4]}
    single, double = (predict_us(Problem(2048, 2048, 2048, dtype), T4, config)[0] for dtype in ("fp32", "fp64"))
    assert 10 < double / single < 40


def test_absent_parameters_take_neutral_values() -> None:
    """A family with other parameters than `simt` is still ordered by its tiles."""
    times = predict_us(Problem(4096, 4096, 4096), H200, {"tile_m": [128, 16], "tile_n": [128, 16], "tile_k": [32, 32]})
    assert times[0] < times[1]
