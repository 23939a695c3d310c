"""`toolchain()`: the compiler of this machine, what it can target, and how kt calls it."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kt.errors import CompilerUnavailable
from kt.tuner.extras import OLDEST_CUDA, install
from kt.tuner.nvrtc import Nvrtc
from kt.tuner.nvrtc_search import Installation, cupy_major, find_installations, header_version

if TYPE_CHECKING:
    from kt.templates.source import Source
    from kt.tuner.messages import CompileJob

__all__ = ["Toolchain", "check_target", "compile_job", "job_digest", "toolchain"]

_OPTIONS = ("-std=c++17",)  # what decides the code; never fast-math or flush-to-zero, which change results
_REPORT = ("--ptxas-options=-v",)  # registers, spills and shared memory into the log
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
_FORMAT = 1  # raised when what is stored with a cubin changes its meaning


@dataclass(frozen=True)
class Toolchain:
    """NVRTC, its headers and its options.

    Attributes:
        nvrtc: version (major, minor).
        library: path of the shared library.
        include_dirs: folders with CUDA's number-format headers; empty if they are not installed.
        headers: CUDA version of these headers; None if there are none or they do not say.
        options: options that decide the code, target and include folders apart.
        archs: compute capabilities that it compiles for, e.g. 90.
        notes: what was found wrong on the way and ignored, one line each.
    """

    nvrtc: tuple[int, int]
    library: str
    include_dirs: tuple[str, ...]
    headers: tuple[int, int] | None
    options: tuple[str, ...]
    archs: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """All of the compiler that decides the code, without a path: equal here and there if the code is equal."""
        version = "nvrtc {}.{}".format(*self.nvrtc)
        if self.headers not in (None, self.nvrtc):
            version += " headers {}.{}".format(*self.headers)
        return " ".join([version, *self.options])

    @property
    def install(self) -> str:
        """The command that installs this CUDA version's packages."""
        return install(self.nvrtc[0])


def toolchain() -> Toolchain:
    """The compiler that this process and its children use; found once for each state of the environment.

    A toolkit named by CUDA_PATH or CUDA_HOME comes first, then Python wheels, then the system. A library of the CUDA
    version that the installed CuPy is built for precedes others, since the driver must load what it makes.

    Raises:
        CompilerUnavailable: there is no NVRTC that can be loaded; the message says what was tried.
    """
    return _toolchain(os.environ.get("CUDA_PATH", ""), os.environ.get("CUDA_HOME", ""))


@cache
def _toolchain(cuda_path: str, cuda_home: str) -> Toolchain:
    installations, notes = find_installations()
    wanted = cupy_major()
    candidates = [item for item in installations if item.library]
    candidates.sort(key=lambda item: item.major != wanted and wanted != 0)  # stable: the order found among equals
    for item in candidates:
        try:
            nvrtc = Nvrtc(item.library)
        except (OSError, AttributeError) as error:
            notes.append(f"{item.library} cannot be used: {error}")
            continue
        include_dir = _include_dir(item, installations)
        return Toolchain(
            nvrtc.version, item.library, (include_dir,) if include_dir else (),
            header_version(include_dir), _OPTIONS, nvrtc.archs, tuple(notes),
        )  # fmt: skip
    raise CompilerUnavailable(
        "; ".join(["NVRTC, CUDA's run-time compiler, was not found", *notes]),
        hint=f"{install()}; or set CUDA_PATH to a CUDA toolkit; nvcc is not needed",
    )


def _include_dir(chosen: Installation, installations: list[Installation]) -> str:
    """The library's own headers; else the first ones of the same CUDA major version; else any."""
    if chosen.include_dir:
        return chosen.include_dir
    dirs = [item.include_dir for item in installations if item.include_dir]
    same = [name for name in dirs if (header_version(name) or (0, 0))[0] == chosen.major]
    return next(iter(same + dirs), "")


def check_target(tc: Toolchain, arch: str, driver: int = 0) -> None:
    """Refuse a target that the compiler does not know, or a driver (CUDA version, 0 = unknown) that is too old for it.

    Raises:
        CompilerUnavailable: one line with both versions, the library and the remedy.
    """
    name = "NVRTC {}.{} ({})".format(*tc.nvrtc, tc.library)
    number = int(re.sub(r"\D", "", arch) or 0)
    if number not in tc.archs:
        first, last = min(tc.archs), max(tc.archs)
        remedy = "pip install --upgrade nvidia-cuda-nvrtc nvidia-cuda-runtime"
        if number < first:
            remedy = f"{install(OLDEST_CUDA)}: older GPUs need CUDA {OLDEST_CUDA}"
        message = f"{name} supports sm_{first} to sm_{last}; the device is {arch}"
        raise CompilerUnavailable(message, hint=remedy)
    if driver and driver // 1000 < tc.nvrtc[0]:
        remedy = f"{install(driver // 1000)}, or install a newer driver"
        if driver // 1000 < OLDEST_CUDA:
            remedy = f"install a newer driver, one for CUDA {OLDEST_CUDA} or newer"
        raise CompilerUnavailable(
            f"{name} makes code that the driver, which is for CUDA {driver // 1000}.{driver % 1000 // 10}, cannot load",
            hint=remedy,
        )


def compile_job(source: Source, arch: str, tc: Toolchain) -> CompileJob:
    """The job that compiles `source` for `arch`.

    Its digest covers the text, the target and the compiler, and no path: it is the same in another folder.

    Raises:
        CompilerUnavailable: the target is unknown to the compiler, or a CUDA header that the source includes is not
            installed. Sources without `#include` still compile then.
    """
    from kt.tuner.messages import CompileJob  # here, for a look-up in the cache needs the compiler's label only

    check_target(tc, arch)
    _check_headers(source, tc)
    includes = tuple(f"--include-path={folder}" for folder in tc.include_dirs)
    return CompileJob(job_digest(source, arch, tc.label), source.text, arch, (*tc.options, *_REPORT, *includes))


def job_digest(source: Source, arch: str, label: str) -> str:
    """The digest of a job for the toolchain of this label, which need not be here."""
    identity = "\n".join([f"kt cubin {_FORMAT}", label, arch, source.text])
    return hashlib.sha256(identity.encode()).hexdigest()


def _check_headers(source: Source, tc: Toolchain) -> None:
    for name in _INCLUDE.findall(source.text):
        if not any(_is_file(folder, name) for folder in tc.include_dirs):
            where = ", ".join(tc.include_dirs) or "no folder of CUDA headers was found"
            raise CompilerUnavailable(
                f"{source.path} needs the CUDA header {name}, which is not installed ({where})",
                hint=f"{tc.install}; fp32, fp64 and int8 need no headers",
            )


@cache
def _is_file(folder: str, name: str) -> bool:
    return (Path(folder) / name).is_file()
