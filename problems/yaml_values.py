"""Checks of the values of a `Document`; each failure names file, line, column, key, value, limit and what to do."""

from collections.abc import Collection, Iterable
from typing import Any

from kt.errors import InputError
from kt.problems.yaml_source import Document, Key, path_text

__all__ = ["check_keys", "choice", "closest", "describe", "entries", "fail", "mapping", "text", "whole_number"]

Keys = tuple[Key, ...]


def fail(document: Document, keys: Keys, problem: str, hint: str | None = None) -> InputError:
    """The error that the value at `keys` `problem`."""
    return InputError(f"{document.where(*keys)}: {path_text(keys) or 'the file'} {problem}", hint=hint)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is probably a slip of, if there is one.

    Digits tell names apart (int4 and int8 are two formats), so a slip has the same ones, in whatever order.
    """
    from difflib import get_close_matches

    words = {name.lower(): name for name in known if _digits(name) == _digits(word)}
    match = get_close_matches(word.lower(), words, n=1, cutoff=0.55)
    return words[match[0]] if match else None


def _digits(text: str) -> list[str]:
    return sorted(letter for letter in text if letter.isdigit())


def check_keys(document: Document, keys: Keys, value: dict[str, Any], known: Collection[str]) -> None:
    """Refuse a key of the mapping at `keys` that is not one of `known`."""
    for name in value:
        if name not in known:
            match = closest(name, known)
            place = document.where_key(*keys, name)
            guess = f"; did you mean {match}?" if match else ""
            raise InputError(
                f"{place}: {path_text((*keys, name))} is not a known key{guess}",
                hint=f"the keys here are {', '.join(sorted(known))}",
            )


def describe(document: Document, keys: Keys, value: Any) -> str:
    """The value at `keys` in words, as it was written."""
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    shown = document.text(*keys) or repr(value)
    shown = shown if len(shown) <= 60 else shown[:60] + "…"
    return f"the text {shown}" if isinstance(value, str) else shown


def whole_number(document: Document, keys: Keys, value: Any, least: int, most: int) -> int:
    """The value at `keys` as an int from `least` to `most`."""
    if type(value) is int and least <= value <= most:
        return value
    hint = _number_hint(document, keys, value, least)
    shown = describe(document, keys, value)
    raise fail(document, keys, f"is {shown}; it must be a whole number from {least} to {most}", hint)


def _number_hint(document: Document, keys: Keys, value: Any, least: int) -> str | None:
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}" if abs(value) < 1e18 else "write it in plain digits"
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        return "remove the quotes" if document.text(*keys).startswith('"') else "write plain digits"
    if value is None:
        return "give it a value, or leave the key out"
    if isinstance(value, dict | list):
        return "give one number here"
    return None if type(value) is int and value > 0 else f"write a number, {least} or more"


def text(document: Document, keys: Keys, value: Any) -> str:
    """The value at `keys` as text that is not blank."""
    if isinstance(value, str) and value.strip():
        return value
    hint = "put it in quotes if it is meant as text" if isinstance(value, int | float) else None
    shown = "blank" if isinstance(value, str) else describe(document, keys, value)
    raise fail(document, keys, f"is {shown}; it must be text", hint)


def choice(document: Document, keys: Keys, value: Any, choices: Collection[str]) -> str:
    """The value at `keys`, which must be one of `choices`."""
    if isinstance(value, str) and value in choices:
        return value
    match = closest(value, choices) if isinstance(value, str) else None
    listed = ", ".join(choices)
    hint = f"did you mean {match}?" if match else None
    raise fail(document, keys, f"is {describe(document, keys, value)}; it must be one of {listed}", hint)


def entries(document: Document, keys: Keys, value: Any, what: str) -> list[Any]:
    """The value at `keys` as a list with at least one entry; `what` says what the entries are."""
    if not isinstance(value, list):
        raise fail(document, keys, f"is {describe(document, keys, value)}; it must be a list of {what}")
    if not value:
        raise fail(document, keys, "is an empty list", "it must have at least one entry")
    return value


def mapping(document: Document, keys: Keys, value: Any, what: str) -> dict[str, Any]:
    """The value at `keys` as a mapping; `what` says from what to what."""
    if not isinstance(value, dict):
        raise fail(document, keys, f"is {describe(document, keys, value)}; it must map {what}")
    return value
