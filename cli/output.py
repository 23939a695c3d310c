"""Where data goes: JSON documents and tables for people."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kt.errors import InputError

__all__ = ["check_target", "is_stdout", "json_text", "print_json", "print_table"]

# Columns of sentences: they take the lines that they need, so that the others keep their figures whole.
_LONG = frozenset({"best predicted", "configuration", "notes", "reason", "unless", "verdict", "why"})
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def json_text(document: Any) -> str:
    """Strict JSON (no NaN, no infinity), indented, one newline at the end."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def print_json(document: Any) -> None:
    sys.stdout.write(json_text(document))


def is_stdout(target: str | None) -> bool:
    return target in _STDOUT


def check_target(target: str | None) -> None:
    """Refuse an output file that could not be written, before any work is done for it.

    Raises:
        InputError: it is a folder, its folder is missing, or the rights are.
    """
    if target is None or is_stdout(target):
        return
    from kt.export.write_file import check_output

    check_output(target)
    path = Path(target).resolve()
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{target} cannot be written: no permission", hint="name another file with -o")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: frozenset[str] = frozenset()) -> None:
    """A table on standard output: drawn on a terminal, aligned text elsewhere.

    Args:
        columns: headings.
        rows: cells, as many in each as there are headings.
        left: headings of the columns that are text; the others are numbers and align right.
    """
    if sys.stdout.isatty():
        _print_drawn(columns, rows, left)
    else:
        for line in _aligned([columns, *rows], [name in left for name in columns]):
            print(line)


def _aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _print_drawn(columns: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        wraps = name in _LONG
        table.add_column(name, justify="left" if name in left else "right", overflow="fold", no_wrap=not wraps)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
