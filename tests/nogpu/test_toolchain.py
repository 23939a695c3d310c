"""The compiler is found in every layout that it is shipped in, and what is missing or too old is told in one line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kt.errors import CompilerUnavailable
from kt.templates.source import Source
from kt.tuner import nvrtc_search
from kt.tuner.nvrtc import Nvrtc
from kt.tuner.nvrtc_search import cupy_major, find_installations, header_version
from kt.tuner.toolchain import Toolchain, _toolchain, check_target, compile_job, toolchain

FP32 = Source('extern "C" __global__ void k(float* a) { a[0] = 1; }', "fp32.cu.j2")
FP16 = Source("#include <cuda_fp16.h>\n" + FP32.text, "fp16.cu.j2")


@pytest.fixture
def here() -> Toolchain:
    return toolchain()


@pytest.fixture
def searched(here: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is all of Python's path; no toolkit in the environment or the system."""
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(nvrtc_search, "_system_roots", lambda: iter(()))
    monkeypatch.setattr(nvrtc_search, "_python_folders", lambda: iter([tmp_path / "José 目录"]))
    _toolchain.cache_clear()
    yield tmp_path / "José 目录"
    _toolchain.cache_clear()


def install(tc: Toolchain, library_dir: Path, include_dir: Path | None, soname: str = "libnvrtc.so.13") -> None:
    """Put links to this machine's compiler and headers where a package would put files."""
    library_dir.mkdir(parents=True)
    (library_dir / soname).symlink_to(tc.library)
    if include_dir:
        include_dir.parent.mkdir(parents=True, exist_ok=True)
        include_dir.symlink_to(tc.include_dirs[0])


def test_this_machine_compiles(here: Toolchain) -> None:
    assert here.nvrtc >= (12, 0)
    assert {80, 90} <= set(here.archs)
    assert header_version(here.include_dirs[0]) == here.headers
    for source, arch in ((FP32, "sm_80"), (FP16, "sm_90a")):
        job = compile_job(source, arch, here)
        result = Nvrtc(here.library).compile(job.source, [f"--gpu-architecture={arch}", *job.options])
        assert result.cubin.startswith(b"\x7fELF"), result.log


def test_the_label_has_no_path_and_is_the_same_in_another_process(here: Toolchain) -> None:
    assert here.label == "nvrtc {}.{} -std=c++17".format(*here.nvrtc)
    code = "from kt.tuner.toolchain import toolchain; print(toolchain().label)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == here.label


def test_headers_of_another_version_are_part_of_the_label(here: Toolchain) -> None:
    assert "headers 12.4" in replace(here, headers=(12, 4)).label
    assert replace(here, headers=None).label == here.label, "without headers only sources without them compile"


def test_no_option_that_changes_results(here: Toolchain) -> None:
    options = " ".join(compile_job(FP32, "sm_80", here).options)
    assert "fast" not in options
    assert "ftz" not in options


def test_the_target_is_given_once(here: Toolchain) -> None:
    """F7: an architecture among the other options would meet kt's own."""
    assert not [option for option in compile_job(FP32, "sm_80", here).options if "arch" in option]


def test_finding_it_is_light() -> None:
    code = (
        "import sys; from kt.tuner.toolchain import toolchain; toolchain(); "
        "print([name for name in ('cupy', 'numpy', 'jinja2', 'pydantic', 'yaml') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("library_dir", "include_dir", "soname"),
    [
        ("nvidia/cu13/lib", "nvidia/cu13/include", "libnvrtc.so.13"),
        ("nvidia/cuda_nvrtc/lib", "nvidia/cuda_runtime/include", "libnvrtc.so.12"),
    ],
)
def test_wheels_of_both_cuda_layouts(
    searched: Path, here: Toolchain, library_dir: str, include_dir: str, soname: str
) -> None:
    install(here, searched / library_dir, searched / include_dir, soname)
    found = toolchain()
    assert found.include_dirs == (str(searched / include_dir),)
    job = compile_job(FP16, "sm_80", found)
    result = Nvrtc(found.library).compile(job.source, ["--gpu-architecture=sm_80", *job.options])
    assert result.result == 0, "F5: headers below a folder with a space and letters outside ASCII"
    assert job.digest == compile_job(FP16, "sm_80", here).digest, "the place of the compiler is no part of the digest"


