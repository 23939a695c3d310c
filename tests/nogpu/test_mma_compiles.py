"""The mma family compiles from Ampere on without spills: every value of every parameter, format, layout, alignment."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kt.devices.catalog import catalog
from kt.devices.device import Device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.loader import load_space
from kt.search_spaces.space import Config
from kt.templates.render import render
from kt.tuner.messages import Binary
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.ptxas_log import read_log
from kt.tuner.toolchain import toolchain
from support.covering import Covering
from support.family_compiles import builtin, compile_all, covering, device_of, job, valid
from support.problems import Formats, every_alignment, formats_of, main_formats, misaligned_bases, ragged

SPACE = builtin("mma")
FORMATS = formats_of(SPACE.dtypes)
MAIN = main_formats(FORMATS)
# What `make test` has time for; `make test-all` has the other formats as well.
SOME = [pytest.param(one, marks=[] if one.dtype in ("bf16", "int8", "fp64") else [pytest.mark.slow]) for one in MAIN]
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a")
LARGE = (4096, 4096, 4096)
MOST_PRUNED = 0.15  # of a sample of large tiles and unaligned rows, where registers are scarce
H200 = catalog()["h200"]
GPUS = [device for device in catalog().values() if device.compute_capability >= (8, 0)] + [device_of("sm_120a")]


def least_arch(formats: Formats, arch: str) -> str:
    """`arch`, or the oldest one that has instructions for the format."""
    return "sm_89" if formats.dtype.startswith("fp8") and arch in ("sm_80", "sm_86") else arch


def compiled(cases: list[tuple[Config, Problem]], arch: str, folder: Path) -> dict[str, Binary]:
    binaries = compile_all([job(SPACE, config, problem, arch) for config, problem in cases], folder)
    names = [f"{problem.label}: {config.label}" for config, problem in cases]
    return dict(zip(names, binaries, strict=True))


def faults(binaries: dict[str, Binary]) -> dict[str, str]:
    """Errors, and spills of any kernel, by what was compiled."""
    found = {name: binary.error for name, binary in binaries.items() if binary.error}
    for name, binary in binaries.items():
        if spilled := {kernel: size for kernel, size in binary.spill_bytes.items() if size}:
            found[name] = f"spills {spilled} with {binary.registers} registers"
    return found


def check_sample(binaries: dict[str, Binary]) -> None:
    """All compile, and a run leaves out few because they spill; the default never is one."""
    found = faults(binaries)
    assert [text for text in found.values() if not text.startswith("spills")] == []
    assert [name for name in found if name.endswith(SPACE.default_config.label)] == []
    assert len(found) <= MOST_PRUNED * len(binaries)


def every_value(formats: Formats, layout: str, arch: str) -> list[tuple[Config, Problem]]:
    problem = formats.problem(*LARGE, layout)
    return [(config, problem) for config in covering(valid(SPACE, problem, device_of(arch)))]


@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_every_value_of_every_parameter_compiles(arch: str, tmp_path: Path) -> None:
    assert faults(compiled(every_value(MAIN[0], "nn", arch), arch, tmp_path)) == {}


@pytest.mark.parametrize(
    ("arch", "layout", "k", "names"),
    [
        ("sm_90a", "nn", 64, ("min_blocks",)),
        *(
            pytest.param(*problem, ("warp_m", "warp_n", "min_blocks"), marks=pytest.mark.slow)
            for problem in (("sm_90a", "nn", 64), ("sm_80", "tn", 32), ("sm_86", "nt", 127), ("sm_89", "tt", 128))
        ),
    ],
)
def test_kernels_that_hold_columns_of_b_compile(
    arch: str, layout: str, k: int, names: tuple[str, ...], tmp_path: Path
) -> None:
    """Registers are enough beside where B lies; in `make test-all` for every tile of a warp that the space has."""
    held = replace(SPACE, parameters={**SPACE.parameters, "hold_b": (1,)})
    problem = Problem(4096, 4096, k, "fp64", layout)
    found = covering(valid(held, problem, device_of(arch)), names)
    assert faults(compiled([(config, problem) for config in found], arch, tmp_path)) == {}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_default_compiles_for_every_format_and_layout(arch: str, tmp_path: Path) -> None:
    """Formats take turns with layouts, others on each target; the slow test has all of all."""
    turn = 0 if arch == "sm_80" else 2
    for target in {least_arch(formats, arch) for formats in FORMATS}:
        cases = [
            (SPACE.default_config, formats.problem(512, 512, 512, LAYOUTS[(index + turn) % 4]))
            for index, formats in enumerate(FORMATS)
            if least_arch(formats, arch) == target
        ]
        assert faults(compiled(cases, target, tmp_path)) == {}


@pytest.mark.parametrize("formats", SOME, ids=lambda formats: formats.label)
def test_every_alignment_compiles(formats: Formats, tmp_path: Path) -> None:
    """Rows that begin and end at any element: each format in two of the layouts."""
    first = MAIN.index(formats) % 4
    problems = [*every_alignment(formats, (LAYOUTS[first],)), *ragged(formats, (LAYOUTS[3 - first],))][::2]
    cases = [(SPACE.default_config, problem) for problem in problems]
    assert faults(compiled(cases, "sm_90a", tmp_path)) == {}


@pytest.mark.parametrize("device", GPUS, ids=lambda device: device.arch if device.modelled else device.key)
def test_the_default_is_valid_everywhere(device: Device) -> None:
    """The default configuration runs on every GPU, format, layout, size and alignment: no shape is left without one."""
    for formats in FORMATS:
        if least_arch(formats, device.arch) != device.arch:
            continue
        large = [formats.problem(2**31 - 1, 1, 1), formats.problem(1, 2**31 - 1, 1, "tt"), formats.problem(5, 3, 0)]
        for problem in [*ragged(formats), *every_alignment(formats), *misaligned_bases(formats), *large]:
            broken = violated(SPACE, SPACE.default_config, {**device.names(), **problem.names()})
            assert broken is None, f"{problem.label}: {broken.reason}"


def short(m: int = 4096, n: int = 4096, k: int = 64, dtype: str = "fp64", batch: int = 1) -> Problem:
    return Problem(m, n, k, dtype, batch=batch)


@pytest.mark.parametrize(
    ("problem", "choices", "reason"),
    [
        (short(), {}, None),
        (short(k=128, batch=3), {}, None),
        (short(k=129), {}, "columns of B stay where k is short, but has a step: longer ones leave no room for blocks"),
        (short(k=0), {}, "columns of B stay where k is short, but has a step: longer ones leave no room for blocks"),
        (short(512, 512), {}, "columns stay for more than one tile"),
        (short(n=4095), {}, "direct stores are pairs of doubles"),
        (short(), {"direct": 0}, "columns that stay leave no room for strips of results"),
        (short(dtype="tf32"), {"direct": 0}, "columns that stay leave no room for strips of results"),
        (short(), {"stream_k": 1}, "columns that stay leave no room for strips of results"),
        (short(1200, 1200), {"split_k": 2}, "columns are walked down whole"),
        (short(), {"raster_group": 4}, "columns are walked down whole"),
    ],
)
def test_columns_of_b_are_held(problem: Problem, choices: dict[str, int], reason: str | None) -> None:
    """For short sums of doubles that are written directly, in more than one tile of each block."""
    config = SPACE.config({**SPACE.default, "direct": 1, "hold_b": 1, **choices})
    broken = violated(SPACE, config, {**H200.names(), **problem.names()})
    assert (broken.reason if broken else None) == reason


def aligned(dtype: str = "bf16", layout: str = "nn", k: int = 4096, n: int = 4096) -> Problem:
    return Problem(4096, n, k, dtype, layout)


ROWS_IN_ORDER = "TMA leaves rows in their order, which only 16-bit formats are read in where they lie along m or n"


@pytest.mark.parametrize(
    ("problem", "choices", "reason"),
    [
        *((aligned("bf16", layout), {}, None) for layout in LAYOUTS),
        *((aligned(dtype, "nt"), {}, None) for dtype in ("tf32", "int8", "fp8_e4m3")),
        *((aligned(dtype, layout), {}, ROWS_IN_ORDER) for dtype in ("tf32", "int8") for layout in ("nn", "tt", "tn")),
        (aligned("fp64", "nt"), {}, ROWS_IN_ORDER),
        (aligned("bf16", "nn", n=4100), {}, "TMA takes rows that begin at multiples of 16 bytes"),
        (aligned("bf16", "nn"), {"tile_n": 96, "warp_n": 48}, "rows of 128 bytes along n"),
        (aligned("bf16", "tt"), {"tile_m": 32}, "rows of 128 bytes along m"),
        (aligned("bf16", "nt"), {"stream_k": 1}, "barriers of TMA serve one piece of work a block"),
        (aligned("bf16", "nt", k=2**30), {}, "a coordinate that no operand reaches stands for zeros"),
    ],
)
def test_tiles_that_tma_copies(problem: Problem, choices: dict[str, int], reason: str | None) -> None:
    config = SPACE.config({**SPACE.default, "tma": 1, **choices})
    broken = violated(SPACE, config, {**H200.names(), **problem.names()})
    assert (broken.reason if broken else None) == reason


def test_tma_needs_hopper() -> None:
    config = SPACE.config({**SPACE.default, "tma": 1})
    broken = violated(SPACE, config, {**device_of("sm_89").names(), **aligned().names()})
    assert broken is not None
    assert broken.reason == "TMA exists since sm_90"


def test_a_complete_space_from_before_tma_still_renders(tmp_path: Path) -> None:
    """A user's copy of the space has neither the parameter nor what came with it: cp.async copies."""
    assert SPACE.source is not None
    text = re.sub(r"^  (tma|barrier_bytes): .*\n", "", Path(SPACE.source).read_text(), flags=re.MULTILINE)
    text = re.sub(r"^  - \{(require: \"tma |tile_m.*tma: 1).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^    tensor_maps:\n(      .*\n)+", "", text, flags=re.MULTILINE)
    (tmp_path / "mma.yaml").write_text(text.replace(" tma: 0,", "").replace(" + barrier_bytes", ""))
    old = load_space(tmp_path / "mma.yaml")
    assert "tma" not in old.default
    assert "gemm_mma_tma" not in render(old, old.default_config, aligned().signature, "sm_90a").text


