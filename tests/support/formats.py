"""Number formats in numpy: elements as they lie in memory to numbers, and numbers to the nearest elements."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["STORED", "decoded", "encoded", "nearest", "small_float"]

# What numpy has of a format: its own type, or the whole number that its bits make.
STORED: dict[str, str] = {
    "fp32": "<f4", "tf32": "<f4", "fp64": "<f8", "fp16": "<f2", "bf16": "<u2", "int8": "|i1", "int32": "<i4",
    "fp8_e4m3": "|u1", "fp8_e5m2": "|u1",
}  # fmt: skip
_SMALL = {"fp8_e4m3": (3, 7), "fp8_e5m2": (2, 15)}  # stored bits of the significand, bias of the exponent


def small_float(codes: npt.NDArray[Any], mantissa: int, bias: int) -> npt.NDArray[np.float64]:
    """8-bit floats, by their definition."""
    code = codes.astype(np.int64)
    exponent, fraction = (code & 0x7F) >> mantissa, (code & ((1 << mantissa) - 1)) / (1 << mantissa)
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    special = (code & 0x7F) == 0x7F if mantissa == 3 else exponent == 31
    return np.where(special, np.nan, np.where(code & 0x80, -size, size))


def nearest(values: npt.NDArray[Any], bits: int) -> npt.NDArray[np.float64]:
    """The nearest numbers with so many bits of significand; ties to even."""
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits))


def decoded(stored: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """The numbers that kt computes with; of tf32 those that fp32 numbers are rounded to."""
    if dtype == "tf32":
        return nearest(stored, 11)
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in _SMALL:
        return small_float(stored, *_SMALL[dtype])
    return stored.astype(np.float64)


def encoded(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[Any]:
    """The nearest elements; of 8-bit floats only those that are no larger than the largest."""
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, np.uint16)
    if dtype in _SMALL:
        codes = np.arange(0x7F if dtype == "fp8_e4m3" else 0x7C, dtype=np.uint8)
        numbers = small_float(codes, *_SMALL[dtype])
        place = np.clip(np.searchsorted((numbers[1:] + numbers[:-1]) / 2, np.abs(values)), 0, len(codes) - 1)
        return np.asarray(codes[place] | np.where(np.signbit(values), 0x80, 0).astype(np.uint8), np.uint8)
    return values.astype(STORED[dtype])
