"""Which of the cache's measurements are of kernels as they are today: each is rendered again and compared."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kt.errors import InputError
from kt.search_spaces.launch import resolve
from kt.templates.render import render
from kt.tuner.launched import launched_digest

if TYPE_CHECKING:
    from kt.cache.records import CacheKey, Measurement
    from kt.devices.device import Device
    from kt.problems import Signature
    from kt.search_spaces.space import Config, SearchSpace, Value

__all__ = ["CurrentMeasurements", "kernel_of", "of_kernels"]


@dataclass
class CurrentMeasurements:
    """The measurements of today's kernels, key by key; a kernel that several problems share is rendered once.

    Attributes:
        spaces: those of today, by family.
        template_dirs: folders with templates of the user's own.
    """

    spaces: Mapping[str, SearchSpace]
    template_dirs: Sequence[Path] = ()
    _digests: dict[tuple[object, ...], str] = field(default_factory=dict)

    def of(
        self, key: CacheKey, device: Device, stored: Mapping[tuple[str, str], Measurement]
    ) -> dict[Config, Measurement]:
        """Each configuration that was tried for `key` with what became of it, in the order of their texts.

        Left out is what was measured of a changed template, of a configuration that the space does not offer, or of a
        family that is not there.

        Args:
            device: that of the key.
            stored: what the cache has of the key, `Store.measurements`.
        """
        found = {}
        for (identity, source), measurement in sorted(stored.items(), key=lambda item: item[0]):
            config = _offered(identity, self.spaces)
            if config is not None and self._source(config, key, device) == source:
                found[config] = measurement
        return found

    def _source(self, config: Config, key: CacheKey, device: Device) -> str | None:
        """The identity of what the configuration would run today; None if the space of today has no launch for it."""
        space = self.spaces[config.family]
        try:
            launches, workspace = resolve(space, config, {**device.names(), **key.problem.names()})
            rendered = self._rendered(space, config, key.problem.signature, device.arch)
        except InputError:
            return None
        return launched_digest(rendered, launches, workspace)

    def _rendered(self, space: SearchSpace, config: Config, signature: Signature, arch: str) -> str:
        name = (config.family, config.parameters, signature, arch)
        if name not in self._digests:
            self._digests[name] = render(space, config, signature, arch, self.template_dirs).digest
        return self._digests[name]


def _offered(identity: str, spaces: Mapping[str, SearchSpace]) -> Config | None:
    """The configuration of an identity, None if no space has exactly these names and values."""
    try:
        family, parameters, runtime = json.loads(identity)
        space = spaces[family]
        values: dict[str, Value] = {**parameters, **runtime}
        offered = {**space.parameters, **space.runtime}
        if any(value not in offered[name] for name, value in values.items()):
            return None
        config = space.config(values)
    except (ValueError, TypeError, KeyError):
        return None
    return config if config.identity == identity else None


def of_kernels(
    stored: Mapping[tuple[str, str], Measurement], kernels: Collection[str]
) -> dict[tuple[str, str], Measurement]:
    """The measurements of some kernels, as `kernel_of` names them, whatever their run-time choices."""
    return {name: one for name, one in stored.items() if _kernel_of_text(name[0]) in kernels}


def kernel_of(config: Config) -> str:
    """The identity of a configuration without its run-time choices."""
    return config.kernel.identity


def _kernel_of_text(identity: str) -> str:
    """The same of a configuration that is given by its identity; "" if it is none."""
    from kt.search_spaces.space import Config

    try:
        family, parameters, _ = json.loads(identity)
        return Config(family, tuple(parameters.items())).identity
    except (ValueError, TypeError, AttributeError):
        return ""
