"""GPU tests run where there is a usable GPU and are skipped elsewhere, with the cause; the kernels they are made of."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from kt.devices.device import Device
from kt.devices.local import local_device
from kt.errors import NoUsableGpu
from kt.problems import Problem
from kt.search_spaces.space import Launch
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Candidate
from kt.tuner.nvrtc import Nvrtc, load_builtins
from kt.tuner.toolchain import toolchain
from kt.tuner.worker import Worker

HERE = Path(__file__).parent

STRUCT = """
typedef long long i64;
struct GemmArguments {
    const void* a; const void* b; void* c; void* workspace;
    double alpha, beta;
    i64 lda, ldb, ldc, stride_a, stride_b, stride_c;
    int m, n, k, batch, split_k, raster_group, stream_k, reserved0;
};
"""

# One thread computes one element of C in fp32, layout nn; the macros let a test change what one line does.
NAIVE = """
#ifndef COLUMNS
#define COLUMNS p.n
#endif
#ifndef ALPHA
#define ALPHA p.alpha
#endif
#ifndef LENGTH
#define LENGTH p.k
#endif
#ifndef BEFORE
#define BEFORE
#endif
#ifndef AFTER
#define AFTER
#endif
extern "C" __global__ void gemm(GemmArguments p) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    BEFORE
    if (i >= (i64)p.batch * p.m * p.n) return;
    i64 batch = i / ((i64)p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    const float* a = (const float*)p.a + batch * p.stride_a + row * p.lda;
    const float* b = (const float*)p.b + batch * p.stride_b + column;
    float* c = (float*)p.c + batch * p.stride_c + row * p.ldc + column;
    float sum = 0;
    for (int k = 0; k < LENGTH; ++k) sum += a[k] * b[k * p.ldb];
    if (column >= COLUMNS) return;
    *c = (float)(ALPHA)*sum + (p.beta != 0 ? (float)p.beta * *c : 0.0f);
    AFTER
}
"""


@cache
def _why_no_gpu() -> str:
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        local_device()
    except NoUsableGpu as error:
        return f"no usable GPU: {error.message}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip it where there is no GPU."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if why := _why_no_gpu():
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Compile CUDA C++ that follows the declaration of `GemmArguments`; returns the path of the cubin."""
    folder = tmp_path_factory.mktemp("cubins")
    numbers = count()

    @cache
    def build(body: str = NAIVE, **macros: str) -> str:
        tools = toolchain()
        load_builtins(tools.library)
        defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
        options = (f"--gpu-architecture={local_device().arch}", "-std=c++17")
        result = Nvrtc(tools.library).compile(defines + STRUCT + body, options)
        assert result.result == 0, result.log
        path = folder / f"{next(numbers)}.cubin"
        path.write_bytes(result.cubin)
        return str(path)

    return build


@pytest.fixture(scope="session")
def naive(cubin: Callable[..., str]) -> Callable[..., Candidate]:
    """A candidate of the naive kernel for a problem; keyword arguments are its macros."""

    def make(problem: Problem, name: str = "naive", block: int = 128, smem: int = 0, **macros: str) -> Candidate:
        grid = -(-problem.m * problem.n * problem.batch // block)
        return Candidate(name, cubin(**macros), (Launch("gemm", grid, block, smem),), 0, {})

    return make


@pytest.fixture(scope="session")
def device() -> Device:
    return local_device()


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompilePool]:
    """A compiler for each core, and a folder of its own for what they make."""
    with CompilePool(0, CubinCache(tmp_path_factory.mktemp("cubins")), 120.0) as pool:
        yield pool


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker
