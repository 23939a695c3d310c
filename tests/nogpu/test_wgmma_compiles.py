"""The wgmma family compiles for Hopper without serialised wgmma: every value of every parameter, format and layout."""

from dataclasses import replace
from pathlib import Path

import pytest

from kt.devices.catalog import catalog
from kt.devices.device import Device
from kt.export.forms import forms_of
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.space import Config
from kt.templates.render import render
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.toolchain import compile_job, toolchain
from support.covering import Covering
from support.family_compiles import builtin, compile_all, covering, device_of, job, valid
from support.problems import Formats, every_alignment, formats_of, main_formats, misaligned_bases, ragged

SPACE = builtin("wgmma")
ARCH = "sm_90a"
HOPPER = device_of(ARCH)
FORMATS = tuple(formats for formats in formats_of(SPACE.dtypes) if formats.accumulator != "fp16")
MAIN = main_formats(FORMATS)
LARGE = (4096, 4096, 4096)
FEW_SPILLS = 128  # bytes of each thread: the space cannot know them all, and what spills is pruned


def compiled(cases: list[tuple[Config, Problem]], folder: Path) -> dict[str, Binary]:
    binaries = compile_all([job(SPACE, config, problem, ARCH) for config, problem in cases], folder)
    names = [f"{problem.label}: {config.label}" for config, problem in cases]
    return dict(zip(names, binaries, strict=True))


def faults(binaries: dict[str, Binary], spills: int = 0) -> dict[str, str]:
    """Errors, warnings of serialised instructions and ignored register moves, and more than so many bytes spilled.

    Kernels that copy operands spill nothing.
    """
    found = {name: binary.error for name, binary in binaries.items() if binary.error}
    found |= {name: "; ".join(binary.warnings) for name, binary in binaries.items() if binary.warnings}
    for name, binary in binaries.items():
        if (spilled := sum(binary.spill_bytes.values())) > spills:
            found[name] = f"spills {spilled} bytes with {binary.registers} registers"
        copies = {kernel: spilled for kernel, spilled in binary.spill_bytes.items() if "_copy_" in kernel}
        if any(copies.values()):
            found[name] = f"copies spill: {copies}"
    return found


def with_label(formats: Formats) -> str:
    return formats.label


def test_every_value_of_every_parameter_compiles(tmp_path: Path) -> None:
    problem = MAIN[0].problem(*LARGE, "nn")
    cases = [(config, problem) for config in covering(valid(SPACE, problem, HOPPER))]
    assert faults(compiled(cases, tmp_path), FEW_SPILLS) == {}


def in_forms(config: Config, aligned: int) -> CompileJob:
    """One kernel for every layout, and for rows of C that are aligned so, or to 16 bytes."""
    narrow = replace(Problem(*LARGE, "bf16").signature, align_a=2, align_b=2, align_c=aligned)
    forms = forms_of(SPACE, config, narrow, ARCH)
    assert {form.layout for form in forms} == set(LAYOUTS)
    return compile_job(render(SPACE, config, forms[0], ARCH, (), forms), ARCH, toolchain())


def test_a_kernel_for_every_layout_compiles(tmp_path: Path) -> None:
    """Without spills, in no more registers than a multiprocessor gives, and far smaller than a kernel for each form."""
    shared: dict[str, int | str] = {"tile_n": 128, "stages": 5, "schedule": "pingpong", "pack_a": 1, "pack_b": 1}
    small: dict[str, int | str] = {"tile_m": 64, "tile_n": 32, "tile_k_bytes": 256, "stages": 8, "consumers": 1}
    configs = [SPACE.config({**SPACE.default, "pack_a": 1, "pack_b": 1, **one}) for one in (shared, small)]
    jobs = [in_forms(config, aligned) for config, aligned in ((configs[0], 2), (configs[1], 2), (configs[1], 16))]
    alone = job(SPACE, configs[0], Problem(1021, 1019, 1013, "bf16"), ARCH)
    binaries = compile_all([*jobs, alone], tmp_path)
    assert faults({str(number): binary for number, binary in enumerate(binaries)}) == {}
    assert binaries[0].registers["kt_gemm"] <= binaries[3].registers["kt_gemm"]
    assert Path(binaries[0].path).stat().st_size < 2.5 * Path(binaries[3].path).stat().st_size


def test_a_kernel_of_one_form_has_nothing_of_others() -> None:
    """What is measured is as it was without them."""
    problem = Problem(*LARGE, "bf16", "nt")
    text = render(SPACE, SPACE.default_config, problem.signature, ARCH).text
    assert "FormSpace" not in text
    assert "WgmmaShares" not in text


