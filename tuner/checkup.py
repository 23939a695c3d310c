"""What kt needs on a machine, checked one by one: each is fine, or comes with its remedy."""

import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kt.devices.device import Device
from kt.errors import KtError
from kt.tuner.extras import install
from kt.tuner.toolchain import Toolchain
from kt.wording import plural

__all__ = ["Check", "checkup", "is_healthy"]

State = Literal["ok", "absent", "warning", "failed"]
COMPILE_LIMIT_S = 60.0
# Uses one header of each number format, so that a half-installed toolkit shows here and not in the middle of a run.
_PROBE = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void kt_probe(const __half* a, const __nv_bfloat16* b, float* c) {
  *c = __half2float(*a) * __bfloat162float(*b);
}
"""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is, e.g. "compiler".
        state: "ok"; "absent": kt does less without it; "warning": it works, but look at it; "failed": kt cannot work.
        detail: what was found.
        remedy: what to do about it; "" where nothing needs doing.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


def checkup(
    find_device: Callable[[], Device], cache_folder: Path, tell: Callable[[str], None] = lambda text: None
) -> list[Check]:
    """Every check, in the order in which a run needs things. No GPU is needed and no CUDA context is made.

    Args:
        tell: called with a line for people where other processes have to be waited for.
    """
    device, gpu = _check_gpu(find_device)
    compiler, toolchain = _check_compiler()
    checks = [_check_python(), *gpu, *compiler]
    if toolchain is not None:
        checks += [_check_environment(toolchain), _check_compilation(toolchain, device, cache_folder)]
    checks += [_check_cupy(device is not None), _check_peer("cublas"), _check_peer("cublaslt")]
    return [*checks, _check_spaces(), _check_cache(cache_folder, tell)]


def is_healthy(checks: Sequence[Check]) -> bool:
    """Whether `kt tune --device auto` can do its work here: nothing has failed."""
    return all(check.state != "failed" for check in checks)


def _failure(name: str, error: KtError, state: State = "failed") -> Check:
    return Check(name, state, error.message, error.hint or "")


def _check_python() -> Check:
    from kt import __version__

    version = ".".join(str(part) for part in sys.version_info[:3])
    return Check("kt", "ok", f"version {__version__} under Python {version}")


def _check_gpu(find_device: Callable[[], Device]) -> tuple[Device | None, list[Check]]:
    try:
        device = find_device()
    except KtError as error:
        return None, [_failure("gpu", error, "absent")]
    detail = (
        f"{device.name}, {device.arch}, {device.sm_count} multiprocessors, {device.memory_bytes / 2**30:.0f} GiB, "
        f"{device.smem_per_block_optin // 1024} KiB shared memory a block"
    )
    driver = f"for CUDA {device.driver // 1000}.{device.driver % 1000 // 10}"
    return device, [Check("gpu", "ok", detail), Check("driver", "ok", driver)]


def _check_compiler() -> tuple[list[Check], Toolchain | None]:
    from kt.tuner.toolchain import toolchain

    try:
        found = toolchain()
    except KtError as error:
        return [_failure("compiler", error)], None
    version = ".".join(str(part) for part in found.nvrtc)
    targets = f"sm_{min(found.archs)} to sm_{max(found.archs)}"
    checks = [Check("compiler", "ok", f"NVRTC {version} for {targets}, {found.library}")]
    if found.include_dirs:
        checks.append(Check("headers", "ok", ", ".join(found.include_dirs)))
    else:
        remedy = f"{found.install}; fp32, fp64 and int8 need no headers"
        checks.append(Check("headers", "absent", "CUDA's fp16 and bf16 headers were not found", remedy))
    return checks, found


def _check_environment(toolchain: Toolchain) -> Check:
    """kt needs no CUDA_HOME; one that points nowhere is worth a word."""
    if toolchain.notes:
        remedy = "unset or correct the variable; kt needs neither it nor nvcc"
        return Check("environment", "warning", "; ".join(toolchain.notes), remedy)
    named = [f"{name}={os.environ[name]}" for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    return Check("environment", "ok", ", ".join(named) or "CUDA_PATH and CUDA_HOME are not set, nor needed")


def _check_compilation(toolchain: Toolchain, device: Device | None, cache_folder: Path) -> Check:
    """A real compilation, in the process that a run would use."""
    from kt.devices.catalog import modelled
    from kt.devices.local import AUTO_MODEL
    from kt.templates.source import Source
    from kt.tuner.compile_pool import CompilePool
    from kt.tuner.cubin_cache import CubinCache
    from kt.tuner.toolchain import check_target, compile_job

    target = device or modelled(AUTO_MODEL)
    text = _PROBE if toolchain.include_dirs else 'extern "C" __global__ void kt_probe() {}\n'
    try:
        check_target(toolchain, target.arch, target.driver)
        job = compile_job(Source(text, "the probe of kt doctor"), target.arch, toolchain)
        with CompilePool(1, CubinCache(cache_folder), COMPILE_LIMIT_S) as pool:
            pool.submit(job)
            (binary,) = pool.poll(COMPILE_LIMIT_S + 5)
    except KtError as error:
        return _failure("compilation", error)
    if binary.error:
        return Check("compilation", "failed", binary.error.strip().splitlines()[0], f"see {toolchain.library}")
    return Check("compilation", "ok", f"a kernel for {target.arch} compiles")


def _check_cupy(needed: bool) -> Check:
    """CuPy launches kernels in the GPU worker; without a GPU nothing needs it."""
    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        try:
            return Check("cupy", "ok", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    state: State = "failed" if needed else "absent"
    return Check("cupy", state, "CuPy is not installed; measuring needs it", install())


def _check_peer(name: str) -> Check:
    """A library that is timed beside the winners; no result of kt depends on it.

    It is loaded as the GPU worker loads it, which needs no GPU.
    """
    from kt.tuner.cublas import library_path
    from kt.tuner.refinement import PeerNotInstalled

    try:
        return Check(name, "ok", library_path(name))
    except PeerNotInstalled as error:
        return Check(name, "absent", f"{error.library} was not found; only --peers {name} needs it", error.remedy)


def _check_spaces() -> Check:
    from kt.search_spaces.loader import builtin_spaces

    try:
        spaces = builtin_spaces()
    except KtError as error:
        return _failure("families", error)
    if not spaces:
        return Check("families", "failed", "no kernel family is installed", "reinstall kt-autotuner")
    return Check("families", "ok", ", ".join(space.family for space in spaces))


def _check_cache(cache_folder: Path, tell: Callable[[str], None]) -> Check:
    from kt.cache.store import Store

    try:
        with Store.open(cache_folder, tell=tell) as store:
            count = len(store.stored())
            warnings = "; ".join(map(str, store.warnings))
    except KtError as error:
        return _failure("cache", error)
    if warnings:
        return Check("cache", "warning", warnings, "`kt cache prune --unreadable` removes entries that cannot be read")
    return Check("cache", "ok", f"{cache_folder}, {plural(count, 'result')}")
