"""The identity of a tuned result: `CacheKey` as readable fields, and their digest.

Everything that reads, writes, merges or exports results goes through these functions, so there is one answer to the
question whether two results are of the same thing.
"""

import hashlib
import json
from functools import lru_cache
from typing import Any

from kt.cache.records import CacheKey
from kt.devices.device import DeviceIdentity
from kt.problems import Problem

__all__ = ["canonical", "device_fields", "key_digest", "key_fields", "problem_digest", "problem_fields", "scalar_use"]


def scalar_use(value: float) -> str:
    """How alpha or beta is used: "zero", "one" or "other". A kernel's speed depends on nothing else of it."""
    if value == 0:
        return "zero"
    return "one" if value == 1 else "other"


def problem_fields(problem: Problem) -> dict[str, Any]:
    """Every field of the problem; alpha and beta by their use (alpha = 0 is no special case in a kernel)."""
    fields = problem.as_dict()
    fields["alpha"] = "one" if problem.alpha == 1 else "other"
    fields["beta"] = scalar_use(problem.beta)
    return fields


def device_fields(device: DeviceIdentity) -> dict[str, Any]:
    """Every field of the device identity."""
    return {
        "name": device.name,
        "compute_capability": list(device.compute_capability),
        "sm_count": device.sm_count,
        "memory_gib": device.memory_gib,
    }


def key_fields(key: CacheKey) -> dict[str, Any]:
    """The whole key as a JSON value that people can read; equal results have equal fields."""
    return {
        "problem": problem_fields(key.problem),
        "device": device_fields(key.device),
        "toolchain": key.toolchain,
        "method": key.method,
    }


@lru_cache(maxsize=4096)  # a listing asks for each several times
def key_digest(key: CacheKey) -> str:
    """SHA-256 of the canonical JSON of `key_fields`, hexadecimal."""
    return _digest(key_fields(key))


@lru_cache(maxsize=4096)
def problem_digest(problem: Problem) -> str:
    """SHA-256 of the canonical JSON of `problem_fields`, hexadecimal: the same problem on whatever device."""
    return _digest(problem_fields(problem))


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; equal values have equal texts."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(value: object) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()
