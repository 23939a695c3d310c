"""`collect`: from winners and measurements to what a header has."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kt.cache.records import BestConfig, Measurement
from kt.errors import NoValidConfiguration
from kt.export.buckets import add_buckets
from kt.export.contents import Candidate, Contents, Search, formats_of, group_of, known_device
from kt.export.expected_time import Point, cost_rules, traffic_rate
from kt.export.header import distinct
from kt.export.kernels import Kernel, Kernels, generic, layouts_of, of_winner, runtimes
from kt.export.portfolio import Portfolio, portfolio
from kt.export.standards import add_standards
from kt.problems.ranges import RangedShape
from kt.search_spaces.space import Config, SearchSpace

__all__ = ["collect", "collect_few"]

# Of a measurement that counts: fewer samples of a short kernel are mostly its launch.
LEAST_SAMPLES = 3
LONG_US = 1000.0
LOWER_CLOCKS = (0.8, 1.5)  # of finals against screenings; beyond these one of the two was no time of the kernel
_NO_FAILURES = ("ok", "pruned", "compile_error")  # nothing ran, or it was right


def collect(
    winners: Iterable[BestConfig],
    spaces: Mapping[str, SearchSpace],
    searches: Iterable[Search] = (),
    ranged: Sequence[RangedShape] = (),
) -> Contents:
    """What a header of the winners has.

    Args:
        searches: what was measured besides, of kernels as they are today.
        ranged: shapes of which a size varies at run time.

    Raises:
        InputError: a winner's family is not among `spaces`.
    """
    chosen = distinct(winners)
    result = _listed(chosen, [of_winner(best, spaces) for best in chosen], spaces)
    times = _measured(result, searches)
    _add_neighbours(result, times)
    add_standards(result, times)
    _add_generics(result)
    add_buckets(result, ranged, times)
    return result


def collect_few(
    winners: Iterable[BestConfig],
    spaces: Mapping[str, SearchSpace],
    searches: Iterable[Search] = (),
    ranged: Sequence[RangedShape] = (),
    *,
    most: int | None = None,
    within: float | None = None,
) -> tuple[Contents, Portfolio]:
    """What a header of the winners has that makes do with few kernels, and what it loses by that.

    Args:
        most: at most so many kernels besides the generic ones; a shape that they leave out gets a generic one.
        within: as few as can be so that no shape takes longer by more than this part.

    Raises:
        NoValidConfiguration: both are asked for, and `most` are too few.
    """
    searches = list(searches)
    chosen = distinct(winners)
    known = _listed(chosen, [of_winner(best, spaces) for best in chosen], spaces)
    found = portfolio(known, _measured(known, searches), most=most, within=within)
    if most is not None and found.kernels > most and within is not None:
        message = f"no {most} kernels serve every shape within {100 * within:.3g}% of its winner: {found.kernels} do"
        raise NoValidConfiguration(message, hint="allow more kernels, or a greater loss")
    result = _listed(found.winners(), [one.kernel for one in found.served], spaces)
    times = _measured(result, searches)
    _add_neighbours(result, times)
    _add_generics(result)
    add_buckets(result, ranged, times)
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


def _add_neighbours(result: Contents, times: Sequence[Mapping[str, float]]) -> None:
    """Each winner's kernel is a candidate of its group, with all measurements of its parameters."""
    for index, best in enumerate(result.winners):
        number = result.kernels.variants[result.entries[index]].kernel
        group = result.groups.setdefault(group_of(best), [])
        own = [entry for entry in result.entries if result.kernels.variants[entry].kernel == number]
        if any(own[0] in one.variants for one in group):
            continue
        kernel = result.kernels.kernels[number]
        others = [result.kernels.add(kernel, runtime) for runtime in runtimes(kernel.space)]
        points = [
            point
            for entry, other in enumerate(result.winners)
            if other.key.device == best.key.device
            for point in _points(result, kernel, entry, times[entry])
        ]
        group.append(Candidate(tuple(dict.fromkeys([*own, *others])), tuple(points)))


