"""What a header with kernels has: winners, kernels, and the candidates for shapes that were not tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.devices.catalog import find
from kt.devices.device import Device, DeviceIdentity
from kt.export.expected_time import OTHER_LAYOUT, OTHER_ROWS, Costs, Point, costs_of_each, point_at
from kt.export.kernels import Kernel, Kernels
from kt.export.runnable import names_of
from kt.problems import Problem
from kt.problems.ranges import Bucket, RangedShape
from kt.search_spaces.expression import Expression
from kt.search_spaces.space import Config, SearchSpace

__all__ = [
    "NARROW",
    "NARROW_STORES",
    "BucketServed",
    "Candidate",
    "Contents",
    "Formats",
    "GroupKey",
    "Search",
    "Source",
    "formats_of",
    "group_of",
    "known_device",
    "narrowing",
]

# Times as long, where what was measured with aligned rows is rendered for less aligned ones: of an operand that is read
# as it lies, or of C alone.
NARROW = 1.5
NARROW_STORES = 1.1

# Of a time; "alike": it was measured of the same parameters in a kernel of that form alone, and not of one of several.
Source = Literal["measured", "alike", "expected", "predicted"]
Search = tuple[CacheKey, Mapping[Config, Measurement]]
Formats = tuple[str, str, str, str]  # dtype, accumulator, output, epilogue
GroupKey = tuple[DeviceIdentity, str, str, str, str, str]  # device, formats, layout


@dataclass(frozen=True)
class Candidate:
    """A kernel for shapes that were not tuned, and where it was measured.

    Attributes:
        variants: numbers of the kernel's variants: the winner's, and others that differ in run-time choices.
        points: at least one, in the order of the table's entries.
        standard: it is no winner's, but the configuration that is best over all tuned shapes.
    """

    variants: tuple[int, ...]
    points: tuple[Point, ...]
    standard: bool = False


@dataclass(frozen=True)
class BucketServed:
    """A bucket of a range, or a part of one, and the tuned shape whose winner serves it.

    Attributes:
        entry: number of that shape.
        other: number of the other tuned shape that is served so; `entry` if there is none.
        loss: by which part it is slower on the other one than that one's own winner; infinite if that is not known, as
            where a generic kernel serves one of the two.
        source: how that is known; "predicted" if the model's time of one of the two is behind it.
    """

    shape: RangedShape
    bucket: Bucket
    entry: int
    other: int
    loss: float = 0.0
    source: Source = "expected"


@dataclass
class Contents:
    """What a header has.

    Attributes:
        winners: one of each problem and device, in the order of the table.
        unseen: what was measured besides for shapes that nobody lists, one of each; none of them is in the table.
        spaces: by family.
        kernels: every kernel and variant.
        entries: the variant of each winner.
        generics: variants that can compute anything.
        tiny: variants for tiny problems, those for the most aligned operands first.
        groups: candidates by device, formats and layout.
        cost_rules: by family, see `kt.export.expected_time`.
        traffic: by device, see `traffic_rate`.
        configs: those that were measured, by their identity.
        buckets: of sizes that vary at run time.
        failed: entries, each with a kernel that failed on its shape, or was wrong, with some run-time choices.
        given_up: microseconds of what a search has given up on the shape of an entry before it was timed well, by entry
            and kernel: of the quickest run-time choices.
    """

    winners: Sequence[BestConfig]
    spaces: Mapping[str, SearchSpace]
    kernels: Kernels
    entries: Sequence[int]
    generics: list[int] = field(default_factory=list)
    tiny: list[int] = field(default_factory=list)
    groups: dict[GroupKey, list[Candidate]] = field(default_factory=dict)
    cost_rules: dict[str, Mapping[str, Expression]] = field(default_factory=dict)
    traffic: dict[DeviceIdentity, int] = field(default_factory=dict)
    configs: dict[str, Config] = field(default_factory=dict)
    buckets: list[BucketServed] = field(default_factory=list)
    failed: set[tuple[int, Config]] = field(default_factory=set)
    given_up: dict[tuple[int, Config], float] = field(default_factory=dict)
    unseen: Sequence[BestConfig] = ()

    @cached_property
    def measured(self) -> list[BestConfig]:
        """The winners of all shapes on which something was measured: those of the table first."""
        return [*self.winners, *self.unseen]

    def may_fail(self, config: Config, entry: int) -> bool:
        """Whether the kernel of a configuration that was not measured on the shape of an entry has failed there."""
        return (entry, config.kernel) in self.failed

    def points(self, kernel: Kernel, measured: Sequence[tuple[int, Config, float]]) -> list[Point]:
        """The points of measurements, for a kernel with the same parameters: in the shape's layout, or in another one,
        for rows as well aligned, or for less.

        Args:
            measured: the number of the shape in `measured`, what was timed on it, and its microseconds.
        """
        if not measured:
            return []
        names = []
        for number, config, _ in measured:
            key = self.measured[number].key
            names.append(names_of(kernel, config.runtime, key.problem, known_device(key.device)))
        costs = costs_of_each(self.cost_rules[kernel.config.family], names)
        return [self._point(kernel, one, *rest) for one, rest in zip(costs, measured, strict=True)]

    def _point(self, kernel: Kernel, costs: Costs, number: int, config: Config, time_us: float) -> Point:
        key = self.measured[number].key
        weight = 1.0 if key.problem.layout == kernel.signature.layout else OTHER_LAYOUT
        if _reads_otherwise(kernel, key.problem):
            weight *= OTHER_ROWS
        entry = number if number < len(self.winners) else -1
        time_us *= narrowing(kernel, key.problem)
        return point_at(costs, time_us, self.traffic[key.device], entry, weight)


def narrowing(kernel: Kernel, problem: Problem) -> float:
    """How many times as long a kernel is taken to need as one that is rendered for rows as well aligned as a problem's.

    An operand that is packed is multiplied in whole chunks, whatever its rows are.
    """
    if any(_alignment(kernel, name) < problem.alignment(name) for name in _unpacked(kernel)):
        return NARROW
    return NARROW_STORES if _alignment(kernel, "c") < problem.alignment("c") else 1.0


def _reads_otherwise(kernel: Kernel, problem: Problem) -> bool:
    """Whether what was measured on a problem was rendered for operands that are aligned to more, or to less."""
    return any(_alignment(kernel, name) != problem.alignment(name) for name in _unpacked(kernel))


def _unpacked(kernel: Kernel) -> list[str]:
    packed = {name[-1] for name, value in kernel.config.parameters if name in ("pack_a", "pack_b") and value == 1}
    return [name for name in "ab" if name not in packed]


def _alignment(kernel: Kernel, operand: str) -> int:
    alignment: int = getattr(kernel.signature, f"align_{operand}")
    return alignment


def formats_of(problem: Problem) -> Formats:
    """What a kernel must agree with a problem in besides the layout."""
    return problem.formats


def known_device(identity: DeviceIdentity) -> Device:
    """The figures of a device of the table, of this very identity; what kt's data file does not have is unknown."""
    memory = identity.memory_gib << 30  # by which one GPU may differ from another of its name, as with error correction
    found = find(identity.name, identity.compute_capability, identity.sm_count)
    if found is not None:
        return replace(found, memory_bytes=memory)
    return Device(identity.name, identity.compute_capability, identity.sm_count, memory)


def group_of(best: BestConfig) -> GroupKey:
    problem = best.key.problem
    return (best.key.device, *formats_of(problem), problem.layout)
