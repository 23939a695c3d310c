"""T4, the results format of the auto-tuning community: every configuration that was tried, with what became of it.

What the model ranked and never ran is not among them: the format has no word for it but "correct".

It is what Kernel Tuner's `store_output_file` writes: `{"schema_version": "1.0.0", "results": […]}`. The format has no
place for the problem, so each result names it and the device beside the fields of the format, which allows that.
Times are in milliseconds there.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kt.cache.key import device_fields
from kt.cache.records import CacheKey, Measurement
from kt.search_spaces.space import Config

__all__ = ["T4_VERSION", "Search", "measured_only", "render_t4"]

Search = tuple[CacheKey, Mapping[Config, Measurement]]  # what was asked, and what became of all that was tried

T4_VERSION = "1.0.0"

# The format's words for what became of a configuration.
_VALIDITY = {
    "ok": "correct",
    "pruned": "constraints",
    "compile_error": "compile",
    "launch_error": "runtime",
    "crashed": "runtime",
    "out_of_memory": "runtime",
    "wrong_result": "correctness",
    "timeout": "timeout",
}
_UNITS = {"registers": "", "spill_bytes": "B", "smem_bytes": "B"}


def measured_only(searches: Iterable[Search]) -> list[Search]:
    """The searches without what only the model ranked."""
    return [
        (key, {config: one for config, one in tried.items() if not one.predicted or one.status != "ok"})
        for key, tried in searches
    ]


def render_t4(searches: Iterable[Search]) -> str:
    """The document: searches in the order given, the configurations of each in the order of their texts.

    Predictions are left out.
    No time stamps: the format can do without, and the same cache gives the same bytes.
    """
    results = [
        _result(key, config, tried[config])
        for key, tried in measured_only(searches)
        for config in sorted(tried, key=lambda config: config.identity)
    ]
    document = {"schema_version": T4_VERSION, "results": results}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _result(key: CacheKey, config: Config, measurement: Measurement) -> dict[str, Any]:
    return {
        "configuration": {"family": config.family, **config.as_dict()},
        "invalidity": _VALIDITY[measurement.status],
        "correctness": 1 if measurement.status == "ok" else 0,
        "times": {"runtimes": _runtimes(measurement)},
        "objectives": ["time"],
        "measurements": _measurements(measurement),
        "problem": key.problem.as_dict(),
        "device": device_fields(key.device),
    }


def _runtimes(measurement: Measurement) -> list[float]:
    """The median alone: samples are not kept."""
    return [] if measurement.time_us is None else [measurement.time_us / 1000]


def _measurements(measurement: Measurement) -> list[dict[str, Any]]:
    """What was measured and is known; of a failure, its cause."""
    found: list[dict[str, Any]] = []
    if measurement.time_us is not None:
        found += [{"name": "time", "value": measurement.time_us / 1000, "unit": "ms"}]
        found += [{"name": "samples", "value": measurement.samples, "unit": ""}]
    if measurement.screened_us is not None:
        found += [{"name": "screened_time", "value": measurement.screened_us / 1000, "unit": "ms"}]
    if measurement.spread is not None:
        found += [{"name": "spread", "value": measurement.spread, "unit": ""}]
    found += [
        {"name": resource, "value": getattr(measurement, resource), "unit": unit}
        for resource, unit in _UNITS.items()
        if getattr(measurement, resource) is not None
    ]
    if measurement.status != "ok":
        found += [{"name": "error", "value": f"{measurement.status}: {measurement.detail}".rstrip(": "), "unit": ""}]
    return found
