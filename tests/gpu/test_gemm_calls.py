"""`kt.gemm` on a GPU: right on arrays of CuPy, PyTorch and DLPack, on any stream, in threads and graphs, and quick."""

import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kt
from kt.cache.store import Store
from kt.devices.local import local_device
from kt.errors import KtError
from kt.problems import Problem
from kt.search_spaces.loader import builtin_spaces
from kt.tuner.observer import SilentObserver
from kt.tuner.request import Budget, TuneRequest
from kt.tuner.run import tune

pytestmark = pytest.mark.gpu

SERIES, CALLS = 40, 100  # of a measurement of the host's time; so few calls never wait for a place in the GPU's queue

# Kernels with tensor maps, with a workspace, plain ones; C of another format; scalars; a batch.
TUNED = [
    Problem(512, 512, 512, "bf16", "nt"),
    Problem(64, 64, 30000, "fp16", "nn", out_dtype="fp32"),
    Problem(128, 128, 128),
    Problem(128, 128, 128, alpha=2.0, beta=2.0),
    Problem(96, 80, 64, "fp64", "tn", batch=3),
    Problem(64, 64, 64),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with winners of short searches."""
    folder = tmp_path_factory.mktemp("tuned")
    request = TuneRequest(TUNED, builtin_spaces(), local_device(), budget=Budget(evaluations=12))
    with Store.open(folder) as store:
        result = tune(request, store, SilentObserver())
    assert all(shape.best for shape in result.shapes), [shape.failure for shape in result.shapes]
    return folder


@pytest.fixture
def cupy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CuPy, with kt on that cache and nothing planned."""
    import cupy

    from kt.runtime import gemm, planner

    monkeypatch.setenv("KT_CACHE_DIR", str(cache))
    monkeypatch.setattr(gemm, "_plans", {})
    planner.planner.cache_clear()
    gemm._calls.clear()
    with cupy.cuda.Stream(non_blocking=True):
        yield cupy
    cupy.cuda.runtime.deviceSynchronize()
    planner.planner.cache_clear()


def numbers(*shape: int, seed: int = 0) -> "np.ndarray[Any, Any]":
    """Small whole numbers: sums of them are exact in every format that is used here."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)


def on_gpu(cupy: Any, a: Any, b: Any, dtype: str = "float32") -> tuple[Any, Any]:
    return cupy.asarray(a.astype(dtype)), cupy.asarray(b.astype(dtype))


def assert_equal(found: Any, wanted: "np.ndarray[Any, Any]") -> None:
    np.testing.assert_array_equal(found.astype(np.float64), wanted)


def test_cupy(cupy: Any) -> None:
    """Orders, paddings, slices, batches; a new array and a given one; alpha, beta and c."""
    a, b = numbers(128, 128), numbers(128, 128, seed=1)
    pair = on_gpu(cupy, a, b)
    out = kt.gemm(*pair)
    assert_equal(out.get(), a @ b)
    assert kt.calls() == {"exact": 1}
    assert kt.gemm(*pair, out, alpha=1.5, beta=-0.5) is out
    assert_equal(out.get(), 1.5 * (a @ b) - 0.5 * (a @ b))
    c = numbers(128, 128, seed=2)
    assert_equal(kt.gemm(*pair, alpha=2, beta=3, c=cupy.asarray(c.astype(np.float32))).get(), 2 * (a @ b) + 3 * c)
    assert_equal(kt.gemm(pair[0].T, pair[1].T).get(), a.T @ b.T)
    assert_equal(kt.gemm(pair[0][3:77, 5:], pair[1][5:, 1:100]).get(), a[3:77, 5:] @ b[5:, 1:100])


def test_batches_and_a_tuned_batch(cupy: Any) -> None:
    """fp64, the first operand transposed as stored."""
    a, b = numbers(3, 64, 96), numbers(3, 64, 80, seed=1)
    out = kt.gemm(cupy.asarray(a).transpose(0, 2, 1), cupy.asarray(b))
    assert_equal(out.get(), a.transpose(0, 2, 1) @ b)
    assert kt.calls() == {"exact": 1}


def test_a_kernel_with_a_workspace(cupy: Any) -> None:
    """A long sum, C wider than A and B; twice, for the pool gives the workspace again."""
    a, b = numbers(64, 30000), numbers(30000, 64, seed=1)
    operands = on_gpu(cupy, a, b, "float16")
    out = cupy.zeros((64, 64), np.float32)
    for _ in range(3):
        out.fill(7)
        assert_equal(kt.gemm(*operands, out).get(), a @ b)
    assert kt.calls() == {"exact": 3}


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp64", "fp16", "int8"])
def test_shapes_that_were_not_tuned(cupy: Any, dtype: str) -> None:
    """Ragged and tiny ones, empty sums, operands at odd addresses."""
    numpy_dtype = {"fp32": "float32", "tf32": "float32", "fp64": "float64", "fp16": "float16", "int8": "int8"}[dtype]
    for m, n, k in ((1, 1, 1), (3, 5, 7), (130, 127, 129), (257, 1, 33), (1, 300, 64), (5, 6, 0)):
        a, b = numbers(m, k + 1), numbers(k + 1, n + 3, seed=1)
        pair = on_gpu(cupy, a, b, numpy_dtype)
        found = kt.gemm(pair[0][:, 1:], pair[1][1:, 3:], dtype=dtype)
        assert_equal(found.get(), a[:, 1:] @ b[1:, 3:])


def test_dlpack(cupy: Any) -> None:
    """What has the protocol and nothing else."""

    class Other:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **how: Any) -> Any:
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    a, b = numbers(128, 128), numbers(128, 128, seed=1)
    out = cupy.zeros((128, 128), np.float32)
    first, second = map(Other, on_gpu(cupy, a, b))
    kt.gemm(first, second, Other(out))
    assert_equal(out.get(), a @ b)
    assert_equal(kt.gemm(first, second).get(), a @ b)


def test_the_current_stream_is_used(cupy: Any) -> None:
    """A stream that does not wait for the default one: the product comes behind what is on it."""
    a, b = numbers(128, 128), numbers(128, 128, seed=1)
    right, wrong = cupy.asarray(a.astype(np.float32)), cupy.asarray(np.full((128, 128), np.nan, np.float32))
    second, out = cupy.asarray(b.astype(np.float32)), cupy.zeros((128, 128), np.float32)
    kt.gemm(right, second, out)
    block = cupy.cuda.alloc(1 << 30)
    cupy.cuda.runtime.deviceSynchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(20):  # some ten milliseconds of work in front
            cupy.cuda.runtime.memcpyAsync(block.ptr, block.ptr + (1 << 29), 1 << 29, 3, stream.ptr)
        cupy.cuda.runtime.memcpyAsync(wrong.data.ptr, right.data.ptr, right.nbytes, 3, stream.ptr)
        kt.gemm(wrong, second, out)
        stream.synchronize()
    assert_equal(out.get(), a @ b)


def capture(cupy: Any, work: Callable[[], object]) -> Any:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        try:
            work()
        finally:
            graph = stream.end_capture()
        return graph


@pytest.mark.parametrize("problem", [TUNED[2], TUNED[1]], ids=["plain", "workspace"])
def test_a_call_can_be_captured_after_warmup(cupy: Any, problem: Problem) -> None:
    """Also as the first call of its kind; the graph works on what is in the operands when it runs."""
    assert kt.warmup([problem]) == 1
    dtype = np.float32 if problem.dtype == "fp32" else np.float16
    a, b = cupy.zeros((problem.m, problem.k), dtype), cupy.zeros((problem.k, problem.n), dtype)
    out = cupy.zeros((problem.m, problem.n), np.float32)
    cupy.cuda.runtime.deviceSynchronize()
    graph = capture(cupy, lambda: kt.gemm(a, b, out))
    for seed in range(3):
        values = numbers(problem.m, problem.k, seed=seed), numbers(problem.k, problem.n, seed=seed + 10)
        a.set(values[0].astype(dtype))
        b.set(values[1].astype(dtype))
        cupy.cuda.runtime.deviceSynchronize()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            graph.launch(stream)
            graph.launch(stream)
            stream.synchronize()
        assert_equal(out.get(), values[0] @ values[1])


def test_what_is_not_warm_cannot_be_captured(cupy: Any) -> None:
    """A message that says what to do, and CUDA goes on working."""
    a, b, out = (cupy.zeros((33, 33), np.float32) for _ in range(3))
    cupy.cuda.runtime.deviceSynchronize()
    with pytest.raises(KtError, match="graph is being captured"):
        capture(cupy, lambda: kt.gemm(a, b, out))
    cupy.cuda.runtime.deviceSynchronize()


def test_threads(cupy: Any) -> None:
    """Four threads, each with a stream and operands of its own, on one plan with a workspace and one with maps."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            a, b = numbers(64, 30000, seed=seed), numbers(30000, 64, seed=seed + 9)
            with cupy.cuda.Stream(non_blocking=True) as stream:
                operands = on_gpu(cupy, a, b, "float16")
                outs = [cupy.zeros((64, 64), np.float32) for _ in range(8)]
                for _ in range(10):
                    for out in outs:
                        kt.gemm(*operands, out)
                stream.synchronize()
                for out in outs:
                    assert_equal(out.get(), a @ b)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert kt.calls() == {"exact": 320}


def test_a_thread_that_is_new_to_cuda(cupy: Any) -> None:
    """It calls nothing but kt: the driver's launch finds a context all the same."""
    a, b = numbers(128, 128), numbers(128, 128, seed=1)
    pair, out = on_gpu(cupy, a, b), cupy.zeros((128, 128), np.float32)
    kt.gemm(*pair, out)
    out.fill(0)
    cupy.cuda.runtime.deviceSynchronize()
    thread = threading.Thread(target=kt.gemm, args=(*pair, out))
    thread.start()
    thread.join()
    cupy.cuda.runtime.deviceSynchronize()
    assert_equal(out.get(), a @ b)


def test_tuning_on_a_miss(cupy: Any) -> None:
    """A shape is tuned when it is first met, and has a winner from then on."""
    a, b = numbers(40, 24), numbers(24, 56, seed=1)
    pair = on_gpu(cupy, a, b)
    assert_equal(kt.gemm(*pair, on_miss="tune").get(), a @ b)
    assert_equal(kt.gemm(*pair, on_miss="error").get(), a @ b)
    assert kt.calls() == {"exact": 2}


@pytest.fixture
def torch(cupy: Any) -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    return found


def test_torch(cupy: Any, torch: Any) -> None:
    """x @ weight.T in bf16 by the tuned kernel, on PyTorch's current stream, into a new tensor and a given one."""
    x, weight = numbers(512, 512), numbers(512, 512, seed=1)
    first, second = (torch.from_numpy(one).to("cuda", torch.bfloat16) for one in (x, weight))
    wanted = torch.from_numpy(x @ weight.T).to(torch.bfloat16).double().numpy()
    with torch.cuda.stream(torch.cuda.Stream()):
        out = kt.gemm(first, second.T)
        again = kt.gemm(first, second.T, out=torch.empty_like(out))
        torch.cuda.current_stream().synchronize()
    assert isinstance(out, torch.Tensor)
    assert out.dtype == torch.bfloat16
    for one in (out, again):
        np.testing.assert_array_equal(one.double().cpu().numpy(), wanted)
    assert kt.calls() == {"exact": 2}


def test_a_graph_of_torch(cupy: Any, torch: Any) -> None:
    """As PyTorch captures it, with its own stream and memory."""
    kt.warmup([TUNED[0]])
    x, weight = (torch.zeros((512, 512), dtype=torch.bfloat16, device="cuda") for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = kt.gemm(x, weight.T)
    values = numbers(512, 512), numbers(512, 512, seed=1)
    x.copy_(torch.from_numpy(values[0]))
    weight.copy_(torch.from_numpy(values[1]))
    graph.replay()
    torch.cuda.synchronize()
    wanted = torch.from_numpy(values[0] @ values[1].T).to(torch.bfloat16).double().numpy()
    np.testing.assert_array_equal(out.double().cpu().numpy(), wanted)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_code_of_the_pages_runs(cupy: Any, page: str) -> None:
    """As it stands there; the last product is what it says."""
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    a, b, c = (names[name].get().astype(np.float64) for name in "abc")
    np.testing.assert_allclose(c, 0.5 * a @ b.T + a @ b, rtol=1e-4)


def host_us(*of: Callable[[], object], synchronize: Callable[[], object]) -> list[float]:
    """Microseconds of the host for one call of each.

    The median of a short series, which the GPU has caught up with, and the least of many series, which take turns: a
    busy neighbour makes single calls and whole series slower, and none quicker.
    """
    least = [float("inf")] * len(of)
    for _ in range(SERIES):
        for place, call in enumerate(of):
            synchronize()
            times = [_once_us(call) for _ in range(CALLS)]
            least[place] = min(least[place], statistics.median(times))
    return least


def _once_us(call: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e3


@pytest.mark.parametrize("kind", ["cupy", "cupy, tensor maps", "torch, tensor maps"])
def test_a_call_costs_at_most_15_us_more_than_the_launch(cupy: Any, kind: str) -> None:
    """Over CUDA's launch of the same kernel with the same arguments, of small problems, out given."""
    from kt.runtime import gemm

    problem = TUNED[5] if kind == "cupy" else TUNED[0]
    if kind.startswith("torch"):
        torch = pytest.importorskip("torch")
        a, b, out = (torch.zeros((512, 512), dtype=torch.bfloat16, device="cuda") for _ in range(3))
        b = b.T
    elif kind == "cupy":
        a, b, out = (cupy.zeros((problem.m, problem.n), np.float32) for _ in range(3))
    else:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        a, b, out = (cupy.asarray(np.zeros((512, 512), ml_dtypes.bfloat16)) for _ in range(3))
        b = b.T
    kt.gemm(a, b, out)
    (plan,) = gemm._plans.values()
    assert plan.found == "exact"
    stream = cupy.cuda.get_current_stream()

    def raw() -> None:
        for launch, parameters in zip(plan._launches, plan._own.parameters, strict=True):
            launch.enqueue(stream.ptr, parameters)

    whole, bare = host_us(lambda: kt.gemm(a, b, out), raw, synchronize=stream.synchronize)
    print(f"\n{kind}: {whole:.1f} us a call, {bare:.1f} us the launch, workspace {plan._workspace_bytes} bytes")
    assert whole - bare <= 15.0
