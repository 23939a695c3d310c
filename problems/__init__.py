"""What is asked: the GEMM problems of a shapes file."""

from kt.problems.dtype_names import check_dtype
from kt.problems.dtypes import DTYPES, Dtype
from kt.problems.problem import LAYOUTS, Problem, Signature
from kt.problems.shapes_file import load_shapes, shapes_schema

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "Dtype",
    "Problem",
    "Signature",
    "check_dtype",
    "load_shapes",
    "shapes_schema",
]
