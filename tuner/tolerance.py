"""How far a correct result on N(0,1) data may lie from the fp64 reference: a formula per element of C.

For C = alpha * S + beta * C0 with S = sum of k products, and |a|, |b| the Euclidean norms of the row of A and the
column of B that make the element, an element is right if its error is at most

    |alpha| |a| |b| (ACCUMULATION u + TRUNCATION t sqrt(k) / 16 + INPUT v / sqrt(k))  +  (FINAL u + 3 v + w) |C|
        + FINAL u |beta| |C0| + the smallest positive number of C's format

where u is the unit roundoff of the accumulator, t its truncation where tensor cores sum, v the unit roundoff to which
inputs are rounded before they are multiplied, and w the unit roundoff of C's format. Where the terms come from:

- Accumulation. A chain of k additions makes k rounding errors, each at most u times the partial sum. For random data
  the partial sum after j terms has the size |a| |b| sqrt(j) / k, so that the errors add up, as independent ones do,
  to a standard deviation of 0.42 u |a| |b| / sqrt(2) = 0.3 u |a| |b|, whatever k is. (The norms grow with sqrt(k), so
  the bound grows with k; a bound that grows with sqrt(k) alone rejects right results of long sums.) An element whose
  own value is x deviations has partial sums, hence errors, up to 0.24 x times larger. Both together exceed 6 u |a| |b|
  once in 1e10 elements. Sums that are split or arranged in trees err less.
- Truncation. Tensor cores cut the sum of each 8 to 32 products instead of rounding it. These errors all point towards
  zero: k / 16 times, each up to t times the partial sum, so sqrt(k) / 16 in place of the 6.
- Input. Independent relative errors of both factors, at most v each (2 v if cut): a standard deviation of
  0.6 v |a| |b| / sqrt(k), plus, if cut, a shift of the result by up to 1.5 v of itself, in the term with |C|.
- Final. alpha * S, beta * C0 and their sum are rounded once each.

The formula depends on k and on what the data is, not on an element's own size: near-zero results of long sums are not
rejected, and an error of one product in a sum of any length that occurs is still seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kt.problems import Problem
from kt.tuner.exact_values import SIGNIFICAND_BITS

__all__ = ["Tolerance", "tolerance"]

ACCUMULATION = 6.0
TRUNCATION = 1.0
INPUT = 10.0
FINAL = 3.0
MOST_NORMAL = 6.0  # no generated N(0,1) number is larger

# Formats whose products tensor cores sum with truncation, and the truncation: the last bit that is kept.
_TRUNCATED = {"fp16": 2.0**-23, "bf16": 2.0**-23, "tf32": 2.0**-23, "fp8_e4m3": 2.0**-13, "fp8_e5m2": 2.0**-13}
_SMALLEST = {"fp16": 2.0**-24, "bf16": 2.0**-133, "fp32": 2.0**-149, "fp64": 2.0**-1074, "int32": 0.0}


@dataclass(frozen=True)
class Tolerance:
    """Largest error of an element: `product` |a| |b| + `relative` |reference| + `absolute`."""

    product: float
    relative: float
    absolute: float

    def bound(self, row_norm: Any, column_norm: Any, reference: Any) -> Any:
        """The largest error, for numbers or numpy arrays; the comparing kernel computes the same."""
        return self.product * row_norm * column_norm + self.relative * abs(reference) + self.absolute


def tolerance(problem: Problem, scalars: tuple[float, float]) -> Tolerance:
    """The tolerance of the random pass of `problem` with `scalars` as alpha and beta; zero for whole numbers."""
    if problem.accumulator == "int32":
        return Tolerance(0.0, 0.0, 0.0)
    alpha, beta = scalars
    root_k = math.sqrt(max(1, problem.k))
    accumulator = _roundoff(problem.accumulator)
    inputs = _roundoff("tf32") if problem.dtype == "tf32" else 0.0
    truncation = _TRUNCATED.get(problem.dtype, 0.0)
    product = ACCUMULATION * accumulator + TRUNCATION * truncation * max(1.0, root_k / 16) + INPUT * inputs / root_k
    relative = FINAL * accumulator + 3 * inputs + 1.01 * _roundoff(problem.out_dtype)
    if problem.out_dtype != "fp64":
        relative += _roundoff("fp32")  # the reference is kept in fp32
    absolute = FINAL * accumulator * abs(beta) * MOST_NORMAL + _SMALLEST[problem.out_dtype]
    return Tolerance(abs(alpha) * product, relative, absolute)


def _roundoff(dtype: str) -> float:
    """Largest relative error of rounding to the nearest number of `dtype`."""
    return 2.0 ** -SIGNIFICAND_BITS[dtype]
