"""The input files and values of a command, read and checked before any device or cache is touched."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from kt.cli.output import is_stdout
from kt.errors import InputError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kt.problems import Problem
    from kt.problems.ranges import Range, RangedShape
    from kt.search_spaces.space import SearchSpace
    from kt.tuner.request import Budget

__all__ = [
    "check_folders",
    "check_ranges",
    "check_space",
    "check_streams",
    "check_templates",
    "read_age",
    "read_budget",
    "read_dtype",
    "read_peers",
    "read_ranged",
    "read_shapes",
    "read_spaces",
]

PEERS = ("cublas", "cublaslt")
_BUDGET = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>s|m|h|)")
_AGE = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>d|h|m)")
_AGE_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def check_streams(output: str | None, *, as_json: bool) -> None:
    """Refuse two documents on one standard output."""
    if as_json and is_stdout(output):
        raise InputError("--json and --output - both write to standard output", hint="leave out one of them")


def read_shapes(paths: Sequence[Path], dtype: str | None, ranges: Sequence[str] | None = None) -> list[Problem]:
    """The shapes of all files in the order of the files; one that stands in several is the same shape, once."""
    return read_ranged(paths, dtype, ranges)[0]


def read_ranged(
    paths: Sequence[Path], dtype: str | None, ranges: Sequence[str] | None = None
) -> tuple[list[Problem], list[RangedShape]]:
    """The shapes of all files, and which of them stand for a range of sizes.

    Args:
        ranges: of `--range`; they replace what the files say of these sizes.

    Raises:
        OptionError: one is no range, or two are of one size.
    """
    from kt.problems.shapes_file import load_ranged

    given, dtype = _read_ranges(ranges or ()), read_dtype(dtype)
    files = [load_ranged(path, dtype=dtype, ranges=given) for path in dict.fromkeys(paths)]
    problems = dict.fromkeys(problem for found, _ in files for problem in found)
    return list(problems), [one for _, ranged in files for one in ranged]


def read_dtype(name: str | None) -> str | None:
    """kt's name for the number format of `--dtype`; None if the option was not given.

    Raises:
        OptionError: there is no such format.
    """
    from kt.problems.dtype_names import check_dtype

    try:
        return None if name is None else check_dtype(name)
    except InputError as error:
        raise OptionError("dtype", error.message.removeprefix("dtype "), hint=error.hint) from None


def check_ranges(ranges: Sequence[str] | None, shapes: Sequence[Path] | None) -> None:
    """Raises InputError if there is a `--range` and no file whose sizes it could replace."""
    if ranges and not shapes:
        raise InputError("--range is for the shapes of a file", hint="give --shapes, as to kt tune")


def _read_ranges(texts: Sequence[str]) -> dict[str, Range]:
    from kt.problems.ranges import read_range

    found: dict[str, Range] = {}
    for text in texts:
        try:
            name, one = read_range(text)
        except InputError as error:
            raise OptionError("range", f"{text!r}: {error.message}", hint=error.hint) from error
        if name in found:
            raise OptionError("range", f"{text!r}: {name} has another range already", hint="give one for a size")
        found[name] = one
    return found


def read_spaces(path: Path | None, problems: Sequence[Problem]) -> list[SearchSpace]:
    """The built-in spaces, or what `--space` makes of them, that may serve these problems."""
    from kt.search_spaces.loader import resolve_spaces

    check_space(path)
    return resolve_spaces(path, tuple(dict.fromkeys(problem.dtype for problem in problems)))


def check_space(path: Path | None) -> None:
    """Raises OptionError if the file of `--space` is not there; what is wrong in it is told with its line."""
    if path is not None and str(path) != "-" and not os.path.lexists(path):
        raise OptionError("space", f"{path} does not exist")


def check_folders(folders: Sequence[Path] | None) -> tuple[Path, ...]:
    """The `--templates` folders.

    Raises:
        InputError: one is not a folder.
    """
    for folder in folders or ():
        if not os.path.isdir(folder):  # unlike Path.is_dir, no error for one that nobody may look at
            raise OptionError("templates", f"{folder} is not a folder", hint="name the folder that holds gemm/….cu.j2")
    return tuple(folder.resolve() for folder in folders or ())


def check_templates(spaces: Sequence[SearchSpace], folders: Sequence[Path] | None) -> tuple[Path, ...]:
    """The `--templates` folders, where all that the spaces need is found.

    Raises:
        InputError: one is not a folder, or a template, or a file that it includes, is missing or cannot be read.
    """
    from kt.templates.digest import template_files

    checked = check_folders(folders)
    for space in spaces:
        template_files(space.template, checked)
    return checked


def read_peers(text: str) -> tuple[str, ...]:
    """`cublas,cublaslt` as names; an empty text or `none` is no peer."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ("none",):
        return ()
    for name in names:
        if name not in PEERS:
            raise OptionError("peers", f"{text!r}: {name!r} is unknown", hint=f"known: {', '.join(PEERS)}, or none")
    return names


def read_budget(text: str | None) -> Budget:
    """`--budget`: a limit of time (`60s`, `5m`, `1h`) or of candidates per shape (`500`); no text means no limit.

    Raises:
        InputError: another form, a fraction of a candidate, or nothing at all to spend.
    """
    from kt.tuner.request import Budget

    if text is None:
        return Budget()
    form = _BUDGET.fullmatch(text.strip())
    if form is None:
        raise OptionError("budget", f"{text!r} is neither a time nor a number", hint="for example 60s, 5m, 1h or 500")
    number, unit = float(form["number"]), form["unit"]
    if number == 0:
        raise OptionError("budget", f"{text!r} leaves nothing to spend", hint="leave the option out for no limit")
    if unit:
        return Budget(seconds=number * _SECONDS[unit])
    if not number.is_integer():
        raise OptionError("budget", f"{text!r}: candidates come whole", hint="for a time, add s, m or h")
    return Budget(evaluations=int(number))


def read_age(text: str) -> timedelta:
    """`90d`, `12h` or `30m` as a time span.

    Raises:
        InputError: another form.
    """
    form = _AGE.fullmatch(text.strip())
    if form is None:
        raise InputError(f"--older-than {text!r} is no time span", hint="for example 90d, 12h or 30m")
    return timedelta(**{_AGE_UNITS[form["unit"]]: int(form["number"])})
