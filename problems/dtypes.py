"""The number formats of GEMM operands, and what each accumulates in and produces by default."""

from dataclasses import dataclass

__all__ = ["ACCUMULATORS", "DTYPES", "Dtype"]


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
        Dtype("fp8_e4m3", 1, "__nv_fp8_e4m3", ("fp32",), ("bf16", "fp16", "fp32"), _FP8),
        Dtype("fp8_e5m2", 1, "__nv_fp8_e5m2", ("fp32",), ("bf16", "fp16", "fp32"), _FP8),
    )
}

# The formats that an accumulator can have, with its size in bytes and its CUDA C++ type.
ACCUMULATORS: dict[str, tuple[int, str]] = {
    "fp16": (2, "__half"),
    "fp32": (4, "float"),
    "fp64": (8, "double"),
    "int32": (4, "int"),
}

OUTPUT_BYTES: dict[str, int] = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "int32": 4}
