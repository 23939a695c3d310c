"""What an unquoted word of a YAML file means: the core schema of YAML 1.2, less the words that readers disagree on."""

import re

from kt.wording import plural

__all__ = ["Ambiguous", "Scalar", "plain_value"]

Scalar = str | int | float | bool | None

MAX_DIGITS = 100

_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

# Words that YAML 1.1 and YAML 1.2 read differently, each with what a reader may take it for and what to write.
_AMBIGUOUS = (
    (
        re.compile(r"(?:yes|no|on|off)", re.IGNORECASE),
        "true or false to some YAML readers, and text to others",
        "write a number, true or false, whichever is meant, or put the text in quotes",
    ),
    (
        re.compile(r"[-+]?0[0-9]+"),
        "octal to some YAML readers, and decimal to others",
        "write it without the leading zero",
    ),
    (
        re.compile(r"[-+]?0[ob][0-9_]+|[-+]0x[0-9a-fA-F_]+"),
        "a number to some YAML readers, and text to others",
        "write it in decimal",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"),
        "a number in base 60 to some YAML readers, and text to others",
        "write the number in decimal, or put the text in quotes",
    ),
    (
        re.compile(r"(?=.*_)(?:0x[0-9a-fA-F_]+|[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)(?:[eE][-+]?[0-9_]+)?)"),
        "a number to some YAML readers, and text to others",
        "write the digits without underscores, or put the text in quotes",
    ),
)


class Ambiguous(ValueError):
    """An unquoted word without one sure meaning; `problem` says why and `hint` what to write."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def plain_value(text: str) -> Scalar:
    """The value of the unquoted scalar `text`.

    Raises:
        Ambiguous: readers of YAML 1.1 and 1.2 disagree on it, or it is a number of absurd length.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" and text[0] not in "yYnNoO":
        return text
    for pattern, problem, hint in _AMBIGUOUS:
        if pattern.fullmatch(text):
            raise Ambiguous(problem, hint)
    return _number(text)


def _number(text: str) -> Scalar:
    if _FLOAT.fullmatch(text) and len(text) > MAX_DIGITS:
        raise Ambiguous(f"a number of {plural(len(text), 'character')}", "check the value")
    if _WHOLE.fullmatch(text):
        return int(text, 16 if text.startswith("0x") else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL_FLOAT.fullmatch(text)
    if special is None:
        return text
    return float(f"{special[1]}inf") if special[2] else float("nan")
