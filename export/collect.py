"""`collect`: from winners and measurements to what a header has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kt.cache.records import BestConfig
from kt.devices.device import DeviceIdentity
from kt.errors import NoValidConfiguration
from kt.export.buckets import add_buckets
from kt.export.clocks import at_the_winners_clock, counting, lower_clock
from kt.export.contents import Candidate, Contents, Search, formats_of, group_of, known_device
from kt.export.expected_time import Point, cost_rules, traffic_rate
from kt.export.header import distinct
from kt.export.kernels import Kernel, Kernels, generic, layouts_of, of_winner
from kt.export.portfolio import Admits, Expect, Portfolio, portfolio
from kt.export.standards import add_standards
from kt.export.tiny import add_tiny
from kt.problems.ranges import RangedShape
from kt.search_spaces.slices import runtimes
from kt.search_spaces.space import Config, SearchSpace
from kt.wording import plural, verb

__all__ = ["collect", "collect_few"]


def collect(
    winners: Iterable[BestConfig],
    spaces: Mapping[str, SearchSpace],
    searches: Iterable[Search] = (),
    ranged: Sequence[RangedShape] = (),
    unseen: Iterable[BestConfig] = (),
) -> Contents:
    """What a header of the winners has.

    Args:
        searches: what was measured besides, of kernels as they are today.
        ranged: shapes of which a size varies at run time.
        unseen: what is known of shapes that stand for others, for the choice alone.

    Raises:
        InputError: a winner's family is not among `spaces`.
    """
    chosen = distinct(winners)
    result = _listed(chosen, [of_winner(best, spaces) for best in chosen], spaces)
    result.unseen = _of_the_same(chosen, unseen)
    times = _measured(result, searches)
    _add_neighbours(result, times)
    add_tiny(result)
    add_standards(result, times)
    _add_generics(result)
    add_buckets(result, ranged, times)
    return result


def collect_few(
    winners: Iterable[BestConfig],
    spaces: Mapping[str, SearchSpace],
    searches: Iterable[Search] = (),
    ranged: Sequence[RangedShape] = (),
    unseen: Iterable[BestConfig] = (),
    *,
    most: int | None = None,
    within: float | None = None,
    admits: Admits | None = None,
    expect: Expect = lambda kernels: None,
) -> tuple[Contents, Portfolio]:
    """What a header of the winners has that makes do with few kernels, and what it loses by that.

    Args:
        most: at most so many kernels besides the generic ones; a shape that they leave out gets a generic one.
        within: as few as can be so that no shape takes longer by more than this part.
        admits: whether a kernel of several forms may be among them; without it none is.
        expect: is told of those that `admits` is asked about next.

    Raises:
        NoValidConfiguration: both are asked for, and `most` are too few.
    """
    searches = list(searches)
    chosen = distinct(winners)
    known = _listed(chosen, [of_winner(best, spaces) for best in chosen], spaces)
    found = portfolio(known, _measured(known, searches), most=most, within=within, admits=admits, expect=expect)
    if most is not None and found.kernels > most and within is not None:
        serve = f"{plural(most, 'kernel')} {verb(most, 'serves', 'serve')}"
        message = f"no {serve} every shape within {100 * within:.3g}% of its winner: {found.kernels} do"
        raise NoValidConfiguration(message, hint="allow more kernels, or a greater loss")
    result = _listed(found.winners(), [one.kernel for one in found.served], spaces)
    result.unseen = _of_the_same(chosen, unseen)
    times = _measured(result, searches)
    _add_neighbours(result, times)
    _add_other_forms(result, times)
    _add_generics(result)
    add_buckets(result, ranged, times, [one.winner.measurement.time_us or 1.0 for one in found.served])
    return result, found


def _listed(chosen: Sequence[BestConfig], of_winners: Sequence[Kernel], spaces: Mapping[str, SearchSpace]) -> Contents:
    """The winners, each with its kernel, and nothing else yet."""
    kernels = Kernels()
    entries = [kernels.add(kernel, best.config.runtime) for best, kernel in zip(chosen, of_winners, strict=True)]
    result = Contents(chosen, spaces, kernels, entries)
    result.cost_rules = {family: cost_rules(space) for family, space in spaces.items()}
    devices = dict.fromkeys(best.key.device for best in chosen)
    result.traffic = {device: traffic_rate(known_device(device)) for device in devices}
    return result


def _of_the_same(chosen: Sequence[BestConfig], unseen: Iterable[BestConfig]) -> list[BestConfig]:
    """Those of the GPUs and number formats of the winners, in the order of a table."""
    groups = {(best.key.device, formats_of(best.key.problem)) for best in chosen}
    return [best for best in distinct(unseen) if (best.key.device, formats_of(best.key.problem)) in groups]


def _add_neighbours(result: Contents, times: Sequence[Mapping[str, float]]) -> None:
    """Each winner's kernel is a candidate of its group, with all measurements of its parameters."""
    for index, best in enumerate(result.winners):
        number = result.kernels.variants[result.entries[index]].kernel
        group = result.groups.setdefault(group_of(best), [])
        own = [entry for entry in result.entries if result.kernels.variants[entry].kernel == number]
        if any(own[0] in one.variants for one in group):
            continue
        group.append(_candidate(result, result.kernels.kernels[number], own, best.key.device, times))


