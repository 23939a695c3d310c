"""What is shown while a run goes on."""

import io
import sys
from collections.abc import Callable

import pytest

from kt.cache.records import BestConfig, Measurement
from kt.cli import progress
from kt.cli.options import ProgressMode
from kt.cli.progress import BarProgress, LineProgress, RunDisplay
from kt.problems import Problem
from kt.search_spaces.space import Config

CONFIG = Config("simt", (("tile_m", 64),))
PROBLEM = Problem(512, 512, 512)


def _run(display: RunDisplay, best: BestConfig | None) -> None:
    """Two shapes: one with a winner, one without."""
    with display:
        display.run_started(3, 1)
        display.shape_started(PROBLEM, 2)
        display.compiled(1, 2)
        display.candidate_done(PROBLEM, CONFIG, Measurement("ok", 12.5))
        display.candidate_done(PROBLEM, CONFIG, Measurement("timeout", detail="took longer than 6 s"))
        display.shape_finished(PROBLEM, best, "")
        display.shape_started(Problem(1, 1, 1), 1)
        display.warning("cublas cannot be timed")
        display.shape_finished(Problem(1, 1, 1), None, "no valid configuration")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines(capsys: pytest.CaptureFixture[str], make_winner: Callable[..., BestConfig]) -> None:
    """Off a terminal: one line per shape with its number, its time and rate or its failure; warnings as they come."""
    _run(progress.progress(ProgressMode.auto, quiet=False, verbose=False), make_winner())
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "kt: 3 shapes, 1 of them in the cache",
        "kt: [2/3] fp32 nn 512x512x512: 12.5 us, 21.5 TFLOP/s, simt, 2 candidates in this run",
        "kt: warning: cublas cannot be timed",
        "kt: [3/3] fp32 nn 1x1x1: no valid configuration",
    ]


