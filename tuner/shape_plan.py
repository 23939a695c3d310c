"""`plan_shape`: one problem with its candidates enumerated and the first of them at the compilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kt.errors import KtError
from kt.tuner.candidates import Candidates
from kt.tuner.refusal import no_candidates
from kt.tuner.searches import search_for
from kt.tuner.shape_run import ShapeFailed, ShapeRun

if TYPE_CHECKING:
    from kt.problems import Problem
    from kt.search_spaces.space import Config
    from kt.tuner.compilation import Compilation
    from kt.tuner.record import Recorder
    from kt.tuner.request import TuneRequest

__all__ = ["plan_shape"]


def plan_shape(
    request: TuneRequest,
    recorder: Recorder,
    compilation: Compilation,
    problem: Problem,
    winners: Sequence[Config] = (),
) -> ShapeRun | ShapeFailed:
    """The state of `problem` at the begin of its search, or why it has none: it may be planned long before its turn.

    Args:
        winners: of the nearest problems, to be tried first.
    """
    try:
        candidates = Candidates(problem, request.device, request.spaces_for(problem))
        if not len(candidates):
            return ShapeFailed(no_candidates(request, candidates))
        search = search_for(request, candidates, winners)
    except KtError as error:
        return ShapeFailed(error.message, error=error)
    shape = recorder.shape_run(candidates, search, request.budget.evaluations)
    unfinished = recorder.unfinished(candidates)
    try:
        if unfinished is not None:
            shape.go_on_from(unfinished.config, compilation)
        shape.propose(compilation)
    except ShapeFailed as failed:
        return failed
    return shape
