"""Occupancy: how many thread blocks of a kernel one multiprocessor holds at a time, and what limits them.

The rules are those of the CUDA C++ Programming Guide, "Technical specifications per compute capability": a warp's
registers are given out in units of 256 and a multiprocessor holds a multiple of four warps; shared memory is given out
in units of 128 bytes, and from compute capability 8.0 on the system keeps 1 KiB for each block.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kt.devices.device import Device

__all__ = ["MAX_REGISTERS", "limiter", "occupancy", "registers_for"]

Integers = npt.NDArray[np.int64]
MAX_REGISTERS = 255  # of one thread, on every architecture that kt compiles for
_WARP = 32
_WARPS_TOGETHER = 4
_REGISTER_UNIT = 256
_REGISTERS_TOGETHER = _REGISTER_UNIT // _WARP  # of one thread
_SMEM_UNIT = 128
_LIMITS = ("threads", "blocks", "registers", "shared memory")


def occupancy(device: Device, threads: Any, registers: Any, smem_bytes: Any) -> Integers:
    """Blocks per multiprocessor; 0 for a block that cannot be launched at all. Arguments broadcast.

    Args:
        threads: threads of a block.
        registers: registers of a thread.
        smem_bytes: shared memory of a block, static and dynamic, bytes.
    """
    lowest: Integers = np.min(_by_limit(device, threads, registers, smem_bytes), axis=0)
    return lowest


def registers_for(device: Device, threads: Any, blocks: Any) -> Integers:
    """The most registers of a thread with which so many blocks are on a multiprocessor at a time.

    It is what the compiler makes of `__launch_bounds__(threads, blocks)`: warps are counted in fours.
    """
    warps = _up(-(-np.asarray(threads, np.int64) // _WARP) * np.asarray(blocks, np.int64), _WARPS_TOGETHER)
    each: Integers = device.registers_per_sm // (warps * _WARP) // _REGISTERS_TOGETHER * _REGISTERS_TOGETHER
    return np.minimum(MAX_REGISTERS, each)


def limiter(device: Device, threads: int, registers: int, smem_bytes: int) -> str:
    """What keeps more blocks from a multiprocessor: threads, blocks, registers or shared memory."""
    counts = [int(row) for row in _by_limit(device, threads, registers, smem_bytes)]
    return _LIMITS[counts.index(min(counts))]


def _by_limit(device: Device, threads: Any, registers: Any, smem_bytes: Any) -> Integers:
    threads, registers, smem = np.broadcast_arrays(
        np.maximum(np.asarray(threads, np.int64), 1), np.asarray(registers, np.int64), np.asarray(smem_bytes, np.int64)
    )
    warps = -(-threads // _WARP)
    rows = [
        np.where(threads > 1024, 0, device.threads_per_sm // (warps * _WARP)),
        np.full_like(warps, device.blocks_per_sm),
        _by_registers(device, warps, registers),
        _by_smem(device, smem),
    ]
    return np.stack(rows)


def _by_registers(device: Device, warps: Integers, registers: Integers) -> Integers:
    per_warp = np.maximum(_up(registers * _WARP, _REGISTER_UNIT), _REGISTER_UNIT)
    resident = device.registers_per_sm // per_warp // _WARPS_TOGETHER * _WARPS_TOGETHER
    blocks: Integers = resident // warps
    return np.where(registers > MAX_REGISTERS, 0, blocks)


def _by_smem(device: Device, smem_bytes: Integers) -> Integers:
    kept = 1024 if device.compute_capability >= (8, 0) else 0
    per_block = np.maximum(_up(smem_bytes, _SMEM_UNIT) + kept, 1)
    blocks: Integers = device.smem_per_sm // per_block
    return np.where(smem_bytes > device.smem_per_block_optin, 0, blocks)


def _up(value: Integers, unit: int) -> Integers:
    raised: Integers = -(-value // unit) * unit
    return raised
