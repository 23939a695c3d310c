"""`compile_plan`: the best predicted candidates of every shape as the compiler makes them, without running them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kt.errors import KtError, NoValidConfiguration
from kt.search_spaces.launch import derive, resolve
from kt.tuner.model import predict_us
from kt.tuner.occupancy import limiter, occupancy
from kt.tuner.pruning import main_launch, prune, resources
from kt.tuner.searches import COMPILED
from kt.tuner.toolchain import check_target, toolchain
from kt.wording import plural

if TYPE_CHECKING:
    from kt.cache.records import Status
    from kt.problems import Problem
    from kt.search_spaces.space import Config, Launch, SearchSpace
    from kt.tuner.compilation import Compilation, Kernel
    from kt.tuner.messages import Binary
    from kt.tuner.plan import Plan, ShapePlan
    from kt.tuner.request import TuneRequest

__all__ = ["PER_SHAPE", "CompiledConfig", "CompiledPlan", "compile_plan"]

PER_SHAPE = COMPILED  # candidates of a shape, besides the defaults: those that a run on the model compiles


@dataclass(frozen=True)
class CompiledConfig:
    """A configuration as it was compiled.

    Attributes:
        registers: of a thread; spill_bytes: of a thread; smem_bytes: of a block, static and dynamic.
        blocks_per_sm, occupancy: resident blocks of a multiprocessor, and its threads as a part of those it can hold.
        limiter: what keeps more blocks away.
        predicted_us: the model's time with these figures.
        default: of its family.
        verdict: "" or why a run would not launch it; status: "ok", "pruned" or "compile_error".
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
    default: bool = False
    verdict: str = ""
    status: Status = "ok"


@dataclass(frozen=True)
class CompiledPlan:
    """What was compiled, shape by shape, and the causes of the shapes of which nothing can be compiled."""

    configs: tuple[CompiledConfig, ...]
    failures: dict[Problem, KtError]


@dataclass(frozen=True)
class _Asked:
    """A candidate whose kernel is being compiled."""

    problem: Problem
    space: SearchSpace
    config: Config
    kernel: Kernel
    launches: tuple[Launch, ...]
    default: bool


def compile_plan(request: TuneRequest, planned: Plan, compilation: Compilation) -> CompiledPlan:
    """The shortlists of a plan, compiled for the device.

    Raises:
        CompilerUnavailable: there is no compiler for the device.
    """
    check_target(toolchain(), request.device.arch)
    asked: list[_Asked] = []
    errors: dict[Problem, KtError] = {}
    for shape in planned.shapes:
        try:
            asked += [_ask(request, shape, config, compilation) for config in shape.shortlist]
        except KtError as error:
            errors[shape.problem] = error
    while compilation.pending:
        compilation.collect(1.0)
    configs = tuple(_compiled(request, one, compilation.binaries[one.kernel.job_digest]) for one in asked)
    return CompiledPlan(configs, _failures(configs, compilation) | errors)


def _ask(request: TuneRequest, shape: ShapePlan, config: Config, compilation: Compilation) -> _Asked:
    problem = shape.problem
    space = next(space for space in request.spaces_for(problem) if space.family == config.family)
    launches, _ = resolve(space, config, {**request.device.names(), **problem.names()})
    kernel = compilation.kernel(space, config, problem.signature)
    compilation.request(kernel, launches)
    return _Asked(problem, space, config, kernel, launches, config in shape.defaults)


def _failures(configs: Sequence[CompiledConfig], compilation: Compilation) -> dict[Problem, KtError]:
    """The problems of which no candidate compiles, each with the cause that a run would give."""
    compiled = {one.problem for one in configs if one.status != "compile_error"}
    counts = Counter(one.problem for one in configs if one.problem not in compiled)
    return {problem: _failure(problem, count, compilation) for problem, count in counts.items()}


def _failure(problem: Problem, count: int, compilation: Compilation) -> KtError:
    common = compilation.hopeless(problem.signature)
    if common is not None:
        return common
    causes = "; ".join(compilation.failure_summary(problem.signature))
    return NoValidConfiguration(f"none of {plural(count, 'candidate')} compiles: {causes}")


def _compiled(request: TuneRequest, asked: _Asked, binary: Binary) -> CompiledConfig:
    problem, device, config, launches = asked.problem, request.device, asked.config, asked.launches
    verdict = prune(binary, launches, device, keep_spills=asked.default)
    if verdict and verdict.status == "compile_error":
        return CompiledConfig(problem, config, default=asked.default, verdict=verdict.detail, status=verdict.status)
    registers, spills, smem = resources(binary, launches)
    threads = main_launch(binary, launches).block
    blocks = int(occupancy(device, threads, registers, smem))
    return CompiledConfig(
        problem, config, registers, spills, smem, blocks, blocks * threads / device.threads_per_sm,
        limiter(device, threads, registers, smem), _predicted_us(request, asked, registers), asked.default,
        verdict.detail if verdict else "", verdict.status if verdict else "ok",
    )  # fmt: skip


def _predicted_us(request: TuneRequest, asked: _Asked, registers: int) -> float:
    """The model's time for the registers that the compiler reports."""
    values = derive(asked.space, asked.config, {**request.device.names(), **asked.problem.names()})
    names = asked.config.as_dict().keys() | asked.space.derived.keys()
    columns = {name: np.array([value]) for name, value in values.items() if name in names}
    return float(predict_us(asked.problem, request.device, columns, [registers])[0])
