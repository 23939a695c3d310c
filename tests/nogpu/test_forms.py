"""Kernels of several forms: which there are, when an export takes them, and what it says of them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources
from kt.cli.export_forms import FormsCompiled
from kt.devices.catalog import modelled
from kt.errors import CompilerUnavailable
from kt.export.collect import collect, collect_few
from kt.export.dispatch import pick
from kt.export.forms import forms_of
from kt.export.kernels import Kernel, on_device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Config
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.method import METHOD_LABEL
from kt.tuner.toolchain import Toolchain, toolchain

Command = Callable[..., Any]
SPACES = {space.family: space for space in builtin_spaces()}
WGMMA = SPACES["wgmma"]
GPU = modelled("h200")


def config(**choices: int | str) -> Config:
    return WGMMA.config({**WGMMA.default, **choices})


def winner(problem: Problem, chosen: Config, time_us: float) -> BestConfig:
    key = CacheKey(problem, GPU.identity, "nvrtc 13.0 -std=c++17", METHOD_LABEL)
    launches, workspace = resolve(WGMMA, chosen, {**GPU.names(), **problem.names()})
    sources = {"wgmma": current_sources(None, ())["wgmma"]}
    measurement = Measurement("ok", time_us, samples=9)
    return BestConfig(key, chosen, measurement, sources, launches, workspace, complete=True)


def tuned() -> list[BestConfig]:
    """One configuration has won in all layouts, once with copies."""
    wide = [Problem(4096, 4096, 4096, "bf16", layout) for layout in LAYOUTS]
    odd = Problem(4093, 4099, 4091, "bf16", "nt")
    return [*(winner(problem, config(), 200.0) for problem in wide), winner(odd, config(pack_a=1, pack_b=1), 250.0)]


def layouts_of(chosen: Config, problem: Problem) -> set[str]:
    return {form.layout for form in forms_of(WGMMA, chosen, problem.signature, "sm_90a")}


def test_which_kernels_have_several_forms() -> None:
    """16-bit operands by TMA in stages of one size; of few rows those layouts in which A's rows follow each other."""
    aligned, odd = Problem(64, 64, 64, "bf16"), Problem(66, 66, 66, "bf16")
    assert layouts_of(config(), aligned) == set(LAYOUTS)
    assert {form.align_c for form in forms_of(WGMMA, config(), aligned.signature, "sm_90a")} == {16}
    assert layouts_of(config(), odd) == set(), "threads copy"
    assert layouts_of(config(pack_a=1, pack_b=1), odd) == set(LAYOUTS)
    forms = forms_of(WGMMA, config(pack_a=1, pack_b=1), odd.signature, "sm_90a")
    assert [form.align_c for form in forms] == [4] * 4 + [16] * 4
    assert layouts_of(config(tile_m=64, rows_loaded=16), aligned) == {"nn", "nt"}
    assert layouts_of(config(tile_n=48), aligned) == set(), "panels of 64 columns have more bytes"
    assert layouts_of(config(), Problem(64, 64, 64, "tf32")) == set()
    assert forms_of(SPACES["simt"], SPACES["simt"].default_config, aligned.signature, "sm_90a") == ()


def test_one_kernel_takes_the_place_of_several() -> None:
    """Its times are called what they are, and the table calls them predicted."""
    listed = tuned()
    known, found = collect_few(listed, SPACES, most=1, admits=lambda _: True)
    assert found.kernels == 1
    assert len(found.known) == len(listed)
    assert {one.source for one in found.served} == {"alike", "expected"}
    assert all(best.measurement.predicted for best in known.winners)
    assert len({kernel.code for kernel in known.kernels.kernels if kernel.space.family == "wgmma"}) == 1
    _, without = collect_few(listed, SPACES, most=1)
    assert sum(one.generic for one in without.served) == 3
    assert not any(one.kernel.forms for one in without.served)


def test_within_a_percentage_too() -> None:
    """Of one layout each has its own; of several one is enough."""
    _, found = collect_few(tuned(), SPACES, within=0.2, admits=lambda _: True)
    assert found.kernels == 1
    assert max(one.loss for one in found.served) <= 0.2


