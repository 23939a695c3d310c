"""Where NVRTC and CUDA's headers may be: a toolkit that CUDA_PATH names, Python wheels, conda, the system."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Installation", "cupy_major", "find_installations", "header_version", "is_header_dir"]

_LIBRARY = re.compile(r"libnvrtc\.so\.(\d+)(?:\.\d+)*")
_LIBRARY_DIRS = (
    "lib64",
    "lib",
    "targets/x86_64-linux/lib",
    "targets/sbsa-linux/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
_HEADER_DIRS = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")
_NEEDED_HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "vector_types.h")  # cuda_fp16.h needs vector_types.h since CUDA 12.2
_ENVIRONMENT = ("CUDA_PATH", "CUDA_HOME")


@dataclass(frozen=True)
class Installation:
    """One place that holds NVRTC, CUDA's headers or both.

    Attributes:
        library: path of libnvrtc; "" if it is not here.
        major: CUDA major version of the library, 0 without one.
        include_dir: folder with CUDA's number-format headers and what they include; "" if it is not here.
    """

    library: str
    major: int
    include_dir: str


def find_installations() -> tuple[list[Installation], list[str]]:
    """Every installation, the one to prefer first; and notes on environment variables that name none."""
    found: list[Installation] = []
    notes: list[str] = []
    for name in _ENVIRONMENT:
        value = os.environ.get(name)
        if not value:
            continue
        here = list(_of_root(Path(value)))
        found += here
        if not any(installation.library for installation in here):
            notes.append(f"{name}={value} holds no NVRTC and is ignored")
    for folder in _python_folders():
        found += _of_wheels(folder / "nvidia")
    for root in _system_roots():
        found += _of_root(root)
    return found, notes


def _of_root(root: Path) -> Iterator[Installation]:
    """A toolkit's root: libraries of its library folders, and its headers."""
    include_dir = next((str(root / name) for name in _HEADER_DIRS if is_header_dir(root / name)), "")
    yield from _installations([root / name for name in _LIBRARY_DIRS], include_dir)


def _of_wheels(nvidia: Path) -> Iterator[Installation]:
    """The `nvidia` folder of site-packages: cu13/ holds all of CUDA 13; CUDA 12 has one folder for each wheel."""
    for root in sorted(nvidia.glob("cu[0-9]*"), reverse=True):
        yield from _of_root(root)
    headers = nvidia / "cuda_runtime" / "include"
    include_dir = str(headers) if is_header_dir(headers) else ""
    yield from _installations([nvidia / "cuda_nvrtc" / "lib"], include_dir)


def _installations(folders: Iterable[Path], include_dir: str) -> Iterator[Installation]:
    """Each library with these headers, or the headers alone, which may serve a library of elsewhere."""
    libraries = [item for folder in folders for item in _libraries(folder)]
    for path, major in libraries:
        yield Installation(path, major, include_dir)
    if include_dir and not libraries:
        yield Installation("", 0, include_dir)


def _libraries(folder: Path) -> Iterator[tuple[str, int]]:
    """Paths and major versions of the distinct libnvrtc in `folder`, newest first; its links name one file."""
    seen: dict[str, int] = {}
    for path in folder.glob("libnvrtc.so.*"):
        match = _LIBRARY.fullmatch(path.name)
        if match:
            # the real path: the loader looks for the library of built-ins beside the file it was given
            seen[str(path.resolve())] = int(match[1])
    yield from sorted(seen.items(), key=lambda item: item[1], reverse=True)


def _python_folders() -> Iterator[Path]:
    yield from (Path(entry) for entry in sys.path if entry and os.path.isdir(entry))


def _system_roots() -> Iterator[Path]:
    for root in (sys.prefix, os.environ.get("CONDA_PREFIX", ""), "/usr/local/cuda", "/usr"):
        if root:
            yield Path(root)


def is_header_dir(folder: Path) -> bool:
    """Whether CUDA's number-format headers are here together with those that they include."""
    return all((folder / name).is_file() for name in _NEEDED_HEADERS)


def header_version(include_dir: str) -> tuple[int, int] | None:
    """CUDA version of the headers, from the definition of CUDART_VERSION; None if it is not there."""
    try:
        with open(Path(include_dir) / "cuda_runtime_api.h", errors="replace") as file:
            match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", file.read(32768))
    except OSError:
        return None
    return (int(match[1]) // 1000, int(match[1]) % 1000 // 10) if match else None


def cupy_major() -> int:
    """CUDA major version that the installed CuPy wheel was built for, without importing it; 0 if it does not say."""
    for folder in _python_folders():
        try:
            text = (folder / "cupy" / ".data" / "_wheel.json").read_text()
            return int(str(json.loads(text)["cuda"]).partition(".")[0])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return 0
