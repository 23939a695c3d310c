"""The few functions of cuBLAS and cuBLASLt that the baselines call, through ctypes.

CuPy's binding refuses to be captured into CUDA graphs, and Python wrappers of cuBLASLt want arrays, which CuPy does not
have for bfloat16 and fp8. The C interface takes addresses, and is the same in CUDA 11 to 13.
"""

from __future__ import annotations

import ctypes
import warnings
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_int, c_int64, c_longlong, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from kt.problems import Problem
from kt.tuner.extras import install
from kt.tuner.nvrtc_search import cupy_major
from kt.tuner.refinement import PeerNotInstalled, PeerUnavailable

__all__ = ["ALGORITHMS", "Algorithm", "Cublas", "CublasLt", "Formats", "formats_of", "library_path"]

_LIBRARIES = {"cublas": "cublas", "cublaslt": "cublasLt"}  # by the name of the peer
ALGORITHMS = 24  # heuristic candidates that cuBLASLt is asked for

_FP32, _FP64, _FP16, _INT8, _INT32, _BF16, _E4M3, _E5M2 = 0, 1, 2, 3, 10, 14, 28, 29  # cudaDataType_t
_DATA_TYPES = {
    "fp32": _FP32, "tf32": _FP32, "fp64": _FP64, "fp16": _FP16, "int8": _INT8, "int32": _INT32, "bf16": _BF16,
    "fp8_e4m3": _E4M3, "fp8_e5m2": _E5M2,
}  # fmt: skip
_COMPUTE = {"fp16": 64, "fp32": 68, "fp32_fast": 68, "fp64": 70, "int32": 72}  # cublasComputeType_t, by accumulator
_COMPUTE_TF32 = 77
# types of alpha and beta, by accumulator
_SCALARS = {"fp16": _FP16, "fp32": _FP32, "fp32_fast": _FP32, "fp64": _FP64, "int32": _INT32}
_OP_N, _OP_T = 0, 1
_MOST_INT = 2**31 - 1
_DEFAULT_MATH = 0  # fp32 is summed in fp32: TF32 has to be asked for
_DEFAULT_ALGORITHM = -1


@dataclass(frozen=True)
class Formats:
    """What cuBLAS calls the formats of a problem."""

    inputs: int
    output: int
    compute: int
    scalars: int


def formats_of(problem: Problem) -> Formats:
    compute = _COMPUTE_TF32 if problem.dtype == "tf32" else _COMPUTE[problem.accumulator]
    return Formats(_DATA_TYPES[problem.dtype], _DATA_TYPES[problem.out_dtype], compute, _SCALARS[problem.accumulator])


def transposed(letter: str) -> int:
    """The operation on an operand as cuBLAS sees it.

    cuBLAS is column-major. Row-major C = op(A) op(B) is column-major C' = op(B)' op(A)': the operands change places,
    and one that lies as its letter `n` says needs no transposition.
    """
    return _OP_N if letter == "n" else _OP_T


