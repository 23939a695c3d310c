"""The simt family computes GEMM: every format, layout, size, alignment, scalar and schedule, checked in full.

Each problem is prepared once; each configuration is verified against the independent reference on whole numbers (bit
for bit), with other scalars, on random numbers and for equal bits in two runs: that is what `Refine` does.
"""

from collections.abc import Iterator

import pytest

from kt.devices.device import Device
from kt.devices.local import local_device
from kt.problems import LAYOUTS, Problem
from kt.search_spaces.launch import resolve, violated
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Config, Value
from kt.templates.render import render
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary, Candidate, CompileJob, Prepare, Prepared, Refine, RefineReply
from kt.tuner.toolchain import compile_job, toolchain
from kt.tuner.worker import Worker

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SPACE = next(space for space in builtin_spaces() if space.family == "simt")
LARGE: dict[str, Value] = {"tile_m": 128, "tile_n": 128, "thread_m": 8, "thread_n": 8, "tile_k": 16, "unroll": 16}
WIDE: dict[str, Value] = {
    "tile_m": 16,
    "tile_n": 256,
    "thread_m": 1,
    "thread_n": 8,
    "warp_m": 1,
    "tile_k": 32,
    "unroll": 16,
}
VARIANTS: tuple[dict[str, Value], ...] = (
    {},
    LARGE,
    LARGE | {"stages": 3, "fma_order": "columns", "raster_group": 4},
    LARGE | {"split_k": 3},
    WIDE,
    WIDE | {"split_k": 24},
    {"tile_m": 8, "tile_n": 128, "thread_m": 2, "thread_n": 4, "tile_k": 16, "unroll": 16},
    {"tile_m": 256, "tile_n": 32, "thread_m": 8, "thread_n": 2, "warp_m": 8},
    LARGE | {"stream_k": 1},
    LARGE | {"stages": 4, "pack_a": 1, "pack_b": 1},
    LARGE | {"pack_a": 1, "stream_k": 1, "min_blocks": 2},
    LARGE | {"pack_b": 1, "split_k": 2},
)
FORMATS = ("fp32", "fp64", "fp16", "bf16", "int8")
SIZES = ((1, 1, 1), (1, 105, 107), (2, 4, 3), (130, 259, 67), (257, 96, 304), (64, 128, 4099))


def configurations(problem: Problem, device: Device) -> list[Config]:
    """The variants that are valid on the problem; of 8-byte elements the thread tiles are halved."""
    names = {**device.names(), **problem.names()}
    chosen: list[Config] = []
    for variant in VARIANTS:
        values = {**SPACE.default, **variant}
        if problem.dtype == "fp64" and variant is not VARIANTS[0]:
            values["thread_n"] = max(2, int(values["thread_n"]) // 2)
        if violated(SPACE, SPACE.config(values), names) is None:
            chosen.append(SPACE.config(values))
    return chosen


@pytest.fixture(scope="module")
def device() -> Device:
    return local_device()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompilePool]:
    with CompilePool(0, CubinCache(tmp_path_factory.mktemp("cubins")), 60.0) as pool:
        yield pool


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def compiled(pool: CompilePool, jobs: list[CompileJob]) -> list[Binary]:
    done: dict[str, Binary] = {}
    for job in jobs:
        pool.submit(job)
    while pool.pending:
        done |= {binary.digest: binary for binary in pool.poll(1.0)}
    return [done[job.digest] for job in jobs]


def check(problem: Problem, device: Device, pool: CompilePool, worker: Worker) -> None:
    configs = configurations(problem, device)
    sources = [render(SPACE, config, problem.signature, device.arch) for config in configs]
    jobs = [compile_job(source, device.arch, toolchain()) for source in sources]
    candidates = []
    for config, binary in zip(configs, compiled(pool, jobs), strict=True):
        assert not binary.error, binary.error
        launches, workspace = resolve(SPACE, config, {**device.names(), **problem.names()})
        runtime = {name: int(value) for name, value in config.runtime}
        candidates.append(Candidate(config.identity, binary.path, launches, workspace, runtime))
    assert candidates, "the default is valid on every problem"
    assert isinstance(worker.request(Prepare(problem, seed=3), 120.0), Prepared)
    reply = worker.request(Refine(tuple(candidates), (), 0.01), 120.0)
    assert isinstance(reply, RefineReply)
    failed = {name: one.detail for name, one in reply.measurements.items() if one.status != "ok"}
    assert failed == {}
    assert reply.measurements.keys() == {candidate.name for candidate in candidates}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_formats_layouts_and_sizes(dtype: str, layout: str, device: Device, pool: CompilePool, worker: Worker) -> None:
    for m, n, k in SIZES:
        check(Problem(m, n, k, dtype, layout), device, pool, worker)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16"])
def test_large_tiles_streamed_and_packed(
    dtype: str, layout: str, device: Device, pool: CompilePool, worker: Worker
) -> None:
    """More tiles than blocks that fit at once, whole and ragged, so that stream-K parks and collects."""
    for m, n, k in [(2048, 2304, 272), (2051, 2309, 131)]:
        check(Problem(m, n, k, dtype, layout), device, pool, worker)


@pytest.mark.parametrize("dtype", FORMATS)
def test_alignments_leading_dimensions_and_batches(
    dtype: str, device: Device, pool: CompilePool, worker: Worker
) -> None:
    element = max(Problem(1, 1, 1, dtype).element_bytes.values())
    for alignment in (element, 2 * element, 16):
        for extra in (0, 1, 8):
            check(
                Problem(
                    96, 80, 72, dtype, "nt", batch=3, lda=72 + extra, ldb=72 + extra, ldc=80 + extra,
                    base_alignment=max(alignment, element),
                ),
                device, pool, worker,
            )  # fmt: skip


@pytest.mark.parametrize("dtype", FORMATS)
def test_scalars_and_empty_sums(dtype: str, device: Device, pool: CompilePool, worker: Worker) -> None:
    """alpha and beta scale as they should, and with k = 0 the result is beta * C."""
    for k in (0, 40):
        for alpha, beta in [(2.0, 0.0), (1.0, 1.0), (-1.0, 3.0)]:
            check(Problem(70, 66, k, dtype, "tn", alpha=alpha, beta=beta), device, pool, worker)


@pytest.mark.parametrize(("m", "n", "k"), [(8, 8, 524288), (1_048_577, 16, 16), (16, 1_000_003, 16)])
def test_extreme_sizes(m: int, n: int, k: int, device: Device, pool: CompilePool, worker: Worker) -> None:
    """Very long sums, and more than 65,535 tiles along either dimension."""
    check(Problem(m, n, k), device, pool, worker)


def test_more_than_two_to_the_31_elements(device: Device, pool: CompilePool, worker: Worker) -> None:
    """Offsets are 64-bit: C with 2.2e9 elements."""
    if device.memory_bytes < 60 * 2**30:
        pytest.skip("needs 60 GiB of device memory")
    check(Problem(65536, 34000, 9), device, pool, worker)
