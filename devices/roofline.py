"""The roofline floor: the least time that a problem can take on a device, and which limit sets it.

The model is Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009, with a
third limit for problems so small that starting a kernel and filling the machine takes longer than the work.
"""

from dataclasses import dataclass
from typing import Literal

from kt.devices.device import Device
from kt.problems import Problem

__all__ = ["LAUNCH_FLOOR_US", "Bound", "Floor", "floor", "floor_us"]

Bound = Literal["compute", "bandwidth", "launch"]
# An empty kernel of a CUDA graph takes 0.6-0.9 us on an H200 and one that reads 1 MB takes 2.0 us (measured).
LAUNCH_FLOOR_US = 2.0


@dataclass(frozen=True)
class Floor:
    """The floor in microseconds, and the limit that sets it."""

    us: float
    bound: Bound


def floor(problem: Problem, device: Device) -> Floor:
    """The floor of `problem` on `device`. A rate that is not known sets no limit."""
    rate = device.flops.get(problem.dtype) or device.simt_flops.get(problem.dtype)
    compute = problem.flops / rate * 1e6 if rate else 0.0
    bandwidth = problem.bytes / device.bandwidth * 1e6 if device.bandwidth else 0.0
    limits: list[tuple[float, Bound]] = [
        (LAUNCH_FLOOR_US, "launch"), (bandwidth, "bandwidth"), (compute, "compute")]  # fmt: skip
    return Floor(*max(limits, key=lambda limit: limit[0]))


def floor_us(problem: Problem, device: Device) -> float:
    """The floor in microseconds."""
    return floor(problem, device).us
