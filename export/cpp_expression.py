"""Expressions of search spaces as C++: what is known at export becomes numbers, the rest is printed.

The C++ is over two types of the header (export/checked_numbers.cuh): `Int`, 64-bit integers that know when a result has
none, and `Truth`. Their operators mean what Python's mean, so the printed text reads like the expression that it comes
from: `/` rounds down, `%` has the sign of the divisor.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from kt.errors import InputError
from kt.search_spaces.arithmetic import ExpressionError, arithmetic, compare, extreme, negate
from kt.search_spaces.expression import Expression
from kt.search_spaces.space import Value

__all__ = ["Term", "known", "printed", "reference"]

Kind = Literal["int", "truth", "real"]

# Precedences of C++, the loosest first; equal ones are not mixed without parentheses.
_OR, _AND, _EQUAL, _ORDER, _SUM, _PRODUCT, _UNARY, _WHOLE = range(8)
_ARITHMETIC: dict[type[ast.operator], tuple[str, str, int]] = {
    ast.Add: ("+", "+", _SUM), ast.Sub: ("-", "-", _SUM), ast.Mult: ("*", "*", _PRODUCT),
    ast.FloorDiv: ("//", "/", _PRODUCT), ast.Mod: ("%", "%", _PRODUCT),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[str, int]] = {
    ast.Eq: ("==", _EQUAL), ast.NotEq: ("!=", _EQUAL),
    ast.Lt: ("<", _ORDER), ast.LtE: ("<=", _ORDER), ast.Gt: (">", _ORDER), ast.GtE: (">=", _ORDER),
}  # fmt: skip
_CALLS = {"min": "least", "max": "most"}


@dataclass(frozen=True)
class Term:
    """A value that is known at export, or C++ text that computes it.

    Attributes:
        constant: the known value; None if there is `text`.
        text: C++ of kind `kind`; `names` are the identifiers in it that stand for terms of their own.
        precedence: of the outermost operator of `text`.
    """

    constant: int | str | None = None
    text: str = ""
    kind: Kind = "int"
    precedence: int = _WHOLE
    names: frozenset[str] = frozenset()

    @property
    def known(self) -> bool:
        return self.constant is not None

    @property
    def as_int(self) -> str:
        """As an operand of kind `Int`, or a literal."""
        if self.known:
            return _literal(self.constant)
        return self.text if self.kind == "int" else f"number({self.text})"

    @property
    def as_truth(self) -> str:
        """As a `Truth`, or a literal `true` or `false`."""
        if self.known:
            return "true" if self.constant else "false"
        return self.text if self.kind == "truth" else f"({self.text} != 0)"


def reference(name: str, kind: Kind = "int") -> Term:
    """The term that is C++'s variable `name`."""
    return Term(text=name, kind=kind, names=frozenset((name,)))


def printed(expression: Expression, terms: Mapping[str, Term], where: str = "") -> Term:
    """The expression with its names replaced by `terms`.

    Raises:
        InputError: it cannot be computed in C++, as arithmetic with text that is not known at export.
    """
    try:
        return _Printer(terms).term(_tree(expression.text))
    except ExpressionError as error:
        raise InputError(f"{where}: `{expression.text}`: {error.message}") from None
    except _NoCpp as error:
        raise InputError(f"{where}: `{expression.text}` has no C++: {error}") from None


def known(value: Value | bool) -> Term:
    """The term of a value that is known at export."""
    return Term(constant=value if isinstance(value, str) else int(value))


class _NoCpp(Exception):
    """What stands in the way."""


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _literal(value: int | str | None) -> str:
    if not isinstance(value, int):
        raise _NoCpp(f"{value!r} is text")
    if abs(value) >= 2**62:
        raise _NoCpp(f"{value} is beyond 62 bits")
    return f"{value}LL" if abs(value) >= 2**31 else str(value)


