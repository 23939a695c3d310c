"""Which configuration a problem is computed with: the rule of the header with kernels, in Python.

1. The winner of this very problem; else, as a neighbour, that of the same shape with another use of alpha and beta;
   else, where one of its sizes is of a range, that which serves the bucket.
2. Else, for a tiny problem, the standard kernel of such (`kt.export.tiny`).
3. Else, of the winners' kernels for these formats and this layout, and the standard ones, that can compute the problem,
   the one that is expected to be fastest (`kt.export.expected_time`).
4. Else the generic kernel, which can compute anything.

`kt.export.contents` says what a header has; export/gemm_dispatch.cuh.j2 is the same rule in C++, over the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from kt.cache.key import problem_fields
from kt.devices.device import Device
from kt.export.contents import Candidate, Contents, formats_of
from kt.export.expected_time import costs_of_each
from kt.export.expected_time import expected as expected_time
from kt.export.runnable import Launches, is_possible, launches_of, names_of
from kt.problems import Problem

__all__ = ["Found", "Pick", "expected", "pick"]

_DENSE: dict[str, Any] = dict.fromkeys(("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c"), 0)

Found = Literal["exact", "neighbour", "standard", "generic", "nothing"]


@dataclass(frozen=True)
class Pick:
    """What a problem is dispatched to.

    Attributes:
        found: where the configuration is from.
        variant: its number in the header, -1 for nothing.
        launches: what is launched, and the bytes of workspace.
        entry: number of the tuned shape that it was taken from, or -1.
    """

    found: Found
    variant: int = -1
    launches: Launches | None = None
    entry: int = -1


def pick(contents: Contents, problem: Problem, device: Device) -> Pick:
    """The configuration for a problem on a device.

    A device that the table does not have is served as by `kt::find_same_architecture`; here only those that it has.
    """
    if not is_possible(problem):
        return Pick("nothing")
    choices = (
        _exact(contents, problem, device),
        _other_scalars(contents, problem, device),
        _bucket(contents, problem, device),
        _tiny(contents),
        _expected(contents, problem, device),
        _generic(contents),
    )
    for found, variant, entry in (choice for one in choices for choice in one):
        chosen = contents.kernels.variants[variant]
        launches = launches_of(contents.kernels.kernels[chosen.kernel], chosen.runtime, problem, device)
        if launches is not None:
            return Pick(found, variant, launches, entry)
    return Pick("nothing")


Choice = tuple[Found, int, int]


def _exact(contents: Contents, problem: Problem, device: Device) -> Iterator[Choice]:
    """The winners of this very problem, of those for more and less aligned operands the most aligned first."""
    uses = _uses(problem)
    return (("exact", contents.entries[index], index) for index in _of_shape(contents, problem, device, [uses]))


def _other_scalars(contents: Contents, problem: Problem, device: Device) -> Iterator[Choice]:
    """The same with other scalars."""
    uses = list(product(("one", "other"), ("zero", "one", "other")))
    return (("neighbour", contents.entries[index], index) for index in _of_shape(contents, problem, device, uses))


def _bucket(contents: Contents, problem: Problem, device: Device) -> Iterator[Choice]:
    """What serves the buckets that the problem is of; a bucket has dense operands."""
    for served in contents.buckets:
        name, bucket = served.shape.name, served.bucket
        there = contents.winners[served.entry].key
        if there.device != device.identity or not bucket.first <= getattr(problem, name) <= bucket.last:
            continue
        sizes: dict[str, Any] = {name: getattr(problem, name), **_DENSE}
        alike = _shape(problem) == _shape(replace(there.problem, **sizes))
        if alike and _shape(there.problem) == _shape(replace(there.problem, **_DENSE)):
            yield "neighbour", contents.entries[served.entry], served.entry


def _of_shape(contents: Contents, problem: Problem, device: Device, uses: Sequence[tuple[str, str]]) -> Iterator[int]:
    wanted = _shape(problem)
    found = [
        index
        for index, best in enumerate(contents.winners)
        if best.key.device == device.identity and best.key.problem.m == problem.m and _shape(best.key.problem) == wanted
    ]
    for use in uses:
        yield from (index for index in reversed(found) if _uses(contents.winners[index].key.problem) == use)


def _expected(contents: Contents, problem: Problem, device: Device) -> Iterator[Choice]:
    """Candidates, the one first that is expected to be fastest; of equal ones the one that stands first."""
    group = contents.groups.get((device.identity, *formats_of(problem), problem.layout))
    if group is None:
        return
    times: list[tuple[int, int, int, Candidate]] = []
    for candidate in group:
        if _fits(contents, candidate, problem):
            for variant, (time, entry) in expected(contents, candidate, problem, device).items():
                times.append((time, variant, entry, candidate))
    for _, variant, entry, candidate in sorted(times, key=lambda item: item[0]):  # stable: the first of equal ones
        yield ("standard" if candidate.standard else "neighbour"), variant, entry


def expected(contents: Contents, candidate: Candidate, problem: Problem, device: Device) -> dict[int, tuple[int, int]]:
    """For each variant of a candidate the expected time in picoseconds, and the number of the shape that says so."""
    variants = [contents.kernels.variants[number] for number in candidate.variants]
    kernel = contents.kernels.kernels[variants[0].kernel]
    names = names_of(kernel, variants[0].runtime, problem, device)
    rules, traffic = contents.cost_rules[kernel.config.family], contents.traffic[device.identity]
    found: dict[int, tuple[int, int]] = {}
    every = costs_of_each(rules, [{**names, **dict(one.runtime)} for one in variants])
    for number, costs in zip(candidate.variants, every, strict=True):
        found[number] = expected_time(candidate.points, costs, traffic)
    return found


def _fits(contents: Contents, candidate: Candidate, problem: Problem) -> bool:
    signature = contents.kernels.kernels[contents.kernels.variants[candidate.variants[0]].kernel].signature
    return all(problem.alignment(name) >= getattr(signature, f"align_{name}") for name in "abc")


def _tiny(contents: Contents) -> Iterator[Choice]:
    return (("standard", variant, -1) for variant in contents.tiny)


def _generic(contents: Contents) -> Iterator[Choice]:
    return (("generic", variant, -1) for variant in contents.generics)


def _shape(problem: Problem) -> dict[str, object]:
    """What is computed, whatever the alignment and the scalars."""
    fields = problem_fields(problem)
    return {name: value for name, value in fields.items() if name not in ("base_alignment", "alpha", "beta")}


def _uses(problem: Problem) -> tuple[str, str]:
    fields = problem_fields(problem)
    return fields["alpha"], fields["beta"]
