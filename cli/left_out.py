"""What a command that reads the cache passes over: named, and of many for one reason the first ones and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.cli.listing import some
from kt.cli.outcome import note
from kt.wording import plural

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from kt.cache.entries import Entry, Selection
    from kt.cache.rows import CacheWarning

__all__ = ["NAMED", "say_passed_over", "say_warnings"]

NAMED = 3  # of those that have one reason; each beyond stands for a line that says nothing new


def say_passed_over(selection: Selection, *, verbose: bool) -> None:
    """Nothing is left out in silence; with `verbose`, each has its line."""
    from kt.devices.device import told_apart

    names = told_apart(entry.best.key.device for entry in (*selection.chosen, *selection.passed_over))
    alike: dict[Hashable, list[Entry]] = {}
    for entry in selection.passed_over:
        same = entry.id if verbose else (entry.best.key.device, _reason(selection, entry, alone=False))
        alike.setdefault(same, []).append(entry)
    for entries in alike.values():
        device, alone = names[entries[0].best.key.device], len(entries) == 1
        labels = [entry.best.key.problem.label for entry in entries]
        why = _reason(selection, entries[0], alone=alone)
        if alone:
            note(f"left out: {labels[0]} on {device}: {why}")
        else:
            rest = "; --verbose names all" if len(labels) > NAMED else ""
            note(f"left out: {plural(len(labels), 'winner')} on {device}: {why}: {some(labels, NAMED)}{rest}")


def _reason(selection: Selection, entry: Entry, *, alone: bool) -> str:
    """Why an entry is left out; how far its own search came only if the line is about it `alone`."""
    from kt.cache.ranking import preference

    detail = entry.reason if alone or entry.state in ("stale", "other-space") else ""
    state = "predicted by a search that did not finish" if _is_unfinished_prediction(selection, entry) else entry.state
    own = f"{state} ({detail})" if detail else state
    taken = selection.preferred.get(entry.id)
    if taken is None:
        return own
    why = f"another winner of this shape is taken, because {preference(taken.best, entry.best)}"
    return why + (f"; this one is {own}" if detail or entry.state not in ("valid", taken.state) else "")


def _is_unfinished_prediction(selection: Selection, entry: Entry) -> bool:
    """Predictions are taken, and this one is not: that it is predicted is no reason."""
    return entry.state == "predicted" and entry.id in selection.unfinished


def say_warnings(warnings: Iterable[CacheWarning], *, quiet: bool, verbose: bool = False) -> None:
    """Name what a command has passed over because it cannot be read or used; what has one reason in one line."""
    subjects: dict[str, list[str]] = {}
    for warning in warnings if not quiet else ():
        subjects.setdefault(warning.reason, []).append(warning.subject)
    for reason, of_reason in subjects.items():
        for text in of_reason if verbose else [some(of_reason, NAMED)]:
            note(f"warning: {text}: {reason}")
