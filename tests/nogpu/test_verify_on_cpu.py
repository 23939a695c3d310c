"""The whole verification on the CPU: reference.cu compiled as C++, host memory in place of the GPU's, kernels in numpy.

Threads that work together are threads here, others and all blocks run one after the other. What is tested is what the
GPU runs: the same source, the same arguments, the same memory plan.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product as product_of
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kt.problems import DTYPES, Problem
from kt.tuner.memory_plan import check_fits
from kt.tuner.messages import Candidate, Refine
from kt.tuner.operands import LEFT_OVER_PATTERN, OUT_PATTERN, Operands
from kt.tuner.reference import KERNELS, SOURCE, reference_definitions
from kt.tuner.reference_kernels import NORMAL, ReferenceKernels
from kt.tuner.refinement import PeerUnavailable
from kt.tuner.sampling import Sample
from kt.tuner.timing_rules import BatchShape
from kt.tuner.verify import Verifier, decode_element, describe_mismatch, scalars_of_passes
from support.formats import STORED, decoded, encoded, nearest, small_float

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run reference.cu on the CPU")

SHIM = """
#include <barrier>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
using std::isfinite, std::max, std::min;
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
static Index gridDim, blockDim;
static std::barrier<>* block_barrier;
static std::vector<std::barrier<>*> warp_barriers;
static unsigned long long exchanged[1024];
static std::mutex memory;
static void __syncthreads() { if (block_barrier) block_barrier->arrive_and_wait(); }
extern "C" { volatile unsigned block_memory[1 << 12]; }  // what blocks leave behind
template <class T> T __shfl_xor_sync(unsigned, T value, int offset) {
    std::barrier<>& warp = *warp_barriers[threadIdx.x / 32];
    std::memcpy(&exchanged[threadIdx.x], &value, sizeof value);
    warp.arrive_and_wait();
    std::memcpy(&value, &exchanged[threadIdx.x ^ offset], sizeof value);
    warp.arrive_and_wait();
    return value;
}
template <class T> void atomicAdd(T* p, T value) { std::lock_guard lock(memory); *p += value; }
template <class T> void atomicMax(T* p, T value) { std::lock_guard lock(memory); *p = max(*p, value); }
template <class To, class From> To bits_as(From from) { To to; std::memcpy(&to, &from, sizeof to); return to; }
static float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static float __int_as_float(int x) { return bits_as<float>(x); }
static unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static float cospif(float x) { return (float)cos(M_PI * x); }
static float half_to_float(unsigned short bits) { return (float)bits_as<_Float16>(bits); }
static unsigned short double_to_half(double value) { return bits_as<unsigned short>((_Float16)value); }
"""

MAIN = """
template <class Argument>
void run(void (*kernel)(Argument), bool together, unsigned blocks, unsigned threads, const void* argument) {
    gridDim.x = blocks;
    blockDim.x = threads;
    if (!together) {
        block_barrier = nullptr;
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(*(const Argument*)argument);
        return;
    }
    std::barrier<> whole(threads);
    block_barrier = &whole;
    for (unsigned warp = 0; warp < threads / 32; ++warp) warp_barriers.push_back(new std::barrier<>(32));
    std::vector<std::thread> running;
    for (unsigned thread = 0; thread < threads; ++thread)
        running.emplace_back([=] {
            threadIdx.x = thread;
            for (unsigned block = 0; block < blocks; ++block) {
                blockIdx.x = block;
                kernel(*(const Argument*)argument);
                __syncthreads();
            }
        });
    for (auto& thread : running) thread.join();
    for (auto* barrier : warp_barriers) delete barrier;
    warp_barriers.clear();
}
extern "C" int launch(const char* name, unsigned blocks, unsigned threads, const void* argument) {
    std::string kernel = name;
    @CASES@
    return 1;
}
"""


TOGETHER = {"multiply_exact", "multiply_true", "norms_in", "digest"}  # their threads wait for each other


@cache
def library(definitions: tuple[str, ...], folder: Path) -> ctypes.CDLL:
    """reference.cu for one pair of formats, as a shared library."""
    text = SOURCE.read_text()
    text = text.replace('asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));', "value = half_to_float(bits);")
    text = text.replace("extern __shared__", "extern")
    text = text.replace('asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));', "bits = double_to_half(value);")
    cases = [
        f'if (kernel == "{name}") return run({name}, {str(name in TOGETHER).lower()}, blocks, threads, argument), 0;'
        for name in KERNELS
    ]
    macros = [f"#define {macro.split('=')[1]} {macro.split('=')[2]}" for macro in definitions]
    stem = folder / "-".join(macro.split("=")[2] for macro in definitions)
    parts = [*macros, SHIM, text, MAIN.replace("@CASES@", "\n    ".join(cases))]
    stem.with_suffix(".cpp").write_text("\n".join(parts))
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", "-pthread", "-w", "-ffp-contract=off"]
    subprocess.run(["g++", *options, "-o", f"{stem}.so", f"{stem}.cpp"], check=True)
    return ctypes.CDLL(f"{stem}.so")


class HostModule:
    """reference.cu on the CPU. Its kernels stride over their work, so two blocks do for any of them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.launched: list[str] = []
        self.left = np.ctypeslib.as_array((ctypes.c_uint32 * 4096).in_dll(library, "block_memory"))

    def launch(self, kernel: str, blocks: int, threads: int, argument: npt.NDArray[Any], smem_bytes: int = 0) -> None:
        self.launched.append(kernel)
        assert smem_bytes <= self.left.nbytes
        data = argument.tobytes()
        assert self._library.launch(kernel.encode(), min(blocks, 2), threads, data) == 0, kernel