@pytest.mark.parametrize(
    ("cached", "line"),
    [
        (0, "kt: 44 shapes and 64 that nobody lists to tune"),
        (3, "kt: 44 shapes and 64 that nobody lists, 3 of them in the cache"),
    ],
)
def test_shapes_that_nobody_lists_are_told_apart(cached: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Who gave 44 shapes is not told of 108."""
    LineProgress().run_started(108, cached, 64)
    assert capsys.readouterr().err.splitlines() == [line]


def test_a_shape_that_was_not_begun_has_no_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    """The count of a line is that of its own shape, also where the budget ended or nothing serves the shape."""
    display = LineProgress()
    display.run_started(3, 0)
    display.shape_started(PROBLEM, 2)
    display.candidate_done(PROBLEM, CONFIG, Measurement("ok", 26.6449))
    display.shape_finished(Problem(1, 1, 1), None, "no family serves it")
    display.shape_finished(PROBLEM, None, "wrong")
    display.shape_finished(Problem(2, 2, 2), None, "the budget ended before this shape")
    assert capsys.readouterr().err.splitlines()[1:] == [
        "kt: [1/3] fp32 nn 1x1x1: no family serves it",
        "kt: [2/3] fp32 nn 512x512x512: wrong, 1 candidate in this run",
        "kt: [3/3] fp32 nn 2x2x2: the budget ended before this shape",
    ]


def test_times_have_the_digits_of_the_table() -> None:
    """A time is as long in a line of progress as in the table: its noise is not shown as precision."""
    assert progress.outcome_text(Measurement("ok", 26.6449)) == "26.6 us"
    assert progress.outcome_text(Measurement("ok", 2.0449, predicted=True)) == "2.04 us predicted"


def test_verbose_lines(capsys: pytest.CaptureFixture[str], make_winner: Callable[..., BestConfig]) -> None:
    """With -v each candidate has its line: time, or status with detail."""
    _run(LineProgress(verbose=True), make_winner())
    err = capsys.readouterr().err
    assert "simt tile_m=64: 12.5 us" in err
    assert "simt tile_m=64: timeout: took longer than 6 s" in err


@pytest.mark.parametrize(("mode", "quiet", "said"), [("none", False, 1), ("auto", True, 0), ("none", True, 0)])
def test_silence(
    capsys: pytest.CaptureFixture[str], make_winner: Callable[..., BestConfig], mode: str, quiet: bool, said: int
) -> None:
    """`--progress none` leaves the warnings, `--quiet` nothing."""
    _run(progress.progress(ProgressMode(mode), quiet=quiet, verbose=False), make_winner())
    err = capsys.readouterr().err
    assert len(err.splitlines()) == said


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal of 120 columns; to be called in the test, for pytest sets its own stream."""

    def replace_stderr() -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return replace_stderr


def test_bars_on_a_terminal(terminal: Callable[[], Terminal], make_winner: Callable[..., BestConfig]) -> None:
    """On a terminal: bars for shapes, compilations and candidates with rates, and what ended stays as a line above."""
    stream = terminal()
    display = progress.progress(ProgressMode.auto, quiet=False, verbose=False)
    assert isinstance(display, BarProgress)
    _run(display, make_winner())
    text = stream.getvalue()
    for part in ("shapes", "kernels compiled", "candidates", "2/3", "512x512x512: 12.5 us", "no valid configuration"):
        assert part in text
    assert "kt: warning: cublas cannot be timed" in text


def test_plain_is_plain_on_a_terminal_too(terminal: Callable[[], Terminal]) -> None:
    """--progress plain draws no bars."""
    terminal()
    assert isinstance(progress.progress(ProgressMode.plain, quiet=False, verbose=False), LineProgress)


def test_a_dumb_terminal_gets_lines(terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM=dumb cannot move its cursor."""
    terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress.progress(ProgressMode.auto, quiet=False, verbose=False), LineProgress)


def test_no_color(
    terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch, make_winner: Callable[..., BestConfig]
) -> None:
    """With NO_COLOR there are bars, but no colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = terminal()
    _run(BarProgress(), make_winner())
    text = stream.getvalue()
    assert "shapes" in text
    assert not any(f"\x1b[{code}m" in text for code in (*range(30, 38), *range(90, 98)))
    assert "\x1b[38;" not in text


def _count(mode: str, *, quiet: bool = False) -> None:
    with progress.counted("shapes planned", ProgressMode(mode), quiet=quiet) as count:
        for done in range(1, 4):
            count(done, 3)


def test_what_takes_long_is_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Off a terminal: nothing in the first seconds, then a line now and then; none with -q or `--progress none`."""
    _count("auto")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "LINE_AFTER_S", 0.0)
    _count("none")
    _count("auto", quiet=True)
    assert capsys.readouterr().err == ""
    _count("auto")
    assert capsys.readouterr().err == "kt: 1 of 3 shapes planned\n"
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    _count("plain")
    assert capsys.readouterr().err.splitlines()[-1] == "kt: 3 of 3 shapes planned"


@pytest.mark.parametrize(
    ("recent", "done", "elapsed_s", "text"),
    [
        (None, 0, 9.0, ""), (55410.9, 8, 0.2, ""), (55410.9, 8, 2.0, "4.0/s"), (3.0, 100, 10.0, "3.0/s"),
        (0.0, 1, 2.0, ""), (5.0, 1, None, ""),
    ],
)  # fmt: skip
def test_a_rate_is_one_that_a_person_can_expect(
    recent: float | None, done: int, elapsed_s: float | None, text: str
) -> None:
    """Eight shapes that are planned side by side end at one moment: that is no 55,410 shapes a second."""
    assert progress.speed_text(recent, done, elapsed_s) == text


def test_a_count_is_a_bar_on_a_terminal(terminal: Callable[[], Terminal]) -> None:
    stream = terminal()
    _count("auto")
    assert "shapes planned" in stream.getvalue()
    assert "3/3" in stream.getvalue()
