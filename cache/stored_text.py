"""JSON as the cache stores it, in ASCII: what a spoilt byte or an endless nesting has made of it is refused."""

import json
from typing import Any

from kt.cache.fields import FieldError

__all__ = ["UNREADABLE", "parsed"]

# What decoding raises for bad contents: bad JSON or fields, a blob where text should be, endless nesting.
UNREADABLE = (ValueError, TypeError, RecursionError)

_REPLACED = "\N{REPLACEMENT CHARACTER}"


def parsed(text: str) -> Any:
    """The value. A replacement character is one that `readable_text` has put in the place of a bad byte."""
    if isinstance(text, str) and _REPLACED in text:
        raise FieldError(f"has a byte that is no text, at {text.index(_REPLACED)}")
    return json.loads(text)
