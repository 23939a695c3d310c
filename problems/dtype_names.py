"""The spellings of number formats that lists of shapes use, and kt's name for each."""

from collections.abc import Iterable

from kt.errors import InputError
from kt.problems.dtypes import DTYPES

__all__ = ["DTYPE_ALIASES", "canonical_dtype", "check_dtype"]

DTYPE_ALIASES: dict[str, str] = {
    "f16": "fp16", "float16": "fp16", "half": "fp16",
    "bfloat16": "bf16",
    "f32": "fp32", "float32": "fp32", "float": "fp32", "single": "fp32",
    # three tf32 products are a way of computing an fp32 product, not a format of its own
    "3xtf32": "fp32",
    "f64": "fp64", "float64": "fp64", "double": "fp64",
    "tfloat32": "tf32",
    "i8": "int8", "s8": "int8",
    "i32": "int32", "s32": "int32",
    "e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2",
}  # fmt: skip


def canonical_dtype(name: str) -> str:
    """kt's name for the number format `name`, or `name` itself if no other spelling is known for it."""
    return DTYPE_ALIASES.get(name.lower(), name.lower() if name.lower() in DTYPES else name)


def check_dtype(name: str, known: Iterable[str] = tuple(DTYPES)) -> str:
    """kt's name for `name`.

    Raises:
        InputError: it is none of `known`.
    """
    from kt.problems.yaml_values import closest

    canonical, known = canonical_dtype(name), tuple(known)
    if canonical in known:
        return canonical
    match = closest(canonical, known)
    raise InputError(
        f"dtype is {name!r}; it must be one of {', '.join(known)}", hint=f"did you mean {match}?" if match else None
    )
