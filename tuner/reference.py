"""The reference: which formats `reference.cu` is compiled for, the structs its kernels take, and the compilation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kt.errors import CompilerUnavailable
from kt.problems import Problem
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.toolchain import check_target, toolchain

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KERNELS", "STRUCTS", "compile_reference", "pack", "reference_definitions"]

SOURCE = Path(__file__).with_name("reference.cu")

_FORMATS = {
    "fp32": "Fp32", "tf32": "Tf32", "fp64": "Fp64", "fp16": "Fp16", "bf16": "Bf16", "int8": "Int8", "int32": "Int32",
    "fp8_e4m3": "E4m3", "fp8_e5m2": "E5m2",
}  # fmt: skip

# By accumulator: what sums exact operands, what sums random ones, and how the random reference is kept.
_SUMS = {
    "fp16": ("float", "double", "Fp32"),
    "fp32": ("float", "double", "Fp32"),
    "fp32_fast": ("float", "double", "Fp32"),
    "fp64": ("double", "double", "Fp64"),
    "int32": ("int", "int", "Int32"),
}

# The structs of reference.cu: field names in order. All are 8 bytes: whole numbers, but for these:
FLOATING = frozenset({"density", "alpha", "beta", "product", "relative", "absolute"})
STRUCTS: dict[str, tuple[str, ...]] = {
    name: tuple(fields.split())
    for name, fields in {
        "FillPattern": "start words pattern",
        "FillMultiprocessor": "words pattern",
        "FillMatrix": "base rows columns ld stride batch seed magnitude density",
        "Norms": "base norms count length vector_step element_step stride batch",
        "Multiply": "a b c result scratch alpha beta a_row a_column a_batch b_row b_column b_batch ldc c_batch"
        " m n k batch splits",
        "Compare": "c reference row_norms column_norms report m n batch ldc c_batch product relative absolute",
        "CheckPattern": "base report first last rows columns ld stride batch pattern",
        "Digest": "start words sum",
    }.items()
}
KERNELS = {
    "fill_pattern": "FillPattern", "fill_multiprocessor": "FillMultiprocessor",
    "fill_in": "FillMatrix", "fill_out": "FillMatrix", "norms_in": "Norms",
    "multiply_exact": "Multiply", "multiply_true": "Multiply", "finish_exact": "Multiply", "finish_true": "Multiply",
    "compare_exact": "Compare", "compare_true": "Compare", "check_pattern": "CheckPattern", "digest": "Digest",
}  # fmt: skip


def pack(kernel: str, values: dict[str, int | float]) -> np.ndarray[Any, Any]:
    """The struct that `kernel` takes, as the 0-d array that CuPy passes by value; every field must be given."""
    import numpy as np

    fields = STRUCTS[KERNELS[kernel]]
    if set(values) != set(fields):
        raise TypeError(f"{kernel} takes {', '.join(fields)}")
    packed = np.zeros((), np.dtype([(name, "f8" if name in FLOATING else "i8") for name in fields]))
    for name, value in values.items():
        packed[name] = value
    return packed


def reference_definitions(problem: Problem) -> tuple[str, ...]:
    """The macros that make `reference.cu` serve the formats of `problem`, as compiler options."""
    exact, true, wide = _SUMS[problem.accumulator]
    macros = {
        "FORMAT_IN": _FORMATS[problem.dtype],
        "FORMAT_OUT": _FORMATS[problem.out_dtype],
        "SUM_EXACT": exact,
        "SUM_TRUE": true,
        "WIDE": wide,
    }
    return tuple(f"--define-macro={name}={value}" for name, value in macros.items())


@cache
def compile_reference(definitions: tuple[str, ...], arch: str) -> bytes:
    """The cubin of `reference.cu`. It includes no header, so it compiles wherever NVRTC is.

    Raises:
        CompilerUnavailable: there is no NVRTC, or it does not compile for `arch`.
    """
    tools = toolchain()
    check_target(tools, arch)
    load_builtins(tools.library)
    options = (f"--gpu-architecture={arch}", "-std=c++17", *definitions)
    result = Nvrtc(tools.library).compile(SOURCE.read_text(), options, SOURCE.name)
    if result.result != 0:
        raise CompilerUnavailable(f"reference.cu does not compile for {arch}: {result.log or result.result_name}")
    return result.cubin
