"""`TuneRequest` and `TuneResult`: what a run is asked to do, and how each of its shapes ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from kt.cache.records import BestConfig
from kt.devices.device import Device
from kt.problems import Problem
from kt.search_spaces.space import SearchSpace
from kt.templates.digest import template_digest

__all__ = ["MODEL_METHOD", "Budget", "ShapeResult", "Strategy", "TuneRequest", "TuneResult"]

MODEL_METHOD = "model/5"  # in place of the measuring method in keys of predictions; raised when the model changes
Strategy = Literal["auto", "exhaustive", "random"]


@dataclass(frozen=True)
class Budget:
    """A limit of the whole run: seconds of wall-clock time, or evaluations of candidates per shape."""

    seconds: float | None = None
    evaluations: int | None = None


@dataclass(frozen=True)
class TuneRequest:
    """What to tune, on what, and how.

    Attributes:
        problems: distinct problems, in the order of the file.
        spaces: search spaces that may serve them.
        device: the local GPU, or a modelled one (then the run ranks by the model and measures nothing).
        strategy, budget, seed: the search; on a modelled device only the budget counts.
        template_dirs: folders searched for templates before the built-in ones.
        peers: library baselines to time beside the finalists, e.g. ("cublas",).
        compilers: compiler processes; 0 means one per core.
        compile_limit_s: seconds after which one compilation is ended.
        retune: measure again although the cache has a valid winner.
        space: name of the file that the spaces come from, for the record; "" for the built-in ones.
        unseen: problems that stand for those that nobody lists: searched briefly, after the others.
    """

    problems: Sequence[Problem]
    spaces: Sequence[SearchSpace]
    device: Device
    strategy: Strategy = "auto"
    budget: Budget = Budget()
    seed: int = 0
    template_dirs: tuple[Path, ...] = ()
    peers: tuple[str, ...] = ()
    compilers: int = 0
    compile_limit_s: float = 30.0
    retune: bool = False
    space: str = ""
    unseen: Sequence[Problem] = ()

    @cached_property
    def sources(self) -> dict[str, str]:
        """Digest of template, headers and space by family, as the files were when the run first asked."""
        return {space.family: template_digest(space, self.template_dirs) for space in self.spaces}

    @property
    def without_effect(self) -> str:
        """What of the request a modelled device cannot do, in one line; "" if there is nothing of the kind."""
        asked = [f"strategy {self.strategy}"] if self.strategy != "auto" else []
        asked += [f"seed {self.seed}"] if self.seed else []
        if not self.device.modelled or not asked:
            return ""
        what = " and ".join(asked)
        return f"{what} without effect: nothing is measured, and only the best predicted candidates are compiled"

    def spaces_for(self, problem: Problem) -> list[SearchSpace]:
        """The spaces whose template serves the problem's format on the device."""
        return [
            space
            for space in self.spaces
            if problem.dtype in space.dtypes and self.device.compute_capability >= space.min_compute_capability
        ]


@dataclass(frozen=True)
class ShapeResult:
    """How one shape ended: a winner, or a failure that says why.

    Attributes:
        failure: "" with a winner; else one line with the cause.
        untuned: True if the budget or an interrupt ended the run before this shape.
        cached: True if the winner came from the cache without work.
        statuses: number of candidates by status in this run.
    """

    problem: Problem
    best: BestConfig | None
    failure: str = ""
    untuned: bool = False
    cached: bool = False
    statuses: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TuneResult:
    """The outcome of a run.

    Attributes:
        shapes: one result per problem, in order.
        failures: number of candidates by cause, most frequent first; a cause is told as it was met first, and what
            differs from it in numbers only (positions, sizes, limits) counts with it.
        compiled: compilations in this run (cubins from the cache not counted).
        seconds: wall-clock time.
        interrupted: Ctrl-C or SIGTERM ended it.
        unseen: one result for each of the problems that stand for others, in order.
    """

    shapes: tuple[ShapeResult, ...]
    failures: dict[str, int] = field(default_factory=dict)
    compiled: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    unseen: tuple[ShapeResult, ...] = ()
