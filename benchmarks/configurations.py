#!/usr/bin/env python3
"""Verify listed configurations of one space on the GPU of this machine, and time them beside the library.

    python3 benchmarks/configurations.py --space search_spaces/gemm/wgmma.yaml benchmarks/wgmma.yaml

The list is YAML: problems, each with rows of choices that the space's default completes.

    - {problem: {m: 4096, n: 4096, k: 4096, dtype: bf16, layout: nn}, rows: [{tile_m: 128}, {tile_m: 256, stages: 3}]}

Everything is compiled first, on all cores. Each configuration is verified and timed once in kt's worker process, so one
that hangs or faults ends that process only; those that are right are then verified in full and timed interleaved with
each other and with cuBLAS, as the finals of a search are. One line for each configuration, the fastest first.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kt.devices.local import local_device
from kt.problems import Problem
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.loader import load_space
from kt.search_spaces.space import Config
from kt.templates.render import render
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Candidate, Failure, Prepare, Refine, Screen
from kt.tuner.toolchain import compile_job, toolchain
from kt.tuner.worker import Worker, WorkerDied

PREPARE_S, SCREEN_S, FINALS_S = 60.0, 8.0, 60.0


class Bench:
    """Compilers, the worker, and what has been compiled."""

    def __init__(self, space: Path, seconds: float) -> None:
        self.space = load_space(space)
        self.device = local_device()
        self.seconds = seconds
        self._pool = CompilePool(0, CubinCache(Path(tempfile.mkdtemp())), 120.0)
        self._worker = Worker()
        self._jobs: dict[tuple[Config, Problem], str] = {}
        self._binaries: dict[str, Any] = {}

    def ask(self, problem: Problem, rows: Sequence[Mapping[str, Any]]) -> list[Config]:
        """Have the valid configurations of the rows compiled; tells the others."""
        chosen = []
        for row in rows:
            config = self.space.config({**self.space.default, **row})
            broken = violated(self.space, config, {**self.device.names(), **problem.names()})
            if broken is not None:
                print(f"{problem.label}: {dict(row)} is not valid: {broken.reason}")
                continue
            source = render(self.space, config, problem.signature, self.device.arch)
            job = compile_job(source, self.device.arch, toolchain())
            if job.digest not in self._jobs.values():
                self._pool.submit(job)
            self._jobs[config, problem] = job.digest
            chosen.append(config)
        return chosen

    def run(self, problem: Problem, configs: Sequence[Config]) -> None:
        """Verify and time them, and print one line for each."""
        peer = "cublaslt" if problem.dtype.startswith("fp8") else "cublas"
        reply = self._request(Prepare(problem, 3, (peer,)), PREPARE_S)
        if isinstance(reply, str):
            print(f"{problem.label}: {reply}")
            return
        right = [candidate for config in configs if (candidate := self._screened(problem, config))]
        if not right:
            return
        reply = self._request(Refine(tuple(right), (peer,), self.seconds), FINALS_S)
        if isinstance(reply, str):
            print(f"{problem.label}: {reply}")
            return
        library = reply.peers.get(peer)
        rate = f"{library:.2f} us, {problem.flops / library / 1e6:.0f} TFLOP/s" if library else reply.peer_errors[peer]
        print(f"{problem.label}: {peer} {rate}")
        times = {
            config: reply.measurements[config.identity] for config in configs if config.identity in reply.measurements
        }
        for config, one in sorted(times.items(), key=lambda item: item[1].time_us or 0.0):
            if one.time_us is None:
                print(f"  {one.status}: {config.label}: {one.detail}")
                continue
            ratio = f"{library / one.time_us:.3f}x" if library else ""
            print(
                f"  {one.time_us:9.2f} us {problem.flops / one.time_us / 1e6:6.0f} TFLOP/s {ratio} {config.label}",
                flush=True,
            )

    def close(self) -> None:
        self._worker.close()

    def _screened(self, problem: Problem, config: Config) -> Candidate | None:
        """The candidate if it is right; else what is wrong is printed."""
        digest = self._jobs[config, problem]
        while digest not in self._binaries:
            self._binaries |= {binary.digest: binary for binary in self._pool.poll(1.0)}
        binary = self._binaries[digest]
        notes = [binary.error[:300], *binary.warnings]
        if spilled := sum(binary.spill_bytes.values()):
            notes.append(f"{spilled} bytes spilled")
        if any(notes):
            print(f"{problem.label}: {config.label}: {'; '.join(note for note in notes if note)}")
        if binary.error:
            return None
        launches, workspace = resolve(self.space, config, {**self.device.names(), **problem.names()})
        runtime = {name: int(value) for name, value in config.runtime}
        candidate = Candidate(config.identity, binary.path, launches, workspace, runtime)
        reply = self._request(Screen(candidate, None), SCREEN_S)
        if isinstance(reply, str) or reply.measurement.status != "ok":
            detail = reply if isinstance(reply, str) else f"{reply.measurement.status}: {reply.measurement.detail}"
            print(f"{problem.label}: {config.label}: {detail}", flush=True)
            return None
        return candidate

    def _request(self, message: Any, limit_s: float) -> Any:
        """The reply, or a text that says why there is none."""
        try:
            reply = self._worker.request(message, limit_s)
        except WorkerDied as error:
            return str(error)
        return f"{reply.status}: {reply.detail}" if isinstance(reply, Failure) else reply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", type=Path, required=True, help="the space, as for kt")
    parser.add_argument("--seconds", type=float, default=0.4, help="of timing for each problem")
    parser.add_argument("lists", type=Path, nargs="+", help="files of problems and rows")
    arguments = parser.parse_args()
    bench = Bench(arguments.space, arguments.seconds)
    entries = [entry for path in arguments.lists for entry in yaml.safe_load(path.read_text())]
    asked = [
        (problem, bench.ask(problem, entry["rows"])) for entry in entries for problem in [Problem(**entry["problem"])]
    ]
    for problem, configs in asked:
        bench.run(problem, configs)
    bench.close()


if __name__ == "__main__":
    main()
