"""The mma family computes GEMM: every format, layout, alignment, ragged size, scalar and schedule, checked in full.

`FamilyChecks` says what verified in full means, `Covering` which configurations are taken: a few for each problem, so
that over the problems of a format the pairs of choices meet, and the default for every fourth.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from kt.devices.device import Device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.space import Value
from kt.tuner.compile_pool import CompilePool
from support.covering import Covering
from support.family_checks import Case, FamilyChecks
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
from support.raw_launch import launched

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SPACE = builtin("mma")
FORMATS = formats_of(SPACE.dtypes)
MAIN = main_formats(FORMATS)
OTHERS = tuple(formats for formats in FORMATS if formats not in MAIN)


@pytest.fixture(scope="module")
def checks(device: Device, pool: CompilePool) -> FamilyChecks:
    if device.compute_capability < SPACE.min_compute_capability:
        pytest.skip(f"{device.name} has compute capability {device.compute_capability}")
    return FamilyChecks(SPACE, device, pool)


def cases(
    checks: FamilyChecks, problems: Iterable[Problem], each: int = 2, fixed: Mapping[str, Value] | None = None
) -> Iterator[Case]:
    """Each problem with `each` configurations, some also with the default unless some choices are `fixed`."""
    covering = Covering(SPACE, checks.device)
    for number, problem in enumerate(problems):
        configs = covering.choose(problem, each, fixed)
        if not fixed and number % 4 == 0:
            configs = list(dict.fromkeys([SPACE.default_config, *configs]))
        yield problem, configs


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_layouts_ragged_sizes_and_alignments(formats: Formats, checks: FamilyChecks) -> None:
    checks.need(formats)
    problems = [*ragged(formats), *every_alignment(formats), *misaligned_bases(formats)]
    checks.check(cases(checks, problems))


@pytest.mark.parametrize("formats", OTHERS, ids=with_label)
def test_other_formats_of_c(formats: Formats, checks: FamilyChecks) -> None:
    checks.need(formats)
    problems = [formats.problem(130, 259, 67, "nt"), *every_alignment(formats, ("nn", "tn"))]
    checks.check(cases(checks, problems, each=1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_scalars_and_empty_sums(formats: Formats, checks: FamilyChecks) -> None:
    """alpha and beta scale as they should, and with k = 0 the result is beta * C."""
    checks.need(formats)
    checks.check(cases(checks, every_scalar(formats), each=1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_slices_of_k(formats: Formats, checks: FamilyChecks) -> None:
    """Split-K with whole slices, ragged ones, and more slices than there is work for."""
    checks.need(formats)
    problems = [formats.problem(33, 65, 1031, "nn", beta=1.0), aligned(formats, "nt", (16, 16, 16), 64, 64, 4096)]
    sliced = [case for split in (2, 3, 8, 48) for case in cases(checks, problems, 1, {"split_k": split})]
    checks.check([case for case in sliced if case[1]])


@pytest.mark.parametrize("choice", ["stream_k", "pack_a", "pack_b"])
@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_streamed_and_packed(formats: Formats, choice: str, checks: FamilyChecks) -> None:
    """More tiles than blocks that fit at once, whole and ragged, so that stream-K parks and collects."""
    checks.need(formats)
    if choice not in {**SPACE.parameters, **SPACE.runtime}:
        pytest.skip(f"the family has no {choice}")
    problems = [
        formats.problem(m, n, k, layout)
        for layout, (m, n, k) in zip(
            LAYOUTS, [(2048, 2304, 272), (2051, 2309, 131), (1031, 4099, 211), (3001, 1033, 96)], strict=True
        )
    ]
    chosen = [case for case in cases(checks, problems, 2, {choice: 1}) if case[1]]
    assert chosen, "some shape is worth it"
    checks.check(chosen)


@pytest.mark.parametrize("choices", [{}, {"split_k": 3}], ids=["tiles", "slices"])
@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_tiles_copied_by_tma(formats: Formats, choices: Mapping[str, Value], checks: FamilyChecks) -> None:
    """Rows of whole units of 16 bytes; ragged tiles and steps of k, sums shorter than the ring, batches."""
    if checks.device.compute_capability < (9, 0):
        pytest.skip(f"{checks.device.name} has no TMA")
    sizes = [(528, 544, 272, 1), (144, 80, 1040, 3), (16, 80, 48, 1), (16, 16, 16, 2), (2064, 1040, 96, 1)]
    problems = [formats.problem(m, n, k, layout, batch=batch) for layout in LAYOUTS for m, n, k, batch in sizes]
    problems += [formats.problem(515, 257, 1040, "nt"), formats.problem(1, 3, 4096, "nt", batch=2)]
    chosen = [case for case in cases(checks, problems, 2, {**choices, "tma": 1}) if case[1]]
    assert bool(chosen) == (formats.dtype != "fp64"), "rows along k are for every format that lies in words"
    checks.check(chosen)


def doubles(sizes: Sequence[tuple[int, int, int]], batches: Sequence[int]) -> list[Problem]:
    """A problem of each layout; C is read in two of them."""
    return [
        Problem(m, n, k, "fp64", layout, batch=batch, beta=beta)
        for layout, (m, n, k), batch, beta in zip(LAYOUTS, sizes, batches, (0.0, 1.0, 0.5, 0.0), strict=True)
    ]


@pytest.mark.parametrize("choices", [{}, {"split_k": 3}, {"stream_k": 1}], ids=["tiles", "slices", "streams"])
def test_doubles_written_directly(choices: Mapping[str, Value], checks: FamilyChecks) -> None:
    """Ragged tiles, batches, C read and not: what leaves registers goes where it belongs, and nowhere else."""
    if "direct" not in SPACE.parameters:
        pytest.skip("the family has no direct")
    problems = doubles([(1531, 1514, 272), (2051, 2310, 131), (1031, 1098, 64), (1001, 1034, 96)], (1, 1, 3, 2))
    chosen = [case for case in cases(checks, problems, 2, {**choices, "direct": 1}) if case[1]]
    assert chosen, "doubles of even rows"
    checks.check(chosen)


def test_columns_that_stay(checks: FamilyChecks) -> None:
    """Short k: shares that end in the middle of a column, ragged tiles and steps, many columns and batches a block."""
    if "hold_b" not in SPACE.parameters:
        pytest.skip("the family has no hold_b")
    problems = doubles([(5003, 1538, 64), (2051, 2310, 115), (331, 1098, 17), (4099, 1034, 1)], (1, 1, 7, 2))
    chosen = [case for case in cases(checks, problems, 4, {"direct": 1, "hold_b": 1}) if case[1]]
    assert len(chosen) == len(problems), "k is short, and rows of C are even"
    checks.check(chosen)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tf32_is_rounded_to_the_nearest(layout: str, checks: FamilyChecks) -> None:
    """Multiplied by the identity, an operand comes out as tensor cores have got it; ties as `round_to_tf32` says."""
    if "tf32" not in SPACE.dtypes:
        pytest.skip("the family has no tf32")
    problem = Problem(48, 48, 48, "tf32", layout)
    bits = np.random.default_rng(7).integers(0, 2**32, (48, 48), np.uint32)
    random = (bits & np.uint32(0xBFFFFFFF)) | np.uint32(0x20000000)  # magnitudes from 2**-63 to 2
    random[:, ::3] = (random[:, ::3] & np.uint32(0xFFFFE000)) | np.uint32(0x1000)  # halfway between two numbers
    values, identity = random.view(np.float32), np.eye(48, dtype=np.float32)
    to_even = checks.device.compute_capability >= (9, 0)  # one instruction there; else ties go away from zero
    half = np.uint32(0xFFF) + (random >> np.uint32(13) & np.uint32(1)) if to_even else np.uint32(0x1000)
    nearest = ((random + half) & np.uint32(0xFFFFE000)).view(np.float32)
    covering = Covering(SPACE, checks.device)
    for left, right in ((values, identity), (identity, values)):
        stored = {"a": left if layout[0] == "n" else left.T, "b": right if layout[1] == "n" else right.T, "c": values}
        memory = {name: np.ascontiguousarray(matrix).view(np.uint8).ravel() for name, matrix in stored.items()}
        by_tma = covering.choose(problem, 1, {"tma": 1})
        for candidate in checks.candidates(problem, [SPACE.default_config, *by_tma, *covering.choose(problem, 2)]):
            result = (
                launched(checks.reference.gpu, problem, candidate, memory, (1.0, 0.0)).view(np.float32).reshape(48, 48)
            )
            np.testing.assert_array_equal(result, nearest, candidate.name)


def test_few_rows_of_bytes(checks: FamilyChecks) -> None:
    """int8 with any number of rows, and with n and k that are no multiples of 8."""
    if "int8" not in SPACE.dtypes:
        pytest.skip("the family has no int8")
    sizes = [(m, 8 * m + 3, 64 + 7 * m) for m in range(1, 17)]
    problems = [Problem(m, n, k, "int8", LAYOUTS[index % 4]) for index, (m, n, k) in enumerate(sizes)]
    checks.check(cases(checks, problems, each=1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_batches(formats: Formats, checks: FamilyChecks) -> None:
    """Batches that follow each other, with gaps, and in A with parts in common."""
    checks.need(formats)
    problems = [
        formats.problem(70, 130, 96, "nt", batch=5),
        formats.problem(33, 48, 80, "tn", batch=3, stride_a=33 * 80 + 16, stride_b=80 * 48 + 5, stride_c=33 * 48 + 7),
        formats.problem(33, 48, 80, "nn", batch=3, stride_a=80, beta=1.0),
    ]
    checks.check(cases(checks, problems, each=1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_very_long_sums(formats: Formats, checks: FamilyChecks) -> None:
    checks.need(formats)
    checks.check(cases(checks, very_long_sums(formats), each=1))


@pytest.mark.parametrize(("m", "n", "k"), [(1_048_577, 16, 16), (16, 1_000_003, 16)])
def test_very_many_tiles(m: int, n: int, k: int, checks: FamilyChecks) -> None:
    """More than 65,535 tiles along either dimension."""
    checks.check(cases(checks, [Problem(m, n, k, dtype) for dtype in SPACE.dtypes[:2]], each=1))


def test_more_than_two_to_the_31_elements(checks: FamilyChecks) -> None:
    """Offsets are 64-bit: in C, in A and in B, elements lie beyond the 2**31st."""
    if checks.device.memory_bytes < 60 * 2**30:
        pytest.skip("needs 60 GiB of device memory")
    large_c = Problem(65536, 34000, 9, "bf16")
    large_a = Problem(40, 24, 8, "bf16", "nn", lda=60_000_001)
    large_b = Problem(24, 40, 8, "bf16", "nt", ldb=60_000_008)
    checks.check(cases(checks, [large_c, large_a, large_b], each=1))
