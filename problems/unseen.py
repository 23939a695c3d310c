"""Shapes that stand for all that nobody lists: they cover a box of sizes evenly, in every layout, aligned and odd.

Sizes are a low-discrepancy sequence on a logarithmic scale: Roberts' generalisation of the golden ratio to three
dimensions ("The unreasonable effectiveness of quasirandom sequences", 2018). So any number of shapes covers the box,
more of them cover it more finely, and the first ones stay what they were.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from kt.problems.dtypes import DTYPES, OUTPUT_BYTES
from kt.problems.problem import MAX_ALIGNMENT, Problem

__all__ = ["LARGEST", "unseen"]

LARGEST = 8192  # of m, n and k; the smallest is 1

# Points of the sequence that shapes of one layout and alignment have for themselves. They follow each other, so that
# few of one kind cover the box, too; with this number those of all kinds together do as well.
_OF_A_KIND = 507
# The reciprocals of the first three powers of the root of x^4 = x + 1.
_STEPS = tuple(1.2207440846057596**-power for power in (1, 2, 3))


def unseen(problems: Sequence[Problem], count: int) -> list[Problem]:
    """For each of the number formats of `problems` so many shapes, in their layouts, none of which is listed.

    Layouts take turns, and in each of them shapes whose rows are all aligned and shapes of which no row is.
    """
    layouts: dict[tuple[str, ...], list[str]] = {}
    for problem in problems:
        of_formats = layouts.setdefault(problem.formats, [])
        if problem.layout not in of_formats:
            of_formats.append(problem.layout)
    chosen = [one for formats, found in layouts.items() for one in _of_formats(formats, sorted(found), count)]
    return [one for one in dict.fromkeys(chosen) if one not in set(problems)]


def _of_formats(formats: tuple[str, ...], layouts: Sequence[str], count: int) -> Iterator[Problem]:
    dtype, accumulator, output, epilogue = formats
    whole = MAX_ALIGNMENT // min(DTYPES[dtype].bytes, OUTPUT_BYTES[output])
    kinds = list(product((False, True), layouts))
    for number in range(count):
        kind, place = number % len(kinds), number // len(kinds)
        odd, layout = kinds[kind]
        m, n, k = (_size((_OF_A_KIND * kind + place + 1) * step % 1.0, whole, odd=odd) for step in _STEPS)
        yield Problem(m, n, k, dtype, layout, accumulator=accumulator, out_dtype=output, epilogue=epilogue)


def _size(part: float, whole: int, *, odd: bool) -> int:
    """The size at this part of the way from 1 to the largest, by ratios."""
    size = LARGEST**part
    return int(size) | 1 if odd else max(whole, round(size / whole) * whole)
