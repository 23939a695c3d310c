"""Injected faults: each candidate that does wrong gets its status, and the good ones are measured as if alone."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from kt.cache.records import Measurement
from kt.problems import Problem
from kt.search_spaces.space import Launch
from kt.tuner.messages import Candidate, Prepare, Prepared, Refine, RefineReply, Screen, ScreenReply
from kt.tuner.worker import Worker, WorkerDied

PROBLEM = Problem(512, 500, 256, lda=260, ldb=512, ldc=504, beta=0.5)
PREPARE_S = 60.0
SCREEN_S = 3.0

Naive = Callable[..., Candidate]
Cubin = Callable[..., str]


def screen(worker: Worker, candidate: Candidate) -> Measurement:
    """As the tuner does it: a dead worker is a status of the candidate."""
    try:
        reply = worker.request(Screen(candidate, None), SCREEN_S)
    except WorkerDied as died:
        return Measurement(died.status, detail=died.detail)
    assert isinstance(reply, ScreenReply)
    return reply.measurement


@pytest.fixture
def prepared(worker: Worker) -> Worker:
    assert isinstance(worker.request(Prepare(PROBLEM, 0), PREPARE_S), Prepared)
    return worker


def test_a_good_kernel_is_ok(prepared: Worker, naive: Naive) -> None:
    measurement = screen(prepared, naive(PROBLEM))
    assert measurement.status == "ok", measurement.detail
    assert measurement.time_us is not None
    assert measurement.time_us > 1


# name of the fault: macros of the naive kernel, status, words of the detail
WRONG = {
    "last column only": ({"COLUMNS": "(p.n - 1)"}, "512 of 256000 elements differ, first at (0, 499)"),
    "half-written C": ({"COLUMNS": "(p.n / 2)"}, "elements differ"),
    "alpha dropped when beta counts": ({"ALPHA": "(p.beta != 0 && column >= 64 ? 1.0 : p.alpha)"}, "elements differ"),
    "beta ignored": ({"AFTER": "*c = (float)p.alpha * sum;"}, "elements differ"),
    "one product left out": ({"LENGTH": "(p.k - 1)"}, "elements differ"),
    "reads padding of A": ({"LENGTH": "(p.k + 1)"}, "elements differ"),
    "writes padding of C": ({"AFTER": "if (column == p.n - 1) c[1] = 0;"}, "elements outside C"),
    "writes a row too many": ({"AFTER": "if (row == p.m - 1) c[p.ldc] = 0;"}, "elements outside C"),
    "writes before C": ({"AFTER": "if (i == 0) c[-1] = 0;"}, "1 element outside C"),
    "overwrites an operand": ({"AFTER": "if (i == 0) ((float*)p.a)[5] = 1.5f;"}, "memory far outside C"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_result_is_named(prepared: Worker, naive: Naive, fault: str) -> None:
    problem = PROBLEM
    macros, words = WRONG[fault]
    if "alpha" in fault:
        problem = Problem(512, 500, 256, alpha=2.0, beta=0.5)
        prepared.request(Prepare(problem, 0), PREPARE_S)
    starts = prepared.starts
    measurement = screen(prepared, naive(problem, **macros))
    assert measurement.status == "wrong_result"
    assert words in measurement.detail
    assert measurement.time_us is None
    assert screen(prepared, naive(problem)).status == "ok", "the next one is judged by itself"
    assert prepared.starts == starts, "a wrong result costs no worker"


def test_scalars_are_verified_in_full_even_if_the_problem_has_one_and_zero(worker: Worker, naive: Naive) -> None:
    problem = Problem(256, 192, 64)
    worker.request(Prepare(problem, 0), PREPARE_S)
    candidate = naive(problem, "no alpha", ALPHA="1.0")
    assert screen(worker, candidate).status == "ok"
    reply = worker.request(Refine((candidate, naive(problem))), 60)
    assert isinstance(reply, RefineReply)
    assert reply.measurements["no alpha"].status == "wrong_result"
    assert "alpha=2 beta=-1" in reply.measurements["no alpha"].detail
    assert reply.measurements["naive"].status == "ok"


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"block": 2048}, "2048 threads"), ({"smem": 1 << 20}, "1048576 bytes")],
    ids=["2048-thread block", "1 MiB of shared memory"],
)
def test_a_launch_that_cuda_refuses_is_a_launch_error_without_a_new_worker(
    prepared: Worker, naive: Naive, changes: dict[str, int], words: str
) -> None:
    starts = prepared.starts
    measurement = screen(prepared, naive(PROBLEM, **changes))
    assert measurement.status == "launch_error"
    assert words in measurement.detail
    assert "CUDA_ERROR" in measurement.detail
    assert screen(prepared, naive(PROBLEM)).status == "ok"
    assert prepared.starts == starts


def test_what_cannot_be_loaded_is_a_launch_error(prepared: Worker, naive: Naive, tmp_path: Path) -> None:
    good = naive(PROBLEM)
    (tmp_path / "junk.cubin").write_bytes(b"no cubin at all" * 100)
    launch = good.launches[0]
    missing_kernel = Launch("another", launch.grid, launch.block, 0)
    for candidate in (
        Candidate("junk", str(tmp_path / "junk.cubin"), good.launches, 0, {}),
        Candidate("missing file", str(tmp_path / "none.cubin"), good.launches, 0, {}),
        Candidate("missing kernel", good.cubin, (missing_kernel,), 0, {}),
        Candidate("empty grid", good.cubin, (Launch("gemm", 0, 128, 0),), 0, {}),
    ):
        measurement = screen(prepared, candidate)
        assert measurement.status == "launch_error", candidate.name
        assert measurement.detail
    assert screen(prepared, good).status == "ok"


def test_an_out_of_bounds_write_crashes_its_worker_only(prepared: Worker, naive: Naive) -> None:
    starts = prepared.starts
    measurement = screen(prepared, naive(PROBLEM, BEFORE="if (i == 7) ((float*)p.c)[1LL << 42] = 1;"))
    assert measurement.status == "crashed"
    assert "IllegalAddress" in measurement.detail
    assert screen(prepared, naive(PROBLEM)).status == "ok"
    assert prepared.starts == starts + 1


def test_an_endless_kernel_times_out(prepared: Worker, naive: Naive) -> None:
    endless = naive(PROBLEM, BEFORE="while (*(volatile int*)p.c != 42) {}")
    assert screen(prepared, endless).status == "timeout"
    assert screen(prepared, naive(PROBLEM)).status == "ok"


def test_a_kernel_that_faults_in_a_refinement_is_named(prepared: Worker, naive: Naive) -> None:
    bad = naive(PROBLEM, "bad", BEFORE="if (p.alpha == 2.0 && i == 7) ((float*)p.c)[1LL << 42] = 1;")
    with pytest.raises(WorkerDied) as caught:
        prepared.request(Refine((naive(PROBLEM, "good"), bad)), 60)
    assert (caught.value.status, caught.value.candidate) == ("crashed", "bad")
    assert screen(prepared, naive(PROBLEM)).status == "ok"


def test_good_candidates_are_timed_as_if_the_bad_ones_were_not_there(prepared: Worker, naive: Naive) -> None:
    """Within 5%, though workers died between them."""
    bad = [
        naive(PROBLEM, BEFORE="if (i == 7) ((float*)p.c)[1LL << 42] = 1;"),
        naive(PROBLEM, BEFORE="while (*(volatile int*)p.c != 42) {}"),
        naive(PROBLEM, block=2048),
        naive(PROBLEM, COLUMNS="(p.n - 1)"),
        naive(PROBLEM, COLUMNS="(p.n / 2)"),
    ]
    good = [naive(PROBLEM, str(block), block=block) for block in (64, 128, 256)]

    def times(between: list[Candidate]) -> list[float]:
        """Median of five screenings of each good candidate, the bad ones tried in between."""
        rounds: list[list[float]] = []
        for number in range(5):
            for candidate in between[number : number + 1]:
                assert screen(prepared, candidate).status != "ok"
            rounds.append([screen(prepared, candidate).time_us or 0.0 for candidate in good])
        return [median(values) for values in zip(*rounds, strict=True)]

    times([])
    alone, beside = times([]), times(bad)
    for one, other in zip(alone, beside, strict=True):
        assert other == pytest.approx(one, rel=0.05)
