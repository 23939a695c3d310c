"""Which shapes have no usable winner on a device, why, and what other devices would offer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kt.cache.entries import Entry, entries, select
from kt.cache.key import problem_digest
from kt.cache.ranking import rank
from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cache.validity import OtherSpaces, serves
from kt.devices.device import DeviceIdentity
from kt.problems import Problem
from kt.wording import plural

__all__ = [
    "NEVER",
    "UNREADABLE",
    "Missing",
    "best_for_architecture",
    "differences",
    "missing",
    "near_matches",
    "unreadable_problems",
]


NEVER = "never tuned"
UNREADABLE = "its entry cannot be read or used"


@dataclass(frozen=True)
class Missing:
    """A problem without a usable winner, and why: never tuned, stale, predicted, partial, or for another device.

    `state`: of what there is on the device itself: stale, other-space, predicted, partial (measured, but the search did
    not end by itself), or unseen (searched briefly, to stand for others); "" if there is nothing that can be read.
    """

    problem: Problem
    reason: str
    state: str = ""


def missing(
    store: Store,
    problems: Sequence[Problem],
    device: DeviceIdentity,
    current_sources: Mapping[str, str] | None = None,
    *,
    method: str | None = None,
    toolchain: str | None = None,
    partial: bool = True,
    other_spaces: OtherSpaces | None = None,
) -> list[Missing]:
    """The problems, in their order, for which `select` finds nothing measured on exactly this device."""
    by_problem: dict[str, list[Entry]] = {}
    for entry in entries(store, current_sources, method=method, toolchain=toolchain, other_spaces=other_spaces):
        by_problem.setdefault(problem_digest(entry.best.key.problem), []).append(entry)
    lacking: list[tuple[Problem, list[Entry], list[Entry]]] = []
    for problem in problems:
        known = by_problem.get(problem_digest(problem), [])
        here = [entry for entry in known if entry.best.key.device == device]
        if not select(here, partial=partial).chosen:
            lacking.append((problem, known, here))
    unreadable = unreadable_problems(store) if any(not here for _, _, here in lacking) else set()
    return [
        _missing(problem, here) if here else Missing(problem, _absent(problem, known, device, unreadable))
        for problem, known, here in lacking
    ]


def _absent(problem: Problem, known: list[Entry], device: DeviceIdentity, unreadable: Collection[str]) -> str:
    return UNREADABLE if problem_digest(problem) in unreadable else _elsewhere(known, device)


def unreadable_problems(store: Store) -> set[str]:
    """Digests of the problems that have an entry which cannot be read or used, on whatever device."""
    rows = store.read("SELECT best.id, keys.problem_digest FROM best JOIN keys ON keys.id = best.key_id")
    unreadable = store.unreadable()
    return {digest for row_id, digest in rows if row_id in unreadable}


def _missing(problem: Problem, here: list[Entry]) -> Missing:
    """Of what there is on the device itself, the nearest to a usable winner: a partial one, then by the usual rule."""
    nearest = min(here, key=lambda entry: (entry.state != "partial", rank(entry.best)))
    reason = f"{nearest.state}: {nearest.reason}" if nearest.reason else nearest.state
    return Missing(problem, reason, nearest.state)


def _elsewhere(known: list[Entry], device: DeviceIdentity) -> str:
    if known:
        measured = {entry.best.key.device: False for entry in known}
        measured |= {entry.best.key.device: True for entry in known if not entry.best.measurement.predicted}
        return "; ".join(
            f"{'tuned' if timed else 'predicted'} for {other.label}: {differences(other, device)}"
            for other, timed in measured.items()
        )
    return NEVER


def differences(other: DeviceIdentity, device: DeviceIdentity) -> str:
    """How `other` differs from `device`, and whether the architecture is the same; "" if they are equal."""
    parts = []
    if other.name != device.name:
        parts.append(f"name is not {device.name!r}")
    if other.sm_count != device.sm_count:
        parts.append(f"{plural(other.sm_count, 'SM')} instead of {device.sm_count}")
    if other.memory_gib != device.memory_gib:
        parts.append(f"{other.memory_gib} GiB instead of {device.memory_gib}")
    if other.compute_capability != device.compute_capability:
        parts.append("another architecture")
    elif parts:
        parts.append("same architecture")
    return ", ".join(parts)


def near_matches(candidates: Iterable[Entry], problem: Problem, device: DeviceIdentity) -> list[Entry]:
    """Entries for the problem on other devices of the same compute capability; the nearest device first.

    They are a hint for people. Nothing in kt uses one in place of an exact match unless asked to.
    """
    digest = problem_digest(problem)
    near = [
        entry
        for entry in candidates
        if entry.state != "stale"
        and entry.best.key.device != device
        and entry.best.key.device.compute_capability == device.compute_capability
        and problem_digest(entry.best.key.problem) == digest
    ]
    return sorted(near, key=lambda entry: _nearness(entry.best, device))


def best_for_architecture(
    store: Store, problem: Problem, device: DeviceIdentity, sources: Mapping[str, str], *, partial: bool = False
) -> BestConfig | None:
    """An opt-in fallback: the measured winner on the nearest other device of the same compute capability.

    The key of what is returned tells the device that it was measured on. An exact match is `Store.best`'s business.
    """
    near = [
        entry.best
        for entry in near_matches(entries(store), problem, device)
        if not entry.best.measurement.predicted
        and (entry.best.complete or partial)
        and serves(entry.best.sources, entry.best.config.family, sources)
    ]
    return replace(near[0], key=replace(near[0].key, problem=problem)) if near else None


def _nearness(best: BestConfig, device: DeviceIdentity) -> tuple[object, ...]:
    """Same name, then the nearest number of SMs, then memory; then the rule for winners of one device."""
    other = best.key.device
    distance = (abs(other.sm_count - device.sm_count), abs(other.memory_gib - device.memory_gib))
    return (other.name != device.name, *distance, other.name, other.sm_count, other.memory_gib, *rank(best))
