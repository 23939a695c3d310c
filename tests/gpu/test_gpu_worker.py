"""The worker process on a real GPU: preparing, screening, refining, and giving memory back."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from kt.problems import Problem
from kt.tuner.messages import (
    Candidate,
    Failure,
    MemoryReply,
    Prepare,
    Prepared,
    Refine,
    RefineReply,
    Release,
    Screen,
    ScreenReply,
)
from kt.tuner.worker import Worker

Naive = Callable[..., Candidate]
LIMIT_S = 60.0
MIB = 1 << 20

# Writes C once and computes nothing: wrong, and fast on a large problem.
WRONG_BODY = """
extern "C" __global__ void gemm(GemmArguments p) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (i64)p.m * p.n; i += step) ((float*)p.c)[i] = 1;
}
"""


def prepare(worker: Worker, problem: Problem, seed: int = 0) -> Prepared:
    reply = worker.request(Prepare(problem, seed), LIMIT_S)
    assert isinstance(reply, Prepared), reply
    return reply


def free_bytes(worker: Worker) -> int:
    reply = worker.request(Release(), LIMIT_S)
    assert isinstance(reply, MemoryReply)
    return reply.free_bytes


def test_a_problem_is_prepared_with_cold_sets(worker: Worker) -> None:
    reply = prepare(worker, Problem(512, 512, 512))
    assert reply.cold
    assert reply.sets > 1
    assert reply.needed_bytes < reply.free_bytes


def test_a_problem_that_does_not_fit_is_refused_with_the_figures_and_the_next_one_is_served(
    worker: Worker, naive: Naive
) -> None:
    began = time.monotonic()
    reply = worker.request(Prepare(Problem(200_000, 200_000, 200_000), 0), LIMIT_S)
    assert isinstance(reply, Failure)
    assert reply.status == "out_of_memory"
    assert "needs 8" in reply.detail
    assert "GiB free of" in reply.detail
    assert time.monotonic() - began < 10
    problem = Problem(256, 256, 256)
    prepare(worker, problem)
    screened = worker.request(Screen(naive(problem), None), LIMIT_S)
    assert screened.measurement.status == "ok"


def test_gpu_memory_returns_to_its_level_after_200_failing_candidates_on_a_large_problem(
    worker: Worker, cubin: Callable[..., str], naive: Naive
) -> None:
    problem = Problem(8192, 8192, 8192)
    wrong = Candidate("wrong", cubin(WRONG_BODY), naive(problem).launches, 0, {})
    prepare(worker, problem)
    worker.request(Screen(wrong, None), LIMIT_S)
    before = free_bytes(worker)
    prepare(worker, problem)
    for number in range(200):
        candidate = Candidate(str(number), wrong.cubin, wrong.launches, (number % 5) * 64 * MIB, {})
        reply = worker.request(Screen(candidate, None), LIMIT_S)
        assert reply.measurement.status == "wrong_result"
    assert abs(free_bytes(worker) - before) <= 32 * MIB


def test_a_workspace_that_does_not_fit_is_the_candidates_failure(worker: Worker, naive: Naive) -> None:
    problem = Problem(64, 64, 64)
    prepare(worker, problem)
    good = naive(problem)
    huge = Candidate("huge", good.cubin, good.launches, 1 << 42, {})
    reply = worker.request(Screen(huge, None), LIMIT_S)
    assert reply.measurement.status == "out_of_memory"
    assert "the workspace needs 4" in reply.measurement.detail
    assert worker.request(Screen(good, None), LIMIT_S).measurement.status == "ok"


def test_screening_a_short_kernel_takes_milliseconds(worker: Worker, naive: Naive) -> None:
    problem = Problem(256, 256, 64)
    prepare(worker, problem)
    candidates = [naive(problem, str(block), block=block) for block in (32, 64, 128, 256)]
    walls: list[float] = []
    for _ in range(5):
        for candidate in candidates:
            began = time.perf_counter()
            reply = worker.request(Screen(candidate, None), LIMIT_S)
            walls.append(time.perf_counter() - began)
            assert isinstance(reply, ScreenReply)
            assert reply.measurement.status == "ok"
    print(f"screening: median {median(walls) * 1e3:.1f} ms, most {max(walls) * 1e3:.1f} ms")
    assert median(walls) < 0.025


def test_a_straggler_is_stopped_after_one_launch(worker: Worker, naive: Naive) -> None:
    problem = Problem(1024, 1024, 256)
    prepare(worker, problem)
    slow = naive(problem, BEFORE="for (i64 end = clock64() + 4000000; clock64() < end;) {}")
    began = time.perf_counter()
    reply = worker.request(Screen(slow, 50.0), LIMIT_S)
    assert time.perf_counter() - began < 1.0
    measurement = reply.measurement
    assert (measurement.status, measurement.samples, measurement.spread) == ("ok", 1, None)
    assert measurement.time_us > 2000


def test_refinement_ranks_and_times_peers_in_the_same_run(worker: Worker, naive: Naive) -> None:
    problem = Problem(512, 512, 128)
    prepare(worker, problem)
    slower = naive(problem, "slower", BEFORE="for (i64 end = clock64() + 20000; clock64() < end;) {}")
    twin = naive(problem, "twin")
    reply = worker.request(Refine((slower, naive(problem), twin), ("cublas", "cublaslt", "none"), 1.0), LIMIT_S)
    assert isinstance(reply, RefineReply)
    first, second, last = reply.measurements
    assert last == "slower"
    assert reply.ties == (second,), "two copies of one kernel cannot be told apart"
    assert reply.measurements[first].refined
    assert reply.measurements[first].samples >= 5
    assert "none" in reply.peer_errors
    for peer in ("cublas", "cublaslt"):
        assert peer in reply.peers or "not installed" in reply.peer_errors[peer], reply.peer_errors
        assert 0 < reply.peers.get(peer, 1.0) < (reply.measurements[first].time_us or 0)


def test_fp32_peers_do_not_round_to_tf32(worker: Worker, naive: Naive) -> None:
    """At 4096 cubed the tensor cores would be five times faster than fp32 can be."""
    times = {}
    for dtype in ("fp32", "tf32"):
        problem = Problem(4096, 4096, 4096, dtype=dtype)
        prepare(worker, problem)
        reply = worker.request(Refine((), ("cublas",), 1.0), LIMIT_S)
        if not reply.peers:
            pytest.skip(reply.peer_errors["cublas"])
        times[dtype] = reply.peers["cublas"]
    assert times["fp32"] > 2 * times["tf32"]


def test_a_worker_starts_from_a_folder_with_a_foreign_name(
    naive: Naive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "José-é 目录"
    folder.mkdir()
    monkeypatch.chdir(folder)
    problem = Problem(64, 64, 64)
    good = naive(problem)
    moved = folder / "kernel é.cubin"
    moved.write_bytes(Path(good.cubin).read_bytes())
    with Worker() as worker:
        prepare(worker, problem)
        candidate = Candidate("moved", str(moved), good.launches, 0, {})
        assert worker.request(Screen(candidate, None), LIMIT_S).measurement.status == "ok"


def test_start_up_takes_seconds_at_most() -> None:
    """Start of the process, CUDA context, reference compiled, operands made."""
    with Worker() as worker:
        began = time.perf_counter()
        prepare(worker, Problem(4096, 4096, 4096))
        took = time.perf_counter() - began
    print(f"from start to prepared: {took:.2f} s")
    assert took < 6


def test_nothing_is_written_to_the_home_folder(naive: Naive, tmp_path: Path) -> None:
    """CuPy would cache kernels of its own there. What the CUDA driver itself keeps in `.nv` is not ours."""
    problem = Problem(64, 64, 64)
    good = naive(problem)
    environment = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "CUPY_CACHE_DIR": str(tmp_path / "cupy")}
    with Worker(env=environment) as worker:
        prepare(worker, problem)
        assert worker.request(Screen(good, None), LIMIT_S).measurement.status == "ok"
        worker.request(Refine((good,), ("cublas",), 0.2), LIMIT_S)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in written if path.parts[0] != ".nv"] == []
