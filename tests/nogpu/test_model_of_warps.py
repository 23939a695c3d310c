"""The performance model of tiles that are divided among warps, and the rates of tensor cores that it rests on."""

from typing import Any

import numpy as np
import pytest

from kt.devices.catalog import catalog
from kt.devices.device import rate_of
from kt.devices.roofline import floor_us
from kt.problems import Problem
from kt.search_spaces.launch import derive
from kt.tuner.candidates import STRUCTURE_OF_WARPS, Candidates
from kt.tuner.model import lay_out, predict_us
from kt.tuner.thread_tiles import ThreadTiles
from kt.tuner.warp_tiles import WarpTiles
from support.family_compiles import builtin

H200, A10, RTX4090 = (catalog()[key] for key in ("h200", "a10", "rtx4090"))
Columns = dict[str, Any]
Tiles = tuple[int, int, int, int, int, int, dict[str, int]]  # of the block, of a warp, stages, blocks, further choices


def config(tile_m: int, tile_n: int, warp_m: int, warp_n: int, size: int = 2, **choices: Any) -> Columns:
    """One configuration as `Enumeration.columns` gives it; rows of 64 bytes along k, three stages."""
    names = {
        "tile_m": tile_m, "tile_n": tile_n, "tile_k": 64 // size, "warp_m": warp_m, "warp_n": warp_n, "stages": 3,
        "threads": 32 * (tile_m // warp_m) * (tile_n // warp_n), "smem_bytes": 3 * (tile_m + tile_n) * 64,
    }  # fmt: skip
    return {name: np.atleast_1d(value) for name, value in {**names, **choices}.items()}


def doubles(problem: Problem, tiles: Tiles, **choices: int) -> Columns:
    """One configuration of the space for doubles, written directly, with what it derives."""
    space = builtin("mma")
    named = dict(zip(("tile_m", "tile_n", "warp_m", "warp_n", "stages", "min_blocks"), tiles[:6], strict=True))
    config = space.config({**space.default, "direct": 1, **named, **tiles[6], **choices})
    names = derive(space, config, {**H200.names(), **problem.names()})
    return {name: np.atleast_1d(value) for name, value in names.items() if not isinstance(value, str)}


def us(problem: Problem, columns: Columns, device: Any = H200) -> float:
    return float(predict_us(problem, device, columns)[0])


def rate(problem: Problem, columns: Columns, device: Any = H200) -> float:
    """Predicted TFLOP/s."""
    return problem.flops / us(problem, columns, device) / 1e6


def test_a_space_that_names_warp_n_has_warps_multiply() -> None:
    """`warp_m` alone does not: in `simt` it says how the threads of a warp are arranged."""
    problem = Problem(512, 512, 512, "bf16")
    assert isinstance(lay_out(problem, config(64, 64, 32, 32)), WarpTiles)
    assert isinstance(lay_out(problem, {"tile_m": [64], "tile_n": [64], "thread_m": [4], "warp_m": [4]}), ThreadTiles)


def test_the_rates_of_the_h200_are_the_measured_ones() -> None:
    """8-bit floats are multiplied as fp16 there."""
    measured = {"fp16": 632, "bf16": 632, "tf32": 316, "int8": 1280, "fp8_e4m3": 632, "fp8_e5m2": 632, "fp64": 66}
    for dtype, tflops in measured.items():
        assert H200.mma_flops[dtype] == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize("key", catalog())
def test_mma_is_no_faster_than_the_best_way(key: str) -> None:
    device = catalog()[key]
    assert {"fp16", "int8"} <= device.mma_flops.keys()
    for name, flops in device.mma_flops.items():
        assert flops <= device.flops[name]
    if device.compute_capability >= (8, 0):
        assert {"bf16", "tf32"} <= device.mma_flops.keys()
    assert ("fp8_e4m3" in device.mma_flops) == (device.compute_capability >= (8, 9))


def test_sums_in_fp16_are_faster_on_consumer_gpus_only() -> None:
    for device, times in ((RTX4090, 2), (H200, 1), (A10, 1)):
        once, twice = (rate_of(device.mma_flops, "fp16", accumulator) for accumulator in ("fp32", "fp16"))
        assert twice == pytest.approx(times * once, rel=1e-3)
    wide, narrow = (Problem(8192, 8192, 8192, "fp16", accumulator=accumulator) for accumulator in ("fp32", "fp16"))
    assert floor_us(wide, RTX4090) == pytest.approx(2 * floor_us(narrow, RTX4090), rel=1e-3)


@pytest.mark.parametrize(("size", "measured"), [(4096, 287), (8192, 2253)])
def test_the_best_tiles_of_bf16_take_what_was_measured(size: int, measured: float) -> None:
    """On an H200, in bursts that are too short for the power limit; 128 x 256 tiles of 64 x 64 a warp won."""
    columns = config(128, 256, 64, 64, stages=[5], smem_bytes=[5 * 384 * 64], raster_group=[16])
    assert us(Problem(size, size, size, "bf16"), columns) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(("dtype", "least", "ceiling"), [("bf16", 0.7, 632), ("tf32", 0.7, 316), ("int8", 0.7, 1280)])
def test_large_warp_tiles_come_near_the_tensor_cores(dtype: str, least: float, ceiling: float) -> None:
    problem = Problem(8192, 8192, 8192, dtype, "nt")
    size = problem.element_bytes["a"]
    columns = config(128, 256, 64, 64, size)
    assert least < rate(problem, columns) / ceiling < 1


def test_small_warp_tiles_are_bound_by_shared_memory() -> None:
    """32 x 32 results read 64 rows of 32 bytes in 16 clocks, and have products for 13.5; copies come on top."""
    problem = Problem(8192, 8192, 8192, "bf16", "nt")
    large, small = (rate(problem, config(128, 128, warp, warp)) for warp in (64, 32))
    assert 1.3 < large / small < 2.2


def test_few_results_of_a_warp_wait_for_each_other() -> None:
    """One mma adds to the result of the one before: a lone warp takes 36 clocks for 32 bytes along k, at least."""
    problem = Problem(16, 16 * 132, 65536, "bf16", "nt")
    clocks = 36 * 65536 * 2 / 32
    assert us(problem, config(16, 16, 16, 16, stages=8)) > clocks / H200.clock_hz * 1e6


def test_registers_are_accumulators_fragments_and_addresses() -> None:
    problem = Problem(4096, 4096, 4096, "bf16")
    assert lay_out(problem, config(128, 128, 64, 64)).wanted_registers()[0] == 128 + 2 * 32 + 36
    half = Problem(4096, 4096, 4096, "fp16", accumulator="fp16")
    assert lay_out(half, config(128, 128, 64, 64)).wanted_registers()[0] == 64 + 2 * 32 + 36
    assert lay_out(problem, config(128, 128, 64, 64, registers=200)).wanted_registers()[0] == 200, (
        "the space knows better"
    )


def test_narrow_copies_cost_and_shifted_ones_more() -> None:
    """Rows aligned to 16, 4 and 2 bytes, of the same length but for a few elements."""
    times = [us(Problem(4096, n, 4096, "bf16", "nn"), config(128, 128, 64, 64)) for n in (4096, 4098, 4099)]
    assert times[0] < times[1] < times[2]


def test_packing_pays_where_an_unaligned_operand_is_used_often() -> None:
    packed: dict[str, Any] = {"pack_a": 1, "pack_b": 1}
    often, once = Problem(8205, 5921, 2949, "bf16"), Problem(64, 5921, 2949, "bf16")
    assert us(often, config(128, 128, 64, 64, **packed)) < us(often, config(128, 128, 64, 64))
    assert us(once, config(64, 128, 32, 64, **packed)) > us(once, config(64, 128, 32, 64))


def test_one_launch_packs_both_operands() -> None:
    """Where both are tiny, the second costs nothing that counts."""
    problem = Problem(512, 512, 31, "bf16")
    one, both = (us(problem, config(64, 64, 32, 32, pack_a=[1], pack_b=[second])) for second in (0, 1))
    assert both - one < 0.1


def test_a_format_without_tensor_cores_runs_at_the_rate_of_the_plain_units() -> None:
    """fp64 on an A10."""
    problem = Problem(4096, 4096, 4096, "fp64", "nt")
    assert "fp64" not in A10.mma_flops
    assert rate(problem, config(64, 64, 32, 32, 8), A10) < A10.simt_flops["fp64"] / 1e12


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "int8", "fp8_e4m3", "fp64", "fp16"])
@pytest.mark.parametrize("extents", [(1, 1, 1), (1, 1, 0), (4093, 4099, 4091), (32, 32, 60000), (8192, 8192, 8192)])
def test_no_prediction_is_below_the_roofline(dtype: str, extents: tuple[int, int, int]) -> None:
    problem = Problem(*extents, dtype)
    times = predict_us(problem, H200, config(128, 128, 64, 64, problem.element_bytes["a"], split_k=[1, 8, 64]))
    assert times.shape == (3,)
    assert np.isfinite(times).all()
    assert times.min() >= floor_us(problem, H200)


