"""The skinny family compiles from Ampere on: every value of every parameter, format, layout and alignment."""

from pathlib import Path

import pytest

from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import violated
from kt.search_spaces.space import Config
from support.covering import Covering
from support.family_compiles import builtin, compile_all, covering, device_of, job, valid
from support.problems import Formats, aligned, formats_of, main_formats, with_label

SPACE = builtin("skinny")
FORMATS = tuple(formats for formats in formats_of(SPACE.dtypes) if formats.accumulator != "fp16")
MAIN = main_formats(FORMATS)
# What `make test` has time for; `make test-all` has the other formats as well.
SOME = [pytest.param(one, marks=[] if one.dtype in ("bf16", "int8", "fp32") else [pytest.mark.slow]) for one in MAIN]
SHAPES = ((1, 6144, 4096), (16, 28672, 4096), (32, 8192, 8192), (6144, 24, 512))
MOST_PRUNED = 0.1  # of a sample, where registers are scarce


def check(cases: list[tuple[Config, Problem]], arch: str, folder: Path) -> None:
    """All compile, and few spill."""
    binaries = compile_all([job(SPACE, config, problem, arch) for config, problem in cases], folder)
    assert {binary.error for binary in binaries} == {""}
    spilled = [
        f"{problem.label}: {config.label}: {binary.registers}"
        for (config, problem), binary in zip(cases, binaries, strict=True)
        if sum(binary.spill_bytes.values())
    ]
    assert len(spilled) <= max(1, MOST_PRUNED * len(cases)), spilled


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"])
def test_every_value_of_every_parameter_compiles(arch: str, tmp_path: Path) -> None:
    problems = [Problem(*shape, "bf16", LAYOUTS[index]) for index, shape in enumerate(SHAPES)]
    found = [(problem, valid(SPACE, problem, device_of(arch))) for problem in problems]
    check([(config, problem) for problem, one in found for config in covering(one)], arch, tmp_path)


@pytest.mark.parametrize("formats", SOME, ids=with_label)
def test_every_layout_and_alignment_compiles(formats: Formats, tmp_path: Path) -> None:
    sample = Covering(SPACE, device_of("sm_90a"))
    aligns = formats.alignments
    problems = [
        aligned(formats, layout, (aligns[0], aligns[-1], 16) if m < n else (aligns[-1], aligns[0], 16), m, n, 2064)
        for layout in LAYOUTS
        for m, n in ((16, 2064), (2064, 32))
    ]
    check([(config, problem) for problem in problems for config in sample.choose(problem, 1)], "sm_90a", tmp_path)


def test_the_default_serves_few_rows_of_every_format() -> None:
    for formats in MAIN:
        for layout in LAYOUTS:
            problem = formats.problem(8, 4096, 4096, layout)
            broken = violated(SPACE, SPACE.default_config, {**device_of("sm_90a").names(), **problem.names()})
            assert broken is None, f"{problem.label}: {broken.reason}"


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
@pytest.mark.parametrize("short", [1, 5, 16, 32])
def test_what_is_served_has_candidates_and_not_too_many(formats: Formats, short: int) -> None:
    """Any size of either side, layout and alignment: a search is short."""
    for layout in LAYOUTS:
        for m, n in ((short, 4097), (4097, short), (short, short)):
            for k in (0, 1, 67, 65536):
                found = len(valid(SPACE, formats.problem(m, n, k, layout), device_of("sm_90a")))
                assert 0 < found < 6000, (m, n, k, layout)
