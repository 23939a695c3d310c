"""What a run would do, without doing it: the space of each shape, what it rejects and why, the time it would take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from kt.devices.roofline import Floor, floor
from kt.errors import CompilerUnavailable, InputError, KtError
from kt.search_spaces.launch import launch_limits, resolve
from kt.templates.render import render
from kt.tuner.candidates import Candidates
from kt.tuner.refusal import no_candidates, refusal
from kt.tuner.run import stored_best
from kt.tuner.searches import search_for
from kt.tuner.strategies import Auto, Shortlist

if TYPE_CHECKING:
    from kt.cache.store import Store
    from kt.problems import Problem, Signature
    from kt.search_spaces.enumeration import Rejection
    from kt.search_spaces.space import Config
    from kt.tuner.request import TuneRequest

__all__ = ["FamilyPlan", "Plan", "ShapePlan", "plan"]

MOST_THREADS = 8  # each holds 0.1 GB while it plans a shape

# For the estimate. A run on a machine with an H200 and 16 cores (benchmarks/results/h200/fp32-c683b5f.json; NVRTC 13.0,
# 16 compilers) took 286 s for 44 fp32 shapes with about 105 candidates each and 4,033 `simt` kernels: 14 kernels a
# second, so at most 1.1 s of one compiler for each. About 2,000 kernels were of first selections; of the later
# candidates four in five brought another one. Of the GPU's part the run says only that it took less than 6.5 s a shape;
# how that is made up below is a guess.
COMPILE_S = 1.1  # of one kernel on one core
LATER_KERNELS = 0.8  # for each candidate after the first selection
SCREEN_S = 0.008  # of one candidate besides its runs
SCREEN_RUNS = 4  # of the kernel
FINALS_S = 1.5
PREPARE_S = 0.4
START_S = 1.5  # of the run: worker, context, compilers
# On a modelled device, from a run of 17 fp32 shapes with 2 compilers: 20 s for 112 kernels, 22 of which took the place
# of others that spilled.
RANK_S = 0.1  # of one shape, besides the compilers
RANK_COMPILE_S = 0.4  # of one kernel that is planned


@dataclass(frozen=True)
class FamilyPlan:
    """What one family offers to one problem.

    Attributes:
        combinations: before any constraint.
        rejections: what each constraint rejects of those that the ones before it allow, in the order of the file.
        valid: what is left.
        binaries: distinct compilations among these.
    """

    family: str
    combinations: int
    rejections: tuple[Rejection, ...]
    valid: int
    binaries: int


@dataclass(frozen=True)
class ShapePlan:
    """What a run would do for one problem.

    Attributes:
        valid: candidates of all families.
        evaluations: about how many the strategy would try.
        best, predicted_us: the best predicted candidate; None if there is none.
        floor: the roofline floor.
        failure: "" or why the shape cannot be tuned; error: the one behind it, where there is one.
        cached: its winner is in the cache already, so a run would try nothing.
        shortlist: the best predicted candidates, as many as were asked for; defaults: those of the families among them.
    """

    problem: Problem
    floor: Floor
    families: tuple[FamilyPlan, ...] = ()
    valid: int = 0
    evaluations: int = 0
    best: Config | None = None
    predicted_us: float | None = None
    failure: str = ""
    error: KtError | None = None
    cached: bool = False
    shortlist: tuple[Config, ...] = ()
    defaults: tuple[Config, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All shapes in order, about how many kernels would be compiled, and about how long the run would take."""

    shapes: tuple[ShapePlan, ...]
    kernels: int
    seconds: float


def plan(
    request: TuneRequest,
    store: Store | None = None,
    *,
    shortlist: int = 0,
    done: Callable[[int], None] = lambda count: None,
) -> Plan:
    """What `request` would do; kernels are rendered here and there, none is compiled, and no GPU is touched.

    Args:
        store: the cache; shapes that it answers take no time and no kernels.
        shortlist: how many of the best predicted candidates to name for each shape, as far as its budget allows.
        done: called with the number of shapes that are planned so far.
    """
    answered = _answered(request, store)
    shapes: list[ShapePlan] = []
    kernels: set[tuple[object, ...]] = set()
    templates = _Templates(request)
    for shape, first in _planned(request, lambda problem: _shape(request, problem, problem in answered, shortlist)):
        if error := templates.error(shape, first):
            shape, first = _failed(shape, error), ()
        kernels.update((shape.problem.signature, config.family, config.parameters) for config in first)
        shapes.append(shape)
        done(len(shapes))
    count = _kernels(request, shapes, len(kernels))
    return Plan(tuple(shapes), count, _seconds(request, shapes, count))


def _planned(request: TuneRequest, look: Callable[[Problem], _Look]) -> Iterator[_Look]:
    """What `look` says of each problem, in order; several are looked at together: numpy, which does most, lets them."""
    for space in request.spaces:
        launch_limits(space)  # parsed once, before there are threads
    pool = ThreadPoolExecutor(min(MOST_THREADS, len(os.sched_getaffinity(0))))
    try:
        yield from pool.map(look, request.problems)
    finally:
        pool.shutdown(cancel_futures=True)


def _answered(request: TuneRequest, store: Store | None) -> set[Problem]:
    """The problems that a run would take from the cache; none without a compiler, which the cache's keys name."""
    served = [problem for problem in request.problems if not refusal(request, problem)]
    try:
        return {problem for problem in served if store and stored_best(request, store, problem)}
    except CompilerUnavailable:
        return set()


