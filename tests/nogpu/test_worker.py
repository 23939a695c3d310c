"""The worker's parent side: a child that faults, hangs or loses its context costs one candidate, never the run."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kt.problems import Problem
from kt.tuner.messages import Candidate, Failure, MemoryReply, Prepare, Prepared, Refine, Release, Screen, ScreenReply
from kt.tuner.worker import DEVICE_VARIABLE, Worker, WorkerDied

# The name of a candidate says what happens to the fake worker that screens it.
CHILD = """
import os, signal, sys, time
from kt.cache.records import Measurement
from kt.tuner.child_process import serve
from kt.tuner.messages import *

LOG = os.environ["KT_TEST_LOG"]
problem = None

def handle(request):
    global problem
    with open(LOG, "a") as log:
        print(os.getpid(), type(request).__name__, getattr(getattr(request, "candidate", None), "name", ""), file=log)
    match request:
        case Prepare():
            if request.seed == 13:
                return Failure("out_of_memory", "needs 447.0 GiB, 138.0 GiB free of 139.8 GiB")
            if request.seed == 14 and os.path.exists(LOG + ".again"):
                return Failure("crashed", "cudaErrorDevicesUnavailable")
            open(LOG + ".again", "w").close()
            problem = request.problem
            return Prepared(3, True, 100, 1000)
        case Release():
            problem = None
            return MemoryReply(900, int(os.environ["KT_WORKER_DEVICE"]))
        case Refine(candidates=candidates):
            return Failure("crashed", "cudaErrorIllegalAddress", candidates[1].name)
        case Screen(candidate=candidate):
            assert problem is not None, "no problem is prepared"
            match candidate.name:
                case "hang": time.sleep(600)
                case "segv": os.kill(os.getpid(), signal.SIGSEGV)
                case "sticky": return Failure("crashed", "cudaErrorIllegalAddress: illegal access")
                case "slow": time.sleep(0.3)
            return ScreenReply(candidate.name, Measurement("ok", float(problem.m), samples=1))

serve(handle)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def worker(tmp_path: Path, log: Path) -> Iterator[Worker]:
    (tmp_path / "fake_worker.py").write_text(CHILD)
    with Worker(5, module="fake_worker", env={"PYTHONPATH": str(tmp_path), "KT_TEST_LOG": str(log)}) as worker:
        yield worker


def prepare(m: int = 64, seed: int = 0) -> Prepare:
    return Prepare(Problem(m, 8, 8), seed)


def screen(name: str) -> Screen:
    return Screen(Candidate(name, "/nowhere", (), 0, {}), None)


def time_of(reply: object) -> float | None:
    assert isinstance(reply, ScreenReply)
    return reply.measurement.time_us


def requests(log: Path) -> list[str]:
    return [" ".join(line.split()[1:]) for line in log.read_text().splitlines()]


def test_no_process_runs_before_the_first_request(worker: Worker) -> None:
    assert worker.connection is None
    assert worker.starts == 0


def test_requests_are_answered_in_turn_by_one_child(worker: Worker) -> None:
    assert worker.request(prepare(), 20) == Prepared(3, True, 100, 1000)
    assert [time_of(worker.request(screen(name), 20)) for name in ("a", "b")] == [64.0, 64.0]
    assert worker.starts == 1


def test_the_child_learns_which_gpu_is_its_own(worker: Worker) -> None:
    assert DEVICE_VARIABLE not in os.environ
    assert worker.request(Release(), 20) == MemoryReply(900, 5)


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("segv", "crashed", "ended by SIGSEGV"),
        ("sticky", "crashed", "cudaErrorIllegalAddress: illegal access"),
        ("hang", "timeout", "no answer within 0.2 s"),
    ],
)
def test_a_failing_candidate_gets_its_status_and_the_next_one_a_prepared_worker(
    worker: Worker, log: Path, name: str, status: str, detail: str
) -> None:
    worker.request(prepare(), 20)
    worker.request(prepare(128), 20)
    with pytest.raises(WorkerDied, match=detail) as caught:
        worker.request(screen(name), 0.2)
    assert (caught.value.status, caught.value.candidate) == (status, name)
    assert worker.connection is None
    assert time_of(worker.request(screen("good"), 5)) == 128.0, "the last problem, and no other, is prepared again"
    assert worker.starts == 2
    assert requests(log)[-3:] == [f"Screen {name}", "Prepare", "Screen good"]


