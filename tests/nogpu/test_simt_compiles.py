"""The simt family compiles: every value of every parameter, every format and layout, from Turing to Blackwell."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kt.devices.catalog import modelled
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import resolve, violated
from kt.templates.render import render
from kt.tuner.candidates import Candidates
from kt.tuner.messages import CompileJob
from kt.tuner.strategies import Shortlist
from support.family_compiles import builtin, compile_all, covering, device_of, job, valid

SPACE = builtin("simt")
H200 = modelled("h200")
FORMATS = ("fp32", "fp64", "fp16", "bf16", "int8")
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def default_jobs(arch: str) -> Iterator[CompileJob]:
    for dtype in FORMATS:
        for layout in LAYOUTS:
            yield job(SPACE, SPACE.default_config, Problem(512, 512, 512, dtype, layout), arch)


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"])
def test_every_value_of_every_parameter_compiles(arch: str, tmp_path: Path) -> None:
    problem = Problem(4096, 4096, 4096)
    configs = covering(valid(SPACE, problem, device_of(arch)))
    binaries = compile_all([job(SPACE, config, problem, arch) for config in configs], tmp_path)
    assert [binary.error for binary in binaries] == [""] * len(configs)
    assert all(binary.registers["kt_gemm"] > 0 for binary in binaries)


def test_the_default_compiles_for_every_format_and_layout_without_spills(tmp_path: Path) -> None:
    binaries = compile_all(list(default_jobs("sm_90a")), tmp_path)
    assert {binary.error for binary in binaries} == {""}
    assert {binary.spill_bytes["kt_gemm"] for binary in binaries} == {0}


@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_what_the_model_offers_first_does_not_spill(layout: str, tmp_path: Path) -> None:
    """Without a GPU, the best predicted are all that is compiled; a kernel that spills is not ranked."""
    problem, device = Problem(4096, 4096, 4096, "fp32", layout), modelled("h200")
    candidates = Candidates(problem, device, [SPACE])
    configs = [candidates.config(number) for number in Shortlist(candidates, 6).propose()]
    binaries = compile_all([job(SPACE, config, problem, device.arch) for config in configs], tmp_path)
    assert [binary.spill_bytes["kt_gemm"] for binary in binaries].count(0) >= len(configs) - 1


@pytest.mark.parametrize("arch", ARCHS)
def test_the_default_is_valid_everywhere(arch: str) -> None:
    """The default configuration runs on every GPU, format, layout and size, so no shape is left without a candidate."""
    sizes = [(1, 1, 1), (1, 105, 107), (2**31 - 1, 1, 1), (5, 3, 0)]
    for dtype in FORMATS:
        for layout, (m, n, k) in zip(LAYOUTS, sizes, strict=True):
            problem, device = Problem(m, n, k, dtype, layout), device_of(arch)
            assert violated(SPACE, SPACE.default_config, {**device.names(), **problem.names()}) is None


@pytest.mark.parametrize("dtype", FORMATS)
def test_narrow_alignments_compile(dtype: str, tmp_path: Path) -> None:
    """Rows that start or end at any element get accesses of one element."""
    problem = Problem(1, 105, 107, dtype, "nt")
    assert problem.alignment("a") == problem.element_bytes["a"]
    (binary,) = compile_all([job(SPACE, SPACE.default_config, problem, "sm_90a")], tmp_path)
    assert binary.error == ""


@pytest.mark.parametrize(
    ("dtype", "layout", "thread_m"), [("fp32", "tn", 8), pytest.param("fp64", "nt", 4, marks=pytest.mark.slow)]
)
def test_tiles_of_96_columns_compile_without_spills(dtype: str, layout: str, thread_m: int, tmp_path: Path) -> None:
    """Their copies are those of 128 columns: by TMA, and turned in registers."""
    tile = {"tile_n": 96, "thread_m": thread_m, "thread_n": 12, "warp_m": 8, "tile_k": 16, "unroll": 16}
    config, problem = SPACE.config({**SPACE.default, **tile}), Problem(512, 96, 512, dtype, layout)
    assert violated(SPACE, config, {**H200.names(), **problem.names()}) is None
    launches, _ = resolve(SPACE, config, {**H200.names(), **problem.names()})
    assert [one.box[0] for one in launches[0].tensor_maps] == ([64, 128] if dtype == "fp32" else [])
    (binary,) = compile_all([job(SPACE, config, problem, H200.arch)], tmp_path)
    assert (binary.error, binary.spill_bytes["kt_gemm"]) == ("", 0)


@pytest.mark.parametrize(("k", "maps"), [(479, 8), pytest.param(482, 4, marks=pytest.mark.slow), (480, 2)])
def test_operands_that_tma_copies_as_they_lie_compile_without_spills(k: int, maps: int, tmp_path: Path) -> None:
    """The starts that do, with a tensor map for each class of an operand's rows."""
    problem = Problem(1024, 2048, k, "fp32", "nt")
    starts = [{**SPACE.default, **start} for start in SPACE.starts if start.get("turn_tma")]
    configs = [SPACE.config(start) for start in starts]
    names = {**H200.names(), **problem.names()}
    configs = [config for config in configs if violated(SPACE, config, names) is None]
    assert len(configs) >= len(starts) - 1  # without stream-K, for which there are too few tiles
    for config in configs:
        launches, _ = resolve(SPACE, config, names)
        (gemm,) = [launch for launch in launches if launch.kernel == "kt_gemm"]
        assert len(gemm.tensor_maps) == maps
    binaries = compile_all([job(SPACE, config, problem, H200.arch) for config in configs], tmp_path)
    assert [(binary.error, binary.spill_bytes["kt_gemm"]) for binary in binaries] == [("", 0)] * len(configs)


