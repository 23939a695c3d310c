"""Whether a kernel can compute a problem on a device: what the functions of the header with kernels say, in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kt.devices.device import Device
from kt.errors import InputError
from kt.export.forms import most_smem
from kt.export.kernels import Kernel
from kt.problems import Problem
from kt.search_spaces.arithmetic import truth
from kt.search_spaces.enumeration import which_are_valid
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.names import Names, in_columns, leaves
from kt.search_spaces.space import Config, Launch, TensorMap, Value

__all__ = ["MOST_BYTES", "is_possible", "launches_of", "names_of", "never_runs", "which_run"]

MOST_BYTES = 2**48  # of an operand
_MOST_STRIDE = 2**40  # of TMA, in bytes
_TMA_ALIGNMENT = 16

Launches = tuple[tuple[Launch, ...], int]


def is_possible(problem: Problem) -> bool:
    """Whether the operands are no larger than any memory."""
    for operand, (rows, _) in problem.stored_extents.items():
        pitch, stride = getattr(problem, f"ld{operand}"), getattr(problem, f"stride_{operand}")
        if ((problem.batch - 1) * stride + rows * pitch) * problem.element_bytes[operand] > MOST_BYTES:
            return False
    return True


def launches_of(
    kernel: Kernel, runtime: tuple[tuple[str, Value], ...], problem: Problem, device: Device
) -> Launches | None:
    """What is launched for the problem, and the bytes of workspace; None if the kernel cannot compute it."""
    signature, capability = kernel.signature, device.compute_capability[0] * 10 + device.compute_capability[1]
    wanted = (problem.dtype, problem.accumulator, problem.out_dtype, problem.layout, problem.epilogue)
    given = (signature.dtype, signature.accumulator, signature.out_dtype, signature.layout, signature.epilogue)
    aligned = {f"align_{name}": getattr(signature, f"align_{name}") for name in "abc"}
    if wanted != given or not kernel.least <= capability <= kernel.most:
        return None
    if any(problem.alignment(name) < aligned[f"align_{name}"] for name in "abc"):
        return None
    config = Config(kernel.config.family, kernel.config.parameters, runtime)
    names = {**device.names(), **problem.names(), **aligned, "searching": kernel.searching}
    try:
        if violated(kernel.space, config, names) is not None:
            return None
        launches, workspace = resolve(kernel.space, config, names)
        launches = tuple(_with_room(kernel, one) for one in launches)
    except InputError:
        return None
    if any(launch.smem_bytes > device.smem_per_block_optin for launch in launches):
        return None
    maps = [one for launch in launches for one in launch.tensor_maps]
    return (launches, workspace) if all(_addressable(one, problem) for one in maps) else None


def _with_room(kernel: Kernel, launch: Launch) -> Launch:
    """A launch with the shared memory that a kernel of several forms has in each of them."""
    rule = next(rule for rule in kernel.space.launches if rule.kernel == launch.kernel)
    smem = most_smem(kernel.space, kernel.config, kernel.forms, kernel.arch, rule)
    return launch if smem is None else replace(launch, smem_bytes=smem)


def which_run(
    kernel: Kernel, runtime: tuple[tuple[str, Value], ...], problems: Sequence[Problem], device: Device
) -> list[bool]:
    """Which of the problems, of its formats and layout, the kernel can compute: `launches_of` for all at once.

    What TMA can address is looked at for one of them alone: rows that are aligned as the kernel wants are all alike.
    """
    least = {name: getattr(kernel.signature, f"align_{name}") for name in "abc"}
    fit = [place for place, one in enumerate(problems) if all(one.alignment(name) >= least[name] for name in "abc")]
    names = [names_of(kernel, runtime, problems[place], device) for place in fit]
    valid = which_are_valid(kernel.space, in_columns(names), len(names)).tolist() if names else []
    kept = [(place, one) for place, one, can in zip(fit, names, valid, strict=True) if can]
    smem = _most_smem_of(kernel, [one for _, one in kept])
    runs = {place for (place, _), most in zip(kept, smem, strict=True) if most <= device.smem_per_block_optin}
    if runs and launches_of(kernel, runtime, problems[min(runs)], device) is None:
        runs = set()
    return [place in runs for place in range(len(problems))]


def _most_smem_of(kernel: Kernel, every: Sequence[Mapping[str, Any]]) -> list[int]:
    """Shared memory of a block, the most of all launches, for each of several problems."""
    if not every:
        return []
    values, most = Names(in_columns(every), kernel.space.derived), np.zeros(len(every), np.int64)
    for rule in kernel.space.launches:
        launched = np.broadcast_to(np.asarray(truth(rule.when.evaluate(values))), len(every))
        if launched.any():
            most = np.maximum(most, np.where(launched, np.asarray(rule.smem_bytes.evaluate(values)), 0))
    return [int(one) for one in most]


def never_runs(kernel: Kernel, problem: Problem, device: Device) -> bool:
    """Whether it is certain that the kernel cannot compute the problem, whatever the run-time choices.

    One look in place of one for each of them; False is no promise.
    """
    if any(problem.alignment(name) < getattr(kernel.signature, f"align_{name}") for name in "abc"):
        return True
    names = names_of(kernel, kernel.config.runtime, problem, device)
    try:
        broken = violated(kernel.space, kernel.config, names)
    except InputError:
        return False
    return broken is not None and not leaves(broken.require.names, kernel.space.derived) & kernel.space.runtime.keys()


def names_of(
    kernel: Kernel, runtime: tuple[tuple[str, Value], ...], problem: Problem, device: Device
) -> dict[str, int | float | str]:
    """Every name of the kernel's space with its value; rows are as well aligned as the kernel takes them to be."""
    aligned = {f"align_{name}": getattr(kernel.signature, f"align_{name}") for name in "abc"}
    choices = dict((*kernel.config.parameters, *runtime))
    return {**device.names(), **problem.names(), **aligned, "searching": kernel.searching, **choices}


def _addressable(one: TensorMap, problem: Problem) -> bool:
    """Whether TMA can address what the map shows."""
    rows, columns = problem.stored_extents[one.operand]
    pitch, stride = getattr(problem, f"ld{one.operand}"), getattr(problem, f"stride_{one.operand}")
    if one.copy:
        rows = columns if one.copy.turned else rows
        pitch, stride = one.copy.pitch, 0
        if one.copy.offset % _TMA_ALIGNMENT:
            return False
    if one.rows:
        pitch, stride = pitch * one.rows.of, 0
    size = problem.element_bytes[one.operand]
    strides = (pitch * size, (stride or max(1, rows) * pitch) * size)
    narrow = one.swizzle == 0 or one.box[0] * size <= one.swizzle
    return narrow and all(0 <= bytes_ < _MOST_STRIDE and bytes_ % _TMA_ALIGNMENT == 0 for bytes_ in strides)
