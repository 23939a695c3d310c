"""The program of `kt repro` on a GPU: right, about as fast as kt measured, and wrong where the kernel is."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import Command

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")]

# Of every family and number format something; sizes that are ragged, batched, padded, with scalars.
SHAPES = """
shapes:
  - {m: 2048, n: 2048, k: 2048, dtype: bf16, layout: nt}
  - {m: 1021, n: 517, k: 333, dtype: bf16, layout: tn, alpha: 1.5, beta: 0.5}
  - {m: 1000, n: 504, k: 336, dtype: fp8_e4m3, layout: nt}
  - {m: 300, n: 200, k: 1000, dtype: fp32, layout: nn, batch: 3, ldc: 208}
  - {m: 256, n: 256, k: 512, dtype: fp64, layout: tt, beta: 1}
  - {m: 129, n: 65, k: 77, dtype: int8, layout: nn, alpha: 2, beta: -1}
  - {m: 640, n: 640, k: 640, dtype: tf32, layout: nt}
  - {m: 77, n: 200, k: 4096, dtype: fp16, layout: nn, out_dtype: fp32}
"""
WORDS = ("2048x2048x2048", "1021x517x333", "fp8_e4m3", "300x200x1000", "fp64", "int8", "tf32", "77x200x4096")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a winner for each shape, of a short search."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "shapes.yaml").write_text(SHAPES)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "kt", "tune", "gemm", "--shapes", str(folder / "shapes.yaml"), "--budget", "24"]
    done = subprocess.run(
        [*command, "--cache-dir", str(folder / "cache"), "--peers", "none", "-q"],
        env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "cache"


def built(kt: Command, tuned: Path, word: str, folder: Path) -> str:
    """The program's text, written to `folder`."""
    outcome = kt("repro", word, "-o", folder, "--cache-dir", tuned)
    assert outcome.code == 0, outcome.err
    return (folder / "repro.cu").read_text()


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    made = subprocess.run(["make", "-s", "repro"], cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return subprocess.run(["./repro"], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("word", WORDS)
def test_the_program_is_right_and_as_fast_as_measured(kt: Command, tuned: Path, tmp_path: Path, word: str) -> None:
    """Both checks pass; the time lies within a fifth of kt's, or 2 us of very short ones."""
    built(kt, tuned, word, tmp_path)
    done = run(tmp_path)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("right: all") == 2
    found = re.search(r"^([0-9.]+) us, .* measured on .*: ([0-9.]+) us", done.stdout, re.MULTILINE)
    assert found
    time_us, expected_us = map(float, found.groups())
    assert abs(time_us - expected_us) < max(0.2 * expected_us, 2.0)


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("a, b, c, workspace, alpha, beta, ", "a, b, c, workspace, alpha, 0.0, "),
        ("kM, kN, kK, kBatch, ", "kM, kN, kK - 1, kBatch, "),
        ("kM, kN, kK, kBatch, ", "kM - 1, kN, kK, kBatch, "),
    ],
)
def test_the_program_sees_what_is_wrong(kt: Command, tuned: Path, tmp_path: Path, there: str, instead: str) -> None:
    """Beta left out, the last product left out, the last row not written: exit code 1, and where."""
    text = built(kt, tuned, "1021x517x333", tmp_path)
    head, _, rest = text.partition("Arguments arguments = {")
    assert there in rest.partition("};")[0]
    (tmp_path / "repro.cu").write_text(head + "Arguments arguments = {" + rest.replace(there, instead, 1))
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG: " in done.stdout
