"""A child answers requests, and it is gone whenever it should be: killed, crashed, or its parent killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kt.tuner.child_process import ChildProcess
from support.processes import is_running

CHILD = """
import os, signal, sys, time
from kt.tuner.child_process import serve

def handle(request):
    match request:
        case "pid": return os.getpid()
        case "sleep": time.sleep(600)
        case "segv": os.kill(os.getpid(), signal.SIGSEGV)
        case "raise": raise RuntimeError("the cause")
        case "exit": os._exit(7)
        case "path": return sys.path, os.getcwd()
        case "sigint": os.kill(os.getpid(), signal.SIGINT)
    return request

serve(handle)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "fake_child.py").write_text(CHILD)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def child(environment: dict[str, str]) -> Iterator[ChildProcess]:
    with ChildProcess("fake_child", env=environment) as child:
        yield child


def ask(child: ChildProcess, request: object) -> object:
    child.send(request)
    assert child.poll(20), "no reply within 20 s"
    return child.recv()


def wait_until_gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid)


def test_it_answers_each_request_from_a_process_of_its_own(child: ChildProcess) -> None:
    assert ask(child, "pid") == child.pid != os.getpid()
    assert ask(child, {"a": (1, 2.5)}) == {"a": (1, 2.5)}
    assert child.alive


def test_a_busy_child_is_killed_at_once(child: ChildProcess) -> None:
    assert ask(child, "ready") == "ready"
    child.send("sleep")
    assert not child.poll(0.05)
    began = time.monotonic()
    child.kill()
    assert time.monotonic() - began < 2
    assert not is_running(child.pid)
    child.kill()  # again is harmless


@pytest.mark.parametrize(
    ("request_", "words"),
    [("segv", "SIGSEGV"), ("raise", "RuntimeError: the cause"), ("exit", "exit code 7")],
)
def test_the_end_of_a_child_says_how_it_ended(child: ChildProcess, request_: str, words: str) -> None:
    with pytest.raises(EOFError, match=words):
        ask(child, request_)
    with pytest.raises(EOFError):
        ask(child, "pid")


def test_interrupts_do_not_reach_it(child: ChildProcess) -> None:
    """Ctrl-C signals the terminal's foreground process group; the child is not in it, and ignores SIGINT besides."""
    assert ask(child, "sigint") == "sigint"
    assert os.getpgid(child.pid) != os.getpgid(0)


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_it_ends_with_a_parent_that_is_killed(environment: dict[str, str], state: str) -> None:
    script = f"""
        import sys, time
        from kt.tuner.child_process import ChildProcess
        child = ChildProcess("fake_child")
        child.send("ready"); child.recv()
        if {state!r} == "busy":
            child.send("sleep")
        print(child.pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_until_gone(pid)


def test_it_works_from_a_folder_with_a_foreign_name_whose_files_shadow_nothing(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "José-é 目录"
    folder.mkdir()
    (folder / "socket.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(folder)
    with ChildProcess("fake_child", env=environment) as child:
        assert ask(child, "ready") == "ready"


def test_no_file_descriptor_is_left(environment: dict[str, str]) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    with ChildProcess("fake_child", env=environment) as child:
        ask(child, "ready")
    before = count()
    for _ in range(3):
        with ChildProcess("fake_child", env=environment) as child:
            ask(child, "ready")
    assert count() == before


@pytest.mark.parametrize("spare", [0, 1, 2, 3, 4, 5])
def test_a_child_that_cannot_be_started_is_one_failure(environment: dict[str, str], spare: int) -> None:
    """Too few open files, at whatever step: a message with the remedy, and nothing is left open."""
    code = f"""
import os, resource
from kt.errors import KtError
from kt.tuner.child_process import ChildProcess
before = os.listdir("/proc/self/fd")
usual = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3 + {spare}, usual[1]))
try:
    ChildProcess("fake_child")
except KtError as error:
    print(error.message, "|", error.hint)
resource.setrlimit(resource.RLIMIT_NOFILE, usual)
print(os.listdir("/proc/self/fd") == before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    message, clean = done.stdout.splitlines()
    assert message.startswith("a process of its own could not be started: Too many open files | lower --jobs")
    assert clean == "True"
