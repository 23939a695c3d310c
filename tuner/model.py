"""The performance model: predicted microseconds of tiled GEMM configurations, before any of them has run.

It orders candidates, and on a modelled device it ranks them. It is a roofline (Williams et al., CACM 2009) refined by
occupancy and by wave quantisation (NVIDIA, "Matrix multiplication background user's guide"):

    time = launch + max(overlap(compute, memory), l2) + further kernels

- compute: cycles of the busiest multiprocessor. Each wave of its blocks takes all their steps (tile_k values of k), and
  beginning and ending them. A step takes the longer of the issue slots and of the shared-memory pipe, and at least the
  memory latency divided by the tiles in flight (stages - 1). What a step asks for depends on how tiles are divided: see
  thread_tiles.py and warp_tiles.py.
- memory: bytes through device memory, where blocks that run together share rows of A and columns of B through L2 as
  `raster_group` arranges them.
- l2: bytes that all blocks together fetch.
- further kernels: the reduction of split-K; copies of operands into the kernel's own order (`pack_a`, `pack_b`), after
  which they are read with the widest accesses. With `stream_k` the steps of all tiles are shared evenly among the
  blocks that fit at once, instead of running whole waves; with `hold_b` the tiles are, column by column, and a block
  reads its columns of B once, and the next rows of A while it writes.

The constants below were fitted to measured times of `simt`, fp32, on an H200 (docs/how-a-winner-is-found.md says how
well they fit). Every argument is an array over configurations. A quantity that a family does not have takes a neutral
value, so the model serves any family with `tile_m`, `tile_n` and `tile_k`. A family whose space names `warp_n` has
tensor cores multiply the tiles of warps, one that names `consumers` those of warpgroups (group_tiles.py), one that
names `streamed` has an operand pass through warps (stream_tiles.py), any other has threads multiply theirs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kt.devices.device import Device
from kt.devices.roofline import floor_us
from kt.problems import Problem
from kt.tuner.group_tiles import GroupTiles
from kt.tuner.occupancy import occupancy, registers_for
from kt.tuner.stream_tiles import StreamTiles
from kt.tuner.thread_tiles import ThreadTiles
from kt.tuner.tiles import SCHEDULERS, Columns, Demand, Numbers, Tiles, as_numbers
from kt.tuner.warp_tiles import WarpTiles

__all__ = ["lay_out", "order_us", "predict_us"]

# Of the hardware.
_L2_BYTES = 32  # L2 bytes of one multiprocessor per clock when all of them read (about 8 TB/s on an H200)
_L2_BYTES_ALONE = 64  # and when few do
_LINE_BYTES = 128  # of a cache line

# Fitted, and rounded to what the measurements can tell.
_LAUNCH_US = 3.0  # launch, first and last memory access, and the time until all blocks run
_FURTHER_LAUNCH_US = 1.0  # a kernel that needs what another one writes
_ENDS = 800.0  # cycles in which a block begins and ends besides writing its tile
_WRITE_BYTES = 20.0  # of a tile that one multiprocessor writes per clock while all of them do
_DIRECT = 0.5  # part of that time (of mma, fp64) if C goes from registers to memory without a detour
_SKEW = 0.026  # part of its work by which a block is delayed for each doubling of the warps that meet at its barriers
_SHORT_RUNS = 0.15  # device memory's loss for each further part in which a line of a turned tile is read
_MEMORY_POWER = 1.8  # overlap of compute and device memory: two equal times take 1.47 times one
_UNITS_POWER = 8.0  # overlap of issue slots and shared memory: nearly the longer of the two
_ROUND_TRIP_US = 0.3  # of dependent loads in the reduction of split-K
_SLICES_RATE = 0.75  # part of the bandwidth at which slices are read


def predict_us(
    problem: Problem, device: Device, columns: Mapping[str, Any], registers: Any | None = None
) -> npt.NDArray[np.float64]:
    """Predicted microseconds of each configuration, never below the roofline; infinity for one that cannot be launched.

    Args:
        columns: parameters and derived quantities by name, arrays of one length (`Enumeration.columns`).
        registers: of a thread, from the compiler's log, one for each configuration; estimated where None.
    """
    return np.maximum(order_us(problem, device, columns, registers), floor_us(problem, device))


def order_us(
    problem: Problem, device: Device, columns: Mapping[str, Any], registers: Any | None = None
) -> npt.NDArray[np.float64]:
    """What the terms of the model add up to, for putting configurations in order.

    Where the constants do not fit a device, that may be below the roofline. It is no time then, but still an order.
    """
    tiles = lay_out(problem, columns)
    allowed = registers_for(device, tiles.threads, tiles.min_blocks)
    known = None if registers is None else as_numbers(registers, tiles.count)
    wanted = tiles.wanted_registers() if known is None else known
    resident = occupancy(device, tiles.threads, np.minimum(wanted, allowed), tiles.smem_bytes).astype(float)
    launched_at_once = (tiles.stream_k + tiles.held > 0) | tiles.persistent
    resident = np.where(launched_at_once, np.minimum(resident, tiles.min_blocks), resident)
    spilled = np.maximum(0.0, (tiles.least_registers() if known is None else known) - allowed)
    with np.errstate(divide="ignore", invalid="ignore"):
        compute = _compute_us(tiles, device, resident) * (1.0 + 0.05 * spilled)
        memory = _memory_bytes(tiles, device, resident) / device.bandwidth * 1e6
        busy = np.maximum(_overlap(compute, memory, _MEMORY_POWER), _l2_us(tiles, device))
        total = _LAUNCH_US - tiles.head_start_us + busy + _reduction_us(tiles, device) + _packing_us(tiles, device)
    return np.where(resident >= 1, total, np.inf)


def lay_out(problem: Problem, columns: Mapping[str, Any]) -> Tiles:
    """The configurations of `columns` on `problem`, as the kind of tiles that they are."""
    laid_out = Columns(columns)
    if "consumers" in columns:
        return GroupTiles.lay_out(problem, laid_out)
    if "streamed" in columns:
        return StreamTiles.lay_out(problem, laid_out)
    return (WarpTiles if "warp_n" in columns else ThreadTiles).lay_out(problem, laid_out)


def _compute_us(tiles: Tiles, device: Device, resident: Numbers) -> Numbers:
    """Full waves with all resident blocks, then one with what is left; the ends of a block overlap with its peers."""
    blocks = np.ceil(tiles.grid / device.sm_count)  # of the multiprocessor with the most
    full, left = np.floor(blocks / resident), blocks % resident
    demand = tiles.demand(device)
    rows, width = np.minimum(tiles.tile_m, tiles.problem.m), np.minimum(tiles.tile_n, tiles.problem.n)
    written = rows * width * tiles.written_bytes / _WRITE_BYTES
    ends = _ENDS + tiles.meeting_cycles + written * np.where(tiles.direct > 0, _DIRECT, 1.0)
    whole = _step_cycles(tiles, demand, resident)
    last = np.where(left > 0, _step_cycles(tiles, demand, np.maximum(left, 1)), 0)
    cycles = tiles.steps * (full * whole + last) + ends * (full / resident + 1)
    shared = tiles.grid / (device.sm_count * tiles.min_blocks)  # tiles for each of stream-K's blocks
    turns = np.ceil(tiles.min_blocks / resident)  # if not all of these fit at once
    parked = tiles.parking * np.maximum(1.0, 1 / shared)  # of a tile that many share, one piece after the other
    even = turns * np.ceil(shared * tiles.steps) * whole + ends * (shared / tiles.min_blocks + 1 + parked)
    held = turns * np.ceil(shared) * tiles.steps * whole + (ends - _ENDS) * shared / tiles.min_blocks + ends
    return np.select([tiles.stream_k > 0, tiles.held > 0], [even, held], cycles) / device.clock_hz * 1e6


def _step_cycles(tiles: Tiles, demand: Demand, resident: Numbers) -> Numbers:
    """Cycles in which a multiprocessor takes each of its `resident` blocks one step further."""
    even = resident * tiles.warps / SCHEDULERS
    busiest = np.ceil(even)  # warps of the scheduler with the most
    delayed = 1 + demand.stall / busiest + _SKEW * np.log2(tiles.meeting_warps)
    work = _overlap(resident * demand.issued * busiest / even * delayed, resident * demand.moved, _UNITS_POWER)
    return np.maximum(np.maximum(work, demand.chained), tiles.latency / (tiles.stages - 1))


def _memory_bytes(tiles: Tiles, device: Device, resident: Numbers) -> Numbers:
    """Bytes through device memory: what each wave of blocks reads, at least every operand once, and C."""
    problem = tiles.problem
    at_once = np.minimum(resident * device.sm_count, tiles.grid)
    rows, columns = _rectangle(tiles, at_once)
    waves = np.maximum(1.0, tiles.grid / at_once)
    deep = tiles.steps * tiles.tile_k * tiles.element_bytes
    slices = np.minimum(tiles.split_k * problem.batch, np.ceil(at_once / (rows * columns)))
    parts = _SHORT_RUNS * np.maximum(0.0, _LINE_BYTES / (np.clip(problem.k, 1, tiles.tile_k) * tiles.element_bytes) - 1)
    longer_a, longer_b = (1 + np.where(turned > 0, parts, 0.0) for turned in (tiles.turned_a, tiles.turned_b))
    read: Numbers = waves * slices * (rows * tiles.tile_m * longer_a + columns * tiles.tile_n * longer_b) * deep
    each = problem.k * tiles.element_bytes * problem.batch
    once = (problem.m * longer_a + problem.n * longer_b) * each
    operands = (problem.m + problem.n) * each
    # Operands that fit in half of L2 stay there from one wave to the next.
    read = once if operands < device.l2_bytes / 2 else np.maximum(read, once)
    read = np.where(tiles.held > 0, _read_by_columns(tiles, device, at_once), read)
    return read + np.where(tiles.split_k > 1, _slices_written(tiles, device), problem.bytes - operands)


def _read_by_columns(tiles: Tiles, device: Device, at_once: Numbers) -> Numbers:
    """Bytes of operands where columns of B are held: A as often as its rows have left L2 when another block meets them.

    Blocks begin anywhere in a column, so they are at as many different rows as there are.
    """
    problem = tiles.problem
    rows = problem.m * problem.k * tiles.element_bytes * problem.batch
    often = np.maximum(1.0, tiles.columns * np.minimum(1.0, tiles.rows / at_once))
    return problem.n / problem.m * rows + rows * np.where(rows < device.l2_bytes / 2, 1.0, often)


def _slices_written(tiles: Tiles, device: Device) -> Numbers:
    """Bytes of partial products that do not stay in L2 until they are summed."""
    written = _slices_bytes(tiles)
    return np.where(written > device.l2_bytes / 2, written, 0.0)


def _slices_bytes(tiles: Tiles) -> Numbers:
    problem = tiles.problem
    return tiles.split_k * (problem.m * problem.n * problem.batch * tiles.accumulator_bytes)


def _rectangle(tiles: Tiles, at_once: Numbers) -> tuple[Numbers, Numbers]:
    """Tile rows and columns that the blocks running together cover: groups of rows, columns inside a group."""
    group = np.minimum(tiles.raster_group, tiles.rows)
    columns = np.minimum(tiles.columns, np.ceil(at_once / group))
    rows = np.minimum(tiles.rows, group * np.ceil(at_once / (group * tiles.columns)))
    return rows, columns


def _l2_us(tiles: Tiles, device: Device) -> Numbers:
    deep = tiles.steps * tiles.tile_k * tiles.element_bytes
    fetched = tiles.grid * tiles.fetched_rows * deep
    readers = np.minimum(tiles.grid, device.sm_count)
    per_clock = np.minimum(readers * _L2_BYTES_ALONE, device.sm_count * _L2_BYTES)
    time: Numbers = fetched / (per_clock * device.clock_hz) * 1e6
    return time


def _reduction_us(tiles: Tiles, device: Device) -> Numbers:
    """Split-K: the slices read, four at a time and from 16 slices on by eight threads, and C written."""
    problem = tiles.problem
    final = problem.m * problem.n * problem.batch * problem.element_bytes["c"]
    moved = (_slices_bytes(tiles) / _SLICES_RATE + final) / device.bandwidth * 1e6
    trips = np.ceil(tiles.split_k / np.where(tiles.split_k < 16, 4, 32))
    return np.where(tiles.split_k > 1, _FURTHER_LAUNCH_US + moved + _ROUND_TRIP_US * trips, 0.0)


def _packing_us(tiles: Tiles, device: Device) -> Numbers:
    """Operands read and written once more, and the kernels launched for it; stream-K's flags need one as well."""
    problem = tiles.problem
    copied = tiles.pack_a * problem.m * problem.k + tiles.pack_b * problem.k * problem.n
    moved = 2 * copied * problem.batch * tiles.element_bytes / device.bandwidth * 1e6
    return moved + _FURTHER_LAUNCH_US * (tiles.pack_launches + tiles.stream_k)


def _overlap(one: Numbers, other: Numbers, power: float) -> Numbers:
    """The time of two things at once: their sum for a power of 1, the longer of them for a large one."""
    longer = np.maximum(one, other)
    part = np.minimum(one, other) / np.where(longer > 0, longer, 1.0)
    together: Numbers = longer * (1 + part**power) ** (1 / power)
    return together
