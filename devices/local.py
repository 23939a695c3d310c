"""The GPU of this machine, asked from NVIDIA's driver library without making a CUDA context.

`CUDA_VISIBLE_DEVICES` is honoured, because the driver itself applies it.
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kt.devices.catalog import architecture_rates, find
from kt.devices.device import Device
from kt.errors import NoUsableGpu

__all__ = ["local_device"]

HINT = "use `--device auto` or `--device model:h200` to compile and rank without a GPU"
OLDEST_DRIVER = 12000
# CUdevice_attribute numbers, public constants of cuda.h.
_ATTRIBUTES = {
    "clock_khz": 13, "sm_count": 16, "compute_mode": 20, "memory_clock_khz": 36, "bus_bits": 37, "l2_bytes": 38,
    "threads_per_sm": 39, "major": 75, "minor": 76, "smem_per_sm": 81, "registers_per_sm": 82,
    "smem_per_block_optin": 97, "blocks_per_sm": 106,
}  # fmt: skip
_PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED
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


def local_device(index: int = 0, *, load: Callable[[str], Any] = ctypes.CDLL) -> Device:
    """The visible GPU number `index`.

    Args:
        index: number among the visible GPUs.
        load: opens the driver library by name; tests pass their own.

    Raises:
        NoUsableGpu: with the cause: no driver library, no device, a driver that is too old, a driver's error.
    """
    driver = _Driver(_open(load))
    version = driver.version()
    if version < OLDEST_DRIVER:
        raise _unusable(f"the GPU driver supports CUDA {_dotted(version)}; kt needs one for CUDA 12.0 or newer")
    driver.call("cuInit", 0)
    count = driver.count()
    if not 0 <= index < count:
        raise _unusable(f"there is no GPU number {index}: the driver shows {count or 'none'}{_visible_devices()}")
    return _describe(driver, index, version)


class _Driver:
    """The few calls of the driver library that describe a GPU."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            cause = _REMEDIES.get(code, f"{function} failed")
            raise _unusable(f"{cause} (CUDA error {code}{self._name(code)}){_visible_devices()}")

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


def _open(load: Callable[[str], Any]) -> Any:
    try:
        return load("libcuda.so.1")
    except OSError as error:
        raise _unusable("no NVIDIA driver library (libcuda.so.1) on this machine") from error


def _describe(driver: _Driver, index: int, version: int) -> Device:
    handle = driver.handle(index)
    name = driver.name(handle)
    read = {key: driver.attribute(number, handle) for key, number in _ATTRIBUTES.items()}
    if read["compute_mode"] == _PROHIBITED:
        raise _unusable(f"{name} is in prohibited compute mode; `nvidia-smi -c 0` allows work on it")
    device = Device(
        name=name,
        compute_capability=(read["major"], read["minor"]),
        sm_count=read["sm_count"],
        memory_bytes=driver.memory(handle),
        l2_bytes=read["l2_bytes"],
        smem_per_block_optin=read["smem_per_block_optin"],
        smem_per_sm=read["smem_per_sm"],
        registers_per_sm=read["registers_per_sm"],
        threads_per_sm=read["threads_per_sm"],
        blocks_per_sm=read["blocks_per_sm"],
        clock_hz=read["clock_khz"] * 1e3,
        driver=version,
        ordinal=index,
    )
    return _with_rates(device, read["memory_clock_khz"] * 1e3 * read["bus_bits"] / 8 * 2)


def _with_rates(device: Device, peak_bandwidth: float) -> Device:
    """The rates of the data file for a known identity, else estimates from clocks and multiprocessors."""
    known = find(device.name, device.compute_capability, device.sm_count)
    if known is not None:
        return replace(device, key=known.key, bandwidth=known.bandwidth, flops=known.flops, simt_flops=known.simt_flops)
    clock = device.clock_hz or 1.5e9
    flops, simt_flops = architecture_rates(device.compute_capability, device.sm_count, clock)
    # Some drivers report no memory clock; 14 operations per byte is the usual ratio of fp32 rate to bandwidth.
    bandwidth = 0.9 * peak_bandwidth or simt_flops["fp32"] / 14
    return replace(device, clock_hz=clock, bandwidth=bandwidth, flops=flops, simt_flops=simt_flops)


def _unusable(cause: str) -> NoUsableGpu:
    return NoUsableGpu(cause, hint=HINT)


def _visible_devices() -> str:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f"; CUDA_VISIBLE_DEVICES is {value!r}"


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
