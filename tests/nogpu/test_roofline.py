"""The roofline floor: the largest of three limits, and its name."""

import pytest

from kt.devices.catalog import catalog
from kt.devices.device import Device
from kt.devices.roofline import EMPTY_FLOOR_US, LAUNCH_FLOOR_US, floor, floor_us
from kt.problems import Problem

H200 = catalog()["h200"]


def test_large_square_is_bound_by_compute() -> None:
    found = floor(Problem(4096, 4096, 4096), H200)
    assert found.bound == "compute"
    assert found.us == pytest.approx(2 * 4096**3 / 63.5e12 * 1e6)


def test_one_row_is_bound_by_bandwidth() -> None:
    problem = Problem(1, 128256, 4096, layout="nt")
    found = floor(problem, H200)
    assert found.bound == "bandwidth"
    assert found.us == pytest.approx(problem.bytes / 4.45e12 * 1e6)


def test_small_problem_is_bound_by_the_launch() -> None:
    assert floor(Problem(1, 1, 1), H200).bound == "launch"
    assert floor_us(Problem(1, 1, 1), H200) == LAUNCH_FLOOR_US


def test_a_problem_that_reads_nothing_waits_for_no_memory() -> None:
    """C is written at once, as fast as an empty kernel runs; with beta, C is read first."""
    assert floor(Problem(1, 1, 0), H200).us == EMPTY_FLOOR_US < LAUNCH_FLOOR_US
    assert floor_us(Problem(1, 1, 0, beta=2.0), H200) == LAUNCH_FLOOR_US


def test_half_precision_has_a_lower_compute_floor() -> None:
    fp32, bf16 = (floor_us(Problem(4096, 4096, 4096, dtype), H200) for dtype in ("fp32", "bf16"))
    assert bf16 < fp32 / 10


def test_reading_c_counts() -> None:
    with_c = floor_us(Problem(4096, 4096, 8, beta=1.0), H200)
    assert with_c > 1.9 * floor_us(Problem(4096, 4096, 8), H200)


def test_unknown_rates_set_no_limit() -> None:
    bare = Device("X", (9, 0), 1, 2**30)
    assert floor(Problem(4096, 4096, 4096), bare).bound == "launch"