def test_candidates_with_other_warp_tiles_cut_the_problem_up_in_another_way() -> None:
    """A search takes a few of each structure only: details such as stages make no new one, and warps do."""
    space = builtin("mma")
    found = Candidates(Problem(256, 256, 256, "bf16"), H200, [space])
    sample = found.sample
    rows = np.random.default_rng(0).choice(len(sample), 500, replace=False)
    names = [name for name in STRUCTURE_OF_WARPS if name in {**space.parameters, **space.runtime}]
    choices = [found.config(int(number)).as_dict() for number in sample.numbers[rows]]
    cuts = {
        tuple(choice[name] for name in names): int(sample.structure[row])
        for choice, row in zip(choices, rows, strict=True)
    }
    assert {"warp_m", "warp_n"} <= set(names)
    assert len(set(cuts.values())) == len(cuts) < 500


@pytest.mark.parametrize(
    ("problem", "held", "plain"),
    [
        # Measured on an H200 in one run each, us: 3604 and 3665 for the two with B held, 4024 and 4316 without.
        (
            Problem(32768, 32768, 64, "fp64"),
            [(64, 64, 32, 32, 5, 3, {}), (64, 128, 64, 32, 5, 2, {})],
            [(128, 64, 64, 32, 3, 2, {"raster_group": 16}), (128, 128, 64, 32, 4, 1, {"stream_k": 1})],
        ),
        # 42.1 and 43.7; 51.4 and 52.0.
        (
            Problem(4096, 4096, 32, "fp64", "tn"),
            [(64, 64, 32, 32, 3, 3, {}), (64, 128, 64, 32, 3, 2, {})],
            [(64, 64, 32, 32, 2, 1, {"raster_group": 4}), (128, 64, 64, 32, 2, 1, {"raster_group": 4})],
        ),
    ],
    ids=["write-bound", "few steps"],
)
def test_held_columns_are_predicted_in_the_order_that_was_measured(
    problem: Problem, held: list[Tiles], plain: list[Tiles]
) -> None:
    """Each of a pair against its counterpart without: the operands are read less often, and results leave meanwhile."""
    for one, other in zip(held, plain, strict=True):
        assert us(problem, doubles(problem, one, hold_b=1)) < us(problem, doubles(problem, other))


def test_columns_are_not_held_where_rows_of_a_would_be_read_again() -> None:
    """Blocks are at different rows: an A that does not stay in L2 comes from memory for nearly every column."""
    tiles: Tiles = (64, 64, 32, 32, 3, 3, {})
    for problem, pays in ((Problem(16384, 8192, 64, "fp64"), True), (Problem(200_000, 4096, 64, "fp64"), False)):
        held, plain = (us(problem, doubles(problem, tiles, hold_b=choice, raster_group=1)) for choice in (1, 0))
        plain = min(plain, us(problem, doubles(problem, tiles, raster_group=16)))
        assert (held < plain) == pays


def test_held_columns_pass_through_l2_once() -> None:
    problem = Problem(32768, 32768, 64, "fp64")
    held, plain = (lay_out(problem, doubles(problem, (64, 128, 64, 32, 3, 2, {}), hold_b=one)) for one in (1, 0))
    assert held.fetched_rows[0] == 64
    assert plain.fetched_rows[0] == 64 + 128
