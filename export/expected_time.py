"""How long a kernel is expected to take on a shape that it was not measured on, from those that it was measured on.

A measured time is carried from one shape to another by what a configuration has to do for each: its blocks work in
rounds, as many at once as there are multiprocessors, and each goes `depth` steps along k. Launches and the traffic
through the workspace are counted apart. Shapes are so compared by measured performance, in the units of the
configuration itself. All measurements count, the more the more alike the shapes are to the configuration; and the less
alike the nearest one is, the more the time is doubted. docs/header.md says how well this does.

The header computes the same numbers: whole ones, sums, products, quotients and square roots, for these are the same in
every language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from kt.devices.device import Device
from kt.search_spaces.expression import Expression, compose
from kt.search_spaces.names import Names, in_columns
from kt.search_spaces.space import SearchSpace

__all__ = [
    "COST_NAMES",
    "Costs",
    "Point",
    "cost_rules",
    "costs_of",
    "doubt",
    "expected",
    "point_at",
    "traffic_rate",
    "unlikeness",
]

# Of what a block does besides its steps, in values of k; and of a launch. Fitted to measurements of the suite in seven
# formats, and of 32 bf16 kernels on 60 shapes that were not tuned.
EXTRA_DEPTH = 64
LAUNCH_PS = 2_000_000
LEAST_PART = 0.5  # of a measured time that is taken to be work, whatever launches and workspace are said to cost
LONGEST_PS = 4e18

# What a step takes at least in which a block waits for data from memory; stages overlap. A block alone on a
# multiprocessor is no faster, however fast many together are.
STEP_PS = 700_000

# How much the measurement of a kernel says of the same parameters in another layout, and of those rendered for operands
# that are aligned to more, or to less.
OTHER_LAYOUT = 0.1
OTHER_ROWS = 0.1

# A family that does not say how large its tiles are is compared as if these were they.
_USUAL = {
    "tile_m": "128",
    "tile_n": "128",
    "tile_k": "32",
    "split_k": "1",
    "stream_k": "0",
    "cluster_k": "1",
    "stages": "2",
    "pack_a": "0",
    "pack_b": "0",
    "shift_a": "0",
    "stretch_b": "0",
}
COST_NAMES = ("kt_units", "kt_depth", "kt_work", "kt_chain", "kt_launches", "kt_workspace")


@dataclass(frozen=True)
class Costs:
    """What a configuration has to do for a problem.

    Attributes:
        units: blocks' worth of work: tiles of all batches and slices of k.
        depth: steps along k of each, and `EXTRA_DEPTH`.
        work: rounds of units, times depth.
        chain: picoseconds that the steps of one unit take at least, one after the other.
        launches: kernels that are launched.
        workspace: bytes that are written and read once.
    """

    units: int
    depth: int
    work: int
    chain: int
    launches: int
    workspace: int


@dataclass(frozen=True)
class Point:
    """A shape on which a kernel was measured, as it is for the kernel.

    Attributes:
        root: square root of the picoseconds for one of `Costs.work`: these are averaged, near to a geometric mean.
        weight: how much it counts.
        entry: number of the shape's winner in the table.
    """

    units: int
    depth: int
    root: float
    weight: float
    entry: int


def cost_rules(space: SearchSpace) -> dict[str, Expression]:
    """The derived quantities of a space, and what `Costs` has: the header prints the same."""
    known = {*space.parameters, *space.runtime, *space.derived}
    tile_m, tile_n, tile_k, split_k, stream_k, cluster_k, stages, pack_a, pack_b, shift_a, stretch_b = (
        name if name in known else _USUAL[name] for name in _USUAL
    )
    # Copies of less than 4 bytes pass through registers: a block waits for each step's, whatever its stages.
    waits = f"(align_a < 4 and {pack_a} + {shift_a} == 0) or (align_b < 4 and {pack_b} + {stretch_b} == 0)"
    overlap = f"(1 if {waits} else max(1, {stages} - 1))"
    launches = " + ".join(f"(1 if ({rule.when.text}) else 0)" for rule in space.launches)
    slices = split_k if cluster_k == "1" else f"({split_k} * {cluster_k})"
    texts = {
        "kt_units": f"cdiv(m, {'height' if 'height' in known else tile_m}) * cdiv(n, {tile_n}) * batch * {slices}",
        "kt_depth": f"cdiv(cdiv(k, {tile_k}), {slices}) * {tile_k} + {EXTRA_DEPTH}",
        "kt_work": f"cdiv(kt_units * kt_depth, device.sm_count) if {stream_k} == 1 else "
        "cdiv(kt_units, device.sm_count) * kt_depth",
        "kt_chain": f"cdiv(cdiv(k, {tile_k}), {slices}) * {STEP_PS} // {overlap}",
        "kt_launches": launches,
        "kt_workspace": "workspace_traffic" if "workspace_traffic" in known else space.workspace_bytes.text,
    }
    return {**space.derived, **{name: compose(text) for name, text in texts.items()}}


def costs_of(rules: Mapping[str, Expression], names: Mapping[str, Any]) -> Costs:
    """The costs for parameters, run-time choices, problem and device in `names`."""
    values = Names(names, rules)
    return Costs(*(int(values[name]) for name in COST_NAMES))


def costs_of_each(rules: Mapping[str, Expression], every: Sequence[Mapping[str, Any]]) -> list[Costs]:
    """`costs_of` for each of several names, all of the same ones, at once."""
    import numpy as np

    values = Names(in_columns(every), rules)
    found = [np.broadcast_to(np.asarray(values[name]), len(every)).tolist() for name in COST_NAMES]
    return [Costs(*(int(value) for value in row)) for row in zip(*found, strict=True)]


def traffic_rate(device: Device) -> int:
    """Picoseconds in which 1000 bytes of workspace are written and read again."""
    return round(2e15 / device.bandwidth) if device.bandwidth else 1000


def point_at(costs: Costs, time_us: float, traffic: int, entry: int, weight: float = 1.0) -> Point:
    """The point of a measurement."""
    time_ps = time_us * 1e6
    work_ps = max(time_ps - overhead_ps(costs, traffic), LEAST_PART * time_ps)
    return Point(costs.units, costs.depth, sqrt(work_ps / costs.work), weight, entry)


def overhead_ps(costs: Costs, traffic: int) -> int:
    """Launches, and the traffic through the workspace."""
    return costs.launches * LAUNCH_PS + costs.workspace * traffic // 1000


def expected(points: Sequence[Point], costs: Costs, traffic: int) -> tuple[int, int]:
    """The expected time in picoseconds, and the entry of the point whose units and depth are nearest.

    A point weighs less with `unlikeness`, by which units or depth differ: 1 / (u + 1/u - 1)^2, which is 1 for the same
    and 1 / u^2 for very different ones.
    """
    nearest, least = points[0], unlikeness(points[0], costs)
    roots = weights = 0.0
    for point in points:
        unlike = unlikeness(point, costs)
        if unlike < least:
            nearest, least = point, unlike
        distance = unlike + 1.0 / unlike - 1.0
        weight = point.weight / (distance * distance)
        roots += weight * point.root
        weights += weight
    root = roots / weights
    work_ps = max(int(min(root * root * float(costs.work), LONGEST_PS)), costs.chain)
    time = overhead_ps(costs, traffic) + work_ps
    return int(min(float(time) * doubt(least), LONGEST_PS)), nearest.entry


def unlikeness(point: Point, costs: Costs) -> float:
    """How many times units, or depth, differ: the larger of the two."""
    return max(_ratio(point.units, costs.units), _ratio(point.depth, costs.depth))


def doubt(unlike: float) -> float:
    """By how much a time that is carried over is taken to be longer: the 16th root of how unlike the shapes are."""
    return sqrt(sqrt(sqrt(sqrt(unlike))))


def _ratio(one: int, other: int) -> float:
    return float(one) / float(other) if one > other else float(other) / float(one)
