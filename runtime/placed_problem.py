"""`PlacedProblem`: a problem whose operands begin at addresses that are less aligned than shapes are tuned.

Where every address is a multiple of 16 bytes, as almost always, a plain `Problem` says all: no kernel asks for more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kt.errors import InputError
from kt.problems import Problem
from kt.problems.problem import MAX_ALIGNMENT
from kt.wording import plural

__all__ = ["Bases", "PlacedProblem", "bases_of", "placed", "tuned_as"]

Bases = tuple[int, ...]  # bytes to which a, b and c are aligned, powers of two; () if it makes no difference
TUNED_ALIGNMENT = 256  # of base addresses, as shapes are tuned


@dataclass(frozen=True)
class PlacedProblem(Problem):
    """The same problem to the cache as one that is aligned as shapes are tuned, and another one to constraints.

    Attributes:
        bases: bytes to which the addresses of a, b and c are aligned.
    """

    bases: Bases = (MAX_ALIGNMENT,) * 3

    def start_alignment(self, operand: str) -> int:
        return min(super().start_alignment(operand), self.bases["abc".index(operand)])

    @property
    def label(self) -> str:
        return f"{Problem(**self.as_dict()).label} at multiples of {', '.join(map(str, self.bases))} bytes"

    def as_dict(self) -> dict[str, Any]:
        """The fields of a problem: what is tuned for it is remembered under these."""
        fields = super().as_dict()
        del fields["bases"]
        return fields


def bases_of(a: int, b: int, c: int) -> Bases:
    """What these addresses are aligned to."""
    if not (a | b | c) % MAX_ALIGNMENT:
        return ()
    return tuple(min(MAX_ALIGNMENT, address & -address) if address else MAX_ALIGNMENT for address in (a, b, c))


def placed(problem: Problem, bases: Bases) -> Problem:
    """The problem with operands that are so aligned; its own base alignment counts for nothing."""
    fields: dict[str, Any] = {**problem.as_dict(), "base_alignment": TUNED_ALIGNMENT}
    return PlacedProblem(**fields, bases=bases) if bases else Problem(**fields)


def tuned_as(problem: Problem) -> tuple[Problem, ...]:
    """The problems that may have been tuned of this one, the most aligned first; and the last is what to tune.

    All three operands of a problem that is tuned are aligned alike: as the least aligned one here, but to the widest
    element at least. Where a narrow one lies within less, as int8 may beside int32, no tuned problem is that loose, and
    a winner serves only if its kernel does not read there as if it were aligned.

    Raises:
        InputError: an operand begins within an element.
    """
    aligned = Problem(**problem.as_dict())
    if not isinstance(problem, PlacedProblem):
        return (aligned,)
    for (name, size), base in zip(problem.element_bytes.items(), problem.bases, strict=True):
        if base < size:
            raise InputError(f"{name} is at a multiple of {plural(base, 'byte')}; an element needs its own size")
    least = max(min(problem.bases), *problem.element_bytes.values())
    return (aligned, replace(aligned, base_alignment=least))