class HostAllocation:
    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = np.full(size + 4096, 0xA5, np.uint8)
        self.address = -(-self._bytes.ctypes.data // 256) * 256


class HostGpu:
    """Host memory in place of the GPU's; a cache that takes three operand sets to exceed."""

    sm_count = 4
    smem_per_block = 4096 * 4

    def __init__(self, problem: Problem) -> None:
        self.l2_bytes = sum(problem.footprint(operand) for operand in "abc")

    def memory(self) -> tuple[int, int]:
        return 1 << 34, 1 << 34

    def allocate(self, size: int) -> HostAllocation:
        check_fits(size, *self.memory())
        return HostAllocation(size)

    def clear(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)

    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)


# --- kernels in numpy ------------------------------------------------------------------------------------------------


def view(problem: Problem, operand: str, address: int) -> npt.NDArray[Any]:
    """An operand as stored, [batch, rows, columns], sharing its memory."""
    dtype = np.dtype(STORED[problem.out_dtype if operand == "c" else problem.dtype])
    rows, columns = problem.stored_extents[operand]
    elements = problem.footprint(operand) // dtype.itemsize
    raw = (ctypes.c_char * max(1, elements * dtype.itemsize)).from_address(address)
    flat = np.frombuffer(memoryview(raw).cast("B"), dtype, elements)
    pitch, stride = getattr(problem, f"ld{operand}"), getattr(problem, f"stride_{operand}")
    strides = tuple(step * dtype.itemsize for step in (stride, pitch, 1))
    return np.lib.stride_tricks.as_strided(flat, (problem.batch, rows, columns), strides)


def product(problem: Problem, pointers: dict[str, int]) -> npt.NDArray[np.float64]:
    a = decoded(view(problem, "a", pointers["a"]), problem.dtype)
    b = decoded(view(problem, "b", pointers["b"]), problem.dtype)
    left = a if problem.layout[0] == "n" else a.transpose(0, 2, 1)
    right = b if problem.layout[1] == "n" else b.transpose(0, 2, 1)
    return np.asarray(left @ right)


Change = Callable[[Problem, dict[str, int], tuple[float, float], npt.NDArray[np.float64]], npt.NDArray[np.float64]]


def kernel(problem: Problem, change: Change | None = None) -> Callable[[dict[str, int], tuple[float, float]], None]:
    """A right GEMM, or one whose result `change` spoils before it is stored."""

    def launch(pointers: dict[str, int], scalars: tuple[float, float]) -> None:
        c = view(problem, "c", pointers["c"])
        result = scalars[0] * product(problem, pointers)
        if scalars[1]:
            result += scalars[1] * decoded(c, problem.out_dtype)
        if change:
            result = change(problem, pointers, scalars, result)
        keep = np.isnan(result)
        c[...] = np.where(keep, c, encoded(np.where(keep, 0, result), problem.out_dtype))

    return launch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reference")


