"""`Causes`: failures counted by cause, each told in the words in which it was met first."""

import re
from collections import Counter
from collections.abc import Mapping

__all__ = ["Causes", "without_numbers"]

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def without_numbers(text: str) -> str:
    """What texts of one cause have in common: for telling causes apart, not for reading."""
    return _NUMBER.sub("N", text)


class Causes:
    """Texts that differ in numbers alone (positions, sizes, limits) are one cause."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, text: str, count: int = 1) -> None:
        cause = without_numbers(text)
        self._first.setdefault(cause, text)
        self._counts[cause] += count

    def update(self, counts: Mapping[str, int]) -> None:
        """Add the counts of others."""
        for text, count in counts.items():
            self.add(text, count)

    def counts(self) -> dict[str, int]:
        """The first text of each cause and how often it was met, most frequent first."""
        return {self._first[cause]: count for cause, count in self._counts.most_common()}
