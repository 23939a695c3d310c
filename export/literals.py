"""Python values as C++ literals that no compiler warns about."""

import math

from kt.errors import InputError

__all__ = ["bool_literal", "double_literal", "int_literal", "string_literal"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "?": "\\?"}  # the last one against trigraphs


def string_literal(text: str) -> str:
    """A narrow string literal in ASCII whose bytes are the UTF-8 of `text`.

    Other bytes are written as three octal digits, which, unlike hexadecimal escapes, cannot run into what follows.
    """
    characters = (_ESCAPES.get(chr(byte)) or _character(byte) for byte in text.encode("utf-8", "surrogateescape"))
    return '"' + "".join(characters) + '"'


def _character(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def int_literal(value: int) -> str:
    """A `long long` literal, without suffix: braces take it as any integer type that holds it.

    Raises:
        InputError: it does not fit 64 bits.
    """
    if not -(2**63) < value < 2**63:
        raise InputError(f"{value} does not fit a 64-bit integer of the header")
    return str(value)


def double_literal(value: float) -> str:
    """The shortest literal that reads back as exactly `value`, which must be finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} has no C++ literal")
    return repr(float(value))


def bool_literal(value: bool) -> str:
    return "true" if value else "false"
