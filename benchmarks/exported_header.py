#!/usr/bin/env python3
"""Build the header of a table with nvcc, and time it beside kt's own launches on the GPU of this machine.

    python3 benchmarks/exported_header.py benchmarks/results/h200/fp32-d92cad2-table.json --unseen 40 -o header.json

With `--cache`, what a cache has measured of the winners' kernels on each other's shapes counts, as in an export; with
`--max-kernels`, the header has few. Every shape of the table is computed through `kt::gemm` of the header, verified in
full, and timed interleaved with its winner as kt launches it. Then shapes that the table does not have, drawn at
random: what the header picks is verified and timed beside every kernel that a header without `--max-kernels` would
choose from, with the run-time choices that are expected to suit it best, and beside cuBLAS.

Where the machine of the GPU has no nvcc, `--build-only FILE` makes the library elsewhere, with the same arguments, and
`--library FILE` takes it.
"""

# ruff: noqa: E402
import argparse
import hashlib
import json
import math
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cli.export_forms import FormsCompiled
from kt.cli.measurements import winners_elsewhere
from kt.devices.device import Device
from kt.devices.local import local_device
from kt.export.collect import collect, collect_few
from kt.export.contents import Contents, Search, formats_of, known_device
from kt.export.dispatch import expected
from kt.export.json_table import read_table
from kt.export.kernel_header import kernel_header
from kt.export.runnable import launches_of
from kt.problems import Problem
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import SearchSpace
from kt.templates.render import render
from kt.tuner.arguments import gemm_arguments
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.cuda import Gpu, arch_of
from kt.tuner.library_peers import LibraryPeers
from kt.tuner.loaded_candidate import LoadedCandidate, Rotation
from kt.tuner.messages import Binary, Candidate
from kt.tuner.operands import Operands
from kt.tuner.reference import compile_reference, reference_definitions
from kt.tuner.reference_kernels import ReferenceKernels
from kt.tuner.refinement import PeerUnavailable, refine
from kt.tuner.stopwatch import CudaStopwatch
from kt.tuner.toolchain import compile_job, toolchain
from kt.tuner.verify import Verifier, scalars_of_passes
from support.exported_library import ExportedLibrary, build

SEED = 3
HEADER = "header"


class Headers:
    """What the header of some tables has, and what it would have with all kernels.

    Attributes:
        contents: of the header.
        everything: the same, unless the header has few kernels.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        tables = [best for path in options.tables for best in read_table(path)]
        winners = [best for best in tables if options.dtype in (None, best.key.problem.dtype)]
        spaces = {space.family: space for space in builtin_spaces()}
        searches = measured(options.cache, winners, spaces) if options.cache else []
        self.everything = self.contents = collect(winners, spaces, searches)
        if options.max_kernels:
            with FormsCompiled((), Path(tempfile.mkdtemp())) as compiled:
                asked = {"admits": compiled, "expect": compiled.expect}
                self.contents, few = collect_few(winners, spaces, searches, most=options.max_kernels, **asked)
            print(
                f"{few.kernels} of {few.before} kernels: {few.mean_loss:.3f} slower, as reckoned, on {len(few.known)}"
            )
        self.text = kernel_header(self.contents)

    def built(self, arch: str, library: Path | None) -> Path:
        """The header's library: built now, or elsewhere for the same header."""
        if library is None:
            return build(Path(tempfile.mkdtemp()), self.text, arch)
        if _digest_file(library).read_text() != self._digest:
            raise SystemExit(f"{library} was not built for this header: {_digest_file(library)}")
        return library

    def build_only(self, arch: str, library: Path) -> None:
        shutil.copyfile(build(Path(tempfile.mkdtemp()), self.text, arch), library)
        _digest_file(library).write_text(self._digest)

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".digest")


