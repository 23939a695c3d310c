"""How a table fits a terminal: no figure is ever cut, texts move below their row, and what is left out is named."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Line", "aligned", "fitted"]

GAP = "  "
INDENT = "    "


@dataclass(frozen=True)
class Line:
    """A line to print, and what it is: "heading", "row", "below" (a text of the row above it) or "footer"."""

    text: str
    role: str


def aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    """The rows with their columns beneath each other; `left` says which columns are text."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ]
        lines.append(GAP.join(cells).rstrip())
    return lines


def fitted(
    rows: Sequence[Sequence[str]], left: frozenset[str], width: int, *, long: frozenset[str], spare: Sequence[str]
) -> list[Line]:
    """The table in `width` characters, as far as that can be done without loss.

    Columns of sentences leave the line first, the last one before the others, and stand below their row. Then the
    spare columns go, which a last line says. What is wider still stays so: a terminal breaks such lines, and loses
    nothing.

    Args:
        rows: headings, then cells.
        left: headings of the columns that are text.
        long: headings of the columns of sentences.
        spare: headings of the columns that can be left out, the least useful one first.
    """
    headings = list(rows[0])
    shown, below, omitted = list(headings), list[str](), list[str]()
    for name in reversed([name for name in headings if name in long]):
        if _width(rows, shown) > width:
            shown.remove(name)
            below.insert(0, name)
    for name in spare:
        if name in shown and _width(rows, shown) > width:
            shown.remove(name)
            omitted.append(name)
    lines = _lines(rows, shown, below, left, width)
    if omitted:
        said = f"left out, for the window is too narrow: {', '.join(omitted)}"
        lines += [Line(part, "footer") for part in _wrapped(said, width, indent="")]
    return lines


def _cells(rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[str]]:
    places = [list(rows[0]).index(name) for name in names]
    return [[row[place] for place in places] for row in rows]


def _width(rows: Sequence[Sequence[str]], names: Sequence[str]) -> int:
    return max(map(len, aligned(_cells(rows, names), [True] * len(names))))


def _lines(
    rows: Sequence[Sequence[str]], shown: Sequence[str], below: Sequence[str], left: frozenset[str], width: int
) -> list[Line]:
    figures = aligned(_cells(rows, shown), [name in left for name in shown])
    lines = []
    for number, (text, sentences) in enumerate(zip(figures, _cells(rows, below), strict=True)):
        lines.append(Line(text, "row" if number else "heading"))
        lines += [Line(part, "below") for sentence in sentences for part in _wrapped(sentence, width)]
    return lines


def _wrapped(sentence: str, width: int, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(
        sentence, max(width, 2 * len(INDENT)), initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
