"""`GemmArguments`: the one struct that every kernel of a launch sequence gets by value.

In CUDA C++ it reads

    struct GemmArguments {
      const void* a; const void* b; void* c; void* workspace;
      double alpha, beta;
      long long lda, ldb, ldc, stride_a, stride_b, stride_c;   // in elements
      int m, n, k, batch, split_k, raster_group, stream_k, reserved0;
    };

with natural alignment and no padding. The workspace has undefined contents when the sequence starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kt.problems import Problem

if TYPE_CHECKING:
    import numpy as np

__all__ = ["POINTERS", "RUNTIME_ARGUMENTS", "gemm_arguments", "gemm_arguments_dtype"]

POINTERS = ("a", "b", "c", "workspace")
# Run-time parameters of a configuration that the struct carries, and what they are in a family without them.
RUNTIME_ARGUMENTS = {"split_k": 1, "raster_group": 1, "stream_k": 0}

_LAYOUT = (
    [(name, "u8") for name in POINTERS]
    + [(name, "f8") for name in ("alpha", "beta")]
    + [(name, "i8") for name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")]
    + [(name, "i4") for name in ("m", "n", "k", "batch", *RUNTIME_ARGUMENTS, "reserved0")]
)


def gemm_arguments_dtype() -> np.dtype[Any]:
    """The struct as a numpy data type."""
    import numpy as np

    return np.dtype(_LAYOUT, align=True)


def gemm_arguments(
    problem: Problem,
    pointers: Mapping[str, int],
    runtime: Mapping[str, int],
    scalars: tuple[float, float] | None = None,
) -> np.ndarray[Any, Any]:
    """The arguments as the 0-d structured array that CuPy passes to a kernel by value.

    Args:
        pointers: device addresses by name, each of `POINTERS`.
        runtime: run-time parameters by name; one that is not given is as in `RUNTIME_ARGUMENTS`.
        scalars: (alpha, beta) in place of the problem's own.

    Raises:
        ValueError: the struct has no field for a run-time parameter.
    """
    import numpy as np

    if unknown := sorted(set(runtime) - set(RUNTIME_ARGUMENTS)):
        raise ValueError(f"GemmArguments has no field for the run-time parameter {', '.join(unknown)}")
    packed = np.zeros((), gemm_arguments_dtype())
    for name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c", "m", "n", "k", "batch"):
        packed[name] = getattr(problem, name)
    for name in POINTERS:
        packed[name] = pointers[name]
    packed["alpha"], packed["beta"] = scalars or (problem.alpha, problem.beta)
    for name, default in RUNTIME_ARGUMENTS.items():
        packed[name] = runtime.get(name, default)
    return packed
