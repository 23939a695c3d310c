"""What counts as a right result: exact whole-number operands, and a tolerance that scales with k."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from kt.problems import Problem
from kt.problems.dtypes import DTYPES, PROMOTED_EVERY
from kt.tuner.exact_values import (
    SIGNIFICAND_BITS,
    exact_scalars,
    exact_values,
    random_scalars,
    second_scalars,
)
from kt.tuner.tolerance import tolerance

Array = npt.NDArray[np.float64]

FORMATS = [(dtype.name, accumulator) for dtype in DTYPES.values() for accumulator in dtype.accumulators]
EVERY_FORMAT = [(*names, out) for names in FORMATS for out in DTYPES[names[0]].outputs]
SUM_BITS = {"fp16": 11, "fp32": 24, "fp32_fast": 24, "fp64": 53, "int32": 31}
EIGHT_BIT_FLOATS = ("fp8_e4m3", "fp8_e5m2")
LENGTHS = [0, 1, 2, 3, 7, 16, 511, 4096, 8192, 32768, 524288]
SCALARS = [(1.0, 0.0), (2.0, -1.0), (0.5, 1.0), (8.0, 0.25)]


def draw(problem: Problem, scalars: tuple[float, float], shape: tuple[int, int], seed: int) -> Array:
    """Whole numbers as the exact pass draws them."""
    values = exact_values(problem, scalars)
    random = np.random.default_rng(seed)
    size = random.integers(1, values.magnitude, shape, endpoint=True) * random.choice([-1, 1], shape)
    return np.asarray(size * (random.random(shape) < values.density), np.float64)


@pytest.mark.parametrize("scalars", SCALARS)
@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize(("dtype", "accumulator"), FORMATS)
def test_no_partial_sum_of_the_exact_pass_leaves_the_exact_range(
    dtype: str, accumulator: str, k: int, scalars: tuple[float, float]
) -> None:
    """The sum of all |products| bounds every partial sum in every order, so it is what must stay in range."""
    m, n = (24, 20) if k < 100_000 else (6, 5)
    problem = Problem(m, n, k, dtype=dtype, accumulator=accumulator)
    a, b = draw(problem, scalars, (m, k), 1), draw(problem, scalars, (k, n), 2)
    assert max(np.abs(a).max(initial=0), np.abs(b).max(initial=0)) <= 2 ** SIGNIFICAND_BITS[dtype]
    most = (np.abs(a) @ np.abs(b)).max(initial=0)
    # The adders of tensor cores before Blackwell keep 14 bits of a sum of 8-bit floats.
    bits = 14 if dtype in EIGHT_BIT_FLOATS else SUM_BITS[accumulator]
    scaled = most * max(1, abs(scalars[0])) + abs(scalars[1]) * exact_values(problem, scalars).c_magnitude
    assert scaled <= 2**bits
    quarters = 4 * (scaled if scalars[1] == 0.25 else 0)
    assert quarters <= 2**bits, "multiples of a quarter need two bits more"


@pytest.mark.parametrize("scalars", [(0.25, -0.5), (1.0, 0.0), (-3.0, 2.0)])
@pytest.mark.parametrize(("dtype", "accumulator", "out"), EVERY_FORMAT)
def test_results_of_the_exact_pass_are_exact_in_every_format_of_the_way(
    dtype: str, accumulator: str, out: str, scalars: tuple[float, float]
) -> None:
    """alpha S and beta C are exact in the accumulator's format, so no order of scaling, adding and rounding matters."""
    if accumulator == "int32":
        scalars = (2.0, -1.0)
    problem = Problem(40, 40, 512, dtype=dtype, accumulator=accumulator, out_dtype=out)
    a, b = draw(problem, scalars, (40, 512), 3), draw(problem, scalars, (512, 40), 4)
    values = exact_values(problem, scalars)
    c = np.random.default_rng(5).integers(-values.c_magnitude, values.c_magnitude, (40, 40), endpoint=True)
    scaled, whole = scalars[0] * (a @ b), scalars[0] * (a @ b) + scalars[1] * c
    for result in (scaled, whole):
        np.testing.assert_array_equal(rounded(result, SUM_BITS[accumulator]), result)
    assert np.mean(rounded(whole, SIGNIFICAND_BITS[out]) == whole) > 0.99


