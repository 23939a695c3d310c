"""What a header with kernels has: winners, kernels, and the candidates for shapes that were not tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.devices.catalog import find
from kt.devices.device import Device, DeviceIdentity
from kt.export.expected_time import Point, costs_of, point_at
from kt.export.kernels import Kernel, Kernels
from kt.export.runnable import names_of
from kt.problems import Problem
from kt.search_spaces.expression import Expression
from kt.search_spaces.space import Config, SearchSpace

__all__ = ["Candidate", "Contents", "Formats", "GroupKey", "Search", "formats_of", "group_of", "known_device"]

Search = tuple[CacheKey, Mapping[Config, Measurement]]
Formats = tuple[str, str, str, str]  # dtype, accumulator, output, epilogue
GroupKey = tuple[DeviceIdentity, str, str, str, str, str]  # device, formats, layout


@dataclass(frozen=True)
class Candidate:
    """A variant for shapes that were not tuned, and where it was measured.

    Attributes:
        points: at least one, in the order of the table's entries.
        standard: it is no winner's, but the configuration that is best over all tuned shapes.
    """

    variant: int
    points: tuple[Point, ...]
    standard: bool = False


@dataclass
class Contents:
    """What a header has.

    Attributes:
        winners: one of each problem and device, in the order of the table.
        spaces: by family.
        kernels: every kernel and variant.
        entries: the variant of each winner.
        generics: variants that can compute anything.
        groups: candidates by device, formats and layout.
        cost_rules: by family, see `kt.export.expected_time`.
        traffic: by device, see `traffic_rate`.
        configs: those that were measured, by their identity.
    """

    winners: Sequence[BestConfig]
    spaces: Mapping[str, SearchSpace]
    kernels: Kernels
    entries: Sequence[int]
    generics: list[int] = field(default_factory=list)
    groups: dict[GroupKey, list[Candidate]] = field(default_factory=dict)
    cost_rules: dict[str, Mapping[str, Expression]] = field(default_factory=dict)
    traffic: dict[DeviceIdentity, int] = field(default_factory=dict)
    configs: dict[str, Config] = field(default_factory=dict)

    def point(self, kernel: Kernel, config: Config, problem: Problem, time_us: float, entry: int) -> Point:
        """The point of a measurement of `config` on `problem`, on the device of an entry."""
        device = known_device(self.winners[entry].key.device)
        names = names_of(kernel, config.runtime, problem, device)
        costs = costs_of(self.cost_rules[config.family], names)
        return point_at(costs, time_us, self.traffic[device.identity], entry)


def formats_of(problem: Problem) -> Formats:
    """What a kernel must agree with a problem in besides the layout."""
    return problem.dtype, problem.accumulator, problem.out_dtype, problem.epilogue


def known_device(identity: DeviceIdentity) -> Device:
    """The figures of a device of the table; those that kt's data file does not have are unknown."""
    found = find(identity.name, identity.compute_capability, identity.sm_count)
    return found or Device(identity.name, identity.compute_capability, identity.sm_count, identity.memory_gib << 30)


def group_of(best: BestConfig) -> GroupKey:
    problem = best.key.problem
    return (best.key.device, *formats_of(problem), problem.layout)
