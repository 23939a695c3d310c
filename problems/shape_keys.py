"""The keys of a row of shapes.yaml: what each takes, its limits, and its meaning in one sentence."""

from dataclasses import dataclass
from typing import Literal

from kt.problems.dtypes import ACCUMULATORS, DTYPES, OUTPUT_BYTES
from kt.problems.problem import LAYOUTS, MAX_EXTENT

__all__ = ["INFORMATION", "KEYS", "MAX_STRIDE", "ShapeKey"]

MAX_STRIDE = 2**48  # elements; far beyond any memory, and products with it stay within 64 bits


@dataclass(frozen=True)
class ShapeKey:
    """What one key of a row takes.

    Attributes:
        kind: "whole" number from `least` to `most`, "number", or "choice" of `choices`.
        meaning: one sentence for the JSON Schema and the docs.
        many: a list of values stands for one row of each.
    """

    kind: Literal["whole", "number", "choice"]
    meaning: str
    least: int = 1
    most: int = MAX_EXTENT
    choices: tuple[str, ...] = ()
    many: bool = False


KEYS: dict[str, ShapeKey] = {
    "m": ShapeKey("whole", "rows of C", many=True),
    "n": ShapeKey("whole", "columns of C", many=True),
    "k": ShapeKey("whole", "length of the sums; 0 gives beta * C", least=0, many=True),
    "batch": ShapeKey("whole", "independent products of this shape", many=True),
    "dtype": ShapeKey("choice", "number format of A and B", choices=tuple(DTYPES), many=True),
    "layout": ShapeKey("choice", "how A and B are stored, one letter each", choices=LAYOUTS, many=True),
    "lda": ShapeKey("whole", "elements from one stored row of A to the next"),
    "ldb": ShapeKey("whole", "elements from one stored row of B to the next"),
    "ldc": ShapeKey("whole", "elements from one row of C to the next"),
    "stride_a": ShapeKey("whole", "elements from A of one product of the batch to the next", most=MAX_STRIDE),
    "stride_b": ShapeKey("whole", "elements from B of one product of the batch to the next", most=MAX_STRIDE),
    "stride_c": ShapeKey("whole", "elements from C of one product of the batch to the next", most=MAX_STRIDE),
    "alpha": ShapeKey("number", "factor of the product"),
    "beta": ShapeKey("number", "factor of the C that is there already; with 0 it is not read"),
    "accumulator": ShapeKey("choice", "number format of the sums", choices=tuple(ACCUMULATORS)),
    "out_dtype": ShapeKey("choice", "number format of C", choices=tuple(OUTPUT_BYTES)),
    "base_alignment": ShapeKey("whole", "bytes to which the operands' first elements are aligned, a power of two"),
}

# Notes that people keep beside their shapes: accepted anywhere a row's keys are, never used.
INFORMATION = ("tag", "class", "from", "src", "name")
