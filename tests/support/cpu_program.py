"""Headers of kernels compiled by g++ and run thread by thread on the CPU (tests/nogpu/data/block_on_cpu.h)."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kt.templates.lookup import BUILTIN

__all__ = ["INCLUDE", "headers_on_cpu", "needs_compiler", "on_cpu", "run_calls"]

INCLUDE = BUILTIN / "include" / "kt"
DATA = Path(__file__).parents[1] / "nogpu" / "data"
SHARED = "extern __shared__ __align__(128) unsigned char shared_bytes[];"

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run the headers on the CPU")


def on_cpu(name: str) -> str:
    """What stands in for the GPU: the text of `name`_on_cpu.h."""
    return (DATA / f"{name}_on_cpu.h").read_text()


def headers_on_cpu(names: Sequence[str]) -> str:
    """The text of kernels' headers, in this order, with the shared memory of block_on_cpu.h."""
    text = "".join((INCLUDE / name).read_text() for name in names)
    return text.replace(SHARED, "unsigned char* const shared_bytes = kt::shared;")


def run_calls(parts: Sequence[str], calls: Sequence[str], folder: Path, optimization: str = "-O1") -> None:
    """Compile `parts`, in this order after block_on_cpu.h, and make the calls: they end well and print nothing."""
    main = "int main() {\n" + "\n".join(f"  {call};" for call in calls) + "\n}\n"
    source, program = folder / "program.cpp", folder / "program"
    source.write_text("".join([on_cpu("block"), *parts, main]))
    subprocess.run(["g++", "-std=c++17", optimization, "-w", "-o", program, source], check=True)
    outcome = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "")