def test_whole_numbers_survive_the_rounding_to_tf32() -> None:
    """Nearest, ties away, ties to even or cut: the exact pass gives the same bits with each."""
    a = draw(Problem(64, 64, 64, dtype="tf32"), (1.0, 0.0), (64, 64), 6)
    assert np.abs(a).max() > 256, "the numbers are large enough to be no bf16 numbers"
    np.testing.assert_array_equal(cut(a, 11), a)
    np.testing.assert_array_equal(rounded(a, 11), a)


@pytest.mark.parametrize("k", [1, 16, 4096, 32768])
@pytest.mark.parametrize(("dtype", "accumulator"), FORMATS)
def test_the_exact_pass_still_sees_a_missing_product(dtype: str, accumulator: str, k: int) -> None:
    """Every element of the sum reaches some output, and most outputs are exact in C's format."""
    problem = Problem(64, 64, k, dtype=dtype, accumulator=accumulator)
    a, b = draw(problem, (1.0, 0.0), (64, k), 1), draw(problem, (1.0, 0.0), (k, 64), 2)
    for lost in {0, k // 2, k - 1}:
        assert np.any(np.outer(a[:, lost], b[lost])), "a product that no output depends on"
    exact = 2 ** SIGNIFICAND_BITS[problem.out_dtype]
    assert np.mean(np.abs(a @ b) <= exact) > 0.99


@pytest.mark.parametrize("k", [64, 4096])
def test_fp64_operands_need_fp64_sums(k: int) -> None:
    """The whole numbers are so large that a kernel which sums in fp32 is seen."""
    problem = Problem(8, 8, k, dtype="fp64")
    a, b = draw(problem, (1.0, 0.0), (8, k), 1), draw(problem, (1.0, 0.0), (k, 8), 2)
    assert not np.array_equal((a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64), a @ b)


def test_scalars_of_the_exact_pass_multiply_exactly() -> None:
    assert exact_scalars(1.0, 0.0) == (1.0, 0.0)
    assert exact_scalars(-0.5, 2.0) == (-0.5, 2.0)
    assert exact_scalars(0.3, 0.7) == (2.0, -1.0)
    assert exact_scalars(-1e-3, 0.0) == (-2.0, 0.0)


@pytest.mark.parametrize("first", [(1.0, 0.0), (2.0, -1.0), (1.0, 1.0)])
def test_the_second_exact_pass_uses_scalars_that_no_kernel_can_ignore(first: tuple[float, float]) -> None:
    second = second_scalars(*first)
    assert second != first
    assert not {0.0, 1.0} & set(second)


def test_whole_number_problems_get_whole_scalars_in_every_pass() -> None:
    alpha, beta = random_scalars(Problem(8, 8, 8, dtype="int8"))
    assert alpha.is_integer()
    assert beta.is_integer()


# --- the random pass -------------------------------------------------------------------------------------------------


def sequential(a: Array, b: Array, number: type[np.floating]) -> Array:
    """Sums product by product in one chain, rounding after each step: the worst order of a correct kernel."""
    left, right = a.astype(number), b.astype(number)
    total = np.zeros((a.shape[0], b.shape[1]), number)
    for index in range(a.shape[1]):
        total += np.outer(left[:, index], right[index])
    return total.astype(np.float64)


def tensor_core(a: Array, b: Array, at_once: int) -> Array:
    """Sums some products at a time and cuts the result to 24 bits towards zero, as tensor cores do."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], at_once):
        total = cut(total + a[:, start : start + at_once] @ b[start : start + at_once], 24)
    return total


def fp8_tensor_core(a: Array, b: Array, at_once: int) -> Array:
    """Cuts products and the sum so far to 13 bits below the leading one of the largest of them, and adds: as tensor
    cores of Ada and Hopper are found to do (Khattak and Mikaitis, arXiv:2512.07004)."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], at_once):
        products = a[:, start : start + at_once, None] * b[None, start : start + at_once]
        terms = np.concatenate([products, total[:, None]], axis=1)
        last_bit = np.exp2(np.frexp(np.abs(terms).max(axis=1, keepdims=True))[1] - 14)
        total = cut((np.trunc(terms / last_bit) * last_bit).sum(axis=1), 14)
    return total


def promoted_tensor_core(a: Array, b: Array, at_once: int) -> Array:
    """The same for as many products as may be summed so, and the sum of those in fp32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for start in range(0, a.shape[1], PROMOTED_EVERY):
        part = slice(start, start + PROMOTED_EVERY)
        total += fp8_tensor_core(a[:, part], b[part], at_once).astype(np.float32)
    return np.asarray(total, np.float64)


def fp16_tensor_core(a: Array, b: Array, at_once: int) -> Array:
    """Sums some products at a time and rounds to fp16, which is what it accumulates in."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], at_once):
        total = rounded(total + a[:, start : start + at_once] @ b[start : start + at_once], 11)
    return total


def cut(values: Array, bits: int) -> Array:
    """`values` with the bits of the significand below the first `bits` removed: rounding towards zero."""
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.trunc(np.ldexp(fraction, bits)), exponent - bits))


