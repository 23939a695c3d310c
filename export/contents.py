"""What a header with kernels has: winners, kernels, and the candidates for shapes that were not tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.devices.catalog import find
from kt.devices.device import Device, DeviceIdentity
from kt.export.expected_time import Point, cost_rules, costs_of, point_at, traffic_rate
from kt.export.header import distinct
from kt.export.kernels import Kernel, Kernels, generic, layouts_of, of_winner
from kt.export.runnable import names_of
from kt.problems import Problem
from kt.search_spaces.expression import Expression
from kt.search_spaces.space import Config, SearchSpace

__all__ = ["Candidate", "Contents", "Formats", "GroupKey", "Search", "contents", "formats_of", "known_device"]

# Of a measurement that counts: fewer samples of a short kernel are mostly its launch.
LEAST_SAMPLES = 3
LONG_US = 1000.0

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
    """

    winners: Sequence[BestConfig]
    spaces: Mapping[str, SearchSpace]
    kernels: Kernels
    entries: Sequence[int]
    generics: list[int] = field(default_factory=list)
    groups: dict[GroupKey, list[Candidate]] = field(default_factory=dict)
    cost_rules: dict[str, Mapping[str, Expression]] = field(default_factory=dict)
    traffic: dict[DeviceIdentity, int] = field(default_factory=dict)

    def point(self, kernel: Kernel, config: Config, problem: Problem, time_us: float, entry: int) -> Point:
        """The point of a measurement of `config` on `problem`, on the device of an entry."""
        device = known_device(self.winners[entry].key.device)
        names = names_of(kernel, config.runtime, problem, device)
        costs = costs_of(self.cost_rules[config.family], names)
        return point_at(costs, time_us, self.traffic[device.identity], entry)


def contents(
    winners: Iterable[BestConfig], spaces: Mapping[str, SearchSpace], searches: Iterable[Search] = ()
) -> Contents:
    """What a header of the winners has.

    Args:
        searches: what was measured besides, of kernels as they are today.

    Raises:
        InputError: a winner's family is not among `spaces`.
    """
    chosen = distinct(winners)
    kernels = Kernels()
    entries = [kernels.add(of_winner(best, spaces), best.config.runtime) for best in chosen]
    result = Contents(chosen, spaces, kernels, entries)
    result.cost_rules = {family: cost_rules(space) for family, space in spaces.items()}
    devices = dict.fromkeys(best.key.device for best in chosen)
    result.traffic = {device: traffic_rate(known_device(device)) for device in devices}
    _add_neighbours(result, searches)
    _add_generics(result)
    return result


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


def _add_neighbours(result: Contents, searches: Iterable[Search]) -> None:
    """Each winner's variant is a candidate of its group, with all measurements of that very kernel."""
    times = measured(result, searches)
    for index, best in enumerate(result.winners):
        kernel = result.kernels.kernels[result.kernels.variants[result.entries[index]].kernel]
        group = result.groups.setdefault(group_of(best), [])
        if any(one.variant == result.entries[index] for one in group):
            continue
        found = [
            result.point(kernel, best.config, result.winners[entry].key.problem, time_us, entry)
            for entry, of_entry in enumerate(times)
            if group_of(result.winners[entry]) == group_of(best)
            and result.winners[entry].key.problem.signature == kernel.signature
            and (time_us := of_entry.get(best.config.identity)) is not None
        ]
        group.append(Candidate(result.entries[index], tuple(found)))


def measured(result: Contents, searches: Iterable[Search]) -> list[dict[str, float]]:
    """For each entry the times of configurations on its shape, the winner's own among them."""
    found = dict(searches)
    times: list[dict[str, float]] = []
    for best in result.winners:
        tried = found.get(best.key, {})
        of_entry = {
            config.identity: one.time_us
            for config, one in tried.items()
            if one.time_us is not None
            and not one.predicted
            and (one.samples >= LEAST_SAMPLES or one.time_us >= LONG_US)
        }
        times.append({**of_entry, best.config.identity: best.measurement.time_us or 0.0})
    return times


def _add_generics(result: Contents) -> None:
    signatures = {one: None for best in result.winners for one in layouts_of(best.key.problem.signature)}
    for signature in signatures:
        kernel = generic(tuple(result.spaces.values()), signature)
        if kernel is not None:
            variant = result.kernels.add(kernel, kernel.config.runtime)
            if variant not in result.generics:
                result.generics.append(variant)
