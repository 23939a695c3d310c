"""What cannot be tuned or ranked: on this device, whatever the configuration; and how a run or a plan of it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kt.devices.catalog import compute_capabilities
from kt.errors import InputError, KtError
from kt.search_spaces.launch import first_broken
from kt.search_spaces.names import leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kt.devices.device import Device
    from kt.problems import Problem
    from kt.search_spaces.space import Constraint, SearchSpace
    from kt.tuner.candidates import Candidates
    from kt.tuner.request import TuneRequest

__all__ = ["common_error", "no_candidates", "refusal", "too_large"]

CAPABILITY = "device.compute_capability"

Capability = tuple[int, int]


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
    here, needs = request.device.compute_capability, []
    for space in request.spaces:
        serving = _serving(space, request.device, problem)
        if newer := [one for one in serving if one > here and here not in serving]:
            needs.append(f"{space.family} serves {problem.dtype} {_needed(newer)}")
    return ", ".join(needs)


def _serving(space: SearchSpace, device: Device, problem: Problem) -> list[Capability]:
    """Of this compute capability and the known ones those on which the family serves the format, ascending.

    Besides the least one of the space, constraints say so that rest on the capability and on no parameter.
    """
    if problem.dtype not in space.dtypes:
        return []
    rules = [rule for rule in space.constraints if _is_of_capability(rule, space)]
    asked = {*compute_capabilities(), device.compute_capability, space.min_compute_capability}
    found = []
    for one in sorted(asked):
        names = {**replace(device, compute_capability=one).names(), **problem.names()}
        if one >= space.min_compute_capability and first_broken(space, rules, {}, names) is None:
            found.append(one)
    return found


def _is_of_capability(rule: Constraint, space: SearchSpace) -> bool:
    needed = leaves(rule.require.names, space.derived)
    return CAPABILITY in needed and not needed & {*space.parameters, *space.runtime}


def _needed(capabilities: Sequence[Capability]) -> str:
    """From which compute capability on; or on which, if not on every newer one."""
    least, *_ = texts = ["{}.{}".format(*one) for one in capabilities]
    if {one for one in compute_capabilities() if one > capabilities[0]} <= set(capabilities):
        return f"from compute capability {least} on"
    return f"on compute capability {' and '.join(texts)}"


def _unserved(request: TuneRequest, problem: Problem) -> str:
    """Whether the GPU or the format is at fault."""
    if newer := _newer(request, problem):
        capability = "{}.{}".format(*request.device.compute_capability)
        return f"no kernel family serves {problem.dtype} on compute capability {capability}: {newer}"
    offers = [f"{space.family} serves {', '.join(space.dtypes)}" for space in request.spaces]
    return f"no kernel family serves {problem.dtype}: {'; '.join(offers) or 'none of those that this run may use'}"
