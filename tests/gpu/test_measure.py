"""Timing on a real GPU: kernels that take a known number of clock cycles show what the stopwatch makes of them."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kt.devices.local import local_device
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.tuner.messages import Candidate, Prepare, Prepared, Refine, Screen
from kt.tuner.worker import Worker

Naive = Callable[..., Candidate]
LIMIT_S = 60.0
SMALL = Problem(64, 64, 16)


def spinning(naive: Naive, problem: Problem, cycles: int) -> Candidate:
    """The naive kernel, each block of which first waits so many cycles."""
    wait = f"for (i64 end = clock64() + {cycles}; clock64() < end;) {{}}"
    return naive(problem, str(cycles), BEFORE=wait)


def screened_us(worker: Worker, candidate: Candidate) -> float:
    reply = worker.request(Screen(candidate, None), LIMIT_S)
    assert reply.measurement.status == "ok", reply.measurement.detail
    return float(reply.measurement.time_us)


@pytest.fixture
def small(worker: Worker) -> Worker:
    assert isinstance(worker.request(Prepare(SMALL, 0), LIMIT_S), Prepared)
    return worker


def test_times_grow_as_the_cycles_do(small: Worker, naive: Naive) -> None:
    """From 5 to 40 µs, in graphs: equal steps of cycles are equal steps of time."""
    times = [screened_us(small, spinning(naive, SMALL, cycles)) for cycles in range(10_000, 80_001, 10_000)]
    steps = np.diff(times)
    print("µs", np.round(times, 2))
    assert steps.min() > 0.8 * steps.mean()
    assert steps.max() < 1.2 * steps.mean()


def test_graphs_and_single_launches_agree(small: Worker, naive: Naive) -> None:
    """Three kernels below the border and three above it lie on one line."""
    cycles = np.array([200_000, 250_000, 300_000, 500_000, 550_000, 600_000])
    times = np.array([screened_us(small, spinning(naive, SMALL, int(count))) for count in cycles])
    slope, offset = np.polyfit(cycles, times, 1)
    print("µs", np.round(times, 1))
    assert np.abs(times - (slope * cycles + offset)).max() < 0.02 * times.max()


def test_small_kernels_do_not_look_alike(small: Worker, naive: Naive) -> None:
    """20 candidates half a microsecond apart come out in their order: events around single launches show 7 µs each."""
    times = [screened_us(small, spinning(naive, SMALL, 1000 * count)) for count in range(1, 21)]
    print("µs", np.round(times, 2))
    inversions = sum(later < earlier for earlier, later in pairwise(times))
    assert inversions <= 1
    assert times[-1] - times[0] > 7


@pytest.mark.parametrize("size", [1, 16])
def test_the_smallest_problems_have_a_positive_time(worker: Worker, naive: Naive, size: int) -> None:
    problem = Problem(size, size, size)
    worker.request(Prepare(problem, 0), LIMIT_S)
    assert 0 < screened_us(worker, naive(problem)) < 100


def test_screening_repeats_within_a_few_percent(worker: Worker, naive: Naive) -> None:
    problem = Problem(512, 512, 256)
    worker.request(Prepare(problem, 0), LIMIT_S)
    times = [screened_us(worker, naive(problem)) for _ in range(8)]
    print("µs", np.round(times, 2))
    assert max(times) < 1.08 * min(times)


def test_rotating_sets_are_cold(cubin: Callable[..., str]) -> None:
    """Reading 8 MiB from device memory takes longer than from the cache, which holds one set and not all."""
    from kt.tuner.cuda import Gpu
    from kt.tuner.memory_plan import sets_wanted
    from kt.tuner.sampling import Sample
    from kt.tuner.stopwatch import CudaStopwatch
    from kt.tuner.timing_rules import BatchShape

    body = """
    extern "C" __global__ void read(GemmArguments p) {
        const float4* a = (const float4*)p.a;
        float sum = 0;
        for (i64 i = blockIdx.x * 1024 + threadIdx.x; i < p.lda / 16; i += gridDim.x * 1024) sum += a[i].x;
        if (sum == 12345.0f) *(float*)p.c = sum;
    }
    """
    gpu = Gpu(0)
    size = 8 << 20
    sets = sets_wanted(Problem(1024, 1024, 1024), gpu.l2_bytes) + 4  # of 12 MiB each; here of 8
    sets = sets * 3 // 2
    block = gpu.allocate(sets * size)
    gpu.clear(block.address, block.size)
    module = gpu.load(Path(cubin(body)).read_bytes())
    stopwatch = CudaStopwatch(gpu)

    def time_us(count: int) -> float:
        arguments = [packed(block.address + index * size, size) for index in range(count)]
        position = 0

        def run() -> None:
            nonlocal position
            module.launch("read", gpu.sm_count * 2, 1024, arguments[position % count])
            position += 1

        sample = Sample(stopwatch.batch(run, BatchShape(120, True)))
        return min(stopwatch.time([sample] * 5)[1:]) / sample.runs

    hot, cold = time_us(1), time_us(sets)
    print(f"hot {hot:.2f} µs, cold {cold:.2f} µs")
    assert cold > 1.2 * hot


def packed(a: int, size: int) -> Any:
    from kt.tuner.arguments import gemm_arguments_dtype

    values = np.zeros((), gemm_arguments_dtype())
    values["a"], values["c"], values["lda"] = a, a, size
    return values


# --- library peers ---------------------------------------------------------------------------------------------------

SUPPORTED = [
    *(Problem(64, 96, 128, layout=layout, lda=136, ldb=136, ldc=104, beta=0.5) for layout in LAYOUTS),
    *(Problem(64, 96, 128, dtype=dtype, layout="nt") for dtype in ("fp64", "tf32", "fp16", "bf16", "int8")),
    Problem(64, 96, 128, batch=3, stride_c=64 * 96 + 32, alpha=2.0),
    Problem(64, 96, 128, dtype="fp16", accumulator="fp16"),
    Problem(64, 96, 128, dtype="bf16", out_dtype="fp32"),
    *(Problem(64, 96, 128, dtype="fp8_e4m3", layout="nt", out_dtype=out) for out in ("bf16", "fp16", "fp32")),
    Problem(37, 53, 71, base_alignment=4),
    Problem(37, 53, 71, dtype="bf16", layout="tn", base_alignment=2),
]


@pytest.mark.parametrize("peer", ["cublas", "cublaslt"])
@pytest.mark.parametrize("problem", SUPPORTED, ids=lambda problem: problem.label.replace(" ", "-"))
def test_peers_compute_the_same_product_as_the_reference(problem: Problem, peer: str) -> None:
    """A baseline that multiplied something else would be no baseline; judged as our own candidates are."""
    from kt.tuner.cuda import Gpu, arch_of
    from kt.tuner.library_peers import LibraryPeers
    from kt.tuner.operands import Operands
    from kt.tuner.reference import compile_reference, reference_definitions
    from kt.tuner.reference_kernels import ReferenceKernels
    from kt.tuner.refinement import PeerUnavailable
    from kt.tuner.stopwatch import CudaStopwatch
    from kt.tuner.verify import Verifier, scalars_of_passes

    gpu = Gpu(0)
    kernels = ReferenceKernels(gpu, gpu.load(compile_reference(reference_definitions(problem), arch_of(0))))
    operands = Operands(gpu, kernels, problem, 0, scalars_of_passes(problem))
    operands.fill()
    verifier = Verifier(gpu, kernels, operands)
    library = LibraryPeers(gpu)

    def launch(pointers: dict[str, int], scalars: tuple[float, float]) -> None:
        """Run on the exact operands: they are set 0 of a stand-in that has no other."""
        library.make(peer, problem, OneSet(pointers), stopwatch=Once())()  # type: ignore[arg-type]

    class Plan:
        sets = 1

    class OneSet:
        plan = Plan()

        def __init__(self, pointers: dict[str, int]) -> None:
            self._pointers = pointers

        def pointers(self, _: int) -> dict[str, int]:
            return self._pointers

    class Once(CudaStopwatch):
        """Chooses the first algorithm: timing all would write C many times, and with beta change it."""

        def __init__(self) -> None:
            super().__init__(gpu)

        def batch(self, run: Any, shape: Any) -> Any:
            return Nothing()

        def time(self, samples: Any) -> list[float]:
            return [1.0] * len(samples)

    class Nothing:
        runs = 1

        def enqueue(self) -> None: ...

    try:
        detail = verifier.exact(launch)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    assert detail == ""


def test_a_peer_that_refuses_is_an_error_text(worker: Worker, naive: Naive) -> None:
    problem = Problem(64, 64, 64, dtype="fp8_e4m3")
    worker.request(Prepare(problem, 0), LIMIT_S)
    reply = worker.request(Refine((), ("cublas",), 0.1), LIMIT_S)
    assert reply.peers == {}
    assert "it has no 8-bit floats" in reply.peer_errors["cublas"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_can_be_prepared_and_released(worker: Worker, dtype: str) -> None:
    problem = Problem(304, 208, 128, dtype=dtype, layout="nt")
    assert isinstance(worker.request(Prepare(problem, 0), LIMIT_S), Prepared)
    reply = worker.request(Refine((), ("cublas", "cublaslt"), 0.2), LIMIT_S)
    print(dtype, reply.peers, reply.peer_errors)
    assert reply.peers.keys() | reply.peer_errors.keys() == {"cublas", "cublaslt"}
    missing = {name for name, error in reply.peer_errors.items() if "not installed" in error}
    if not dtype.startswith("fp8"):
        assert reply.peer_errors.keys() == missing
    elif local_device().compute_capability >= (8, 9):
        refused = {"cublas"} if dtype == "fp8_e4m3" else {"cublas", "cublaslt"}
        assert reply.peer_errors.keys() == refused | missing