def test_every_format_and_layout_compiles(tmp_path: Path) -> None:
    """Each format in one layout, the main ones in two; all four layouts are among them."""
    sample = Covering(SPACE, HOPPER)
    cases = []
    for number, formats in enumerate(FORMATS):
        for layout in (LAYOUTS[number % 4], LAYOUTS[(number + 2) % 4])[: 2 if formats in MAIN else 1]:
            problem = formats.problem(512, 512, 512, layout)
            cases += [(config, problem) for config in sample.choose(problem, 1)]
    assert len(cases) == len(FORMATS) + len(MAIN)
    assert {problem.layout for _, problem in cases} == set(LAYOUTS)
    assert faults(compiled(cases, tmp_path), FEW_SPILLS) == {}


def test_few_rows_of_a_compile(tmp_path: Path) -> None:
    sample = Covering(SPACE, HOPPER)
    problems = [Problem(16, 512, 512, "bf16", "nt"), Problem(32, 512, 512, "int8", "nn")]
    cases = [
        (config, problem) for problem in problems for config in sample.choose(problem, 1, {"rows_loaded": problem.m})
    ]
    assert len(cases) == len(problems)
    assert faults(compiled(cases, tmp_path), FEW_SPILLS) == {}


def test_tiles_of_fewer_rows_than_are_multiplied_compile(tmp_path: Path) -> None:
    """For C that TMA writes and for windows and pairs; nothing spills."""
    sample = Covering(SPACE, HOPPER)
    problems = [
        Problem(8457, 35, 2560, "bf16", "nn"),
        Problem(8457, 48, 2560, "fp16", "nt"),
        Problem(8457, 35, 2560, "tf32", "nn"),
    ]
    cases = [(config, problem) for problem in problems for config in sample.choose(problem, 2, {"rows_loaded": 96})]
    assert len(cases) == 2 * len(problems)
    assert faults(compiled(cases, tmp_path)) == {}


def test_odd_multiples_of_eight_columns_compile(tmp_path: Path) -> None:
    """Tiles whose rows of C end within what is staged of them: in vectors, in windows, and of promoted sums."""
    sample = Covering(SPACE, HOPPER)
    problems = {
        24: Problem(64, 3072, 4096, "bf16", "nt"),
        56: Problem(64, 7168, 8192, "fp16", "nt", ldc=7169),
    }
    cases = [
        (config, problem)
        for width, problem in problems.items()
        for config in sample.choose(problem, 1, {"tile_n": width})
    ]
    assert len(cases) == len(problems)
    assert faults(compiled(cases, tmp_path)) == {}


def test_rows_of_b_in_classes_compile(tmp_path: Path) -> None:
    """Sums move between products without wgmma being serialised for it, and nothing spills."""
    sample = Covering(SPACE, HOPPER)
    problems = [Problem(512, 516, 512, "bf16", "nn"), Problem(512, 514, 512, "fp16", "nn")]  # two and four classes
    cases = [(config, problem) for problem in problems for config in sample.choose(problem, 1, {"classes_b": 1})]
    assert len(cases) == len(problems)
    assert faults(compiled(cases, tmp_path), FEW_SPILLS) == {}


def test_what_c_held_takes_no_registers_from_the_sums(tmp_path: Path) -> None:
    """Tiles that win under load do not spill, in fp16 no more than in bf16: what spills is pruned, and never timed."""
    pingpong: dict[str, int | str] = {"schedule": "pingpong", "consumers": 2}
    cases: list[tuple[Problem, dict[str, int | str]]] = [
        (Problem(2048, 8192, 4096, "fp16", "nt"), {"tile_n": 144, "stages": 5, "cluster_m": 2}),
        (Problem(7435, 3072, 1024, "fp16", "tn"), {"tile_n": 128, "stages": 6, "cluster_n": 2, "pack_a": 1}),
        (Problem(7435, 3072, 1024, "bf16", "tn"), {"tile_n": 128, "stages": 6, "cluster_n": 2, "pack_a": 1}),
    ]
    chosen = [(SPACE.config({**SPACE.default, **pingpong, **config}), problem) for problem, config in cases]
    assert faults(compiled(chosen, tmp_path)) == {}


