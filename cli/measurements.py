"""What the cache knows of all that was tried for some winners, as far as kernels are what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
) -> list[Search]:
    """For each winner the measurements of its search; what is left out is told."""
    from kt.cache.ranking import listing_order
    from kt.tuner.current_measurements import CurrentMeasurements

    current = CurrentMeasurements(spaces, folders)
    found: list[Search] = []
    for best in sorted(bests, key=listing_order):
        label = f"{best.key.problem.label} on {best.key.device.name}"
        device = device_of(best.key.device)
        if device is None:
            tell(f"left out: measurements of {label}: kt does not know the limits of this GPU, so none can be judged")
            continue
        stored = store.measurements(best.key)
        tried = current.of(best.key, device, stored)
        outdated = len(stored) - len(tried)
        if outdated:
            tell(f"left out: {plural(outdated, 'measurement')} of {label}: not of a kernel of today")
        found.append((best.key, tried))
    return found


def winners_elsewhere(
    store: Store, bests: Sequence[BestConfig], spaces: Mapping[str, SearchSpace], folders: tuple[Path, ...]
) -> list[Search]:
    """For each winner what was measured on its shape of the winners' kernels, whatever the run-time choices.

    At the clock of its finals, which all finalists tell, those of other kernels too.
    """
    from kt.export.clocks import at_the_winners_clock
    from kt.tuner.current_measurements import CurrentMeasurements, kernel_of, of_kernels

    current = CurrentMeasurements(spaces, folders)
    wanted = {kernel_of(best.config) for best in bests}
    found: list[Search] = []
    for best in bests:
        device = device_of(best.key.device)
        if device is not None:
            stored = store.measurements(best.key)
            finalists = {name: one for name, one in stored.items() if one.refined}
            tried = current.of(best.key, device, {**of_kernels(stored, wanted), **finalists})
            tried = dict(at_the_winners_clock(best, tried))
            found.append((best.key, {config: one for config, one in tried.items() if kernel_of(config) in wanted}))
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
