"""What `warmup` takes as shapes: a file, problems or mappings of their fields, each checked as a row of a file is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from kt.errors import InputError
from kt.problems import Problem
from kt.problems.shape_keys import KEYS, ShapeKey
from kt.runtime.whole import whole

__all__ = ["Shapes", "problems_of"]

Shapes = str | PathLike[str] | Iterable[Problem | Mapping[str, Any]]

_HINT = 'a shape looks like {"m": 64, "n": 64, "k": 64, "dtype": "bf16", "layout": "nt"}'
_DENSE_BY_ZERO = ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")
_LARGEST = 1e300  # as in a shapes file


def problems_of(shapes: Shapes) -> list[Problem]:
    """The problems.

    Raises:
        InputError: the file cannot be used, or one of the shapes is none; the message says which, and why.
    """
    if isinstance(shapes, str | PathLike):
        from kt.problems.shapes_file import load_shapes

        return load_shapes(str(shapes))
    if isinstance(shapes, Problem | Mapping) or not isinstance(shapes, Iterable):
        raise InputError(f"shapes is {_shown(shapes)}; it must be a list of shapes or a file's name", hint=_HINT)
    return [_problem(f"shape {number}", one) for number, one in enumerate(shapes)]


def _problem(place: str, shape: Any) -> Problem:
    fields = shape.as_dict() if isinstance(shape, Problem) else shape
    if not isinstance(fields, Mapping):
        raise InputError(f"{place} is {_shown(fields)}; it must be a mapping of its fields", hint=_HINT)
    known = {"epilogue", *KEYS}
    unknown = [str(name) for name in fields if name not in known]
    if unknown:
        raise InputError(f"{place} has no field {unknown[0]!r}", hint=f"the fields are {', '.join(KEYS)}")
    missing = [name for name in ("m", "n", "k") if name not in fields]
    if missing:
        raise InputError(f"{place} lacks {', '.join(missing)}", hint=_HINT)
    plain = {name: _plain(value) for name, value in fields.items()}
    for name, value in plain.items():
        _check(f"{place}: {name}", value, KEYS.get(name), 0 if name in _DENSE_BY_ZERO else None)
    try:
        return Problem(**plain)
    except InputError as error:
        raise InputError(f"{place}: {error.message}", hint=error.hint) from None


def _check(place: str, value: Any, key: ShapeKey | None, least: int | None) -> None:
    """The kind of a value, and its limits; which words there are is the problem's own check."""
    if key is None or key.kind == "choice":
        if not isinstance(value, str):
            raise InputError(f"{place} is {_shown(value)}; it must be text")
    elif key.kind == "number":
        if not (_is_number(value, int | float) and abs(value) < _LARGEST):  # false for nan
            raise InputError(f"{place} is {_shown(value)}; it must be a finite number below {_LARGEST:g}")
    else:
        lowest = key.least if least is None else least
        if not (_is_number(value, int) and lowest <= value <= key.most):
            raise InputError(f"{place} is {_shown(value)}; it must be a whole number from {lowest} to {key.most}")


def _plain(value: Any) -> Any:
    """Whole numbers as Python's own, which the cache's keys and kernels' arguments are made of; the rest as it is."""
    number = whole(value)
    return value if number is None else number


def _is_number(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value on a line, cut where it is long; Python refuses to write very long whole numbers."""
    try:
        text = repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:60] + "…"