@pytest.mark.parametrize("variable", ["CUDA_PATH", "CUDA_HOME"])
@pytest.mark.parametrize("library_dir", ["lib64", "targets/x86_64-linux/lib"])
def test_a_toolkit_of_the_environment_comes_first(
    searched: Path, here: Toolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, library_dir: str
) -> None:
    install(here, searched / "nvidia/cu13/lib", searched / "nvidia/cu13/include")
    install(here, tmp_path / "cuda" / library_dir, tmp_path / "cuda" / "include")
    monkeypatch.setenv(variable, str(tmp_path / "cuda"))
    assert toolchain().include_dirs == (str(tmp_path / "cuda" / "include"),)
    assert toolchain().notes == ()


def test_a_variable_that_names_no_toolkit_is_ignored_with_a_note(
    here: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8: no nvcc and no CUDA_HOME are needed; a bad value is reported."""
    monkeypatch.setenv("CUDA_HOME", "/nope")
    assert toolchain().library == here.library
    assert toolchain().notes == ("CUDA_HOME=/nope holds no NVRTC and is ignored",)


def test_no_compiler_at_all_names_the_packages(searched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PATH", "/nope")
    with pytest.raises(CompilerUnavailable, match="was not found; CUDA_PATH=/nope holds no NVRTC") as caught:
        toolchain()
    assert 'pip install ".[cuda13]" in a checkout of kt' in str(caught.value.hint)
    assert "with a driver older than 580, [cuda12]" in str(caught.value.hint)
    assert "\n" not in caught.value.message


def test_a_library_that_cannot_be_loaded_is_passed_over(searched: Path, here: Toolchain) -> None:
    folder = searched / "nvidia/cu14/lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.14").write_bytes(b"not a library")
    install(here, searched / "nvidia/cu13/lib", searched / "nvidia/cu13/include")
    assert toolchain().library == here.library
    assert "libnvrtc.so.14 cannot be used" in toolchain().notes[0]


@pytest.mark.parametrize(("built_for", "first"), [("12.x", 12), ("13.x", 13), (None, 13)])
def test_the_cuda_version_of_cupy_comes_first(
    searched: Path, here: Toolchain, monkeypatch: pytest.MonkeyPatch, built_for: str | None, first: int
) -> None:
    """Both versions' wheels in one environment: the driver that serves CuPy must load what is compiled."""
    for folder, major in (("nvidia/cuda_nvrtc/lib", 12), ("nvidia/cu13/lib", 13)):
        (searched / folder).mkdir(parents=True)
        shutil.copy("/proc/self/exe", searched / folder / f"libnvrtc.so.{major}")
    if built_for:
        (searched / "cupy" / ".data").mkdir(parents=True)
        (searched / "cupy" / ".data" / "_wheel.json").write_text(json.dumps({"cuda": built_for}))
    tried: list[str] = []

    class Recorded(Nvrtc):
        def __init__(self, library: str) -> None:
            tried.append(library[-2:])
            super().__init__(here.library)

    monkeypatch.setattr("kt.tuner.toolchain.Nvrtc", Recorded)
    toolchain()
    assert tried == [str(first)]


def test_cupys_version_is_read_without_importing_it() -> None:
    if "cupy" in sys.modules:
        pytest.skip("another test of this process imported CuPy")
    assert cupy_major() in (0, 12, 13)
    assert "cupy" not in sys.modules


def test_incomplete_headers_are_no_headers(searched: Path, here: Toolchain) -> None:
    """F3: cuda_fp16.h without vector_types.h, as some packages ship it, compiles nothing."""
    install(here, searched / "nvidia/cu13/lib", None)
    (searched / "nvidia/cu13/include").mkdir()
    (searched / "nvidia/cu13/include/cuda_fp16.h").write_text("#include <vector_types.h>\n")
    assert toolchain().include_dirs == ()


def test_missing_headers_are_told_for_sources_that_need_them(searched: Path, here: Toolchain) -> None:
    """F3: a 16-bit shape names the package to install; fp32 still compiles."""
    install(here, searched / "nvidia/cu13/lib", None)
    found = toolchain()
    with pytest.raises(CompilerUnavailable, match=r"fp16\.cu\.j2 needs the CUDA header cuda_fp16\.h") as caught:
        compile_job(FP16, "sm_80", found)
    assert f'pip install ".[cuda{found.nvrtc[0]}]"' in str(caught.value.hint)
    job = compile_job(FP32, "sm_80", found)
    result = Nvrtc(found.library).compile(job.source, ["--gpu-architecture=sm_80", *job.options])
    assert result.result == 0


def test_headers_may_come_from_another_package_than_the_compiler(searched: Path, here: Toolchain) -> None:
    install(here, searched / "nvidia/cu13/lib", None)
    headers = searched / "nvidia/cuda_runtime/include"
    headers.parent.mkdir(parents=True)
    headers.symlink_to(here.include_dirs[0])
    assert toolchain().include_dirs == (str(headers),)
    assert any(item.library == "" for item in find_installations()[0])


@pytest.mark.parametrize(
    ("arch", "remedy"),
    [("sm_999", "--upgrade nvidia-cuda-nvrtc"), ("sm_10", 'pip install ".[cuda12]"'), ("", "cuda12")],
)
def test_an_unknown_target_is_told_with_version_range_device_and_library(
    here: Toolchain, arch: str, remedy: str
) -> None:
    """F1, on one line."""
    with pytest.raises(CompilerUnavailable) as caught:
        compile_job(FP32, arch, here)
    first, last = min(here.archs), max(here.archs)
    assert caught.value.message == (
        f"NVRTC {here.nvrtc[0]}.{here.nvrtc[1]} ({here.library}) supports sm_{first} to sm_{last}; the device is {arch}"
    )
    assert remedy in str(caught.value.hint)


def test_a_driver_older_than_the_compiler_is_told_with_both_versions(here: Toolchain) -> None:
    """F2: one message, not a load error for each candidate."""
    thirteen = replace(here, nvrtc=(13, 0))
    with pytest.raises(CompilerUnavailable, match=r"NVRTC 13\.0 .* for CUDA 12\.4") as caught:
        check_target(thirteen, "sm_90a", driver=12040)
    assert 'pip install ".[cuda12]"' in str(caught.value.hint)
    check_target(thirteen, "sm_90a", driver=13000)
    check_target(replace(here, nvrtc=(13, 5)), "sm_90a", driver=13000)
    check_target(thirteen, "sm_90a")


def test_no_extra_is_named_that_does_not_exist(here: Toolchain) -> None:
    """F2: for a driver older than CUDA 12 only a newer driver helps."""
    with pytest.raises(CompilerUnavailable, match=r"for CUDA 11\.8") as caught:
        check_target(replace(here, nvrtc=(12, 4)), "sm_80", driver=11080)
    assert caught.value.hint == "install a newer driver, one for CUDA 12 or newer"


def test_the_digest_covers_text_target_and_compiler(here: Toolchain) -> None:
    digests = {
        compile_job(FP32, "sm_80", here).digest,
        compile_job(FP32, "sm_90a", here).digest,
        compile_job(FP16, "sm_80", here).digest,
        compile_job(FP32, "sm_80", replace(here, nvrtc=(12, 1))).digest,
        compile_job(FP32, "sm_80", replace(here, headers=(12, 1))).digest,
        compile_job(FP32, "sm_80", replace(here, options=("-std=c++20",))).digest,
    }
    assert len(digests) == 6
    assert compile_job(FP32, "sm_80", here).digest in digests
    assert os.sep not in here.label
