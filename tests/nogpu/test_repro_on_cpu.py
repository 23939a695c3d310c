"""The program of `kt repro` on the CPU: host code, operands and check, with a plain kernel in the tuned one's place.

A stand-in for the CUDA runtime runs blocks one after the other and threads together where they wait for each other. So
what decides between right and wrong is tested, for every number format, with kernels that are right and that are not.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kt.cache.records import BestConfig
from kt.cli.cache_entries import current_spaces
from kt.devices.catalog import modelled
from kt.export.repro import render_repro
from kt.problems import Problem
from kt.search_spaces.launch import resolve

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run the program on the CPU")
Make = Callable[..., BestConfig]
SPACES, H200 = current_spaces(None), modelled("h200")

SHIM = r"""
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#define __device__
#define __host__
#define __global__
#define __shared__ static
#define __grid_constant__
using std::size_t;
struct dim3 { unsigned x; dim3(unsigned n = 1) : x(n) {} };
static thread_local dim3 threadIdx, blockIdx;
static dim3 gridDim, blockDim;
static std::barrier<>* block_barrier;
static std::mutex memory;
static void __syncthreads() { block_barrier->arrive_and_wait(); }
static void atomicAdd(unsigned long long* p, unsigned long long n) { std::lock_guard lock(memory); *p += n; }
static void atomicMin(unsigned long long* p, unsigned long long n) { std::lock_guard lock(memory); if (n < *p) *p = n; }
template <class To, class From> To bits_as(From from) { To to; std::memcpy(&to, &from, sizeof to); return to; }
static float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static float cospif(float x) { return (float)std::cos(M_PI * x); }
struct __half { _Float16 value; };
static float __half2float(__half x) { return (float)x.value; }
static __half __double2half(double x) { return {(_Float16)x}; }
struct __nv_bfloat16 { unsigned short bits; };
static float __bfloat162float(__nv_bfloat16 x) { return bits_as<float>((unsigned)x.bits << 16); }
static __nv_bfloat16 __double2bfloat16(double x) {
  // To nearest, ties to even, in one step from double.
  if (std::isnan(x)) return {0x7fff};
  int exponent = 0;
  if (x == 0) return {(unsigned short)(std::signbit(x) ? 0x8000 : 0)};
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 8);
  return {(unsigned short)(bits_as<unsigned>((float)(std::nearbyint(x / unit) * unit)) >> 16)};
}

using cudaError_t = int;
enum { cudaSuccess = 0, cudaFuncAttributeMaxDynamicSharedMemorySize, cudaDevAttrL2CacheSize };
enum { cudaStreamCaptureModeThreadLocal };
using cudaStream_t = int*; using cudaGraph_t = int*; using cudaGraphExec_t = int*; using cudaEvent_t = int*;
struct cudaDeviceProp { char name[16] = "stand-in"; int major = 9, minor = 0; };
struct cudaLaunchAttribute { int id; struct { int programmaticStreamSerializationAllowed; } val; };
enum { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs; unsigned numAttrs;
};
static const char* cudaGetErrorString(int) { return "an error"; }
static int cudaGetLastError() { return 0; }
static int cudaMalloc(void** p, size_t size) { *p = std::aligned_alloc(256, (size + 255) / 256 * 256); return 0; }
template <class T> int cudaMallocManaged(T** p, size_t size) { return cudaMalloc((void**)p, size); }
static int cudaFree(void* p) { std::free(p); return 0; }
static int cudaMemset(void* p, int value, size_t size) { std::memset(p, value, size); return 0; }
static int cudaDeviceSynchronize() { return 0; }
static int cudaFuncSetAttribute(const void*, int, int) { return 0; }
static int cudaGetDevice(int* device) { return *device = 0; }
static int cudaGetDeviceProperties(cudaDeviceProp* p, int) { *p = {}; return 0; }
static int cudaDeviceGetAttribute(int* value, int, int) { *value = 3000; return 0; }
static int cudaMemGetInfo(size_t* free, size_t* all) { *free = *all = 1 << 24; return 0; }
static int cudaStreamCreate(cudaStream_t*) { return 0; }
static int cudaStreamDestroy(cudaStream_t) { return 0; }
static int cudaStreamSynchronize(cudaStream_t) { return 0; }
static int cudaEventCreate(cudaEvent_t*) { return 0; }
static int cudaEventRecord(cudaEvent_t, cudaStream_t) { return 0; }
static int cudaStreamBeginCapture(cudaStream_t, int) { return 0; }
static int cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return 0; }
static int cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, int) { return 0; }
static int graph_launches = 0;
static int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { ++graph_launches; return 0; }
static int cudaGraphExecDestroy(cudaGraphExec_t) { return 0; }
static int cudaGraphDestroy(cudaGraph_t) { return 0; }
static int cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 1; return 0; }