def test_of_a_single_form_the_kernel_is_that_form_alone() -> None:
    """No larger than it must be, and its time is measured."""
    listed = [winner(Problem(4096, 4096, 4096, "bf16", "tt"), config(), 200.0)]
    _, found = collect_few(listed, SPACES, most=1, admits=lambda _: True)
    assert [(one.kernel.forms, one.source) for one in found.served] == [((), "measured")]


def test_what_is_refused_is_not_taken() -> None:
    """Others are asked about until one is admitted, or none is left."""
    asked: list[Kernel] = []

    def admits(kernel: Kernel) -> bool:
        asked.append(kernel)
        return not dict(kernel.config.parameters)["pack_a"]

    _, found = collect_few(tuned(), SPACES, most=1, admits=admits)
    assert {dict(kernel.config.parameters)["pack_a"] for kernel in asked} == {0, 1}
    assert found.kernels == 1
    assert all(not dict(one.kernel.config.parameters)["pack_a"] for one in found.served if one.kernel.forms)
    _, none = collect_few(tuned(), SPACES, most=1, admits=lambda _: False)
    assert not any(one.kernel.forms for one in none.served)


def test_one_of_few_may_load_more_rows_than_there_are() -> None:
    """A search does not try it; fewer than there are are loaded nowhere."""
    chosen = config(tile_m=64, stages=8, consumers=1)
    few = config(tile_m=64, stages=8, consumers=1, rows_loaded=32)
    small, large = Problem(32, 4096, 4096, "bf16", "nt"), Problem(64, 4096, 4096, "bf16", "nt")
    listed = [winner(small, few, 20.0), winner(large, chosen, 22.0)]
    for problem, one in ((small, chosen), (large, few)):
        assert violated(WGMMA, one, {**GPU.names(), **problem.names()}) is not None
    known, found = collect_few(listed, SPACES, most=1)
    assert not any(one.generic for one in found.served)
    assert {dict(one.kernel.config.parameters)["rows_loaded"] for one in found.served} == {64}
    assert pick(known, small, GPU).found == "exact"
    whole = collect(listed[1:], SPACES)
    assert pick(whole, small, GPU).found == "generic", "all kernels: each as a search would have it"


def test_layouts_that_no_tuned_shape_has_get_candidates() -> None:
    """A kernel that is there for two layouts is a candidate in the others."""
    listed = [best for best in tuned() if best.key.problem.layout in ("nn", "nt")]
    known, _ = collect_few(listed, SPACES, most=1, admits=lambda _: True)
    assert {key[-1] for key in known.groups} == set(LAYOUTS)
    plain, _ = collect_few(listed, SPACES, most=1)
    assert {key[-1] for key in plain.groups} < set(LAYOUTS)