class Setup:
    def __init__(self, problem: Problem, folder: Path, seed: int = 0) -> None:
        self.problem = problem
        self.gpu = HostGpu(problem)
        self.module = HostModule(library(reference_definitions(problem), folder))
        self.kernels = ReferenceKernels(self.gpu, self.module)
        self.operands = Operands(self.gpu, self.kernels, problem, seed, scalars_of_passes(problem))
        self.operands.fill()
        self.verifier = Verifier(self.gpu, self.kernels, self.operands)
        self.verifier.prepare()

    def exact(self, change: Change | None = None) -> str:
        return self.verifier.exact(kernel(self.problem, change))

    def full(self, change: Change | None = None) -> str:
        return self.verifier.full([kernel(self.problem, change)])[0]


PROBLEMS = [
    Problem(70, 33, 50),
    Problem(70, 33, 50, layout="tt", lda=75, ldb=60, ldc=40, beta=0.5, alpha=1.5, base_alignment=4),
    Problem(33, 65, 300, layout="tn", batch=3, stride_c=33 * 65 + 5),
    Problem(5, 7, 0, beta=1.0),
    Problem(1, 1, 1, layout="nt"),
    Problem(70, 65, 50, dtype="fp64", layout="nt", ldc=70),
    Problem(40, 70, 300, dtype="bf16", layout="tn", ldc=73, base_alignment=2),
    Problem(40, 70, 300, dtype="fp16", accumulator="fp16", layout="nt"),
    Problem(40, 70, 90, dtype="int8", ldb=71, beta=2.0),
    Problem(40, 70, 90, dtype="fp8_e4m3", layout="nt"),
    Problem(40, 70, 90, dtype="fp8_e5m2", out_dtype="fp16"),
    Problem(40, 70, 300, dtype="fp16", accumulator="fp16", out_dtype="fp32", alpha=8.0, beta=0.25),
    *(Problem(20, 33, 40, dtype.name, "tn", beta=1.0) for dtype in DTYPES.values()),
]
OTHER_FORMATS = [
    Problem(20, 33, 40, dtype.name, "tn", accumulator=accumulator, out_dtype=out, beta=1.0)
    for dtype in DTYPES.values()
    for accumulator, out in product_of(dtype.accumulators, dtype.outputs)
]
SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in OTHER_FORMATS if one not in PROBLEMS]


@pytest.mark.parametrize("problem", [*PROBLEMS, *SLOW], ids=lambda problem: problem.label.replace(" ", "-"))
def test_a_right_kernel_passes_every_pass_and_the_reference_is_numpys_product(problem: Problem, folder: Path) -> None:
    setup = Setup(problem, folder)
    assert setup.exact() == ""
    pointers = setup.operands.pointers("exact")
    alpha, beta = scalars_of_passes(problem)[0]
    raw = setup.gpu.read(setup.operands.address("reference"), problem.batch * problem.m * problem.n * 8)
    stored = np.frombuffer(raw, STORED[problem.out_dtype])[: problem.batch * problem.m * problem.n]
    setup.operands.poison_c("exact", beta)
    expected = alpha * product(problem, pointers)
    if beta:
        expected += beta * decoded(view(problem, "c", pointers["c"]), problem.out_dtype)
    np.testing.assert_array_equal(stored, encoded(expected, problem.out_dtype).ravel())
    assert setup.full() == ""
    assert setup.exact() == "", "the reference of the exact pass is made again after the full verification"


