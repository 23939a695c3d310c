"""`search_for`: the search that a run makes for one problem; a plan estimates from the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kt.tuner.strategies import Brief, Shortlist, make_search

if TYPE_CHECKING:
    from kt.search_spaces.space import Config
    from kt.tuner.candidates import Candidates
    from kt.tuner.request import TuneRequest
    from kt.tuner.strategies import Search

__all__ = ["COMPILED", "search_for"]

SHAPE_GPU_S = 12.0  # GPU time for the screening of one shape, about; a search of long runs tries fewer candidates
RUNS = 5  # of the kernel in one screening, about
LEAST_CANDIDATES = 60
BRIEF = 20  # candidates of a shape that stands for others
COMPILED = 6  # candidates of a shape that are compiled for a modelled device, for their real registers


def search_for(request: TuneRequest, candidates: Candidates, winners: Sequence[Config] = ()) -> Search:
    """The search of `request` among the candidates of one problem.

    Args:
        winners: of the nearest problems, to be tried first.
    """
    if request.device.modelled:
        return Shortlist(candidates, COMPILED)
    found = [candidates.find(config) for config in winners]
    starts = [number for number in found if number is not None]
    if candidates.problem in request.unseen:
        return Brief(candidates, BRIEF, starts=starts)
    return make_search(request.strategy, candidates, request.seed, starts=starts, most=_most(request, candidates))


def _most(request: TuneRequest, candidates: Candidates) -> int | None:
    """Candidates that the GPU time of one shape allows; None for no limit, such as where a person gave one."""
    if request.budget.evaluations is not None or request.strategy != "auto":
        return None
    fastest_s = float(candidates.sample.predicted.min()) / 1e6
    return max(LEAST_CANDIDATES, int(SHAPE_GPU_S / (RUNS * fastest_s)))
