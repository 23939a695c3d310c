"""Whole numbers as callers have them: Python's own, NumPy's, and whatever else says that it is one by `__index__`."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["whole"]


def whole(value: Any) -> int | None:
    """The number as Python's own; None if it is none: neither True nor 8.0 is."""
    if isinstance(value, bool):
        return None
    try:
        return int(operator.index(value))
    except TypeError:
        return None
