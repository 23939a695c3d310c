"""The number formats of GEMM operands, and what each accumulates in and produces by default."""

from dataclasses import dataclass

__all__ = ["ACCUMULATORS", "DTYPES", "PROMOTED_EVERY", "Dtype"]


@dataclass(frozen=True)
class Dtype:
    """One operand format.

    Attributes:
        name: kt's name for it, as in shapes.yaml.
        bytes: size of one element in memory, in bytes.
        cuda: the CUDA C++ type that kernels use for an element of it.
        accumulators: the formats that products may be summed in; the first is the default.
        outputs: the formats that C may have; the first is the default.
        header: the CUDA header that declares `cuda`, or "" for a built-in type.
    """

    name: str
    bytes: int
    cuda: str
    accumulators: tuple[str, ...]
    outputs: tuple[str, ...]
    header: str = ""


_FP16 = "cuda_fp16.h"
_BF16 = "cuda_bf16.h"
_FP8 = "cuda_fp8.h"

DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("fp32", 4, "float", ("fp32",), ("fp32",)),
        Dtype("tf32", 4, "float", ("fp32",), ("fp32",)),
        Dtype("fp64", 8, "double", ("fp64",), ("fp64",)),
        Dtype("fp16", 2, "__half", ("fp32", "fp16"), ("fp16", "fp32"), _FP16),
        Dtype("bf16", 2, "__nv_bfloat16", ("fp32",), ("bf16", "fp32"), _BF16),
        Dtype("int8", 1, "signed char", ("int32",), ("int32",)),
        Dtype("fp8_e4m3", 1, "__nv_fp8_e4m3", ("fp32", "fp32_fast"), ("bf16", "fp16", "fp32"), _FP8),
        Dtype("fp8_e5m2", 1, "__nv_fp8_e5m2", ("fp32", "fp32_fast"), ("bf16", "fp16", "fp32"), _FP8),
    )
}

# The formats that an accumulator can have, with its size in bytes and its CUDA C++ type. fp32_fast is for 8-bit floats:
# sums are fp32 numbers, of which the tensor cores of Ada and Hopper may keep 14 bits however long they are (cuBLASLt's
# CUBLASLT_MATMUL_DESC_FAST_ACCUM, PyTorch's use_fast_accum). With fp32, at most PROMOTED_EVERY products are summed so.
ACCUMULATORS: dict[str, tuple[int, str]] = {
    "fp16": (2, "__half"),
    "fp32": (4, "float"),
    "fp32_fast": (4, "float"),
    "fp64": (8, "double"),
    "int32": (4, "int"),
}

PROMOTED_EVERY = 128  # products of 8-bit floats, after which tensor cores' short sums are added to those of fp32

OUTPUT_BYTES: dict[str, int] = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "int32": 4}
