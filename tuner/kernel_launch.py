"""`KernelLaunch`: one kernel with its grid, as the driver is told of it; and `Parameters`, what it is given.

CuPy launches without attributes, so grids that may start early go to the driver directly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kt.tuner.cuda import driver, runtime

if TYPE_CHECKING:
    from kt.search_spaces.space import Launch

__all__ = ["KernelLaunch", "Parameters"]

_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_GRAPHS_KNOW_IT = 12030  # CUDA 12.3: since then a captured launch may have the attribute


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`: a name, and a value in a union of 64 bytes."""

    _fields_ = (
        ("name", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_int * 15),
    )


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class Parameters:
    """What a kernel takes, in order: numpy values that are copied, and the array of their addresses."""

    def __init__(self, values: Sequence[Any]) -> None:
        import numpy as np

        self._values = [np.array(value) for value in values]
        self._addresses = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in self._values))
        self.address = ctypes.addressof(self._addresses)


class KernelLaunch:
    """A launch with everything settled but stream and parameters; threads may share it."""

    def __init__(self, function: int, launch: Launch) -> None:
        self._figures = (function, launch.grid, 1, 1, launch.block, 1, 1, launch.smem_bytes)
        self._config: _Config | None = None
        if launch.programmatic and runtime.driverGetVersion() >= _GRAPHS_KNOW_IT:
            self._attribute = _Attribute(name=_PROGRAMMATIC, value=1)
            self._config = _Config(
                (launch.grid, 1, 1), (launch.block, 1, 1), launch.smem_bytes, None, ctypes.pointer(self._attribute), 1
            )

    def enqueue(self, stream: int, parameters: int) -> None:
        """Launch in `stream`; `parameters` is the address of the array of the parameters' addresses.

        Raises:
            CUDADriverError: CUDA refuses it.
        """
        if self._config is None:
            driver.launchKernel(*self._figures, stream, parameters, 0)
            return
        config = _Config.from_buffer_copy(self._config)  # of this call, since the stream is
        config.stream = stream
        if code := _launch_kernel_ex()(ctypes.addressof(config), self._figures[0], parameters, None):
            raise driver.CUDADriverError(code)


@cache
def _launch_kernel_ex() -> Any:
    """`cuLaunchKernelEx` of the driver library."""
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return function