class _Printer:
    """One method for each kind of node, named as in `kt.search_spaces.grammar`."""

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self._terms = terms

    def term(self, node: ast.expr) -> Term:
        method: Any = getattr(self, f"_{type(node).__name__.lower()}")
        result: Term = method(node)
        return result

    def _constant(self, node: ast.Constant) -> Term:
        value: Any = node.value
        return known(value)

    def _name(self, node: ast.Name) -> Term:
        return self._terms[node.id]

    def _attribute(self, node: ast.Attribute) -> Term:
        return self._terms[ast.unparse(node)]

    def _unaryop(self, node: ast.UnaryOp) -> Term:
        operand = self.term(node.operand)
        if isinstance(node.op, ast.Not):
            return _negation(operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if operand.known:
            return known(negate(operand.constant))
        return _code(f"-{_operand(operand.as_int, _UNARY, operand)}", "int", _UNARY, operand)

    def _binop(self, node: ast.BinOp) -> Term:
        left, right = self.term(node.left), self.term(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        python, cpp, precedence = _ARITHMETIC[type(node.op)]
        return _calculated(python, cpp, precedence, left, right)

    def _boolop(self, node: ast.BoolOp) -> Term:
        is_and = isinstance(node.op, ast.And)
        result = self.term(node.values[0])
        for value in node.values[1:]:
            if result.known:  # as in Python, what is behind it counts only if this does not decide
                result = self.term(value) if bool(result.constant) == is_and else result
            else:
                result = _joined(is_and, result, self.term(value))
        return result

    def _compare(self, node: ast.Compare) -> Term:
        result = known(True)
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            pair = self._pair(left, op, right)
            result = _joined(True, result, pair) if not result.known else pair if result.constant else result
        return result

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Term:
        first = self.term(left)
        if not isinstance(op, ast.In | ast.NotIn):
            return _compared(*_COMPARISONS[type(op)], first, self.term(right))
        assert isinstance(right, ast.Tuple | ast.List)
        found = known(False)
        for item in right.elts:
            equal = _compared("==", _EQUAL, first, self.term(item))
            found = _joined(False, found, equal) if not found.known else found if found.constant else equal
        return found if isinstance(op, ast.In) else _negation(found)

    def _ifexp(self, node: ast.IfExp) -> Term:
        test = self.term(node.test)
        if test.known:
            return self.term(node.body if test.constant else node.orelse)
        return _chosen(test, self.term(node.body), self.term(node.orelse))

    def _call(self, node: ast.Call) -> Term:
        assert isinstance(node.func, ast.Name)
        terms = [self.term(argument) for argument in node.args]
        if node.func.id == "cdiv":
            return _rounded_up(*terms)
        if node.func.id == "abs":
            value, opposite = terms[0], _calculated("-", "-", _SUM, known(0), terms[0])
            return _extreme("max", [value, opposite])
        return _extreme(node.func.id, terms)


def _code(text: str, kind: Kind, precedence: int, *parts: Term) -> Term:
    if any(part.kind == "real" for part in parts if not part.known):
        raise _NoCpp("beta can only be compared")
    return Term(None, text, kind, precedence, frozenset().union(*(part.names for part in parts)))


def _operand(text: str, precedence: int, term: Term, *, strictly: bool = False) -> str:
    """`text` of `term`, in parentheses if an operator of `precedence` would tear it apart."""
    whole = term.known or text != term.text
    if whole:
        return f"({text})" if text.startswith("-") else text
    return f"({text})" if term.precedence < precedence or (strictly and term.precedence == precedence) else text


def _calculated(python: str, cpp: str, precedence: int, left: Term, right: Term) -> Term:
    if left.known and right.known:
        return known(arithmetic(python, left.constant, right.constant))
    if python == "*":
        for one, other in ((left, right), (right, left)):
            if one.constant == 0 and not isinstance(one.constant, str):
                return known(0)
            if one.constant == 1 and other.kind == "int":
                return other
    if python in ("+", "-") and right.constant == 0 and left.kind == "int":
        return left
    if python == "+" and left.constant == 0 and right.kind == "int":
        return right
    if python == "//" and right.constant == 1 and left.kind == "int":
        return left
    first = _operand(left.as_int, precedence, left)
    second = _operand(right.as_int, precedence, right, strictly=python != "+")
    return _code(f"{first} {cpp} {second}", "int", precedence, left, right)


def _power(base: Term, exponent: Term) -> Term:
    if base.known and exponent.known:
        return known(arithmetic("**", base.constant, exponent.constant))
    return _code(f"power({base.as_int}, {exponent.as_int})", "int", _WHOLE, base, exponent)


def _rounded_up(value: Term, by: Term) -> Term:
    if value.known and by.known:
        return known(negate(arithmetic("//", negate(value.constant), by.constant)))
    if by.constant == 1 and value.kind == "int":
        return value
    return _code(f"cdiv({value.as_int}, {by.as_int})", "int", _WHOLE, value, by)


def _extreme(name: str, terms: list[Term]) -> Term:
    result = terms[0]
    for term in terms[1:]:
        if result.known and term.known:
            result = known(extreme(name, [result.constant, term.constant]))
        else:
            result = _code(f"{_CALLS[name]}({result.as_int}, {term.as_int})", "int", _WHOLE, result, term)
    return result


def _compared(symbol: str, precedence: int, left: Term, right: Term) -> Term:
    if left.known and right.known:
        return known(compare(symbol, left.constant, right.constant))
    for one, other in ((left, right), (right, left)):
        if one.kind == "real" and not one.known:
            return _compared_with_real(symbol, precedence, left, right, other)
    first = _operand(left.as_int, precedence, left, strictly=True)
    second = _operand(right.as_int, precedence, right, strictly=True)
    return _code(f"{first} {symbol} {second}", "truth", precedence, left, right)


def _compared_with_real(symbol: str, precedence: int, left: Term, right: Term, other: Term) -> Term:
    """beta against 0 or 1, by the comparison of C++ itself: a header knows how beta is used, and no more of it."""
    if other.constant not in (0, 1) or symbol not in ("==", "!="):
        raise _NoCpp("beta can only be equal, or not, to 0 or 1")
    texts = [_literal(term.constant) if term.known else term.text for term in (left, right)]
    return Term(None, f"Truth({texts[0]} {symbol} {texts[1]})", "truth", _WHOLE, left.names | right.names)


def _negation(term: Term) -> Term:
    if term.known:
        return known(not term.constant)
    whole = term.kind != "truth" or term.precedence == _WHOLE
    return _code(f"!{term.as_truth}" if whole else f"!({term.text})", "truth", _UNARY, term)


def _joined(is_and: bool, left: Term, right: Term) -> Term:
    """`left and right` or `left or right`, of which `left` is not known."""
    if left.kind == "truth" and (right.kind == "truth" or right.known):
        if right.known and bool(right.constant) == is_and:
            return left
        symbol, precedence = ("&&", _AND) if is_and else ("||", _OR)
        first = _operand(left.as_truth, _EQUAL, left) if left.precedence != precedence else left.text
        second = _operand(right.as_truth, _EQUAL, right)
        return _code(f"{first} {symbol} {second}", "truth", precedence, left, right)
    yes, no = (right, left) if is_and else (left, right)
    return _chosen(left, yes, no)


def _chosen(test: Term, yes: Term, no: Term) -> Term:
    if isinstance(yes.constant, str) or isinstance(no.constant, str):
        raise _NoCpp("text is chosen at run time")
    if "truth" in (yes.kind, no.kind) and all(term.known or term.kind == "truth" for term in (yes, no)):
        text = f"choose({test.as_truth}, Truth({yes.as_truth}), Truth({no.as_truth}))"
        return _code(text, "truth", _WHOLE, test, yes, no)
    text = f"choose({test.as_truth}, Int({yes.as_int}), Int({no.as_int}))"
    return _code(text, "int", _WHOLE, test, yes, no)
