"""Counts in messages: nouns and verbs agree with the number."""

__all__ = ["part", "plural", "verb"]


def plural(count: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{count} {noun}{'s' if count != 1 else ''}"


def verb(count: int, one: str, several: str) -> str:
    """The form of a verb for so many: `verb(1, "has", "have")`."""
    return one if count == 1 else several


def part(count: int, total: int, noun: str, *verbs: str) -> str:
    """`1 of 2 shapes`; with the two forms of a verb `1 of 2 shapes has`, `2 of 2 shapes have`, `1 of 1 shape has`."""
    return " ".join([f"{count} of {plural(total, noun)}", *([verb(count, *verbs)] if verbs else [])])