_Look: TypeAlias = "tuple[ShapePlan, Sequence[Config]]"  # of one shape, and what a run would try first


def _shape(request: TuneRequest, problem: Problem, cached: bool, shortlist: int) -> _Look:
    """The plan of one shape, or why it has none."""
    shape = ShapePlan(problem, floor(problem, request.device), cached=cached)
    if failure := refusal(request, problem):
        return replace(shape, failure=failure), ()
    try:
        return _with_candidates(shape, request, shortlist)
    except KtError as error:
        return shape if cached else _failed(shape, error), ()


def _failed(shape: ShapePlan, error: KtError) -> ShapePlan:
    """The shape without candidates to try."""
    return replace(
        shape, failure=error.message, error=error, best=None, predicted_us=None, evaluations=0, shortlist=()
    )  # fmt: skip


def _with_candidates(shape: ShapePlan, request: TuneRequest, shortlist: int) -> _Look:
    candidates = Candidates(shape.problem, request.device, request.spaces_for(shape.problem))
    shape = replace(shape, families=tuple(_families(candidates)), valid=len(candidates))
    if not len(candidates):
        return replace(shape, failure=no_candidates(request, candidates)), ()
    place = int(candidates.sample.by_prediction()[0])
    number = int(candidates.sample.numbers[place])
    best = candidates.config(number)
    # A launch that has no value fails the plan as it would fail the run.
    resolve(candidates.space(number), best, {**request.device.names(), **shape.problem.names()})
    shape = replace(shape, best=best, predicted_us=candidates.predicted_us(number))
    if shortlist:
        numbers = Shortlist(candidates, shortlist).propose()[: request.budget.evaluations]
        listed = tuple(map(candidates.config, numbers))
        shape = replace(shape, shortlist=listed, defaults=tuple(map(candidates.config, candidates.defaults)))
    if shape.cached:
        return shape, ()
    search = search_for(request, candidates)
    evaluations = min(search.likely, request.budget.evaluations or search.likely)
    return replace(shape, evaluations=evaluations), list(map(candidates.config, search.propose()[:evaluations]))


class _Templates:
    """Renders one kernel of each family and signature: a template with an error fails the plan as it fails the run."""

    def __init__(self, request: TuneRequest) -> None:
        self._request = request
        self._errors: dict[tuple[str, Signature], InputError | None] = {}

    def error(self, shape: ShapePlan, first: Sequence[Config]) -> InputError | None:
        """Why what a run would try `first` cannot be rendered, as far as one of each family tells."""
        signature = shape.problem.signature
        for family, config in {config.family: config for config in first}.items():
            if (family, signature) not in self._errors:
                self._errors[family, signature] = self._render(config, shape.problem)
        errors = [self._errors[config.family, signature] for config in first]
        return next((error for error in errors if error), None)

    def _render(self, config: Config, problem: Problem) -> InputError | None:
        space = next(space for space in self._request.spaces_for(problem) if space.family == config.family)
        try:
            render(space, config, problem.signature, self._request.device.arch, self._request.template_dirs)
        except InputError as error:
            return error
        return None


def _kernels(request: TuneRequest, shapes: Sequence[ShapePlan], first: int) -> int:
    """About how many kernels a run compiles, of which `first` are those of the first selections."""
    if request.device.modelled:
        return first
    return _kernels_of_auto(shapes, first) if request.strategy == "auto" else _kernels_of_lists(shapes)


def _kernels_of_auto(shapes: Sequence[ShapePlan], first: int) -> int:
    """Those of the first selections, and those of the steps around the best."""
    return first + round(LATER_KERNELS * sum(max(0, shape.evaluations - Auto.FIRST) for shape in shapes))


def _kernels_of_lists(shapes: Sequence[ShapePlan]) -> int:
    """About how many a strategy compiles that goes through a list: the problems of one signature share theirs."""
    most: dict[Signature, int] = {}
    for shape in shapes:
        signature, binaries = shape.problem.signature, sum(family.binaries for family in shape.families)
        most[signature] = max(most.get(signature, 0), min(binaries, shape.evaluations))
    return sum(most.values())


def _families(candidates: Candidates) -> list[FamilyPlan]:
    return [
        FamilyPlan(
            found.space.family,
            found.total,
            (*found.rejections, *found.problem_rejections),
            len(found),
            found.compilations,
        )
        for found in candidates.enumerations
    ]


def _seconds(request: TuneRequest, shapes: Sequence[ShapePlan], kernels: int) -> float:
    """The time of the run: what the GPU does, or what the compilers do if that takes longer."""
    waiting = [shape for shape in shapes if shape.valid and not shape.cached]
    if not waiting:
        return 0.0
    cores = request.compilers or len(os.sched_getaffinity(0))
    if request.device.modelled:
        seconds = RANK_S * len(waiting) + kernels * RANK_COMPILE_S / cores
    else:
        seconds = START_S + max(sum(map(_gpu_seconds, waiting)), kernels * COMPILE_S / cores)
    return min(seconds, request.budget.seconds or seconds)


def _gpu_seconds(shape: ShapePlan) -> float:
    screening = SCREEN_S + SCREEN_RUNS * (shape.predicted_us or 0.0) / 1e6
    return PREPARE_S + FINALS_S + shape.evaluations * screening
