"""`compile_plan`: the best predicted candidates of every shape as the compiler makes them, without running them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kt.errors import KtError, NoValidConfiguration
from kt.search_spaces.launch import resolve
from kt.tuner.candidates import Candidates
from kt.tuner.occupancy import limiter, occupancy
from kt.tuner.pruning import main_launch, prune, resources
from kt.tuner.refusal import refusal
from kt.tuner.strategies import Shortlist

if TYPE_CHECKING:
    from kt.cache.records import Status
    from kt.problems import Problem
    from kt.search_spaces.space import Config, Launch
    from kt.tuner.compilation import Compilation, Kernel
    from kt.tuner.messages import Binary
    from kt.tuner.request import TuneRequest

__all__ = ["CompiledConfig", "CompiledPlan", "compile_plan"]


@dataclass(frozen=True)
class CompiledConfig:
    """A configuration as it was compiled.

    Attributes:
        registers: of a thread; spill_bytes: of a thread; smem_bytes: of a block, static and dynamic.
        blocks_per_sm, occupancy: resident blocks of a multiprocessor, and its threads as a part of those it can hold.
        limiter: what keeps more blocks away.
        predicted_us: the model's time with these figures.
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
    verdict: str = ""
    status: Status = "ok"


@dataclass(frozen=True)
class CompiledPlan:
    """What was compiled, shape by shape, and the causes of the shapes of which nothing compiles."""

    configs: tuple[CompiledConfig, ...]
    failures: dict[Problem, KtError]


@dataclass(frozen=True)
class _Asked:
    """A candidate whose kernel is being compiled."""

    candidates: Candidates
    number: int
    kernel: Kernel
    launches: tuple[Launch, ...]


def compile_plan(request: TuneRequest, compilation: Compilation, per_shape: int = 8) -> CompiledPlan:
    """The best predicted configurations of every shape, compiled for the device.

    Raises:
        CompilerUnavailable: there is no compiler for the device.
    """
    asked: list[_Asked] = []
    for problem in request.problems:
        if refusal(request, problem):  # `plan` says so
            continue
        try:
            candidates = Candidates(problem, request.device, request.spaces_for(problem))
        except KtError:  # `plan` says what is wrong with it
            continue
        asked += [_ask(candidates, number, compilation) for number in Shortlist(candidates, per_shape).propose()]
    while compilation.pending:
        compilation.collect(1.0)
    configs = tuple(_compiled(one, compilation.binaries[one.kernel.job_digest]) for one in asked)
    return CompiledPlan(configs, _failures(configs, compilation))


def _ask(candidates: Candidates, number: int, compilation: Compilation) -> _Asked:
    problem, space, config = candidates.problem, candidates.space(number), candidates.config(number)
    launches, _ = resolve(space, config, {**candidates.device.names(), **problem.names()})
    kernel = compilation.kernel(space, config, problem.signature)
    compilation.request(kernel, launches)
    return _Asked(candidates, number, kernel, launches)


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
    return NoValidConfiguration(f"none of {count} candidates compiles: {causes}")


def _compiled(asked: _Asked, binary: Binary) -> CompiledConfig:
    candidates, number, launches = asked.candidates, asked.number, asked.launches
    problem, device, config = candidates.problem, candidates.device, candidates.config(number)
    verdict = prune(binary, launches, device, keep_spills=number in candidates.defaults)
    if verdict and verdict.status == "compile_error":
        return CompiledConfig(problem, config, verdict=verdict.detail, status=verdict.status)
    registers, spills, smem = resources(binary, launches)
    threads = main_launch(binary, launches).block
    blocks = int(occupancy(device, threads, registers, smem))
    return CompiledConfig(
        problem, config, registers, spills, smem, blocks, blocks * threads / device.threads_per_sm,
        limiter(device, threads, registers, smem), candidates.predicted_us(number, registers),
        verdict.detail if verdict else "", verdict.status if verdict else "ok",
    )  # fmt: skip
