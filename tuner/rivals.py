"""`Rivals`: the kernels that have won other shapes, as configurations of one shape, with what they launch there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kt.cache.validity import foreign_choice
from kt.errors import KtError
from kt.search_spaces.copies import copying_for
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.names import Names
from kt.search_spaces.slices import runtimes
from kt.search_spaces.space import Config
from kt.tuner.launched import launched_digest
from kt.tuner.model import order_us

if TYPE_CHECKING:
    from kt.cache.records import BestConfig
    from kt.problems import Problem
    from kt.search_spaces.space import Launch, Value
    from kt.tuner.compilation import Compilation, Kernel
    from kt.tuner.request import TuneRequest

__all__ = ["Rival", "Rivals"]

Runtime = tuple[tuple[str, "Value"], ...]

MOST_KERNELS = 48  # that a shape is timed with: those that have won most shapes of its number formats
CHOICES = (
    2  # of run-time arguments of each: that of its winner, and that which the model likes best here, or the latter
)


@dataclass(frozen=True)
class Rival:
    """A configuration on a shape."""

    config: Config
    kernel: Kernel
    launches: tuple[Launch, ...]
    workspace_bytes: int

    @cached_property
    def source(self) -> str:
        """Digest of all that runs: the rendered source, and how it is launched."""
        return launched_digest(self.kernel.source_digest, self.launches, self.workspace_bytes)


class Rivals:
    """What `bests` have won by, for any of their shapes."""

    def __init__(self, request: TuneRequest, compilation: Compilation, bests: Sequence[BestConfig]) -> None:
        self._device, self._compilation = request.device, compilation
        self._spaces = {space.family: space for space in request.spaces}
        self._runtimes: dict[object, dict[Config, list[Runtime]]] = {}  # by number formats and kernel
        self._often: Counter[tuple[Config, bool]] = Counter()
        for best in bests:
            of_formats = self._runtimes.setdefault(best.key.problem.formats, {})
            of_formats.setdefault(best.config.kernel, []).append(best.config.runtime)
            self._often[best.config.kernel, best.unseen] += 1

    def of(self, best: BestConfig) -> list[Rival]:
        """Those of a winner on its shape, itself left out; the kernels that have won most shapes first, of listed ones
        if it is one of these, else of others."""
        problem = best.key.problem
        kernels = self._runtimes[problem.formats]
        wins = {one: (-self._often[one, best.unseen], -len(kernels[one]), one.identity) for one in kernels}
        often = sorted(kernels, key=wins.__getitem__)[:MOST_KERNELS]
        most = 1 if best.unseen else CHOICES
        configs = [one for kernel in often for one in self._choices(kernel, kernels[kernel], problem, most)]
        found = [self.rival(config, problem) for config in dict.fromkeys(configs) if config != best.config]
        return [one for one in found if one is not None]

    def rival(self, config: Config, problem: Problem) -> Rival | None:
        """The configuration on a shape; None if it cannot compute that."""
        if not self._is_valid(config, problem):
            return None
        space = self._spaces[config.family]
        try:
            launches, workspace = resolve(space, config, self._names(problem))
            kernel = self._compilation.kernel(space, config, problem.signature)
        except KtError:
            return None
        return Rival(config, kernel, launches, workspace)

    def _choices(self, kernel: Config, own: Sequence[Runtime], problem: Problem, most: int) -> list[Config]:
        """A kernel with the run-time arguments that the model likes best here; of two, with those of most of its own
        shapes as well."""
        if not self._is_known(kernel):
            return []
        space = self._spaces[kernel.family]
        offered = list(dict.fromkeys([*own, *runtimes(space)]))
        usable = self._usable(kernel, offered, problem)
        if not usable:  # elsewhere it copies operands that can be read as they lie here, or the other way round
            alignments = {name: problem.alignment(name) for name in "ab"}
            kernel = copying_for(space, Config(kernel.family, kernel.parameters, offered[0]), alignments)
            usable = self._usable(kernel, offered, problem)
        if not usable:
            return []
        usual = Config(kernel.family, kernel.parameters, Counter(own).most_common(1)[0][0])
        chosen = [*([usual] if usual in usable and most > 1 else ()), *self._in_order(usable, problem)]
        return list(dict.fromkeys(chosen))[:most]

    def _usable(self, kernel: Config, offered: Sequence[Runtime], problem: Problem) -> list[Config]:
        every = [Config(kernel.family, kernel.parameters, runtime) for runtime in offered]
        return [config for config in every if self._is_valid(config, problem)]

    def _in_order(self, configs: Sequence[Config], problem: Problem) -> list[Config]:
        """Configurations of one kernel, the best predicted first."""
        derived = self._spaces[configs[0].family].derived
        rows = [config.as_dict() for config in configs]
        choices = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        values = Names({**self._names(problem), **choices}, derived)
        quantities = {name: values[name] for name in derived if not isinstance(values[name], str)}
        times = order_us(problem, self._device, {**choices, **quantities})
        return [configs[number] for number in times.argsort(kind="stable").tolist()]

    def _is_known(self, config: Config) -> bool:
        return config.family in self._spaces

    def _is_valid(self, config: Config, problem: Problem) -> bool:
        """Of its space as it is offered, too: with `--space` that may be without copies, or of one split."""
        space = self._spaces.get(config.family)
        if space is None or foreign_choice(config, space):
            return False
        return violated(space, config, self._names(problem)) is None

    def _names(self, problem: Problem) -> dict[str, int | float | str]:
        return {**self._device.names(), **problem.names()}
