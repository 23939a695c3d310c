"""Who wins: the finalists of a shape, the pick among ties, and what a winner says about the space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kt.search_spaces.launch import violated

if TYPE_CHECKING:
    from kt.cache.records import Measurement
    from kt.devices.device import Device
    from kt.problems import Problem
    from kt.search_spaces.space import Config, SearchSpace, Value
    from kt.tuner.shape_run import Trial

__all__ = [
    "FIRST_FINALISTS",
    "FURTHER_BELOW_US",
    "MOST_FINALISTS",
    "OF_A_STRUCTURE",
    "WITHIN",
    "edge",
    "finalists",
    "lost_by",
    "pick",
    "simplicity",
]

FIRST_FINALISTS = 8
MOST_FINALISTS = 16
OF_A_KIND = 2  # finalists that take turns alike and share steps or do not, at least
OF_A_STRUCTURE = 2  # finalists besides the first that cut the problem up alike
FURTHER_BELOW_US = 200_000.0  # further ones enter while one run of each takes no longer than this
WITHIN = 1.08  # a finalist's screened time is at most this much above the best: beyond the noise of one screening
WITHIN_OF_A_KIND = 1.15  # and that of a kind which has none yet: by so much may load change the order of kinds


def finalists(
    timed: Sequence[Trial], dropped: set[int], structures: Callable[[Sequence[int]], Mapping[int, int]]
) -> list[Trial]:
    """The first of the trials `timed`, fastest first, that are close to each other; `dropped` ones have failed.

    A screening takes milliseconds after a pause. Under load a GPU lowers its clock to keep within its power, for one
    kernel more than for another, so that the order of those that are close can be another one there. Those that cut the
    problem up alike need about the same power. So the first few are followed by the best of other kinds, and then of
    other structures; by fewer if they run for long, for each runs about ten times, and tens of milliseconds are a load
    in the screening already.
    """
    running = [trial for trial in timed if trial.number not in dropped]
    near, close = _within(WITHIN_OF_A_KIND, running), _within(WITHIN, running)
    structure = structures([trial.number for trial in near])
    chosen = close[:FIRST_FINALISTS]
    for trial in [*_of_other_kinds(near, chosen), *close]:
        alike = sum(structure[other.number] == structure[trial.number] for other in chosen)
        fits = len(chosen) < MOST_FINALISTS and sum(map(_time, [*chosen, trial])) <= FURTHER_BELOW_US
        if trial not in chosen and alike < OF_A_STRUCTURE and fits:
            chosen.append(trial)
    return sorted(chosen, key=_time)


def _within(factor: float, running: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in running if _time(trial) <= factor * _time(running[0])]


def _of_other_kinds(near: Sequence[Trial], chosen: Sequence[Trial]) -> list[Trial]:
    """The fastest of each kind that has fewer than `OF_A_KIND` finalists, as many as it lacks.

    On an H200 kernels whose consumers take turns slow down less under load than others, by up to a tenth, and so come
    late in the screening; most so where they share the last steps.
    """
    of_kind = Counter(map(_kind, chosen))
    further = []
    for trial in near:
        if trial not in chosen and of_kind[_kind(trial)] < OF_A_KIND:
            of_kind[_kind(trial)] += 1
            further.append(trial)
    return further


def _kind(trial: Trial) -> tuple[object, object]:
    """What decides, besides the tile, how much a kernel slows down under load; the same for all of most families."""
    choices = trial.config.as_dict()
    return choices.get("schedule"), choices.get("stream_k")


def pick(refined: Mapping[str, Measurement], ties: Sequence[str], trials: Mapping[str, Trial]) -> list[Trial]:
    """The winner, then those tied with it, fastest first.

    The winner is the simplest of the tied ones. If the family's default configuration is among them, it must not be
    slower than that: what is recorded never loses to the default.

    Args:
        refined: final measurements by name, those first that were faster in the same rounds; all are `ok`. One that
            left the finals early lost there, whatever its median: it comes from other rounds than the winner's.
        ties: names that could not be told apart from the fastest.
        trials: the trials by name.
    """
    ranked = list(refined)
    tied = [trials[name] for name in ranked if name in {ranked[0], *ties}]
    defaults = [refined[trial.config.identity].time_us or 0.0 for trial in tied if trial.default]
    allowed = min(defaults, default=float("inf"))
    eligible = [trial for trial in tied if (refined[trial.config.identity].time_us or 0.0) <= allowed]
    winner = min(eligible, key=simplicity)
    return [winner, *(trial for trial in tied if trial is not winner)]


def lost_by(measurement: Measurement, won: Measurement) -> float | None:
    """The time of one that has lost to the winner in the same finals, or is it; None if it says otherwise.

    So does that of one that left early: it comes from other rounds.
    """
    time_us, won_us = measurement.time_us or 0.0, won.time_us or 0.0
    return time_us if time_us >= won_us else None


def simplicity(trial: Trial) -> tuple[int, int, int, int, int, str]:
    """Sort key, simplest first: no split-K, few kernels and stages, small tiles, little memory; then the text."""
    values = {name: value for name, value in trial.config.as_dict().items() if isinstance(value, int)}
    tile = values.get("tile_m", 1) * values.get("tile_n", 1)
    smem = max(launch.smem_bytes for launch in trial.launches)
    return values.get("split_k", 1), len(trial.launches), values.get("stages", 1), tile, smem, trial.config.identity


def edge(space: SearchSpace, config: Config, problem: Problem, device: Device) -> tuple[str, ...]:
    """Parameters whose value is the smallest or largest offered, while a step further would be valid as well.

    There a wider space may hold a faster one. A value that the template, the device or the problem does not let go
    further is at no edge; nor are texts, switches, and a tile that covers the problem's extent already.
    """
    choices, names = config.as_dict(), {**device.names(), **problem.names()}
    extents = {"tile_m": problem.m, "tile_n": problem.n, "tile_k": problem.k}
    at_edge = []
    for name, value in choices.items():
        offered = {**space.parameters, **space.runtime}[name]
        if not isinstance(value, int) or (value >= extents.get(name, value + 1) and value == max(offered)):
            continue
        further = (space.config({**choices, name: other}) for other in _beyond(value, offered))
        if any(violated(space, other, names) is None for other in further):
            at_edge.append(name)
    return tuple(at_edge)


def _beyond(value: int, offered: Sequence[Value]) -> tuple[int, ...]:
    """The next values outside those offered, if `value` is the first or last of them: by their ratio or distance."""
    numbers = sorted(other for other in offered if isinstance(other, int))
    if len(numbers) < 2 or set(numbers) <= {0, 1}:
        return ()
    if value == numbers[0] and value > 1:
        return (value // 2, 2 * value - numbers[1])
    return (2 * value, 2 * value - numbers[-2]) if value == numbers[-1] else ()


def _time(trial: Trial) -> float:
    assert trial.time_us is not None
    return trial.time_us
