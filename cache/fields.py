"""`Fields`: checked access to a decoded JSON object, with errors that say where in it."""

import math
from collections.abc import ItemsView, Iterator
from typing import Any

__all__ = ["FieldError", "Fields"]


class FieldError(ValueError):
    """A field is missing or has a value that it cannot have; the message begins with the field's path."""


class Fields:
    """One JSON object whose fields are taken by name and type.

    Args:
        data: the decoded value; anything but an object is an error.
        where: path of the object in its document, for messages, e.g. "rows[3].problem".
    """

    def __init__(self, data: object, where: str = "") -> None:
        if not isinstance(data, dict):
            raise FieldError(f"{where or 'the value'}: must be an object, not {_kind(data)}")
        if not all(map(_is_unicode, data)):
            raise FieldError(f"{where or 'the value'}: has a name with half a surrogate pair")
        self._data: dict[str, Any] = data
        self.where = where

    def path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def raw(self, name: str) -> Any:
        """The value as decoded; missing is an error."""
        if name not in self._data:
            raise FieldError(f"{self.path(name)}: missing")
        return self._data[name]

    def integer(self, name: str, least: int | None = None, most: int | None = None) -> int:
        value = self.raw(name)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise self.wrong(name, "a whole number")
        if least is not None and value < least:
            raise FieldError(f"{self.path(name)}: is {value}; must be at least {least}")
        if most is not None and value > most:
            raise FieldError(f"{self.path(name)}: is {value}; must be at most {most}")
        return value

    def pair(self, name: str, wanted: str, firsts: range, seconds: range) -> tuple[int, int]:
        """A list of two whole numbers; `wanted` says in a message what they are."""
        match self.raw(name):
            case [int(first), int(second)] if type(first) is type(second) is int:
                if first in firsts and second in seconds:
                    return first, second
        raise self.wrong(name, f"a list of two whole numbers, {wanted}")

    def optional_integer(self, name: str) -> int | None:
        return None if self.raw(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        value = self.raw(name)
        if type(value) not in (int, float) or not _is_finite(value):
            raise self.wrong(name, "a finite number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return None if self.raw(name) is None else self.number(name)

    def text(self, name: str) -> str:
        value = self.raw(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        if not _is_unicode(value):
            raise FieldError(f"{self.path(name)}: has half a surrogate pair")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in choices:
            raise FieldError(f"{self.path(name)}: is {value!r}; must be one of {', '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        value = self.raw(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name)
        if not all(isinstance(value, str) and _is_unicode(value) for value in values):
            raise self.wrong(name, "a list of texts")
        return tuple(values)

    def object(self, name: str) -> "Fields":
        return Fields(self.raw(name), self.path(name))

    def objects(self, name: str) -> "list[Fields]":
        return [Fields(value, f"{self.path(name)}[{i}]") for i, value in enumerate(self._list(name))]

    def names(self) -> Iterator[str]:
        return iter(self._data)

    def items(self) -> ItemsView[str, Any]:
        """Every field as decoded, unchecked."""
        return self._data.items()

    def wrong(self, name: str, wanted: str) -> FieldError:
        return FieldError(f"{self.path(name)}: must be {wanted}, not {_kind(self.raw(name))}")

    def _list(self, name: str) -> list[Any]:
        value = self.raw(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and abs(value) >= 2**63:
        return "a whole number beyond 64 bits"
    return "a list" if isinstance(value, list) else repr(value)


def _is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8; JSON may escape halves of surrogate pairs."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _is_finite(value: float) -> bool:
    """Whether a number is one that a float can have; a whole number may have any number of digits."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
