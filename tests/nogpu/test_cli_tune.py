"""`kt tune gemm`: the order of its checks, its outcomes, its output file and what it prints."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.problems import Problem
from kt.tuner import run
from kt.tuner.observer import Observer
from kt.tuner.request import ShapeResult, TuneRequest, TuneResult

ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")

SHAPES = (
    "dtype: fp32\nshapes:\n  - {m: 512, n: 512, k: 512}\n  - {m: 256, n: 512, k: 512}\n  - {m: 1, n: 512, k: 512}\n"
)


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(SHAPES)
    return path


Ending = Callable[[Problem], ShapeResult]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[TuneRequest]]:
    """Replaces the tuner by one whose shapes end as told; returns the requests that it gets."""

    def install(ending: Ending, **result: Any) -> list[TuneRequest]:
        requests: list[TuneRequest] = []

        def tune(request: TuneRequest, store: Store, observer: Observer) -> TuneResult:
            requests.append(request)
            observer.run_started(len(request.problems), 0)
            shapes = tuple(ending(problem) for problem in request.problems)
            for shape in shapes:
                observer.shape_finished(shape.problem, shape.best, shape.failure)
            return TuneResult(shapes, **result)

        monkeypatch.setattr(run, "tune", tune)
        return requests

    return install


@pytest.fixture
def won(make_winner: Callable[..., BestConfig]) -> Ending:
    """Every shape has a winner."""
    return lambda problem: ShapeResult(problem, make_winner(problem), statuses={"ok": 5, "timeout": 1})


def _but(ending: Ending, m: int, **changes: Any) -> Ending:
    """As `ending`, except for the shape with this m."""
    return lambda problem: replace(ending(problem), **changes) if problem.m == m else ending(problem)


TUNE = ("tune", "gemm", "--device", "model:h200", "--shapes")


def test_everything_won_is_exit_0(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """The table has one line per shape on standard output; everything else is on standard error."""
    ended(won, compiled=7, seconds=1.5)
    outcome = kt(*TUNE, shapes)
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 4
    assert "512x512x512" in outcome.out
    assert "3 tuned; 7 kernels compiled; 1.5 s" in outcome.err
    assert "candidates without a time: 3 timeout" in outcome.err


def test_causes_of_failures_are_told_in_their_own_words(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """Each as it was met first, with how often."""
    ended(won, failures={"timeout: took longer than 30 s": 2, "crashed": 1})
    lines = kt(*TUNE, shapes).err.splitlines()
    assert [line for line in lines if "×" in line] == ["kt:   2 × timeout: took longer than 30 s", "kt:   1 × crashed"]
    assert "kt: candidates without a time: 3 timeout; causes as first met:" in lines


def test_what_was_pruned_is_explained(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """The word of the table is not known to everybody."""
    ended(lambda problem: replace(won(problem), statuses={"ok": 1, "pruned": 2}))
    assert "candidates without a time: 6 pruned (registers spill, or no launch fits)" in kt(*TUNE, shapes).err


def test_one_is_not_said_as_many(kt: Command, tmp_path: Path, ended: Command, won: Ending) -> None:
    """One shape, one kernel."""
    ended(won, compiled=1)
    (tmp_path / "one.yaml").write_text("shapes: [{m: 4, n: 4, k: 4}]\n")
    err = kt(*TUNE, tmp_path / "one.yaml").err
    assert "kt: 1 shape to tune\n" in err
    assert "; 1 kernel compiled; " in err


def test_quiet_prints_the_data_only(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """With -q, a run without failures says nothing on standard error."""
    ended(won)
    assert kt(*TUNE, shapes, "-q").err == ""


def test_one_line_per_shape_off_a_terminal(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """Progress is one plain line per shape, numbered."""
    ended(won)
    err = kt(*TUNE, shapes).err
    assert [line[:11] for line in err.splitlines() if "kt: [" in line] == [f"kt: [{i}/3] fp"[:11] for i in (1, 2, 3)]
    assert "\x1b" not in err


def test_json_is_one_document(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """--json prints every shape of the file in its order, each with how it ended."""
    ended(_but(won, 256, best=None, failure="no luck"), failures={"launch_error: 701": 2})
    outcome = kt(*TUNE, shapes, "--json")
    assert outcome.code == 3
    document = outcome.json
    assert document["schema"] == "kt.tune/1"
    assert [(shape["problem"]["m"], shape["outcome"]) for shape in document["shapes"]] == [
        (512, "tuned"), (256, "failed"), (1, "tuned"),
    ]  # fmt: skip
    assert document["shapes"][0]["result"]["time_us"] == 12.5
    assert document["shapes"][1]["failure"] == "no luck"
    assert document["failures"] == {"launch_error: 701": 2}


def test_output_is_the_table(kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path) -> None:
    """-o FILE holds the rows of exactly the shapes of the file."""
    ended(won)
    target = tmp_path / "table.json"
    assert kt(*TUNE, shapes, "-o", target).code == 0
    document = json.loads(target.read_text())
    assert document["schema"] == "kt.table/1"
    assert {row["problem"]["m"] for row in document["rows"]} == {1, 256, 512}


def test_output_dash_is_only_the_data(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """-o - prints the table file and nothing else on standard output."""
    ended(won)
    assert kt(*TUNE, shapes, "-o", "-").json["schema"] == "kt.table/1"


def test_shapes_that_stand_for_others_are_only_measured(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """Predicted, they would be winners like any other."""
    outcome = kt("tune", "gemm", "--shapes", shapes, "--device", "model:h200", "--unseen", "4", "--cache-dir", tmp_path)
    assert outcome.code == 2
    assert "--unseen asks for measurements, and NVIDIA H200 is only modelled here" in outcome.err
    assert not list(tmp_path.glob("*.sqlite3"))


def test_two_documents_on_one_stream_are_refused(kt: Command, shapes: Path) -> None:
    """--json and -o - cannot both have standard output."""
    assert kt(*TUNE, shapes, "--json", "-o", "-").code == 2


def test_a_failed_shape_is_exit_3_and_leaves_the_file(
    kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path
) -> None:
    """One shape without a configuration: it is named with its cause, and the old table stays."""
    ended(_but(won, 256, best=None, failure="all 9 candidates: wrong result"))
    target = tmp_path / "table.json"
    target.write_text("old")
    outcome = kt(*TUNE, shapes, "-o", target)
    assert outcome.code == 3
    assert target.read_text() == "old"
    assert "1 of 3 shapes has no valid configuration" in outcome.err
    assert "fp32 nn 256x512x512: all 9 candidates: wrong result" in outcome.err
    assert f"{target} was left as it was" in outcome.err
    assert "no valid configuration" in outcome.out


@pytest.mark.parametrize(
    ("target", "predicted", "said"),
    [
        ("-", False, "nothing was written to standard output, for the table is not whole; `kt export --json` writes"),
        ("new.json", False, "new.json was not made, for the table is not whole; `kt export --json` writes"),
        ("old.json", True, "old.json was left as it was, for the table is not whole; `kt export --json --predicted`"),
    ],
)
def test_what_became_of_the_output(
    kt: Command, shapes: Path, ended: Command, make_winner: Callable[..., BestConfig], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, target: str, predicted: bool, said: str,
) -> None:  # fmt: skip
    """The note is true of the file, and the command that it offers would have something to write."""
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text("old")
    ended(_but(lambda problem: ShapeResult(problem, make_winner(problem, predicted=predicted)), 256, best=None))
    assert said in kt(*TUNE, shapes, "-o", target).err


def test_no_command_is_offered_where_nothing_was_found(kt: Command, shapes: Path, ended: Command) -> None:
    """Without any result, `kt export` would fail."""
    ended(lambda problem: ShapeResult(problem, None, "no luck"))
    assert "kt export" not in kt(*TUNE, shapes, "-o", "-").err


def test_a_message_names_some_of_many_shapes(kt: Command, tmp_path: Path, ended: Command) -> None:
    """Hundreds of shapes with one cause are not one line of thousands of characters."""
    shapes = tmp_path / "many.yaml"
    shapes.write_text(f"shapes: [{{m: {list(range(1, 292))}, n: 4, k: 4}}]\n")
    ended(lambda problem: ShapeResult(problem, None, "the budget ended before this shape", untuned=True))
    err = kt(*TUNE, shapes, "--progress", "none").err
    assert "291 of 291 shapes were not tuned" in err
    assert "fp32 nn 8x4x4 and 283 more: the budget ended" in err


def test_the_budget_that_ended_is_exit_5(
    kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path
) -> None:
    """Shapes that were not reached are named, and no table is written."""
    ended(_but(won, 1, best=None, failure="the budget ended", untuned=True))
    target = tmp_path / "table.json"
    outcome = kt(*TUNE, shapes, "--budget", "60s", "-o", target)
    assert outcome.code == 5
    assert not target.exists()
    assert "1x512x512" in outcome.err
    assert "hint: the same command goes on from there" in outcome.err


def test_failed_before_untuned(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """If a shape failed and another was not reached, more budget alone would not help: exit 3."""
    ending = _but(won, 1, best=None, failure="the budget ended", untuned=True)
    ended(_but(ending, 256, best=None, failure="no luck"))
    assert kt(*TUNE, shapes).code == 3


def test_interrupted_is_exit_130(kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path) -> None:
    """After Ctrl-C the table of what there is is shown, the file is left, and the message says that it is saved."""
    ended(_but(won, 1, best=None, failure="interrupted", untuned=True), interrupted=True)
    target = tmp_path / "table.json"
    outcome = kt(*TUNE, shapes, "-o", target, "--cache-dir", tmp_path / "a cache")
    assert outcome.code == 130
    assert "kt: interrupted; the cache has every candidate that was done, and the same command goes on" in outcome.err
    assert (
        f"{target} was not made, for the table is not whole; `kt export --json --cache-dir '{tmp_path / 'a cache'}'`"
        in outcome.err
    )
    assert "512x512x512" in outcome.out
    assert not target.exists()


def test_the_three_failures_of_a_makefile_differ(
    kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path
) -> None:
    """Bad YAML, no GPU and a failed shape have three exit codes, none of them 0, and write nothing."""
    target = tmp_path / "table.json"
    bad = tmp_path / "bad.yaml"
    bad.write_text("shapes: [{m: 1e3, n: 4, k: 4}]\n")
    ended(_but(won, 256, best=None, failure="no luck"))
    codes = [
        kt("tune", "gemm", "--shapes", bad, "-o", target).code,
        kt("tune", "gemm", "--shapes", shapes, "-o", target).code,
        kt(*TUNE, shapes, "-o", target).code,
    ]
    assert codes == [2, 4, 3]
    assert not target.exists()


def test_input_files_are_checked_before_the_device(kt: Command, tmp_path: Path, shapes: Path) -> None:
    """A bad file shows on a machine without a GPU too, with file, line and column."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("shapes:\n  - {m: 4, n: 4, kk: 4}\n")
    outcome = kt("tune", "gemm", "--shapes", bad)
    assert outcome.code == 2
    assert f"{bad}:2:" in outcome.err
    assert kt("tune", "gemm", "--shapes", shapes, "--space", bad).code == 2
    assert kt("tune", "gemm", "--shapes", shapes, "--budget", "soon").code == 2
    assert kt("tune", "gemm", "--shapes", shapes, "--templates", tmp_path / "no").code == 2
    assert kt("tune", "gemm", "--shapes", shapes, "--peers", "mkl").code == 2
    assert kt("tune", "gemm", "--shapes", shapes, "-o", tmp_path).code == 2


