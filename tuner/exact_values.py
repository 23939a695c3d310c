"""Which whole numbers the exact pass puts into the operands, so that every correct kernel gives the same bits.

With whole numbers, sums do not depend on their order as long as no partial sum leaves the range in which the
accumulator holds every whole number; of 8-bit floats, tensor cores before Blackwell hold fewer bits than their fp32
accumulator has. Elements are +-1 … +-`magnitude`, each with probability `density`, else 0: short
sums take large numbers, long sums in narrow accumulators take few ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kt.problems import Problem

__all__ = ["SIGNIFICAND_BITS", "ExactValues", "exact_scalars", "exact_values", "random_scalars", "second_scalars"]

# Bits of the significand, the implicit one included: every whole number up to 2**bits is held exactly.
SIGNIFICAND_BITS = {
    "fp64": 53, "fp32": 24, "fp32_fast": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8_e4m3": 4, "fp8_e5m2": 3,
    "int8": 7, "int32": 31,
}  # fmt: skip
# Bits of a sum that the adders of Ada's and Hopper's tensor cores keep of 8-bit floats, the leading one included.
_SUM_BITS = {"fp8_e4m3": 14, "fp8_e5m2": 14}
_MOST_MAGNITUDE = 2**20
_MOST_C = 4  # largest element of C before the launch, where beta counts
_DEVIATIONS = 8.0  # of the number of non-zero products; leaves 1e-15 per element
_SAFE_SCALARS = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0)  # and their negatives: products stay exact in fp32


@dataclass(frozen=True)
class ExactValues:
    """How the elements of A and B are drawn, and those of C where beta counts.

    Attributes:
        magnitude: largest absolute value of an element of A and B; non-zero values are uniform up to it.
        density: probability that an element of A or B is not zero.
        c_magnitude: largest absolute value of an element of C.
    """

    magnitude: int
    density: float
    c_magnitude: int


def exact_scalars(alpha: float, beta: float) -> tuple[float, float]:
    """alpha and beta of the exact pass: the problem's own where products with them are exact, else stand-ins."""
    safe_alpha = alpha if abs(alpha) in _SAFE_SCALARS else math.copysign(2.0, alpha)
    safe_beta = beta if abs(beta) in _SAFE_SCALARS else -1.0
    return safe_alpha, safe_beta


def second_scalars(alpha: float, beta: float) -> tuple[float, float]:
    """alpha and beta of the second exact pass: neither is 0 or 1, nor what the first pass used.

    They are arguments of the launch, so a kernel that is right for one pair only is wrong.
    """
    return (2.0, -1.0) if (alpha, beta) != (2.0, -1.0) else (-3.0, 2.0)


def random_scalars(problem: Problem) -> tuple[float, float]:
    """alpha and beta of the random pass; whole numbers where C is whole."""
    return (3.0, -2.0) if problem.accumulator == "int32" else (1.5, 0.5)


def exact_values(problem: Problem, *scalars: tuple[float, float]) -> ExactValues:
    """The widest values that keep every partial sum of `problem` exact, with each of `scalars` as alpha and beta.

    Two bounds: the sum of the absolute products stays below half of the accumulator's exact range, also when scaled by
    alpha and with beta * C added; and four standard deviations of the result stay inside the exact range of C, so
    that the rounding of the output hides no small error. (The few results beyond are rounded alike by every kernel.)
    Where alpha or beta is a fraction, results are multiples of it, and the exact ranges are that much smaller.
    """
    alpha, beta = (max(abs(value) for value in values) for values in zip(*scalars, strict=True))
    unit = min(_unit(value) for pair in scalars for value in pair)
    room = 2.0 ** (_SUM_BITS.get(problem.dtype, SIGNIFICAND_BITS[problem.accumulator]) - 1)
    out_room = 2.0 ** SIGNIFICAND_BITS[problem.out_dtype]
    c_magnitude = _MOST_C
    most_sum = min(room, (room * unit - beta * c_magnitude) / max(unit, alpha))
    most_deviation = (out_room * unit - beta * c_magnitude) / (4.0 * max(unit, alpha))
    most = min(_MOST_MAGNITUDE, 2 ** SIGNIFICAND_BITS[problem.dtype] - (problem.dtype == "int8"))
    magnitude = _largest(most, lambda q: problem.k * q * q <= most_sum and _deviation(problem.k, q) <= most_deviation)
    density = 1.0 if magnitude else min(_sparse(problem.k, most_sum), most_deviation / math.sqrt(problem.k))
    return ExactValues(max(1, magnitude), density, c_magnitude)


def _unit(scalar: float) -> float:
    """The largest power of two, at most 1, that `scalar` is a multiple of."""
    unit = 1.0
    while not (scalar / unit).is_integer():
        unit /= 2
    return unit


def _deviation(k: int, magnitude: int) -> float:
    """Standard deviation of a sum of k products of two such elements, with no zeros among them."""
    return math.sqrt(k) * (magnitude + 1) * (2 * magnitude + 1) / 6


def _sparse(k: int, most_products: float) -> float:
    """Density of +-1 at which more than `most_products` of k products are non-zero only once in 1e15.

    The number of non-zero products has the mean N = k * density**2 and less than its square root as deviation: solve
    N + d * sqrt(N) + d**2 / 2 = most (the last term covers the skewness of small N).
    """
    allowed = most_products - _DEVIATIONS**2 / 2
    root = (-_DEVIATIONS + math.sqrt(_DEVIATIONS**2 + 4 * allowed)) / 2
    return min(1.0, root / math.sqrt(k))


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest whole number up to `most` for which `fits` holds, given that it holds below it; 0 if for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
