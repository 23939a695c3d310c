"""Where data goes: JSON documents and tables for people."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from kt.cli.printable import printable_cell

__all__ = ["is_stdout", "json_text", "print_json", "print_table", "unwritten"]

# Columns of sentences: where a window is too narrow, they stand below their row.
_LONG = frozenset({"best predicted", "configuration", "notes", "reason", "unless", "why"})
_STYLES = {"heading": "1", "below": "2", "footer": "2"}  # of a terminal: bold, faint
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def json_text(document: Any) -> str:
    """Strict JSON in ASCII (no NaN, no infinity), indented, one newline at the end.

    A byte of a path that is not UTF-8 is written as Python has it, `\\udcff` for 0xff: raw, it would be no JSON.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def print_json(document: Any) -> None:
    """Writes it out at once: where it cannot be written, nothing is said after it but that."""
    sys.stdout.write(json_text(document))
    sys.stdout.flush()


def is_stdout(target: str | None) -> bool:
    return target in _STDOUT


def unwritten(target: str) -> str:
    """What became of an output file that was not written."""
    if is_stdout(target):
        return "nothing was written to standard output"
    return f"{target} was left as it was" if os.path.lexists(target) else f"{target} was not made"


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: frozenset[str] = frozenset(),
    spare: Sequence[str] = (),
) -> None:
    """A table on standard output: fitted to the window on a terminal, elsewhere one line per row, however long.

    Args:
        columns: headings.
        rows: cells, as many in each as there are headings.
        left: headings of the columns that are text; the others are numbers and align right.
        spare: headings of the columns that a narrow window does without, the least useful one first.
    """
    from kt.cli.table_layout import aligned, fitted

    table = _without_silent([columns, *([printable_cell(cell) for cell in row] for row in rows)])
    shown = table[0]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        for line in fitted(table, left, width, long=_LONG, spare=spare):
            print(_styled(line.text, line.role))
    else:
        for text in aligned(table, [name in left for name in shown]):
            print(text)
    sys.stdout.flush()  # as `print_json`


def _without_silent(table: list[Sequence[str]]) -> list[Sequence[str]]:
    """The table without columns of sentences in which nothing is said."""
    places = [
        place for place, heading in enumerate(table[0]) if heading not in _LONG or any(row[place] for row in table[1:])
    ]
    return [[row[place] for place in places] for row in table]


def _styled(text: str, role: str) -> str:
    if role not in _STYLES or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[role]}m{text}\x1b[0m"
