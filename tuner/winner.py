"""Who wins: the finalists of a shape, the pick among ties, and what a winner says about the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kt.cache.records import Measurement
    from kt.problems import Problem
    from kt.search_spaces.space import Config, SearchSpace
    from kt.tuner.shape_run import Trial

__all__ = ["MOST_FINALISTS", "edge", "finalists", "pick", "simplicity"]

MOST_FINALISTS = 8
WITHIN = 1.08  # a finalist's screened time is at most this much above the best: beyond the noise of one screening


def finalists(timed: Sequence[Trial], dropped: set[int]) -> list[Trial]:
    """The first of the trials `timed`, fastest first, that are close to each other; `dropped` ones have failed."""
    running = [trial for trial in timed if trial.number not in dropped]
    close = [trial for trial in running if _time(trial) <= WITHIN * _time(running[0])]
    return close[:MOST_FINALISTS]


def pick(refined: Mapping[str, Measurement], ties: Sequence[str], trials: Mapping[str, Trial]) -> list[Trial]:
    """The winner, then those tied with it, fastest first.

    The winner is the simplest of the tied ones. If the family's default configuration is among them, it must not be
    slower than that: what is recorded never loses to the default.

    Args:
        refined: final measurements by name; all are `ok`.
        ties: names that could not be told apart from the fastest.
        trials: the trials by name.
    """
    ranked = sorted(refined, key=lambda name: (refined[name].time_us or 0.0, name))
    tied = [trials[name] for name in ranked if name in {ranked[0], *ties}]
    defaults = [refined[trial.config.identity].time_us or 0.0 for trial in tied if trial.default]
    allowed = min(defaults, default=float("inf"))
    eligible = [trial for trial in tied if (refined[trial.config.identity].time_us or 0.0) <= allowed]
    winner = min(eligible, key=simplicity)
    return [winner, *(trial for trial in tied if trial is not winner)]


def simplicity(trial: Trial) -> tuple[int, int, int, int, int, str]:
    """Sort key, simplest first: no split-K, few kernels and stages, small tiles, little memory; then the text."""
    values = {name: value for name, value in trial.config.as_dict().items() if isinstance(value, int)}
    tile = values.get("tile_m", 1) * values.get("tile_n", 1)
    smem = max(launch.smem_bytes for launch in trial.launches)
    return values.get("split_k", 1), len(trial.launches), values.get("stages", 1), tile, smem, trial.config.identity


def edge(space: SearchSpace, config: Config, problem: Problem) -> tuple[str, ...]:
    """Parameters whose value is the smallest or largest offered, so that a wider space may hold a faster one.

    Natural limits do not count: 1, below which there is nothing; on and off; texts; and a tile that is the largest
    offered but covers the problem's extent already.
    """
    extents = {"tile_m": problem.m, "tile_n": problem.n, "tile_k": problem.k}
    at_edge = []
    for name, value in config.as_dict().items():
        offered = [other for other in {**space.parameters, **space.runtime}[name] if isinstance(other, int)]
        if not isinstance(value, int) or len(offered) < 2 or set(offered) <= {0, 1}:
            continue
        smallest = value == min(offered) and value > 1
        largest = value == max(offered) and value < extents.get(name, value + 1)
        if smallest or largest:
            at_edge.append(name)
    return tuple(at_edge)


def _time(trial: Trial) -> float:
    assert trial.time_us is not None
    return trial.time_us
