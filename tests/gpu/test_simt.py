"""The simt family computes GEMM: every format, layout, size, alignment, scalar and schedule, checked in full.

`FamilyChecks` says what verified in full means.
"""

from collections.abc import Iterable

import pytest

from kt.devices.device import Device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import violated
from kt.search_spaces.space import Config, Value
from kt.tuner.compile_pool import CompilePool
from support.family_checks import FamilyChecks
from support.family_compiles import builtin

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SPACE = builtin("simt")
LARGE: dict[str, Value] = {"tile_m": 128, "tile_n": 128, "thread_m": 8, "thread_n": 8, "tile_k": 16, "unroll": 16}
WIDE: dict[str, Value] = {
    "tile_m": 16,
    "tile_n": 256,
    "thread_m": 1,
    "thread_n": 8,
    "warp_m": 1,
    "tile_k": 32,
    "unroll": 16,
}
VARIANTS: tuple[dict[str, Value], ...] = (
    {},
    LARGE,
    LARGE | {"stages": 3, "fma_order": "columns", "raster_group": 4},
    LARGE | {"split_k": 3},
    WIDE,
    WIDE | {"split_k": 24},
    {"tile_m": 8, "tile_n": 128, "thread_m": 2, "thread_n": 4, "tile_k": 16, "unroll": 16},
    {"tile_m": 256, "tile_n": 32, "thread_m": 8, "thread_n": 2, "warp_m": 8},
    LARGE | {"stream_k": 1},
    LARGE | {"stages": 4, "pack_a": 1, "pack_b": 1},
    {"tile_m": 64, "tile_n": 48, "thread_m": 8, "thread_n": 12, "warp_m": 8},
    {"tile_m": 64, "tile_n": 96, "thread_m": 4, "thread_n": 12, "warp_m": 8, "stages": 3},
    LARGE | {"pack_a": 1, "stream_k": 1, "min_blocks": 2},
    LARGE | {"pack_b": 1, "split_k": 2},
)
SHARED: dict[str, Value] = {"stream_k": 1}
# Slices of k, 16 steps each: copies by all threads and, of what is packed, by TMA; tiles of one warp and of several.
SLICED: tuple[dict[str, Value], ...] = (
    {"tile_m": 32, "tile_n": 32, "tile_k": 32, "thread_m": 8, "thread_n": 4, "slices_k": 2, "stages": 3},
    {"tile_m": 64, "tile_n": 64, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "warp_m": 8},
    {"tile_m": 64, "tile_n": 64, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "fma_order": "columns"},
    {"tile_m": 64, "tile_n": 128, "tile_k": 32, "thread_m": 8, "thread_n": 8, "slices_k": 2, "split_k": 3},
    {"tile_m": 64, "tile_n": 16, "tile_k": 64, "thread_m": 8, "thread_n": 4, "slices_k": 4, "warp_m": 8, "split_k": 2},
    {"tile_m": 16, "tile_n": 128, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "warp_m": 2},
    {"tile_m": 64, "tile_n": 48, "tile_k": 64, "thread_m": 8, "thread_n": 12, "slices_k": 4, "warp_m": 8},
    {"tile_m": 64, "tile_n": 96, "tile_k": 32, "thread_m": 8, "thread_n": 12, "slices_k": 2, "warp_m": 8, "split_k": 2},
    {"tile_m": 64, "tile_n": 64, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "pack_a": 1, "pack_b": 1},
    {"tile_m": 64, "tile_n": 64, "tile_k": 32, "thread_m": 8, "thread_n": 8, "slices_k": 2, "pack_b": 1, "split_k": 2},
    {"tile_m": 64, "tile_n": 32, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "warp_m": 8, "pack_a": 1},
    # Shared evenly among the blocks that fit at once.
    SHARED | {"tile_m": 16, "tile_n": 64, "tile_k": 64, "thread_m": 4, "thread_n": 8, "slices_k": 4, "min_blocks": 4},
    SHARED | {"tile_m": 32, "tile_n": 64, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "min_blocks": 2},
    SHARED | {"tile_m": 16, "tile_n": 128, "tile_k": 64, "thread_m": 8, "thread_n": 4, "slices_k": 4, "warp_m": 1},
    SHARED | {"tile_m": 128, "tile_n": 48, "tile_k": 64, "thread_m": 8, "thread_n": 12, "slices_k": 4, "warp_m": 8},
    SHARED | {"tile_m": 64, "tile_n": 64, "tile_k": 64, "thread_m": 8, "thread_n": 8, "slices_k": 4, "pack_a": 1},
    SHARED | {"tile_m": 64, "tile_n": 128, "tile_k": 32, "thread_m": 8, "thread_n": 8, "slices_k": 2, "pack_b": 1},
    SHARED | {"tile_m": 32, "tile_n": 32, "tile_k": 32, "thread_m": 8, "thread_n": 4, "slices_k": 2, "stages": 3},
)
# Copied by TMA as they lie, and turned in shared memory.
TURNED: dict[str, Value] = {
    "tile_m": 128, "tile_n": 128, "tile_k": 16, "thread_m": 8, "thread_n": 16, "warp_m": 4, "stages": 3, "unroll": 16,
    "fma_order": "columns", "min_blocks": 2, "turn_tma": 1,
}  # fmt: skip
TURNED_IN_SLICES = TURNED | {"tile_k": 32, "slices_k": 2, "min_blocks": 1}
TURNED_OF_256: dict[str, Value] = TURNED | {"tile_k": 32, "min_blocks": 1}
TURNED_ALIKE: tuple[dict[str, Value], ...] = (
    TURNED,
    TURNED | {"split_k": 3},
    TURNED | {"stream_k": 1, "raster_group": 4},
    TURNED_IN_SLICES,
    TURNED_IN_SLICES | {"stages": 2, "split_k": 2},
    TURNED_OF_256 | {"tile_n": 256},
    TURNED_OF_256 | {"tile_n": 256, "tile_k": 16, "split_k": 2},
    TURNED_OF_256 | {"tile_m": 256, "thread_m": 16, "thread_n": 8, "warp_m": 8, "fma_order": "rows"},
    TURNED_OF_256 | {"tile_m": 256, "thread_m": 16, "thread_n": 8, "warp_m": 8, "tile_k": 16},
)
FORMATS = ("fp32", "fp64", "fp16", "bf16", "int8")
SIZES = ((1, 1, 1), (1, 105, 107), (2, 4, 3), (130, 259, 67), (257, 96, 304), (64, 128, 4099))


