"""The grammar of expressions: a syntax tree of Python becomes nested closures, or is refused with the reason."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kt.errors import InputError
from kt.search_spaces.arithmetic import (
    ExpressionError,
    arithmetic,
    choose,
    compare,
    extreme,
    is_scalar,
    negate,
    truth,
)
from kt.search_spaces.names import Names
from kt.wording import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FUNCTIONS", "GRAMMAR", "MAX_DEPTH", "Builder", "Step", "names_in", "refused"]

MAX_DEPTH = 60

# name -> fewest and most arguments
FUNCTIONS: dict[str, tuple[int, int]] = {"min": (2, 99), "max": (2, 99), "cdiv": (2, 2), "abs": (1, 1)}

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_ADVICE: dict[type[ast.AST], str] = {
    ast.Div: "`/` gives fractions: write // for the whole part, or cdiv(a, b) to round up",
    ast.BitAnd: "`&` works on bits: write `and`",
    ast.BitOr: "`|` works on bits: write `or`",
    ast.Invert: "`~` works on bits: write `not`",
    ast.Is: "write == instead of `is`",
    ast.IsNot: "write != instead of `is not`",
    ast.Attribute: "the only dotted names are those of the device, like device.smem_per_block_optin",
    ast.Call: f"the functions are {', '.join(FUNCTIONS)}",
}
GRAMMAR = "expressions have numbers, names, + - * // % **, comparisons, and, or, not, in, `a if c else b` and " + (
    ", ".join(f"{name}()" for name in FUNCTIONS)
)

Step = Callable[[Names], Any]


def names_in(node: ast.AST) -> frozenset[str]:
    """The names that need a value below `node`."""
    found: set[str] = set()
    pending: list[ast.AST] = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name):
            found.add(node.id)
        else:
            pending += node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    return frozenset(found)


def refused(where: str, text: str, column: int | None, problem: str, hint: str | None) -> InputError:
    shown = text if len(text) <= 120 else text[:120] + "…"
    at = "" if column is None else f", column {column + 1}"
    return InputError(f"{where}{': ' if where else ''}`{shown}`{at}: {problem}", hint=hint)


class Builder:
    """Turns a syntax tree into nested closures, refusing whatever is not in the language."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where

    def step(self, node: ast.expr, depth: int) -> Step:
        build = getattr(self, f"_{type(node).__name__.lower()}", None)
        if build is None:
            raise self._refuse(node, node)
        if depth > MAX_DEPTH:
            raise refused(self._where, self._text, node.col_offset, "is nested too deep", "split it up")
        result: Step = build(node, depth + 1)
        return result

    def _refuse(self, node: ast.expr, construct: ast.AST, problem: str = "") -> InputError:
        shown = ast.get_source_segment(self._text, node) or self._text
        hint = _ADVICE.get(type(construct), GRAMMAR)
        column = len(self._text.encode()[: node.col_offset].decode())
        return refused(self._where, self._text, column, problem or f"`{shown}` is not allowed", hint)

    def _constant(self, node: ast.Constant, depth: int) -> Step:
        value = node.value
        if type(value) not in (int, bool, str):
            shown = ast.get_source_segment(self._text, node)
            raise self._refuse(node, node, f"`{shown}` is not a whole number, True, False or quoted text")
        return lambda names: value

    def _name(self, node: ast.Name, depth: int) -> Step:
        name = node.id
        return lambda names: names[name]

    def _attribute(self, node: ast.Attribute, depth: int) -> Step:
        if not (isinstance(node.value, ast.Name) and node.value.id == "device"):
            raise self._refuse(node, node)
        name = f"device.{node.attr}"
        return lambda names: names[name]

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> Step:
        operand = self.step(node.operand, depth)
        if isinstance(node.op, ast.Not):
            return lambda names: _inverted(truth(operand(names)))
        if isinstance(node.op, ast.USub):
            return lambda names: negate(operand(names))
        if isinstance(node.op, ast.UAdd):
            return lambda names: arithmetic("+", 0, operand(names))
        raise self._refuse(node, node.op)

    def _binop(self, node: ast.BinOp, depth: int) -> Step:
        if type(node.op) not in _BINARY:
            raise self._refuse(node, node.op)
        symbol, left, right = _BINARY[type(node.op)], self.step(node.left, depth), self.step(node.right, depth)
        return lambda names: arithmetic(symbol, left(names), right(names))

    def _boolop(self, node: ast.BoolOp, depth: int) -> Step:
        result = self.step(node.values[-1], depth)
        used = names_in(node.values[-1])
        for value in reversed(node.values[:-1]):
            result = _joined(isinstance(node.op, ast.And), self.step(value, depth), result, used)
            used |= names_in(value)
        return result

    def _compare(self, node: ast.Compare, depth: int) -> Step:
        """`a < b < c` is `a < b and b < c`; b has no effects, so computing it twice changes nothing."""
        operands = [node.left, *node.comparators]
        pairs = [
            (self._pair(node, left, op, right, depth), names_in(left) | names_in(right))
            for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
        ]
        result, used = pairs[-1]
        for step, more in reversed(pairs[:-1]):
            result = _joined(True, step, result, used)
            used |= more
        return result

    def _pair(self, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> Step:
        if isinstance(op, ast.In | ast.NotIn):
            return self._member(node, left, isinstance(op, ast.In), right, depth)
        if type(op) not in _COMPARE:
            raise self._refuse(node, op)
        symbol, first, second = _COMPARE[type(op)], self.step(left, depth), self.step(right, depth)
        return lambda names: compare(symbol, first(names), second(names))

    def _member(self, node: ast.Compare, left: ast.expr, inside: bool, right: ast.expr, depth: int) -> Step:
        if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
            raise self._refuse(node, node, "`in` needs a list of values in brackets, like tile_k in (8, 16)")
        first, items = self.step(left, depth), [self.step(item, depth) for item in right.elts]

        def member(names: Names) -> Any:
            value = first(names)
            found = compare("==", value, items[0](names))
            for item in items[1:]:
                found = found | compare("==", value, item(names))
            return found if inside else _inverted(found)

        return member

    def _ifexp(self, node: ast.IfExp, depth: int) -> Step:
        test, chosen, other = (self.step(part, depth) for part in (node.test, node.body, node.orelse))
        used_chosen, used_other = names_in(node.body), names_in(node.orelse)

        def conditional(names: Names) -> Any:
            mask = truth(test(names))
            if is_scalar(mask):
                return chosen(names) if mask else other(names)
            first = _value_where(mask, chosen, used_chosen, names)
            second = _value_where(~mask, other, used_other, names)
            if first is None or second is None:
                return mask if first is second else second if first is None else first
            return choose(mask, first, second)

        return conditional

    def _call(self, node: ast.Call, depth: int) -> Step:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            raise self._refuse(node, node)
        least, most = FUNCTIONS[name]
        if node.keywords or not least <= len(node.args) <= most or any(isinstance(a, ast.Starred) for a in node.args):
            wanted = plural(least, "argument") if least == most else f"{least} or more arguments"
            raise self._refuse(node, node, f"{name}() takes {wanted}")
        steps = [self.step(argument, depth) for argument in node.args]
        if name == "cdiv":
            return lambda names: negate(arithmetic("//", negate(steps[0](names)), steps[1](names)))
        if name == "abs":
            return lambda names: _absolute(steps[0](names))
        return lambda names: extreme(name, [step(names) for step in steps])


def _inverted(mask: Any) -> Any:
    return not mask if is_scalar(mask) else ~mask


def _absolute(value: Any) -> Any:
    return extreme("max", [value, negate(value)])


def _joined(is_and: bool, left: Step, right: Step, used: frozenset[str]) -> Step:
    """Python's `left and right` or `left or right`; `right` uses the names `used`."""

    def joined(names: Names) -> Any:
        first = left(names)
        decides = truth(first)
        if is_scalar(decides):
            return right(names) if decides == is_and else first
        mask = decides if is_and else ~decides
        second = _value_where(mask, right, used, names)
        return first if second is None else choose(mask, second, first)

    return joined


def _value_where(mask: NDArray[Any], step: Step, used: frozenset[str], names: Names) -> Any:
    """The value of `step`, right where `mask` is true and anything elsewhere; None if it is true nowhere.

    The plain value does if it exists; else the elements under the mask are taken out and looked at alone.
    """
    import numpy as np

    try:
        return step(names)
    except ExpressionError:
        if not mask.any():
            return None
    inner, full = names.restricted(used, mask)
    part = step(inner)
    if is_scalar(part):
        return part
    result = np.zeros(full.shape, part.dtype)
    result[full] = part
    return result