def test_a_hanging_child_is_gone_when_its_timeout_is_raised(worker: Worker, log: Path) -> None:
    worker.request(prepare(), 20)
    began = time.monotonic()
    with pytest.raises(WorkerDied):
        worker.request(screen("hang"), 0.2)
    assert time.monotonic() - began < 1.5
    pid = int(log.read_text().split()[0])
    assert not Path(f"/proc/{pid}").exists()


def test_a_dead_context_in_a_refinement_names_the_candidate_that_was_running(worker: Worker) -> None:
    worker.request(prepare(), 20)
    candidates = tuple(screen(name).candidate for name in ("x", "y"))
    with pytest.raises(WorkerDied) as caught:
        worker.request(Refine(candidates), 20)
    assert caught.value.candidate == "y"


def test_a_child_that_was_killed_between_requests_is_replaced(worker: Worker, log: Path) -> None:
    worker.request(prepare(), 20)
    os.kill(int(log.read_text().split()[0]), signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        worker.request(screen("a"), 20)
    assert time_of(worker.request(screen("b"), 20)) == 64.0


def test_out_of_memory_is_an_answer_and_is_not_prepared_again(worker: Worker, log: Path) -> None:
    worker.request(prepare(), 20)
    reply = worker.request(prepare(seed=13), 20)
    assert isinstance(reply, Failure)
    assert reply.status == "out_of_memory"
    assert worker.request(prepare(256), 20) == Prepared(3, True, 100, 1000)
    assert worker.starts == 1


def test_after_a_release_nothing_is_prepared_again(worker: Worker, log: Path) -> None:
    worker.request(prepare(), 20)
    worker.request(Release(), 20)
    worker.close()
    worker.request(Release(), 20)
    assert requests(log) == ["Prepare", "Release", "Release"]


def test_a_gpu_that_cannot_be_prepared_again_ends_the_request(worker: Worker) -> None:
    worker.request(prepare(seed=14), 20)
    with pytest.raises(WorkerDied):
        worker.request(screen("segv"), 20)
    with pytest.raises(WorkerDied, match="cudaErrorDevicesUnavailable"):
        worker.request(screen("good"), 20)


def test_the_time_limit_of_a_request_leaves_out_the_start_of_a_fresh_child(worker: Worker) -> None:
    """A fresh process needs longer to start than this candidate is granted; the candidate is not to blame for it."""
    worker.request(prepare(), 20)
    with pytest.raises(WorkerDied):
        worker.request(screen("segv"), 20)
    assert time_of(worker.request(screen("good"), 0.05)) == 64.0


def test_submit_and_poll_leave_the_parent_free(worker: Worker) -> None:
    worker.request(prepare(), 20)
    worker.submit(screen("slow"), 20)
    assert worker.busy
    assert worker.poll(0.01) is None
    with pytest.raises(RuntimeError, match="one request at a time"):
        worker.submit(screen("a"), 20)
    while (reply := worker.poll(1)) is None:
        pass
    assert time_of(reply) == 64.0
    assert not worker.busy


def test_close_ends_a_busy_child_at_once(worker: Worker, log: Path) -> None:
    worker.request(prepare(), 20)
    worker.submit(screen("hang"), 600)
    began = time.monotonic()
    worker.close()
    assert time.monotonic() - began < 2
    assert not Path(f"/proc/{log.read_text().split()[0]}").exists()
    worker.close()
