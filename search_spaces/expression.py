"""The expressions of search spaces: a whitelisted subset of Python's grammar, evaluated on scalars and numpy arrays.

An expression means what it means in Python, element by element, division by zero included: it is an error, unless
`and`, `or` or `if` keeps it from being reached. Nothing is ever handed to `eval`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kt.search_spaces.arithmetic import ExpressionError
from kt.search_spaces.grammar import GRAMMAR, Builder, Step, names_in, refused
from kt.search_spaces.names import Names

__all__ = ["Expression", "ExpressionError", "compose", "parse"]

MAX_LENGTH = 2000


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: as it was written.
        names: the names that it needs a value for, `device.x` included.
    """

    text: str
    names: frozenset[str]
    _run: Step = field(repr=False, compare=False)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """The value for these names: a Python scalar, or an array if a name that matters is an array.

        Raises:
            ExpressionError: a name has no value, or the expression has none for some element.
        """
        for name in self.names:
            if name not in names:
                raise ExpressionError(f"`{self.text}`: {name} has no value")
        try:
            return self._run(names if isinstance(names, Names) else Names(names))
        except ExpressionError as error:
            raise ExpressionError(f"`{self.text}`: {error.message}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return compose, (self.text,)


def parse(text: str | int | bool, where: str = "") -> Expression:
    """Parse one expression; a number or bool stands for itself.

    Args:
        where: prefix of messages, like `space.yaml:12:15: constraints[2].require`.

    Raises:
        InputError: it is not an expression of the language; the message names the column and the construct.
    """
    source = str(text)
    if len(source) > MAX_LENGTH:
        raise refused(where, source, None, f"has {len(source)} characters, more than {MAX_LENGTH}", "split it up")
    return _parse(source, where)


def compose(text: str) -> Expression:
    """An expression that kt put together from parsed ones; it may be longer and a little deeper than they may."""
    return _parse(text, "", slack=8)


def _parse(source: str, where: str, slack: int = 0) -> Expression:
    text = " ".join(source.split())
    if not text:
        raise refused(where, source, None, "is blank", GRAMMAR)
    for character in "#\\\0":
        if character in text:
            raise refused(where, text, text.index(character), f"has the character {character!r}", GRAMMAR)
    tree = _tree(text, where)
    return Expression(text, names_in(tree), Builder(text, where).step(tree, -slack))


def _tree(text: str, where: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python only warns of some slips, such as `1if a else b`
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        column = (error.offset or 1) - 1
        raise refused(where, text, column, f"is not an expression: {error.msg}", GRAMMAR) from None
    except (RecursionError, MemoryError, ValueError):
        raise refused(where, text, None, "is nested too deep", "split it into derived quantities") from None
