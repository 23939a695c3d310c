"""Where results go: new arrays of the library that the operands are of, and what was there before."""

from __future__ import annotations

import sys
from typing import Any

from kt.errors import InputError
from kt.problems import DTYPES
from kt.runtime.arrays import Array, Form
from kt.runtime.problem_of import operand_format, result_shape, rows_apart
from kt.tuner.cuda import cupy, runtime

__all__ = ["copy_matrix", "new_output"]

_NAMES = {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16", "int32": "int32"}


def new_output(a: Any, form_a: Form, array_a: Array, array_b: Array, dtype: str) -> Any:
    """An array for A B in the usual format of the operands': a tensor of PyTorch if A is one, else an array of CuPy.

    Raises:
        InputError: A and B do not fit together, or CuPy has no such format.
    """
    shape = result_shape(array_a, array_b)
    name = _NAMES[DTYPES[operand_format(array_a, array_b, dtype)].outputs[0]]
    if form_a.kind == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, name), device=a.device)
    with cupy.cuda.Device(form_a.device):
        return cupy.empty(shape, _cupy_dtype(name))


def _cupy_dtype(name: str) -> Any:
    """CuPy's data type; that of bf16 comes with another package."""
    if name != "bfloat16":
        return name
    try:
        from ml_dtypes import bfloat16  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise InputError("CuPy has no bf16 by itself", hint="give out, or install ml_dtypes") from None
    return bfloat16


def copy_matrix(source: Array, source_address: int, target: Array, target_address: int, stream: int) -> None:
    """Copy C, all batches, on the stream.

    Raises:
        InputError: they differ in shape, format or GPU, or rows are not contiguous.
    """
    alike = (source.shape, source.dtype, source.device) == (target.shape, target.dtype, target.device)
    if not alike or not source.dtype:
        raise InputError(f"c must be as out is, {target.shape} of {target.dtype} on GPU {target.device}")
    rows, columns = source.shape[-2:]
    batch = source.shape[0] if len(source.shape) == 3 else 1
    size = source.bytes
    pitches = rows_apart("c", source) * size, rows_apart("out", target) * size
    for index in range(batch):
        offsets = [index * array.strides[0] * size if batch > 1 else 0 for array in (source, target)]
        runtime.memcpy2DAsync(
            target_address + offsets[1], pitches[1], source_address + offsets[0], pitches[0], columns * size, rows,
            runtime.memcpyDeviceToDevice, stream,
        )  # fmt: skip
