"""`FamilyChecks`: configurations of a kernel family verified in full on the GPU of this process, many a second.

Each problem is prepared once, with a single operand set, since nothing is timed. Each configuration is verified against
the independent reference on whole numbers (bit for bit), with other scalars, on random numbers, and for equal bits in
two runs. A kernel that faults ends the CUDA context: the first failure names it, and all later ones follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kt.devices.device import Device
from kt.problems import Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Config, SearchSpace
from kt.templates.render import render
from kt.tuner.arguments import gemm_arguments
from kt.tuner.compile_pool import CompilePool
from kt.tuner.messages import Binary, Candidate, CompileJob
from kt.tuner.operands import Operands
from kt.tuner.toolchain import compile_job, toolchain
from kt.tuner.verify import Launch, Scalars, Verifier, scalars_of_passes
from support.gpu_reference import GpuReference
from support.problems import Formats, has_instructions

if TYPE_CHECKING:
    from kt.tuner.cuda import Gpu
    from kt.tuner.loaded_candidate import LoadedCandidate

__all__ = ["Case", "FamilyChecks", "OneSet", "candidate_of", "compiled", "jobs_of"]

Case = tuple[Problem, Sequence[Config]]
SEED = 3


def jobs_of(space: SearchSpace, case: Case, device: Device) -> list[CompileJob]:
    """The compilation of each configuration of a case."""
    problem, configs = case
    sources = [render(space, config, problem.signature, device.arch) for config in configs]
    return [compile_job(source, device.arch, toolchain()) for source in sources]


def compiled(pool: CompilePool, jobs: Iterable[CompileJob]) -> dict[str, Binary]:
    """The binaries of `jobs` by digest; each compiles."""
    done: dict[str, Binary] = {}
    for job in jobs:
        pool.submit(job)
    while pool.pending:
        done |= {binary.digest: binary for binary in pool.poll(1.0)}
    errors = {binary.error for binary in done.values() if binary.error}
    assert not errors, errors
    return done


def candidate_of(space: SearchSpace, config: Config, problem: Problem, device: Device, binary: Binary) -> Candidate:
    """What is launched for `config`."""
    launches, workspace = resolve(space, config, {**device.names(), **problem.names()})
    runtime = {name: int(value) for name, value in config.runtime}
    return Candidate(config.identity, binary.path, launches, workspace, runtime)


class FamilyChecks:
    """Checks of one family on the first GPU."""

    def __init__(self, space: SearchSpace, device: Device, pool: CompilePool) -> None:
        self.space, self.device, self.pool = space, device, pool
        self.reference = GpuReference()
        self._running = ""

    def need(self, formats: Formats) -> None:
        """Skip the test if the GPU has no instruction for the formats."""
        import pytest  # a script that runs without tests uses the functions above

        if not has_instructions(self.device, formats):
            pytest.skip("8-bit floats need compute capability 8.9")

    def check(self, cases: Iterable[Case]) -> None:
        """Every configuration of every case is right."""
        listed = list(cases)
        without = [problem.label for problem, configs in listed if not configs]
        assert not without, f"no configuration is valid for {', '.join(without)}"
        jobs = [jobs_of(self.space, case, self.device) for case in listed]
        binaries = compiled(self.pool, (job for of_case in jobs for job in of_case))
        wrong: dict[str, str] = {}
        for (problem, configs), of_case in zip(listed, jobs, strict=True):
            candidates = [
                candidate_of(self.space, config, problem, self.device, binaries[job.digest])
                for config, job in zip(configs, of_case, strict=True)
            ]
            details = self._verified(problem, candidates)
            wrong |= {
                f"{problem.label}: {config.label}": detail
                for config, detail in zip(configs, details, strict=True)
                if detail
            }
        assert not wrong, "\n".join(f"{where}: {detail}" for where, detail in wrong.items())

    def candidates(self, problem: Problem, configs: Sequence[Config]) -> list[Candidate]:
        """The configurations, compiled for the problem."""
        jobs = jobs_of(self.space, (problem, configs), self.device)
        binaries = compiled(self.pool, jobs)
        return [
            candidate_of(self.space, config, problem, self.device, binaries[job.digest])
            for config, job in zip(configs, jobs, strict=True)
        ]

    def _verified(self, problem: Problem, candidates: Sequence[Candidate]) -> list[str]:
        """What is wrong with each candidate, or ""."""
        from kt.tuner.cuda import CUDA_ERRORS, in_words
        from kt.tuner.loaded_candidate import LaunchRefused, LoadedCandidate

        faults: tuple[type[Exception], ...] = (LaunchRefused, *CUDA_ERRORS)
        kernels = self.reference.kernels(problem)
        operands = Operands(OneSet(self.reference.gpu), kernels, problem, SEED, scalars_of_passes(problem))
        operands.fill()
        operands.reserve_workspace(max(candidate.workspace_bytes for candidate in candidates))
        loaded = [LoadedCandidate(candidate) for candidate in candidates]
        try:
            return Verifier(self.reference.gpu, kernels, operands).full([self._launch(problem, one) for one in loaded])
        except faults as error:
            raise AssertionError(f"{problem.label}: {self._running}: {in_words(error)}") from error
        finally:
            for one in loaded:
                one.close()

    def _launch(self, problem: Problem, loaded: LoadedCandidate) -> Launch:
        def launch(pointers: dict[str, int], scalars: Scalars) -> None:
            self._running = loaded.name
            arguments = gemm_arguments(problem, pointers, loaded.runtime, scalars)
            loaded.enqueue(loaded.bind(problem, arguments))

        return launch


class OneSet:
    """The GPU's memory, as if it had no cache that more operand sets would have to exceed."""

    l2_bytes = 0

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def memory(self) -> tuple[int, int]:
        return self._gpu.memory()

    def allocate(self, size: int) -> Any:
        return self._gpu.allocate(size)
