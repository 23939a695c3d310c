"""Shapes that a message names: the first ones, and how many more there are."""

from collections.abc import Sequence

__all__ = ["LISTED", "listed"]

LISTED = 20


def listed(labels: Sequence[str], most: int = LISTED) -> list[str]:
    """A line for each of the first `most`, and one for the others."""
    lines = [f"  {label}" for label in labels[:most]]
    return lines + ([f"  and {len(labels) - most} more"] if len(labels) > most else [])
