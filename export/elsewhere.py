"""What was measured of the winners' kernels on each other's shapes: what the choice for other shapes rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kt.export.clocks import at_the_winners_clock
from kt.tuner.current_measurements import kernel_of, of_kernels

if TYPE_CHECKING:
    from kt.cache.records import BestConfig, CacheKey, Measurement
    from kt.devices.device import Device
    from kt.export.contents import Search
    from kt.tuner.current_measurements import CurrentMeasurements

__all__ = ["measured_elsewhere"]


def measured_elsewhere(
    bests: Sequence[BestConfig],
    known: Mapping[CacheKey, Mapping[tuple[str, str], Measurement]],
    current: CurrentMeasurements,
    device: Device,
) -> list[Search]:
    """For each winner what was measured on its shape of the winners' kernels, whatever the run-time choices.

    At the clock of its finals, which all finalists tell, those of other kernels too. Winners of shapes that stand for
    others are among them.

    Args:
        bests: winners for the same number formats on the same GPU. A header has of one format the same whatever is
            exported beside it, and `kt.gemm` reads one format at a time.
        known: what the cache has of each winner's key, `Store.measurements`.
        current: tells what is of today's kernels.
        device: that GPU.
    """
    wanted = {kernel_of(best.config) for best in bests}
    found: list[Search] = []
    for best in bests:
        stored = known[best.key]
        finalists = {name: one for name, one in stored.items() if one.refined}
        tried = current.of(best.key, device, {**of_kernels(stored, wanted), **finalists})
        of_shape = at_the_winners_clock(best, tried)
        found.append((best.key, {config: one for config, one in of_shape.items() if kernel_of(config) in wanted}))
    return found
