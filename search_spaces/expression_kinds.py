"""Text or number: found out when a space is loaded, so that no expression fails for its kinds during a run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Literal

from kt.search_spaces.expression import Expression
from kt.search_spaces.grammar import refused

__all__ = ["Kind", "check_number", "kind_of"]

Kind = Literal["number", "text"]

_ORDERED = ast.Lt | ast.LtE | ast.Gt | ast.GtE


def check_number(expression: Expression, kinds: Mapping[str, Kind], where: str) -> None:
    """Refuse an expression that is text where a number or a condition is needed, or that mixes the two inside.

    Args:
        kinds: the kind of every name in the expression.
    """
    if kind_of(expression, kinds, where) == "text":
        raise refused(where, expression.text, None, "is text; a number or a condition is needed", None)


def kind_of(expression: Expression, kinds: Mapping[str, Kind], where: str) -> Kind:
    """The kind of the expression's value; refuses text in arithmetic and comparisons of text with numbers."""
    return _Kinds(expression.text, kinds, where).of(ast.parse(expression.text, mode="eval").body)


class _Kinds:
    def __init__(self, text: str, kinds: Mapping[str, Kind], where: str) -> None:
        self._text = text
        self._kinds = kinds
        self._where = where

    def of(self, node: ast.expr) -> Kind:
        if isinstance(node, ast.Constant):
            return "text" if isinstance(node.value, str) else "number"
        if isinstance(node, ast.Name | ast.Attribute):
            return self._kinds[ast.unparse(node)]
        if isinstance(node, ast.BoolOp):
            return self._alike(node, node.values)
        if isinstance(node, ast.IfExp):
            self.of(node.test)
            return self._alike(node, [node.body, node.orelse])
        if isinstance(node, ast.Compare):
            self._compare(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.of(node.operand)
        else:
            self._numbers(node)
        return "number"

    def _numbers(self, node: ast.expr) -> None:
        operands = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
        for operand in operands:
            if isinstance(operand, ast.expr) and self.of(operand) == "text":
                raise self._refuse(operand, "is text, and cannot be calculated with")

    def _compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            several = right.elts if isinstance(right, ast.Tuple | ast.List) else [right]
            kind = self._alike(node, [left, *several])
            if kind == "text" and isinstance(op, _ORDERED):
                raise self._refuse(node, "compares text for order; text knows only ==, != and in")

    def _alike(self, node: ast.expr, parts: list[ast.expr]) -> Kind:
        kinds: set[Kind] = {self.of(part) for part in parts}
        if len(kinds) > 1:
            raise self._refuse(node, "mixes text and numbers")
        return kinds.pop()

    def _refuse(self, node: ast.expr, problem: str) -> Exception:
        column = len(self._text.encode()[: node.col_offset].decode())
        return refused(self._where, self._text, column, f"`{ast.unparse(node)}` {problem}", None)
