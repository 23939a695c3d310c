"""shapes.yaml: from the file to distinct problems, and its JSON Schema.

The rows are checked by hand from the table in `shape_keys`, not by pydantic: each message must name the line and column
of one value, a file must load within milliseconds, and the same table makes the JSON Schema.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any

from kt.errors import InputError
from kt.problems.dtype_names import DTYPE_ALIASES, canonical_dtype, check_dtype
from kt.problems.problem import Problem
from kt.problems.ranges import MAX_BUCKETS, Range, RangedShape
from kt.problems.shape_keys import INFORMATION, KEYS, ShapeKey
from kt.problems.yaml_source import Document, Key, joined, path_text, read_yaml
from kt.problems.yaml_values import check_keys, choice, describe, entries, fail, whole_number
from kt.wording import plural

__all__ = ["MAX_PROBLEMS", "load_ranged", "load_shapes", "shapes_schema"]

MAX_PROBLEMS = 100_000

_ROW = {**KEYS, **dict.fromkeys(INFORMATION)}
RANGE_KEYS = ("from", "to", "buckets")
_EXAMPLE = "a row looks like {m: 4096, n: 4096, k: 4096}"

Values = Mapping[str, tuple[Any, ...]]


def load_shapes(
    path: Path | str, *, dtype: str | None = None, ranges: Mapping[str, Range] | None = None
) -> list[Problem]:
    """The distinct problems of a shapes file, in the order of the file.

    Args:
        path: the file; "-" is standard input.
        dtype: replaces the file's default number format; a row's own `dtype` stands.
        ranges: replace what rows and defaults say of these sizes.

    Raises:
        InputError: the file cannot be used; up to ten rows with errors are named at once.
    """
    return load_ranged(path, dtype=dtype, ranges=ranges)[0]


def load_ranged(
    path: Path | str, *, dtype: str | None = None, ranges: Mapping[str, Range] | None = None
) -> tuple[list[Problem], list[RangedShape]]:
    """The problems of a shapes file, as `load_shapes` gives them, and which of them stand for a range of sizes."""
    document = read_yaml(path, lenient=True)
    refused = _refused_rows(document)
    keys, rows, defaults = _parts(document)
    if dtype is not None:
        defaults = {**defaults, "dtype": (check_dtype(dtype),)}
    given = {name: (one,) for name, one in (ranges or {}).items()}
    problems: dict[Problem, None] = {}
    ranged: list[RangedShape] = []
    errors: dict[int, list[InputError]] = {}
    for index, row in enumerate(rows):
        if index in refused:
            errors[index] = _with_wrong_values(document, (*keys, index), row, refused[index])
            continue
        try:
            values = _filled(document, (*keys, index), row, defaults, given)
            problems.update(dict.fromkeys(_problems(document, (*keys, index), values)))
            ranged += _ranged(values)
        except InputError as error:
            errors[index] = _with_wrong_values(document, (*keys, index), row, [error])
        if len(problems) > MAX_PROBLEMS:
            raise fail(document, (*keys, index), f"brings the file above {MAX_PROBLEMS} shapes", "shorten its lists")
    if errors:
        rows_text = f"{len(errors)} rows" if len(errors) > 1 else "a row"
        raise joined(list(chain(*errors.values())), f"{document.path}: {rows_text} cannot be used")
    return list(problems), ranged


def _refused_rows(document: Document) -> dict[int, list[InputError]]:
    """What YAML readers disagree on, by the number of its row.

    Raises:
        InputError: some of it stands outside of the rows, which cannot be judged then.
    """
    head: tuple[Key, ...] = () if isinstance(document.data, list) else ("shapes",)
    rows: dict[int, list[InputError]] = {}
    for refusal in document.refusals:
        place = refusal.keys[len(head) :]
        if refusal.keys[: len(head)] != head or not place or not isinstance(place[0], int):
            errors = [refusal.error for refusal in document.refusals]
            raise joined(errors, f"{document.path}: {plural(len(errors), 'value')} cannot be read")
        rows.setdefault(place[0], []).append(refusal.error)
    return rows


def _parts(document: Document) -> tuple[tuple[Key, ...], list[Any], Values]:
    """Where the rows stand, the rows, and the defaults."""
    data = document.data
    if isinstance(data, list):
        return (), entries(document, (), data, "rows"), {}
    if not isinstance(data, dict):
        raise fail(document, (), f"is {describe(document, (), data)}; it must have a list `shapes:`", _EXAMPLE)
    if "shapes" not in data and {"m", "n", "k"} & data.keys():
        raise fail(document, (), "has no list `shapes:`", "put the rows under `shapes:`; " + _EXAMPLE)
    check_keys(document, (), data, {**_ROW, "shapes": None})
    if "shapes" not in data:
        raise fail(document, (), "has no list `shapes:`", _EXAMPLE)
    rows = entries(document, ("shapes",), data["shapes"], "rows")
    return ("shapes",), rows, _values(document, (), {k: v for k, v in data.items() if k != "shapes"})


def _filled(document: Document, keys: tuple[Key, ...], row: Any, defaults: Values, given: Values) -> Values:
    """All values of a row."""
    if not isinstance(row, dict):
        raise fail(document, keys, f"is {describe(document, keys, row)}; it must be a row of keys", _EXAMPLE)
    check_keys(document, keys, row, _ROW)
    values = {**defaults, **_values(document, keys, row), **given}
    for name in ("m", "n", "k"):
        if name not in values:
            raise fail(document, keys, f"has no {name}", f"give {name} in the row or at the top of the file")
    count = math.prod(len(_sizes(choices)) for choices in values.values())
    if count > MAX_PROBLEMS:
        shapes = plural(count, "shape")
        raise fail(document, keys, f"stands for {shapes}, more than {MAX_PROBLEMS}", "shorten its lists")
    return values


def _problems(document: Document, keys: tuple[Key, ...], values: Values) -> Iterator[Problem]:
    """One problem for each combination of the row's lists."""
    for combination in _combinations(values):
        yield _problem(document, keys, combination)


