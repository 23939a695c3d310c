"""From arrays to a `Problem`: how operands lie in memory decides the layout, and every stride is kept."""

from __future__ import annotations

from typing import Any

from kt.errors import InputError
from kt.problems import DTYPES, Problem
from kt.problems.dtypes import OUTPUT_BYTES
from kt.runtime.arrays import Array
from kt.runtime.placed_problem import Bases, bases_of, placed
from kt.wording import plural

__all__ = [
    "operand_format",
    "problem_of",
    "result_shape",
    "rows_apart",
    "standing_for",
]

_ONE, _OTHER = 1.0, 2.0  # what stands for a scalar that is neither 0 nor 1: kernels take the real one at run time


def problem_of(
    a: Array,
    b: Array,
    c: Array,
    *,
    alpha_is_one: bool,
    beta_use: int,
    bases: Bases = (),
    dtype: str = "",
    accumulator: str = "",
) -> Problem:
    """The problem of C = alpha A B + beta C.

    Args:
        a, b, c: [m, k], [k, n] and [m, n], or with a batch in front, the same for all three.
        beta_use: 0, 1, or 2 for any other value of beta.
        bases: bytes to which the arrays' addresses are aligned, as of `bases_of`.
        dtype: format of A and B in place of the arrays' own: "tf32" of fp32 arrays, an 8-bit float of bytes.
        accumulator: format of the sums in place of the usual one.

    Raises:
        InputError: they do not fit together, are of a format that kt has no kernel for, or lie so that neither rows nor
            columns are contiguous.
    """
    shape = result_shape(a, b)
    if c.shape != shape:
        raise InputError(f"out has the shape {c.shape}; the product of {a.shape} and {b.shape} has {shape}")
    if not a.device == b.device == c.device:
        raise InputError(f"the arrays are on the GPUs {a.device}, {b.device} and {c.device}", hint="put them on one")
    name, out_dtype = operand_format(a, b, dtype), _out_format(c)
    for of_array, base in zip((a, b, c), bases, strict=False):
        if base < of_array.bytes:
            size = plural(of_array.bytes, "byte")
            raise InputError(f"an array of elements of {size} begins at a multiple of {base} only")
    letter_a, lda = _stored("a", a)
    letter_b, ldb = _stored("b", b)
    batch = shape[0] if len(shape) == 3 else 1
    stride_a, stride_b, stride_c = (_batch_stride(name, one, batch) for name, one in (("a", a), ("b", b), ("out", c)))
    problem = Problem(
        shape[-2], shape[-1], a.shape[-1], name, letter_a + letter_b, batch, lda, ldb, rows_apart("out", c),
        stride_a, stride_b, stride_c, alpha=_ONE if alpha_is_one else _OTHER, beta=(0.0, _ONE, _OTHER)[beta_use],
        accumulator=accumulator, out_dtype=out_dtype,
    )  # fmt: skip
    return placed(problem, bases)


def standing_for(problem: Problem) -> Problem:
    """The problem that stands for all calls that share a plan with it: scalars and addresses by their kind."""
    beta_use = 0 if problem.beta == 0 else 1 if problem.beta == 1 else 2
    scalars: dict[str, Any] = {"alpha": _ONE if problem.alpha == 1 else _OTHER, "beta": (0.0, _ONE, _OTHER)[beta_use]}
    return placed(Problem(**problem.as_dict() | scalars), bases_of(*[problem.base_alignment] * 3))


def result_shape(a: Array, b: Array) -> tuple[int, ...]:
    """The shape of A B.

    Raises:
        InputError: they are not matrices, or batches of equally many, whose inner extents agree.
    """
    ranks = {len(a.shape), len(b.shape)}
    fits = ranks in ({2}, {3}) and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]
    if not fits:
        raise InputError(
            f"{a.shape} and {b.shape} cannot be multiplied",
            hint="kt.gemm takes [m, k] and [k, n], or [batch, m, k] and [batch, k, n]",
        )
    return (*a.shape[:-1], b.shape[-1])


def operand_format(a: Array, b: Array, dtype: str) -> str:
    """The format of the operands: what they say, or `dtype` where elements of that size may be it.

    Raises:
        InputError: they are of no format that kt multiplies, or not of one size with `dtype`.
    """
    if dtype:
        from kt.problems.dtype_names import check_dtype

        wanted = DTYPES[check_dtype(dtype)]
        if not a.bytes == b.bytes == wanted.bytes:
            sizes = f"{a.bytes or '?'} and {b.bytes or '?'}"
            own = plural(wanted.bytes, "byte")
            raise InputError(f"elements of {wanted.name} have {own}; those of a and b have {sizes}")
        return wanted.name
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        formats = f"{a.dtype or 'another format'} and {b.dtype or 'another format'}"
        raise InputError(f"kt has no kernel for {formats}", hint=f"both of one of {', '.join(DTYPES)}")
    return a.dtype


def _out_format(c: Array) -> str:
    if not c.dtype:  # which a Problem would take for the usual one, of another size
        raise InputError("out is of a format that kt does not have", hint=f"one of {', '.join(OUTPUT_BYTES)}")
    return c.dtype


def _stored(name: str, array: Array) -> tuple[str, int]:
    """`n` and the distance of rows if rows are contiguous, `t` and that of columns if these are."""
    (rows, columns), (row, column) = array.shape[-2:], array.strides[-2:]
    by_rows = (columns <= 1 or column == 1) and (rows <= 1 or row >= columns)
    by_columns = (rows <= 1 or row == 1) and (columns <= 1 or column >= rows)
    both_but_transposed = by_columns and row == 1 and column != 1
    if by_rows and not both_but_transposed:
        return "n", _pitch(rows, columns, row)
    if by_columns:
        return "t", _pitch(columns, rows, column)
    raise InputError(
        f"neither the rows nor the columns of {name} are contiguous: its strides are {array.strides[-2:]}",
        hint="make it contiguous first",
    )


def rows_apart(name: str, array: Array) -> int:
    """Elements from one row to the next.

    Raises:
        InputError: rows are not contiguous, or overlap.
    """
    (rows, columns), (row, column) = array.shape[-2:], array.strides[-2:]
    if (columns > 1 and column != 1) or (rows > 1 and row < columns):
        hint = "for an out that lies transposed: kt.gemm(b.T, a.T, out=out.T)"
        raise InputError(f"the rows of {name} are not contiguous: its strides are {array.strides[-2:]}", hint=hint)
    return _pitch(rows, columns, row)


def _pitch(lines: int, length: int, step: int) -> int:
    """Elements from one line to the next; of a single one a library may say anything."""
    return max(step if lines > 1 else 0, length, 1)


def _batch_stride(name: str, array: Array, batch: int) -> int:
    stride = array.strides[0] if batch > 1 else 0
    if batch > 1 and stride <= 0 and 0 not in array.shape:
        raise InputError(f"the batches of {name} are {plural(stride, 'element')} apart", hint="copy what is broadcast")
    return max(stride, 0)
