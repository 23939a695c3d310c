"""Rows of the cache file as values: what can be read is a value, what cannot is named in a `CacheWarning`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kt.cache.encoding import (
    decode_best,
    decode_key,
    decode_measurement,
    encode_best,
    encode_measurement,
    is_time,
    strings,
)
from kt.cache.fields import FieldError, Fields
from kt.cache.key import key_digest
from kt.cache.records import STATUSES, BestConfig, CacheKey, Measurement
from kt.cache.schema import MEASUREMENT_COLUMNS
from kt.cache.stored_text import UNREADABLE, parsed

__all__ = [
    "BEST_QUERY",
    "CacheWarning",
    "Stored",
    "best_record",
    "decode_best_row",
    "decode_key_row",
    "decode_measurement_row",
    "decode_sources",
    "entry_warning",
    "measurement_values",
]

# The columns that `decode_best_row` takes; a WHERE clause may follow.
BEST_QUERY = (
    "SELECT best.id, keys.digest, keys.fields, best.sources, best.record, best.made_at "
    "FROM best JOIN keys ON keys.id = best.key_id"
)
_FIELDS = tuple(MEASUREMENT_COLUMNS)[:-1]  # all but made_at are fields of `Measurement`
_RESOURCES = ("registers", "spill_bytes", "smem_bytes")


@dataclass(frozen=True)
class CacheWarning:
    """Something in the cache that was passed over: what, and why. `str()` of it is one line for people."""

    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


@dataclass(frozen=True)
class Stored:
    """One stored winner: its row, the digest of its key, and when it was stored (seconds since 1970)."""

    id: int
    digest: str
    best: BestConfig
    made_at: int


def best_record(best: BestConfig) -> str:
    """The record that is stored for a winner.

    Raises:
        ValueError: it is no winner (its status, time or parameters are not those of one), which is a caller's bug.
    """
    record = json.dumps(encode_best(best), separators=(",", ":"), allow_nan=False)
    decode_best(Fields(json.loads(record)), best.key, best.sources)
    return record


def decode_key_row(digest: str, text: str) -> CacheKey | CacheWarning:
    try:
        key = decode_key(Fields(parsed(text)))
        if key_digest(key) != digest:
            raise FieldError("its key does not have the digest that it is stored under")
    except UNREADABLE as error:
        return CacheWarning(f"cache key {digest}", f"cannot be used: {error}")
    return key


def decode_best_row(row: Sequence[Any]) -> Stored | CacheWarning:
    row_id, digest, key_text, sources_text, record, made_at = row
    key = decode_key_row(digest, key_text)
    if isinstance(key, CacheWarning):
        return CacheWarning(f"cache entry {row_id}", key.reason)
    try:
        best = decode_best(Fields(parsed(record)), key, decode_sources(sources_text))
        if type(made_at) is not int:
            raise FieldError(f"made_at: must be a whole number, not {made_at!r}")
    except UNREADABLE as error:
        return entry_warning(row_id, key, str(error))
    return Stored(row_id, digest, best, made_at)


def entry_warning(row_id: int, key: CacheKey, reason: str) -> CacheWarning:
    """A stored winner that is passed over, and why."""
    subject = f"cache entry {row_id} ({key.problem.label} on {key.device.name})"
    return CacheWarning(subject, f"cannot be used: {reason}")


def decode_sources(text: str) -> dict[str, str]:
    return strings(Fields(parsed(text), "sources"))


def measurement_values(measurement: Measurement, made_at: int) -> tuple[Any, ...]:
    """The values of `MEASUREMENT_COLUMNS`. A spread that is not a number counts as unknown.

    Raises:
        ValueError: an ok without a positive time, or a failure with one, which is a caller's bug.
    """
    values = encode_measurement(measurement)
    decode_measurement(Fields(values))
    return (*(values[name] for name in _FIELDS), made_at)


def decode_measurement_row(values: Sequence[Any]) -> Measurement | None:
    """The measurement, None if the row holds a status or time that no measurement has."""
    found: dict[str, Any] = dict(zip(_FIELDS, values, strict=False))
    timed = found["time_us"] is not None
    if found["status"] not in STATUSES or timed != (found["status"] == "ok"):
        return None
    if not all(found[name] is None or is_time(found[name]) for name in ("time_us", "screened_us")):
        return None
    kinds = {"spread": float | None, "samples": int, "detail": str, **dict.fromkeys(_RESOURCES, int | None)}
    if not all(isinstance(found[name], kind) for name, kind in kinds.items()):
        return None
    found |= {name: bool(found[name]) for name in ("refined", "noisy", "predicted")}
    return Measurement(**found)