static void on_cpu(unsigned blocks, unsigned threads, bool together, const std::function<void()>& kernel) {
  gridDim.x = blocks = std::min(blocks, 6u);  // kernels stride over their work
  blockDim.x = threads;
  if (!together) {
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
    return;
  }
  std::barrier<> whole(threads);
  block_barrier = &whole;
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      threadIdx.x = thread;
      for (unsigned block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        kernel();
        __syncthreads();
      }
    });
  for (auto& one : running) one.join();
}
"""

# The kernel in the tuned one's place: sums in double, one element after the other.
KERNEL = """
struct Block {
  const void* a; const void* b; void* c; void* workspace; double alpha, beta;
  long long lda, ldb, ldc, stride_a, stride_b, stride_c;
  int m, n, k, batch, split_k, raster_group, stream_k, reserved0;
};
void tuned(Block p);
static int cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void** parameters) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  on_cpu(grid.x, block.x, false, [&] { tuned(*static_cast<Block*>(parameters[0])); });
  return 0;
}
void kt_gemm() {}
"""
TUNED = """
void tuned(Block p) {
  using namespace repro;
  const In* a = static_cast<const In*>(p.a); const In* b = static_cast<const In*>(p.b); Out* c = static_cast<Out*>(p.c);
  const long long total = 1LL * p.m * p.n * p.batch;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    const long long z = i / p.n / p.m, row = i / p.n % p.m, column = i % p.n;
    double sum = 0;
    for (int k = 0; k < p.k; ++k)
      sum += InFormat::loaded(a[z * p.stride_a + @A@]) * InFormat::loaded(b[z * p.stride_b + @B@]);
    Out* to = c + z * p.stride_c + row * p.ldc + column;
    double value = p.alpha * sum;
    if (p.beta != 0) value += p.beta * OutFormat::loaded(*to);
    *to = OutFormat::stored(value);
  }
}
"""


def on_cpu(best: BestConfig, folder: Path, spoil: Callable[[str], str] = lambda kernel: kernel) -> tuple[int, str]:
    """Exit code and output of the winner's program, its kernel replaced by a plain one that `spoil` may change."""
    text = render_repro(best, SPACES[best.config.family], H200)["repro.cu"]
    text = re.sub(r"#pragma nv_diagnostic push.*?#pragma nv_diagnostic pop\n", KERNEL, text, flags=re.DOTALL)
    text = text.replace("#include <cuda_runtime.h>", "#include <algorithm>\n#include <vector>\n" + SHIM)
    text = re.sub(r"(\w+(?:<\w+>)?)<<<(\d+), (\d+)>>>\((.*)\);", _as_loop, text)
    assert "<<<" not in text
    layout = best.key.problem.layout
    kernel = TUNED.replace("@A@", "row * p.lda + k" if layout[0] == "n" else "k * p.lda + row")
    kernel = kernel.replace("@B@", "k * p.ldb + column" if layout[1] == "n" else "column * p.ldb + k")
    head, _, main = text.partition("\nint main() {")
    program = f"{head}\n{spoil(kernel)}\nint main() {{{main}"
    (folder / "repro.cpp").write_text(program)
    options = ["-std=c++20", "-O0", "-pthread", "-w", "-ffp-contract=off"]
    subprocess.run(["g++", *options, "-o", folder / "repro", folder / "repro.cpp"], check=True)
    done = subprocess.run([folder / "repro"], capture_output=True, text=True, timeout=250)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def _as_loop(call: re.Match[str]) -> str:
    """A launch as a call of the stand-in; only threads of the comparison wait for each other."""
    kernel, blocks, threads, arguments = call.groups()
    together = str(kernel == "compare").lower()
    return f"on_cpu({blocks}, {threads}, {together}, [&] {{ {kernel}({arguments}); }});"


@pytest.fixture
def winner(make_winner: Make) -> Make:
    """The default configuration of a family, which is one launch."""

    def make(problem: Problem) -> BestConfig:
        family = "mma" if problem.dtype == "tf32" else "simt"
        space = SPACES[family]
        launches, workspace = resolve(space, space.default_config, {**H200.names(), **problem.names()})
        assert [launch.kernel for launch in launches] == ["kt_gemm"]
        today = {"config": space.default_config, "launches": launches, "workspace_bytes": workspace}
        return make_winner(problem, **today, device=H200.identity, time_us=1000.0)

    return make


