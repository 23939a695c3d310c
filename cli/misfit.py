"""Whether a winner from elsewhere can be what it says: of its space, valid for its problem, launched as it would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kt.cache.records import BestConfig
    from kt.devices.device import Device
    from kt.search_spaces.space import SearchSpace

__all__ = ["misfit"]


def misfit(best: BestConfig, spaces: Mapping[str, SearchSpace], sources: Mapping[str, str]) -> str:
    """Why it cannot be, "" if it can or nobody knows: only winners of today's very sources can be judged."""
    from kt.cache.validity import unfit
    from kt.cli.measurements import device_of

    if reason := unfit(best, spaces, sources):
        return reason
    family = best.config.family
    if family not in spaces or best.sources.get(family) != sources[family]:
        return ""
    device = device_of(best.key.device)
    return _mislaunched(best, spaces[family], device) if device else ""


def _mislaunched(best: BestConfig, space: SearchSpace, device: Device) -> str:
    from kt.search_spaces.launch import resolve, violated

    names = {**device.names(), **best.key.problem.names()}
    if best.key.problem.dtype not in space.dtypes:
        return f"family {space.family} does not serve {best.key.problem.dtype}"
    try:
        if broken := violated(space, best.config, names):
            return f"its configuration is not valid there: {broken.reason}"
        launches, workspace = resolve(space, best.config, names)
    except InputError as error:
        return error.message
    if launches != best.launches or workspace != best.workspace_bytes:
        return "its launches are not those of its configuration"
    return ""
