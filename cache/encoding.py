"""The value types as JSON objects and back: what the cache stores and what tables carry."""

import math
from typing import Any, cast

from kt.cache.fields import FieldError, Fields
from kt.cache.key import device_fields
from kt.cache.records import STATUSES, BestConfig, CacheKey, Measurement, Status
from kt.devices.device import DeviceIdentity
from kt.errors import InputError
from kt.problems import Problem
from kt.search_spaces.space import CLASSES, Config, Launch, OperandCopy, RowClass, TensorMap, Value

__all__ = [
    "decode_best",
    "decode_config",
    "decode_device",
    "decode_key",
    "decode_launch",
    "decode_measurement",
    "decode_problem",
    "encode_best",
    "encode_config",
    "encode_key",
    "encode_launch",
    "encode_measurement",
    "is_time",
    "numbers",
    "strings",
]

_PROBLEM_INTEGERS = (
    "m", "n", "k", "batch", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c", "base_alignment",
)  # fmt: skip
# No kernel's time is outside; times this far inside have finite rates and ratios.
_LEAST_US, _MOST_US = 1e-6, 1e15
_MAJORS, _MINORS = range(1, 100), range(10)  # of compute capabilities, which have two digits or three
_BOX = range(1, 257)  # elements that TMA copies along one dimension
_MOST = 2**31 - 1  # as in the exported header
_PROBLEM_TEXTS = ("dtype", "layout", "accumulator", "out_dtype", "epilogue")


def encode_key(key: CacheKey) -> dict[str, Any]:
    """The key with alpha and beta as they were tuned, so that the problem can be made again."""
    return {
        "problem": key.problem.as_dict(),
        "device": device_fields(key.device),
        "toolchain": key.toolchain,
        "method": key.method,
    }


def decode_key(fields: Fields) -> CacheKey:
    problem = decode_problem(fields.object("problem"))
    device = decode_device(fields.object("device"))
    return CacheKey(problem, device, fields.text("toolchain"), fields.text("method"))


def decode_problem(fields: Fields) -> Problem:
    values: dict[str, Any] = {name: fields.integer(name) for name in _PROBLEM_INTEGERS}
    values |= {name: fields.text(name) for name in _PROBLEM_TEXTS}
    values |= {name: fields.number(name) for name in ("alpha", "beta")}
    try:
        return Problem(**values)
    except InputError as error:
        raise FieldError(f"{fields.where}: {error.message}") from error


def decode_device(fields: Fields) -> DeviceIdentity:
    return DeviceIdentity(
        fields.text("name"),
        fields.pair("compute_capability", "as [9, 0]", _MAJORS, _MINORS),
        fields.integer("sm_count", 1, _MOST),
        fields.integer("memory_gib", 0, _MOST),
    )


def encode_config(config: Config) -> dict[str, Any]:
    return {"family": config.family, "parameters": dict(config.parameters), "runtime": dict(config.runtime)}


def decode_config(fields: Fields) -> Config:
    parameters = _choices(fields, "parameters")
    if not parameters:
        raise FieldError(f"{fields.path('parameters')}: is empty")
    return Config(fields.text("family"), parameters, _choices(fields, "runtime"))


def _choices(fields: Fields, name: str) -> tuple[tuple[str, Value], ...]:
    values = fields.object(name)
    choices = tuple(values.items())
    for choice, value in choices:
        if type(value) not in (int, str):
            raise values.wrong(choice, "a whole number or a text")
        _ = values.text(choice) if isinstance(value, str) else values.integer(choice)
    return choices


def encode_launch(launch: Launch) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(launch, name) for name in ("kernel", "grid", "block", "smem_bytes")}
    if launch.tensor_maps:
        fields["tensor_maps"] = [_encode_tensor_map(one) for one in launch.tensor_maps]
    if launch.programmatic:
        fields["programmatic"] = True
    return fields


def _encode_tensor_map(tensor_map: TensorMap) -> dict[str, Any]:
    copy = vars(tensor_map.copy).copy() if tensor_map.copy else None
    if copy and not copy["width"]:
        del copy["width"]
    fields: dict[str, Any] = {
        "operand": tensor_map.operand,
        "box": list(tensor_map.box),
        "swizzle": tensor_map.swizzle,
        "copy": copy,
    }
    if tensor_map.rows:
        fields["rows"] = vars(tensor_map.rows).copy()
    return fields


def decode_launch(fields: Fields) -> Launch:
    maps = fields.objects("tensor_maps") if "tensor_maps" in fields.names() else ()
    return Launch(
        fields.text("kernel"),
        fields.integer("grid", 1),
        fields.integer("block", 1),
        fields.integer("smem_bytes", 0),
        tuple(_decode_tensor_map(one) for one in maps),
        "programmatic" in fields.names() and fields.flag("programmatic"),
    )