def last_column(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
    result[-1, :, -1] = 0
    return result


def last_element(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
    result[-1, -1, -1] += 1
    return result


def half_written(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
    result[:, problem.m // 2 :] = np.nan
    return result


def alpha_dropped_beyond_the_first_tile(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
    if scalars[1]:
        result[:, :, 32:] -= (scalars[0] - 1) * product(problem, pointers)[:, :, 32:]
    return result


def one_product_left_out(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
    a = decoded(view(problem, "a", pointers["a"]), problem.dtype)
    b = decoded(view(problem, "b", pointers["b"]), problem.dtype)
    left = a[:, :, -1:] if problem.layout[0] == "n" else a[:, -1:].transpose(0, 2, 1)
    right = b[:, -1:] if problem.layout[1] == "n" else b[:, :, -1:].transpose(0, 2, 1)
    return result - scalars[0] * (left @ right)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(70, 67, 50, beta=1.0, batch=2),
        Problem(40, 70, 300, dtype="bf16", layout="tn", beta=1.0),
        Problem(40, 70, 90, dtype="int8", beta=2.0),
    ],
    ids=lambda problem: problem.dtype,
)
@pytest.mark.parametrize(
    "change", [last_column, last_element, half_written, alpha_dropped_beyond_the_first_tile, one_product_left_out]
)
def test_planted_errors_are_seen_at_screening(problem: Problem, change: Change, folder: Path) -> None:
    setup = Setup(problem, folder)
    if change is alpha_dropped_beyond_the_first_tile and problem.alpha == 1:
        assert "elements differ" in setup.full(change), "alpha = 1 hides it until the second pass"
    else:
        assert "elements differ" in setup.exact(change)
    assert setup.exact() == "", "a right kernel passes after a wrong one"


def test_a_mismatch_says_where_and_what(folder: Path) -> None:
    setup = Setup(Problem(70, 67, 50, batch=2, ldc=80), folder)
    detail = setup.exact(last_element)
    assert detail.startswith("1 of 9380 elements differs, first at (1, 69, 66): got ")
    got, want = detail.partition(": got ")[2].split(" (")[0].split(", want ")
    assert float(got) == float(want) + 1


def spoil(slot_offset: Callable[[Setup], int], value: int = 1) -> Callable[[Setup], Change]:
    """A right kernel that also writes one byte somewhere."""

    def bind(setup: Setup) -> Change:
        def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
            ctypes.memset(slot_offset(setup), value, 1)
            return result

        return change

    return bind


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (lambda s: s.operands.address("c0") - 1, "1 element outside C was overwritten"),
        (lambda s: s.operands.bounds("c0")[0], "1 element outside C was overwritten"),
        (lambda s: s.operands.address("c0") + s.problem.footprint("c"), "1 element outside C was overwritten"),
        (lambda s: s.operands.bounds("c0")[1] - 1, "1 element outside C was overwritten"),
        (lambda s: s.operands.address("c0") + s.problem.n * 4, "1 element outside C was overwritten"),
        (lambda s: s.operands.address("c0") + (s.problem.stride_c - 1) * 4, "1 element outside C was overwritten"),
    ],
    ids=["before", "guard-start", "after", "guard-end", "padding", "between-batches"],
)
def test_a_write_outside_c_is_seen_wherever_it_lands(where: Any, words: str, folder: Path) -> None:
    setup = Setup(Problem(20, 33, 8, ldc=40, batch=2, stride_c=20 * 40 + 3), folder)
    assert words in setup.exact(spoil(where)(setup))
    assert setup.exact() == ""


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_kernel_that_reads_padding_between_rows_is_seen(beta: float, folder: Path) -> None:
    """It sums one element past the end of each row of A: NaN, times something."""
    setup = Setup(Problem(20, 33, 8, lda=12, beta=beta), folder)

    def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
        with_padding = np.lib.stride_tricks.as_strided(view(problem, "a", pointers["a"])[0], (20, 9))
        wider = with_padding[:, 8].astype(np.float64)
        c = view(problem, "c", pointers["c"])
        c[...] = (result + 0.0 * wider[None, :, None]).astype(np.float32)
        return np.full_like(result, np.nan)

    assert "660 of 660 elements differ" in setup.exact(change)


def test_a_kernel_that_overwrites_its_operands_is_blamed_and_the_next_one_is_not(folder: Path) -> None:
    setup = Setup(Problem(20, 33, 8), folder)
    spoiler = spoil(lambda s: s.operands.address("exact_a") + 3, 0x40)(setup)
    setup.exact(spoiler)
    assert setup.exact() == ""
    assert "memory far outside C was overwritten" in setup.full(spoil(lambda s: s.operands.address("a0") + 3)(setup))
    assert setup.full() == ""


def test_a_kernel_that_spoils_the_reference_does_not_spoil_the_next_verdict(folder: Path) -> None:
    setup = Setup(Problem(20, 33, 8), folder)
    setup.exact(spoil(lambda s: s.operands.address("reference") + 2, 0x7F)(setup))
    assert setup.exact() == ""


@pytest.mark.parametrize("problem", [Problem(20, 33, 8), Problem(20, 33, 8, dtype="int8")], ids=lambda one: one.dtype)
def test_a_kernel_that_counts_on_what_was_left_in_shared_memory_is_seen(
    problem: Problem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It multiplies what it has not written: right as long as zeros or small numbers are left."""
    setup = Setup(problem, folder)

    def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
        if problem.dtype == "fp32":
            return result + 0.0 * setup.module.left.view(np.float32)[7]
        return result + setup.module.left[7] // 1000

    assert "660 of 660 elements differ" in setup.exact(change)
    setup.module.left[:] = 900
    monkeypatch.setattr(setup.kernels, "fill_multiprocessors", lambda _: None)
    assert setup.exact(change) == "", "without the step nothing is seen"


def test_every_word_of_shared_memory_is_filled_last_before_each_run(folder: Path) -> None:
    setup = Setup(Problem(20, 33, 8, beta=1.0), folder)
    runs = 0

    def launch(pointers: dict[str, int], scalars: tuple[float, float]) -> None:
        nonlocal runs
        runs += 1
        assert setup.module.launched[-1] == "fill_multiprocessor"
        assert (setup.module.left == LEFT_OVER_PATTERN * 0x10001).all()
        setup.module.left[:] = 0
        kernel(setup.problem)(pointers, scalars)

    assert setup.verifier.exact(launch) == ""
    assert setup.verifier.full([launch, launch]) == ["", ""]
    assert runs == 1 + 2 * 4


def test_a_kernel_that_counts_on_what_was_left_in_its_workspace_is_seen(folder: Path) -> None:
    setup = Setup(Problem(20, 33, 8), folder)
    setup.operands.reserve_workspace(64)
    workspace = setup.operands.pointers("exact")["workspace"]
    ctypes.memset(workspace, 0, 64)

    def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
        return result + 0.0 * np.frombuffer(setup.gpu.read(pointers["workspace"] + 60, 4), np.float32)[0]

    assert "660 of 660 elements differ" in setup.exact(change)


def test_two_runs_that_differ_in_bits_are_seen_though_each_is_right(folder: Path) -> None:
    setup = Setup(Problem(20, 33, 64), folder)
    runs = iter(range(100))

    def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
        if float(result[0, 0, 0]).is_integer():
            return result
        return result * (1 + 1e-7 * (next(runs) % 2))

    assert setup.full(change) == "two runs on the same operands differ in bits"


def test_a_kernel_in_lower_precision_passes_the_exact_pass_and_fails_the_random_one(folder: Path) -> None:
    """Operands rounded to tf32: small whole numbers are not harmed, N(0,1) numbers are."""
    setup = Setup(Problem(40, 33, 500), folder)

    def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
        a = view(problem, "a", pointers["a"]).copy()
        rounded = ((a.view(np.uint32) + 0x1000) & ~np.uint32(0x1FFF)).view(np.float32).astype(np.float64)
        exact = decoded(view(problem, "a", pointers["a"]), "fp32")
        return result + scalars[0] * ((rounded - exact) @ view(problem, "b", pointers["b"]).astype(np.float64))

    assert setup.exact(change) == ""
    assert "random operands" in setup.full(change)


@pytest.mark.parametrize("how", ["as they are", "cut", "ties to even"])
def test_operands_of_tf32_are_rounded_to_the_nearest(how: str, folder: Path) -> None:
    """A kernel that does not round, or cuts as tensor cores do to what was not rounded, is wrong; ties do not occur."""
    setup = Setup(Problem(40, 33, 500, dtype="tf32"), folder)

    def read(operand: str, address: int) -> npt.NDArray[np.float64]:
        stored = view(setup.problem, operand, address).copy()
        if how == "cut":
            stored = (stored.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)
        return nearest(stored, 11) if how == "ties to even" else stored.astype(np.float64)

    def change(problem: Problem, pointers: Any, scalars: Any, result: Any) -> Any:
        return result + scalars[0] * (read("a", pointers["a"]) @ read("b", pointers["b"]) - product(problem, pointers))

    assert setup.exact(change) == ""
    assert ("random operands" in setup.full(change)) == (how != "ties to even")


def test_no_tf32_operand_is_halfway_between_two_numbers(folder: Path) -> None:
    problem = Problem(300, 8, 300, dtype="tf32")
    setup, as_fp32 = Setup(problem, folder), Setup(Problem(300, 8, 300), folder)
    low_bits, untouched = (
        view(one.problem, "a", one.operands.address("a0")).view(np.uint32) & 0x1FFF for one in (setup, as_fp32)
    )
    assert (untouched == 0x1000).any(), "of 90,000 numbers about ten are ties by chance"
    assert not (low_bits == 0x1000).any()
    assert np.count_nonzero(low_bits != untouched) == np.count_nonzero(untouched == 0x1000)


def test_one_refinement_verifies_several_kernels_and_judges_each(folder: Path) -> None:
    setup = Setup(Problem(40, 70, 64), folder)
    right, wrong = kernel(setup.problem), kernel(setup.problem, last_column)
    details = setup.verifier.full([right, wrong, right])
    assert [bool(detail) for detail in details] == [False, True, False]


# --- operands --------------------------------------------------------------------------------------------------------


def test_padding_and_surroundings_of_operands_hold_nan(folder: Path) -> None:
    setup = Setup(Problem(10, 12, 6, lda=9, ldb=15), folder)
    for name, operand, columns in (("exact_a", "a", 6), ("a0", "a", 6), ("exact_b", "b", 12), ("b0", "b", 12)):
        start, end = setup.operands.bounds(name)
        whole = np.frombuffer(setup.gpu.read(start, end - start), np.float32)
        inside = (setup.operands.address(name) - start) // 4
        elements = setup.problem.footprint(operand) // 4
        pitch = getattr(setup.problem, f"ld{operand}")
        assert np.isnan(whole[:inside]).all()
        assert np.isnan(whole[inside + elements :]).all()
        rows = whole[inside : inside + elements]
        assert np.isnan(rows[columns:pitch]).all()
        assert not np.isnan(rows[:columns]).any()


def test_sets_differ_and_a_seed_gives_the_same_numbers_again(folder: Path) -> None:
    problem = Problem(30, 30, 30)
    first, again, other = (Setup(problem, folder, seed) for seed in (1, 1, 2))
    assert first.operands.plan.sets == 3

    def operand(setup: Setup, name: str) -> bytes:
        return setup.gpu.read(setup.operands.address(name), problem.footprint("a"))

    assert operand(first, "a0") == operand(again, "a0") != operand(other, "a0")
    assert len({operand(first, name) for name in ("a0", "a1", "a2", "b0", "b1")}) == 5


def test_random_operands_are_standard_normal(folder: Path) -> None:
    problem = Problem(300, 1, 300)
    setup = Setup(problem, folder)
    values = view(problem, "a", setup.operands.address("a0")).ravel().astype(np.float64)
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1, abs=0.02)
    assert (values**4).mean() == pytest.approx(3, abs=0.2)
    assert 3.5 < np.abs(values).max() < 6
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02


@pytest.mark.parametrize(("dtype", "mantissa", "bias"), [("fp8_e4m3", 3, 7), ("fp8_e5m2", 2, 15)])
def test_operands_are_rounded_to_the_nearest_number_of_their_format(
    dtype: str, mantissa: int, bias: int, folder: Path
) -> None:
    """The same numbers in fp32 and in an 8-bit format: no other code is nearer."""
    narrow, wide = Problem(50, 1, 50, dtype=dtype), Problem(50, 1, 50)
    setups = [Setup(problem, folder) for problem in (wide, narrow)]
    values, codes = (view(setup.problem, "a", setup.operands.address("a0")).ravel() for setup in setups)
    every = small_float(np.arange(256, dtype=np.uint8), mantissa, bias)
    distance = np.abs(every[None, :] - values.astype(np.float64)[:, None])
    np.testing.assert_allclose(np.abs(small_float(codes, mantissa, bias) - values), np.nanmin(distance, axis=1))


def test_batches_that_overlap_in_memory_agree_about_it(folder: Path) -> None:
    """A stride shorter than a matrix: the same A elements belong to several batches."""
    problem = Problem(10, 6, 8, batch=3, stride_a=8)
    assert Setup(problem, folder).full() == ""


def test_a_digest_sees_every_bit_and_every_exchange(folder: Path) -> None:
    setup = Setup(Problem(8, 8, 8), folder)
    memory = np.arange(4096, dtype=np.uint32)
    result = np.zeros(1, np.uint64)

    def digest() -> int:
        setup.kernels.digest(memory.ctypes.data, memory.nbytes, result.ctypes.data)
        return int(result[0])

    first = digest()
    assert digest() == first
    memory[[5, 6]] = memory[[6, 5]]
    exchanged = digest()
    memory[[5, 6]] = memory[[6, 5]]
    memory[4095] ^= 1
    assert len({first, exchanged, digest()}) == 3


# --- the prepared problem --------------------------------------------------------------------------------------------


class HostClock:
    """A stopwatch that shows what the kernels below say they took."""

    now_us = 0.0

    def batch(self, run: Callable[[], None], shape: BatchShape) -> "HostBatch":
        return HostBatch(run, shape.runs)

    def time(self, samples: Sequence[Sample]) -> list[float]:
        return [self.time_one(partial(self._repeat, sample)) for sample in samples]

    @staticmethod
    def _repeat(sample: Sample) -> None:
        for _ in range(sample.repeats):
            sample.batch.enqueue()

    def time_one(self, enqueue: Callable[[], Any]) -> float:
        before = self.now_us
        enqueue()
        return self.now_us - before


@dataclass
class HostBatch:
    run: Callable[[], None]
    runs: int

    def enqueue(self) -> None:
        for _ in range(self.runs):
            self.run()


def host_candidates(clock: HostClock, problem: Problem, sets_seen: set[tuple[int, int, int]]) -> type:
    """A stand-in for loaded cubins: the name of a candidate is its time in microseconds and what is wrong with it."""
    from kt.tuner.loaded_candidate import LaunchRefused

    class HostCandidate:
        def __init__(self, candidate: Candidate) -> None:
            self.name, self.runtime = candidate.name, candidate.runtime
            self.workspace_bytes = candidate.workspace_bytes
            if "unloadable" in self.name:
                raise LaunchRefused("the cubin does not load: CUDA_ERROR_NO_BINARY_FOR_GPU")
            self._kernel = kernel(problem, last_column if "wrong" in self.name else None)

        def __enter__(self) -> "HostCandidate":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def bind(self, problem: Problem, arguments: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return arguments

        def enqueue(self, arguments: npt.NDArray[Any]) -> None:
            if "refused" in self.name:
                raise LaunchRefused("kt_gemm with 1 blocks of 2048 threads: CUDA_ERROR_INVALID_VALUE")
            if self.workspace_bytes:
                ctypes.memset(int(arguments["workspace"]), 1, self.workspace_bytes)
            pointers = {name: int(arguments[name]) for name in "abc"}
            sets_seen.add((pointers["a"], pointers["b"], pointers["c"]))
            self._kernel(pointers, (float(arguments["alpha"]), float(arguments["beta"])))
            clock.now_us += float(self.name.split()[0])

    return HostCandidate


@pytest.fixture
def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pytest.importorskip("kt.tuner.prepared_problem", reason="needs CuPy")
    problem = Problem(40, 33, 50, beta=0.5)
    setup, clock, seen = Setup(problem, folder), HostClock(), set[tuple[int, int, int]]()
    monkeypatch.setattr(module, "LoadedCandidate", host_candidates(clock, problem, seen))
    monkeypatch.setattr(module, "context_is_dead", lambda: False)
    prepared = module.PreparedProblem(setup.gpu, setup.kernels, clock, problem, 0)
    prepared.sets_seen = seen
    return prepared


def candidate(name: str, workspace: int = 0) -> Candidate:
    return Candidate(name, "/nowhere", (), workspace, {"split_k": 2})


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("100", "ok", ""),
        ("100 wrong", "wrong_result", "elements differ, first at ("),
        ("100 refused", "launch_error", "2048 threads"),
        ("100 unloadable", "launch_error", "does not load"),
    ],
)
def test_screening_gives_each_candidate_its_status(prepared: Any, name: str, status: str, detail: str) -> None:
    measurement = prepared.screen(candidate(name), None)
    assert measurement.status == status
    assert detail in measurement.detail
    assert (measurement.time_us == 100.0) == (status == "ok")
    assert prepared.screen(candidate("50"), None).time_us == 50.0


def test_a_workspace_is_made_when_needed_and_refused_with_the_figures(prepared: Any) -> None:
    assert prepared.screen(candidate("100", 100_000), None).status == "ok"
    measurement = prepared.screen(candidate("100", 1 << 40), None)
    assert measurement.status == "out_of_memory"
    assert "the workspace needs 1024.3 GiB, 16.0 GiB free of 16.0 GiB" in measurement.detail
    assert prepared.screen(candidate("100", 100_000), None).status == "ok"


def test_timing_rotates_over_all_sets(prepared: Any) -> None:
    prepared.screen(candidate("100"), None)
    timed = {tuple(prepared.operands.pointers(index)[name] for name in "abc") for index in range(prepared.sets)}
    assert len(timed) == prepared.sets == 3
    assert timed <= prepared.sets_seen


def test_refinement_times_the_right_ones_and_reports_the_others(prepared: Any) -> None:
    names = ("120", "100", "50 wrong", "10 unloadable", "20 refused")
    huge = candidate("5", 1 << 40)
    reply = prepared.refine(Refine((*map(candidate, names), huge), ("none",), 0.2), LibraryStandIn())
    assert {name: m.status for name, m in reply.measurements.items()} == {
        "100": "ok", "120": "ok", "50 wrong": "wrong_result", "10 unloadable": "launch_error",
        "20 refused": "launch_error", "5": "out_of_memory",
    }  # fmt: skip
    assert list(reply.measurements)[:2] == ["100", "120"], "the fastest first"
    assert reply.measurements["100"].refined
    assert reply.peer_errors == {"none": "not here"}


class LibraryStandIn:
    def make(self, *_: object) -> None:
        raise PeerUnavailable("not here")


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [OUT_PATTERN, LEFT_OVER_PATTERN], ids=hex)
def test_the_patterns_are_no_number_in_any_output_format(pattern: int) -> None:
    data = pattern.to_bytes(2, "little") * 4
    for dtype, size in (("fp16", 2), ("bf16", 2), ("fp32", 4), ("fp64", 8)):
        assert np.isnan(decode_element(data[:size], dtype)), dtype
    assert decode_element(data[:4], "int32") > 2e9
    assert decode_element(b"\x80\x3f", "bf16") == 1.0


def test_what_is_left_over_is_no_number_in_any_format_and_in_no_byte_zero() -> None:
    codes = np.frombuffer(LEFT_OVER_PATTERN.to_bytes(2, "little"), np.uint8)
    for mantissa, bias in ((3, 7), (2, 15)):
        assert np.isnan(small_float(codes, mantissa, bias)).all()
    assert (codes % 2 == 1).all()


def test_the_place_of_a_mismatch_names_the_batch_only_if_there_are_several() -> None:
    text = describe_mismatch(Problem(64, 64, 8), 3, (0, 5, 63), 1.0, 2.0)
    assert text == "3 of 4096 elements differ, first at (5, 63): got 1, want 2"
    assert "(2, 5, 63)" in describe_mismatch(Problem(64, 64, 8, batch=3), 3, (2, 5, 63), 1.0, 2.0)


def test_normal_is_told_from_whole_numbers_by_its_magnitude() -> None:
    assert NORMAL.magnitude == 0
