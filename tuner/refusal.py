"""What cannot be tuned or ranked: on this device, whatever the configuration; and how a run or a plan of it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.errors import InputError, KtError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kt.devices.device import Device
    from kt.problems import Problem
    from kt.tuner.candidates import Candidates
    from kt.tuner.request import TuneRequest

__all__ = ["common_error", "no_candidates", "refusal", "too_large"]


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


def common_error(errors: Sequence[KtError], shapes: int) -> KtError | None:
    """The error to end with where every one of so many shapes failed by one of these; None where others are.

    One cause is told alone, with its remedy. Several that lie in the input files are faults of these all the same.
    """
    causes = list({error.message: error for error in errors}.values())
    if len(errors) < shapes or not causes:
        return None
    if len(causes) == 1:
        return causes[0]
    if all(isinstance(cause, InputError) for cause in causes):
        return InputError(
            "\n  ".join(["no shape can be tuned", *(cause.message for cause in causes)]), hint=causes[0].hint
        )
    return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def no_candidates(request: TuneRequest, candidates: Candidates) -> str:
    """Why no configuration is valid, and which families serve the format on newer GPUs only."""
    from kt.tuner.candidates import nothing_valid

    newer = _newer(request, candidates.problem)
    return nothing_valid(candidates) + (f"; on newer GPUs {newer}" if newer else "")


def _newer(request: TuneRequest, problem: Problem) -> str:
    """The families that the device is too old for, each with what it needs."""
    served = request.spaces_for(problem)
    return ", ".join(
        "{} serves {} from compute capability {}.{} on".format(
            space.family, problem.dtype, *space.min_compute_capability
        )
        for space in request.spaces
        if problem.dtype in space.dtypes and space not in served
    )


def _unserved(request: TuneRequest, problem: Problem) -> str:
    """Whether the GPU or the format is at fault."""
    if newer := _newer(request, problem):
        capability = "{}.{}".format(*request.device.compute_capability)
        return f"no kernel family serves {problem.dtype} on compute capability {capability}: {newer}"
    offers = [f"{space.family} serves {', '.join(space.dtypes)}" for space in request.spaces]
    return f"no kernel family serves {problem.dtype}: {'; '.join(offers) or 'none of those that this run may use'}"