def _decode_tensor_map(fields: Fields) -> TensorMap:
    box = fields.pair("box", "1 to 256 each", _BOX, _BOX)
    copy = None
    if fields.raw("copy") is not None:
        of_copy = fields.object("copy")
        width = of_copy.integer("width", 1) if "width" in of_copy.names() else 0
        copy = OperandCopy(of_copy.integer("offset", 0), of_copy.integer("pitch", 1), of_copy.flag("turned"), width)
    rows = None
    if "rows" in fields.names():
        of_rows = fields.object("rows")
        of = of_rows.integer("of", 2, 8)
        if of not in CLASSES:  # from 2 on, as read
            raise FieldError(f"{of_rows.path('of')}: is {of}; must be 2, 4 or 8")
        rows = RowClass(of, of_rows.integer("number", 0, of - 1))
    return TensorMap(fields.choice("operand", ("a", "b", "c")), box, fields.integer("swizzle", 0), copy, rows)


def encode_measurement(measurement: Measurement) -> dict[str, Any]:
    values = {
        "time_us": _float(measurement.time_us),
        "spread": _known(measurement.spread),
        "screened_us": _float(measurement.screened_us),
    }
    return dict(vars(measurement)) | values


def _float(value: float | None) -> float | None:
    """Times are written as 2.0 also where a caller has a 2, so that what is read back is written the same."""
    return None if value is None else float(value)


def _known(value: float | None) -> float | None:
    """What goes along with a time and came out as no number counts as unknown; it is no reason to lose the time."""
    return float(value) if value is not None and math.isfinite(value) else None


def is_time(value: object) -> bool:
    """Whether a stored value can be microseconds of a run."""
    return isinstance(value, float) and _LEAST_US <= value <= _MOST_US


def _optional_time(fields: Fields, name: str) -> float | None:
    value = fields.optional_number(name)
    if value is None or is_time(value):
        return value
    raise FieldError(f"{fields.path(name)}: is {value}; no time of a run")


def decode_measurement(fields: Fields) -> Measurement:
    """A kt that knows schema 1 only, and runs on while a newer one upgrades the file, writes no `screened_us`."""
    measurement = Measurement(
        status=cast(Status, fields.choice("status", STATUSES)),
        time_us=_optional_time(fields, "time_us"),
        spread=fields.optional_number("spread"),
        samples=fields.integer("samples", 0),
        refined=fields.flag("refined"),
        noisy=fields.flag("noisy"),
        predicted=fields.flag("predicted"),
        detail=fields.text("detail"),
        registers=fields.optional_integer("registers"),
        spill_bytes=fields.optional_integer("spill_bytes"),
        smem_bytes=fields.optional_integer("smem_bytes"),
        screened_us=_optional_time(fields, "screened_us") if "screened_us" in fields.names() else None,
    )
    if (measurement.status == "ok") != (measurement.time_us is not None):
        raise FieldError(f"{fields.path('time_us')}: is {measurement.time_us} with status {measurement.status!r}")
    return measurement


def encode_best(best: BestConfig) -> dict[str, Any]:
    """All of it but the key and the sources, which are stored beside it."""
    return {
        "config": encode_config(best.config),
        "measurement": encode_measurement(best.measurement),
        "launches": [encode_launch(launch) for launch in best.launches],
        "workspace_bytes": best.workspace_bytes,
        "ties": [encode_config(config) for config in best.ties],
        "default_us": _known(best.default_us),
        "baseline": {peer: float(us) for peer, us in sorted(best.baseline.items()) if math.isfinite(us)},
        "floor_us": _known(best.floor_us),
        "tried": best.tried,
        "total": best.total,
        "complete": best.complete,
        "edge": list(best.edge),
        "provenance": dict(sorted(best.provenance.items())),
    }


def decode_best(fields: Fields, key: CacheKey, sources: dict[str, str]) -> BestConfig:
    measurement = decode_measurement(fields.object("measurement"))
    if measurement.status != "ok":
        raise FieldError(f"{fields.path('measurement')}.status: is {measurement.status!r}; a winner's is 'ok'")
    config = decode_config(fields.object("config"))
    if config.family not in sources:
        raise FieldError(f"{fields.path('sources')}: have no {config.family}, the winner's family")
    return BestConfig(
        key=key,
        config=config,
        measurement=measurement,
        sources=sources,
        launches=_launches(fields),
        workspace_bytes=fields.integer("workspace_bytes", 0),
        ties=tuple(decode_config(config) for config in fields.objects("ties")),
        default_us=_optional_time(fields, "default_us"),
        baseline=_times(fields.object("baseline")),
        floor_us=_optional_time(fields, "floor_us"),
        tried=fields.integer("tried", 0),
        total=fields.integer("total", 0),
        complete=fields.flag("complete"),
        edge=fields.texts("edge"),
        provenance=strings(fields.object("provenance")),
    )


def _launches(fields: Fields) -> tuple[Launch, ...]:
    launches = tuple(decode_launch(launch) for launch in fields.objects("launches"))
    if not launches:
        raise FieldError(f"{fields.path('launches')}: is empty")
    return launches


def _times(fields: Fields) -> dict[str, float]:
    return {name: value for name in fields.names() if (value := _optional_time(fields, name)) is not None}


def numbers(fields: Fields) -> dict[str, float]:
    """Every field as a finite number."""
    return {name: fields.number(name) for name in fields.names()}


def strings(fields: Fields) -> dict[str, str]:
    """Every field as a text."""
    return {name: fields.text(name) for name in fields.names()}
