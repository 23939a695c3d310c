"""Shapes that a message names: the first ones, and how many more there are."""

from collections.abc import Iterable, Sequence

__all__ = ["LISTED", "listed", "listed_by_cause", "some"]

LISTED = 20  # lines
OF_ONE_CAUSE = 8  # shapes of one line


def listed(labels: Sequence[str], most: int = LISTED) -> list[str]:
    """A line for each of the first `most`, and one for the others."""
    lines = [f"  {label}" for label in labels[:most]]
    return lines + ([f"  and {len(labels) - most} more"] if len(labels) > most else [])


def listed_by_cause(failures: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each cause, with the shapes that have it; of each failure its shape and its cause are given."""
    by_cause: dict[str, list[str]] = {}
    for label, cause in failures:
        by_cause.setdefault(cause, []).append(label)
    return listed([f"{some(labels, OF_ONE_CAUSE)}: {cause}" for cause, labels in by_cause.items()])


def some(labels: Sequence[str], most: int) -> str:
    """The first ones on one line, and how many more there are."""
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
