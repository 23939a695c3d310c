"""The performance model puts the right kind of configuration first, and never promises the impossible."""

import csv
import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.devices.catalog import catalog
from kt.devices.roofline import floor_us
from kt.errors import InputError
from kt.problems import Problem
from kt.tuner import model
from kt.tuner.model import lay_out, order_us, predict_us

H200, T4 = catalog()["h200"], catalog()["t4"]
Columns = dict[str, Any]
MEASURED = Path(__file__).parent / "data" / "simt_fp32_h200.csv"

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
    assert all(config["tile_m"] * config["tile_n"] >= 64 * 64 for config in first)  # measured: within 3% of the best
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


def test_slices_of_k_pay_where_tiles_are_few() -> None:
    """Few tiles of two warps each leave schedulers waiting; where tiles are many, other tiles' warps fill the gaps."""
    configs: Columns = {
        "tile_m": [64] * 3, "tile_n": [64] * 3, "tile_k": [16, 32, 64], "thread_m": [8] * 3, "thread_n": [8] * 3,
        "unroll": [16] * 3, "slices_k": [1, 2, 4], "stages": [2] * 3, "smem_bytes": [16384, 32768, 65536],
    }  # fmt: skip
    one, two, four = predict_us(Problem(1024, 1024, 1024), H200, configs)
    assert one > 1.1 * two
    assert one > four
    one, two, four = predict_us(Problem(4096, 4096, 4096), H200, configs)
    assert two > 0.97 * one
    assert four > 0.97 * one


def test_operands_turned_in_registers_cost_less_than_element_by_element() -> None:
    """Where they lie along k; beside the same tile whose operands lie along m and n, they cost something."""
    tile: Columns = {
        "tile_m": [32] * 2, "tile_n": [64] * 2, "tile_k": [64] * 2, "thread_m": [8] * 2, "thread_n": [8] * 2,
        "unroll": [16] * 2, "slices_k": [4] * 2, "stages": [2] * 2, "smem_bytes": [57344] * 2, "turned_words": [0, 48],
    }  # fmt: skip
    copied, turned = predict_us(Problem(2048, 2048, 2048, layout="nt"), H200, tile)
    (plain, _) = predict_us(Problem(2048, 2048, 2048, layout="tn"), H200, tile)
    assert plain < turned < copied


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
        Problem(64, 64, 0, beta=2.0),
    ],
    ids=lambda problem: problem.label,
)
def test_no_prediction_is_below_the_roofline(problem: Problem, columns: Columns) -> None:
    times = predict_us(problem, H200, columns)
    assert not np.isnan(times).any()
    assert times.min() >= floor_us(problem, H200)


def test_below_the_roofline_configurations_still_have_an_order(columns: Columns) -> None:
    """Where a device's roofline is above all that the model adds up to, the model still says which comes first."""
    problem = Problem(4096, 4096, 4096)
    slow = replace(H200, flops={**H200.flops, "fp32": 1e9})
    assert (predict_us(problem, slow, columns) == floor_us(problem, slow)).all()
    assert (order_us(problem, slow, columns) == order_us(problem, H200, columns)).all()
    assert (predict_us(problem, H200, columns) == order_us(problem, H200, columns)).all()


@pytest.mark.parametrize("device", ["rtx4090", "rtx3090", "a10", "a100", "h200"])
def test_what_the_terms_add_up_to_is_not_below_the_roofline(device: str) -> None:
    """Stream-K's three blocks of six warps: what the registers do not let in at once takes its turn."""
    config: Columns = {
        "tile_m": [32] * 3, "tile_n": [96] * 3, "tile_k": [64] * 3, "warp_m": [16] * 3, "warp_n": [32] * 3,
        "threads": [192] * 3, "min_blocks": [1, 3, 6], "stream_k": [1] * 3, "smem_bytes": [32768] * 3,
    }  # fmt: skip
    problem = Problem(4096, 4096, 4096, "bf16", "nt")
    for registers in (None, [90] * 3, [168] * 3):
        assert (order_us(problem, catalog()[device], config, registers) >= floor_us(problem, catalog()[device])).all()


