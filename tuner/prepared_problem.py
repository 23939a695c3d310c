"""`PreparedProblem`: one problem on the GPU, and what is done with candidates for it: screened, or refined together.

What goes wrong with a candidate becomes its measurement. `ContextLost` is the exception: after it nothing works in
this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kt.cache.records import Measurement
from kt.problems import Problem
from kt.tuner.arguments import gemm_arguments
from kt.tuner.cuda import CUDA_ERRORS, Gpu, context_is_dead, in_words
from kt.tuner.library_peers import LibraryPeers
from kt.tuner.loaded_candidate import LaunchRefused, LoadedCandidate, Rotation
from kt.tuner.measure import screen
from kt.tuner.memory_plan import DoesNotFit
from kt.tuner.messages import Candidate, Refine, RefineReply
from kt.tuner.operands import Operands
from kt.tuner.reference_kernels import ReferenceKernels
from kt.tuner.refinement import PeerUnavailable, Refined, refine
from kt.tuner.sampling import Run, TimerStuck
from kt.tuner.stopwatch import CudaStopwatch
from kt.tuner.verify import Launch, Scalars, Verifier, scalars_of_passes

__all__ = ["ContextLost", "PreparedProblem"]

T = TypeVar("T")
_CANDIDATE_ERRORS: tuple[type[Exception], ...] = (LaunchRefused, TimerStuck, *CUDA_ERRORS)


class ContextLost(Exception):
    """The CUDA context is dead; `candidate` was running, if that is known."""

    def __init__(self, detail: str, candidate: str) -> None:
        super().__init__(detail)
        self.candidate = candidate


class PreparedProblem:
    """Operands, reference and clock of one problem.

    Raises:
        DoesNotFit: the problem needs more memory than is free.
    """

    def __init__(
        self, gpu: Gpu, kernels: ReferenceKernels, stopwatch: CudaStopwatch, problem: Problem, seed: int
    ) -> None:
        self.problem = problem
        self.operands = Operands(gpu, kernels, problem, seed, scalars_of_passes(problem))
        self.operands.fill()
        self._verifier = Verifier(gpu, kernels, self.operands)
        self._verifier.prepare()
        self._stopwatch = stopwatch

    @property
    def sets(self) -> int:
        return self.operands.plan.sets

    def screen(self, candidate: Candidate, stop_above_us: float | None) -> Measurement:
        """Verify on the exact operands, then time quickly."""

        def screened() -> Measurement:
            with LoadedCandidate(candidate) as loaded:
                return self._screened(loaded, stop_above_us)

        return _guarded(candidate.name, screened)

    def refine(self, request: Refine, peers: LibraryPeers) -> RefineReply:
        """Verify in full, then time all against each other and the peers."""
        failed: dict[str, Measurement] = {}
        with ExitStack() as stack:
            loaded: dict[str, LoadedCandidate] = {}
            for candidate in request.candidates:
                outcome = _guarded(candidate.name, partial(LoadedCandidate, candidate))
                if isinstance(outcome, Measurement):
                    failed[candidate.name] = outcome
                else:
                    loaded[candidate.name] = stack.enter_context(outcome)
            failed.update(self._reserve_for(loaded))
            failed.update(self._verified(_without(loaded, failed)))
            refined = self._refined(_without(loaded, failed), request, peers)
        return RefineReply({**refined.measurements, **failed}, refined.ties, refined.peers, refined.peer_errors)

    def _screened(self, loaded: LoadedCandidate, stop_above_us: float | None) -> Measurement:
        self.operands.reserve_workspace(loaded.workspace_bytes)
        launch, times = self._launch_of(loaded), [0.0]

        def timed(pointers: dict[str, int], scalars: Scalars) -> None:
            times[0] = self._stopwatch.time_one(lambda: launch(pointers, scalars))

        if detail := self._verifier.exact(timed):
            return Measurement("wrong_result", detail=detail)
        self.operands.prepare_timing()
        return screen(self._stopwatch, self._rotation(loaded), self.sets, times[0], stop_above_us)

    def _reserve_for(self, loaded: Mapping[str, LoadedCandidate]) -> dict[str, Measurement]:
        """Have the largest workspace that fits; returns the candidates that need more."""
        failed: dict[str, Measurement] = {}
        for name in sorted(loaded, key=lambda name: -loaded[name].workspace_bytes):
            try:
                self.operands.reserve_workspace(loaded[name].workspace_bytes)
                break
            except DoesNotFit as error:
                failed[name] = _too_large(error)
        return failed

    def _verified(self, loaded: Mapping[str, LoadedCandidate]) -> dict[str, Measurement]:
        """Verify all in full; returns those that are wrong, or whose launch is refused."""
        refused: dict[str, Measurement] = {}
        running = ""

        def noting(name: str) -> Launch:
            launch = self._launch_of(loaded[name])

            def run(pointers: dict[str, int], scalars: Scalars) -> None:
                nonlocal running
                running = name
                try:
                    launch(pointers, scalars)
                except LaunchRefused as error:
                    refused[name] = Measurement("launch_error", detail=str(error))

            return run

        try:
            details = self._verifier.full([noting(name) for name in loaded])
        except CUDA_ERRORS as error:
            raise ContextLost(in_words(error), running) from error
        wrong = {name: detail for name, detail in zip(loaded, details, strict=True) if detail}
        return {name: Measurement("wrong_result", detail=detail) for name, detail in wrong.items()} | refused

    def _refined(self, loaded: Mapping[str, LoadedCandidate], request: Refine, library: LibraryPeers) -> Refined:
        self.operands.prepare_timing()
        peers, errors = self._runs_of_peers(request.peers, library)
        candidates = {name: self._rotation(item) for name, item in loaded.items()}
        refined = refine(self._stopwatch, candidates, peers, self.sets, request.max_seconds)
        return replace(refined, peer_errors={**errors, **refined.peer_errors})

    def _runs_of_peers(self, names: tuple[str, ...], library: LibraryPeers) -> tuple[dict[str, Run], dict[str, str]]:
        runs: dict[str, Run] = {}
        errors: dict[str, str] = {}
        for name in names:
            try:
                runs[name] = library.make(name, self.problem, self.operands, self._stopwatch)
            except (PeerUnavailable, DoesNotFit) as error:
                errors[name] = str(error)
        return runs, errors

    def _launch_of(self, loaded: LoadedCandidate) -> Launch:
        def launch(pointers: dict[str, int], scalars: Scalars) -> None:
            arguments = gemm_arguments(self.problem, pointers, loaded.runtime, scalars)
            loaded.enqueue(loaded.bind(self.problem, arguments))

        return launch

    def _rotation(self, loaded: LoadedCandidate) -> Rotation:
        arguments = [gemm_arguments(self.problem, self.operands.pointers(0), loaded.runtime)]
        for index in range(1, self.sets):
            of_set = arguments[0].copy()
            for operand, address in self.operands.pointers(index).items():
                of_set[operand] = address
            arguments.append(of_set)
        return Rotation(loaded, [loaded.bind(self.problem, of_set) for of_set in arguments])


def _guarded(name: str, action: Callable[[], T]) -> T | Measurement:
    """What `action` returns; else the measurement that says what went wrong with the candidate `name`.

    Raises:
        ContextLost: what went wrong has ended the context.
    """
    try:
        return action()
    except DoesNotFit as error:
        return _too_large(error)
    except _CANDIDATE_ERRORS as error:
        detail = in_words(error)
    if context_is_dead():
        raise ContextLost(detail, name)
    return Measurement("launch_error", detail=detail)


def _too_large(error: DoesNotFit) -> Measurement:
    return Measurement("out_of_memory", detail=f"the workspace {error}")


def _without(loaded: Mapping[str, LoadedCandidate], failed: Mapping[str, Measurement]) -> dict[str, LoadedCandidate]:
    return {name: item for name, item in loaded.items() if name not in failed}
