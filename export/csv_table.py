"""The table as CSV: one line for each winner, one column for each figure, parameter and library."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from kt.cache.ranking import listing_order
from kt.cache.records import BestConfig
from kt.export.json_table import row
from kt.problems import Problem

__all__ = ["render_csv"]

_PROBLEM = tuple(field.name for field in fields(Problem))
_DEVICE = ("device", "compute_capability", "sm_count", "memory_gib")
_TIMES = ("time_us", "spread", "samples", "tflops", "gb_per_s", "floor_us", "floor_fraction", "default_us")
_SEARCH = (
    "tried", "total", "complete", "kind", "refined", "screened_us", "noisy", "workspace_bytes", "registers",
    "spill_bytes", "smem_bytes", "toolchain", "method", "key",
)  # fmt: skip
# Columns that depend on the contents, by what their names begin with.
_CHOICES, _LIBRARIES = ("parameter.", "runtime."), ("baseline.", "ratio.")


def render_csv(winners: Iterable[BestConfig]) -> str:
    """The rows of the JSON table in its order, flat; what is not known, or not of the row's family, is empty.

    Columns that depend on the contents are in alphabetic order, so the same winners give the same bytes.
    """
    rows = [_flat(row(best)) for best in sorted(winners, key=listing_order)]
    columns = [
        *_DEVICE, *_PROBLEM, "family", *_named(rows, _CHOICES), *_TIMES, *_named(rows, _LIBRARIES), *_SEARCH,
    ]  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _named(rows: Sequence[dict[str, Any]], prefixes: Sequence[str]) -> list[str]:
    """The columns of all rows whose names begin so, group by group."""
    names = sorted({name for one in rows for name in one})
    return [name for prefix in prefixes for name in names if name.startswith(prefix)]


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """A row of the JSON table as cells; lists of things (launches, ties) are left to that table."""
    device = found["device"]
    cells = {**found["problem"], "family": found["family"], **{name: found[name] for name in (*_TIMES, *_SEARCH)}}
    cells |= {"device": device["name"], "compute_capability": ".".join(map(str, device["compute_capability"]))}
    cells |= {name: device[name] for name in ("sm_count", "memory_gib")}
    groups = {"parameter.": found["config"]["parameters"], "runtime.": found["config"]["runtime"]}
    groups |= {"baseline.": found["baseline"], "ratio.": found["ratio"]}
    cells |= {f"{prefix}{name}": value for prefix, group in groups.items() for name, value in group.items()}
    return {name: _cell(value) for name, value in cells.items()}


def _cell(value: object) -> object:
    """JSON's words for the truth values, so that both tables say the same; numbers with the digits that they have."""
    if isinstance(value, bool):
        return str(value).lower()
    return float(f"{value:.6g}") if isinstance(value, float) else value
