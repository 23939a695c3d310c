"""What the cache holds, for listings and exports: each winner with its state, and which shapes have none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kt.cache.key import problem_digest
from kt.cache.ranking import choose, listing_order, rank
from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cache.validity import OtherSpaces, changed_since
from kt.devices.device import DeviceIdentity
from kt.problems import Problem

__all__ = ["Entry", "Selection", "State", "entries", "lookup", "select", "stand_ins"]

State = Literal["valid", "stale", "partial", "predicted", "other-space", "unseen"]


@dataclass(frozen=True)
class Entry:
    """One stored winner.

    Attributes:
        best: the winner.
        state: "stale" if what it was made from has changed, "other-space" if it is of another `--space` than
            what is asked about (neither is served); "predicted" if its time is the model's; "unseen" if it stands for
            shapes that nobody lists; "partial" if its search did not end by itself; else "valid".
        reason: for people: why it is stale, how far a partial search came; "" for a valid one.
        id: its row, for `Store.remove`.
        digest: digest of its key.
    """

    best: BestConfig
    state: State
    reason: str
    id: int
    digest: str


def entries(
    store: Store,
    current_sources: Mapping[str, str] | None = None,
    *,
    method: str | None = None,
    toolchain: str | None = None,
    other_spaces: OtherSpaces | None = None,
) -> list[Entry]:
    """Every stored winner in listing order. What cannot be read is named in `store.warnings`.

    Args:
        current_sources: family to digest as they are today; None leaves staleness unjudged.
        method, toolchain: labels of today, for measured winners; None leaves them unjudged.
        other_spaces: tells what is of another space; None takes it for stale.
    """
    found = []
    for row in store.stored():
        state, reason = _state(row.best, current_sources, method, toolchain, other_spaces)
        found.append(Entry(row.best, state, reason, row.id, row.digest))
    return sorted(found, key=lambda entry: listing_order(entry.best))


def _state(
    best: BestConfig,
    current: Mapping[str, str] | None,
    method: str | None,
    toolchain: str | None,
    other_spaces: OtherSpaces | None,
) -> tuple[State, str]:
    progress = "" if best.complete else f"{best.tried} of {best.total} tried"
    reasons = [changed_since(best, current) if current is not None else ""]
    if not best.measurement.predicted:
        reasons += [_relabelled("method", best.key.method, method)]
        reasons += [_relabelled("toolchain", best.key.toolchain, toolchain)]
    if reasons[0] and not any(reasons[1:]) and other_spaces and (other := other_spaces.reason(best)):
        return "other-space", other
    if any(reasons):
        return "stale", "; ".join(reason for reason in reasons if reason)
    if best.measurement.predicted:
        return "predicted", progress
    if best.unseen:
        return "unseen", progress
    return ("valid", "") if best.complete else ("partial", progress)


def _relabelled(what: str, stored: str, current: str | None) -> str:
    return "" if current in (None, stored) else f"{what} was {stored}, is {current}"


@dataclass(frozen=True)
class Selection:
    """The one entry to use for each problem and device, and the entries that stand behind it.

    `preferred`: of those passed over that could be used, by their `id`, the entry that is taken in their place.
    `unfinished`: the `id` of those that would do, had their search ended by itself.
    """

    chosen: list[Entry]
    passed_over: list[Entry]
    preferred: Mapping[int, Entry] = field(default_factory=dict)
    unfinished: frozenset[int] = frozenset()


def select(candidates: Iterable[Entry], *, partial: bool = True, predicted: bool = False) -> Selection:
    """At most one entry for each problem and device, by the rule of `kt.cache.ranking`; never a stale one.

    Args:
        partial: accept winners of searches that did not end by themselves.
        predicted: accept winners that were ranked by the model and never measured.
    """
    states = ["valid", "partial", *(["predicted"] if predicted else [])]
    usable: dict[tuple[str, DeviceIdentity], list[Entry]] = {}
    passed_over = []
    unfinished = set()
    for entry in candidates:
        if entry.state not in states:
            passed_over.append(entry)
        elif not (partial or entry.best.complete):
            passed_over.append(entry)
            unfinished.add(entry.id)
        else:
            usable.setdefault((problem_digest(entry.best.key.problem), entry.best.key.device), []).append(entry)
    ranked = [sorted(group, key=lambda entry: rank(entry.best)) for group in usable.values()]
    passed_over += [entry for group in ranked for entry in group[1:]]
    preferred = {entry.id: group[0] for group in ranked for entry in group[1:]}
    return Selection([group[0] for group in ranked], passed_over, preferred, frozenset(unfinished))


def stand_ins(candidates: Iterable[Entry]) -> list[BestConfig]:
    """What is known of shapes that stand for those that nobody lists, one for each problem and device."""
    found: dict[tuple[str, DeviceIdentity], list[BestConfig]] = {}
    for entry in candidates:
        if entry.state == "unseen":
            found.setdefault((problem_digest(entry.best.key.problem), entry.best.key.device), []).append(entry.best)
    return [min(group, key=rank) for group in found.values()]


def lookup(winners: Sequence[BestConfig], problem: Problem, device: DeviceIdentity) -> BestConfig | None:
    """The winner for exactly this problem on exactly this device, else None: the rule of the exported header too."""
    digest = problem_digest(problem)
    return choose(best for best in winners if best.key.device == device and problem_digest(best.key.problem) == digest)
