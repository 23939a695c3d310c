"""The exported header with kernels, built by nvcc and called: wherever a configuration is from, results are right.

They are verified as those of kt's own candidates are: bit for bit on whole numbers, with other scalars, within a bound
on random numbers, two runs with equal bits, nothing written outside C.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.devices.device import Device
from kt.export.collect import collect_few
from kt.export.kernel_header import kernel_header, render_kernel_header
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.problems.dtypes import OUTPUT_BYTES
from kt.search_spaces.launch import violated
from kt.search_spaces.loader import builtin_spaces
from support.exported_library import ExportedLibrary, build
from support.library_checks import LibraryChecks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
]

SPACES = {space.family: space for space in builtin_spaces()}
# Of each family what differs in its launches; those that are not valid on this GPU are left out.
TUNED: list[tuple[Problem, str, dict[str, int | str]]] = [
    (Problem(1024, 1024, 1024, "bf16", "nn"), "wgmma", {"cluster_m": 2, "tile_n": 256, "stages": 4}),
    (Problem(1021, 1019, 1013, "bf16", "nt"), "wgmma", {"pack_a": 1, "pack_b": 1}),
    (Problem(256, 256, 16384, "bf16", "nn"), "wgmma", {"split_k": 16, "raster_group": 1}),
    (Problem(512, 768, 1024, "int8", "tn"), "wgmma", {"pack_a": 1, "pack_b": 1, "stages": 5}),
    (Problem(1000, 1000, 1000, "bf16", "tn"), "mma", {}),
    (Problem(2500, 2500, 500, "bf16", "tt"), "mma", {"stream_k": 1}),
    (Problem(300, 300, 3001, "bf16", "nt"), "mma", {"split_k": 4}),
    (Problem(2000, 2500, 64, "fp64", "tn"), "mma", {"direct": 1, "hold_b": 1}),
    (Problem(1000, 1000, 1000, "fp32", "nn"), "simt", {}),
    (Problem(640, 640, 640, "fp32", "nn", batch=3), "simt", {"split_k": 2}),
    (Problem(1, 3072, 2048, "fp32", "nt"), "simt", {"split_k": 8}),
    (Problem(511, 513, 300, "fp64", "nt"), "simt", {}),
]


# Of one kernel for every layout: how blocks multiply, and with which run-time choices for operands of which shape.
SHARED: list[dict[str, int | str]] = [
    {"tile_n": 128, "stages": 5, "schedule": "pingpong"},
    {"tile_m": 64, "tile_n": 32, "tile_k_bytes": 256, "stages": 8, "consumers": 1},
    {"tile_n": 256, "stages": 4, "cluster_m": 2},
]
SHAPES: list[tuple[tuple[int, int, int], dict[str, int]]] = [
    ((1000, 1064, 520), {}),
    ((1021, 1019, 1013), {}),
    ((256, 264, 16384), {"split_k": 16, "raster_group": 1}),
    ((255, 261, 16383), {"split_k": 8, "raster_group": 1}),
    ((2048, 2056, 2048), {"stream_k": 1}),
]


def of_every_layout(device: Device, choices: dict[str, int | str]) -> Iterator[BestConfig]:
    """Winners that one kernel serves: aligned and odd rows, slices of k and steps that blocks share."""
    space = SPACES["wgmma"]
    for number, ((sizes, runtime), layout) in enumerate(product(SHAPES, LAYOUTS)):
        problem = Problem(*sizes, "bf16", layout)
        packed = {f"pack_{name}": int(problem.alignment(name) < 16) for name in "ab"}
        config = space.config({**space.default, **choices, **packed, **runtime})
        if violated(space, config, {**device.names(), **problem.names()}) is None:
            key = CacheKey(problem, device.identity, "nvrtc", "graph/1")
            yield BestConfig(key, config, Measurement("ok", 50.0 + number), {"wgmma": "digest"}, complete=True)


def winners(device: Device) -> Iterator[BestConfig]:
    for number, (problem, family, choices) in enumerate(TUNED):
        space = SPACES[family]
        config = space.config({**space.default, **choices})
        if violated(space, config, {**device.names(), **problem.names()}) is None:
            key = CacheKey(problem, device.identity, "nvrtc", "graph/1")
            yield BestConfig(key, config, Measurement("ok", 50.0 + number), {family: "digest"}, complete=True)


def unseen(listed: list[BestConfig]) -> Iterator[Problem]:
    """Shapes beside the tuned ones, tiny and ragged ones, other layouts and alignments."""
    chooser = random.Random(8)
    for best in listed:
        problem = best.key.problem
        yield Problem(problem.m + 1, problem.n, problem.k, problem.dtype, problem.layout)
        yield Problem(problem.m, problem.n, 0, problem.dtype, problem.layout)
        yield Problem(problem.m, problem.n, problem.k, problem.dtype, problem.layout, beta=1.0, ldc=problem.n + 3)
        for layout in LAYOUTS:
            m, n, k = (chooser.choice([1, 8, 33, 64, 200, 515]) for _ in range(3))
            batch, alignment = chooser.choice([1, 2]), chooser.choice([16, 256])
            yield Problem(m, n, k, problem.dtype, layout, batch, base_alignment=alignment)


@pytest.fixture(scope="module")
def checks(device: Device, tmp_path_factory: pytest.TempPathFactory) -> LibraryChecks:
    header = render_kernel_header(winners(device), SPACES)
    return LibraryChecks(ExportedLibrary(build(tmp_path_factory.mktemp("library"), header, device.arch)))


def test_tuned_and_unseen_shapes_are_computed_right(checks: LibraryChecks, device: Device) -> None:
    """Exact entries, neighbours and the generic kernels: each is met, and each is right."""
    listed = list(winners(device))
    found = Counter(checks.check(best.key.problem) for best in listed)
    assert set(found) == {"exact"}
    others = Counter(checks.check(problem) for problem in dict.fromkeys(unseen(listed)))
    assert others["neighbour"] > 10
    assert others["generic"] > 0


def test_tiny_problems_are_computed_right(checks: LibraryChecks, device: Device) -> None:
    """Of every format, with every number of held rows, at the borders of what is tiny, rows at any alignment."""
    for dtype in dict.fromkeys(best.key.problem.dtype for best in winners(device)):
        size = DTYPES[dtype].bytes
        least = max(size, OUTPUT_BYTES[DTYPES[dtype].outputs[0]])
        for layout, short in product(LAYOUTS, range(1, 9)):
            long, k = 31 * short + short % 2, (1024 // size if short == 8 else 13 * short) // (1 + short % 3)
            for m, n in ((short, long), (long, short)):
                problem = Problem(
                    m, n, k, dtype, layout, 1 + short % 2, beta=short % 3, base_alignment=max(least, 16 >> short % 4)
                )
                assert checks.check(problem) == "standard", problem.label


@pytest.mark.parametrize("choices", SHARED, ids=lambda choices: f"{choices['tile_n']}")
def test_one_kernel_computes_every_layout_right(device: Device, choices: dict[str, int | str], tmp_path: Path) -> None:
    """With C aligned or not, whatever the scalars, with slices and shared steps, at sizes that were not tuned too."""
    if device.compute_capability != (9, 0):
        pytest.skip("wgmma is for Hopper")
    listed = list(of_every_layout(device, choices))
    known, few = collect_few(listed, SPACES, most=1, admits=lambda _: True)
    assert few.kernels == 1
    assert {best.key.problem.layout for best in listed} == set(LAYOUTS)
    assert {one.kernel.signature.align_c for one in few.known} == {2, 16}
    checks = LibraryChecks(ExportedLibrary(build(tmp_path, kernel_header(known), device.arch)))
    assert {checks.check(best.key.problem) for best in listed} == {"exact"}
    chooser = random.Random(4)
    for layout, beta in product(LAYOUTS, (0.0, 1.0, -0.5)):
        m, n, k = (chooser.choice([129, 200, 515, 776, 1300]) for _ in range(3))
        problem = Problem(m, n, k, "bf16", layout, chooser.choice([1, 3]), alpha=1.5, beta=beta)
        assert checks.check(problem) == "neighbour"


def test_pointers_that_are_aligned_worse_than_the_query_says(checks: LibraryChecks) -> None:
    """The header looks at the pointers: a kernel that needs 16 bytes is not given 4."""
    problem = Problem(1000, 1000, 1000, "fp32", "nn", base_alignment=4)
    assert checks.check(problem, asked=Problem(1000, 1000, 1000, "fp32", "nn")) != "exact"


def test_a_workspace_that_is_too_small_is_refused(checks: LibraryChecks) -> None:
    """Nothing is launched then."""
    problem = Problem(640, 640, 640, "fp32", "nn", batch=3)
    assert checks.library.workspace_bytes(problem) > 0
    with pytest.raises(RuntimeError, match="workspace_too_small"):
        checks.check(problem, workspace=16)