def test_the_roofline_holds_however_the_constants_are_fitted(columns: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_LAUNCH_US", 0.0)
    monkeypatch.setattr(model, "_ENDS", 0.0)
    for problem in (Problem(64, 64, 0, beta=2.0), Problem(64, 64, 64)):
        assert predict_us(problem, H200, columns).min() == floor_us(problem, H200)


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
    assert lay_out(problem, config).wanted_registers()[0] > 128
    assert predict_us(problem, H200, config)[0] > 1.5 * predict_us(problem, H200, config, [128])[0]


def test_stream_k_takes_few_registers_where_accumulators_leave_few() -> None:
    """64 accumulators fit in 128 registers, also beside stream-K's walk, but no longer with operands in registers."""
    config: Columns = {
        "tile_m": [128] * 3, "tile_n": [128] * 3, "tile_k": [16] * 3, "threads": [256] * 3, "min_blocks": [2] * 3,
        "pack_a": [1] * 3, "pack_b": [1] * 3, "stages": [3] * 3, "unroll": [16] * 3, "stream_k": [0, 1, 1],
        "turned_words": [0, 0, 16],
    }  # fmt: skip
    waves, even, spilled = predict_us(Problem(4096, 4096, 4096, layout="nt"), H200, config)
    assert even < 1.1 * waves
    assert spilled > 1.3 * even


def test_groups_of_tile_rows_save_traffic_when_memory_is_slow(columns: Columns) -> None:
    slow = replace(H200, bandwidth=2e11)
    config: Columns = {"tile_m": [128] * 2, "tile_n": [128] * 2, "tile_k": [16] * 2, "raster_group": [1, 8]}
    alone, grouped = predict_us(Problem(16384, 16384, 4096), slow, config)
    assert grouped < 0.7 * alone


def test_packing_pays_for_itself_only_where_the_operand_is_used_often() -> None:
    """One copy more of a k-contiguous operand buys wide reads of it; B is used by every 16 rows of C."""
    config: Columns = {
        "tile_m": [16] * 2, "tile_n": [128] * 2, "tile_k": [16] * 2, "thread_m": [4] * 2, "pack_b": [0, 1],
    }  # fmt: skip
    often, packed = predict_us(Problem(4096, 8192, 8192, layout="nt"), H200, config)
    assert packed < often
    once, packed = predict_us(Problem(16, 8192, 8192, layout="nt"), H200, config)
    assert packed > once


@pytest.mark.parametrize(("layout", "slower"), [("nn", (1.02, 1.15)), ("tt", (1.02, 1.15)), ("nt", (1.06, 1.25))])
def test_turned_operands_cost_what_was_measured(layout: str, slower: tuple[float, float]) -> None:
    """At 4096 cubed, of the best kernels of each layout, nn is about 5% slower than tn and nt about 12%."""
    config: Columns = {"tile_m": [128], "tile_n": [256], "tile_k": [16], "thread_n": [16], "unroll": [16]}
    wide, turned = (predict_us(Problem(4096, 4096, 4096, layout=name), H200, config)[0] for name in ("tn", layout))
    assert slower[0] < turned / wide < slower[1]


def test_thread_tiles_are_bound_by_shared_memory() -> None:
    """8 x 4 products need 12 values: at 128 bytes a clock two thirds of the arithmetic, 45 TFLOP/s as measured."""
    config: Columns = {
        "tile_m": [64] * 2, "tile_n": [128] * 2, "tile_k": [32] * 2, "thread_n": [8, 4], "unroll": [16] * 2,
    }  # fmt: skip
    times = predict_us(Problem(8192, 8192, 8192, layout="tn"), H200, config)
    rates = 2 * 8192**3 / times / 1e6
    assert 49 < rates[0] < 54
    assert 41 < rates[1] < 46


def test_a_single_warp_uses_one_of_four_schedulers() -> None:
    """One block of one warp on each multiprocessor: four such blocks there take about as long."""
    config: Columns = {"tile_m": [64], "tile_n": [32], "tile_k": [16], "threads": [32], "unroll": [16]}
    one, four = (float(predict_us(Problem(64 * 132 * some, 32, 8192), H200, config)[0]) for some in (1, 4))
    assert four < 1.2 * one


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


def measured() -> dict[str, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]]:
    """Predicted and measured times of each shape, by class."""
    shapes = defaultdict(list)
    with MEASURED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            extents = (int(row["m"]), int(row["n"]), int(row["k"]))
            shapes[row["class"], Problem(*extents, layout=row["layout"])].append(row)
    found = defaultdict(list)
    for (kind, problem), rows in shapes.items():
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        parameters = {name: values.astype(int) for name, values in columns.items() if np.char.isdigit(values).all()}
        predicted = predict_us(problem, H200, {name: parameters[name] for name in parameters if name not in "mnk"})
        found[kind].append((predicted, columns["time_us"].astype(float)))
    return found


def rank_correlation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Spearman's: 1 for the same order, -1 for the reverse; equal values share their rank."""
    ranks = [
        np.array([(values < value).sum() + (values <= value).sum() for value in values]) for values in (one, other)
    ]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("large", 0.85), ("medium", 0.75), ("small", 0.65), ("tiny", 0.9), ("long k", 0.85), ("short k", 0.45),
        ("few rows", 0.4),
    ],
)  # fmt: skip
def test_orders_what_was_measured(kind: str, least: float) -> None:
    """The model is calibrated on an H200 in fp32; each class of shapes keeps most of its order."""
    shapes = measured()[kind]
    assert np.mean([rank_correlation(predicted, times) for predicted, times in shapes]) > least


def test_predicts_what_was_measured() -> None:
    """Half within 6%, nine in ten within 22%: the scale is right as well as the order."""
    errors = [np.abs(np.log(times / predicted)) for shapes in measured().values() for predicted, times in shapes]
    assert np.median(np.concatenate(errors)) < 0.06
    assert np.quantile(np.concatenate(errors), 0.9) < 0.2


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("stages", ["single", "double"], "stages is single in a configuration; kt takes .* from 0 to 2147483647"),
        ("split_k", [0, 4], "split_k is 0 in a configuration; kt takes .* from 1"),
        ("tile_m", [64, 2**40], "tile_m is 1099511627776"),
        ("pack_a", [-1, 1], "pack_a is -1"),
        ("tile_n", [False, True], "tile_n is False"),
    ],
)
def test_a_name_with_another_meaning_is_told(name: str, values: list[Any], said: str) -> None:
    """A space of the user's may call by a name that the model knows what is a word, a switch or 0 there."""
    with pytest.raises(InputError, match=said):
        order_us(Problem(512, 512, 512), H200, {name: np.array(values)})
