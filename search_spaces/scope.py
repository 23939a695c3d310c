"""`Scope`: the names that the expressions of one space may use, and the reading of expressions against them."""

import keyword
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from kt.devices.device import Device
from kt.errors import InputError
from kt.problems.problem import Problem, Signature
from kt.problems.yaml_source import Document, Key, path_text
from kt.problems.yaml_values import closest, describe, fail
from kt.search_spaces.expression import Expression, parse
from kt.search_spaces.expression_kinds import Kind, check_number
from kt.search_spaces.grammar import FUNCTIONS
from kt.search_spaces.space import Value

__all__ = ["Scope", "check_name"]

Keys = tuple[Key, ...]

_GIVEN = {**Device("", (0, 0), 1, 1).names(), **Problem(1, 1, 1).names()}
_IN_TEMPLATES = {
    *(field.name for field in fields(Signature)),
    *("type_in", "type_acc", "type_out", "header_in", "header_out", "target", "arch", "device"),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(document: Document, keys: Keys, name: str, taken: Collection[str]) -> None:
    """Refuse a name for a parameter or derived quantity that expressions or templates could not use."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        hint = "use letters, digits and _, and no word of Python's"
        raise fail(document, (*keys, name), f"cannot be used as a name: `{name}`", hint)
    if name in _GIVEN or name in _IN_TEMPLATES or name in FUNCTIONS:
        hint = "choose another name"
        raise fail(
            document, (*keys, name), "has a name that stands for something else in expressions or templates", hint
        )
    if name in taken:
        raise fail(document, (*keys, name), "has a name that is used above", "choose another name")


class Scope:
    """Knows parameters, derived quantities defined so far, problem and device, and whether each is text or number."""

    def __init__(self, document: Document, choices: Mapping[str, tuple[Value, ...]], derived: Collection[str] = ()):
        self._document = document
        self.kinds: dict[str, Kind] = {name: _kind(value) for name, value in _GIVEN.items()}
        self.kinds |= {name: _kind(values[0]) for name, values in choices.items()}
        self.kinds |= dict.fromkeys(derived, "number")

    def expression(self, keys: Keys, value: Any, later: Collection[str] = ()) -> Expression:
        """The expression at `keys`, which must be a number or a condition.

        Args:
            later: names that are defined, but only below this place.
        """
        if not isinstance(value, str | int) or value == "":
            shown = describe(self._document, keys, value)
            raise fail(
                self._document, keys, f"is {shown}; it must be an expression", "write it as text, like m // tile_m"
            )
        where = f"{self._document.where(*keys)}: {path_text(keys)}"
        expression = parse(value, where)
        for name in sorted(expression.names - self.kinds.keys()):
            raise self._unknown(f"{where}: `{expression.text}`", name, later)
        check_number(expression, self.kinds, where)
        return expression

    def _unknown(self, where: str, name: str, later: Collection[str]) -> InputError:
        if name in later:
            hint = "a derived quantity may use only those above it"
            return InputError(f"{where} uses {name} before it is defined", hint=hint)
        match = closest(name, [*self.kinds, *FUNCTIONS, "True", "False"])
        guess = f"; did you mean {match}?" if match else ""
        return InputError(
            f"{where} names {name}, which is not known{guess}",
            hint="an expression may name parameters, derived quantities above it, and " + ", ".join(sorted(_GIVEN)),
        )


def _kind(value: object) -> Kind:
    return "text" if isinstance(value, str) else "number"