def test_boxes_of_tma_are_the_tiles() -> None:
    """Rows along k are one box, rows along n panels of 128 bytes; behind the stages stand their barriers."""
    config = SPACE.config({**SPACE.default, "tma": 1, "tile_n": 128, "warp_n": 64})
    [launch], _ = resolve(SPACE, config, {**H200.names(), **aligned("bf16", "nn").names()})
    assert [(one.operand, one.box, one.swizzle) for one in launch.tensor_maps] == [
        ("a", (64, 64), 128),
        ("b", (64, 64), 128),
    ]
    assert launch.smem_bytes == 3 * (64 + 128) * 128 + 1024 + 3 * 8
    [launch], _ = resolve(SPACE, config, {**H200.names(), **aligned("int8", "nt").names()})
    assert [one.box for one in launch.tensor_maps] == [(128, 64), (128, 128)]


@pytest.mark.parametrize(("k", "min_blocks"), [(1, 3), (64, 3), (65, 2), (128, 1)])
def test_blocks_that_hold_columns_of_b(k: int, min_blocks: int) -> None:
    """As many as fit at once; beside the ring of A a block has room for all k of its columns."""
    config = SPACE.config({**SPACE.default, "direct": 1, "hold_b": 1, "min_blocks": min_blocks})
    launches, workspace = resolve(SPACE, config, {**H200.names(), **short(k=k).names()})
    [launch] = launches
    assert (launch.grid, launch.block, workspace) == (min_blocks * H200.sm_count, 128, 0)
    assert launch.smem_bytes == (3 * 64 + -(-k // 16) * 64) * 128


@pytest.mark.parametrize("dtype", SPACE.dtypes)
def test_the_space_stays_small_enough_to_be_searched_for_every_shape(dtype: str) -> None:
    """Enumeration and model take their time for each shape: well under a second for as many."""
    assert len(valid(SPACE, Problem(*LARGE, dtype), device_of("sm_90a"))) < 200_000


@pytest.mark.parametrize("warp_m", SPACE.parameters["warp_m"])
def test_fragments_of_every_warp_tile_stay_in_registers(warp_m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that the compiler does not see through puts them into local memory, and that is no spill."""
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")  # a cached compilation has no log
    tools = toolchain()
    load_builtins(tools.library)
    for turn, warp_n in enumerate(SPACE.parameters["warp_n"]):
        formats = MAIN[(turn + int(warp_m) // 16) % len(MAIN)]
        choices = {"tile_m": 2 * int(warp_m), "tile_n": 2 * int(warp_n), "warp_m": warp_m, "warp_n": warp_n}
        config = SPACE.config({**SPACE.default, **choices})
        problem = formats.problem(*LARGE, LAYOUTS[turn % 4])
        compilation = job(SPACE, config, problem, "sm_90a")
        options = ("--gpu-architecture=sm_90a", *compilation.options)
        kernel = read_log(Nvrtc(tools.library).compile(compilation.source, options).log).kernels["kt_gemm"]
        assert kernel.stack_bytes == 0 or kernel.spill_bytes > 0, f"{problem.label}: {config.label}"


def targets(formats: Formats) -> tuple[str, ...]:
    """Those that have instructions for the format; of other formats of C than the default the oldest and the newest."""
    known = tuple(arch for arch in ARCHS if least_arch(formats, arch) == arch)
    return known if formats in MAIN else (known[0], known[-1])


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("formats", "arch"),
    [(formats, arch) for formats in FORMATS for arch in targets(formats)],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
def test_all_layouts_and_alignments_compile(formats: Formats, arch: str, tmp_path: Path) -> None:
    """In turn the default and others, those in which most pairs of choices meet.

    The space bounds registers by an estimate: few of what it lets pass may spill, and are pruned.
    """
    sample = Covering(SPACE, device_of(arch))
    cases = []
    for number, problem in enumerate([*every_alignment(formats), *ragged(formats)[::3]]):
        configs = [SPACE.default_config] if number % 2 else sample.choose(problem, 1)
        cases += [(config, problem) for config in configs]
    check_sample(compiled(cases, arch, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("formats", "arch"),
    [(formats, arch) for formats in MAIN for arch in targets(formats)],
    ids=lambda value: value if isinstance(value, str) else value.label,
)
def test_every_value_compiles_for_every_format(formats: Formats, arch: str, tmp_path: Path) -> None:
    """Formats and targets take turns with layouts."""
    layout = LAYOUTS[(MAIN.index(formats) + ARCHS.index(arch)) % 4]
    check_sample(compiled(every_value(formats, layout, arch), arch, tmp_path))
