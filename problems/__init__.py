"""What is asked: the GEMM problems of a shapes file."""

from kt.problems.dtypes import DTYPES, Dtype
from kt.problems.problem import LAYOUTS, Problem, Signature

__all__ = ["DTYPES", "LAYOUTS", "Dtype", "Problem", "Signature"]
