"""What cuBLAS and cuBLASLt are documented to want of a problem, for the message that says why there is no baseline.

From NVIDIA's documentation of cublasGemmEx and cublasLtMatmul, in kt's row-major words: what they call TN is layout nt.
Nothing is refused on these grounds; the library is asked, and its answer is explained.
"""

from __future__ import annotations

from kt.problems import Problem

__all__ = ["unmet_requirements"]

_INT8_MULTIPLE = 4
_FP8_ALIGNMENT = 16


def unmet_requirements(library: str, problem: Problem) -> str:
    """Why `library` ("cublas" or "cublaslt") is known to refuse `problem`; "" if nothing is known."""
    if problem.accumulator == "fp16" and problem.out_dtype != "fp16":
        return "sums in fp16 give C in fp16 only"
    if problem.dtype.startswith("fp8"):
        return _of_fp8(library, problem)
    if problem.dtype == "int8":
        return _of_int8(library, problem)
    return ""


def _of_fp8(library: str, problem: Problem) -> str:
    if library == "cublas":
        return "it has no 8-bit floats; cublaslt does"
    if problem.dtype == "fp8_e5m2":
        return "it does not multiply e5m2 by e5m2"
    if problem.layout != "nt":
        return "of 8-bit floats it takes layout nt only, on most GPUs"
    if min(problem.alignment(operand) for operand in "abc") < _FP8_ALIGNMENT:
        return f"it wants rows of 8-bit floats, and of C, aligned to {_FP8_ALIGNMENT} bytes"
    return ""


def _of_int8(library: str, problem: Problem) -> str:
    if library == "cublaslt" and problem.layout != "nt":
        return "of int8 it takes layout nt only"
    extents = ["k", "n"] if library == "cublaslt" else []
    pitches = ["lda", "ldb", *(["ldc"] if library == "cublaslt" else [])]
    odd = [name for name in (*extents, *pitches) if getattr(problem, name) % _INT8_MULTIPLE]
    return f"of int8 it wants multiples of {_INT8_MULTIPLE}, and {', '.join(odd)} {_is(odd)} not" if odd else ""


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