@pytest.mark.parametrize(
    ("changes", "admitted"),
    [
        ({}, True),
        ({"spill_bytes": {"kt_gemm": 8}}, False),
        ({"spill_bytes": {"kt_gemm": 0, "kt_gemm_reduce": 4}}, False),
        ({"warnings": ("C7515 wgmma instructions are serialized",)}, False),
        ({"error": "no such thing"}, False),
    ],
)
def test_a_compiled_kernel_is_admitted_if_nothing_is_wrong(
    changes: dict[str, Any], admitted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spills of any of its launches, warnings and errors refuse it."""
    compiled = FormsCompiled((), tmp_path)
    binary = replace(Binary("digest", registers={"kt_gemm": 168}, spill_bytes={"kt_gemm": 0}), **changes)
    monkeypatch.setattr(compiled, "_of_unknown", lambda _: [binary])
    _, found = collect_few(tuned(), SPACES, most=1, admits=lambda _: True)
    kernel = found.served[0].kernel
    assert compiled(kernel) is admitted
    assert "serves nn, nt, tn, tt" in compiled.told(kernel)
    assert "168 registers" in compiled.told(kernel)


class Pool:
    """Compiles in no time."""

    made = 0

    def __init__(self, workers: int, cubins: CubinCache, *, warn: Callable[[str], None]) -> None:
        Pool.made += 1
        self.pending, self._jobs = 0, list[CompileJob]()

    def submit(self, job: CompileJob) -> None:
        self.pending += 1
        self._jobs.append(job)

    def poll(self, timeout: float) -> list[Binary]:
        self.pending -= 1
        return [Binary(self._jobs.pop().digest)]

    def close(self) -> None:
        pass


def test_one_pool_compiles_all_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are asked about next are there together, whatever order they end in; what is known is not asked for
    again. A pool starts no process, and says no second time that the cache cannot be written, for another kernel."""
    monkeypatch.setattr("kt.tuner.compile_pool.CompilePool", Pool)
    kernels = [of_several_forms(config(tile_n=tile_n)) for tile_n in (64, 128, 256)]
    with FormsCompiled((), tmp_path) as compiled:
        compiled.expect([*kernels[:2], kernels[0]])
        assert len({compiled.binary(kernel).digest for kernel in kernels}) == 3
        assert all(map(compiled, kernels))
    assert Pool.made == 1


def of_several_forms(chosen: Config) -> Kernel:
    signature = Problem(4096, 4096, 4096, "bf16", "nt").signature
    kernel = on_device(WGMMA, chosen, signature, GPU.compute_capability)
    return replace(kernel, forms=forms_of(WGMMA, chosen, signature, kernel.arch))


@pytest.mark.usefixtures("no_gpu")
def test_the_command_compiles_them_and_says_that_they_are_predicted(
    kt: Command, own_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel with its registers, and whose times it has; the header says so too."""
    with Store.open(own_environment) as store:
        for best in tuned():
            store.put_best(replace(best, key=replace(best.key, toolchain=toolchain().label)))
    header = tmp_path / "kt_gemm.cuh"
    outcome = kt("export", "--header", "--max-kernels", "1", "-o", header)
    assert outcome.code == 0, outcome.err
    assert "kernel 1 serves nn, nt, tn, tt, rows of C aligned to 16 bytes or less; " in outcome.err
    assert "measured of a kernel of that layout alone" in outcome.err
    assert "1 kernel in place of 5" in outcome.err
    assert "measured of kernels for one layout each: they are predicted" in header.read_text()
    check_without_compiling(kt, own_environment, header, monkeypatch)


def check_without_compiling(kt: Command, cache: Path, header: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check says the same with NVRTC and without, by what the export has left in the cache, and writes nothing; if
    the cache does not have it, the check says that it cannot tell."""
    export = ("export", "--header", "--max-kernels", "1", "-o", header)
    arguments = (*export, "--check")
    before = state(cache)
    assert (kt(*arguments).code, state(cache)) == (0, before)
    with monkeypatch.context() as patched:
        patched.setattr("kt.tuner.toolchain.toolchain", no_toolchain)
        assert (kt(*arguments).code, state(cache)) == (0, before)
        shutil.rmtree(cache / "cubin")
        without = kt(*arguments)
    assert without.code == 6
    assert "it cannot be told what the header would be: 1 kernel of several forms that it may have" in without.err
    assert len(without.err.splitlines()) == 2
    assert (kt(*arguments).err, (cache / "cubin").exists()) == (without.err, False)
    for place, failing in (("toolchain", no_toolchain), ("compile_job", no_job)):  # no NVRTC, and none that fits
        with monkeypatch.context() as patched:
            patched.setattr(f"kt.tuner.toolchain.{place}", failing)
            outcome = kt(*export)
        assert outcome.code == 0
        assert outcome.err.count("each kernel has one layout, for those of several are compiled first: ") == 1
        assert "measured of kernels for one layout each" not in header.read_text()


def no_toolchain() -> Toolchain:
    raise CompilerUnavailable("NVRTC, CUDA's run-time compiler, was not found")


def no_job(*_: object) -> CompileJob:
    raise CompilerUnavailable("NVRTC 12.0 supports sm_50 to sm_89; the device is sm_90a")


def state(folder: Path) -> dict[Path, int]:
    """When each file below a folder was last written, SQLite's own beside its file apart."""
    files = (path for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm")))
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}