def configurations(problem: Problem, device: Device, variants: tuple[dict[str, Value], ...] = VARIANTS) -> list[Config]:
    """The variants that are valid on the problem; of 8-byte elements the thread tiles are halved."""
    names = {**device.names(), **problem.names()}
    chosen: list[Config] = []
    for variant in variants:
        values = {**SPACE.default, **variant}
        if "slices_k" in variant:
            values["unroll"] = 16
        if problem.dtype == "fp64" and variant is not VARIANTS[0]:
            halved = "thread_m" if values["thread_n"] == 12 else "thread_n"
            values[halved] = max(2, int(values[halved]) // 2)
        if violated(SPACE, SPACE.config(values), names) is None:
            chosen.append(SPACE.config(values))
    return chosen


@pytest.fixture(scope="module")
def checks(device: Device, pool: CompilePool) -> FamilyChecks:
    return FamilyChecks(SPACE, device, pool)


def check(checks: FamilyChecks, problems: Iterable[Problem]) -> None:
    checks.check((problem, configurations(problem, checks.device)) for problem in problems)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_formats_layouts_and_sizes(dtype: str, layout: str, checks: FamilyChecks) -> None:
    check(checks, [Problem(m, n, k, dtype, layout) for m, n, k in SIZES])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_slices_of_k(dtype: str, layout: str, checks: FamilyChecks) -> None:
    """Groups of warps share each step: whole and ragged tiles, k below the slices, scalars, batches, odd strides."""
    sizes = [(1, 1, 1), (5, 7, 3), (67, 45, 131), (64, 128, 192), (130, 259, 67), (197, 96, 304)]
    problems = [Problem(m, n, k, dtype, layout) for m, n, k in sizes]
    problems += [Problem(96, 80, k, dtype, layout, batch=2, ldc=88, alpha=2.0, beta=3.0) for k in (0, 72)]
    problems += [Problem(516, 520, 136, dtype, layout), Problem(513, 514, 133, dtype, layout, beta=1.0)]
    problems += [Problem(515, 770, 322, dtype, layout, batch=2), Problem(2050, 1028, 260, dtype, layout, alpha=2.0)]
    cases = [(problem, configurations(problem, checks.device, SLICED)) for problem in problems]
    checks.check(case for case in cases if case[1])


def test_operands_that_tma_copies_as_they_lie(checks: FamilyChecks) -> None:
    """One, two and four classes of rows of either operand; ragged tiles and k, odd strides, bases, scalars, batches."""
    if checks.device.compute_capability < (9, 0):
        pytest.skip("TMA needs sm_90")
    sizes = ((128, 128, 128), (257, 259, 260), (300, 130, 479), (131, 514, 262), (2051, 2309, 131), (2051, 2309, 272))
    pitches = [(lda, ldb) for lda in (256, 257, 258, 259, 260) for ldb in (256, 261, 263, 266)]
    problems = [Problem(m, n, k, "fp32", "nt", beta=beta) for m, n, k in sizes for beta in (0.0, 1.0)]
    problems += [
        Problem(270, 301, 256, "fp32", "nt", lda=lda, ldb=ldb, ldc=303, alpha=2.0, beta=3.0) for lda, ldb in pitches
    ]
    problems += [Problem(200, 190, 193, "fp32", "nt", base_alignment=base) for base in (4, 8)]
    problems += [Problem(150, 260, k, "fp32", "nt", batch=3) for k in (256, 1028)]
    cases = [(problem, configurations(problem, checks.device, TURNED_ALIKE)) for problem in problems]
    for problem, chosen in cases:
        assert len(chosen) >= len(TURNED_ALIKE) - 1, problem.label  # stream-K needs more tiles than blocks
    checks.check(cases)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16"])
def test_large_tiles_streamed_and_packed(dtype: str, layout: str, checks: FamilyChecks) -> None:
    """More tiles than blocks that fit at once, whole and ragged, so that stream-K parks and collects."""
    check(checks, [Problem(m, n, k, dtype, layout) for m, n, k in [(2048, 2304, 272), (2051, 2309, 131)]])


@pytest.mark.parametrize("dtype", FORMATS)
def test_alignments_leading_dimensions_and_batches(dtype: str, checks: FamilyChecks) -> None:
    element = max(Problem(1, 1, 1, dtype).element_bytes.values())
    problems = [
        Problem(
            96, 80, 72, dtype, "nt", batch=3, lda=72 + extra, ldb=72 + extra, ldc=80 + extra,
            base_alignment=max(alignment, element),
        )
        for alignment in (element, 2 * element, 16)
        for extra in (0, 1, 8)
    ]  # fmt: skip
    check(checks, problems)


@pytest.mark.parametrize("dtype", FORMATS)
def test_scalars_and_empty_sums(dtype: str, checks: FamilyChecks) -> None:
    """alpha and beta scale as they should, and with k = 0 the result is beta * C."""
    scalars = [(2.0, 0.0), (1.0, 1.0), (-1.0, 3.0)]
    check(checks, [Problem(70, 66, k, dtype, "tn", alpha=alpha, beta=beta) for k in (0, 40) for alpha, beta in scalars])


@pytest.mark.parametrize(("m", "n", "k"), [(8, 8, 524288), (1_048_577, 16, 16), (16, 1_000_003, 16)])
def test_extreme_sizes(m: int, n: int, k: int, checks: FamilyChecks) -> None:
    """Very long sums, and more than 65,535 tiles along either dimension."""
    check(checks, [Problem(m, n, k)])


def test_more_than_two_to_the_31_elements(checks: FamilyChecks) -> None:
    """Offsets are 64-bit: C with 2.2e9 elements."""
    if checks.device.memory_bytes < 60 * 2**30:
        pytest.skip("needs 60 GiB of device memory")
    check(checks, [Problem(65536, 34000, 9)])
