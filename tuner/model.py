"""The performance model: predicted microseconds of tiled GEMM configurations, before any of them has run.

It orders candidates, and on a modelled device it ranks them. It is a roofline (Williams et al., CACM 2009) over three
resources, refined by occupancy and by wave quantisation (NVIDIA, "Matrix multiplication background user's guide"):

    time = launch + p-norm(compute, memory, l2) + further kernels

- compute: cycles of one multiprocessor over the waves of thread blocks it runs. One step of a block (tile_k values of
  k) takes the largest of its multiply-adds, its issued instructions and its shared-memory cycles, is stretched where
  too few warps hide the latency of shared memory, and is never shorter than the memory latency divided by the tiles in
  flight (stages - 1).
- memory: bytes through device memory, where blocks that run together share rows of A and columns of B through L2 as
  `raster_group` arranges them.
- l2: bytes that all blocks together fetch.
- further kernels: the reduction of split-K; copies of operands into the kernel's own order (`pack_a`, `pack_b`), after
  which they are read with the widest accesses; with `stream_k`, which shares the steps of all tiles evenly among the
  blocks that fit at once instead of running whole waves, the tiles that are parked and added.

Every argument is an array over configurations. A quantity that a family does not have takes a neutral value, so the
model serves any family with `tile_m`, `tile_n` and `tile_k`; its terms are those of `simt`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kt.devices.device import Device
from kt.problems import Problem
from kt.tuner.occupancy import MAX_REGISTERS, occupancy
from kt.tuner.tiles import Numbers, Tiles, as_numbers, column, count_of, lay_out

__all__ = ["estimate_registers", "predict_us"]

_LAUNCH_US = 1.0  # a kernel of a CUDA graph that does nothing takes 0.6-0.9 us on an H200 (measured)
_SECOND_LAUNCH_US = 2.0  # a kernel that needs what another one writes: launch, and draining the first
_LATENCY = 800.0  # cycles from a request to device memory to its data, about 0.4 us on an H200
_BARRIER = 60.0  # cycles around the barrier of one step
_SMEM_LATENCY = 32.0  # cycles from a shared-memory request to its data
_STALL = 0.1  # part of its cycles that a scheduler with a single warp loses to what the model does not know
_SCHEDULERS = 4  # of one multiprocessor, each issuing one warp instruction a clock
_SMEM_BYTES = 128  # shared-memory bytes of one multiprocessor per clock
_L2_BYTES = 32  # L2 bytes of one multiprocessor per clock when all of them read (about 7 TB/s on an H200)
_L2_BYTES_ALONE = 64  # and when few do
_NORM = 6.0  # overlap of the three resources: two equal ones take 12% longer than one


def predict_us(
    problem: Problem, device: Device, columns: Mapping[str, Any], registers: Any | None = None
) -> npt.NDArray[np.float64]:
    """Predicted microseconds of each configuration; infinity for one that cannot be launched.

    Args:
        columns: parameters and derived quantities by name, arrays of one length (`Enumeration.columns`).
        registers: of a thread, from the compiler's log, one for each configuration; estimated where None.
    """
    tiles = lay_out(problem, columns)
    needed = estimate_registers(problem, columns) if registers is None else as_numbers(registers, tiles.count)
    allowed = np.minimum(MAX_REGISTERS, device.registers_per_sm // (tiles.threads * tiles.min_blocks) // 8 * 8)
    resident = occupancy(device, tiles.threads, np.minimum(needed, allowed), tiles.smem_bytes).astype(float)
    spilled = np.maximum(0.0, needed - allowed)
    with np.errstate(divide="ignore", invalid="ignore"):
        compute = _compute_us(tiles, device, resident) * (1.0 + 0.05 * spilled)
        memory = _memory_bytes(tiles, device, resident) / device.bandwidth * 1e6
        fetched = _l2_us(tiles, device)
        busy = (compute**_NORM + memory**_NORM + fetched**_NORM) ** (1 / _NORM)
        total = _LAUNCH_US + busy + _reduction_us(tiles, device) + _packing_us(tiles, device)
    return np.where(resident >= 1, total, np.inf)


def estimate_registers(problem: Problem, columns: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Registers of a thread before any compilation: accumulators, two fragments of each operand, and addresses."""
    count = count_of(columns)
    words = max(1, int(problem.names()["sizeof_acc"]) // 4)
    thread_m, thread_n = (column(columns, name, count, 8) for name in ("thread_m", "thread_n"))
    return words * (thread_m * thread_n + 2 * (thread_m + thread_n)) + 32


def _compute_us(tiles: Tiles, device: Device, resident: Numbers) -> Numbers:
    """Full waves with all resident blocks, then one with what is left; the ends of a block overlap with its peers."""
    blocks = np.ceil(tiles.grid / device.sm_count)  # of the multiprocessor with the most
    full, left = np.floor(blocks / resident), blocks % resident
    ends = 2 * _LATENCY + tiles.tile_m * tiles.tile_n * tiles.accumulator_bytes / _SMEM_BYTES
    cycles = full * (tiles.steps * _step_cycles(tiles, device, resident) + ends / resident)
    cycles += np.where(left > 0, tiles.steps * _step_cycles(tiles, device, np.maximum(left, 1)), 0) + ends
    streamed = tiles.grid * tiles.steps / (device.sm_count * tiles.min_blocks)
    even = np.ceil(streamed) * _step_cycles(tiles, device, tiles.min_blocks) + 3 * ends
    return np.where(tiles.stream_k > 0, even, cycles) / device.clock_hz * 1e6


def _step_cycles(tiles: Tiles, device: Device, resident: Numbers) -> Numbers:
    """Cycles in which a multiprocessor takes each of its `resident` blocks one step further."""
    warps = tiles.threads / 32
    work = tiles.tile_k * _largest(
        _multiply_cycles(tiles, device), _issue_cycles(tiles, warps), _smem_cycles(tiles, warps)
    )
    per_scheduler = resident * warps / _SCHEDULERS
    hidden = np.minimum(1.0, per_scheduler * tiles.thread_m * tiles.thread_n / _SMEM_LATENCY)
    hidden *= 1 - _STALL / np.maximum(per_scheduler, 1.0)
    return np.maximum(resident * work / hidden + _BARRIER / resident, _LATENCY / (tiles.stages - 1))


def _multiply_cycles(tiles: Tiles, device: Device) -> Numbers:
    """Multiply-adds of one block for one k, over what a multiprocessor does per clock."""
    rates = device.simt_flops if tiles.problem.dtype in device.simt_flops else device.flops
    per_clock = rates[tiles.problem.dtype] / (2 * device.sm_count * device.clock_hz)
    return tiles.tile_m * tiles.tile_n / per_clock


def _issue_cycles(tiles: Tiles, warps: Numbers) -> Numbers:
    """Instructions of one block for one k: multiply-adds, fragment reads, copies with their addresses, loop."""
    reads = _reads(tiles, tiles.thread_m) + _reads(tiles, tiles.thread_n)
    copies = 3 * (tiles.tile_m / tiles.width_a + tiles.tile_n / tiles.width_b) / tiles.threads
    loop = 4 / tiles.unroll
    return warps * (tiles.thread_m * tiles.thread_n + reads + copies + loop) / _SCHEDULERS


def _smem_cycles(tiles: Tiles, warps: Numbers) -> Numbers:
    """Shared-memory cycles of one block for one k: fragment reads by every warp, and the tile written once."""
    lanes_m = np.minimum(tiles.warp_m, 32)
    reads = _read_cycles(tiles, tiles.thread_m, lanes_m) + _read_cycles(tiles, tiles.thread_n, 32 / lanes_m)
    bytes_written = (tiles.tile_m + tiles.tile_n) * tiles.accumulator_bytes
    instructions = (tiles.tile_m / tiles.width_a + tiles.tile_n / tiles.width_b) / 32
    return warps * reads + np.maximum(bytes_written / _SMEM_BYTES, instructions)


def _group(tiles: Tiles, thread: Numbers) -> Numbers:
    """Elements of one fragment read: at most 16 bytes."""
    return np.minimum(thread, 16 / tiles.accumulator_bytes)


def _reads(tiles: Tiles, thread: Numbers) -> Numbers:
    return thread / _group(tiles, thread)


def _read_cycles(tiles: Tiles, thread: Numbers, lanes: Numbers) -> Numbers:
    """A read takes a cycle per 128 distinct bytes, and at least one per 8 bytes that each of the 32 threads gets."""
    access = _group(tiles, thread) * tiles.accumulator_bytes
    return _reads(tiles, thread) * _largest(lanes * access / _SMEM_BYTES, access / 8, np.ones_like(access))


def _memory_bytes(tiles: Tiles, device: Device, resident: Numbers) -> Numbers:
    """Bytes through device memory: what each wave of blocks reads, at least every operand once, and C."""
    problem = tiles.problem
    at_once = np.minimum(resident * device.sm_count, tiles.grid)
    rows, columns = _rectangle(tiles, at_once)
    waves = np.maximum(1.0, tiles.grid / at_once)
    deep = tiles.steps * tiles.tile_k * tiles.element_bytes
    slices = np.minimum(tiles.split_k * problem.batch, np.ceil(at_once / (rows * columns)))
    read = waves * slices * (rows * tiles.tile_m + columns * tiles.tile_n) * deep
    operands = (problem.m + problem.n) * problem.k * tiles.element_bytes * problem.batch
    # Operands that fit in half of L2 stay there from one wave to the next.
    read = np.full_like(read, operands) if operands < device.l2_bytes / 2 else np.maximum(read, operands)
    return read + np.where(tiles.split_k > 1, 0.0, problem.bytes - operands)


def _rectangle(tiles: Tiles, at_once: Numbers) -> tuple[Numbers, Numbers]:
    """Tile rows and columns that the blocks running together cover: groups of rows, columns inside a group."""
    group = np.minimum(tiles.raster_group, tiles.rows)
    columns = np.minimum(tiles.columns, np.ceil(at_once / group))
    rows = np.minimum(tiles.rows, group * np.ceil(at_once / (group * tiles.columns)))
    return rows, columns


def _l2_us(tiles: Tiles, device: Device) -> Numbers:
    deep = tiles.steps * tiles.tile_k * tiles.element_bytes
    fetched = tiles.grid * (tiles.tile_m + tiles.tile_n) * deep
    readers = np.minimum(tiles.grid, device.sm_count)
    per_clock = np.minimum(readers * _L2_BYTES_ALONE, device.sm_count * _L2_BYTES)
    time: Numbers = fetched / (per_clock * device.clock_hz) * 1e6
    return time


def _reduction_us(tiles: Tiles, device: Device) -> Numbers:
    """Split-K: partial products written and read again, then C; through L2 if they fit, else through memory."""
    problem = tiles.problem
    products = problem.m * problem.n * problem.batch
    partial = 2 * tiles.split_k * products * tiles.accumulator_bytes
    rate = np.where(partial < device.l2_bytes, max(_l2_rate(device), device.bandwidth), device.bandwidth)
    final = products * problem.element_bytes["c"] / device.bandwidth
    return np.where(tiles.split_k > 1, _SECOND_LAUNCH_US + (partial / rate + final) * 1e6, 0.0)


def _packing_us(tiles: Tiles, device: Device) -> Numbers:
    """Operands read and written once more, and the kernels that are launched for it."""
    problem = tiles.problem
    copied = tiles.pack_a * problem.m * problem.k + tiles.pack_b * problem.k * problem.n
    moved = 2 * copied * problem.batch * tiles.element_bytes / device.bandwidth * 1e6
    parked = 2 * tiles.stream_k * device.sm_count * tiles.min_blocks * tiles.tile_m * tiles.tile_n
    added = parked * tiles.accumulator_bytes / max(device.bandwidth, _l2_rate(device)) * 1e6
    return moved + added + _SECOND_LAUNCH_US * (tiles.pack_a + tiles.pack_b) + _LAUNCH_US * tiles.stream_k


def _l2_rate(device: Device) -> float:
    """Bytes per second from L2 to all multiprocessors."""
    return device.sm_count * _L2_BYTES * device.clock_hz


def _largest(*values: Numbers) -> Numbers:
    largest: Numbers = np.maximum.reduce(np.broadcast_arrays(*values))
    return largest
