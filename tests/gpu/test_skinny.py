"""The skinny family computes GEMM: every format, layout, alignment, short side and schedule, checked in full.

`FamilyChecks` says what verified in full means, `Covering` which configurations are taken.
"""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from kt.devices.device import Device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.space import Value
from kt.tuner.compile_pool import CompilePool
from support.covering import Covering
from support.family_checks import Case, FamilyChecks
from support.family_compiles import builtin
from support.problems import Formats, aligned, formats_of, main_formats, with_label

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SPACE = builtin("skinny")
FORMATS = tuple(formats for formats in formats_of(SPACE.dtypes) if formats.accumulator != "fp16")
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
    """Each problem with `each` configurations."""
    covering = Covering(SPACE, checks.device)
    for problem in problems:
        yield problem, covering.choose(problem, each, fixed)


def longest_short(formats: Formats) -> int:
    """Rows of the shorter side that the family serves."""
    return 32 if formats.dtype == "fp32" else 64


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_every_short_side(formats: Formats, checks: FamilyChecks) -> None:
    """1, 2, ... rows, or as many columns, of ragged sizes; layouts take turns. All of them in one format, else some."""
    checks.need(formats)
    problems = []
    for short in range(1, longest_short(formats) + 1, 1 if formats is MAIN[0] else 5):
        long, k = 131 + 37 * short, 40 + 29 * short % 301
        m, n = (short, long) if short // 4 % 2 else (long, short)
        problems.append(formats.problem(m, n, k, LAYOUTS[short % 4]))
    checks.check(cases(checks, problems, 1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_layouts_and_alignments(formats: Formats, checks: FamilyChecks) -> None:
    """Each layout with each alignment of each operand, whole tiles and ragged ones, either operand streamed."""
    checks.need(formats)
    problems = []
    for turn, layout in enumerate(LAYOUTS):
        for index, align in enumerate(formats.alignments):
            other = formats.alignments[(index + 1) % len(formats.alignments)]
            of_c = 16 if turn % 2 else formats.alignments[0]
            m, n = ((16, 272), (272, 32))[(turn + index) % 2]
            aligns = (align, other, of_c) if (turn + index) % 4 < 2 else (other, align, of_c)
            problems.append(aligned(formats, layout, aligns, m, n, 208 if index % 2 else 1040))
        problems.append(formats.problem(*((3, 1, 5), (1, 1, 1), (5, 700, 67), (701, 2, 130))[turn], layout))
    checks.check(cases(checks, problems, 1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_stretches(formats: Formats, checks: FamilyChecks) -> None:
    """Short k, rows at any alignment or lines across, C either way, more stretches than warps."""
    checks.need(formats)
    problems = [
        formats.problem(m, n, k, layout, beta=float(k % 2))
        for layout, (m, n, k) in zip(
            LAYOUTS * 2,
            [(40007, 16, 36), (30011, 7, 67), (16, 50000, 16), (5, 40003, 9),
             (16, 40000, 64), (9, 30001, 33), (40000, 16, 48), (20003, 30, 1)],
            strict=True,
        )
    ]  # fmt: skip
    checks.check(cases(checks, problems, 1, {"form": "stretch"}))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_clusters(formats: Formats, checks: FamilyChecks) -> None:
    """Blocks of a cluster share k, alone and with slices, whole ones and ragged ones."""
    checks.need(formats)
    if checks.device.compute_capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    problems = [formats.problem(8, 96, 5120, "nt"), formats.problem(333, 5, 9001, "tn", batch=2, beta=1.0)]
    for choice in ({"cluster_k": 2}, {"cluster_k": 8}, {"cluster_k": 8, "split_k": 4}):
        checks.check(cases(checks, problems, 1, choice))


@pytest.mark.parametrize("formats", OTHERS, ids=with_label)
def test_other_formats_of_c(formats: Formats, checks: FamilyChecks) -> None:
    checks.need(formats)
    problems = [formats.problem(13, 259, 67, "nt"), formats.problem(259, 16, 640, "nn")]
    checks.check(cases(checks, problems, 1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_scalars_empty_sums_and_batches(formats: Formats, checks: FamilyChecks) -> None:
    """alpha and beta, k = 0, batches that follow each other, with gaps, and in A with parts in common."""
    checks.need(formats)
    problems = [
        formats.problem(7, 66, k, layout, alpha=alpha, beta=beta)
        for layout, k, (alpha, beta) in zip(LAYOUTS, (0, 40, 0, 67), [(2, 0), (1, 1), (-1, 3), (1, 2)], strict=True)
    ]
    problems += [
        formats.problem(8, 130, 96, "nt", batch=5),
        formats.problem(33, 20, 80, "tn", batch=3, stride_a=33 * 80 + 16, stride_b=80 * 20 + 5, stride_c=33 * 20 + 7),
        formats.problem(16, 48, 80, "nn", batch=3, stride_a=80, beta=1.0),
    ]
    checks.check(cases(checks, problems, 1))


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_slices_of_k(formats: Formats, checks: FamilyChecks) -> None:
    """Split-K with whole slices, ragged ones, and more slices than there is work for."""
    checks.need(formats)
    problems = [formats.problem(13, 65, 9031, "nn", beta=1.0), aligned(formats, "nt", (16, 16, 16), 64, 16, 16384)]
    sliced = [case for split in (3, 8, 48) for case in cases(checks, problems, 1, {"split_k": split})]
    chosen = [case for case in sliced if case[1]]
    assert chosen, "some slices are valid"
    checks.check(chosen)


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_very_long_sums(formats: Formats, checks: FamilyChecks) -> None:
    checks.need(formats)
    problems = [formats.problem(16, 24, 524288, "nt"), formats.problem(9, 8, 300001, "tn")]
    checks.check(cases(checks, problems[MAIN.index(formats) % 2 :], 1))


def test_very_many_tiles_and_batches(checks: FamilyChecks) -> None:
    """More than 65,535 tiles along either side, and as many batches."""
    sizes = [(2_097_153, 16, 16, 1), (16, 2_000_003, 16, 1), (4, 24, 40, 65_536)]
    problems = [Problem(m, n, k, dtype, batch=batch) for dtype in ("fp32", "bf16") for m, n, k, batch in sizes]
    checks.check(cases(checks, problems, 1))


def test_more_than_two_to_the_31_elements(checks: FamilyChecks) -> None:
    """Offsets are 64-bit: in A and in B, elements lie beyond the 2**31st."""
    if checks.device.memory_bytes < 60 * 2**30:
        pytest.skip("needs 60 GiB of device memory")
    large_a = Problem(40, 24, 8, "bf16", "nn", lda=60_000_001)
    large_b = Problem(24, 40, 8, "bf16", "nt", ldb=60_000_008)
    checks.check(cases(checks, [large_a, large_b], 1))
