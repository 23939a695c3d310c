"""Buckets of a range in a header: which tuned shape serves one, what that loses, and that it is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources
from kt.devices.catalog import modelled
from kt.export.collect import collect
from kt.export.contents import BucketServed, Search
from kt.export.dispatch import pick
from kt.problems import Problem
from kt.problems.ranges import Range, RangedShape
from kt.search_spaces.launch import resolve
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Config
from kt.templates.render import render
from kt.tuner.launched import launched_digest
from kt.tuner.method import METHOD_LABEL
from kt.tuner.toolchain import toolchain

Command = Callable[..., Any]
SPACES = {space.family: space for space in builtin_spaces()}
SIMT = SPACES["simt"]
GPU = modelled("h200")
ROWS = RangedShape("m", Range(257, 1024, 2), {"n": 512, "k": 512})  # 257 to 513, 514 to 1024
SMALL = SIMT.default_config
WIDE = SIMT.config({**SIMT.default, "tile_n": 128, "thread_n": 8})


def winner(m: int, chosen: Config, time_us: float) -> BestConfig:
    problem = ROWS.at(m)
    launches, workspace = resolve(SIMT, chosen, {**GPU.names(), **problem.names()})
    sources = {"simt": current_sources(None, ())["simt"]}
    key = CacheKey(problem, GPU.identity, toolchain().label, METHOD_LABEL)
    measurement = Measurement("ok", time_us, samples=9)
    return BestConfig(key, chosen, measurement, sources, launches, workspace, complete=True)


def tuned() -> list[BestConfig]:
    """The first bucket's two shapes, the second's, and one that is of none."""
    sizes = [(513, SMALL, 20.0), (363, WIDE, 15.0), (1024, WIDE, 40.0), (725, SMALL, 30.0), (2048, SMALL, 80.0)]
    return [winner(m, chosen, time_us) for m, chosen, time_us in sizes]


def timed(*rows: tuple[int, Config, float]) -> list[Search]:
    """What the winners' kernels took on each other's shapes."""
    keys = {best.key.problem.m: best.key for best in tuned()}
    return [(keys[m], {chosen: Measurement("ok", us, samples=5)}) for m, chosen, us in rows]


EVERY = ((513, WIDE, 21.0), (363, SMALL, 15.3), (1024, SMALL, 44.0), (725, WIDE, 33.0))


def served(*rows: tuple[int, Config, float]) -> list[tuple[int, BucketServed]]:
    known = collect(tuned(), SPACES, timed(*rows), [ROWS])
    return [(known.winners[one.entry].key.problem.m, one) for one in known.buckets]


def test_the_shape_that_loses_less_on_the_other_serves_the_bucket() -> None:
    """By what was measured; of equal ones the largest."""
    (low, first), (high, second) = served(*EVERY)
    assert (low, high) == (513, 1024)
    assert (first.bucket.first, first.bucket.last, second.bucket.first) == (257, 513, 514)
    assert (first.loss, second.loss) == pytest.approx((0.02, 0.1))
    assert first.is_measured
    (low, first), _ = served((513, WIDE, 20.2), *EVERY[1:])
    assert low == 363
    assert first.loss == pytest.approx(0.01)


def test_what_failed_on_the_other_shape_does_not_serve_the_bucket() -> None:
    """And if each fails on the other, nothing does."""
    keys = {best.key.problem.m: best.key for best in tuned()}
    wrong = Measurement("wrong_result", detail="at 3, 4")
    one = [*timed(*EVERY[1:]), (keys[513], {WIDE: wrong})]  # the winner of 363, by which 513 would be served
    known = collect(tuned(), SPACES, one, [ROWS])
    assert [known.winners[served.entry].key.problem.m for served in known.buckets] == [513, 1024]
    both = [*timed(*EVERY[2:]), (keys[513], {WIDE: wrong}), (keys[363], {SMALL: wrong})]
    known = collect(tuned(), SPACES, both, [ROWS])
    assert [known.winners[served.entry].key.problem.m for served in known.buckets] == [1024]


def test_a_loss_that_was_not_measured_is_expected() -> None:
    """And a bucket of which a shape is not tuned is none."""
    (_, first), _ = served()
    assert not first.is_measured
    assert 0 <= first.loss < 8
    lacking = [best for best in tuned() if best.key.problem.m != 363]
    assert [one.bucket.last for one in collect(lacking, SPACES, (), [ROWS]).buckets] == [1024]


def test_sizes_between_get_the_configuration_of_their_bucket() -> None:
    known = collect(tuned(), SPACES, timed(*EVERY), [ROWS])
    for m, entry_m in ((257, 513), (400, 513), (512, 513), (514, 1024), (1023, 1024)):
        found = pick(known, ROWS.at(m), GPU)
        assert (found.found, known.winners[found.entry].key.problem.m) == ("neighbour", entry_m)
        assert found.variant == known.entries[found.entry]
    for m in (363, 513, 725, 1024):
        assert pick(known, ROWS.at(m), GPU).found == "exact"
    assert pick(known, Problem(400, 512, 512, layout="nt"), GPU).found != "neighbour"


def test_the_export_tells_what_each_bucket_loses(kt: Command, own_environment: Path, tmp_path: Path) -> None:
    """For the ranges of the file, and of --range, which goes with --shapes."""
    digests: dict[tuple[int, Config], str] = {}
    for m, chosen, _ in EVERY:
        launches, workspace = resolve(SIMT, chosen, {**GPU.names(), **ROWS.at(m).names()})
        source = render(SIMT, chosen, ROWS.at(m).signature, GPU.arch).digest
        digests[m, chosen] = launched_digest(source, launches, workspace)
    with Store.open(own_environment) as store:
        for best in tuned():
            store.put_best(best)
        for (key, measured), (m, _, _) in zip(timed(*EVERY), EVERY, strict=True):
            for chosen, one in measured.items():
                store.put_measurement(key, chosen, digests[m, chosen], one)
    wanted = [
        "kt: fp32 nn 513x512x512, m 257 to 513: as for m 513, 2.0% slower at 363, measured",
        "kt: fp32 nn 1024x512x512, m 514 to 1024: as for m 1024, 10.0% slower at 725, measured",
    ]
    shapes, header = tmp_path / "shapes.yaml", tmp_path / "kt_gemm.cuh"
    shapes.write_text("shapes: [{m: {from: 257, to: 1024, buckets: 2}, n: 512, k: 512}]")
    outcome = kt("export", "--header", "--shapes", shapes, "-o", header)
    assert outcome.code == 0, outcome.err
    assert [line for line in outcome.err.splitlines() if ", m " in line] == wanted
    whole = header.read_text()
    assert "{Size::m, 257, 513, " in whole
    shapes.write_text("shapes: [{m: 1, n: 512, k: 512}]")
    outcome = kt("export", "--header", "--shapes", shapes, "--range", "m=257:1024:2", "-o", header)
    assert [line for line in outcome.err.splitlines() if ", m " in line] == wanted
    assert header.read_text() == whole
    assert kt("export", "--header", "--range", "m=1:2").code == 2
    quiet = kt("export", "--header", "--shapes", shapes, "--range", "m=257:1024:2", "-q", "-o", header)
    assert not quiet.err
