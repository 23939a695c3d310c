"""`collect`: from winners and measurements to what a header has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kt.cache.records import BestConfig, Measurement
from kt.export.contents import Candidate, Contents, Search, group_of, known_device
from kt.export.expected_time import cost_rules, traffic_rate
from kt.export.header import distinct
from kt.export.kernels import Kernels, generic, layouts_of, of_winner
from kt.export.standards import add_standards
from kt.search_spaces.space import SearchSpace

__all__ = ["collect"]

# Of a measurement that counts: fewer samples of a short kernel are mostly its launch.
LEAST_SAMPLES = 3
LONG_US = 1000.0


def collect(
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
    times = _measured(result, searches)
    _add_neighbours(result, times)
    add_standards(result, times)
    _add_generics(result)
    return result


def _add_neighbours(result: Contents, times: Sequence[dict[str, float]]) -> None:
    """Each winner's variant is a candidate of its group, with all measurements of that very kernel."""
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


def _measured(result: Contents, searches: Iterable[Search]) -> list[dict[str, float]]:
    """For each entry the times of configurations on its shape, the winner's own among them."""
    found = dict(searches)
    times: list[dict[str, float]] = []
    for best in result.winners:
        tried = {config: us for config, one in found.get(best.key, {}).items() if (us := _counting(one)) is not None}
        tried[best.config] = best.measurement.time_us or 0.0
        result.configs |= {config.identity: config for config in tried}
        times.append({config.identity: us for config, us in tried.items()})
    return times


def _counting(measurement: Measurement) -> float | None:
    """The time of a measurement that counts."""
    if measurement.predicted or measurement.time_us is None:
        return None
    enough = measurement.samples >= LEAST_SAMPLES or measurement.time_us >= LONG_US
    return measurement.time_us if enough else None


def _add_generics(result: Contents) -> None:
    signatures = {one: None for best in result.winners for one in layouts_of(best.key.problem.signature)}
    for signature in signatures:
        kernel = generic(tuple(result.spaces.values()), signature)
        if kernel is not None:
            variant = result.kernels.add(kernel, kernel.config.runtime)
            if variant not in result.generics:
                result.generics.append(variant)
