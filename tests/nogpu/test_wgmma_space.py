"""What the wgmma family offers: few enough kernels to compile them all, and everything that has won in a suite."""

import json
from pathlib import Path

import pytest

from kt.devices.catalog import modelled
from kt.problems import Problem
from kt.search_spaces.enumeration import enumerate_space
from kt.search_spaces.launch import violated
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import SearchSpace

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h200"
SUITES = [
    RESULTS / f"suite-{suite}-table.json"
    for suite in ("bf16-b1f4ecd", "fp16-b1f4ecd", "bf16-361ec58", "fp16-361ec58", "tf32-361ec58", "int8-361ec58")
]
# Each adds kernels that the others have no use for: few rows, few columns, small, deep and large ones.
SHAPES = [
    (4096, 4096, 4096), (64, 7168, 8192), (256, 256, 256), (1024, 512, 13472), (16, 1000000, 16), (8200, 48, 2560)
]  # fmt: skip
FIELDS = ("m", "n", "k", "dtype", "layout", "accumulator", "out_dtype")
MOST_KERNELS = 1000  # 0.059 s each on 16 threads (H200 machine): less than a minute
# A tie, 0.1% behind the next one: two blocks of 64 rows that share what they load of B.
TIED = ("bf16", 8457, 35, 2560)


def wgmma() -> SearchSpace:
    return next(space for space in builtin_spaces() if space.family == "wgmma")


@pytest.mark.parametrize(("dtype", "layout"), [("bf16", "nt"), ("bf16", "nn"), ("int8", "nt"), ("tf32", "nn")])
def test_all_kernels_of_a_dtype_and_layout_compile_within_a_minute(dtype: str, layout: str) -> None:
    space, device = wgmma(), modelled("h200")
    kernels: set[tuple[object, ...]] = set()
    for m, n, k in SHAPES:
        problem = Problem(m=m, n=n, k=k, dtype=dtype, layout=layout)
        offered = enumerate_space(space, {**device.names(), **problem.names()})
        kernels.update(offered.config(i).parameters for i in range(len(offered)))
    assert len(kernels) <= MOST_KERNELS


@pytest.mark.parametrize("table", SUITES, ids=lambda path: path.stem)
def test_what_has_won_is_still_offered(table: Path) -> None:
    space, device = wgmma(), modelled("h200")
    won = [row for row in json.loads(table.read_text())["rows"] if row["family"] == "wgmma"]
    lost = []
    for row in won:
        problem = Problem(**{name: row["problem"][name] for name in FIELDS})
        chosen = {**space.default, **row["config"]["parameters"], **row["config"]["runtime"]}
        known = all(value in space.parameters[name] for name, value in chosen.items() if name in space.parameters)
        if not known or violated(space, space.config(chosen), {**device.names(), **problem.names()}):
            lost.append((problem.dtype, problem.m, problem.n, problem.k))
    assert len(won) >= 30
    assert set(lost) <= {TIED}


@pytest.mark.parametrize(
    ("shape", "offered"),
    [
        ((8457, 35, 2560), True),
        ((6000, 48, 8192), True),
        ((3000, 48, 8192), False),  # 32 tiles for 132 multiprocessors
        ((10560, 80, 2560), False),
        ((4096, 4096, 4096), False),
        ((64, 7168, 8192), False),
    ],
)
def test_tiles_of_fewer_rows_than_are_multiplied_are_for_tall_and_narrow_products(
    shape: tuple[int, int, int], offered: bool
) -> None:
    problem = Problem(*shape, "bf16", "nt")
    found = enumerate_space(wgmma(), {**modelled("h200").names(), **problem.names()})
    assert bool((found.columns["rows_loaded"] > 64).any()) == offered
