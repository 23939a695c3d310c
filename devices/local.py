"""What `--device` means: the GPU of this machine, by number if there are several, or a modelled one."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kt.devices.catalog import DeviceRates, architecture_rates, find, modelled
from kt.devices.device import Device
from kt.devices.driver import Driver, open_driver, unusable
from kt.errors import NoUsableGpu, OptionError

__all__ = ["AUTO_MODEL", "local_device", "select_device"]

AUTO_MODEL = "h200"
# CUdevice_attribute numbers, public constants of cuda.h.
_ATTRIBUTES = {
    "clock_khz": 13, "sm_count": 16, "compute_mode": 20, "memory_clock_khz": 36, "bus_bits": 37, "l2_bytes": 38,
    "threads_per_sm": 39, "major": 75, "minor": 76, "smem_per_sm": 81, "registers_per_sm": 82,
    "smem_per_block_optin": 97, "blocks_per_sm": 106,
}  # fmt: skip
_PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED


def select_device(text: str) -> Device:
    """The device that `text` names.

    Args:
        text: `local` (the first visible GPU), a number (that one), `auto` (the first visible GPU, or without a usable
            one `model:h200`), or `model:NAME`.

    Raises:
        NoUsableGpu: a local GPU is asked for and none can be used.
        OptionError: `text` is none of these.
    """
    kind, _, name = text.strip().partition(":")
    if kind == "model" and name:
        return modelled(name)
    if text.strip().isascii() and text.strip().isdecimal():
        return local_device(int(text))
    if text.strip() == "auto":
        return _auto()
    if text.strip() == "local":
        return local_device()
    hint = "use local, a number, auto, or model:NAME, for example model:h200"
    raise OptionError("device", f"{text!r} names no device", hint=hint)


def local_device(index: int = 0, *, load: Callable[[str], Any] = ctypes.CDLL) -> Device:
    """The visible GPU number `index`.

    Args:
        index: number among the visible GPUs.
        load: opens the driver library by name; tests pass their own.

    Raises:
        NoUsableGpu: with the cause: no driver library, no device, a driver that is too old, a driver's error.
    """
    driver = open_driver(load)
    count = driver.count()
    if not 0 <= index < count:
        raise unusable(f"there is no GPU number {index}: the driver shows {count or 'none'}")
    return _describe(driver, index)


def _auto() -> Device:
    try:
        return local_device()
    except NoUsableGpu:
        return modelled(AUTO_MODEL)


def _describe(driver: Driver, index: int) -> Device:
    handle = driver.handle(index)
    name = driver.name(handle)
    read = {key: driver.attribute(number, handle) for key, number in _ATTRIBUTES.items()}
    if read["compute_mode"] == _PROHIBITED:
        raise unusable(f"{name} is in prohibited compute mode; `nvidia-smi -c 0` allows work on it")
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
        driver=driver.version(),
        ordinal=index,
    )
    return _with_rates(device, read["memory_clock_khz"] * 1e3 * read["bus_bits"] / 8 * 2)


def _with_rates(device: Device, peak_bandwidth: float) -> Device:
    """The rates of the data file for a known identity, else estimates from clocks and multiprocessors."""
    known = find(device.name, device.compute_capability, device.sm_count)
    if known is not None:
        rates = DeviceRates(dict(known.flops), dict(known.simt_flops), dict(known.mma_flops))
        return _rated(replace(device, key=known.key), known.bandwidth, rates)
    clock = device.clock_hz or 1.5e9
    estimated = architecture_rates(device.compute_capability, device.sm_count, clock)
    # Some drivers report no memory clock; 14 operations per byte is the usual ratio of fp32 rate to bandwidth.
    bandwidth = 0.9 * peak_bandwidth or estimated.simt_flops["fp32"] / 14
    return _rated(replace(device, clock_hz=clock), bandwidth, estimated)


def _rated(device: Device, bandwidth: float, rates: DeviceRates) -> Device:
    return replace(
        device, bandwidth=bandwidth, flops=rates.flops, simt_flops=rates.simt_flops, mma_flops=rates.mma_flops
    )
