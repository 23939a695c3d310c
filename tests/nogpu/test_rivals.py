"""The kernels that have won other shapes, as they are timed on one."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.validity import foreign_choice
from kt.devices.catalog import modelled
from kt.problems import Problem
from kt.search_spaces.loader import builtin_spaces, resolve_spaces
from kt.search_spaces.slices import runtimes
from kt.search_spaces.space import Config
from kt.tuner.rivals import Rivals

GPU = modelled("h200")
SPACES = {space.family: space for space in builtin_spaces()}
WGMMA = SPACES["wgmma"]
ALIGNED, ODD = Problem(4096, 4096, 4096, "bf16", "nt"), Problem(4093, 4096, 4091, "bf16", "nt")


class Compilation:
    """Renders nothing: a kernel is its configuration."""

    @staticmethod
    def kernel(space: object, config: Config, signature: object) -> object:
        return SimpleNamespace(config=config, source_digest=config.identity)


def best(problem: Problem, **choices: int | str) -> BestConfig:
    config = WGMMA.config({**WGMMA.default, **choices})
    key = CacheKey(problem, GPU.identity, "nvrtc 13.0", "graph/1")
    return BestConfig(key, config, Measurement("ok", 200.0, samples=9), {"wgmma": "digest"})


@pytest.mark.parametrize("one_is_odd", [True, False])
def test_copies_are_those_that_a_shape_needs(one_is_odd: bool) -> None:
    """What has won on aligned shapes is timed with copies on odd ones, and the other way round."""
    aligned, odd = best(ALIGNED, tile_n=192), best(ODD, tile_n=256, stages=4, pack_a=1, pack_b=1)
    here, there = (odd, aligned) if one_is_odd else (aligned, odd)
    request = cast(Any, SimpleNamespace(device=GPU, spaces=tuple(SPACES.values())))
    rivals = Rivals(request, cast(Any, Compilation()), [aligned, odd]).of(here)
    parameters = [dict(rival.config.parameters) for rival in rivals]
    wanted = dict(there.config.parameters) | {"pack_a": int(one_is_odd), "pack_b": int(one_is_odd)}
    assert wanted in parameters
    assert {(one["pack_a"], one["pack_b"]) for one in parameters} == {(int(one_is_odd), int(one_is_odd))}
    assert len({rival.config for rival in rivals}) == len(rivals)


@pytest.mark.parametrize(
    ("text", "here", "there"),
    [
        ("parameters: {pack_a: [0], pack_b: [0]}", (4092, 4092, 4092), (4096, 4096, 4096)),
        ("runtime: {split_k: [3]}", (512, 512, 16384), (256, 256, 65536)),
    ],
)
def test_only_what_the_space_offers_is_a_rival(
    text: str, here: tuple[int, int, int], there: tuple[int, int, int], tmp_path: Path
) -> None:
    """A space that narrows forbids copies, or all splits but one: else the winner of that space would not be of it."""
    (tmp_path / "narrow.yaml").write_text(f"op: gemm\nfamily: wgmma\n{text}\n")
    (space,) = resolve_spaces(str(tmp_path / "narrow.yaml"))
    own, other = (
        replace(best(Problem(*sizes, "bf16", "nn")), config=space.config({**space.default, **choices}))
        for sizes, choices in ((here, {"stages": 5}), (there, {"tile_n": 256, "stages": 4, "cluster_m": 2}))
    )
    request = cast(Any, SimpleNamespace(device=GPU, spaces=(space,)))
    rivals = Rivals(request, cast(Any, Compilation()), [own, other])
    assert [foreign_choice(one.config, space) for one in rivals.of(own)] == [""] * len(rivals.of(own))
    assert rivals.rival(own.config, own.key.problem) is not None
    assert {dict(runtime)["split_k"] for runtime in runtimes(space)} <= set(space.runtime["split_k"])
