"""tests/gpu/sanitize.py as far as it goes without a GPU: what it runs, and how it judges."""

import ctypes
import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kt.problems import DTYPES, Problem
from kt.search_spaces.space import Config
from kt.tuner.messages import Candidate
from support.exact_operands import exact_operands
from support.problems import Formats, aligned, formats_of

SCRIPT = Path(__file__).parents[1] / "gpu" / "sanitize.py"


def test_the_script_compiles_its_sample_for_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    """Run as its documentation says, from anywhere."""
    command = [sys.executable, str(SCRIPT), "--family", "simt", "--device", "model:h200", "--limit", "4", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4 configurations of simt for NVIDIA H200\n"


@pytest.mark.parametrize("only", ["hold_b=2", "slices_k=1"])
def test_a_choice_that_the_family_does_not_offer_is_told(only: str) -> None:
    command = [sys.executable, str(SCRIPT), "--family", "mma", "--device", "model:h200", "--only", only, "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"--only {only}: family mma does not offer it\n"


PROBLEMS = [
    *(aligned(formats, "tn", (8, 16, 8), 32, 48, 16) for formats in formats_of(tuple(DTYPES))),
    Formats("bf16", "fp32", "bf16").problem(17, 5, 33, "tt", beta=2.0, alpha=-1.0, base_alignment=2),
    Problem(4, 6, 5, batch=3, stride_a=7, stride_c=30),
    Problem(4, 6, 0, beta=3.0),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label.replace(" ", "-"))
def test_the_right_result_is_right_and_each_planted_error_is_not(problem: Problem) -> None:
    operands = exact_operands(problem, 1)
    assert all(len(memory) == problem.footprint(operand) for operand, memory in operands.memory.items())
    assert operands.judge(operands.right) == ""
    assert not np.array_equal(operands.right, operands.memory["c"])
    if not problem.beta:
        untouched = operands.judge(operands.memory["c"])
        assert untouched.startswith(f"{problem.m * problem.n * problem.batch} of ")
    last = operands.right.copy()
    last[-1] ^= 0x40
    assert operands.judge(last).startswith("1 of ")
    if problem.ldc > problem.n:
        padding = operands.right.copy()
        padding[problem.n * problem.element_bytes["c"]] ^= 1
        assert operands.judge(padding) == "memory between the rows of C was overwritten"


class HostMemory:
    """An allocation whose bounds are known; freed with the object, like device memory."""

    made: list["HostMemory"] = []  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.bytes = np.full(size + 256, 0xA5, np.uint8)
        self.ptr = -(-self.bytes.ctypes.data // 256) * 256
        self.end = self.ptr + size
        self.made.append(self)


class HostGpu:
    stream = SimpleNamespace(ptr=0)

    def __init__(self, index: int) -> None: ...
    def synchronize(self) -> None: ...
    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)


def host_candidates(problem: Problem, *, right: bool) -> type:
    """Kernels that copy what is right, or leave C as it is; both check that the operands' allocations end with them."""

    class HostCandidate:
        runtime: dict[str, int] = {}  # noqa: RUF012

        def __init__(self, candidate: Candidate) -> None: ...
        def __enter__(self) -> "HostCandidate":
            return self

        def __exit__(self, *_: object) -> None: ...
        def bind(self, _: Problem, arguments: Any) -> Any:
            return arguments

        def enqueue(self, arguments: Any) -> None:
            ends = {memory.end for memory in HostMemory.made}
            for name in "abc":
                assert int(arguments[name]) % problem.base_alignment == 0
                assert int(arguments[name]) + problem.footprint(name) in ends
            if right:
                data = exact_operands(problem, 1).right
                ctypes.memmove(int(arguments["c"]), data.ctypes.data, len(data))

    return HostCandidate


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("base_alignment", [256, 2])
def test_operands_are_allocated_on_their_own_and_a_wrong_result_is_the_exit_code(
    base_alignment: int, raw: bool, right: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cuda = pytest.importorskip("kt.tuner.cuda", reason="needs CuPy")
    problem = Problem(5, 7, 33, "bf16", base_alignment=base_alignment)
    runtime = SimpleNamespace(
        memcpy=lambda to, start, size, _: ctypes.memmove(to, start, size),
        memsetAsync=lambda to, byte, size, _: ctypes.memset(to, byte, size),
        memcpyHostToDevice=1,
    )
    monkeypatch.setattr(cuda, "cupy", SimpleNamespace(cuda=SimpleNamespace(Memory=HostMemory)))
    monkeypatch.setattr(cuda, "runtime", runtime)
    monkeypatch.setattr(cuda, "Gpu", HostGpu)
    monkeypatch.setattr("kt.tuner.loaded_candidate.LoadedCandidate", host_candidates(problem, right=right))
    spec = spec_from_file_location("sanitize", SCRIPT)
    assert spec
    assert spec.loader
    sanitize = module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(sanitize)
    runs = [(problem, Config("small", (("tile", 16),)))]
    code = sanitize._launch_all(runs, [Candidate("one", "/nowhere", (), 100, {})], raw=raw)
    assert code == (0 if right else 1)
    said = capsys.readouterr().out
    assert "[1/1] bf16 nn 5x7x33" in said
    assert ("all 1 are right" if right else "35 of 35 elements differ") in said


def test_minus_zero_is_zero() -> None:
    operands = exact_operands(Problem(1, 1, 1), 0)
    zero = replace(operands, right=np.zeros(4, np.uint8))
    assert zero.judge(np.array([0, 0, 0, 0x80], np.uint8)) == ""


def test_other_seeds_are_other_operands() -> None:
    one, again, other = (exact_operands(Problem(8, 8, 8, "bf16"), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.memory["a"], again.memory["a"])
    assert not np.array_equal(one.memory["a"], other.memory["a"])
