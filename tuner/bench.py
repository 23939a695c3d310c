"""The winners of the cache beside the vendor's library, interleaved in one run of the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kt.search_spaces.launch import resolve
from kt.tuner.messages import Candidate, Failure, Prepare, Refine, RefineReply
from kt.tuner.run import stored_best
from kt.tuner.worker import PREPARE_LIMIT_S, WorkerDied

if TYPE_CHECKING:
    from kt.cache.records import BestConfig, Measurement
    from kt.cache.store import Store
    from kt.problems import Problem
    from kt.search_spaces.space import SearchSpace
    from kt.tuner.compilation import Compilation, Kernel
    from kt.tuner.messages import Binary
    from kt.tuner.request import TuneRequest

__all__ = ["BenchReport", "BenchRow", "bench", "geometric_mean"]

REFINE_SECONDS = 2.0
REFINE_LIMIT_S = 120.0


class Asked(Protocol):
    """The worker, as far as a bench needs it."""

    def request(self, message: Any, timeout_s: float) -> Any: ...


@dataclass(frozen=True)
class BenchRow:
    """One shape.

    Attributes:
        best: the winner that was timed; None if the cache has none.
        measurement: its time in this run, not the cache's.
        peers: library times of the same rounds in microseconds; peer_errors: why one is missing.
        failure: "" or why the shape was not timed.
        untuned: that is because the cache has no winner.
    """

    problem: Problem
    best: BestConfig | None = None
    measurement: Measurement | None = None
    peers: dict[str, float] = field(default_factory=dict)
    peer_errors: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    untuned: bool = False

    def ratio(self, peer: str) -> float | None:
        """The peer's time divided by the winner's: above one, the winner is faster."""
        time_us = self.measurement.time_us if self.measurement else None
        return self.peers[peer] / time_us if time_us and peer in self.peers else None


@dataclass(frozen=True)
class BenchReport:
    """All rows in the order of the shapes file."""

    rows: tuple[BenchRow, ...]

    def geometric_mean(self, peer: str) -> float | None:
        """Over the shapes that have both times; None if there is none."""
        ratios = [ratio for row in self.rows if (ratio := row.ratio(peer)) is not None]
        return geometric_mean(ratios) if ratios else None

    @property
    def failures(self) -> tuple[BenchRow, ...]:
        return tuple(row for row in self.rows if row.failure)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers, of which there is at least one."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def bench(
    request: TuneRequest,
    store: Store,
    worker: Asked,
    compilation: Compilation,
    row_done: Callable[[BenchRow], None] = lambda row: None,
) -> BenchReport:
    """Time every winner of the cache beside the peers.

    Args:
        request: its problems, spaces, device, peers and seed count here; the rest is of no use.
        store: read only; nothing that is timed here replaces what is remembered.
        worker: owns the GPU; a fault in it fails one shape.
        compilation: makes the winners' binaries; most are in the cubin cache.
        row_done: called with each row as it is made.

    Raises:
        CompilerUnavailable: there is no compiler for the device.
    """
    winners = {problem: stored_best(request, store, problem, partial=True) for problem in request.problems}
    kernels = {problem: _kernel(request, compilation, best) for problem, best in winners.items() if best}
    while compilation.pending:
        compilation.collect(1.0)
    rows = []
    for problem, best in winners.items():
        if best is None:
            row = BenchRow(problem, failure="no measured winner in the cache", untuned=True)
        else:
            row = _row(request, worker, best, compilation.binaries[kernels[problem].job_digest])
        rows.append(row)
        row_done(row)
    return BenchReport(tuple(rows))


def _kernel(request: TuneRequest, compilation: Compilation, best: BestConfig) -> Kernel:
    kernel = compilation.kernel(_space(request, best), best.config, best.key.problem.signature)
    compilation.request(kernel)
    return kernel


def _space(request: TuneRequest, best: BestConfig) -> SearchSpace:
    return next(space for space in request.spaces if space.family == best.config.family)


def _row(request: TuneRequest, worker: Asked, best: BestConfig, binary: Binary) -> BenchRow:
    problem = best.key.problem
    if binary.error:
        return BenchRow(problem, best, failure=f"the winner does not compile: {binary.error.splitlines()[0]}")
    try:
        reply = _time(request, worker, problem, _candidate(request, best, binary))
    except WorkerDied as error:
        return BenchRow(problem, best, failure=str(error))
    if isinstance(reply, Failure):
        return BenchRow(problem, best, failure=f"{reply.status}: {reply.detail}")
    measurement = reply.measurements[best.config.identity]
    failure = "" if measurement.status == "ok" else f"{measurement.status}: {measurement.detail}"
    return BenchRow(problem, best, measurement, reply.peers, reply.peer_errors, failure)


def _candidate(request: TuneRequest, best: BestConfig, binary: Binary) -> Candidate:
    names = {**request.device.names(), **best.key.problem.names()}
    launches, workspace = resolve(_space(request, best), best.config, names)
    runtime = {name: int(value) for name, value in best.config.runtime}
    return Candidate(best.config.identity, binary.path, launches, workspace, runtime)


def _time(request: TuneRequest, worker: Asked, problem: Problem, candidate: Candidate) -> RefineReply | Failure:
    prepared = worker.request(Prepare(problem, request.seed, request.peers), PREPARE_LIMIT_S)
    if isinstance(prepared, Failure):
        return prepared
    reply: RefineReply | Failure = worker.request(Refine((candidate,), request.peers, REFINE_SECONDS), REFINE_LIMIT_S)
    return reply