@pytest.mark.parametrize("arch", ["sm_75", "sm_120a"])
def test_oldest_and_newest_architecture_compile(arch: str, tmp_path: Path) -> None:
    configs = covering(valid(SPACE, Problem(4096, 4096, 4096), device_of(arch)))[:2]
    problem = Problem(4096, 4096, 4096)
    binaries = compile_all([job(SPACE, config, problem, arch) for config in configs], tmp_path)
    assert [binary.error for binary in binaries] == [""] * len(configs)


@pytest.mark.parametrize(
    ("layout", "arch", "choices", "pitches"),
    [
        ("tn", "sm_90a", {}, [None, None]),
        ("nn", "sm_90a", {"pack_a": 1}, [1028, None]),
        ("nt", "sm_90a", {"pack_a": 1, "pack_b": 1}, [1028, 2052]),
        ("nn", "sm_90a", {}, []),
        ("tn", "sm_80", {}, []),
        ("tn", "sm_90a", {"thread_m": 4, "thread_n": 4}, []),
        ("tn", "sm_90a", {"tile_k": 8, "unroll": 8}, []),
    ],
)
def test_tma_copies_operands_that_lie_in_the_kernels_order(
    layout: str, arch: str, choices: dict[str, int], pitches: list[int | None]
) -> None:
    """The launch has a tensor map of each operand, or of its packed copy, exactly where the kernel takes them."""
    problem, device = Problem(1028, 2052, 64, "fp32", layout), device_of(arch)
    values = {**SPACE.default, "tile_k": 16, "unroll": 16, "thread_m": 8, "thread_n": 8, "warp_m": 8, "tile_n": 128}
    values |= choices
    config = SPACE.config(values)
    launches, _ = resolve(SPACE, config, {**device.names(), **problem.names()})
    (gemm,) = [launch for launch in launches if launch.kernel == "kt_gemm"]
    assert [one.copy.pitch if one.copy else None for one in gemm.tensor_maps] == pitches
    source = render(SPACE, config, problem.signature, arch).text
    assert ("TensorMap map_a" in source) == bool(pitches)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_default_compiles_for_every_architecture(arch: str, tmp_path: Path) -> None:
    binaries = compile_all(list(default_jobs(arch)), tmp_path)
    assert {binary.error for binary in binaries} == {""}


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_every_value_compiles_for_every_format(dtype: str, layout: str, tmp_path: Path) -> None:
    problem = Problem(4096, 4096, 4096, dtype, layout)
    configs = covering(valid(SPACE, problem, device_of("sm_80")))
    binaries = compile_all([job(SPACE, config, problem, "sm_80") for config in configs], tmp_path)
    assert [binary.error for binary in binaries] == [""] * len(configs)
