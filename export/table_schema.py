"""The JSON Schema (draft 2020-12) of `kt.table/1`, for editors and for programs that read tables."""

from typing import Any

from kt.export.json_table import TABLE_SCHEMA
from kt.problems import DTYPES, LAYOUTS
from kt.problems.dtypes import ACCUMULATORS, OUTPUT_BYTES

__all__ = ["table_schema"]


def table_schema() -> dict[str, Any]:
    """The schema; a field that is not known is null, and one that older versions did not write is not required."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{TABLE_SCHEMA}: winners that kt has found",
        **_object(
            schema={"const": TABLE_SCHEMA},
            kt=_text("version of kt that wrote the table"),
            rows={"type": "array", "items": {"$ref": "#/$defs/row"}},
        ),
        "$defs": {
            "row": _row(),
            "problem": _problem(),
            "device": _device(),
            "launch": _launch(),
            "choices": _map({"type": ["integer", "string"]}, "value by name"),
        },
    }


def _row() -> dict[str, Any]:
    row = _object(
        problem={"$ref": "#/$defs/problem"},
        family=_text("kernel family of the winner"),
        config=_object(parameters=_non_empty_choices(), runtime={"$ref": "#/$defs/choices"}),
        launches={"type": "array", "items": {"$ref": "#/$defs/launch"}},
        workspace_bytes=_count("device memory needed besides the operands"),
        time_us=_positive("median time of one run, microseconds"),
        spread=_or_null(_least(0, "interquartile range divided by the median")),
        samples=_count("timed samples behind time_us"),
        tflops=_least(0, "10^12 operations per second"),
        gb_per_s=_least(0, "10^9 bytes per second, each operand moved once"),
        floor_us=_or_null(_positive("roofline floor, microseconds")),
        floor_fraction=_or_null(_positive("floor_us / time_us")),
        baseline=_map(_positive("microseconds"), "time of a library in the same run, by its name"),
        ratio=_map(_positive("baseline / time_us"), "above 1: faster than that library"),
        default_us=_or_null(_positive("time of the family's default configuration in the same rounds")),
        ties={"type": "array", "items": _tie(), "description": "not told apart from the winner, fastest first"},
        tried=_count("configurations tried"),
        total=_count("valid configurations"),
        complete=_flag("the search ended by itself"),
        edge={
            "type": "array",
            "items": {"type": "string"},
            "description": "parameters whose value is the last offered",
        },
        kind={"enum": ["measured", "predicted"]},
        refined=_flag("timed interleaved with the other finalists"),
        screened_us=_or_null(_positive("time in the screening, before the finals, microseconds")),
        noisy=_flag("the spread stayed above the limit"),
        registers=_or_null(_count("registers of a thread")),
        spill_bytes=_or_null(_count("bytes of registers spilled by a thread")),
        smem_bytes=_or_null(_count("shared memory of a block, bytes")),
        device={"$ref": "#/$defs/device"},
        toolchain=_text("compiler and options"),
        method=_text("how it was verified and timed"),
        sources=_map({"type": "string"}, "digest of template, headers and space, by family that competed"),
        key={"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "digest of the key in the cache"},
    )
    row["required"].remove("screened_us")
    return row


def _problem() -> dict[str, Any]:
    extent = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    pitch = {"type": "integer", "minimum": 1}
    stride = _count("elements between batches; 0 with one batch")
    return _object(
        m=extent, n=extent, k={**extent, "minimum": 0},
        dtype={"enum": list(DTYPES)}, layout={"enum": list(LAYOUTS)}, batch=extent,
        lda=pitch, ldb=pitch, ldc=pitch, stride_a=stride, stride_b=stride, stride_c=stride,
        alpha={"type": "number"}, beta={"type": "number"},
        accumulator={"enum": list(ACCUMULATORS)}, out_dtype={"enum": list(OUTPUT_BYTES)},
        epilogue={"type": "string"}, base_alignment={"type": "integer", "minimum": 1},
    )  # fmt: skip


def _device() -> dict[str, Any]:
    capability = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    return _object(
        name=_text("as the driver reports it"),
        compute_capability=capability,
        sm_count={"type": "integer", "minimum": 1},
        memory_gib=_count("device memory, rounded to whole GiB"),
    )


def _launch() -> dict[str, Any]:
    size = {"type": "integer", "minimum": 1}
    launch = _object(
        kernel=_text("name of the kernel"), grid=size, block=size, smem_bytes=_count("dynamic shared memory")
    )
    launch["properties"]["tensor_maps"] = {
        "type": "array",
        "items": _tensor_map(),
        "description": "what a kernel fed by TMA takes behind its arguments",
    }
    launch["properties"]["programmatic"] = {
        "type": "boolean",
        "description": "the grid may start while earlier ones in its stream still run, and waits for them itself",
    }
    return launch


def _tensor_map() -> dict[str, Any]:
    copy = _object(
        offset=_count("bytes from the start of the workspace"),
        pitch={"type": "integer", "minimum": 1, "description": "elements between rows"},
        turned={"type": "boolean", "description": "rows of the copy are columns of the operand as stored"},
    )
    width = "elements of a row; absent: as many as a row of the operand has"
    copy["properties"]["width"] = {"type": "integer", "minimum": 1, "description": width}
    box = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}
    shown = _object(
        operand={"enum": ["a", "b", "c"]},
        box={**box, "description": "elements of a row, and rows, that are copied at once"},
        swizzle={"enum": [0, 32, 64, 128], "description": "bytes"},
        copy=_or_null({**copy, "description": "the operand's copy in the workspace; null: the operand itself"}),
    )
    rows = _object(
        of={
            "enum": [2, 4, 8],
            "description": "classes of rows, by the bytes at which they begin behind multiples of 16",
        },
        number={"type": "integer", "minimum": 0, "maximum": 7, "description": "the class that is shown, in that order"},
    )
    shown["properties"]["rows"] = {**rows, "description": "absent: all rows are shown"}
    return shown


def _tie() -> dict[str, Any]:
    return _object(family=_text("kernel family"), parameters=_non_empty_choices(), runtime={"$ref": "#/$defs/choices"})


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _non_empty_choices() -> dict[str, Any]:
    return {"$ref": "#/$defs/choices", "minProperties": 1}


def _map(values: dict[str, Any], description: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, "description": description}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "description": description}


def _least(minimum: float, description: str) -> dict[str, Any]:
    return {"type": "number", "minimum": minimum, "description": description}


def _positive(description: str) -> dict[str, Any]:
    return {"type": "number", "exclusiveMinimum": 0, "description": description}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}
