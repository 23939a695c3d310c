"""What a run would do, without doing it: the space of each shape, what it rejects and why, the time it would take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kt.devices.roofline import Floor, floor
from kt.errors import KtError
from kt.search_spaces.launch import resolve
from kt.tuner.candidates import Candidates, nothing_valid
from kt.tuner.occupancy import limiter, occupancy
from kt.tuner.pruning import main_launch, prune, resources
from kt.tuner.strategies import Auto, Shortlist, make_search

if TYPE_CHECKING:
    from kt.problems import Problem, Signature
    from kt.search_spaces.enumeration import Rejection
    from kt.search_spaces.space import Config
    from kt.tuner.compilation import Compilation, Kernel
    from kt.tuner.request import TuneRequest

__all__ = ["CompiledConfig", "FamilyPlan", "Plan", "ShapePlan", "compile_plan", "plan"]

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
        failure: "" or why the shape cannot be tuned.
    """

    problem: Problem
    families: tuple[FamilyPlan, ...]
    valid: int
    evaluations: int
    best: Config | None
    predicted_us: float | None
    floor: Floor
    failure: str = ""


@dataclass(frozen=True)
class Plan:
    """All shapes in order, about how many kernels would be compiled, and about how long the run would take."""

    shapes: tuple[ShapePlan, ...]
    kernels: int
    seconds: float


@dataclass(frozen=True)
class CompiledConfig:
    """A configuration as it was compiled.

    Attributes:
        registers: of a thread; spill_bytes: of a thread; smem_bytes: of a block, static and dynamic.
        blocks_per_sm, occupancy: resident blocks of a multiprocessor, and its threads as a part of those it can hold.
        limiter: what keeps more blocks away.
        predicted_us: the model's time with these figures.
        verdict: "" or why a run would not launch it.
    """

    problem: Problem
    config: Config
    registers: int = 0
    spill_bytes: int = 0
    smem_bytes: int = 0
    blocks_per_sm: int = 0
    occupancy: float = 0.0
    limiter: str = ""
    predicted_us: float | None = None
    verdict: str = ""


def plan(request: TuneRequest) -> Plan:
    """What `request` would do; nothing is compiled, and no GPU is touched."""
    shapes = []
    first: set[tuple[object, ...]] = set()
    for problem in request.problems:
        try:
            candidates = Candidates(problem, request.device, request.spaces_for(problem))
        except KtError as error:
            shapes.append(ShapePlan(problem, (), 0, 0, None, None, floor(problem, request.device), error.message))
            continue
        shape, configs = _shape(request, candidates)
        shapes.append(shape)
        first.update((problem.signature, config.family, config.parameters) for config in configs)
    kernels = _kernels(shapes, len(first)) if request.strategy == "auto" else _kernels_of_lists(shapes)
    return Plan(tuple(shapes), kernels, _seconds(request, shapes, kernels))


def compile_plan(request: TuneRequest, compilation: Compilation, per_shape: int = 8) -> list[CompiledConfig]:
    """The best predicted configurations of every shape, compiled for the device.

    Raises:
        CompilerUnavailable: there is no compiler for the device.
    """
    asked: list[tuple[Candidates, int, Kernel]] = []
    for problem in request.problems:
        candidates = Candidates(problem, request.device, request.spaces_for(problem))
        for number in Shortlist(candidates, per_shape).propose():
            kernel = compilation.kernel(candidates.space(number), candidates.config(number), problem.signature)
            compilation.request(kernel)
            asked.append((candidates, number, kernel))
    while compilation.pending:
        compilation.collect(1.0)
    return [_compiled(candidates, number, kernel, compilation) for candidates, number, kernel in asked]


def _shape(request: TuneRequest, candidates: Candidates) -> tuple[ShapePlan, list[Config]]:
    """The plan of one shape, and the configurations that would be tried first."""
    problem, families = candidates.problem, tuple(_families(candidates))
    bound = floor(problem, candidates.device)
    if not len(candidates):
        cause = nothing_valid(candidates) if candidates.spaces else f"no kernel family serves {problem.dtype} here"
        return ShapePlan(problem, families, 0, 0, None, None, bound, cause), []
    search = make_search(request.strategy, candidates, request.seed)
    evaluations = min(search.likely, request.budget.evaluations or search.likely)
    best = int(candidates.sample.by_prediction()[0])
    config, predicted = (
        candidates.config(int(candidates.sample.numbers[best])),
        float(candidates.sample.predicted[best]),
    )
    shape = ShapePlan(problem, families, len(candidates), evaluations, config, predicted, bound)
    return shape, [candidates.config(number) for number in search.propose()[:evaluations]]


def _kernels(shapes: Sequence[ShapePlan], first: int) -> int:
    """About how many `auto` compiles: of its first selections `first`, and those of the steps around the best."""
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
    cores = request.compilers or len(os.sched_getaffinity(0))
    measuring = [
        PREPARE_S + FINALS_S + shape.evaluations * (SCREEN_S + SCREEN_RUNS * (shape.predicted_us or 0.0) / 1e6)
        for shape in shapes
        if shape.valid
    ]
    seconds = START_S + max(sum(measuring), kernels * COMPILE_S / cores)
    return min(seconds, request.budget.seconds or seconds)


def _compiled(candidates: Candidates, number: int, kernel: Kernel, compilation: Compilation) -> CompiledConfig:
    problem, device, config = candidates.problem, candidates.device, candidates.config(number)
    binary = compilation.binaries[kernel.job_digest]
    launches, _ = resolve(candidates.space(number), config, {**device.names(), **problem.names()})
    verdict = prune(binary, launches, device, keep_spills=False)
    if binary.error:
        return CompiledConfig(problem, config, verdict=verdict.detail if verdict else binary.error)
    registers, spills, smem = resources(binary, launches)
    threads = main_launch(binary, launches).block
    blocks = int(occupancy(device, threads, registers, smem))
    return CompiledConfig(
        problem, config, registers, spills, smem, blocks, blocks * threads / device.threads_per_sm,
        limiter(device, threads, registers, smem), candidates.predicted_us(number, registers),
        verdict.detail if verdict else "",
    )  # fmt: skip
