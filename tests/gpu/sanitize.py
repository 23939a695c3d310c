"""Runs a sample of a family's configurations in this one process, for NVIDIA's compute-sanitizer.

    python3 tests/gpu/sanitize.py --family mma --cubins build --dry-run      # compile first, without the sanitizer
    python3 tests/gpu/sanitize.py --family mma --cubins build --only hold_b=1 --dry-run    # of one choice alone
    compute-sanitizer --tool memcheck python3 tests/gpu/sanitize.py --family mma --cubins build
    compute-sanitizer --tool racecheck python3 tests/gpu/sanitize.py --family mma --cubins build --limit 60
    compute-sanitizer --tool initcheck python3 tests/gpu/sanitize.py --family mma --raw --limit 200
    compute-sanitizer --tool synccheck python3 tests/gpu/sanitize.py --family mma --cubins build --limit 200

Every operand has an allocation of its own that ends with its last element, so memcheck sees each read past it. Results
are compared with numpy, bit for bit. Prints what it ran; ends with 1 if a result is wrong or a launch fails.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# Run as a script it finds kt and what tests share without an installation.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from kt.devices.device import Device
from kt.devices.local import select_device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import violated
from kt.search_spaces.space import Config, SearchSpace, Value
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Candidate
from support.covering import Covering
from support.exact_operands import exact_operands
from support.family_checks import candidate_of, compiled, jobs_of
from support.family_compiles import builtin
from support.problems import (
    Formats,
    every_alignment,
    every_scalar,
    formats_of,
    has_instructions,
    misaligned_bases,
    ragged,
)
from support.raw_launch import launched

Run = tuple[Problem, Config]
LIMIT = 400


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    device, space = select_device(options.device), builtin(options.family)
    offered = {**space.parameters, **space.runtime}
    for name, value in options.only:
        if value not in offered.get(name, ()):
            print(f"--only {name}={value}: family {space.family} does not offer it", file=sys.stderr)
            return 2
    runs = sample(space, device, options.limit, options.seed, raw=options.raw, only=dict(options.only))
    print(f"{len(runs)} configurations of {space.family} for {device.name}", flush=True)
    with _cubins(options.cubins) as folder, CompilePool(options.jobs, CubinCache(folder), 120.0) as pool:
        candidates = _candidates(space, device, runs, pool)
        if options.dry_run:
            return 0
        return _launch_all(runs, candidates, raw=options.raw)


def sample(
    space: SearchSpace, device: Device, limit: int, seed: int, *, raw: bool, only: Mapping[str, Value] | None = None
) -> list[Run]:
    """At most `limit` runs, drawn at random from those of all formats, layouts, alignments, sizes and scalars.

    `only`: of configurations with these values alone.
    """
    asked = [one for formats in _served(space, device) for one in _asked(formats)]
    if raw:
        asked = [(problem, fixed) for problem, fixed in asked if _wholly_written(problem)]
    shuffled = random.Random(seed).sample(asked, len(asked))
    # Problems that are listed for such a choice first: few others may allow it, and each takes long to go through.
    shuffled.sort(key=lambda one: not one[1].items() & (only or {}).items())
    coverings: dict[str, Covering] = {}
    runs: list[Run] = []
    for problem, fixed in shuffled:
        if len(runs) >= limit:
            break
        covering = coverings.setdefault(problem.dtype, Covering(space, device, seed))
        runs += [(problem, config) for config in _chosen(covering, problem, {**fixed, **(only or {})})]
    return runs[:limit]


def _asked(formats: Formats) -> list[tuple[Problem, dict[str, Value]]]:
    """All problems of a format, with choices that are to be taken: those that are worth it for larger problems only."""
    small = [*ragged(formats), *every_alignment(formats), *misaligned_bases(formats), *every_scalar(formats)]
    large = [formats.problem(515, 517, 131, layout) for layout in LAYOUTS]
    large += [formats.problem(515, n, 259, "nn") for n in (516, 518)]
    choices: list[dict[str, Value]] = [
        {"stream_k": 1}, {"pack_a": 1}, {"pack_b": 1}, {"slices_k": 2}, {"classes_b": 1}, {"shift_a": 1},
    ]  # fmt: skip
    stretches: dict[str, Value] = {"stretch_b": 1}
    narrow = [formats.problem(515, n, 259, "nn", base_alignment=base) for n, base in ((35, 256), (10, 256), (7, 8))]
    wide = [formats.problem(1403, 1412, 40, layout, batch=2) for layout in LAYOUTS]
    held: dict[str, Value] = {"hold_b": 1}
    thin = [formats.problem(m, n, 259, layout) for layout in LAYOUTS for m, n in ((9, 4101), (4101, 7))]
    sizes = ((515, 517, 259), (386, 260, 262), (260, 514, 264), (2051, 2309, 131))
    odd = ((257, 256), (260, 263), (258, 261))
    turned = [formats.problem(m, n, k, "nt") for m, n, k in sizes]
    turned += [formats.problem(260, 258, 256, "nt", lda=lda, ldb=ldb, beta=1) for lda, ldb in odd]
    turned.append(formats.problem(258, 260, 192, "nt", batch=3))
    by_tma: dict[str, Value] = {"turn_tma": 1}
    kinds: list[dict[str, Value]] = [{"form": "stretch"}, {"form": "stream"}, {"cluster_k": 2}]
    return [
        *((problem, {}) for problem in small),
        *((problem, fixed) for fixed in choices for problem in large),
        *((problem, stretches) for problem in narrow),
        *((problem, held) for problem in wide),
        *((problem, by_tma) for problem in turned),
        *((problem, fixed) for fixed in kinds for problem in thin),
    ]


def _chosen(covering: Covering, problem: Problem, fixed: dict[str, Value]) -> list[Config]:
    """Two configurations with most pairs of choices that have not met yet, or the default and one."""
    default = covering.space.default_config
    names = {**covering.device.names(), **problem.names()}
    with_default = not fixed and violated(covering.space, default, names) is None and problem.n % 2 == 0
    return [default, *covering.choose(problem, 1)] if with_default else covering.choose(problem, 2, fixed)


def _served(space: SearchSpace, device: Device) -> list[Formats]:
    """The formats that the GPU has instructions for."""
    return [formats for formats in formats_of(space.dtypes) if has_instructions(device, formats)]


def _wholly_written(problem: Problem) -> bool:
    """Whether C is never read, and has nothing between its rows: then it may be left as allocated."""
    return problem.beta == 0 and problem.ldc == problem.n and problem.stride_c in (0, problem.m * problem.n)


def _candidates(space: SearchSpace, device: Device, runs: Sequence[Run], pool: CompilePool) -> list[Candidate]:
    jobs = [jobs_of(space, (problem, [config]), device)[0] for problem, config in runs]
    binaries = compiled(pool, jobs)
    return [
        candidate_of(space, config, problem, device, binaries[job.digest])
        for (problem, config), job in zip(runs, jobs, strict=True)
    ]


def _launch_all(runs: Sequence[Run], candidates: Sequence[Candidate], *, raw: bool) -> int:
    from kt.tuner.cuda import CUDA_ERRORS, Gpu, in_words
    from kt.tuner.loaded_candidate import LaunchRefused

    faults: tuple[type[Exception], ...] = (LaunchRefused, *CUDA_ERRORS)
    gpu, wrong = Gpu(0), 0
    for number, ((problem, config), candidate) in enumerate(zip(runs, candidates, strict=True), 1):
        try:
            operands = exact_operands(problem, number)
            detail = operands.judge(launched(gpu, problem, candidate, operands.memory, operands.scalars, raw=raw))
        except faults as error:  # after a fault nothing works in this process
            print(f"[{number}/{len(runs)}] {problem.label}: {config.label}: {in_words(error)}", flush=True)
            return 1
        wrong += bool(detail)
        print(f"[{number}/{len(runs)}] {problem.label}: {config.label}: {detail or 'ok'}", flush=True)
    print(f"{wrong} of {len(runs)} are wrong" if wrong else f"all {len(runs)} are right")
    return 1 if wrong else 0


@contextmanager
def _cubins(folder: Path | None) -> Iterator[Path]:
    """The folder that was named, kept; else one for this run only."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="mma", help="kernel family (default: mma)")
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"most configurations to run (default: {LIMIT})")
    parser.add_argument("--seed", type=int, default=0, help="which sample (default: 0)")
    parser.add_argument(
        "--only",
        type=_choice,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of a parameter, this value alone",
    )
    parser.add_argument("--jobs", type=int, default=0, help="compiler processes (default: one for each core)")
    parser.add_argument("--cubins", type=Path, help="folder of compiled kernels, kept for further runs")
    parser.add_argument("--raw", action="store_true", help="leave C and workspace as allocated, for initcheck")
    parser.add_argument("--dry-run", action="store_true", help="compile only")
    parser.add_argument("--device", default="local", help="what to compile for (default: this machine's GPU)")
    return parser.parse_args(arguments)


def _choice(text: str) -> tuple[str, Value]:
    name, _, value = text.partition("=")
    return name, int(value) if value.lstrip("-").isdigit() else value


if __name__ == "__main__":
    sys.exit(main())