RIGHT = [
    Problem(20, 19, 18),
    Problem(20, 37, 50, "fp32", "tt", batch=2, lda=25, ldc=41, alpha=1.5, beta=-0.5),
    Problem(17, 16, 33, "fp64", "nt", beta=1),
    Problem(33, 5, 40, "fp16", "tn", alpha=0.7),
    Problem(18, 20, 300, "bf16", "nt", beta=0.3),
    Problem(9, 40, 64, "tf32", "nn"),
    Problem(21, 22, 23, "int8", "tn", alpha=3, beta=-2),
    Problem(5, 7, 0, "fp32", beta=2),
    Problem(16, 16, 8, "fp16", out_dtype="fp32", base_alignment=4),
    Problem(12, 12, 12, "fp16", accumulator="fp16"),
]


# Each takes seconds to build: `make test` has every other one.
HALF = [pytest.param(one, marks=[pytest.mark.slow] if i % 2 else [], id=one.label) for i, one in enumerate(RIGHT)]


@pytest.mark.parametrize("problem", HALF)
def test_a_right_kernel_is_found_right(problem: Problem, winner: Make, tmp_path: Path) -> None:
    """Whole numbers bit for bit, and normally distributed ones; then the time is told beside the expected one."""
    code, said = on_cpu(winner(problem), tmp_path)
    assert code == 0, said
    total = problem.m * problem.n * problem.batch
    assert said.count(f"right: all {total} elements of C") == 2
    assert re.search(
        r"^[0-9.]+ us, .* TFLOP/s; measured on NVIDIA H200: 1000.00 us \([+-][0-9.]+%\)$", said, re.MULTILINE
    )


WRONG = {
    "a product left out": lambda kernel: kernel.replace("k < p.k", "k < p.k - 1"),
    "the last element not written": lambda kernel: kernel.replace("i < total;", "i < total - 1;"),
    "one element off by the last bit": lambda kernel: kernel.replace(
        "*to = OutFormat::stored(value);",
        "*to = OutFormat::stored(value); if (i == 7) *to = std::nextafter(*to, 1e30f);",
    ),
    "alpha left out": lambda kernel: kernel.replace("p.alpha * sum", "sum"),
    "beta left out": lambda kernel: kernel.replace("p.beta != 0", "false"),
    "the second batch is the first": lambda kernel: kernel.replace("a[z * p.stride_a + ", "a["),
    "rows and columns exchanged": lambda kernel: kernel.replace("row * p.ldc + column", "column * p.ldc + row"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_is_found_wrong(what: str, winner: Make, tmp_path: Path) -> None:
    """Exit code 1, how many elements, and where the first one is."""
    problem = Problem(20, 20, 18, batch=2, ldc=24, alpha=2.0, beta=0.5)
    code, said = on_cpu(winner(problem), tmp_path, WRONG[what])
    assert code == 1, said
    found = re.search(r"WRONG: (\d+) of 800 elements of C \((.*?)\), first in batch (\d+) at \((\d+), (\d+)\)", said)
    assert found, said
    count, kind, *first = found.groups()
    place = tuple(map(int, first))
    if what == "the last element not written":
        assert (count, place) == ("1", (1, 19, 19))
    if what == "one element off by the last bit":
        assert (count, place, kind) == ("1", (0, 0, 7), "whole numbers, bit for bit")
    if what == "the second batch is the first":
        assert place[0] == 1
    assert "should be" in said


def test_sets_of_operands_exceed_the_cache(winner: Make, tmp_path: Path) -> None:
    """Three times the second-level cache of the device, here 3000 bytes, and no more."""
    assert on_cpu(winner(Problem(8, 8, 8)), tmp_path)[0] == 0
    program = (tmp_path / "repro.cpp").read_text()
    assert program.count("const double us =") == 1
    told = 'std::printf("sets %zu", rotation(operands).size());'
    (tmp_path / "sets.cpp").write_text(program.replace("const double us =", f"{told} const double us ="))
    subprocess.run(["g++", "-std=c++20", "-pthread", "-w", "-o", tmp_path / "sets", tmp_path / "sets.cpp"], check=True)
    done = subprocess.run([tmp_path / "sets"], capture_output=True, text=True)
    assert f"sets {-(-9000 // (3 * 64 * 4))}" in done.stdout
