"""NVIDIA's driver library, asked for what describes a GPU; no CUDA context is made.

`CUDA_VISIBLE_DEVICES` is honoured, because the driver itself applies it.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

from kt.errors import NoUsableGpu

__all__ = ["Driver", "open_driver", "unusable"]

HINT = "use `--device auto` or `--device model:h200` to compile and rank without a GPU"
OLDEST_DRIVER = 12000
# Codes of cuda.h that have a remedy of their own.
_REMEDIES = {
    34: "the driver library found is the toolkit's stub: put the driver's own libcuda.so.1 first in the library path",
    46: "the GPU is taken by another process in exclusive mode",
    100: "the driver sees no GPU",
    802: "the driver is still starting; on NVSwitch machines check that the fabric manager runs",
    803: "driver and driver library do not match: reboot, or reload the kernel module after the update",
    804: "this GPU does not support the compatibility driver in the library path",
    999: "the driver failed for an unknown reason; `nvidia-smi` or the kernel log may say more",
}


def open_driver(load: Callable[[str], Any] = ctypes.CDLL) -> "Driver":
    """The driver library, initialised.

    Args:
        load: opens a shared library by name; tests pass their own.

    Raises:
        NoUsableGpu: there is no driver library, the driver is too old, or it does not start.
    """
    try:
        driver = Driver(load("libcuda.so.1"))
    except OSError as error:
        raise unusable("no NVIDIA driver library (libcuda.so.1) on this machine") from error
    version = driver.version()
    if version < OLDEST_DRIVER:
        raise unusable(f"the GPU driver supports CUDA {_dotted(version)}; kt needs one for CUDA 12.0 or newer")
    driver.call("cuInit", 0)
    return driver


class Driver:
    """The few calls of the driver library that describe a GPU."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            cause = _REMEDIES.get(code, f"{function} failed")
            raise unusable(f"{cause} (CUDA error {code}{self._name(code)})")

    def version(self) -> int:
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def count(self) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(value))
        return value.value

    def handle(self, index: int) -> ctypes.c_int:
        value = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(value), index)
        return value

    def name(self, handle: ctypes.c_int) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), handle)
        return text.value.decode(errors="replace")

    def memory(self, handle: ctypes.c_int) -> int:
        value = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(value), handle)
        return value.value

    def attribute(self, number: int, handle: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
        return value.value

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(text)) != 0 or not text.value:
            return ""
        return f", {text.value.decode()}"


def unusable(cause: str) -> NoUsableGpu:
    """The error for a GPU that cannot be used, with what to do instead and the variable that may hide GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}"
    return NoUsableGpu(cause + hidden, hint=HINT)


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
