"""The JSON Schema of search-space files, complete or narrowing, for editors."""

from typing import Any

from kt.problems.dtype_names import DTYPE_ALIASES
from kt.problems.dtypes import DTYPES

__all__ = ["space_schema"]

_EXPRESSION = {"type": ["string", "integer", "boolean"], "description": "an expression over names, or a constant"}
_NUMBERS = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "integer"}}
_WORDS = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string", "minLength": 1}}
_VALUES = {"anyOf": [_NUMBERS, _WORDS], "description": "the values of one parameter"}
_FORMATS = [*DTYPES, *(alias for alias, name in DTYPE_ALIASES.items() if name in DTYPES)]


def space_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a search-space file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kt:space:1",
        "title": "kt search space",
        "description": "With `template`, a complete space; without it, what narrows the built-in space of its family.",
        "type": "object",
        "properties": _properties(),
        "additionalProperties": False,
        "required": ["family"],
        "if": {"required": ["template"]},
        "then": {"required": ["op", "dtypes", "parameters", "default", "launches"]},
        "else": {
            "propertyNames": {"enum": ["op", "family", "parameters", "runtime", "default", "constraints"]},
        },
    }


def _properties() -> dict[str, Any]:
    names = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
    return {
        "op": {"const": "gemm"},
        "family": {**names, "description": "name of the kernel family"},
        "template": {"type": "string", "minLength": 1, "description": "Jinja2 template, below a template folder"},
        "dtypes": {"type": "array", "minItems": 1, "items": {"enum": _FORMATS}, "description": "formats it serves"},
        "min_compute_capability": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {"type": "integer", "minimum": 0},
            "description": "lowest [major, minor] that the template compiles for; [7, 5] if left out",
        },
        "parameters": _map(_VALUES, "compile-time parameters and their values"),
        "runtime": _map(_NUMBERS, "arguments of the launch and their values; they cost no compile"),
        "default": _map({"type": ["integer", "string"]}, "the configuration that runs everywhere"),
        "derived": _map(_EXPRESSION, "quantities computed from those above them"),
        "constraints": {"type": "array", "items": _row({"require": _EXPRESSION, "reason": {"type": "string"}}, 2)},
        "launches": {
            "type": "array",
            "minItems": 1,
            "items": _row(
                {
                    "kernel": names,
                    **dict.fromkeys(("grid", "block", "smem_bytes", "when", "programmatic"), _EXPRESSION),
                    "tensor_maps": {"type": "array", "minItems": 1, "items": _tensor_map()},
                },
                needed=3,
            ),
        },
        "workspace_bytes": _EXPRESSION,
        "starts": {
            "type": "array",
            "items": _map(
                {"type": ["integer", "string"]}, "choices that have won elsewhere; a search tries them first"
            ),
        },
        "tiny": _row(
            {
                "choose": _map({"type": ["integer", "string"]}, "what a header takes for tiny problems"),
                "when": _EXPRESSION,
                "although": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            },
            needed=2,
        ),
    }


def _tensor_map() -> dict[str, Any]:
    box = {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": _EXPRESSION,
        "description": "elements of a row, and rows, that are copied at once",
    }
    optional = dict.fromkeys(("when", "copied", "offset", "pitch", "turned", "width", "classes", "number"), _EXPRESSION)
    return _row({"operand": {"enum": ["a", "b", "c"]}, "box": box, "swizzle": _EXPRESSION, **optional}, needed=3)


def _map(values: dict[str, Any], description: str) -> dict[str, Any]:
    names = {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
    return {"type": "object", "propertyNames": names, "additionalProperties": values, "description": description}


def _row(properties: dict[str, Any], needed: int) -> dict[str, Any]:
    """A mapping with these keys, of which the first `needed` must be there."""
    required = list(properties)[:needed]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
