"""The parts of a search-space file, each read and checked with its place: values, default, rules, launches."""

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from kt.errors import InputError
from kt.problems.yaml_source import Document, Key
from kt.problems.yaml_values import (
    check_keys,
    choice,
    closest,
    describe,
    entries,
    fail,
    mapping,
    text,
    whole_number,
)
from kt.search_spaces.expression import Expression
from kt.search_spaces.scope import Scope, check_name
from kt.search_spaces.space import Constraint, LaunchRule, TensorMapRule, Tiny, Value
from kt.wording import plural

__all__ = [
    "Choices",
    "check_family",
    "read_choices",
    "read_constraints",
    "read_default",
    "read_derived",
    "read_launches",
    "read_starts",
    "read_tiny",
    "read_values",
    "unknown_parameter",
]

MAX_VALUES = 4096
MOST_TINY = 8  # configurations for tiny problems: a header has each for every layout and three alignments
_LIMIT = 2**31 - 1
_WORD = re.compile(r"[A-Za-z0-9_.+-]+")
_OF_MAP = {
    "when": True, "copied": False, "offset": 0, "pitch": 0, "turned": False, "width": 0, "classes": 1, "number": 0,
}  # fmt: skip
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Choices = Mapping[str, tuple[Value, ...]]


def read_choices(document: Document, key: str, taken: Choices, *, numbers_only: bool) -> dict[str, tuple[Value, ...]]:
    """The parameters under `key`: name -> values, in the order of the file."""
    found = mapping(document, (key,), document.data.get(key, {}), "names to lists of values")
    for name in found:
        check_name(document, (key,), name, taken)
    return {name: read_values(document, (key, name), value, numbers_only) for name, value in found.items()}


def read_values(document: Document, keys: tuple[Key, ...], value: Any, numbers_only: bool) -> tuple[Value, ...]:
    """The list of values at `keys`: distinct whole numbers, or distinct words."""
    items = entries(document, keys, value, "values")
    if len(items) > MAX_VALUES:
        raise fail(document, keys, f"has {len(items)} values, more than {MAX_VALUES}", "shorten the list")
    words = isinstance(items[0], str) and not numbers_only
    values: list[Value] = []
    for index, item in enumerate(items):
        place = (*keys, index)
        read: Value = _word(document, place, item) if words else whole_number(document, place, item, -_LIMIT, _LIMIT)
        if read in values:
            raise fail(document, place, f"is {item} a second time", "list each value once")
        values.append(read)
    return tuple(values)


def _word(document: Document, keys: tuple[Key, ...], value: Any) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    shown = describe(document, keys, value)
    raise fail(
        document,
        keys,
        f"is {shown}; the values of one parameter are all whole numbers or all words",
        "words have letters, digits and _.+-",
    )


def read_default(document: Document, offered: Choices) -> dict[str, Value]:
    """The values under `default`, each among those offered; the file may leave some out."""
    return _choices(document, ("default",), document.data.get("default", {}), offered)


def _choices(document: Document, keys: tuple[str | int, ...], row: Any, offered: Choices) -> dict[str, Value]:
    """One value for each parameter that `row` names, among those offered."""
    found = mapping(document, keys, row, "parameters to one of their values")
    check_keys(document, keys, found, offered)
    for name, value in found.items():
        if isinstance(value, bool | float | list | dict | None) or value not in offered[name]:
            shown = describe(document, (*keys, name), value)
            listed = ", ".join(str(item) for item in offered[name])
            raise fail(document, (*keys, name), f"is {shown}; the values of {name} are {listed}", "choose one of them")
    return dict(found)


def read_starts(document: Document, offered: Choices) -> tuple[dict[str, Value], ...]:
    """The rows under `starts`, each naming some parameters with one of their values."""
    rows = document.data.get("starts", [])
    if not isinstance(rows, list):
        shown = describe(document, ("starts",), rows)
        raise fail(document, ("starts",), f"is {shown}; it must be a list of {{parameter: value, …}}")
    return tuple(_choices(document, ("starts", index), row, offered) for index, row in enumerate(rows))


def read_tiny(document: Document, scope: Scope, offered: Choices, constraints: tuple[Constraint, ...]) -> Tiny | None:
    """What stands under `tiny`; `although` names constraints by their reasons."""
    if "tiny" not in document.data:
        return None
    found = _row(document, ("tiny",), document.data["tiny"], ("choose", "when"), ("although",))
    choose = _choices(document, ("tiny", "choose"), found["choose"], offered)
    _check_few(document, choose, offered)
    when = scope.expression(("tiny", "when"), found["when"])
    place = ("tiny", "although")
    although = entries(document, place, found["although"], "reasons") if "although" in found else []
    reasons = list(dict.fromkeys(rule.reason for rule in constraints))
    named = {choice(document, (*place, index), reason, reasons) for index, reason in enumerate(although)}
    return Tiny(choose, when, tuple(rule for rule in constraints if rule.reason in named))


def _check_few(document: Document, choose: Mapping[str, Value], offered: Choices) -> None:
    """What `tiny.choose` leaves out is chosen in every way: there must be few."""
    left = {name: values for name, values in offered.items() if name not in choose}
    count = prod(map(len, left.values()))
    if count > MOST_TINY:
        problem = f"leaves {plural(count, 'configuration')}; a header takes at most {MOST_TINY}"
        names = ", ".join(name for name, values in left.items() if len(values) > 1)
        raise fail(document, ("tiny", "choose"), problem, f"choose {names} too")


