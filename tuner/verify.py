"""`Verifier`: whether a candidate computes what it should, compared on the GPU with the independent reference.

The exact pass has whole-number operands and demands equality; the random pass has N(0,1) operands and a tolerance that
scales with k (see tolerance.py). In both, C is filled with NaN before the launch, its padding and guard bands must be
untouched after it, and so must the operands. Workspace, shared memory and registers hold NaN as well: a kernel that
counts on what was left there is seen. The full verification adds an exact pass with other scalars, and demands
that two runs give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from kt.problems import Problem
from kt.tuner.exact_values import exact_scalars, random_scalars, second_scalars
from kt.tuner.operands import LEFT_OVER_PATTERN, OUT_PATTERN, Operands
from kt.tuner.reference_kernels import ReferenceKernels, Report
from kt.tuner.tolerance import Tolerance, tolerance
from kt.wording import part, plural, verb

__all__ = ["Launch", "Verifier", "decode_element", "describe_mismatch", "scalars_of_passes"]

Scalars = tuple[float, float]
# Enqueues one run with these device addresses and scalars.
Launch = Callable[[dict[str, int], Scalars], None]

FAR_WRITE = "memory far outside C was overwritten"
_REPORT_BYTES = 24
_DIGEST_AT = 128  # within the report slot


class Memory(Protocol):
    """What the verifier needs of the GPU itself."""

    def clear(self, address: int, size: int) -> None: ...
    def read(self, address: int, size: int) -> bytes: ...


def scalars_of_passes(problem: Problem) -> list[Scalars]:
    """alpha and beta of the two exact passes."""
    first = exact_scalars(problem.alpha, problem.beta)
    return [first, second_scalars(*first)]


class Verifier:
    """Verifies candidates on the operands of one problem; keeps the reference of the last pass."""

    def __init__(self, memory: Memory, kernels: ReferenceKernels, operands: Operands) -> None:
        self._memory = memory
        self._kernels = kernels
        self._operands = operands
        self._problem = operands.problem
        self._held: tuple[str, Scalars] | None = None
        self._fingerprint = b""
        self._first, self._second = scalars_of_passes(self._problem)
        self._norms = (operands.address("row_norms"), operands.address("column_norms"))

    def prepare(self) -> None:
        """Compute the reference of the first exact pass."""
        self._hold("exact", self._first)

    def exact(self, launch: Launch) -> str:
        """The exact pass: "" if every element is right, else one line that says what is wrong."""
        return self._verified(launch, "exact", self._first)

    def full(self, launches: Sequence[Launch]) -> list[str]:
        """All passes for each of `launches`: "" or the first thing that is wrong. A reference serves all at once."""
        details = [""] * len(launches)
        random = random_scalars(self._problem)
        for kind, scalars in (("exact", self._first), ("exact", self._second), ("random", random)):
            for index, launch in enumerate(launches):
                details[index] = details[index] or self._verified(launch, kind, scalars)
                if kind == "random":
                    details[index] = details[index] or self._repeated(launch, scalars)
        return details

    def _verified(self, launch: Launch, kind: str, scalars: Scalars) -> str:
        """One pass. If the operands or the reference were overwritten, they are made anew and the pass is repeated:
        an earlier candidate may have done it while it was timed."""
        detail = ""
        for _ in range(2):
            detail = self._attempt(launch, kind, scalars)
            if self._intact():
                return detail
            self._operands.restore()
            self._held = None
        return "; ".join(filter(None, [detail, FAR_WRITE]))

    def _attempt(self, launch: Launch, kind: str, scalars: Scalars) -> str:
        self._hold(kind, scalars)
        self._run(launch, kind, scalars)
        report, stray = self._compare(kind, scalars)
        parts = []
        if report.count:
            what = f"alpha={scalars[0]:g} beta={scalars[1]:g}, {kind} operands"
            if kind == "random" and report.worst:
                what += f", error up to {report.worst:.3g} times what is allowed"
            parts.append(f"{self._mismatch(report)} ({what})")
        if stray.count:
            parts.append(f"{plural(stray.count, 'element')} outside C {verb(stray.count, 'was', 'were')} overwritten")
        return "; ".join(parts)

    def _run(self, launch: Launch, kind: str, scalars: Scalars) -> None:
        self._operands.poison_workspace()
        self._operands.poison_c(kind, scalars[1])
        self._kernels.fill_multiprocessors(LEFT_OVER_PATTERN)  # last: every kernel leaves something behind
        launch(self._operands.pointers("exact" if kind == "exact" else 0), scalars)

    def _hold(self, kind: str, scalars: Scalars) -> None:
        """Have the reference of this pass; the fingerprint covers all that verification depends on."""
        if self._held == (kind, scalars):
            return
        operands = self._operands
        pointers = operands.pointers("exact" if kind == "exact" else 0)
        operands.poison_c(kind, scalars[1])
        if kind == "random":
            self._kernels.norms(self._problem, pointers["a"], pointers["b"], *self._norms)
        reference, scratch = operands.address("reference"), operands.address("scratch")
        how = "exact" if kind == "exact" else "true"
        self._kernels.multiply(how, self._problem, pointers, reference, scratch, scalars)
        self._held = (kind, scalars)
        self._fingerprint = self._digest(*self._depended_on())

    def _compare(self, kind: str, scalars: Scalars) -> tuple[Report, Report]:
        """What differs inside C, and what was written around and between its rows."""
        report = self._operands.address("report")
        self._memory.clear(report, 2 * _REPORT_BYTES)
        allowed = tolerance(self._problem, scalars) if kind == "random" else Tolerance(0.0, 0.0, 0.0)
        c, reference = self._operands.address("c0"), self._operands.address("reference")
        how = "exact" if kind == "exact" else "true"
        self._kernels.compare(how, self._problem, c, reference, self._norms, report, allowed)
        for first, last in self._surroundings():
            self._kernels.check_pattern(self._problem, c, first, last, report + _REPORT_BYTES, OUT_PATTERN)
        data = self._memory.read(report, 2 * _REPORT_BYTES)
        return Report.unpack(data[:_REPORT_BYTES]), Report.unpack(data[_REPORT_BYTES:])

    def _surroundings(self) -> list[tuple[int, int]]:
        """Ranges of elements, counted from C's base, in which all that is not C's must keep the pattern."""
        problem, size = self._problem, self._problem.element_bytes["c"]
        start, end = self._operands.bounds("c0")
        base = self._operands.address("c0")
        before, after = (start - base) // size, (end - base) // size
        dense = problem.ldc == problem.n and problem.stride_c in (0, problem.m * problem.n)
        return [(before, 0), (problem.footprint("c") // size, after)] if dense else [(before, after)]

    def _repeated(self, launch: Launch, scalars: Scalars) -> str:
        """Run once more after the random pass: all of C's memory must come out the same."""
        first = self._digest(*self._operands.bounds("c0"))
        self._run(launch, "random", scalars)
        second = self._digest(*self._operands.bounds("c0"))
        return "" if first == second else "two runs on the same operands differ in bits"

    def _depended_on(self) -> tuple[int, int]:
        """The memory that later verifications rely on: reference, norms and operands lie side by side."""
        return self._operands.bounds("reference")[0], self._operands.bounds("c0")[0]

    def _intact(self) -> bool:
        return self._digest(*self._depended_on()) == self._fingerprint

    def _digest(self, start: int, end: int) -> bytes:
        result = self._operands.address("report") + _DIGEST_AT
        self._kernels.digest(start, end - start, result)
        return self._memory.read(result, 8)

    def _mismatch(self, report: Report) -> str:
        """The mismatch in words, with the values of the first element that differs."""
        problem = self._problem
        batch, rest = divmod(report.first, problem.m * problem.n)
        row, column = divmod(rest, problem.n)
        offset = batch * problem.stride_c + row * problem.ldc + column
        wide = {"fp64": "fp64", "int32": "int32"}.get(problem.accumulator, "fp32")
        reference = problem.out_dtype if self._held and self._held[0] == "exact" else wide
        got = self._element(self._operands.address("c0"), offset, problem.out_dtype)
        want = self._element(self._operands.address("reference"), report.first, reference)
        return describe_mismatch(problem, report.count, (batch, row, column), got, want)

    def _element(self, base: int, index: int, dtype: str) -> float:
        size = 8 if dtype == "fp64" else 2 if dtype in ("fp16", "bf16") else 4
        return decode_element(self._memory.read(base + index * size, size), dtype)


def describe_mismatch(problem: Problem, count: int, first: tuple[int, int, int], got: float, want: float) -> str:
    """`3 of 4096 elements differ, first at (5, 63): got 1, want 2`; with the batch in front if there are several."""
    place = first if problem.batch > 1 else first[1:]
    total = problem.m * problem.n * problem.batch
    differing = part(count, total, "element", "differs", "differ")
    return f"{differing}, first at {place}: got {got:.9g}, want {want:.9g}"


def decode_element(data: bytes, dtype: str) -> float:
    """The number that `data` holds in an output format."""
    if dtype == "bf16":
        return float(np.frombuffer(b"\0\0" + data, "<f4")[0])
    return float(np.frombuffer(data, {"fp16": "<f2", "fp32": "<f4", "fp64": "<f8", "int32": "<i4"}[dtype])[0])
