"""What the cache knows of all that was tried for some winners, as far as kernels are what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.cli.left_out import NAMED
from kt.cli.listing import some
from kt.errors import NoUsableGpu
from kt.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kt.cache.records import BestConfig
    from kt.cache.store import Store
    from kt.devices.device import Device, DeviceIdentity
    from kt.export.t4_results import Search
    from kt.search_spaces.space import SearchSpace

__all__ = ["device_of", "searches", "winners_elsewhere"]


def searches(
    store: Store,
    bests: Sequence[BestConfig],
    spaces: Mapping[str, SearchSpace],
    folders: tuple[Path, ...],
    tell: Callable[[str], None],
    *,
    verbose: bool = False,
) -> list[Search]:
    """For each winner the measurements of its search; what is left out is told, with `verbose` each for itself."""
    from kt.cache.ranking import listing_order
    from kt.tuner.current_measurements import CurrentMeasurements

    current = CurrentMeasurements(spaces, folders)
    found: list[Search] = []
    unknown: list[str] = []
    outdated: dict[str, int] = {}
    for best in sorted(bests, key=listing_order):
        label = f"{best.key.problem.label} on {best.key.device.name}"
        device = device_of(best.key.device)
        if device is None:
            unknown.append(label)
            continue
        stored = store.measurements(best.key)
        tried = current.of(best.key, device, stored)
        if len(stored) > len(tried):
            outdated[label] = outdated.get(label, 0) + len(stored) - len(tried)
        found.append((best.key, tried))
    for labels in _lines(unknown, verbose=verbose):
        named = some(labels, NAMED)
        tell(f"left out: measurements of {named}: kt does not know the limits of this GPU, so none can be judged")
    for labels in _lines(list(outdated), verbose=verbose):
        count = plural(sum(outdated[label] for label in labels), "measurement")
        tell(f"left out: {count} of {some(labels, NAMED)}: not of a kernel of today")
    return found


def _lines(labels: Sequence[str], *, verbose: bool) -> list[list[str]]:
    """Which are told of in one line."""
    return [[label] for label in labels] if verbose else [list(labels)] if labels else []


def winners_elsewhere(
    store: Store, bests: Sequence[BestConfig], spaces: Mapping[str, SearchSpace], folders: tuple[Path, ...]
) -> list[Search]:
    """For each winner what was measured on its shape of the winners' kernels for the same formats and GPU.

    None of those on GPUs whose limits nobody knows.
    """
    from kt.export.elsewhere import measured_elsewhere
    from kt.tuner.current_measurements import CurrentMeasurements

    current = CurrentMeasurements(spaces, folders)
    groups: dict[tuple[DeviceIdentity, object], list[BestConfig]] = {}
    for best in bests:
        groups.setdefault((best.key.device, best.key.problem.formats), []).append(best)
    found: list[Search] = []
    for (identity, _), group in groups.items():
        device = device_of(identity)
        if device is not None:
            known = {best.key: store.measurements(best.key) for best in group}
            found += measured_elsewhere(group, known, current, device)
    return found


def device_of(identity: DeviceIdentity) -> Device | None:
    """The figures of a GPU that is named in the cache: of this machine's own, or from kt's data file."""
    from kt.cli.result_table import known_device
    from kt.devices.local import local_device

    try:
        local = local_device()
    except NoUsableGpu:
        return known_device(identity)
    return local if local.identity == identity else known_device(identity)