class Cublas:
    """libcublas with one handle.

    Raises:
        PeerUnavailable: it is not installed, or does not start.
    """

    def __init__(self) -> None:
        self._lib = _library("cublas")
        self._lib.cublasGetStatusName.restype = c_char_p
        head: list[Any] = [c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p]
        operand: list[Any] = [c_void_p, c_int, c_int]
        stride: list[Any] = [c_longlong]
        self._lib.cublasGemmEx.argtypes = [*head, *operand, *operand, c_void_p, *operand, c_int, c_int]
        self._lib.cublasGemmStridedBatchedEx.argtypes = [
            *head, *operand, *stride, *operand, *stride, c_void_p, *operand, *stride, c_int, c_int, c_int,
        ]  # fmt: skip
        self._handle = c_void_p()
        self.check(self._lib.cublasCreate_v2(ctypes.byref(self._handle)))
        self.check(self._lib.cublasSetMathMode(self._handle, _DEFAULT_MATH))

    def use(self, stream: int, workspace: int, size: int) -> None:
        """Work on `stream`. The workspace is ours: left alone, cuBLAS would put allocations into captured graphs."""
        self.check(self._lib.cublasSetStream_v2(self._handle, c_void_p(stream)))
        self.check(self._lib.cublasSetWorkspace_v2(self._handle, c_void_p(workspace), c_size_t(size)))

    def arguments(self, problem: Problem, pointers: dict[str, int], alpha: int, beta: int) -> tuple[Any, ...]:
        """The arguments of `gemm` for these device addresses; `alpha` and `beta` are host addresses."""
        if max(problem.lda, problem.ldb, problem.ldc) > _MOST_INT:
            raise PeerUnavailable("cuBLAS: leading dimensions of 2**31 and more are not supported")
        formats = formats_of(problem)

        def operand(name: str, dtype: int) -> list[int]:
            strides = [getattr(problem, f"stride_{name}")] if problem.batch > 1 else []
            return [pointers[name], dtype, getattr(problem, f"ld{name}"), *strides]

        return (
            self._handle, transposed(problem.layout[1]), transposed(problem.layout[0]), problem.n, problem.m, problem.k,
            alpha, *operand("b", formats.inputs), *operand("a", formats.inputs),
            beta, *operand("c", formats.output), *([problem.batch] if problem.batch > 1 else []),
            formats.compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def gemm(self, batched: bool, arguments: tuple[Any, ...]) -> None:
        """Enqueue one product."""
        function = self._lib.cublasGemmStridedBatchedEx if batched else self._lib.cublasGemmEx
        self.check(function(*arguments))

    def check(self, status: int) -> None:
        """Raise PeerUnavailable, with cuBLAS's name of the status, unless it is success."""
        if status:
            name = self._lib.cublasGetStatusName(status)
            raise PeerUnavailable(f"cuBLAS: {name.decode() if name else status}")


class Algorithm(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`: one way to compute a product."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", ctypes.c_float),
        ("reserved", c_int * 4),
    )


class CublasLt:
    """libcublasLt with one handle, and the descriptions of one problem.

    Raises:
        PeerUnavailable: it is not installed, or cannot describe the problem.
    """

    # attributes of descriptors, as cublasLt.h numbers them
    _TRANS_A, _TRANS_B = 3, 4
    _FAST_ACCUMULATION = 25
    _BATCH_COUNT, _BATCH_OFFSET = 5, 6
    _MAX_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)

    def __init__(self, problem: Problem) -> None:
        self._lib = _library("cublasLt")
        self._lib.cublasLtGetStatusName.restype = c_char_p
        self._problem = problem
        self._owned: list[tuple[str, c_void_p]] = []
        formats = formats_of(problem)
        self._handle = self._create("", "cublasLtCreate", "cublasLtDestroy")
        self._operation = self._described("MatmulDesc", c_int(formats.compute), c_int(formats.scalars))
        self._set("MatmulDesc", self._operation, self._TRANS_A, c_int(transposed(problem.layout[1])))
        self._set("MatmulDesc", self._operation, self._TRANS_B, c_int(transposed(problem.layout[0])))
        if problem.dtype.startswith("fp8"):
            # Like is compared with like: as tensor cores sum them, or with a promotion to fp32 now and then.
            fast = ctypes.c_int8(problem.accumulator == "fp32_fast")
            self._set("MatmulDesc", self._operation, self._FAST_ACCUMULATION, fast)
        self._layouts = {name: self._layout(name, formats) for name in "abc"}
        pointers = [c_void_p] * 12
        self._lib.cublasLtMatmul.argtypes = [*pointers, c_void_p, c_void_p, c_size_t, c_void_p]

    def algorithms(self, workspace_bytes: int) -> list[Algorithm]:
        """What the library's heuristics offer, best guess first."""
        preference = self._described("MatmulPreference")
        self._set("MatmulPreference", preference, self._MAX_WORKSPACE, c_size_t(workspace_bytes))
        alignment = min(256, self._problem.base_alignment)
        for attribute in self._ALIGNMENTS:
            self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(alignment))
        found, count = (Algorithm * ALGORITHMS)(), c_int()
        b, a, c = (self._layouts[name] for name in "bac")
        self._check(
            self._lib.cublasLtMatmulAlgoGetHeuristic(
                self._handle, self._operation, b, a, c, c, preference, ALGORITHMS, found, ctypes.byref(count)
            )
        )
        return [algorithm for algorithm in found[: count.value] if algorithm.state == 0]

    def arguments(
        self, pointers: dict[str, int], alpha: int, beta: int, algorithm: Algorithm, workspace: int, stream: int
    ) -> tuple[Any, ...]:
        """The arguments of `matmul`; `algorithm` must outlive them."""
        b, a, c = (self._layouts[name] for name in "bac")
        return (
            self._handle, self._operation, alpha, pointers["b"], b, pointers["a"], a, beta, pointers["c"], c,
            pointers["c"], c, ctypes.addressof(algorithm), workspace, algorithm.workspace_bytes, stream,
        )  # fmt: skip

    def matmul(self, arguments: tuple[Any, ...]) -> None:
        """Enqueue one product."""
        self._check(self._lib.cublasLtMatmul(*arguments))

    def close(self) -> None:
        """Free the descriptions and the handle."""
        while self._owned:
            destroy, item = self._owned.pop()
            getattr(self._lib, destroy)(item)

    def _layout(self, name: str, formats: Formats) -> c_void_p:
        """An operand as it lies in memory: rows as stored are the columns that cuBLASLt sees."""
        problem = self._problem
        rows, columns = problem.stored_extents[name]
        dtype = formats.output if name == "c" else formats.inputs
        pitch = getattr(problem, f"ld{name}")
        layout = self._described("MatrixLayout", c_int(dtype), c_uint64(columns), c_uint64(rows), c_int64(pitch))
        if problem.batch > 1:
            self._set("MatrixLayout", layout, self._BATCH_COUNT, c_int(problem.batch))
            self._set("MatrixLayout", layout, self._BATCH_OFFSET, c_int64(getattr(problem, f"stride_{name}")))
        return layout

    def _described(self, kind: str, *arguments: Any) -> c_void_p:
        return self._create(kind, f"cublasLt{kind}Create", f"cublasLt{kind}Destroy", *arguments)

    def _create(self, kind: str, create: str, destroy: str, *arguments: Any) -> c_void_p:
        item = c_void_p()
        function = getattr(self._lib, create)
        function.argtypes = [POINTER(c_void_p), *(type(argument) for argument in arguments)]
        self._check(function(ctypes.byref(item), *arguments))
        self._owned.append((destroy, item))
        return item

    def _set(self, kind: str, item: c_void_p, attribute: int, value: Any) -> None:
        function = getattr(self._lib, f"cublasLt{kind}SetAttribute")
        self._check(function(item, attribute, ctypes.byref(value), c_size_t(ctypes.sizeof(value))))

    def _check(self, status: int) -> None:
        if status:
            name = self._lib.cublasLtGetStatusName(status)
            raise PeerUnavailable(f"cuBLASLt: {name.decode() if name else status}")


def library_path(peer: str) -> str:
    """The file of a peer's library, which is loaded for it.

    Raises:
        PeerNotInstalled: it is not there.
    """
    return str(_library(_LIBRARIES[peer])._name)


@cache
def _library(name: str) -> ctypes.CDLL:
    """The library from a Python wheel, a toolkit, or wherever the dynamic linker finds it."""
    for candidate in [*_found(name), f"lib{name}.so.13", f"lib{name}.so.12"]:
        with suppress(OSError):
            return ctypes.CDLL(candidate)
    raise PeerNotInstalled(f"lib{name}", install(cupy_major(), libraries=True))


def _found(name: str) -> list[str]:
    """Where CUDA's own search finds the library, with what it depends on loaded; kt's extras bring it along."""
    try:
        search = import_module("cuda.pathfinder")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that CUDA_PATH and CUDA_HOME differ: which is taken, `kt doctor` says
            return [search.load_nvidia_dynamic_lib(name).abs_path]
    except (ImportError, RuntimeError):
        return []