def rounded(values: Array, bits: int) -> Array:
    """`values` rounded to the nearest number with `bits` bits of significand."""
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits))


def operands(k: int, bits: int, m: int = 48, n: int = 40) -> tuple[Array, Array]:
    random = np.random.default_rng(k)
    return rounded(random.standard_normal((m, k)), bits), rounded(random.standard_normal((k, n)), bits)


def worst(problem: Problem, a: Array, b: Array, result: Array, scalars: tuple[float, float] = (1.0, 0.0)) -> float:
    """Largest error of `result`, which has no beta term, as a multiple of what is allowed; right if at most 1."""
    reference = scalars[0] * (a @ b)
    allowed = tolerance(problem, scalars).bound(
        np.linalg.norm(a, axis=1)[:, None], np.linalg.norm(b, axis=0)[None, :], reference
    )
    return float((np.abs(result - reference) / allowed).max())


RIGHT: list[tuple[str, str, int, Callable[[Array, Array], Array]]] = [
    ("fp32", "", 24, lambda a, b: sequential(a, b, np.float32)),
    ("fp16", "fp16", 11, lambda a, b: sequential(a, b, np.float16)),
    ("fp16", "fp16", 11, lambda a, b: fp16_tensor_core(a, b, 16)),
    ("bf16", "", 8, lambda a, b: rounded(tensor_core(a, b, 8), 8)),
    ("fp16", "", 11, lambda a, b: rounded(tensor_core(a, b, 16), 11)),
    ("tf32", "", 11, lambda a, b: tensor_core(a, b, 4)),
]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 16, 100, 2048, 32768])
@pytest.mark.parametrize(("dtype", "accumulator", "bits", "kernel"), RIGHT)
def test_right_results_pass_at_every_length(
    dtype: str, accumulator: str, bits: int, kernel: Callable[[Array, Array], Array], k: int
) -> None:
    problem = Problem(48, 40, k, dtype=dtype, accumulator=accumulator)
    a, b = operands(k, bits)
    assert worst(problem, a, b, kernel(a, b)) <= 1


def test_right_results_pass_with_room_for_more_elements_than_a_test_can_try() -> None:
    """Over 400,000 sums of 512 fp32 products the largest error uses less than two thirds of what is allowed."""
    a, b = operands(512, 24, 640, 640)
    assert worst(Problem(640, 640, 512), a, b, sequential(a, b, np.float32)) < 0.66


@pytest.mark.parametrize("k", [1, 2, 4, 8, 32, 100, 1024])
@pytest.mark.parametrize("at_once", [16, 32])
@pytest.mark.parametrize(("dtype", "bits"), [("fp8_e4m3", 4), ("fp8_e5m2", 3)])
def test_eight_bit_floats_summed_in_tensor_cores_pass(dtype: str, bits: int, at_once: int, k: int) -> None:
    """Over 70,000 sums the largest error is about a quarter of what is allowed, which hardly grows with k."""
    size = 60 if k > 100 else 160
    fast, promoted = (
        Problem(size, size, k, dtype=dtype, out_dtype="fp32", accumulator=name) for name in ("fp32_fast", "fp32")
    )
    a, b = operands(k, bits, size, size)
    assert worst(fast, a, b, fp8_tensor_core(a, b, at_once)) < 0.5
    assert worst(promoted, a, b, promoted_tensor_core(a, b, at_once)) < 0.5


@pytest.mark.parametrize("dtype", EIGHT_BIT_FLOATS)
def test_short_sums_of_eight_bit_floats_are_wrong_where_they_are_not_asked_for(dtype: str) -> None:
    """Long sums in tensor cores alone are right as `fp32_fast`, and beyond what `fp32` allows."""
    a, b = operands(16384, SIGNIFICAND_BITS[dtype], 12, 12)
    result = fp8_tensor_core(a, b, 32)
    fast, promoted = (
        Problem(12, 12, 16384, dtype=dtype, out_dtype="fp32", accumulator=name) for name in ("fp32_fast", "fp32")
    )
    assert worst(fast, a, b, result) < 0.5
    assert worst(promoted, a, b, result) > 1


