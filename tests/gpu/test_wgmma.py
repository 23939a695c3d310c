"""The wgmma family computes GEMM: formats, layouts, alignments, ragged sizes, scalars, every schedule, in full.

`FamilyChecks` says what verified in full means, `Covering` which configurations are taken: a few for each problem, so
that over the problems of a format the pairs of choices meet.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from kt.devices.device import Device
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Value
from kt.tuner.arguments import gemm_arguments
from kt.tuner.compile_pool import CompilePool
from support.covering import Covering
from support.family_checks import Case, FamilyChecks, candidate_of, compiled, jobs_of
from support.family_compiles import builtin
from support.problems import (
    Formats,
    aligned,
    every_alignment,
    every_scalar,
    formats_of,
    main_formats,
    misaligned_bases,
    ragged,
    very_long_sums,
    with_label,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SPACE = builtin("wgmma")
FORMATS = tuple(formats for formats in formats_of(SPACE.dtypes) if formats.accumulator != "fp16")
MAIN = main_formats(FORMATS)
OTHERS = tuple(formats for formats in FORMATS if formats not in MAIN)
LAUNCHES = 1000
# Columns of C, and elements between rows besides: every remainder by 8 of both.
ODD_WIDTHS = ((517, 0), (385, 1), (258, 3), (191, 6), (131, 2), (92, 5), (7, 4), (1, 8))


@pytest.fixture(scope="module")
def checks(device: Device, pool: CompilePool) -> FamilyChecks:
    if device.compute_capability != (9, 0):
        pytest.skip(f"wgmma exists on compute capability 9.0; {device.name} has {device.compute_capability}")
    return FamilyChecks(SPACE, device, pool)


def cases(
    checks: FamilyChecks, problems: Iterable[Problem], each: int = 2, fixed: Mapping[str, Value] | None = None
) -> Iterator[Case]:
    """Each problem that has valid configurations with some of them."""
    covering = Covering(SPACE, checks.device)
    for problem in problems:
        if configs := covering.choose(problem, each, fixed):
            yield problem, configs


def is_offered(choice: Mapping[str, Value], dtype: str, accumulator: str) -> bool:
    """Sums of 8-bit floats that are promoted to fp32 are cooperative: consumers do not take turns with them."""
    promoted = dtype in ("fp8_e4m3", "fp8_e5m2") and accumulator == "fp32"
    return not (promoted and choice.get("schedule") == "pingpong")


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_layouts_ragged_sizes_and_alignments(formats: Formats, checks: FamilyChecks) -> None:
    problems = [*ragged(formats), *every_alignment(formats), *misaligned_bases(formats)]
    chosen = list(cases(checks, problems, each=3))
    assert len(chosen) == len(problems), "rows of any alignment can be copied"
    checks.check(chosen)


@pytest.mark.parametrize("formats", [one for one in MAIN if one.dtype != "tf32"], ids=with_label)
def test_operands_that_threads_copy(formats: Formats, checks: FamilyChecks) -> None:
    """Rows at multiples of 4 and 8 bytes without a copy before: one operand, or both; ragged, batches, slices of k."""
    layouts = LAYOUTS if DTYPES[formats.dtype].bytes == 2 else ("nt",)
    aligns = [(4, 8, 16), (8, 4, 2), (16, 8, 4), (8, 16, 16)]
    problems = [aligned(formats, layout, of, 272, 400, 1040) for layout in layouts for of in aligns]
    problems += [formats.problem(260, 196, 308, layout, batch=3) for layout in layouts]
    problems += [formats.problem(68, 1028, 4, layout, beta=1.0) for layout in layouts]
    fed = {"pack_a": 0, "pack_b": 0}
    checks.check(cases(checks, problems, 3, fed))
    choices: list[dict[str, Value]] = [{"split_k": 2}, {"schedule": "pingpong"}]
    for choice in choices:
        chosen = list(cases(checks, problems[:4], 2, {**fed, **choice}))
        assert bool(chosen) == is_offered(choice, formats.dtype, formats.accumulator), choice
        checks.check(chosen)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8_e4m3"])
def test_rows_of_c_that_begin_anywhere(dtype: str, checks: FamilyChecks) -> None:
    """Tiles of every width, as a whole and cut off within the first windows and the last, behind every shift."""
    out = "" if dtype != "fp8_e4m3" else "bf16"
    problems = [Problem(193, n, 64, dtype, "nt", ldc=n + more, out_dtype=out) for n, more in ODD_WIDTHS]
    checks.check(cases(checks, problems, 8))


def in_classes(dtype: str, classes: int) -> list[Problem]:
    """Rows of B in so many classes: dense and with gaps, which hold NaN; bases off multiples of 16 bytes."""
    odd = 8 // classes  # elements by which rows miss multiples of 16 bytes
    sizes = [
        (193, 512, 1040, 0.0),
        (64, 248, 256, 1.0),
        (130, 1000, 531, 0.0),
        (257, 240, 67, 3.0),
        (33, 72, classes, 1.0),
    ]
    problems = []
    for number, (m, n, k, beta) in enumerate(sizes):
        wide = n + odd
        dense = Problem(m, wide, k, dtype, "nn", ldc=wide + 2 * (number % 2), beta=beta)
        gaps = Problem(m, n, k, dtype, "nn", lda=k + number, ldb=wide + 8 * (number % 4 // 2), ldc=n + 3, beta=beta)
        base = Problem(m, wide, k, dtype, "nn", lda=k + 8 - k % 8, beta=beta, alpha=2.0, base_alignment=2 * odd)
        problems += [dense, gaps, base]
    return problems


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rows_of_b_in_classes(dtype: str, classes: int, checks: FamilyChecks) -> None:
    """B that TMA reads where rows begin anywhere: ragged, NaN before rows, beta, bases, fewer k than a step."""
    chosen = list(cases(checks, in_classes(dtype, classes), 2, {"classes_b": 1}))
    assert len(chosen) == len(in_classes(dtype, classes))
    checks.check(chosen)


@pytest.mark.parametrize(
    "choice",
    [
        {"cluster_m": 2},
        {"cluster_n": 2},
        {"schedule": "pingpong"},
        {"consumers": 3},
        {"min_blocks": 2},
        {"tile_k_bytes": 256},
    ],
    ids=str,
)
def test_schedules_of_rows_in_classes(choice: dict[str, Value], checks: FamilyChecks) -> None:
    """Several tiles for each block, whole ones and tiles that lie outside for the sake of the cluster; few rows."""
    sizes = [(2113, 3332, 264), (700, 5124, 1024), (300, 1028, 2048), (1001, 2058, 500), (515, 1998, 1030)]
    problems = [Problem(m, n, k, "bf16", "nn") for m, n, k in sizes]
    checks.check(cases(checks, problems, 2, {"classes_b": 1, **choice}))


def shifted(dtype: str, classes: int) -> list[Problem]:
    """Rows of A in so many classes: dense and with gaps, which hold NaN; either layout of B; B and C aligned or not;
    bases off multiples of 16 bytes; fewer k than a step; one row of the last strip."""
    size = DTYPES[dtype].bytes
    odd = 16 // size // classes
    sizes = [
        (193, 512, 1040, 0.0),
        (129, 248, 256, 1.0),
        (130, 1000, 536, 0.0),
        (257, 136, 64, 3.0),
        (100, 259, 8, 1.0),
        (391, 387, 1024, 0.0),
    ]
    problems = []
    for number, (m, n, k, beta) in enumerate(sizes):
        layout, more = ("nn", "nt")[number % 2], 8 * (number % 3)
        dense = Problem(m, n, k + odd, dtype, layout, beta=beta)
        gaps = Problem(m, n, k - odd, dtype, layout, lda=k + odd + more, ldc=n + number, beta=beta)
        base = Problem(m, n, k + odd, dtype, layout, beta=beta, alpha=2.0, base_alignment=size * odd)
        problems += [dense, gaps, base]
    return problems


@pytest.mark.parametrize(
    ("dtype", "classes"),
    [*((dtype, classes) for dtype in ("fp16", "bf16") for classes in (2, 4, 8)), ("tf32", 2), ("tf32", 4)],
)
def test_rows_of_a_that_are_shifted_in_registers(dtype: str, classes: int, checks: FamilyChecks) -> None:
    problems = shifted(dtype, classes)
    chosen = list(cases(checks, problems, 3, {"shift_a": 1}))
    assert len(chosen) == len(problems)
    checks.check(chosen)


@pytest.mark.parametrize(
    "choice",
    [
        {"cluster_m": 2},
        {"schedule": "pingpong"},
        {"tile_k_bytes": 256},
        {"split_k": 3},
        {"split_k": 16},
    ],
    ids=str,
)
def test_schedules_of_shifted_rows(choice: dict[str, Value], checks: FamilyChecks) -> None:
    """Several tiles for each block, whole ones and tiles that lie outside for the sake of the cluster; slices."""
    sizes = [(2113, 3332, 267), (1024, 520, 4101), (300, 1029, 2050), (643, 2051, 1028), (1500, 1999, 4095)]
    problems = [Problem(m, n, k, "bf16", layout) for m, n, k in sizes for layout in ("nn", "nt")]
    problems += [Problem(m, n, k, "tf32", layout) for m, n, k in sizes[:3] for layout in ("nn", "nt")]
    chosen = list(cases(checks, problems, 2, {"shift_a": 1, **choice}))
    assert chosen
    checks.check(chosen)


def in_stretches(dtype: str) -> list[Problem]:
    """A dense, narrow B: every odd number of columns and some even ones, k of a few elements and of any remainder;
    few rows and many; A aligned, copied, and along m; beta; batches, which begin anywhere, as bases do."""
    problems = []
    for number, n in enumerate((*range(1, 64, 2), 2, 10, 18, 36, 50, 60)):
        m, k = (97, 1, 8457, 300)[number % 4], (0, 128, 448, 960)[number // 2 % 4] + (number * 27 + 5) % 64 + 1
        beta, layout = (0.0, 0.0, 1.0)[number % 3], ("nn", "tn")[number // 4 % 2]
        problems.append(Problem(m, n, k, dtype, layout, beta=beta))
        problems.append(
            Problem(m % 1000 + 1, n, k + 8, dtype, "nn", 3, stride_b=(k + 8) * n + number % 3, lda=k + 16 - k % 8)
        )
    problems += [Problem(130, n, k, dtype, "nn", base_alignment=2) for n, k in ((35, 640), (1, 1), (3, 65), (18, 133))]
    return problems


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_narrow_b_in_stretches(dtype: str, checks: FamilyChecks) -> None:
    problems = in_stretches(dtype)
    chosen = list(cases(checks, problems, 2, {"stretch_b": 1}))
    assert len(chosen) == len(problems)
    checks.check(chosen)


@pytest.mark.parametrize(
    "choice",
    [
        {"schedule": "pingpong"},
        {"tile_k_bytes": 256},
        {"rows_loaded": 96},
        {"min_blocks": 2},
        {"split_k": 3},
        {"split_k": 16},
        {"stream_k": 1},
    ],
    ids=str,
)
def test_schedules_of_stretches(choice: dict[str, Value], checks: FamilyChecks) -> None:
    """Several tiles for each block, slices, some of them without a step, and shared steps."""
    sizes = [
        (8457, 35, 2560),
        (30000, 47, 200),
        (5000, 10, 1031),
        (9000, 63, 13469),
        (129, 33, 4099),
        (20000, 17, 1024),
    ]
    problems = [Problem(m, n, k, "bf16", "nn") for m, n, k in sizes]
    problems += [Problem(m, n, k, "fp16", "nn", beta=1.0, out_dtype="fp32") for m, n, k in sizes[:2]]
    chosen = list(cases(checks, problems, 2, {"stretch_b": 1, **choice}))
    assert chosen
    checks.check(chosen)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32"])
def test_padded_rows_of_odd_length_are_read_as_they_lie(dtype: str, layout: str, checks: FamilyChecks) -> None:
    """TMA asks where rows begin, not where they end: nothing is copied, and the padding, which is NaN, is not read."""
    if dtype == "tf32" and layout != "nt":
        pytest.skip("tf32 that lies along m or n is turned")
    sizes = [(193, 519, 1037, 1), (129, 251, 63, 1), (301, 1001, 515, 2)]
    problems = [Problem(m, n, k, dtype, layout, batch, lda=1208, ldb=1208) for m, n, k, batch in sizes]
    chosen = list(cases(checks, problems, 3, {"pack_a": 1, "pack_b": 1, "classes_b": 0}))
    assert len(chosen) == len(problems)
    for problem, configs in chosen:
        for config in configs:
            launches, _ = resolve(SPACE, config, {**checks.device.names(), **problem.names()})
            assert not [one.kernel for one in launches if "copy" in one.kernel]
    checks.check(chosen)


@pytest.mark.parametrize("formats", OTHERS, ids=with_label)
def test_other_formats_of_c(formats: Formats, checks: FamilyChecks) -> None:
    checks.check(cases(checks, [formats.problem(130, 259, 67, "nt"), *every_alignment(formats, ("nn", "tn"))], each=1))


WON: list[dict[str, Value]] = [
    {"tile_n": 128, "stages": 6, "schedule": "pingpong"}, {"tile_n": 192, "stages": 4, "schedule": "pingpong"},
    {"tile_n": 256, "stages": 4, "cluster_m": 2}, {"tile_m": 192, "stages": 4, "schedule": "pingpong"},
    {"tile_m": 64, "tile_n": 256, "stages": 4, "schedule": "pingpong"}, {"tile_n": 128, "stages": 6},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_has_won_does_not_spill_here(layout: str, checks: FamilyChecks) -> None:
    """Compilers of other versions have other registers to spare, and a kernel that spills is never launched."""
    problems = [Problem(4096, 4096, 4096, dtype, layout) for dtype in ("bf16", "fp16")]
    problems += [Problem(4093, 4099, 4091, "bf16", layout)]
    packed: dict[str, Value] = {"pack_a": 1, "pack_b": 1}
    for problem in problems:
        odd = packed if problem.m % 8 else {}
        configs = [SPACE.config({**SPACE.default, **choice, **odd}) for choice in WON]
        jobs = jobs_of(SPACE, (problem, configs), checks.device)
        binaries = compiled(checks.pool, jobs)
        spilled = {
            config.label: binaries[job.digest].spill_bytes["kt_gemm"] for config, job in zip(configs, jobs, strict=True)
        }
        assert not any(spilled.values()), spilled


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_scalars_and_empty_sums(formats: Formats, checks: FamilyChecks) -> None:
    """alpha and beta scale as they should, and with k = 0 the result is beta * C."""
    empty = formats.problem(70, 66, 0, "nt", lda=16, ldb=16, alpha=2.0, beta=3.0)
    checks.check(cases(checks, [*every_scalar(formats), empty], each=2))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_slices_of_k(formats: Formats, checks: FamilyChecks) -> None:
    """Split-K with whole slices, ragged ones, and slices without work."""
    problems = [formats.problem(33, 65, 1031, "nn", beta=1.0), formats.problem(264, 136, 4096, "nt")]
    sliced = [case for split in (2, 3, 5, 8, 24) for case in cases(checks, problems, 2, {"split_k": split})]
    assert sliced, "some slices are worth it"
    checks.check(sliced)


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_steps_shared_among_blocks(formats: Formats, checks: FamilyChecks) -> None:
    """Stream-K: fewer tiles than blocks, a little more than one round, and several rounds; batches; odd rows of C."""
    problems = [
        formats.problem(512, 640, 2048, "nt"), formats.problem(2051, 2309, 528, "nn"),
        formats.problem(3001, 4099, 211, "tt", beta=1.0), formats.problem(640, 520, 1040, "tn", batch=3),
    ]  # fmt: skip
    shared = list(cases(checks, problems, 4, {"stream_k": 1}))
    assert len(shared) == len(problems)
    checks.check(shared)


@pytest.mark.parametrize(
    "choice",
    [{"cluster_m": 2}, {"cluster_n": 2}, {"schedule": "pingpong"}, {"consumers": 3}, {"min_blocks": 2}],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
def test_clusters_and_schedules(dtype: str, choice: dict[str, Value], checks: FamilyChecks) -> None:
    """Several tiles for each block, whole ones and tiles that lie outside for the sake of the cluster."""
    sizes = [(4096, 2048, 512), (2113, 3333, 264), (129, 257, 1024)]
    accumulator = "fp32" if is_offered(choice, dtype, "fp32") else "fp32_fast"
    problems = [
        Problem(m, n, k, dtype, layout, accumulator=accumulator)
        for (m, n, k), layout in zip(sizes, LAYOUTS[1:], strict=True)
    ]
    chosen = list(cases(checks, problems, 6, choice))
    assert len(chosen) == len(problems)
    checks.check(chosen)


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_few_rows(formats: Formats, checks: FamilyChecks) -> None:
    """Rows of A that are not there are not loaded: the products of what wgmma takes for them are written nowhere."""
    problems = [
        formats.problem(m, n, k, layout, batch=batch, beta=beta)
        for m, n, k, layout, batch, beta in (
            (1, 300, 520, "nt", 1, 0.0), (13, 272, 1040, "nn", 1, 1.0), (16, 512, 2064, "nt", 3, 0.0),
            (17, 208, 4096, "nt", 1, 0.0), (29, 515, 261, "nn", 2, 3.0), (32, 1024, 2048, "nn", 1, 0.0),
        )
    ]  # fmt: skip
    choices: list[dict[str, Value]] = [
        {}, {"schedule": "pingpong"}, {"cluster_n": 2}, {"tile_k_bytes": 256}, {"stages": 8}, {"split_k": 3},
    ]  # fmt: skip
    for choice in choices:
        few = [case for rows in (16, 32) for case in cases(checks, problems, 2, {**choice, "rows_loaded": rows})]
        assert bool(few) == is_offered(choice, formats.dtype, formats.accumulator), choice
        checks.check(few)


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_tiles_of_fewer_rows_than_are_multiplied(formats: Formats, checks: FamilyChecks) -> None:
    """Rows behind a tile's last one are the next tile's, and written by that alone, in every way that C is written."""
    layouts = ("nn", "nt") if DTYPES[formats.dtype].bytes == 2 else LAYOUTS
    problems = [
        formats.problem(m, n, k, layouts[number % len(layouts)], batch=batch, beta=beta)
        for number, (m, n, k, batch, beta) in enumerate(
            (
                (8457, 35, 264, 1, 0.0), (8480, 48, 520, 1, 0.0), (2901, 64, 136, 3, 0.0), (8961, 48, 77, 1, 3.0),
                (2833, 41, 1040, 3, 1.0), (9000, 33, 72, 1, 1.0), (8449, 56, 1, 1, 0.0), (10560, 64, 261, 1, 0.0),
            )
        )
    ]  # fmt: skip
    choices: list[dict[str, Value]] = [{}, {"consumers": 1}, {"cluster_m": 2}]
    for choice in choices:
        found = cases(checks, problems, 2, {**choice, "rows_loaded": 96})
        assert bool(found) == is_offered(choice, formats.dtype, formats.accumulator), choice
        checks.check(found)


@pytest.mark.parametrize("width", [24, 56])
@pytest.mark.parametrize("formats", [one for one in MAIN if one.dtype != "int8"], ids=with_label)
def test_odd_multiples_of_eight_columns(formats: Formats, width: int, checks: FamilyChecks) -> None:
    """Rows of C end within what is staged of them: whole tiles, and tiles that the edge of C cuts at any column."""
    whole = formats.problem(64, 7 * width, 16384, "nt")
    asked: list[tuple[Problem, dict[str, Value]]] = [
        (whole, {"stream_k": 1}),
        (whole, {"split_k": 16}),
        (formats.problem(61, 3 * width + 16, 528, "nt", batch=3), {"stages": 8}),
        (formats.problem(64, 2 * width + 5, 1040, "nt", ldc=2 * width + 16), {"min_blocks": 2}),
        (formats.problem(13, 5 * width - 3, 300, "nt", ldc=5 * width + 5, beta=3.0), {"tile_k_bytes": 256}),
    ]
    chosen = [case for one, choice in asked for case in cases(checks, [one], 1, {"tile_n": width, **choice})]
    assert len(chosen) == len(asked), "each is valid"
    checks.check(chosen)


REGISTERS: list[tuple[str, dict[str, Value]]] = [
    ("tt", {"pack_a": 0}), ("nn", {"pack_b": 0}),
    ("tn", {"pack_a": 0, "pack_b": 1}), ("tn", {"pack_a": 1, "pack_b": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "packed"), REGISTERS, ids=str)
def test_rows_from_registers(layout: str, packed: dict[str, Value], checks: FamilyChecks) -> None:
    """tf32 operands that lie along mn, of either role: every schedule, ragged edges, rows of C of any alignment."""

    def problem(m: int, n: int, k: int, beyond: int, **more: Any) -> Problem:
        """As ragged as rows of whole 16 bytes allow; rows of C have `beyond` elements more."""
        m, n = m - 3 * (layout[0] == "n"), n - 3 * (layout[1] == "t")
        k = k - 3 * (layout == "tn")
        lda, ldb = {"n": k, "t": m}[layout[0]] + 4, {"n": n, "t": k}[layout[1]] + 4
        return Problem(m, n, k, "tf32", layout, lda=lda, ldb=ldb, ldc=n + beyond, **more)

    problems = [
        problem(512, 768, 384, 4), problem(304, 336, 204, 2, beta=1.0), problem(132, 260, 1024, 1),
        problem(36, 68, 32, 3, alpha=2.0, beta=-1.0), problem(72, 100, 4, 0),
    ]  # fmt: skip
    choices: list[dict[str, Value]] = [
        {}, {"schedule": "pingpong"}, {"consumers": 3}, {"min_blocks": 2}, {"cluster_m": 2}, {"cluster_n": 2},
        {"tile_k_bytes": 256}, {"consumers": 1},
    ]  # fmt: skip
    for choice in choices:
        chosen = list(cases(checks, problems, 2, {**packed, **choice}))
        assert chosen, f"{choice} is valid for some"
        checks.check(chosen)


@pytest.mark.parametrize(("layout", "packed"), REGISTERS, ids=str)
def test_rows_from_registers_in_slices_of_k(layout: str, packed: dict[str, Value], checks: FamilyChecks) -> None:
    """Split-K with few slices and many, some of them without work; ragged edges, odd rows of C, beta, batches."""
    problems = [
        Problem(260, 132, 4096, "tf32", layout), Problem(68, 196, 1028, "tf32", layout, ldc=199, alpha=2.0, beta=-1.0),
        Problem(132, 68, 516, "tf32", layout, batch=3),
    ]  # fmt: skip
    choices: list[dict[str, Value]] = [{}, {"schedule": "pingpong"}, {"consumers": 1}, {"tile_k_bytes": 256}]
    for split in (2, 5, 32):
        for choice in choices:
            chosen = list(cases(checks, problems, 2, {**packed, **choice, "split_k": split}))
            assert chosen, f"{choice} with {split} slices is valid for some"
            checks.check(chosen)


@pytest.mark.parametrize(("layout", "packed"), REGISTERS, ids=str)
def test_rows_from_registers_of_many_tiles(layout: str, packed: dict[str, Value], checks: FamilyChecks) -> None:
    """Several tiles for each block, steps shared among blocks, batches."""
    problems = [
        Problem(2052, 2308, 528, "tf32", layout), Problem(3004, 4100, 212, "tf32", layout, ldc=4101, beta=1.0),
        Problem(640, 520, 1040, "tf32", layout, batch=3),
    ]  # fmt: skip
    choices: list[dict[str, Value]] = [{"stream_k": 1}, {"stream_k": 0}, {"schedule": "pingpong"}]
    for choice in choices:
        checks.check(cases(checks, problems, 4, {**packed, **choice}))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_batches(formats: Formats, checks: FamilyChecks) -> None:
    """Batches that follow each other, with gaps, and in A with parts in common."""
    problems = [
        formats.problem(70, 136, 96, "nt", batch=5),
        formats.problem(33, 48, 80, "tn", batch=3, stride_a=33 * 80 + 16, stride_b=80 * 48 + 5, stride_c=33 * 48 + 7),
        formats.problem(32, 48, 80, "nt", batch=3, stride_a=80, beta=1.0),
    ]
    checks.check(cases(checks, problems, each=2))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_very_long_sums(formats: Formats, checks: FamilyChecks) -> None:
    checks.check(cases(checks, very_long_sums(formats), each=1))


@pytest.mark.parametrize("choice", [{"tile_k_bytes": 128}, {"tile_k_bytes": 256}, {"split_k": 2}], ids=str)
def test_promoted_sums_are_more_exact_than_fast_ones(choice: dict[str, Value], checks: FamilyChecks) -> None:
    """Positive numbers: a sum of 14 bits no longer grows once what is added is smaller than its last bit."""
    import numpy as np

    m, n, k = 128, 128, 65536
    random = np.random.default_rng(7)
    a, b = (random.integers(0x30, 0x40, (rows, k), np.uint8) for rows in (m, n))  # e4m3: 0.5 to 1.875
    left, right = (np.ldexp(1 + values % 8 / 8, values.astype(int) // 8 - 7) for values in (a, b))
    true = left @ right.T
    errors = {}
    for accumulator in ("fp32", "fp32_fast"):
        problem = Problem(m, n, k, "fp8_e4m3", "nt", accumulator=accumulator, out_dtype="fp32")
        (config,) = Covering(SPACE, checks.device).choose(problem, 1, choice)
        errors[accumulator] = float(np.abs(product(checks, problem, config, a, b) / true - 1).max())
    assert errors["fp32"] < 0.01
    assert errors["fp32_fast"] > 4 * errors["fp32"]


def product(checks: FamilyChecks, problem: Problem, config: Any, a: Any, b: Any) -> Any:
    """C as `config` computes it of these operands, given as bytes."""
    import numpy as np

    from kt.tuner.cuda import Gpu, runtime
    from kt.tuner.loaded_candidate import LoadedCandidate

    gpu = Gpu(0)
    (job,) = jobs_of(SPACE, (problem, [config]), checks.device)
    candidate = candidate_of(SPACE, config, problem, checks.device, compiled(checks.pool, [job])[job.digest])
    memory = {name: gpu.allocate(max(256, problem.footprint(name))) for name in "abc"}
    memory["workspace"] = gpu.allocate(max(256, candidate.workspace_bytes))
    for name, values in (("a", a), ("b", b)):
        runtime.memcpy(memory[name].address, values.ctypes.data, values.nbytes, 1)  # to the device
    runtime.deviceSynchronize()
    pointers = {name: block.address for name, block in memory.items()}
    with LoadedCandidate(candidate) as loaded:
        loaded.enqueue(loaded.bind(problem, gemm_arguments(problem, pointers, loaded.runtime)))
        gpu.synchronize()
    result = np.empty((problem.m, problem.n), np.float32)
    runtime.memcpy(result.ctypes.data, memory["c"].address, result.nbytes, 2)  # to the host
    return result


@pytest.mark.parametrize(("m", "n", "k"), [(1_048_577, 16, 16), (16, 1_000_003, 16)])
def test_very_many_tiles(m: int, n: int, k: int, checks: FamilyChecks) -> None:
    """More than 65,535 tiles along either dimension."""
    checks.check(cases(checks, [Problem(m, n, k, dtype) for dtype in SPACE.dtypes[:2]], each=1))


def test_more_than_two_to_the_31_elements(checks: FamilyChecks) -> None:
    """Offsets are 64-bit: in C, in A and in B, elements lie beyond the 2**31st."""
    if checks.device.memory_bytes < 60 * 2**30:
        pytest.skip("needs 60 GiB of device memory")
    large_c = Problem(65536, 34000, 16, "bf16")
    large_a = Problem(40, 24, 8, "bf16", "nn", lda=60_000_008)
    large_b = Problem(24, 40, 8, "bf16", "nt", ldb=60_000_001)
    checks.check(cases(checks, [large_c, large_a, large_b], each=1))


@pytest.mark.parametrize(
    "choice",
    [{"cluster_m": 2, "stream_k": 1}, {"cluster_n": 2, "schedule": "pingpong"}, {"split_k": 3}, {"consumers": 3}],
    ids=str,
)
def test_a_thousand_launches_in_a_row_end(choice: dict[str, Value], checks: FamilyChecks) -> None:
    """Barriers, flags and clusters are left in order, whatever the launch before did."""
    problem = Problem(1031, 1544, 520, "bf16", "nt", ldc=1545)
    for config in Covering(SPACE, checks.device).choose(problem, 2, choice):
        run_often(checks, problem, config)


def run_often(checks: FamilyChecks, problem: Problem, config: Any) -> None:
    from kt.tuner.cuda import Gpu, cupy
    from kt.tuner.loaded_candidate import LoadedCandidate

    gpu = Gpu(0)
    (job,) = jobs_of(SPACE, (problem, [config]), checks.device)
    candidate = candidate_of(SPACE, config, problem, checks.device, compiled(checks.pool, [job])[job.digest])
    memory = {name: gpu.allocate(max(256, problem.footprint(name))) for name in "abc"}
    memory["workspace"] = gpu.allocate(max(256, candidate.workspace_bytes))
    for block in memory.values():
        gpu.clear(block.address, block.size)
    pointers = {name: block.address for name, block in memory.items()}
    with LoadedCandidate(candidate) as loaded:
        bound = loaded.bind(problem, gemm_arguments(problem, pointers, loaded.runtime))
        done = cupy.cuda.Event()
        for _ in range(LAUNCHES):
            loaded.enqueue(bound)
        done.record(gpu.stream)
        gpu.synchronize()
        assert done.done