def _add_other_forms(result: Contents, times: Sequence[Mapping[str, float]]) -> None:
    """What a kernel has besides the forms in which it serves winners, for problems of these formats in every layout."""
    known = {kernel.identity for kernel in result.kernels.kernels}
    used = {result.entries[index]: best for index, best in reversed(list(enumerate(result.winners)))}
    for number, best in sorted(used.items()):
        kernel = result.kernels.kernels[result.kernels.variants[number].kernel]
        for one in (kernel.of_form(form) for form in kernel.forms):
            if one.identity not in known:
                known.add(one.identity)
                key = (*group_of(best)[:-1], one.signature.layout)
                candidate = _candidate(result, one, [], best.key.device, times)
                result.groups.setdefault(key, []).append(candidate)


def _candidate(
    result: Contents, kernel: Kernel, own: Sequence[int], device: DeviceIdentity, times: Sequence[Mapping[str, float]]
) -> Candidate:
    """A kernel with run-time choices, those of variants that have won first, and where it was measured on a device."""
    others = [result.kernels.add(kernel, runtime) for runtime in runtimes(kernel.space)]
    points = [
        point
        for number, other in enumerate(result.measured)
        if other.key.device == device
        for point in _points(result, kernel, number, times[number])
    ]
    return Candidate(tuple(dict.fromkeys([*own, *others])), tuple(points))


def _points(result: Contents, kernel: Kernel, number: int, times: Mapping[str, float]) -> Iterator[Point]:
    """What was measured of a kernel's parameters on one of the shapes: of equal work the quickest way."""
    if formats_of(result.measured[number].key.problem) != kernel.formats:
        return
    found: dict[tuple[int, int], Point] = {}
    tried = [
        (number, config, time_us)
        for identity, time_us in times.items()
        for config in [result.configs[identity]]
        if config.family == kernel.config.family and config.parameters == kernel.config.parameters
    ]
    for point in result.points(kernel, tried):
        known = found.setdefault((point.units, point.depth), point)
        if point.root < known.root:
            found[point.units, point.depth] = point
    yield from found.values()


def _measured(result: Contents, searches: Iterable[Search]) -> list[dict[str, float]]:
    """For each shape the times of configurations on it, the winner's own among them, all as at its clock."""
    found = dict(searches)
    times: list[dict[str, float]] = []
    for index, best in enumerate(result.measured):
        of_shape = at_the_winners_clock(best, found.get(best.key, {}))
        lower = lower_clock(best.measurement, of_shape)
        tried = {config: us for config, one in of_shape.items() if (us := counting(one, lower)) is not None}
        failed = [config for config, one in of_shape.items() if one.failed]
        result.failed |= {(index, config.kernel) for config in failed}
        for config, one in of_shape.items():
            if config not in tried and one.time_us and not one.predicted:
                _give_up(result, index, config, one.time_us)
        tried[best.config] = best.measurement.time_us or 0.0
        result.configs |= {config.identity: config for config in tried}
        times.append({config.identity: us for config, us in tried.items()})
    return times


def _give_up(result: Contents, index: int, config: Config, time_us: float) -> None:
    name = index, config.kernel
    result.given_up[name] = min(time_us, result.given_up.get(name, time_us))


def _add_generics(result: Contents) -> None:
    signatures = {one: None for best in result.winners for one in layouts_of(best.key.problem.signature)}
    for signature in signatures:
        kernel = generic(tuple(result.spaces.values()), signature)
        if kernel is not None:
            variant = result.kernels.add(kernel, kernel.config.runtime)
            if variant not in result.generics:
                result.generics.append(variant)
