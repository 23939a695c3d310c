"""Arrays on a GPU, as kt sees them: an address, and a form that decides which kernel is for it.

CuPy's arrays and PyTorch's tensors are read by their own attributes, which takes about a microsecond; anything else
with `__dlpack__` by the struct of that protocol, which takes several.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kt.errors import InputError

__all__ = ["Array", "Form", "Reading", "read", "reader_of"]


class Form(NamedTuple):
    """What an array is, address apart: cheap to make and to look up, for it is made in every call.

    `kind`: "cupy", "torch" or "dlpack". `strides` are in bytes of a CuPy array, else in elements. `dtype` is whatever
    the library has.
    """

    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device: int


Reading = tuple[int, Form]
Reader = Callable[[Any], Reading]


@dataclass(frozen=True)
class Array:
    """A form in kt's own terms.

    Attributes:
        strides: elements.
        dtype: kt's name of the format, "" for one that kt does not have.
        bytes: of an element; 0 where kt does not know.
        device: ordinal of the GPU.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    bytes: int
    device: int

    @classmethod
    def of(cls, form: Form) -> Array:
        """The array of a form."""
        name, size = _DTYPES.get(_plain_name(form.dtype), ("", 0))
        strides = form.strides
        if form.kind == "cupy":
            strides = tuple(stride // form.dtype.itemsize for stride in form.strides)
        return cls(tuple(form.shape), tuple(strides), name, size, form.device)


# kt's name and the bytes of an element, by the name that libraries have in common.
_DTYPES = {
    "float32": ("fp32", 4), "float64": ("fp64", 8), "float16": ("fp16", 2), "bfloat16": ("bf16", 2),
    "int8": ("int8", 1), "int32": ("int32", 4), "float8_e4m3fn": ("fp8_e4m3", 1), "float8_e5m2": ("fp8_e5m2", 1),
    "uint8": ("", 1),
}  # fmt: skip


def _plain_name(dtype: Any) -> str:
    """`float32` of a numpy data type, of `torch.float32`, and of what DLPack says."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def read(array: Any) -> Reading:
    """Address and form.

    Raises:
        InputError: it is no array, or not on a GPU.
    """
    return reader_of(type(array))(array)


def reader_of(kind: type) -> Reader:
    """What reads arrays of a type; the choice is made once for each."""
    reader = _READERS.get(kind)
    if reader is None:
        reader = _READERS[kind] = _chosen(kind)
    return reader


_READERS: dict[type, Reader] = {}


def _chosen(kind: type) -> Reader:
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "cupy" in packages and hasattr(kind, "data"):
        return _read_cupy
    if "torch" in packages and hasattr(kind, "data_ptr"):
        return _read_torch
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _read_dlpack
    name = kind.__name__
    raise InputError(
        f"kt.gemm takes arrays on a GPU, and {name} is none that it knows",
        hint="arrays of CuPy, tensors of PyTorch, and whatever else has __dlpack__",
    )


def _read_cupy(array: Any) -> Reading:
    data = array.data
    return data.ptr, Form("cupy", array.shape, array.strides, array.dtype, data.device_id)


def _read_torch(tensor: Any) -> Reading:
    device = tensor.get_device()
    if device < 0:
        raise _elsewhere("a tensor")
    return tensor.data_ptr(), Form("torch", tensor.shape, tensor.stride(), tensor.dtype, device)


def _elsewhere(what: str) -> InputError:
    return InputError(f"{what} is not on a GPU", hint="copy it there first: cupy.asarray(x), or x.cuda()")


# --- DLPack ---------------------------------------------------------------------------------------------------------

_CUDA, _CUDA_MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged: device types of the protocol
# (code, bits) of the protocol; codes: 0 signed, 1 unsigned, 2 float, 4 bfloat, 10 and 12 the 8-bit floats.
_DLPACK_DTYPES = {
    (0, 8): "int8", (0, 32): "int32", (1, 8): "uint8", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
    (4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
}  # fmt: skip


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class _Dtype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _read_dlpack(array: Any) -> Reading:
    """By the protocol; the capsule goes back unused, and with it the array's memory is as before."""
    from kt.runtime.streams import current_stream

    kind, ordinal = array.__dlpack_device__()
    if int(kind) not in (_CUDA, _CUDA_MANAGED):
        raise _elsewhere(f"an array of {type(array).__module__}")
    # The producer makes its work visible to the stream that kt launches on; 1 is the default stream in the protocol.
    capsule = array.__dlpack__(stream=current_stream("dlpack", int(ordinal)) or 1)
    tensor = _Tensor.from_address(_pointer_in(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    dtype = _DLPACK_DTYPES.get((tensor.dtype.code, tensor.dtype.bits), "") if tensor.dtype.lanes == 1 else ""
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else _dense(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return address, Form("dlpack", shape, strides, dtype, int(ordinal))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of rows one behind the other, which the protocol may leave out."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))
