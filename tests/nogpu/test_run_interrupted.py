"""CASES C15: Ctrl-C in the middle of long compilations gives the prompt back in seconds and leaves no child."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SPACE = """
op: gemm
family: simt
template: slow.cu.j2
dtypes: [fp32]
parameters: {tile_m: [16, 32, 64, 128]}
default: {tile_m: 32}
launches:
  - {kernel: kt_gemm, grid: m * n, block: 128}
"""
# A compiler takes many seconds to unroll this; NVRTC would not even begin with more than about 16,000 steps.
TEMPLATE = """// {{ tile_m }}
extern "C" __global__ void kt_gemm(float* x) {
  float a[64];
  for (int i = 0; i < 64; ++i) a[i] = x[i];
#pragma unroll
  for (int i = 0; i < 8000; ++i) a[i % 64] += a[(i * 7 + {{ tile_m }}) % 64] * x[i];
  for (int i = 0; i < 64; ++i) x[i] = a[i];
}
"""
PROGRAM = """
import signal
import sys
from pathlib import Path
from kt.cache.records import Measurement
from kt.cache.store import Store
from kt.devices.catalog import catalog
from kt.problems import Problem
from kt.search_spaces.loader import load_space
from kt.tuner.messages import Prepare, Prepared, ScreenReply
from kt.tuner.observer import SilentObserver
from kt.tuner.request import TuneRequest
from kt.tuner.run import tune

class Gpu:
    connection = None
    busy = False
    def submit(self, message, timeout_s): self.message = message
    def poll(self, timeout):
        if isinstance(self.message, Prepare): return Prepared(1, True, 1, 1)
        print("compiled before Ctrl-C", flush=True)
        return ScreenReply(self.message.candidate.name, Measurement("wrong_result"))
    def close(self): print("worker closed", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
folder = Path(sys.argv[1])
problems = [Problem(64, 64, 64), Problem(32, 32, 32)]
spaces = [load_space(folder / "space.yaml")]
request = TuneRequest(problems, spaces, catalog()["h200"], template_dirs=(folder,), compilers=2)
with Store.open(folder / "cache") as store:
    result = tune(request, store, SilentObserver(), open_worker=lambda _: Gpu())
print("interrupted", result.interrupted, [(shape.failure, shape.untuned) for shape in result.shapes], flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="children are looked up in /proc")
def test_ctrl_c_during_compilation_ends_every_child(tmp_path: Path) -> None:
    for name, text in (("space.yaml", SPACE), ("slow.cu.j2", TEMPLATE), ("program.py", PROGRAM)):
        (tmp_path / name).write_text(text)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        children = _wait_for_busy_children(program.pid, 2)
        program.send_signal(signal.SIGINT)
        began = time.monotonic()
        output, _ = program.communicate(timeout=20)
    finally:
        program.kill()
    assert time.monotonic() - began < 3.0
    assert output.splitlines() == [
        "worker closed",
        "interrupted True [('interrupted', True), ('interrupted', True)]",
    ]
    assert [pid for pid in children if _alive(pid)] == []


def _wait_for_busy_children(parent: int, count: int) -> list[int]:
    """So many children that are in the middle of a compilation: to start takes them a fraction of this time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _parent(pid) == parent]
        if sum(_processor_s(pid) > 0.5 for pid in children) >= count:
            return children
        time.sleep(0.05)
    raise AssertionError("no compiler was started")


def _processor_s(pid: int) -> float:
    """Processor time that a process has used."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _parent(pid: int) -> int:
    return int(_status(pid).get("PPid", "0"))


def _alive(pid: int) -> bool:
    return not _status(pid).get("State", "Z").startswith("Z")
