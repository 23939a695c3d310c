"""The table of results that people read: one line per shape, figures that say what limits them, and honest notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kt.cli.figures import rate_text, time_text
from kt.cli.output import print_table
from kt.devices.device import told_apart

if TYPE_CHECKING:
    from kt.cache.records import BestConfig
    from kt.devices.device import Device, DeviceIdentity
    from kt.problems import Problem

__all__ = ["ResultLine", "known_device", "print_results"]

AT_ROOF = 0.9  # of the floor: nearer than this, only less traffic would be faster
_SPARE = ("tried", "family", "GB/s", "vs default", "limit", "TFLOP/s")  # a narrow window does without, in this order
_TEXT = frozenset({"shape", "device", "family", "state", "configuration", "notes", "limit"})


@dataclass(frozen=True)
class ResultLine:
    """One line: a winner with its device's figures, or a shape that has none.

    Attributes:
        state: e.g. "valid" or "stale" for what the cache holds; "" in a run's own table.
        remark: what to say besides the notes that the winner itself gives.
    """

    problem: Problem
    best: BestConfig | None
    device: Device | None
    state: str = ""
    remark: str = ""


def known_device(identity: DeviceIdentity) -> Device | None:
    """The figures of a GPU that is named in the cache, where kt's data file has them."""
    from kt.devices.catalog import find

    return find(identity.name, identity.compute_capability, identity.sm_count)


def print_results(lines: Sequence[ResultLine], *, verbose: bool, with_device: bool = False) -> None:
    """Print the table on standard output, with one column for each library that was timed beside a winner.

    With `verbose`, a second table has the full configurations.
    """
    peers = sorted({name for line in lines if line.best for name in line.best.baseline})
    defaults = any(line.best and line.best.default_us for line in lines)
    states = any(line.state for line in lines)
    columns = [
        *(["device"] if with_device else []), "shape", "time us", "TFLOP/s", "GB/s", "of floor", "limit",
        *(f"vs {name}" for name in peers), *(["vs default"] if defaults else []), "tried", "family",
        *(["state"] if states else []), "notes",
    ]  # fmt: skip
    names = told_apart(line.best.key.device for line in lines if line.best)
    rows = [
        [
            *([names[line.best.key.device] if line.best else ""] if with_device else []),
            line.problem.label, *_figures(line),
            *(_ratio(line, line.best.baseline.get(name) if line.best else None) for name in peers),
            *([_ratio(line, line.best.default_us if line.best else None)] if defaults else []),
            _tried(line), line.best.config.family if line.best else "",
            *([line.state] if states else []), "; ".join(_notes(line)),
        ]
        for line in lines
    ]  # fmt: skip
    print_table(columns, rows, left=_TEXT, spare=_SPARE)
    winners = [(line.problem.label, line.best.config.label) for line in lines if line.best]
    if verbose and winners:
        print()
        print_table(("shape", "configuration"), winners, left=_TEXT)


def _time_us(line: ResultLine) -> float | None:
    return line.best.measurement.time_us if line.best else None


def _figures(line: ResultLine) -> list[str]:
    time_us = _time_us(line)
    if time_us is None:
        return ["-", "-", "-", "-", "-"]
    fraction = _floor_fraction(line)
    return [
        time_text(time_us),
        rate_text(line.problem.flops / time_us / 1e6),
        rate_text(line.problem.bytes / time_us / 1e3),
        f"{fraction:.0%}" if fraction is not None else "-",
        _limit(line) or "-",
    ]


def _floor_fraction(line: ResultLine) -> float | None:
    """Roofline floor divided by time: 1 is the least time that the device's rates allow."""
    time_us = _time_us(line)
    if line.best is None or not line.best.floor_us or not time_us:
        return None
    return line.best.floor_us / time_us


def _limit(line: ResultLine) -> str:
    """Which of the device's limits sets the floor: compute, bandwidth or launch."""
    if line.device is None:
        return ""
    from kt.devices.roofline import floor

    return floor(line.problem, line.device).bound


def _ratio(line: ResultLine, other_us: float | None) -> str:
    """Another time divided by the winner's: above 1 the winner is faster."""
    time_us = _time_us(line)
    return f"{other_us / time_us:.2f}x" if other_us and time_us else "-"


def _tried(line: ResultLine) -> str:
    return f"{line.best.tried}/{line.best.total}" if line.best else "-"


def _notes(line: ResultLine) -> list[str]:
    best = line.best
    if best is None:
        return [line.remark]
    if best.measurement.predicted:  # ties and edges of a guess say nothing
        guessed = [] if line.state == "predicted" else ["predicted, not measured"]
        unfinished = [] if best.complete else ["search not finished"]
        return [*guessed, *unfinished, *([line.remark] if line.remark else [])]
    notes = []
    if (_floor_fraction(line) or 0) >= AT_ROOF and _limit(line) == "bandwidth":
        notes.append("at its bandwidth roof")
    if best.measurement.noisy:
        spread = f", spread {best.measurement.spread:.1%}" if best.measurement.spread is not None else ""
        notes.append(f"noisy{spread}")
    if best.ties:
        notes.append(f"tied with {len(best.ties)} more")
    if best.edge:
        notes.append(f"at the edge of {', '.join(best.edge)}")
    if not best.complete:
        notes.append("search not finished")
    return [*notes, *([line.remark] if line.remark else [])]
