"""`kt export --check`: whether the cache, and a file made from it before, still say what they should."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kt.cli.listing import listed
from kt.errors import InputError, OutOfDate, ShapesMissing
from kt.wording import part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kt.cache.entries import Entry, Selection
    from kt.problems import Problem

__all__ = ["check_asked", "check_file", "check_shapes", "check_there"]


_REMEDY = "the same command without --check writes it"


def check_asked(formats: Sequence[str], output: str | None, *, with_shapes: bool, with_depfile: bool) -> None:
    """Raises InputError if there is nothing to check, or a file without its format or a format without its file."""
    from kt.cli.output import is_stdout

    if with_depfile:
        raise InputError("--check writes nothing, a depfile neither", hint="leave out --depfile")
    if is_stdout(output):
        raise InputError("--check compares with a file, and standard output is none", hint="name a file with -o")
    if (output is None) != (not formats):
        raise InputError("--check compares a file with what its format would say", hint="give -o FILE and the format")
    if output is None and not with_shapes:
        raise InputError("--check has nothing to check", hint="give --shapes FILE, or -o FILE and its format, or both")


def check_shapes(problems: Sequence[Problem], selection: Selection, tune: str) -> None:
    """Check that each shape has a winner to export.

    Args:
        tune: the command that finds what is missing.

    Raises:
        ShapesMissing: some have none.
        OutOfDate: all have one, but some only such as were made of other sources.
    """
    from kt.cache.key import problem_digest

    found = {problem_digest(entry.best.key.problem) for entry in selection.chosen}
    behind: dict[str, list[Entry]] = {}
    for entry in selection.passed_over:
        behind.setdefault(problem_digest(entry.best.key.problem), []).append(entry)
    lacking = {problem: behind.get(problem_digest(problem), []) for problem in problems
               if problem_digest(problem) not in found}  # fmt: skip
    stale = [problem for problem, known in lacking.items() if any(entry.state == "stale" for entry in known)]
    missing = [problem for problem in lacking if problem not in stale]
    hint = f"{tune} measures what is missing"
    if missing:
        raise ShapesMissing(_listing(missing, lacking, len(problems), "no winner"), hint=hint)
    if stale:
        raise OutOfDate(_listing(stale, lacking, len(problems), "only a stale winner"), hint=hint)


def check_there(path: str) -> None:
    """Check that there is a file, whatever it says; what it should say may take long to find out.

    Raises:
        OutOfDate: there is none.
        InputError: it is no file that can be looked at.
    """
    with _reading(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would have to be waited for
            raise InputError(f"{path} is no file", hint="name a file with -o")


def check_file(path: str, text: str) -> None:
    """Check that the file says what an export would write now.

    Raises:
        OutOfDate: it does not, or is not there.
        InputError: it cannot be read.
    """
    wanted = text.encode()
    check_there(path)
    with _reading(path), open(path, "rb") as file:
        same = file.read(len(wanted) + 1) == wanted
    if not same:
        raise OutOfDate(f"{path} is not what the cache says now", hint=_REMEDY)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise OutOfDate(f"{path} does not exist", hint=_REMEDY) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _listing(shapes: Sequence[Problem], known: dict[Problem, list[Entry]], total: int, what: str) -> str:
    """How many and which, each with what there is of it."""
    labels = [f"{problem.label}{_state(known[problem])}" for problem in shapes]
    said = f"{part(len(shapes), total, 'shape', 'has', 'have')} {what}"
    return "\n".join([said, *listed(labels)])


def _state(known: Sequence[Entry]) -> str:
    if not known:
        return ""
    entry = next((entry for entry in known if entry.state == "stale"), known[0])
    return f": {entry.state}{f' ({entry.reason})' if entry.reason else ''}"
