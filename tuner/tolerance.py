"""How far a correct result on N(0,1) data may lie from the fp64 reference: a formula per element of C.

For C = alpha * S + beta * C0 with S = sum of k products, and |a|, |b| the Euclidean norms of the row of A and the
column of B that make the element, an element is right if its error is at most

    |alpha| |a| |b| (ACCUMULATION u + CUT)  +  (FINAL u + w) |C|  +  FINAL u |beta| |C0|
        + the smallest positive number of C's format

where u is the unit roundoff of the accumulator and w that of C's format. Operands of tf32 are the fp32 numbers in
memory rounded to the nearest tf32 numbers, by the reference as by kernels, so they add no error. Where the terms come
from:

- Accumulation. A chain of k additions makes k rounding errors, each at most u times the partial sum. For random data
  the partial sum after j terms has the size |a| |b| sqrt(j) / k, so that the errors add up, as independent ones do,
  to a standard deviation of 0.42 u |a| |b| / sqrt(2) = 0.3 u |a| |b|, whatever k is. (The norms grow with sqrt(k), so
  the bound grows with k; a bound that grows with sqrt(k) alone rejects right results of long sums.) An element whose
  own value is x deviations has partial sums, hence errors, up to 0.24 x times larger. Both together exceed 6 u |a| |b|
  once in 1e10 elements. Sums that are split or arranged in trees err less.
- Cut, of 16-bit floats and tf32. Tensor cores add a few products at a time (`AT_ONCE`, the fewest of all GPUs from
  Ampere on) to the sum so far, with a bit or two to spare, and cut the result to 24 bits: k / AT_ONCE errors of up to
  t = 2**-23 times the partial sum, all towards zero. An element of 5.5 deviations, one in 3e7, has partial sums that
  grow evenly to it, and ends sqrt(k) / AT_ONCE t |a| |b| too small.
- Cut, of 8-bit floats. The adders of Ada's and Hopper's tensor cores keep 13 bits below the leading one of the largest
  number that they add (Blackwell's keep 25): each product is cut to t = 2**-13 of the sum so far, towards zero. The
  signs of products are random, and so are those of these errors: their sum has a standard deviation of 0.2 t |a| |b|,
  which hardly grows with k, and large elements, in which one sign prevails, end up to 0.11 x**2 t |a| |b| too small.
  Both together exceed 8 t |a| |b| once in 1e10 elements (`fp32_fast`). Where sums of `PROMOTED_EVERY` = p products are
  added up in fp32 (`fp32`), each p products err so by themselves: k / p independent errors of p t, which add up to
  sqrt(p / k) of the above.
- Final. alpha * S, beta * C0 and their sum are rounded once each.

The formula depends on k and on what the data is, not on an element's own size: near-zero results of long sums are not
rejected, and an error of one product in a sum of any length that occurs is still seen; in sums of 8-bit floats, of
more than a few hundred, that is left to the exact pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kt.problems import Problem
from kt.problems.dtypes import PROMOTED_EVERY
from kt.tuner.exact_values import SIGNIFICAND_BITS

__all__ = ["Tolerance", "tolerance"]

ACCUMULATION = 6.0
FINAL = 3.0
MOST_NORMAL = 6.0  # no generated N(0,1) number is larger
AT_ONCE = {"fp16": 8, "bf16": 8, "tf32": 4}
EIGHT_BIT_FLOATS = ("fp8_e4m3", "fp8_e5m2")

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
    accumulator = _roundoff(problem.accumulator)
    product = ACCUMULATION * accumulator + _cut(problem)
    relative = FINAL * accumulator + 1.01 * _roundoff(problem.out_dtype)
    if problem.out_dtype != "fp64":
        relative += _roundoff("fp32")  # the reference is kept in fp32
    absolute = FINAL * accumulator * abs(beta) * MOST_NORMAL + _SMALLEST[problem.out_dtype]
    return Tolerance(abs(alpha) * product, relative, absolute)


def _cut(problem: Problem) -> float:
    """What tensor cores may cut off, as a part of |a| |b|."""
    if problem.dtype in EIGHT_BIT_FLOATS:
        lengths = PROMOTED_EVERY / problem.k if problem.accumulator == "fp32" and problem.k else 1.0
        return 8 * 2.0**-13 * math.sqrt(min(1.0, lengths))
    if problem.dtype in AT_ONCE:
        return max(1.0, math.sqrt(problem.k) / AT_ONCE[problem.dtype]) * 2.0**-23
    return 0.0


def _roundoff(dtype: str) -> float:
    """Largest relative error of rounding to the nearest number of `dtype`."""
    return 2.0 ** -SIGNIFICAND_BITS[dtype]
