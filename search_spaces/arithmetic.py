"""Operators that give what Python gives, on scalars and elementwise on arrays, whatever the size of the numbers.

An array operation runs on 64-bit integers when the result provably fits them, and on Python's own integers otherwise,
so a product like batch * m * n * k never wraps around.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kt.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ExpressionError",
    "arithmetic",
    "as_array",
    "choose",
    "compare",
    "extreme",
    "is_scalar",
    "leaf",
    "negate",
    "truth",
]

MAX_EXPONENT = 64
MAX_BITS = 1024
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_SCALARS = frozenset((int, bool, str, float))

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class ExpressionError(InputError):
    """An expression has no value: a division by zero, text where a number is needed, or a power out of bounds."""


def is_scalar(value: Any) -> bool:
    return type(value) in _SCALARS


def leaf(value: Any) -> Any:
    """A value from outside as an int, bool, float, str, or an array of int64, bool, float64, text or Python ints."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, int | str | float):
        return int(value) if isinstance(value, int) else str(value) if isinstance(value, str) else float(value)
    import numpy as np

    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return leaf(value.item())
    if not isinstance(value, np.ndarray):
        raise ExpressionError(f"a value of type {type(value).__name__} cannot be used")
    return _plain_array(value)


def _plain_array(array: NDArray[Any]) -> NDArray[Any]:
    kind = array.dtype.kind
    if kind == "u":
        return array.astype("int64") if array.size == 0 or int(array.max()) <= _HIGHEST else array.astype(object)
    if kind == "O" and array.size and isinstance(array.flat[0], str):
        return array.astype(str)
    return array.astype({"i": "int64", "f": "float64"}.get(kind, array.dtype), copy=False)


def arithmetic(symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` for + - * // % and **."""
    if _is_text(left) or _is_text(right):
        raise ExpressionError(f"text cannot be calculated with: {symbol} needs two numbers")
    if not (is_scalar(left) and is_scalar(right)):
        return _array_arithmetic(symbol, _as_numbers(left), _as_numbers(right))
    if symbol == "**":
        _check_power(abs(left), right, right)
    try:
        return _ARITHMETIC[symbol](left, right)
    except ZeroDivisionError:
        raise ExpressionError(f"{symbol} by zero") from None
    except OverflowError:
        raise ExpressionError(f"{symbol} overflows a floating-point number") from None


def negate(value: Any) -> Any:
    return arithmetic("-", 0, value)


def compare(symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` for == != < <= > >=; text is equal to text only, and has no order."""
    if _is_text(left) or _is_text(right):
        if symbol not in ("==", "!="):
            raise ExpressionError(f"text has no order: {symbol} needs two numbers")
        if _is_text(left) != _is_text(right):
            return symbol == "!="
    if is_scalar(left) and is_scalar(right):
        return _COMPARISONS[symbol](left, right)
    result = _COMPARISONS[symbol](as_array(left), as_array(right))
    return result.astype(bool, copy=False)


def extreme(name: str, values: list[Any]) -> Any:
    """The `min` or `max` of two or more numbers."""
    if any(_is_text(value) for value in values):
        raise ExpressionError(f"text has no order: {name} needs numbers")
    if all(is_scalar(value) for value in values):
        return min(values) if name == "min" else max(values)
    import numpy as np

    result, pick = as_array(values[0]), np.minimum if name == "min" else np.maximum
    for value in values[1:]:
        result = pick(result, as_array(value))
    return result


def truth(value: Any) -> Any:
    """What `if` makes of the value: a bool, or an array of bool."""
    if is_scalar(value):
        return bool(value)
    return value != "" if _is_text(value) else value.astype(bool, copy=False)


def choose(mask: NDArray[Any], chosen: Any, other: Any) -> Any:
    """`chosen` where `mask` is true, else `other`."""
    import numpy as np

    if _is_text(chosen) != _is_text(other):
        raise ExpressionError("one branch is text and the other a number")
    return np.where(mask, as_array(chosen), as_array(other))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) if is_scalar(value) else bool(value.dtype.kind == "U")


def as_array(value: Any) -> NDArray[Any]:
    """The value as an array; a scalar gets no dimension, and Python's int where 64 bits are too few."""
    import numpy as np

    if is_scalar(value):
        wide = type(value) is int and not _LOWEST <= value <= _HIGHEST
        value = np.array(value, dtype=object if wide else None)
    array: NDArray[Any] = value
    return array


def _as_numbers(value: Any) -> NDArray[Any]:
    array = as_array(value)
    return array.astype("int64") if array.dtype.kind == "b" else array


def _array_arithmetic(symbol: str, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    if left.size == 0 or right.size == 0:
        nothing: NDArray[Any] = left * right
        return nothing
    if symbol in ("//", "%") and (right == 0).any():
        raise ExpressionError(f"{symbol} by zero")
    if symbol == "**":
        _check_powers(left, right)
    kinds = left.dtype.kind + right.dtype.kind
    if "O" in kinds or ("f" not in kinds and not _fits(symbol, left, right)):
        left, right = left.astype(object), right.astype(object)
    return _ARITHMETIC[symbol](left, right)  # type: ignore[no-any-return]


def _fits(symbol: str, left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Whether every result of the operation on these int64 arrays lies within int64."""
    a, b = (int(left.min()), int(left.max())), (int(right.min()), int(right.max()))
    if symbol in ("//", "%"):
        return a[0] > _LOWEST  # the lowest number divided by -1 is the only quotient that does not fit
    if symbol == "**":
        return bool(max(-a[0], a[1], 1) ** b[1] <= _HIGHEST)
    ends: list[int] = [_ARITHMETIC[symbol](x, y) for x in a for y in b]
    return min(ends) >= _LOWEST and max(ends) <= _HIGHEST


def _check_powers(bases: NDArray[Any], exponents: NDArray[Any]) -> None:
    try:
        _check_power(abs(bases).max(), exponents.min(), exponents.max())
    except ExpressionError:  # the largest base may not meet the largest exponent: look at each pair
        import numpy as np

        np.frompyfunc(lambda base, exponent: _check_power(base, exponent, exponent), 2, 1)(bases, exponents)


def _check_power(base: Any, least: Any, most: Any) -> None:
    if least < 0 or most > MAX_EXPONENT:
        raise ExpressionError(f"** takes exponents from 0 to {MAX_EXPONENT}")
    if int(base).bit_length() * int(most) > MAX_BITS:
        raise ExpressionError(f"** gives a number of more than {MAX_BITS} bits")