class Bench:
    """The header of a table, built, and the kernels that it may have as kt compiles them."""

    def __init__(self, headers: Headers, seconds: float, library: Path | None = None) -> None:
        self.device = local_device()
        self.seconds = seconds
        self.contents = headers.everything
        pool = CompilePool(0, CubinCache(Path(tempfile.mkdtemp())), 120.0)
        jobs = []
        for kernel in self.contents.kernels.kernels:
            source = render(kernel.space, kernel.config, kernel.signature, kernel.arch)
            jobs.append(compile_job(source, self.device.arch, toolchain()))
        for job in {job.digest: job for job in jobs}.values():
            pool.submit(job)
        started = time.monotonic()
        self.library = ExportedLibrary(headers.built(self.device.arch, library))
        self.build_s = time.monotonic() - started
        done: dict[str, Binary] = {}
        while pool.pending:
            done |= {binary.digest: binary for binary in pool.poll(1.0)}
        self.binaries = [done[job.digest] for job in jobs]
        self.gpu = Gpu(0)
        self._stopwatch = CudaStopwatch(self.gpu)
        self._peers = LibraryPeers(self.gpu)
        self._references: dict[tuple[str, ...], ReferenceKernels] = {}

    def time(self, problem: Problem, variants: Sequence[int], peer: bool) -> dict[str, Any]:
        """Where the header's configuration is from, and microseconds of it, of each variant, and of cuBLAS."""
        kernels = self._reference(problem)
        operands = Operands(self.gpu, kernels, problem, SEED, scalars_of_passes(problem))
        operands.fill()
        loaded = {str(index): one for index in variants if (one := self._loaded(index, problem)) is not None}
        workspace = self.library.workspace_bytes(problem)
        operands.reserve_workspace(max([workspace, *(one.workspace_bytes for one in loaded.values())]))
        found: list[str] = []

        def call(pointers: dict[str, int], scalars: tuple[float, float]) -> None:
            found.append(self.library.gemm(problem, pointers, scalars, workspace, self.gpu.stream.ptr))

        try:
            wrong = Verifier(self.gpu, kernels, operands).full([call])[0]
            operands.prepare_timing()
            runs: dict[str, Any] = {name: self._rotation(one, problem, operands) for name, one in loaded.items()}
            runs[HEADER] = _Calls(call, problem, operands)
            library = self._library(problem, operands) if peer else {}
            refined = refine(self._stopwatch, runs, library, operands.plan.sets, self.seconds)
        finally:
            for one in loaded.values():
                one.close()
        times = {name: one.time_us for name, one in refined.measurements.items()}
        return {"problem": problem.label, "found": found[-1], "wrong": wrong, "us": times, "cublas": refined.peers}

    def _loaded(self, index: int, problem: Problem) -> LoadedCandidate | None:
        variant = self.contents.kernels.variants[index]
        kernel, binary = self.contents.kernels.kernels[variant.kernel], self.binaries[variant.kernel]
        launches = launches_of(kernel, variant.runtime, problem, self.device)
        if launches is None or binary.error:
            return None
        runtime = {name: int(value) for name, value in variant.runtime}
        return LoadedCandidate(Candidate(str(index), binary.path, *launches, runtime))

    def _rotation(self, loaded: LoadedCandidate, problem: Problem, operands: Operands) -> Rotation:
        arguments = [
            gemm_arguments(problem, operands.pointers(index), loaded.runtime) for index in range(operands.plan.sets)
        ]
        return Rotation(loaded, [loaded.bind(problem, one) for one in arguments])

    def _library(self, problem: Problem, operands: Operands) -> dict[str, Any]:
        try:
            return {"cublas": self._peers.make("cublas", problem, operands, self._stopwatch)}
        except PeerUnavailable as error:
            print(f"cuBLAS: {error}")
            return {}

    def _reference(self, problem: Problem) -> ReferenceKernels:
        definitions = reference_definitions(problem)
        if definitions not in self._references:
            module = self.gpu.load(compile_reference(definitions, arch_of(0)))
            self._references[definitions] = ReferenceKernels(self.gpu, module)
        return self._references[definitions]


class _Calls:
    """Calls of the header, one operand set after the other."""

    def __init__(self, call: Any, problem: Problem, operands: Operands) -> None:
        self._call, self._scalars = call, (problem.alpha, problem.beta)
        self._pointers = [operands.pointers(index) for index in range(operands.plan.sets)]
        self._next = 0

    def __call__(self) -> None:
        self._call(self._pointers[self._next], self._scalars)
        self._next = (self._next + 1) % len(self._pointers)


def measured(cache: Path, winners: Sequence[BestConfig], spaces: Mapping[str, SearchSpace]) -> list[Search]:
    """What a cache has of the winners' kernels."""
    with Store.open(cache, read_only=True) as store:
        return winners_elsewhere(store, winners, spaces, ())


