"""`ExactOperands`: operands of whole numbers in host memory, as they are to lie on the GPU, and the C that is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kt.problems import Problem
from kt.tuner.exact_values import exact_values
from support.formats import STORED, decoded, encoded

__all__ = ["ExactOperands", "exact_operands"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ExactOperands:
    """All that one launch needs.

    Attributes:
        memory: by operand, from its first element to its last; what lies between rows is no number, or 127 in int8.
        right: C's memory after the launch; what lies between its rows is as it was.
        scalars: alpha and beta, with which every sum and product is exact.
    """

    problem: Problem
    memory: dict[str, Bytes]
    right: Bytes
    scalars: tuple[float, float]

    def judge(self, result: Bytes) -> str:
        """What is wrong with C's memory, or ""."""
        c, right = (_view(self.problem, "c", memory) for memory in (result, self.right))
        # Compared as numbers: -0 is right where 0 is. NaN equals nothing.
        got, want = (decoded(values, self.problem.out_dtype) for values in (c, right))
        wrong = np.argwhere(got != want)
        if len(wrong):
            first = tuple(int(index) for index in wrong[0])
            values = f"got {got[first]:g}, want {want[first]:g}"
            return f"{len(wrong)} of {got.size} elements differ, first at {first}: {values}"
        between = np.ones(len(result), bool)
        _view(self.problem, "c", between.view(np.uint8), as_bytes=True)[...] = 0
        return "memory between the rows of C was overwritten" if (result != self.right)[between].any() else ""


def exact_operands(problem: Problem, seed: int) -> ExactOperands:
    """Whole numbers as the exact pass of kt's verification draws them, and their product."""
    scalars = (problem.alpha, problem.beta)
    values, random = exact_values(problem, scalars), np.random.default_rng(seed)
    memory = {operand: _no_numbers(problem, operand) for operand in "abc"}
    for operand in "abc":
        view = _view(problem, operand, memory[operand])
        magnitude = values.c_magnitude if operand == "c" else values.magnitude
        numbers = random.integers(1, magnitude, view.shape, endpoint=True) * random.choice([-1, 1], view.shape)
        if operand != "c":
            numbers = numbers * (random.random(view.shape) < values.density)
        if operand != "c" or problem.beta:
            view[...] = encoded(numbers.astype(np.float64), _format(problem, operand))
    return ExactOperands(problem, memory, _product(problem, memory), scalars)


def _product(problem: Problem, memory: dict[str, Bytes]) -> Bytes:
    a, b = (decoded(_view(problem, operand, memory[operand]), problem.dtype) for operand in "ab")
    left = a if problem.layout[0] == "n" else a.transpose(0, 2, 1)
    right = b if problem.layout[1] == "n" else b.transpose(0, 2, 1)
    result = memory["c"].copy()
    c = _view(problem, "c", result)
    total = problem.alpha * (left @ right)
    if problem.beta:
        total += problem.beta * decoded(c, problem.out_dtype)
    c[...] = encoded(total, problem.out_dtype)
    return result


def _format(problem: Problem, operand: str) -> str:
    return problem.out_dtype if operand == "c" else problem.dtype


def _no_numbers(problem: Problem, operand: str) -> Bytes:
    size = problem.footprint(operand)
    if problem.element_bytes[operand] == 1:
        return np.full(size, 0x7F, np.uint8)
    return np.full(size // 2, 0x7FFD, np.uint16).view(np.uint8)


def _view(problem: Problem, operand: str, memory: Bytes, *, as_bytes: bool = False) -> npt.NDArray[Any]:
    """The elements of an operand, [batch, rows, columns], sharing their memory; or each element's bytes."""
    dtype = np.dtype(STORED[_format(problem, operand)])
    rows, columns = problem.stored_extents[operand]
    steps = getattr(problem, f"stride_{operand}"), getattr(problem, f"ld{operand}"), 1
    shape, strides = (problem.batch, rows, columns), tuple(step * dtype.itemsize for step in steps)
    if not len(memory):
        return np.zeros(shape, dtype)
    if as_bytes:
        return np.lib.stride_tricks.as_strided(memory, (*shape, dtype.itemsize), (*strides, 1))
    return np.lib.stride_tricks.as_strided(memory.view(dtype), shape, strides)
