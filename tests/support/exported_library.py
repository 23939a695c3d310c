"""An exported header as a shared library, called as kt calls its own kernels: so that it is verified as they are."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kt.problems import LAYOUTS, Problem

__all__ = ["FORMATS", "FOUND", "ExportedLibrary", "build", "query_numbers"]

FORMATS = ("standard", "fp32", "tf32", "fp64", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "int32", "fp32_fast")
FOUND = ("exact", "neighbour", "standard", "generic", "nothing")
STATUS = ("ok", "bad_argument", "not_supported", "workspace_too_small", "cuda_error")

_SOURCE = """
#include "kt_gemm.cuh"
namespace {
kt::Query query_of(const long long* numbers) {
  kt::Query q;
  q.m = static_cast<int>(numbers[0]);
  q.n = static_cast<int>(numbers[1]);
  q.k = static_cast<int>(numbers[2]);
  q.dtype = static_cast<kt::Format>(numbers[3]);
  q.layout = static_cast<kt::Layout>(numbers[4]);
  q.batch = static_cast<int>(numbers[5]);
  q.lda = numbers[6];
  q.ldb = numbers[7];
  q.ldc = numbers[8];
  q.stride_a = numbers[9];
  q.stride_b = numbers[10];
  q.stride_c = numbers[11];
  q.accumulator = static_cast<kt::Format>(numbers[12]);
  q.out_dtype = static_cast<kt::Format>(numbers[13]);
  q.base_alignment = numbers[14];
  return q;
}
}  // namespace

extern "C" long long kt_workspace(const long long* numbers) { return kt::workspace_bytes(query_of(numbers)); }

extern "C" int kt_gemm(const long long* numbers, double alpha, const void* a, const void* b, double beta, void* c,
                       void* workspace, long long bytes, cudaStream_t stream) {
  const kt::Result result = kt::gemm(query_of(numbers), alpha, a, b, beta, c, workspace, bytes, stream);
  return static_cast<int>(result.status) * 10 + static_cast<int>(result.found) + 1000 * static_cast<int>(result.error);
}
"""


def query_numbers(problem: Problem) -> list[int]:
    """The fields of `kt::Query` in its order, as whole numbers."""
    strides = [getattr(problem, f"{kind}{name}") for kind in ("ld", "stride_") for name in "abc"]
    formats = [FORMATS.index(problem.dtype), LAYOUTS.index(problem.layout)]
    ends = [FORMATS.index(problem.accumulator), FORMATS.index(problem.out_dtype), problem.base_alignment]
    return [problem.m, problem.n, problem.k, *formats, problem.batch, *strides, *ends]


def build(folder: Path, header: str, arch: str, options: Sequence[str] = ()) -> Path:
    """The library of a header, made with nvcc.

    Args:
        folder: where it is built.
        header: text of the header.
        arch: as nvcc names it, e.g. "sm_90a".
        options: further options of nvcc.
    """
    (folder / "kt_gemm.cuh").write_text(header)
    (folder / "library.cu").write_text(_SOURCE)
    number = arch.removeprefix("sm_")
    target = f"arch=compute_{number},code=sm_{number}"
    command = ["nvcc", "-std=c++17", "-O2", "-gencode", target, "-shared", "-Xcompiler", "-fPIC", *options]
    done = subprocess.run(
        [*command, "library.cu", "-o", "library.so"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-6000:])
    return folder / "library.so"


class ExportedLibrary:
    """The functions of a header, from the library that `build` has made of it for one GPU."""

    def __init__(self, built: Path) -> None:
        library = ctypes.CDLL(str(built))
        self._gemm, self._workspace = library.kt_gemm, library.kt_workspace
        self._workspace.restype = ctypes.c_longlong
        pointer, number_type = ctypes.c_void_p, ctypes.c_double
        self._gemm.argtypes = [
            pointer, number_type, pointer, pointer, number_type, pointer, pointer, ctypes.c_longlong, pointer,
        ]  # fmt: skip

    def workspace_bytes(self, problem: Problem) -> int:
        return int(self._workspace(self._numbers(problem)))

    def gemm(
        self, problem: Problem, pointers: dict[str, int], scalars: tuple[float, float], workspace: int, stream: int
    ) -> str:
        """Enqueues a product; says where its configuration is from.

        Raises:
            RuntimeError: the header refuses it.
        """
        code = self._gemm(
            self._numbers(problem), scalars[0], pointers["a"], pointers["b"], scalars[1], pointers["c"],
            pointers["workspace"], workspace, stream,
        )  # fmt: skip
        error, status, found = code // 1000, code // 10 % 100, code % 10
        if status:
            raise RuntimeError(f"{problem.label}: {STATUS[status]}, CUDA error {error}")
        return FOUND[found]

    @staticmethod
    def _numbers(problem: Problem) -> ctypes.Array[ctypes.c_longlong]:
        numbers = query_numbers(problem)
        return (ctypes.c_longlong * len(numbers))(*numbers)