def rivals(contents: Contents, problem: Problem, device: Device) -> list[int]:
    """Of each kernel that a shape which was not tuned may be given, the variant that is expected to suit it best."""
    group = contents.groups.get((device.identity, *formats_of(problem), problem.layout), [])
    found = []
    for candidate in group:
        times = expected(contents, candidate, problem, device)
        kernel = contents.kernels.kernels[contents.kernels.variants[candidate.variants[0]].kernel]
        runnable = [
            variant
            for variant in candidate.variants
            if launches_of(kernel, contents.kernels.variants[variant].runtime, problem, device) is not None
        ]
        if runnable:
            found.append(min(runnable, key=lambda variant: times[variant]))
    return found


def unseen(listed: Sequence[Problem], count: int, seed: int) -> Iterator[Problem]:
    """Shapes in the formats and layouts of the listed ones, and as large; seven of ten are multiples of 8."""
    chooser = random.Random(seed)
    made = 0
    while made < count:
        like = chooser.choice(listed)
        sizes = [int(2 ** chooser.uniform(low, high)) for low, high in ((0, 13), (4, 14), (4, 14))]
        if chooser.random() < 0.7:
            sizes = [max(8, size // 8 * 8) for size in sizes]
        m, n, k = sizes
        if m * n * k < 2**37 and m * n < 2**27:
            made += 1
            yield Problem(m, n, k, like.dtype, like.layout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the header of a table, verify it and time it.")
    parser.add_argument("tables", type=Path, nargs="+", help="JSON tables of this GPU")
    parser.add_argument("--cache", type=Path, help="folder of a cache with measurements of these winners")
    parser.add_argument("--dtype", help="only winners of this format")
    parser.add_argument("--unseen", type=int, default=0, help="random shapes besides")
    parser.add_argument("--seed", type=int, default=7, help="of these")
    parser.add_argument("--no-tuned", dest="tuned", action="store_false", help="leave the table's own shapes out")
    parser.add_argument("--seconds", type=float, default=0.25, help="of timing for each shape")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds in all")
    parser.add_argument("--max-kernels", type=int, help="a header of so many kernels")
    parser.add_argument("--build-only", type=Path, metavar="FILE", help="make the library of the header, and no more")
    parser.add_argument("--library", type=Path, metavar="FILE", help="that was made so, in place of nvcc")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    started = time.monotonic()
    headers = Headers(options)
    winners = headers.everything.winners
    if options.build_only:
        headers.build_only(known_device(winners[0].key.device).arch, options.build_only)
        return
    bench = Bench(headers, options.seconds, options.library)
    print(f"header of {len(headers.text)} characters built in {bench.build_s:.1f} s", flush=True)
    listed = [best.key.problem for best in winners]
    rows: list[dict[str, Any]] = []
    for problem in unseen(listed, options.unseen, options.seed):
        if time.monotonic() - started < options.limit:
            variants = rivals(headers.everything, problem, known_device(winners[0].key.device))
            rows.append(bench.time(problem, variants, peer=True) | {"tuned": False})
    for index, problem in enumerate(listed if options.tuned else ()):
        if time.monotonic() - started < options.limit:
            rows.append(bench.time(problem, [bench.contents.entries[index]], peer=False) | {"tuned": True})
    if options.output:
        options.output.write_text(json.dumps({"build_s": bench.build_s, "rows": rows}, indent=1))
    _report(rows)


def _report(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        if row["wrong"]:
            print(f"WRONG {row['problem']}: {row['wrong']}")
    for tuned in (True, False):
        chosen = [row for row in rows if row["tuned"] is tuned and not row["wrong"] and row["us"].get(HEADER)]
        ratios = []
        for row in chosen:
            others = [us for name, us in row["us"].items() if name != HEADER and us]
            ratios.append((row["us"][HEADER] / min(others, default=row["us"][HEADER]), row))
        if not ratios:
            continue
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
        kind, above = ("tuned" if tuned else "unseen"), sum(ratio > 1.25 for ratio, _ in ratios)
        print(f"{kind}: {len(ratios)} shapes, {mean:.3f} of the best kernel, {above} above 1.25")
        for ratio, row in sorted(ratios, key=lambda item: -item[0])[:8]:
            print(f"  {ratio:.3f} {row['problem']} {row['found']} {row['us'][HEADER]:.1f} us")
        cublas = [row["cublas"]["cublas"] / row["us"][HEADER] for row in chosen if row["cublas"].get("cublas")]
        if cublas:
            print(f"  over cuBLAS: {math.exp(statistics.fmean(map(math.log, cublas))):.3f}, least {min(cublas):.3f}")


if __name__ == "__main__":
    main()
