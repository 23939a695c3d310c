"""The JSON table `kt.table/1`: winners with all that is known of them, one row each, the same bytes every time."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from kt import __version__
from kt.cache.encoding import (
    decode_best,
    decode_device,
    decode_problem,
    encode_best,
    strings,
)
from kt.cache.fields import FieldError, Fields
from kt.cache.key import device_fields, key_digest
from kt.cache.ranking import listing_order
from kt.cache.records import BestConfig, CacheKey
from kt.errors import InputError
from kt.problems.whole_input import name_of, read_whole

__all__ = ["TABLE_SCHEMA", "read_table", "render_table", "row", "table"]

TABLE_SCHEMA = "kt.table/1"
MOST_DIGITS = 1000  # far more than any figure has, and fewer than Python reads
MAX_BYTES = 256 * 2**20  # more than a table of 100,000 shapes has
_MAJOR = TABLE_SCHEMA.rpartition("/")[0]


def table(winners: Iterable[BestConfig]) -> dict[str, Any]:
    """The document: rows in listing order, no time stamps, no paths, no names of hosts."""
    rows = [row(best) for best in sorted(winners, key=listing_order)]
    return {"schema": TABLE_SCHEMA, "kt": __version__, "rows": rows}


def render_table(winners: Iterable[BestConfig]) -> str:
    """The document as strict JSON text (ASCII, no NaN), with a final newline."""
    return json.dumps(table(winners), indent=2, allow_nan=False) + "\n"


def row(best: BestConfig) -> dict[str, Any]:
    """One winner; what is not known is None."""
    problem, record = best.key.problem, encode_best(best)
    measurement, config, baseline = record["measurement"], record["config"], record["baseline"]
    time_us, floor_us = measurement["time_us"], record["floor_us"]
    return {
        "problem": problem.as_dict(),
        "family": config["family"],
        "config": {"parameters": config["parameters"], "runtime": config["runtime"]},
        "launches": record["launches"],
        "workspace_bytes": record["workspace_bytes"],
        "time_us": time_us,
        "spread": measurement["spread"],
        "samples": measurement["samples"],
        "tflops": _rounded(problem.flops / time_us / 1e6),
        "gb_per_s": _rounded(problem.bytes / time_us / 1e3),
        "floor_us": floor_us,
        "floor_fraction": None if floor_us is None else _rounded(floor_us / time_us),
        "baseline": baseline,
        "ratio": {peer: _rounded(peer_us / time_us) for peer, peer_us in baseline.items()},
        **{name: record[name] for name in ("default_us", "ties", "tried", "total", "complete", "edge")},
        "kind": "predicted" if measurement["predicted"] else "measured",
        **{name: measurement[name] for name in ("refined", "screened_us", "noisy")},
        **{name: measurement[name] for name in ("registers", "spill_bytes", "smem_bytes")},
        "device": device_fields(best.key.device),
        "toolchain": best.key.toolchain,
        "method": best.key.method,
        "sources": dict(sorted(best.sources.items())),
        "key": key_digest(best.key),
    }


def _rounded(value: float) -> float:
    """Six significant digits: more than any timing has, and the same text on every machine."""
    return float(f"{value:.6g}")


def read_table(path: Path | str) -> list[BestConfig]:
    """The winners of a table ("-": standard input); derived figures are checked, and made again when needed.

    Raises:
        InputError: it is not a `kt.table/1`; the message names the row and field.
    """
    name = name_of(path)
    document = _parse(_text(path, name), name)
    try:
        fields = Fields(document)
        schema = fields.text("schema")
        if schema != TABLE_SCHEMA:
            hint = "use the kt that made it" if schema.startswith(f"{_MAJOR}/") else f"a table has {TABLE_SCHEMA!r}"
            raise InputError(f"{name}: schema is {schema!r}, not {TABLE_SCHEMA!r}", hint=hint)
        return [_decode_row(fields_of_row) for fields_of_row in fields.objects("rows")]
    except FieldError as error:
        raise InputError(f"{name}: {error}", hint="`kt schema table` prints the JSON Schema of tables") from error


def _text(path: Path | str, name: str) -> str:
    try:
        return read_whole(path, MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{name}: not strict JSON: {error}") from error
    except RecursionError:
        raise InputError(f"{name}: lists and objects are nested too deep") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} is repeated")
    return found


# What follows from other fields, and how much rounding may have changed it.
_DERIVED = ("tflops", "gb_per_s", "floor_fraction", "ratio")
_ROUNDING = 1e-4
_OF_MODEL = "model/"  # how methods begin that measure nothing

# Fields of a stored winner and of its measurement that a row has under the same names.
_OF_WINNER = (
    "launches", "workspace_bytes", "ties", "default_us", "baseline", "floor_us", "tried", "total", "complete", "edge",
)  # fmt: skip
_OF_MEASUREMENT = (
    "time_us", "spread", "samples", "refined", "noisy", "registers", "spill_bytes", "smem_bytes",
)  # fmt: skip


def _decode_row(fields: Fields) -> BestConfig:
    """A row holds what a stored record holds, laid out for readers: the record is put together again."""
    problem, device = decode_problem(fields.object("problem")), decode_device(fields.object("device"))
    key = CacheKey(problem, device, fields.text("toolchain"), fields.text("method"))
    if fields.text("key") != key_digest(key):
        raise FieldError(f"{fields.path('key')}: is not the digest of problem, device, toolchain and method")
    predicted = fields.choice("kind", ("measured", "predicted")) == "predicted"
    choices = fields.object("config")
    record = {name: fields.raw(name) for name in _OF_WINNER}
    record["measurement"] = {name: fields.raw(name) for name in _OF_MEASUREMENT}
    record["measurement"] |= {"status": "ok", "predicted": predicted, "detail": ""}
    record["measurement"]["screened_us"] = fields.raw("screened_us") if "screened_us" in fields.names() else None
    record["config"] = {name: choices.raw(name) for name in ("parameters", "runtime")}
    record["config"]["family"] = fields.text("family")
    record["provenance"] = {}
    try:
        best = decode_best(Fields(record, fields.where), key, strings(fields.object("sources")))
    except FieldError as error:  # told where the row has it
        raise FieldError(str(error).replace(fields.path("measurement."), fields.path(""), 1)) from error
    if not predicted and key.method.startswith(_OF_MODEL):
        raise FieldError(f"{fields.path('kind')}: is measured, but the method {key.method} measures nothing")
    _check_derived(fields, row(best))
    return best


def _check_derived(fields: Fields, right: Mapping[str, Any]) -> None:
    """Refuse figures that do not follow from the others: somebody has changed one of them."""
    for name in _DERIVED:
        if name in set(fields.names()) and not _is_near(fields.raw(name), right[name]):
            given = json.dumps(fields.raw(name))
            raise FieldError(f"{fields.path(name)}: is {given[:80]}; the row's times give {json.dumps(right[name])}")


def _is_near(given: Any, right: Any) -> bool:
    """Equal but for rounding."""
    if isinstance(right, dict):
        return (
            isinstance(given, dict)
            and given.keys() == right.keys()
            and all(_is_near(given[name], right[name]) for name in right)
        )
    if isinstance(right, float) and isinstance(given, int | float) and not isinstance(given, bool):
        with suppress(OverflowError):  # a whole number that no float holds is near none
            return abs(given - right) <= _ROUNDING * abs(right)
        return False
    return given is None and right is None
