"""The simt family compiles: every value of every parameter, every format and layout, from Turing to Blackwell."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kt.devices.catalog import modelled
from kt.devices.device import Device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.enumeration import Enumeration, enumerate_space
from kt.search_spaces.launch import violated
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Config, SearchSpace
from kt.templates.render import render
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.toolchain import compile_job, toolchain

SPACE = next(space for space in builtin_spaces() if space.family == "simt")
H200 = modelled("h200")
FORMATS = ("fp32", "fp64", "fp16", "bf16", "int8")
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def device_of(arch: str) -> Device:
    """The H200 with another compute capability: only that decides what code is rendered."""
    number = int("".join(filter(str.isdigit, arch)))
    return replace(H200, compute_capability=(number // 10, number % 10))


def valid(problem: Problem, device: Device) -> Enumeration:
    return enumerate_space(SPACE, {**device.names(), **problem.names()})


def covering(survivors: Enumeration) -> list[Config]:
    """Valid configurations, first and last of the space among them, in which every value that survives occurs."""
    columns = {name: survivors.columns[name] for name in SPACE.parameters}
    wanted = {(name, value) for name, column in columns.items() for value in set(column.tolist())}
    chosen = [survivors.config(0), survivors.config(len(survivors) - 1)]
    for config in chosen:
        wanted -= set(config.parameters)
    while wanted:
        name, value = min(wanted, key=str)
        # The last one with the value: large tiles, where code and registers are longest.
        config = survivors.config(int((columns[name] == value).nonzero()[0][-1]))
        chosen.append(config)
        wanted -= set(config.parameters)
    return chosen


def compile_all(jobs: list[CompileJob], folder: Path) -> list[Binary]:
    done: dict[str, Binary] = {}
    with CompilePool(2, CubinCache(folder), 120.0) as pool:
        for job in jobs:
            pool.submit(job)
        while pool.pending:
            done |= {binary.digest: binary for binary in pool.poll(1.0)}
    return [done[job.digest] for job in jobs]


def job(config: Config, problem: Problem, arch: str, space: SearchSpace = SPACE) -> CompileJob:
    return compile_job(render(space, config, problem.signature, arch), arch, toolchain())


def default_jobs(arch: str) -> Iterator[CompileJob]:
    for dtype in FORMATS:
        for layout in LAYOUTS:
            yield job(SPACE.default_config, Problem(512, 512, 512, dtype, layout), arch)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_value_of_every_parameter_compiles(arch: str, tmp_path: Path) -> None:
    problem = Problem(4096, 4096, 4096)
    configs = covering(valid(problem, device_of(arch)))
    binaries = compile_all([job(config, problem, arch) for config in configs], tmp_path)
    assert [binary.error for binary in binaries] == [""] * len(configs)
    assert all(binary.registers["kt_gemm"] > 0 for binary in binaries)


def test_the_default_compiles_for_every_format_and_layout_without_spills(tmp_path: Path) -> None:
    binaries = compile_all(list(default_jobs("sm_90a")), tmp_path)
    assert {binary.error for binary in binaries} == {""}
    assert {binary.spill_bytes["kt_gemm"] for binary in binaries} == {0}


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
    (binary,) = compile_all([job(SPACE.default_config, problem, "sm_90a")], tmp_path)
    assert binary.error == ""


@pytest.mark.parametrize("arch", ["sm_75", "sm_120a"])
def test_oldest_and_newest_architecture_compile(arch: str, tmp_path: Path) -> None:
    configs = covering(valid(Problem(4096, 4096, 4096), device_of(arch)))[:2]
    problem = Problem(4096, 4096, 4096)
    binaries = compile_all([job(config, problem, arch) for config in configs], tmp_path)
    assert [binary.error for binary in binaries] == [""] * len(configs)


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
    configs = covering(valid(problem, device_of("sm_80")))
    binaries = compile_all([job(config, problem, "sm_80") for config in configs], tmp_path)
    assert [binary.error for binary in binaries] == [""] * len(configs)