def test_large_tiles_that_win_under_load_do_not_spill(tmp_path: Path) -> None:
    """Whatever NVRTC is installed: it decides what registers are left beside the sums."""
    pingpong: dict[str, int | str] = {"schedule": "pingpong"}
    tiles: list[dict[str, int | str]] = [
        {"tile_n": 144, "stages": 6, **pingpong},
        {"tile_n": 160, "stages": 5, "cluster_n": 2, **pingpong},
        {"tile_n": 176, "stages": 5, **pingpong},
        {"tile_n": 176, "stages": 5, "cluster_m": 2, **pingpong},
        {"tile_n": 192, "stages": 5, "cluster_n": 2, **pingpong},
        {"tile_m": 192, "tile_n": 112, "stages": 5, **pingpong},
        {"tile_m": 192, "tile_n": 128, "stages": 5, **pingpong},
        {"tile_n": 240, "stages": 4},
        {"tile_n": 320, "stages": 3},
        {"tile_m": 256, "tile_n": 144, "stages": 4, "cluster_m": 2},
        {"tile_m": 192, "tile_n": 192, "stages": 4, "consumers": 3},
    ]
    problem = Problem(2048, 4096, 8192, "bf16", "nt")
    cases = [(SPACE.config({**SPACE.default, **tile}), problem) for tile in tiles]
    assert faults(compiled(cases, tmp_path)) == {}


def test_shifted_rows_of_a_compile(tmp_path: Path) -> None:
    """They come from registers without wgmma being serialised for it; those that begin within a word spill nothing."""
    problems = [
        Problem(512, 520, 1028, "fp16", "nt"), Problem(512, 519, 1030, "bf16", "nn", ldc=520),
        Problem(512, 520, 1029, "tf32", "nt"), Problem(512, 519, 1030, "tf32", "nn"),
    ]  # fmt: skip
    sample = Covering(SPACE, HOPPER)
    cases = [(config, problem) for problem in problems for config in sample.choose(problem, 1, {"shift_a": 1})]
    odd = Problem(4093, 4099, 4091, "bf16", "nn")
    shifted: dict[str, int | str] = {"shift_a": 1, "pack_b": 1}
    wide: list[dict[str, int | str]] = [{"tile_n": 192, "stages": 4}, {"tile_n": 256, "stages": 4}]
    cases += [(SPACE.config({**SPACE.default, **shifted, **one}), odd) for one in wide]
    assert len(cases) == 6
    assert faults(compiled(cases, tmp_path)) == {}


def test_a_narrow_b_in_stretches_compiles(tmp_path: Path) -> None:
    """Dense rows at multiples of 2, 4 and 8 bytes, each width of a tile; what unpacks them spills nothing."""
    sample = Covering(SPACE, HOPPER)
    problems = [
        Problem(8457, 35, 2560, "bf16", "nn"), Problem(8456, 10, 1025, "fp16", "tn"),
        Problem(3000, 60, 2561, "bf16", "nn", out_dtype="fp32"), Problem(300, 20, 2560, "bf16", "nn", ldc=24),
    ]  # fmt: skip
    cases = [(config, problem) for problem in problems for config in sample.choose(problem, 2, {"stretch_b": 1})]
    assert len(cases) == 8
    assert faults(compiled(cases, tmp_path)) == {}


@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_every_problem_on_hopper_has_a_configuration(formats: Formats) -> None:
    """Whatever the alignment, k at least 1: copies of rows are aligned, and C may lie anywhere."""
    problems = [*ragged(formats), *every_alignment(formats), *misaligned_bases(formats), formats.problem(*LARGE, "tt")]
    assert [problem.label for problem in problems if not len(valid(SPACE, problem, HOPPER))] == []


@pytest.mark.parametrize("device", catalog().values(), ids=lambda device: device.key)
def test_the_family_is_for_hopper_alone(device: Device) -> None:
    """wgmma exists in sm_90a, and not in what came after it."""
    found = valid(SPACE, Problem(4096, 4096, 4096, "bf16", "nt"), device)
    assert (len(found) > 0) == (device.compute_capability == (9, 0))


def test_the_space_is_enumerated_in_no_time() -> None:
    """And a problem has no more kernels than sixteen compilers make in a minute."""
    for layout in LAYOUTS:
        found = valid(SPACE, Problem(*LARGE, "bf16", layout), HOPPER)
        assert len({found.config(row).parameters for row in range(len(found))}) < 2000


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("formats", MAIN, ids=with_label)
def test_all_layouts_and_alignments_compile(formats: Formats, layout: str, tmp_path: Path) -> None:
    """Configurations in which every pair of choices meets, a few for each problem."""
    sample = Covering(SPACE, HOPPER)
    problems = [*every_alignment(formats, [layout]), *ragged(formats, [layout]), formats.problem(*LARGE, layout)]
    cases = [(config, problem) for problem in problems for config in sample.choose(problem, 4)]
    assert faults(compiled(cases, tmp_path), FEW_SPILLS) == {}