def _points(result: Contents, kernel: Kernel, entry: int, times: Mapping[str, float]) -> Iterator[Point]:
    """What was measured of a kernel's parameters on the shape of an entry: of equal work the quickest way."""
    problem = result.winners[entry].key.problem
    if formats_of(problem) != kernel.formats:
        return
    found: dict[tuple[int, int], Point] = {}
    for identity, time_us in times.items():
        config = result.configs[identity]
        if config.family == kernel.config.family and config.parameters == kernel.config.parameters:
            point = result.point(kernel, config, problem, time_us, entry)
            known = found.setdefault((point.units, point.depth), point)
            if point.root < known.root:
                found[point.units, point.depth] = point
    yield from found.values()


def _measured(result: Contents, searches: Iterable[Search]) -> list[dict[str, float]]:
    """For each entry the times of configurations on its shape, the winner's own among them, all as at its clock."""
    found = dict(searches)
    times: list[dict[str, float]] = []
    for index, best in enumerate(result.winners):
        of_shape = _at_the_winners_clock(best, found.get(best.key, {}))
        lower = _lower_clock(best.measurement, of_shape)
        tried = {config: us for config, one in of_shape.items() if (us := _counting(one, lower)) is not None}
        failed = [config for config, one in of_shape.items() if one.status not in _NO_FAILURES]
        result.failed |= {(index, Config(config.family, config.parameters)) for config in failed}
        tried[best.config] = best.measurement.time_us or 0.0
        result.configs |= {config.identity: config for config in tried}
        times.append({config.identity: us for config, us in tried.items()})
    return times


def _at_the_winners_clock(best: BestConfig, of_shape: Mapping[Config, Measurement]) -> Mapping[Config, Measurement]:
    """What was measured on a shape, with finalists of other finals as they would be in the winner's.

    A shape may have been decided more than once, as against other shapes' kernels: each time at the clock that the GPU
    had then. No finalist that is not tied with the winner is faster than it, so where one seems to be, all of them are
    taken to be slower by the same part.
    """
    others = {config for config, one in of_shape.items() if one.refined and config not in (best.config, *best.ties)}
    won_us, most = best.measurement.time_us or 0.0, LOWER_CLOCKS[1]
    ratios = [won_us / us for config in others if (us := _counting(of_shape[config], 1.0)) is not None]
    scale = max([ratio for ratio in ratios if ratio <= most], default=1.0)
    if scale <= 1.0 or not best.measurement.refined:
        return of_shape
    return {config: _scaled(one, scale) if config in others else one for config, one in of_shape.items()}


def _scaled(measurement: Measurement, scale: float) -> Measurement:
    return replace(measurement, time_us=measurement.time_us * scale) if measurement.time_us else measurement


def _lower_clock(won: Measurement, of_shape: Mapping[Config, Measurement]) -> float:
    """How many times as long as in its screening a kernel takes in finals, where the GPU is under load for long.

    By the median of those of the shape of which both times are known; 1 where nothing is, as in caches of schema 1. One
    odd screening of a shape that has no other says nothing.
    """
    every = [(one.time_us, one.screened_us) for one in (won, *of_shape.values()) if one.refined]
    ratios = [time_us / screened_us for time_us, screened_us in every if time_us and screened_us]
    least, most = LOWER_CLOCKS
    return statistics.median([one for one in ratios if least <= one <= most] or [1.0])


def _counting(measurement: Measurement, lower_clock: float) -> float | None:
    """The time of a measurement that counts, as it would be in finals."""
    if measurement.predicted or measurement.time_us is None:
        return None
    enough = measurement.samples >= LEAST_SAMPLES or measurement.time_us >= LONG_US
    scale = 1.0 if measurement.refined else lower_clock
    return measurement.time_us * scale if enough else None


def _add_generics(result: Contents) -> None:
    signatures = {one: None for best in result.winners for one in layouts_of(best.key.problem.signature)}
    for signature in signatures:
        kernel = generic(tuple(result.spaces.values()), signature)
        if kernel is not None:
            variant = result.kernels.add(kernel, kernel.config.runtime)
            if variant not in result.generics:
                result.generics.append(variant)
