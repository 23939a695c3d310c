"""`GemmArguments` in Python is byte for byte the struct that CUDA C++ kernels declare."""

import ctypes

import pytest

from kt.problems import Problem
from kt.tuner.arguments import POINTERS, gemm_arguments, gemm_arguments_dtype


class CStruct(ctypes.Structure):
    """The C declaration of the interface, laid out by the C rules of natural alignment."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("a", "b", "c", "workspace")]
        + [(name, ctypes.c_double) for name in ("alpha", "beta")]
        + [(name, ctypes.c_longlong) for name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")]
        + [(name, ctypes.c_int) for name in ("m", "n", "k", "batch", "split_k", "raster_group")]
        + [("stream_k", ctypes.c_int), ("reserved0", ctypes.c_int)]
    )


ADDRESSES = {name: 0x7F0000000000 + 4096 * i for i, name in enumerate(POINTERS)}


def test_every_field_lies_where_c_puts_it() -> None:
    dtype = gemm_arguments_dtype()
    assert dtype.fields is not None
    assert list(dtype.fields) == [field[0] for field in CStruct._fields_]
    for name, (_, offset, *_rest) in dtype.fields.items():
        assert offset == getattr(CStruct, name).offset, name
    assert dtype.itemsize == ctypes.sizeof(CStruct) == 128


def test_the_values_of_a_problem_arrive_in_c() -> None:
    problem = Problem(3, 5, 7, lda=9, ldb=11, ldc=13, batch=2, alpha=1.5, beta=-0.5)
    packed = gemm_arguments(problem, ADDRESSES, {"split_k": 4, "raster_group": 8})
    seen = CStruct.from_buffer_copy(packed.tobytes())
    assert packed.shape == ()  # what CuPy passes by value
    assert [getattr(seen, name) for name in POINTERS] == list(ADDRESSES.values())
    assert (seen.m, seen.n, seen.k, seen.batch, seen.split_k, seen.raster_group) == (3, 5, 7, 2, 4, 8)
    assert (seen.lda, seen.ldb, seen.ldc, seen.stride_a, seen.stride_c) == (9, 11, 13, 27, 39)
    assert (seen.alpha, seen.beta, seen.stream_k, seen.reserved0) == (1.5, -0.5, 0, 0)


def test_scalars_can_be_replaced_and_missing_run_time_parameters_are_one() -> None:
    packed = gemm_arguments(Problem(1, 1, 1), ADDRESSES, {}, (2.0, -1.0))
    values = [packed[name].item() for name in ("alpha", "beta", "split_k", "raster_group")]
    assert values == [2.0, -1.0, 1, 1]


def test_a_run_time_parameter_without_a_field_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no field for the run-time parameter cluster"):
        gemm_arguments(Problem(1, 1, 1), ADDRESSES, {"split_k": 1, "cluster": 2})