def test_no_gpu_is_one_message_with_the_way_out(kt: Command, shapes: Path) -> None:
    """Exit 4 names the cause, `--device auto` and `model:…`."""
    outcome = kt("tune", "gemm", "--shapes", shapes)
    assert outcome.code == 4
    assert outcome.err.count("kt: error:") == 1
    assert "--device auto" in outcome.err
    assert "model:h200" in outcome.err
    assert outcome.out == ""


def test_an_unwritable_cache_ends_before_tuning(
    kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path
) -> None:
    """A cache that cannot be made is found before any work, and the message names it and the way out."""
    requests = ended(won)
    (tmp_path / "file").write_text("")
    outcome = kt(*TUNE, shapes, "--cache-dir", tmp_path / "file" / "cache")
    assert outcome.code == 1
    assert requests == []
    assert str(tmp_path / "file") in outcome.err
    assert "--cache-dir" in outcome.err


def test_the_device_is_checked_before_the_cache(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """Without a GPU no cache is made."""
    assert kt("tune", "gemm", "--shapes", shapes, "--cache-dir", tmp_path / "cache").code == 4
    assert not (tmp_path / "cache").exists()


def test_options_reach_the_tuner(kt: Command, shapes: Path, ended: Command, won: Ending, tmp_path: Path) -> None:
    """What the command line says is what the tuner is asked for: exactly the shapes of the file, no other."""
    (requests,) = [ended(won)]
    options = ("--strategy", "random", "--budget", "12", "--seed", 7, "--jobs", 3, "--retune", "--templates", tmp_path)
    assert kt(*TUNE, shapes, *options, "--peers", "cublaslt,cublas").code == 0
    (request,) = requests
    assert [problem.m for problem in request.problems] == [512, 256, 1]
    assert request.device.modelled
    assert (request.strategy, request.budget.evaluations, request.seed) == ("random", 12, 7)
    assert (request.compilers, request.retune, request.template_dirs) == (3, True, (tmp_path,))
    assert request.peers == ("cublaslt", "cublas")


def test_dtype_replaces_the_default_of_the_file(kt: Command, shapes: Path, ended: Command, won: Ending) -> None:
    """--dtype is for all rows that do not say their own."""
    requests = ended(won)
    kt(*TUNE, shapes, "--dtype", "fp64")
    assert {problem.dtype for problem in requests[0].problems} == {"fp64"}
    assert kt(*TUNE, shapes, "--dtype", "fp23").code == 2


def test_shapes_from_standard_input(kt_process: Command) -> None:
    """--shapes - reads the file from standard input; its messages say so."""
    outcome = kt_process("tune", "gemm", "--shapes", "-", stdin="shapes: [{m: 0, n: 4, k: 4}]\n")
    assert outcome.code == 2
    assert "m is 0" in outcome.err


def test_a_variable_that_leads_nowhere_is_named(
    kt: Command, shapes: Path, ended: Command, won: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kt needs no CUDA_HOME: a bad one is a warning, not a failure."""
    ended(won)
    monkeypatch.setenv("CUDA_HOME", "/nope")
    outcome = kt(*TUNE, shapes)
    assert outcome.code == 0
    assert "CUDA_HOME=/nope" in outcome.err


@pytest.mark.parametrize("text", ["60", "60s", "1.5m", "2h"])
def test_budgets(kt: Command, shapes: Path, ended: Command, won: Ending, text: str) -> None:
    """A number is candidates per shape; a number with s, m or h is time."""
    requests = ended(won)
    kt(*TUNE, shapes, "--budget", text)
    budget = requests[0].budget
    assert (budget.seconds, budget.evaluations) == {
        "60": (None, 60), "60s": (60.0, None), "1.5m": (90.0, None), "2h": (7200.0, None),
    }[text]  # fmt: skip


@pytest.mark.parametrize("text", ["0", "0s", "-5", "1.5", "5d", "s", "", "1e3"])
def test_bad_budgets_are_refused(kt: Command, shapes: Path, text: str) -> None:
    """Nothing to spend, a part of a candidate and unknown units are usage errors."""
    assert kt(*TUNE, shapes, f"--budget={text}").code == 2


def test_bugs_surface(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is not a KtError is a bug: it is not turned into a message."""

    def tune(*_: object) -> TuneResult:
        raise ZeroDivisionError

    monkeypatch.setattr(run, "tune", tune)
    from kt.cli.main import app

    with pytest.raises(ZeroDivisionError):
        app([*TUNE, str(shapes)], prog_name="kt")


def test_notes_of_a_winner(kt: Command, shapes: Path, ended: Command, make_winner: Callable[..., BestConfig]) -> None:
    """Ties, edges and noise stand beside the figures."""

    def ending(problem: Problem) -> ShapeResult:
        best = make_winner(problem, noisy=True, spread=0.042, edge=("tile_m",), tile_m=128)
        return ShapeResult(problem, replace(best, ties=(make_winner().config,)))

    ended(ending)
    out = kt(*TUNE, shapes).out
    assert "noisy, spread 4.2%; tied with 1 more; at the edge of tile_m" in out


def test_at_the_bandwidth_roof(kt: Command, tmp_path: Path, ended: Command, make_winner: Command) -> None:
    """A bandwidth-bound shape at 90% of its floor or more is said to be at its roof; a compute-bound one is not."""
    path = tmp_path / "shapes.yaml"
    path.write_text("shapes:\n  - {m: 1, n: 8192, k: 8192}\n  - {m: 4096, n: 4096, k: 4096}\n")
    ended(lambda problem: ShapeResult(problem, make_winner(problem, time_us=10.0, floor_us=9.5)))
    lines = kt(*TUNE, path).out.splitlines()
    assert "bandwidth" in lines[1]
    assert "at its bandwidth roof" in lines[1]
    assert "compute" in lines[2]
    assert "roof" not in lines[2]


def test_a_real_run_on_the_model(kt_process: Command, tmp_path: Path, small_family: tuple[str, ...]) -> None:
    """From an empty cache: every shape is compiled and ranked; again, nothing is compiled; all is marked predicted."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes:\n  - {m: [64, 100], n: 64, k: 64}\n")
    command = ("tune", "gemm", "--device", "model:a100", "--shapes", shapes, *small_family, "--json")
    first = kt_process(*command)
    assert first.code == 0, first.err
    assert [shape["outcome"] for shape in first.json["shapes"]] == ["predicted", "predicted"]
    assert first.json["compiled"] > 0
    assert {shape["result"]["kind"] for shape in first.json["shapes"]} == {"predicted"}
    second = kt_process(*command)
    assert [shape["outcome"] for shape in second.json["shapes"]] == ["cached", "cached"]
    assert second.json["compiled"] == 0


# Straight code that keeps the compiler busy for half a minute.
SLOW = """float sum = 0;
  float slow[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) slow[i] = a[i];
#pragma unroll
  for (int i = 0; i < 8000; ++i) slow[i % 64] = fmaf(slow[i * 7 % 64], a[i], __sinf(slow[i * 13 % 64]));
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += slow[i];
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code", "said"), [
    (signal.SIGINT, 130, "kt: interrupted"), (signal.SIGTERM, 143, "kt: ended by SIGTERM"),
])  # fmt: skip
def test_a_signal_during_a_compilation(
    tmp_path: Path, small_family: tuple[str, ...], number: int, code: int, said: str
) -> None:
    """To the whole group, as a terminal and `timeout` send it: the end within seconds, and no child is left."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes:\n  - {m: 64, n: 64, k: 64}\n")
    template = Path(small_family[-1]) / "gemm" / "small.cu.j2"
    template.write_text(template.read_text().replace("float sum = 0;", SLOW))
    command = [sys.executable, "-m", "kt", "tune", "gemm", "--device", "model:a100", "--shapes", str(shapes)]
    process = subprocess.Popen(
        [*command, *small_family], env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "to tune" not in process.stderr.readline():
        assert process.poll() is None
    _wait_for_child(process)
    time.sleep(1)  # the compilers are in the middle of it
    os.killpg(process.pid, number)
    before = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - before < 5
    assert process.returncode == code, err
    assert err.splitlines()[-1] == f"{said} before any candidate was done; the cache is as it was"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def _wait_for_child(process: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    limit = time.monotonic() + 30
    while not children.read_text().strip():
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.05)
