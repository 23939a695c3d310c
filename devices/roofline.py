"""The roofline floor: the least time that a problem can take on a device, and which limit sets it.

The model is Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009, with a
third limit for problems so small that starting a kernel and filling the machine takes longer than the work.
"""

from dataclasses import dataclass
from typing import Literal

from kt.devices.device import Device, rate_of
from kt.problems import Problem

__all__ = ["EMPTY_FLOOR_US", "LAUNCH_FLOOR_US", "Bound", "Floor", "floor", "floor_us"]

Bound = Literal["compute", "bandwidth", "launch"]
# Measured in CUDA graphs on an H200: an empty kernel takes 0.55-0.85 us, one that reads 0.25 MB takes 1.5 us, and 1 MB
# takes 2.0 us.
LAUNCH_FLOOR_US = 1.5
EMPTY_FLOOR_US = 0.55  # of a problem that only writes C


@dataclass(frozen=True)
class Floor:
    """The floor in microseconds, and the limit that sets it."""

    us: float
    bound: Bound


def floor(problem: Problem, device: Device) -> Floor:
    """The floor of `problem` on `device`. A rate that is not known sets no limit."""
    formats = problem.dtype, problem.accumulator
    rate = rate_of(device.flops, *formats) or rate_of(device.simt_flops, *formats)
    compute = problem.flops / rate * 1e6 if rate else 0.0
    bandwidth = problem.bytes / device.bandwidth * 1e6 if device.bandwidth else 0.0
    launch = LAUNCH_FLOOR_US if _reads(problem) else EMPTY_FLOOR_US
    limits: list[tuple[float, Bound]] = [(launch, "launch"), (bandwidth, "bandwidth"), (compute, "compute")]
    return Floor(*max(limits, key=lambda limit: limit[0]))


def _reads(problem: Problem) -> bool:
    """Whether anything must come from memory before C can be written."""
    return problem.k > 0 or problem.beta != 0


def floor_us(problem: Problem, device: Device) -> float:
    """The floor in microseconds."""
    return floor(problem, device).us