def read_derived(document: Document, scope: Scope, taken: Choices) -> dict[str, Expression]:
    """The derived quantities, each over parameters and those above it; `scope` learns their names."""
    found = mapping(document, ("derived",), document.data.get("derived", {}), "names to expressions")
    derived: dict[str, Expression] = {}
    for name, value in found.items():
        check_name(document, ("derived",), name, taken)
        derived[name] = scope.expression(("derived", name), value, later=found.keys() - derived.keys())
        scope.kinds[name] = "number"
    return derived


def read_constraints(document: Document, scope: Scope) -> tuple[Constraint, ...]:
    """The constraints, in order; each depends on something and has a reason."""
    if "constraints" not in document.data:
        return ()
    rows = document.data["constraints"]
    if not isinstance(rows, list):
        shown = describe(document, ("constraints",), rows)
        raise fail(document, ("constraints",), f"is {shown}; it must be a list of {{require: …, reason: …}}")
    return tuple(_constraint(document, scope, ("constraints", index), row) for index, row in enumerate(rows))


def _constraint(document: Document, scope: Scope, keys: tuple[Key, ...], row: Any) -> Constraint:
    found = _row(document, keys, row, ("require", "reason"), ())
    require = scope.expression((*keys, "require"), found["require"])
    if not require.names:
        hint = "name a parameter, a derived quantity, or a figure of the problem or the device"
        raise fail(document, (*keys, "require"), f"is the same for every configuration: `{require.text}`", hint)
    return Constraint(require, text(document, (*keys, "reason"), found["reason"]))


# What a launch may leave out, and what it then is.
_OF_LAUNCH = {"smem_bytes": 0, "when": True, "programmatic": False}


def read_launches(document: Document, scope: Scope) -> tuple[LaunchRule, ...]:
    """The kernel launches, in order; at least one."""
    rows = entries(document, ("launches",), document.data["launches"], "launches")
    return tuple(_launch(document, scope, ("launches", index), row) for index, row in enumerate(rows))


def _launch(document: Document, scope: Scope, keys: tuple[Key, ...], row: Any) -> LaunchRule:
    found = _row(document, keys, row, ("kernel", "grid", "block"), (*_OF_LAUNCH, "tensor_maps"))
    kernel = text(document, (*keys, "kernel"), found["kernel"])
    if not _C_NAME.fullmatch(kernel):
        raise fail(document, (*keys, "kernel"), f"is {kernel!r}; it must be a name in C", "use letters, digits and _")
    rules = {**_OF_LAUNCH, **found}
    parts = {name: scope.expression((*keys, name), rules[name]) for name in ("grid", "block", *_OF_LAUNCH)}
    return LaunchRule(kernel, **parts, tensor_maps=_tensor_maps(document, scope, (*keys, "tensor_maps"), found))


def _tensor_maps(
    document: Document, scope: Scope, keys: tuple[Key, ...], launch: dict[str, Any]
) -> tuple[TensorMapRule, ...]:
    if "tensor_maps" not in launch:
        return ()
    rows = entries(document, keys, launch["tensor_maps"], "tensor maps")
    return tuple(_tensor_map(document, scope, (*keys, index), row) for index, row in enumerate(rows))


def _tensor_map(document: Document, scope: Scope, keys: tuple[Key, ...], row: Any) -> TensorMapRule:
    found = _row(document, keys, row, ("operand", "box", "swizzle"), tuple(_OF_MAP))
    operand = choice(document, (*keys, "operand"), found["operand"], ("a", "b", "c"))
    box = entries(document, (*keys, "box"), found["box"], "sides of a box")
    if len(box) != 2:
        raise fail(document, (*keys, "box"), f"has {plural(len(box), 'side')}", "give elements of a row, then rows")
    columns, rows = (scope.expression((*keys, "box", index), side) for index, side in enumerate(box))
    rules = {**_OF_MAP, **found}
    if "copied" in found and "pitch" not in found:
        raise fail(document, keys, "has no `pitch`", "say how many elements lie between rows of the copy")
    parts = {name: scope.expression((*keys, name), rules[name]) for name in ("swizzle", *_OF_MAP)}
    return TensorMapRule(operand, columns, rows, **parts)


def _row(document: Document, keys: tuple[Key, ...], row: Any, needed: tuple[str, ...], more: tuple[str, ...]) -> Any:
    found = mapping(document, keys, row, f"{', '.join(needed)} to their values")
    check_keys(document, keys, found, needed + more)
    for name in needed:
        if name not in found:
            raise fail(document, keys, f"has no `{name}`", f"add {name}: …")
    return found


def unknown_parameter(document: Document, keys: tuple[Key, ...], known: Choices) -> InputError:
    """The error for a parameter at `keys` that the narrowed space does not have."""
    name = str(keys[-1])
    match = closest(name, known)
    guess = f"; did you mean {match}?" if match else ""
    place = document.where_key(*keys)
    return InputError(f"{place}: {name} is no parameter of the space{guess}", hint=f"it has {', '.join(known)}")


def check_family(document: Document) -> tuple[str, str]:
    """`op` and `family` of the file."""
    data = document.data
    op = choice(document, ("op",), data.get("op", "gemm"), ("gemm",))
    family = text(document, ("family",), data.get("family"))
    if not _C_NAME.fullmatch(family):
        raise fail(document, ("family",), f"is {family!r}; it must be a name", "use letters, digits and _")
    return op, family