@pytest.mark.parametrize("k", [32, 1024])
@pytest.mark.parametrize("dtype", EIGHT_BIT_FLOATS)
def test_the_exact_pass_is_exact_in_tensor_cores_that_keep_14_bits(dtype: str, k: int) -> None:
    problem = Problem(60, 60, k, dtype=dtype, out_dtype="fp32")
    a, b = draw(problem, (1.0, 0.0), (60, k), 1), draw(problem, (1.0, 0.0), (k, 60), 2)
    np.testing.assert_array_equal(fp8_tensor_core(a, b, 32), a @ b)


@pytest.mark.parametrize("k", [256, 4096])
@pytest.mark.parametrize(("dtype", "bits"), [("fp8_e4m3", 4), ("fp8_e5m2", 3)])
def test_eight_bit_floats_summed_in_bf16_fail(dtype: str, bits: int, k: int) -> None:
    """The tolerance is that of 14 bits, not of anything."""
    a, b = operands(k, bits)
    total = np.zeros((48, 40))
    for start in range(0, k, 16):
        total = rounded(total + a[:, start : start + 16] @ b[start : start + 16], 8)
    assert worst(Problem(48, 40, k, dtype=dtype, out_dtype="fp32"), a, b, total) > 1


@pytest.mark.parametrize("k", [16, 2048, 32768])
def test_operands_cut_to_tf32_fail_as_tf32(k: int) -> None:
    """tf32 operands are rounded to the nearest: tensor cores ignore the low bits of what was not rounded before."""
    a, b = operands(k, 24)
    nearest, chopped, as_they_are = (rounded(a, 11), rounded(b, 11)), (cut(a, 11), cut(b, 11)), (a, b)
    problem = Problem(48, 40, k, dtype="tf32")
    assert worst(problem, *nearest, nearest[0] @ nearest[1]) <= 1
    assert worst(problem, *nearest, chopped[0] @ chopped[1]) > 1
    assert worst(problem, *nearest, as_they_are[0] @ as_they_are[1]) > 1


@pytest.mark.parametrize("k", [16, 2048, 32768, 524288])
def test_operands_rounded_to_tf32_fail_as_fp32(k: int) -> None:
    a, b = operands(k, 24, 24, 20)
    assert worst(Problem(24, 20, k), a, b, rounded(a, 11) @ rounded(b, 11)) > 1


@pytest.mark.parametrize("k", [16, 2048, 32768])
def test_sums_in_fp32_fail_as_fp64(k: int) -> None:
    a, b = operands(k, 53, 24, 20)
    assert worst(Problem(24, 20, k, dtype="fp64"), a, b, sequential(a, b, np.float32)) > 1


@pytest.mark.parametrize("k", [16, 2048, 32768])
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16"])
def test_planted_errors_fail(dtype: str, k: int) -> None:
    """A last column of zeros, alpha dropped beyond the first tile, one product left out: each is seen."""
    problem = Problem(48, 40, k, dtype=dtype)
    a, b = operands(k, {"fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8}[dtype])
    right: Array = a @ b
    last_column, alpha_dropped = right.copy(), np.asarray(1.5 * right, np.float64)
    last_column[:, -1] = 0
    alpha_dropped[:, 32:] = right[:, 32:]
    one_missing = np.asarray(right - np.outer(a[:, -1], b[-1]), np.float64)
    assert worst(problem, a, b, right) <= 1
    assert worst(problem, a, b, last_column) > 1
    assert worst(problem, a, b, alpha_dropped, (1.5, 0.0)) > 1
    assert worst(problem, a, b, one_missing) > 1


def test_int32_results_must_be_equal() -> None:
    limits = tolerance(Problem(8, 8, 8, dtype="int8"), (3.0, -2.0))
    assert limits.bound(1e3, 1e3, 1e6) == 0


def test_the_scalars_scale_the_tolerance() -> None:
    once, twice = (tolerance(Problem(8, 8, 512), (alpha, 0.0)) for alpha in (1.0, -2.0))
    assert twice.product == pytest.approx(2 * once.product)
    assert tolerance(Problem(8, 8, 512), (1.0, 0.5)).absolute > once.absolute
