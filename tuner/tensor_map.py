"""Tensor maps: what the tensor memory accelerator (TMA) of sm_90 must know of a matrix, encoded by the driver library.

The driver is called through ctypes: it wants its 128 bytes at an address that is a multiple of 64 (128 since CUDA 13),
which no Python binding promises. The bytes go to a kernel by value, as a `numpy.void`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from kt.problems import Problem
from kt.search_spaces.space import RowClass, TensorMap
from kt.wording import plural

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "TMA_ALIGNMENT",
    "MapFigures",
    "TensorMapRefused",
    "encode",
    "encoder",
    "map_figures",
    "tensor_map_argument",
]

TMA_ALIGNMENT = 16  # of addresses and of strides in bytes
_BYTES = 128
_BOX = 256  # elements along one dimension of a box, at most
_STRIDE = 2**40  # bytes between rows or batches, less than this

# Values of cuda.h. The formats matter for arithmetic in memory, which no kernel asks for, and for rounding to tf32.
_FORMATS = {1: 0, 2: 1, 4: 2}  # CU_TENSOR_MAP_DATA_TYPE_UINT8, _UINT16, _UINT32
_TF32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: loads round fp32 to tf32
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B: what L2 reads from device memory at once


class TensorMapRefused(Exception):
    """TMA cannot address the matrix, or the driver refuses the map; the text has the figures."""


@dataclass(frozen=True)
class MapFigures:
    """What the encoder is told of a matrix, address apart; `encode` says what each figure is.

    `offset`: bytes from the start of the workspace, None for the operand itself. `rows`: the class of rows that the map
    shows, None for all of them; extents and strides are those of all.
    """

    operand: str
    offset: int | None
    extents: tuple[int, int, int]
    strides: tuple[int, int]
    box: tuple[int, int]
    swizzle: int
    element_bytes: int
    rounds_tf32: bool
    rows: RowClass | None = None

    def address(self, pointers: Mapping[str, int]) -> int:
        """Of the matrix's first element, by the addresses of "a", "b", "c" and "workspace"."""
        return pointers[self.operand] if self.offset is None else pointers["workspace"] + self.offset

    def shown_at(self, address: int) -> MapFigures:
        """The figures of what the map shows of a matrix whose first element is at `address`: of a class of rows, those
        of the matrix that it is."""
        if self.rows is None:
            return self
        columns, rows, batches = self.extents
        first, pitch = self._first_row(address), self.rows.of * self.strides[0]
        extents = (columns + self._early_bytes // self.element_bytes, -(-(rows - first) // self.rows.of), batches)
        return replace(self, extents=extents, strides=(pitch, max(1, extents[1]) * pitch))

    def begin(self, address: int) -> int:
        """Where what the map shows begins, if the matrix's first element is at `address`."""
        if self.rows is None:
            return address
        return address + self._first_row(address) * self.strides[0] - self._early_bytes

    @property
    def _early_bytes(self) -> int:
        """By which rows of the class begin behind multiples of 16 bytes."""
        return self.rows.number * (TMA_ALIGNMENT // self.rows.of) if self.rows else 0

    def _first_row(self, address: int) -> int:
        assert self.rows
        for row in range(min(self.rows.of, self.extents[1])):
            if (address + row * self.strides[0]) % TMA_ALIGNMENT == self._early_bytes:
                return row
        figures = f"rows from {address:#x} on, {plural(self.strides[0], 'byte')} apart"
        raise TensorMapRefused(f"{figures}, do not fall into {self.rows.of} classes by their distance from 16 bytes")


def map_figures(tensor_map: TensorMap, problem: Problem) -> MapFigures:
    """How the map shows an operand of `problem`, or its copy in the workspace."""
    operand, copy = tensor_map.operand, tensor_map.copy
    rows, columns = problem.stored_extents[operand]
    pitch, stride = getattr(problem, f"ld{operand}"), getattr(problem, f"stride_{operand}")
    if copy:
        rows, columns = (columns, rows) if copy.turned else (rows, columns)
        columns = copy.width or columns
        pitch, stride = copy.pitch, 0
    size = problem.element_bytes[operand]
    return MapFigures(
        operand,
        copy.offset if copy else None,
        (columns, rows, problem.batch),
        (pitch * size, (stride or max(1, rows) * pitch) * size),
        tensor_map.box,
        tensor_map.swizzle,
        size,
        rounds_tf32=problem.dtype == "tf32" and operand != "c",
        rows=tensor_map.rows,
    )


def tensor_map_argument(tensor_map: TensorMap, problem: Problem, pointers: Mapping[str, int]) -> np.void:
    """The argument that shows a kernel an operand of `problem`, or its copy in the workspace.

    Args:
        pointers: device addresses by name: "a", "b", "c" and "workspace".

    Raises:
        TensorMapRefused: TMA cannot address it, or the driver refuses the map.
    """
    found = map_figures(tensor_map, problem)
    address = found.address(pointers)
    shown = found.shown_at(address)
    return encode(
        found.begin(address), shown.extents, shown.strides, shown.box, shown.swizzle, shown.element_bytes,
        rounds_tf32=shown.rounds_tf32,
    )  # fmt: skip


def encode(
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    element_bytes: int,
    rounds_tf32: bool = False,
) -> np.void:
    """The map of a matrix, as an argument of a kernel.

    Args:
        address: of the first element.
        extents: elements in a row, rows, batches.
        strides: bytes between rows, bytes between batches.
        box: elements of a row and rows that are copied at once.
        swizzle: bytes within which 16-byte units change places in shared memory: 0, 32, 64 or 128.
        rounds_tf32: round fp32 elements to tf32 as they are loaded.

    Raises:
        TensorMapRefused: a figure is outside what TMA or the driver takes.
    """
    import numpy as np

    _check(address, strides, box, swizzle, element_bytes)
    memory = ctypes.create_string_buffer(2 * _BYTES)
    start = -ctypes.addressof(memory) % _BYTES
    code = encoder()(
        ctypes.byref(memory, start), _TF32 if rounds_tf32 else _FORMATS[element_bytes], 3, ctypes.c_void_p(address),
        (ctypes.c_uint64 * 3)(*(max(1, extent) for extent in extents)), (ctypes.c_uint64 * 2)(*strides),
        (ctypes.c_uint32 * 3)(*box, 1), (ctypes.c_uint32 * 3)(1, 1, 1), 0, _SWIZZLES[swizzle], _PROMOTION, 0,
    )  # fmt: skip
    if code != 0:
        figures = f"address {address:#x}, extents {tuple(extents)}, strides {tuple(strides)}, box {tuple(box)}"
        raise TensorMapRefused(f"the driver refuses the tensor map with error {code}: {figures}, swizzle {swizzle}")
    argument: np.void = np.frombuffer(memory.raw[start : start + _BYTES], f"V{_BYTES}")[0]
    return argument


def _check(address: int, strides: Sequence[int], box: Sequence[int], swizzle: int, element_bytes: int) -> None:
    """Say what TMA's limits are in place of the driver's "invalid value"."""
    if address % TMA_ALIGNMENT:
        raise TensorMapRefused(f"TMA reads matrices that begin at multiples of {TMA_ALIGNMENT} bytes; not {address:#x}")
    for stride in strides:
        if stride % TMA_ALIGNMENT or not 0 <= stride < _STRIDE:
            limits = f"multiples of {TMA_ALIGNMENT} bytes below 2**40"
            raise TensorMapRefused(f"TMA takes strides that are {limits}; one is {stride}")
    if not all(1 <= extent <= _BOX for extent in box):
        raise TensorMapRefused(f"TMA copies boxes of 1 to {_BOX} elements a side; not {' x '.join(map(str, box))}")
    if swizzle and box[0] * element_bytes > swizzle:
        raise TensorMapRefused(f"rows of a box have {box[0] * element_bytes} bytes, more than the swizzle's {swizzle}")


@cache
def encoder() -> Callable[..., Any]:
    """`cuTensorMapEncodeTiled` of the driver library.

    Raises:
        TensorMapRefused: there is no driver library, or it is older than CUDA 12.
    """
    try:
        return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise TensorMapRefused(f"the driver library cannot encode tensor maps: {error}") from error
