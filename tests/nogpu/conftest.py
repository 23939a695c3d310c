"""Sample values that several test files share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.devices.device import DeviceIdentity
from kt.problems import Problem
from kt.search_spaces.space import Config, Launch
from support.fake_run import Bench

H200 = DeviceIdentity("NVIDIA H200", (9, 0), 132, 140)


def _winner(problem: Problem | None = None, *, time_us: float = 12.5, **changes: Any) -> BestConfig:
    """A complete, measured winner; a change is a field of BestConfig, CacheKey, Measurement or a parameter."""
    key = CacheKey(problem or Problem(512, 512, 512), H200, "nvrtc 13.0 -std=c++17", "graph/1")
    key = CacheKey(**{name: changes.pop(name, value) for name, value in vars(key).items()})
    measured: dict[str, Any] = dict(vars(Measurement("ok", time_us, 0.01, 21, refined=True, registers=128)))
    measurement = Measurement(**{name: changes.pop(name, value) for name, value in measured.items()})
    config = changes.pop("config", None) or Config(
        changes.pop("family", "simt"),
        (("tile_m", changes.pop("tile_m", 64)), ("tile_n", 64), ("copy", "cp.async")),
        (("split_k", changes.pop("split_k", 1)),),
    )
    values: dict[str, Any] = {
        "sources": {config.family: "digest-1"},
        "launches": (Launch("kt_gemm", 64, 256, 16384),),
        "default_us": 20.0,
        "baseline": {"cublas": 11.0},
        "floor_us": 5.0,
        "tried": 92,
        "total": 92,
        "complete": True,
        "provenance": {"kt": "0.1.0", "driver": "13000", "seed": "0", "date": "2025-01-01"},
    }
    return BestConfig(key=key, config=config, measurement=measurement, **(values | changes))


@pytest.fixture
def make_winner() -> Callable[..., BestConfig]:
    """Makes sample winners: `make_winner(problem, time_us=…, complete=…, device=…, tile_m=…, …)`."""
    return _winner


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Runs of `tune` whose children only pretend."""
    return Bench(tmp_path)
