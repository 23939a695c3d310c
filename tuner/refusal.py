"""What cannot be tuned or ranked on a device whatever the configuration, said before any work is done for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kt.devices.device import Device
    from kt.problems import Problem
    from kt.tuner.request import TuneRequest

__all__ = ["refusal", "too_large"]


def refusal(request: TuneRequest, problem: Problem) -> str:
    """Why the problem cannot be tuned on the device, in one line; "" if it can be tried."""
    if not request.spaces_for(problem):
        return _unserved(request, problem)
    excess = too_large(problem, request.device)
    return f"out of memory: {excess}" if excess else ""


def too_large(problem: Problem, device: Device, workspace: int = 0) -> str:
    """The bytes that the operands, and a candidate's workspace, need and the device has not; "" if they fit."""
    operands = sum(problem.footprint(name) for name in "abc")
    if operands + workspace <= device.memory_bytes:
        return ""
    more = f" and {_gib(workspace)} of workspace" if workspace else ""
    return f"needs {_gib(operands)} for its operands{more}; {device.name} has {_gib(device.memory_bytes)}"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _unserved(request: TuneRequest, problem: Problem) -> str:
    major, minor = request.device.compute_capability
    offers = [
        "{} serves {} from {}.{} on".format(space.family, ", ".join(space.dtypes), *space.min_compute_capability)
        for space in request.spaces
    ]
    have = "; ".join(offers) or "there is none"
    return f"no kernel family serves {problem.dtype} on compute capability {major}.{minor}: {have}"
