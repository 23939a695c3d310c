"""`Planner`: from problems to plans: what is missing is tuned where that is wanted, chosen, compiled and loaded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

from kt.cache.location import cache_dir
from kt.errors import InputError, KtError, NoValidConfiguration
from kt.runtime.choice import Choice, Chooser
from kt.runtime.placed_problem import tuned_as

if TYPE_CHECKING:
    from kt.problems import Problem
    from kt.runtime.plan import Plan
    from kt.tuner.cubin_cache import CubinCache
    from kt.tuner.messages import Binary

__all__ = ["OnMiss", "Planner", "check_on_miss", "planner"]

OnMiss = Literal["nearest", "tune", "error"]


def check_on_miss(text: str) -> None:
    """Raises InputError if it is none of the ways to do without a winner."""
    if text not in get_args(OnMiss):
        raise InputError(f"on_miss is {text!r}, which is unknown", hint=f"it is one of {', '.join(get_args(OnMiss))}")


class Planner:
    """The plans of one GPU. Made once, they are kept: winners that come later are not seen by problems planned before.

    Args:
        ordinal: of the GPU in this process.
    """

    def __init__(self, ordinal: int) -> None:
        from kt.devices.local import local_device

        self.ordinal = ordinal
        self._chooser = Chooser(local_device(ordinal))
        self._plans: dict[Problem, Plan] = {}
        self._lock = threading.RLock()

    def known(self, problem: Problem, on_miss: OnMiss) -> Plan | None:
        """The plan, if it is there and is what `on_miss` allows."""
        plan = self._plans.get(problem)
        return plan if plan and (plan.found == "exact" or on_miss == "nearest") else None

    def plans(self, problems: Sequence[Problem], on_miss: OnMiss) -> list[Plan]:
        """The plans of all problems, in order.

        Raises:
            NoValidConfiguration: a problem has no winner and `on_miss` is "error", or nothing can compute it.
            KtError: one cannot be tuned, compiled or loaded; the message says which.
        """
        with self._lock:
            missing = [one for one in dict.fromkeys(problems) if self.known(one, on_miss) is None]
            self._plans.update(self._loaded(self._choices(missing, on_miss)))
            return [self._plans[problem] for problem in problems]

    def _choices(self, problems: Sequence[Problem], on_miss: OnMiss) -> dict[Problem, Choice]:
        found = {problem: self._chooser.exact(problem) for problem in problems}
        misses = [problem for problem, choice in found.items() if choice is None]
        if misses and on_miss == "error":
            labels = ", ".join(problem.label for problem in misses)
            raise NoValidConfiguration(
                f"not tuned for {self._chooser.device.name}: {labels}", hint="kt tune gemm, or on_miss='nearest'"
            )
        if misses and on_miss == "tune":
            self._tune(misses)
            found |= {problem: self._chooser.exact(problem) for problem in misses}
        return {problem: choice or self._other(problem) for problem, choice in found.items()}

    def _other(self, problem: Problem) -> Choice:
        choice = self._chooser.other(problem)
        if choice is None:
            raise NoValidConfiguration(f"no kernel of kt can compute {problem.label} on {self._chooser.device.name}")
        return choice

    def _tune(self, problems: Sequence[Problem]) -> None:
        """Tune them now, on this GPU, in kt's own processes; what the cache then has is used from here on.

        Raises:
            NoValidConfiguration: one ended without a winner.
        """
        from kt.cache.store import Store
        from kt.tuner.observer import SilentObserver
        from kt.tuner.run import tune

        with Store.open(cache_dir()) as store:
            asked = list(dict.fromkeys(tuned_as(problem)[-1] for problem in problems))
            result = tune(self._chooser.request(asked), store, SilentObserver())
        self._chooser.forget()
        if result.interrupted:
            raise KeyboardInterrupt
        failed = [f"{shape.problem.label}: {shape.failure}" for shape in result.shapes if shape.best is None]
        if failed:
            raise NoValidConfiguration("\n".join(["some shapes could not be tuned", *failed]))

    def _loaded(self, choices: dict[Problem, Choice]) -> dict[Problem, Plan]:
        """The plans; most binaries are in the cubin cache, the others are compiled on all cores."""
        if not choices:
            return {}
        from kt.tuner.cubin_cache import CubinCache

        cubins = CubinCache(cache_dir())
        try:
            binaries = self._compiled(list(choices.values()), cubins)
            return {
                problem: self._plan(problem, choice, binary)
                for (problem, choice), binary in zip(choices.items(), binaries, strict=True)
            }
        finally:
            cubins.close()

    def _compiled(self, choices: Sequence[Choice], cubins: CubinCache) -> list[Binary]:
        from kt.tuner.compilation import Compilation
        from kt.tuner.compile_pool import CompilePool

        compilation = Compilation(self._chooser.device.arch, lambda: CompilePool(0, cubins))
        try:
            kernels = [compilation.kernel(one.space, one.config, one.signature) for one in choices]
            for choice, kernel in zip(choices, kernels, strict=True):
                compilation.request(kernel, choice.launches)
            while compilation.pending:
                compilation.collect(1.0)
            return [compilation.binaries[kernel.job_digest] for kernel in kernels]
        finally:
            compilation.close()

    def _plan(self, problem: Problem, choice: Choice, binary: Binary) -> Plan:
        from kt.runtime.plan import Plan
        from kt.tuner.loaded_candidate import LaunchRefused
        from kt.tuner.messages import Candidate
        from kt.tuner.tensor_map import TensorMapRefused

        if binary.error:
            raise KtError(f"{problem.label}: {choice.config.label} does not compile: {binary.error}")
        runtime = {name: int(value) for name, value in choice.config.runtime}
        candidate = Candidate(choice.config.identity, binary.path, choice.launches, choice.workspace_bytes, runtime)
        try:
            return Plan(problem, choice.found, candidate, self.ordinal)
        except (LaunchRefused, TensorMapRefused) as error:
            raise KtError(f"{problem.label}: {choice.config.label} cannot be used: {error}") from error


@cache
def planner(ordinal: int) -> Planner:
    """The planner of a GPU.

    Raises:
        NoUsableGpu: there is none of that number.
    """
    return Planner(ordinal)
