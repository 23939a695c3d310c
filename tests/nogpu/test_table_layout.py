"""Tables on a terminal: whole figures at every width, notes that never go, and a sign where a column does."""

import io
import re
import sys
from collections.abc import Callable

import pytest

from kt.cache.records import BestConfig
from kt.cli.output import print_table
from kt.cli.result_table import ResultLine, known_device, print_results
from kt.cli.table_layout import fitted
from kt.problems import Problem

COLUMNS = ("shape", "time us", "GB/s", "tried", "notes")
ROWS = [
    ("fp32 nt 1x28672x4096", "462.136", "3779", "92/139968000", "predicted, not measured"),
    ("fp32 nt 512x28672x4096", "2049.49", "214", "9/139968000", "noisy, spread 4.2%; tied with 12 more"),
]
LEFT = frozenset({"shape", "notes"})


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Terminal]:
    """Makes standard output a terminal of so many columns; to be called in the test."""

    def replace_stdout(width: int) -> Terminal:
        stream = Terminal()
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return replace_stdout


def _fit(width: int, spare: tuple[str, ...] = ("tried", "GB/s")) -> list[str]:
    lines = fitted([COLUMNS, *ROWS], LEFT, width, long=frozenset({"notes"}), spare=spare)
    return [line.text for line in lines]


@pytest.mark.parametrize("width", range(1, 161, 3))
def test_every_figure_and_note_is_whole_or_its_column_is_named(width: int) -> None:
    """Whatever the width: a cell stands there in full, or its whole column is gone and the last line says so."""
    lines = _fit(width)
    text = " ".join(" ".join(lines).split())
    table, _, said = text.partition("left out, for the window is too narrow: ")
    omitted = said.split(", ") if said else []
    assert set(omitted) <= {"tried", "GB/s"}
    for row in [COLUMNS, *ROWS]:
        for name, cell in zip(COLUMNS, row, strict=True):
            present = re.search(rf"(?<!\S){re.escape(cell)}(?!\S)", table)
            assert bool(present) != (name in omitted), (width, cell)


def test_a_wide_window_has_one_line_a_row() -> None:
    """Where all fits, nothing is moved and nothing is left out."""
    assert len(_fit(120)) == 3


def test_a_column_of_notes_without_a_note_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Its heading would take a line of its own in a narrow window."""
    print_table(("shape", "notes", "us"), [("a", "", "1"), ("b", "", "2")], left=LEFT)
    assert capsys.readouterr().out == "shape  us\na       1\nb       2\n"
    print_table(("shape", "notes", "us"), [("a", "", "1"), ("b", "x", "2")], left=LEFT)
    assert "notes" in capsys.readouterr().out


def test_a_narrower_window_moves_the_notes_below() -> None:
    """Figures stay beneath each other, and each note follows its row."""
    lines = _fit(60)
    assert max(map(len, lines)) <= 60
    assert [line.strip() for line in lines[1::2]] == ["notes", ROWS[0][-1], ROWS[1][-1]]
    assert lines[2].index("3779") + 4 == lines[4].index("214") + 3


def test_columns_go_in_the_order_of_their_use() -> None:
    """Only as many as have to, the least useful first; the others are wider than the window rather than cut."""
    assert _fit(48)[-1] == "left out, for the window is too narrow: tried"
    assert " ".join(_fit(20)[-3:]) == "left out, for the window is too narrow: tried, GB/s"
    assert any("2049.49   214   9/139968000" in line for line in _fit(5, spare=()))


def test_texts_are_wrapped_at_spaces() -> None:
    """A long note takes several lines; a word longer than the window is not cut."""
    rows = [("shape", "notes"), ("x", "a" * 40 + " tail of a note")]
    lines = [line.text for line in fitted(rows, LEFT, 20, long=frozenset({"notes"}), spare=())]
    assert lines == ["shape", "    notes", "x", "    " + "a" * 40, "    tail of a note"]


def test_the_terminal_gets_bold_headings(terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch) -> None:
    """Headings stand out on a terminal; NO_COLOR leaves plain text."""
    stream = terminal(120)
    print_table(COLUMNS, ROWS, left=LEFT)
    assert stream.getvalue().startswith("\x1b[1mshape")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = terminal(120)
    print_table(COLUMNS, ROWS, left=LEFT)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("state", "mark"), [("predicted", "7 of 9 tried"), ("", "predicted, not measured; 7 of 9 tried")]
)
@pytest.mark.parametrize("width", [40, 80, 100, 120, 160])
def test_results_keep_times_and_marks(
    terminal: Callable[[int], Terminal], make_winner: Callable[..., BestConfig], width: int, state: str, mark: str
) -> None:
    """At every width a predicted result is marked so, once, by its state or a note; its time is there in full."""
    stream = terminal(width)
    best = make_winner(Problem(512, 28672, 4096, "fp32", "nt"), time_us=10383.04, predicted=True, total=139968000)
    line = ResultLine(best.key.problem, best, known_device(best.key.device), state, "7 of 9 tried")
    print_results([line], verbose=False, with_device=True)
    text = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert " 10383.0 " in text
    assert mark in " ".join(text.split())
    assert text.count("predicted") == 1
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width