def _ranged(values: Values) -> Iterator[RangedShape]:
    """For each range of a row one for each combination of everything else."""
    for name, choices in values.items():
        for one in choices:
            if isinstance(one, Range):
                others = {other: choices for other, choices in values.items() if other != name}
                yield from (RangedShape(name, one, combination) for combination in _combinations(others))


def _combinations(values: Values) -> Iterator[dict[str, Any]]:
    for combination in product(*map(_sizes, values.values())):
        yield dict(zip(values, combination, strict=True))


def _sizes(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """The choices, with those of a range in its place."""
    return tuple(chain(*(one.sizes if isinstance(one, Range) else (one,) for one in choices)))


def _problem(document: Document, keys: tuple[Key, ...], values: dict[str, Any]) -> Problem:
    try:
        problem = Problem(**values)
    except InputError as error:
        # The message begins with the name of the field at fault; it may stand in the row or among the defaults.
        field = error.message.split()[0]
        place = document.where(field) if _is_default(document, keys, field) else document.where(*keys, field)
        raise InputError(f"{place}: {path_text(keys)}: {error.message}", hint=error.hint) from None
    for operand in "abc":
        if problem.footprint(operand) >= 2**63:
            raise fail(document, keys, f"has an operand {operand.upper()} of 2**63 bytes or more", "check the extents")
    return problem


def _is_default(document: Document, keys: tuple[Key, ...], field: str) -> bool:
    return keys[0] == "shapes" and field in document.data and field not in document.data["shapes"][keys[1]]


def _values(document: Document, keys: tuple[Key, ...], row: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: _choices(document, (*keys, name), KEYS[name], row[name]) for name in row if name in KEYS}


def _with_wrong_values(
    document: Document, keys: tuple[Key, ...], row: Any, known: list[InputError]
) -> list[InputError]:
    """The known errors of a row, and one for each other key whose value cannot be used: so one look shows them all."""

    def place(error: InputError) -> str:
        return error.message.removeprefix(document.path).partition(": ")[0]

    errors = {place(error): error for error in known}
    for name in row if isinstance(row, dict) else ():
        try:
            _values(document, keys, {name: row[name]})
        except InputError as error:
            errors.setdefault(place(error), error)
    return [*known, *(error for error in errors.values() if error not in known)]


def _choices(document: Document, keys: tuple[Key, ...], key: ShapeKey, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        return (_value(document, keys, key, value),)
    if not key.many:
        raise fail(document, keys, "is a list; it takes one value", "write one row for each value")
    items = entries(document, keys, value, "values")
    return tuple(_value(document, (*keys, index), key, item) for index, item in enumerate(items))


def _value(document: Document, keys: tuple[Key, ...], key: ShapeKey, value: Any) -> Any:
    if key.kind == "whole" and key.many and isinstance(value, dict):
        return _range(document, keys, key, value)
    if key.kind == "whole":
        return whole_number(document, keys, value, key.least, key.most)
    if key.kind == "number":
        return _factor(document, keys, value)
    known = canonical_dtype(value) if isinstance(value, str) and "nn" not in key.choices else value
    return known if known in key.choices else choice(document, keys, value, key.choices)


def _range(document: Document, keys: tuple[Key, ...], key: ShapeKey, value: dict[str, Any]) -> Range:
    check_keys(document, keys, value, RANGE_KEYS)
    for name in ("from", "to"):
        if name not in value:
            raise fail(document, keys, f"has no {name}", "a range looks like {from: 1, to: 4096, buckets: 12}")
    first, last = (whole_number(document, (*keys, name), value[name], key.least, key.most) for name in ("from", "to"))
    if last < first:
        raise fail(document, keys, f"is a range from {first} to {last}, which is empty", "give the smaller one first")
    if "buckets" not in value:
        return Range.doubling(first, last)
    return Range(first, last, whole_number(document, (*keys, "buckets"), value["buckets"], 1, MAX_BUCKETS))


def _factor(document: Document, keys: tuple[Key, ...], value: Any) -> float:
    if type(value) in (int, float) and abs(value) < 1e300:  # false for nan
        return float(value)
    quoted = isinstance(value, str) and value.lstrip("-").replace(".", "", 1).isdigit()
    hint = "remove the quotes" if quoted else "write a number like 1.5 or 1e-3"
    raise fail(document, keys, f"is {describe(document, keys, value)}; it must be a finite number", hint)


def shapes_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of shapes.yaml, for editors."""
    properties = {name: _schema_of(key) for name, key in KEYS.items()}
    notes = {name: {"description": "a note; kt does not use it"} for name in INFORMATION}
    row = {"type": "object", "properties": {**properties, **notes}, "additionalProperties": False}
    rows = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/row"}, "description": "one GEMM or more a row"}
    whole = {**row, "properties": {"shapes": rows, **properties, **notes}, "required": ["shapes"]}
    bare = {**rows, "items": {"allOf": [{"$ref": "#/$defs/row"}, {"required": ["m", "n", "k"]}]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kt:shapes:1",
        "title": "kt shapes file",
        "description": "GEMM problems to tune; keys beside `shapes` are defaults of every row.",
        "anyOf": [whole, bare],
        "$defs": {"row": row},
    }


def _schema_of(key: ShapeKey) -> dict[str, Any]:
    if key.kind == "whole":
        one: dict[str, Any] = {"type": "integer", "minimum": key.least, "maximum": key.most}
    elif key.kind == "number":
        one = {"type": "number"}
    else:
        aliases = [alias for alias, name in DTYPE_ALIASES.items() if name in key.choices]
        one = {"enum": [*key.choices, *aliases]}
    if not key.many:
        return {"description": key.meaning, **one}
    item = {"anyOf": [one, _range_schema(one)]} if key.kind == "whole" else one
    choices = [*item.get("anyOf", [one]), {"type": "array", "minItems": 1, "items": item}]
    return {"description": key.meaning, "anyOf": choices}


def _range_schema(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "a size that is known at run time only, in buckets that grow by one factor",
        "properties": {"from": one, "to": one, "buckets": {"type": "integer", "minimum": 1, "maximum": MAX_BUCKETS}},
        "required": ["from", "to"],
        "additionalProperties": False,
    }
