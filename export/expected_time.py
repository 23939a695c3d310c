"""How long a kernel is expected to take on a shape that it was not measured on, from one that it was measured on.

A measured time is carried from one shape to another by what a configuration has to do for each: its blocks work in
rounds, as many at once as there are multiprocessors, and each goes `depth` steps along k. Launches and the traffic
through the workspace are counted apart. Shapes are so compared by measured performance, in the units of the
configuration itself.

The less alike two shapes are to a configuration, the more its time is doubted. How well this does: every shape of the
fp32 suite in turn taken to be unknown, the configuration expected to be fastest is 5% slower than the best one that was
measured (geometric mean; 29% at worst), that of the nearest shape by the logarithms of m, n and k 50% (3.6 times at
worst).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from kt.devices.device import Device
from kt.search_spaces.expression import Expression, compose
from kt.search_spaces.names import Names
from kt.search_spaces.space import SearchSpace

__all__ = [
    "COST_NAMES",
    "Costs",
    "Point",
    "cost_rules",
    "costs_of",
    "expected_ps",
    "nearest",
    "point_at",
    "traffic_rate",
]

# Of what a block does besides its steps, in steps; and of a launch. Fitted to the suite's measurements.
EXTRA_DEPTH = 16
LAUNCH_PS = 3_000_000
LEAST_PART = 0.3  # of a measured time that is taken to be work, whatever launches and workspace are said to cost
LONGEST_PS = 4e18

# A family that does not say how large its tiles are is compared as if these were they.
_USUAL = {"tile_m": "128", "tile_n": "128", "tile_k": "32", "split_k": "1", "stream_k": "0", "cluster_k": "1"}
COST_NAMES = ("kt_units", "kt_depth", "kt_work", "kt_launches", "kt_workspace")


@dataclass(frozen=True)
class Costs:
    """What a configuration has to do for a problem.

    Attributes:
        units: blocks' worth of work: tiles of all batches and slices of k.
        depth: steps along k of each, and `EXTRA_DEPTH`.
        work: rounds of units, times depth.
        launches: kernels that are launched.
        workspace: bytes that are written and read once.
    """

    units: int
    depth: int
    work: int
    launches: int
    workspace: int


@dataclass(frozen=True)
class Point:
    """A shape on which a kernel was measured, as it is for the kernel.

    Attributes:
        rate: picoseconds for one of `Costs.work`.
        entry: number of the shape's winner in the table.
    """

    units: int
    depth: int
    rate: float
    entry: int


def cost_rules(space: SearchSpace) -> dict[str, Expression]:
    """The derived quantities of a space, and what `Costs` has: the header prints the same."""
    known = {*space.parameters, *space.runtime, *space.derived}
    tile_m, tile_n, tile_k, split_k, stream_k, cluster_k = (name if name in known else _USUAL[name] for name in _USUAL)
    launches = " + ".join(f"(1 if ({rule.when.text}) else 0)" for rule in space.launches)
    slices = split_k if cluster_k == "1" else f"({split_k} * {cluster_k})"
    texts = {
        "kt_units": f"cdiv(m, {tile_m}) * cdiv(n, {tile_n}) * batch * {slices}",
        "kt_depth": f"cdiv(cdiv(k, {tile_k}), {slices}) * {tile_k} + {EXTRA_DEPTH}",
        "kt_work": f"cdiv(kt_units * kt_depth, device.sm_count) if {stream_k} == 1 else "
        "cdiv(kt_units, device.sm_count) * kt_depth",
        "kt_launches": launches,
        "kt_workspace": space.workspace_bytes.text,
    }
    return {**space.derived, **{name: compose(text) for name, text in texts.items()}}


def costs_of(rules: Mapping[str, Expression], names: Mapping[str, Any]) -> Costs:
    """The costs for parameters, run-time choices, problem and device in `names`."""
    values = Names(names, rules)
    return Costs(*(int(values[name]) for name in COST_NAMES))


def traffic_rate(device: Device) -> int:
    """Picoseconds in which 1000 bytes of workspace are written and read again."""
    return round(2e15 / device.bandwidth) if device.bandwidth else 1000


def point_at(costs: Costs, time_us: float, traffic: int, entry: int) -> Point:
    """The point of a measurement."""
    time_ps = time_us * 1e6
    work_ps = max(time_ps - overhead_ps(costs, traffic), LEAST_PART * time_ps)
    return Point(costs.units, costs.depth, work_ps / costs.work, entry)


def overhead_ps(costs: Costs, traffic: int) -> int:
    """Launches, and the traffic through the workspace."""
    return costs.launches * LAUNCH_PS + costs.workspace * traffic // 1000


def nearest(points: Sequence[Point], costs: Costs) -> Point:
    """The point whose units and depth are nearest, by the larger of the two ratios; the first of equal ones."""
    return min(points, key=lambda point: unlikeness(point, costs))


def unlikeness(point: Point, costs: Costs) -> float:
    return max(_ratio(point.units, costs.units), _ratio(point.depth, costs.depth))


def expected_ps(point: Point, costs: Costs, traffic: int) -> int:
    """The expected time in picoseconds; the header computes the same number from the same numbers."""
    time = overhead_ps(costs, traffic) + int(min(point.rate * float(costs.work), LONGEST_PS))
    return int(float(time) * doubt(point, costs))


def doubt(point: Point, costs: Costs) -> float:
    """By how much a time that is carried over is taken to be longer: the eighth root of how unlike the shapes are."""
    return sqrt(sqrt(sqrt(unlikeness(point, costs))))  # roots, for they are the same number in every language


def _ratio(one: int, other: int) -> float:
    return float(one) / float(other) if one > other else float(other) / float(one)
