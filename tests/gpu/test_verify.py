"""The reference and the comparisons on a real GPU, against numpy, and what they cost on large problems."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.problems import DTYPES, LAYOUTS, Problem
from kt.tuner.messages import Candidate, Prepare, Prepared, Refine, RefineReply, Screen
from kt.tuner.operands import LEFT_OVER_PATTERN
from kt.tuner.reference import compile_reference, reference_definitions
from kt.tuner.reference_kernels import ReferenceKernels
from kt.tuner.verify import Verifier, scalars_of_passes
from kt.tuner.worker import Worker
from support.formats import STORED, decoded, encoded

Naive = Callable[..., Candidate]
LIMIT_S = 120.0


class OnGpu:
    """Operands, reference and verifier of one problem in this process."""

    def __init__(self, problem: Problem) -> None:
        from kt.tuner.cuda import Gpu, arch_of
        from kt.tuner.operands import Operands

        self.problem = problem
        self.gpu = Gpu(0)
        module = self.gpu.load(compile_reference(reference_definitions(problem), arch_of(0)))
        self.kernels = ReferenceKernels(self.gpu, module)
        self.operands = Operands(self.gpu, self.kernels, problem, 0, scalars_of_passes(problem))
        self.operands.fill()
        self.verifier = Verifier(self.gpu, self.kernels, self.operands)

    def stored(self, operand: str, address: int) -> npt.NDArray[Any]:
        """A copy of an operand as stored, [batch, rows, columns]."""
        dtype = np.dtype(STORED[self.problem.out_dtype if operand == "c" else self.problem.dtype])
        rows, columns = self.problem.stored_extents[operand]
        if not self.problem.footprint(operand):
            return np.zeros((self.problem.batch, rows, columns), dtype)
        pitch, stride = getattr(self.problem, f"ld{operand}"), getattr(self.problem, f"stride_{operand}")
        flat = np.frombuffer(self.gpu.read(address, self.problem.footprint(operand)), dtype)
        strides = tuple(step * dtype.itemsize for step in (stride, pitch, 1))
        return np.lib.stride_tricks.as_strided(flat, (self.problem.batch, rows, columns), strides).copy()

    def product(self, pointers: dict[str, int]) -> npt.NDArray[np.float64]:
        a = decoded(self.stored("a", pointers["a"]), self.problem.dtype)
        b = decoded(self.stored("b", pointers["b"]), self.problem.dtype)
        left = a if self.problem.layout[0] == "n" else a.transpose(0, 2, 1)
        right = b if self.problem.layout[1] == "n" else b.transpose(0, 2, 1)
        return np.asarray(left @ right)

    def reference(self, dtype: str) -> npt.NDArray[np.float64]:
        count = self.problem.batch * self.problem.m * self.problem.n
        raw = self.gpu.read(self.operands.address("reference"), count * np.dtype(STORED[dtype]).itemsize)
        return decoded(np.frombuffer(raw, STORED[dtype]), dtype).reshape(-1, self.problem.m, self.problem.n)


def rounded(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.float64]:
    return decoded(encoded(values, dtype), dtype)


PROBLEMS = [
    *(Problem(129, 65, 70, layout=layout, lda=133, ldb=140, ldc=70, beta=0.5) for layout in LAYOUTS),
    *(Problem(100, 130, 513, dtype=dtype, layout="nt") for dtype in DTYPES if dtype != "fp32"),
    Problem(65, 33, 200, batch=5, stride_a=65 * 200 + 3, stride_c=65 * 33 + 1, beta=1.0, base_alignment=4),
    Problem(32, 32, 60_000, layout="tn"),
    Problem(1, 3000, 700, layout="nt", dtype="bf16", base_alignment=2),
    Problem(7, 5, 0, beta=2.0),
    Problem(40, 70, 300, dtype="fp16", accumulator="fp16"),
    Problem(40, 70, 300, dtype="fp16", out_dtype="fp32"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label.replace(" ", "-"))
def test_the_exact_reference_equals_numpy(problem: Problem) -> None:
    on_gpu = OnGpu(problem)
    alpha, beta = scalars_of_passes(problem)[0]
    on_gpu.verifier.prepare()
    got = on_gpu.reference(problem.out_dtype)
    on_gpu.operands.poison_c("exact", beta)
    pointers = on_gpu.operands.pointers("exact")
    want = alpha * on_gpu.product(pointers)
    if beta:
        want += beta * decoded(on_gpu.stored("c", pointers["c"]), problem.out_dtype)
    np.testing.assert_array_equal(got, rounded(want, problem.out_dtype))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label.replace(" ", "-"))
def test_the_random_reference_equals_numpy_to_fp64_accuracy(problem: Problem) -> None:
    on_gpu = OnGpu(problem)
    pointers = on_gpu.operands.pointers(0)
    reference, scratch = on_gpu.operands.address("reference"), on_gpu.operands.address("scratch")
    on_gpu.kernels.multiply("true", problem, pointers, reference, scratch, (1.0, 0.0))
    wide = {"fp64": "fp64", "int32": "int32"}.get(problem.accumulator, "fp32")
    got, want = on_gpu.reference(wide), on_gpu.product(pointers)
    scale = np.sqrt(max(1, problem.k))
    np.testing.assert_allclose(got, want, rtol=1e-13 if wide == "fp64" else 1e-7, atol=scale * 1e-12)


@contextmanager
def seconds(what: str, most: float) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took = time.perf_counter() - began
    print(f"{what}: {took:.3f} s")
    assert took < most


@pytest.mark.parametrize(
    ("problem", "most_exact", "most_random"),
    [
        (Problem(4096, 4096, 4096), 0.05, 0.05),
        (Problem(8192, 8192, 8192, dtype="bf16", layout="nt"), 0.25, 0.35),
        (Problem(32, 32, 524_288), 0.05, 0.05),
        (Problem(256, 256, 524_288), 0.05, 0.05),
        (Problem(8, 512, 500_000), 0.05, 0.05),
        (Problem(32_768, 32_768, 64), 0.1, 0.2),
        (Problem(802_816, 64, 147, layout="nt"), 0.1, 0.1),
    ],
    ids=lambda value: value.label.replace(" ", "-") if isinstance(value, Problem) else None,
)
def test_the_reference_is_fast_enough_for_any_shape(problem: Problem, most_exact: float, most_random: float) -> None:
    """On a data-centre GPU; consumer GPUs have little fp64."""
    on_gpu = OnGpu(problem)
    reference, scratch = on_gpu.operands.address("reference"), on_gpu.operands.address("scratch")
    for kind, pointers, most in (
        ("exact", on_gpu.operands.pointers("exact"), most_exact),
        ("true", on_gpu.operands.pointers(0), most_random),
    ):
        on_gpu.kernels.multiply(kind, problem, pointers, reference, scratch, (1.0, 0.0))
        on_gpu.gpu.synchronize()
        with seconds(f"{problem.label} {kind}", most):
            on_gpu.kernels.multiply(kind, problem, pointers, reference, scratch, (1.0, 0.0))
            on_gpu.gpu.synchronize()


def full(worker: Worker, problem: Problem, *candidates: Candidate) -> RefineReply:
    assert isinstance(worker.request(Prepare(problem, 1), LIMIT_S), Prepared)
    reply = worker.request(Refine(candidates, (), 0.05), LIMIT_S)
    assert isinstance(reply, RefineReply)
    return reply


@pytest.mark.parametrize(
    "problem",
    [
        Problem(64, 64, 32_768),
        Problem(64, 64, 524_288),
        Problem(1, 1, 1),
        Problem(1, 1, 0),
        Problem(2, 3, 4, base_alignment=4),
        Problem(500, 500, 500),
        Problem(513, 511, 509, lda=517, ldb=523, ldc=521, base_alignment=4, alpha=1.5, beta=0.5),
        Problem(65, 33, 200, batch=5, stride_c=65 * 33 + 1),
        Problem(8192, 4096, 64),
    ],
    ids=lambda problem: problem.label.replace(" ", "-"),
)
def test_a_right_kernel_is_right_at_every_size(worker: Worker, naive: Naive, problem: Problem) -> None:
    """A chain of fp32 additions as long as k is the least accurate of all right kernels."""
    reply = full(worker, problem, naive(problem))
    assert reply.measurements["naive"].status == "ok", reply.measurements["naive"].detail


def test_a_kernel_that_rounds_operands_to_tf32_is_no_fp32_kernel(worker: Worker, naive: Naive) -> None:
    problem = Problem(256, 256, 4096)
    after = "sum = 0; for (int k = 0; k < p.k; ++k) sum += __uint_as_float(__float_as_uint(a[k]) & 0xffffe000u) * "
    after += "b[k * p.ldb]; *c = (float)p.alpha * sum + (p.beta != 0 ? (float)p.beta * before : 0.0f);"
    rounds = naive(problem, "tf32", AFTER=after, BEFORE="float before = i < (i64)p.m * p.n ? ((float*)p.c)[i] : 0;")
    reply = full(worker, problem, rounds, naive(problem))
    assert reply.measurements["tf32"].status == "wrong_result"
    assert "random operands" in reply.measurements["tf32"].detail
    assert reply.measurements["naive"].status == "ok"


def test_two_runs_that_differ_are_no_result(worker: Worker, naive: Naive) -> None:
    """Adds the last bit of a clock to one element of the random pass."""
    problem = Problem(64, 64, 64)
    after = "if (i == 5 && *c != rintf(*c)) *c = __uint_as_float(__float_as_uint(*c) ^ ((unsigned)clock64() >> 3 & 1));"
    reply = full(worker, problem, naive(problem, "moody", AFTER=after))
    moody = reply.measurements["moody"]
    assert moody.status in ("wrong_result", "ok")  # one in two: the two clocks may agree
    for _ in range(20):
        if moody.status == "wrong_result":
            break
        moody = worker.request(Refine((naive(problem, "moody", AFTER=after),), (), 0.05), LIMIT_S).measurements["moody"]
    assert "two runs on the same operands differ in bits" in moody.detail


def test_errors_in_a_later_batch_and_the_last_tile_are_seen(worker: Worker, naive: Naive) -> None:
    problem = Problem(130, 67, 40, batch=4)
    worker.request(Prepare(problem, 0), LIMIT_S)
    last = naive(problem, "last", AFTER="if (i == (i64)p.batch * p.m * p.n - 1) *c += 1;")
    reply = worker.request(Screen(last, None), LIMIT_S)
    assert reply.measurement.status == "wrong_result"
    assert "1 of 34840 elements differs, first at (3, 129, 66)" in reply.measurement.detail


# Kernels that count, among the words they find without having written them, those that are `word`. Only a branch that
# is never taken writes any of the registers.
LEFT_OVER = """
struct LeftOver { unsigned* seen; i64 words, word, never; };
extern "C" __global__ void in_shared_memory(LeftOver p) {
    extern __shared__ volatile unsigned memory[];
    unsigned seen = 0;
    for (i64 i = threadIdx.x; i < p.words; i += blockDim.x) seen += memory[i] == (unsigned)p.word;
    atomicAdd(p.seen, seen);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) in_registers(LeftOver p) {
    unsigned left[REGISTERS], seen = 0;
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) asm volatile("" : "=r"(left[i]));
    if (p.never) {
#pragma unroll
        for (int i = 0; i < REGISTERS; ++i) left[i] = ((volatile unsigned*)p.seen)[i];
    }
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) seen += left[i] == (unsigned)p.word;
    atomicAdd(p.seen, seen);
}
"""
WORD = LEFT_OVER_PATTERN * 0x10001


def share_found(on_gpu: OnGpu, cubin: str, kernel: str, blocks: int, threads: int, words: int, smem: int = 0) -> float:
    """The share of the words that `kernel` finds holding the pattern, right after multiprocessors were filled with it.

    Args:
        words: that each block looks at.
    """
    module = on_gpu.gpu.load(Path(cubin).read_bytes())
    seen = on_gpu.gpu.allocate(1024)
    on_gpu.gpu.clear(seen.address, seen.size)
    argument = np.zeros((), [(name, "i8") for name in ("seen", "words", "word", "never")])
    argument["seen"], argument["words"], argument["word"] = seen.address, words, WORD
    on_gpu.kernels.fill_multiprocessors(LEFT_OVER_PATTERN)
    module.launch(kernel, blocks, threads, argument, smem)
    return int.from_bytes(on_gpu.gpu.read(seen.address, 4), "little") / (words * blocks)


@pytest.mark.parametrize("share", [1, 2, 8, 32])
def test_a_kernel_finds_the_pattern_in_all_shared_memory(share: int, cubin: Callable[..., str]) -> None:
    """One block of a multiprocessor that has all, or several that have parts."""
    on_gpu = OnGpu(Problem(8, 8, 8))
    size = on_gpu.gpu.smem_per_block // share // 1024 * 1024
    readers = cubin(LEFT_OVER, THREADS="256", REGISTERS="8")
    found = share_found(on_gpu, readers, "in_shared_memory", on_gpu.gpu.sm_count, 256, size // 4, size)
    assert found == 1.0, f"{found:.2%} of {size} bytes"


@pytest.mark.parametrize(("threads", "registers"), [(512, 100), (256, 200), (128, 200)])
def test_a_kernel_finds_the_pattern_in_nearly_all_registers(
    threads: int, registers: int, cubin: Callable[..., str]
) -> None:
    """Those that it writes first are not among the ones that it looks at; 7 of 128 are not filled."""
    on_gpu = OnGpu(Problem(8, 8, 8))
    readers = cubin(LEFT_OVER, THREADS=str(threads), REGISTERS=str(registers))
    blocks = on_gpu.gpu.sm_count
    found = share_found(on_gpu, readers, "in_registers", blocks, threads, threads * registers)
    assert found > 0.85, f"{found:.2%} of {registers} registers of {threads} threads"


LEFT_BEHIND = {
    "shared memory": {
        "BEFORE": "__shared__ volatile float left[1024];",
        "AFTER": "*c += 0.0f * left[threadIdx.x];",
    },
    "a register": {
        "BEFORE": 'float left; asm volatile("" : "=f"(left)); if (p.reserved0) left = *(volatile float*)p.a;',
        "AFTER": "*c += 0.0f * left;",
    },
}


@pytest.mark.parametrize("where", LEFT_BEHIND)
def test_a_kernel_that_counts_on_what_was_left_behind_is_wrong(where: str, worker: Worker, naive: Naive) -> None:
    """It adds zero times what it has not written: right, unless that is no number."""
    problem = Problem(256, 256, 64)
    worker.request(Prepare(problem, 0), LIMIT_S)
    reply = worker.request(Screen(naive(problem, "careless", **LEFT_BEHIND[where]), None), LIMIT_S)
    assert reply.measurement.status == "wrong_result"
    assert "got nan" in reply.measurement.detail


def test_filling_the_multiprocessors_takes_microseconds() -> None:
    from kt.tuner.stopwatch import CudaStopwatch

    on_gpu = OnGpu(Problem(8, 8, 8))
    stopwatch = CudaStopwatch(on_gpu.gpu)
    times = [stopwatch.time_one(lambda: on_gpu.kernels.fill_multiprocessors(LEFT_OVER_PATTERN)) for _ in range(20)]
    print(f"{min(times):.1f} us")
    assert min(times) < 100
