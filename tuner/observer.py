"""`Observer`: what a run reports while it goes on; the command line draws progress from it."""

from typing import Protocol

from kt.cache.records import BestConfig, Measurement
from kt.problems import Problem
from kt.search_spaces.space import Config

__all__ = ["Observer", "SilentObserver"]


class Observer(Protocol):
    """Called from the tuning loop; must return at once."""

    def run_started(self, shapes: int, cached: int, unseen: int = 0) -> None:
        """The run has `shapes` problems, of which `cached` need no work; `unseen` of them stand for others."""

    def compiled(self, done: int, total: int) -> None:
        """`done` of `total` compilations of this run have ended."""

    def shape_started(self, problem: Problem, candidates: int) -> None:
        """Work on `problem` begins with `candidates` candidates."""

    def candidate_done(self, problem: Problem, config: Config, measurement: Measurement) -> None:
        """One candidate has its measurement."""

    def shape_finished(self, problem: Problem, best: BestConfig | None, failure: str) -> None:
        """`problem` ended with a winner, or with `failure` saying why it has none."""

    def compared(self, done: int, total: int, better: BestConfig | None) -> None:
        """`done` of `total` shapes were timed with the others' kernels; `better` has beaten the last one's winner."""

    def warning(self, text: str) -> None:
        """Something a person should know; the run goes on."""


class SilentObserver:
    """Reports nothing."""

    def run_started(self, shapes: int, cached: int, unseen: int = 0) -> None: ...

    def compiled(self, done: int, total: int) -> None: ...

    def shape_started(self, problem: Problem, candidates: int) -> None: ...

    def candidate_done(self, problem: Problem, config: Config, measurement: Measurement) -> None: ...

    def shape_finished(self, problem: Problem, best: BestConfig | None, failure: str) -> None: ...

    def compared(self, done: int, total: int, better: BestConfig | None) -> None: ...

    def warning(self, text: str) -> None: ...
