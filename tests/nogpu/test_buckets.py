"""Buckets of a range in a header: which tuned shape serves one, what that loses, and that it is told."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources
from kt.cli.export_kernels import tell_buckets
from kt.devices.catalog import modelled
from kt.export.buckets import add_buckets, computes_all
from kt.export.collect import collect, collect_few
from kt.export.contents import BucketServed, Search
from kt.export.dispatch import pick
from kt.problems import Problem
from kt.problems.ranges import Bucket, Range, RangedShape
from kt.search_spaces.expression import parse
from kt.search_spaces.launch import resolve
from kt.search_spaces.loader import builtin_spaces
from kt.search_spaces.space import Config, Constraint, SearchSpace
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


EVERY = ((513, WIDE, 21.0), (363, SMALL, 15.06), (1024, SMALL, 40.2), (725, WIDE, 33.0))


def served(*rows: tuple[int, Config, float]) -> list[tuple[int, BucketServed]]:
    known = collect(tuned(), SPACES, timed(*rows), [ROWS])
    return [(known.winners[one.entry].key.problem.m, one) for one in known.buckets]


def test_the_shape_that_loses_less_on_the_other_serves_the_bucket() -> None:
    """By what was measured; of equal ones the largest."""
    (low, first), (high, second) = served(*EVERY)
    assert (low, high) == (513, 725)
    assert (first.bucket.first, first.bucket.last, second.bucket.first) == (257, 513, 514)
    assert (first.loss, second.loss) == pytest.approx((0.004, 0.005))
    assert first.source == "measured"
    (low, first), _ = served((513, WIDE, 20.06), *EVERY[1:])
    assert low == 363
    assert first.loss == pytest.approx(0.003)


def test_what_only_the_model_knows_is_predicted() -> None:
    """Of a winner that never ran, on either side."""
    for number in (0, 1):
        listed = tuned()
        listed[number] = replace(listed[number], measurement=Measurement("ok", 20.0, predicted=True))
        listed[1 - number] = replace(listed[1 - number], config=listed[number].config)
        first, *_ = collect(listed, SPACES, (), [ROWS]).buckets
        assert (first.bucket, first.source) == (Bucket(257, 513), "predicted")


@pytest.mark.parametrize("slow", [SMALL, WIDE])
def test_a_border_is_where_the_own_gpu_has_it(slow: Config) -> None:
    """Another GPU of the compute capability has the same kernels in the table, with times of its own."""
    there = modelled("h100").identity
    others = [
        replace(
            best,
            key=replace(best.key, device=there),
            measurement=replace(
                best.measurement, time_us=(40.0 if best.config == slow else 1.0) * (best.measurement.time_us or 0.0)
            ),
        )
        for best in tuned()
    ]
    parts = []
    for listed in (tuned(), [*tuned(), *others]):
        known = collect(listed, SPACES, ranged=[ROWS])
        parts.append([one.bucket for one in known.buckets if known.winners[one.entry].key.device == GPU.identity])
    assert parts[0] == parts[1]


def test_a_bucket_is_divided_where_each_winner_loses_on_the_other_shape() -> None:
    """Each has its own tuned size; the border is nearer to the one whose winner loses more on the other."""
    borders = []
    for of_middle, of_last in ((1.02, 1.2), (1.1, 1.1), (1.2, 1.02)):  # times as long on the other shape
        (low, first), (high, second), _ = served(
            (513, WIDE, 20.0 * of_middle), (363, SMALL, 15.0 * of_last), *EVERY[2:]
        )
        assert (low, high) == (363, 513)
        assert (first.bucket.first, second.bucket.last) == (257, 513)
        assert 363 <= first.bucket.last == second.bucket.first - 1 < 513
        assert first.other == first.entry
        borders.append(first.bucket.last)
    assert borders == sorted(borders, reverse=True)
    assert borders[0] > borders[2]


def test_a_bucket_is_whole_only_if_it_is_known_that_little_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected of a kernel far from its shape is less sure than that each winner is the best on its own."""
    monkeypatch.setattr("kt.export.buckets.LEAST_LOSS", 10.0)
    assert len(served(*EVERY)) == 2
    assert [low for low, _ in served()] == [363, 513, 725, 1024]


def test_the_border_is_where_the_expected_times_meet() -> None:
    """Every size beside it is served by what is expected to be faster there, as far as one border can have it."""
    (_, first), _, _ = served((513, WIDE, 22.0), (363, SMALL, 16.5), *EVERY[2:])
    known = collect(tuned(), SPACES, timed((513, WIDE, 22.0), (363, SMALL, 16.5), *EVERY[2:]), [ROWS])
    found = [pick(known, ROWS.at(m), GPU) for m in (300, 362, first.bucket.last, first.bucket.last + 1, 512)]
    sizes = [known.winners[one.entry].key.problem.m for one in found]
    assert sizes == [363, 363, 363, 513, 513]


def test_sums_of_nothing_and_of_one_product_are_divided() -> None:
    """A range may begin at 0, of which there is no ratio."""
    sums = RangedShape("k", Range(0, 1, 1), {"m": 512, "n": 512})
    one, none = (
        replace(best, key=replace(best.key, problem=sums.at(k))) for best, k in zip(tuned(), (1, 0), strict=False)
    )
    assert [known.bucket for known in collect([one, none], SPACES, (), [sums]).buckets] == [Bucket(0, 0), Bucket(1, 1)]


def test_where_one_winner_cannot_compute_the_other_shape_sizes_weigh_that_it_can() -> None:
    """As a kernel for aligned rows, where n varies: it serves but the end of the bucket, if it is much faster there."""
    columns = RangedShape("n", Range(257, 512, 1), {"m": 512, "k": 512})  # 512 and 362
    listed = []
    for n, chosen, time_us in ((512, WIDE, 20.0), (362, SMALL, 15.0)):
        problem = columns.at(n)
        listed.append(replace(winner(513, chosen, time_us), key=replace(winner(513, chosen, 1.0).key, problem=problem)))
    for last_us in (20.1, 30.0):
        known = collect(listed, SPACES, [(listed[0].key, {SMALL: Measurement("ok", last_us, samples=5)})], [columns])
        first, *more = known.buckets
        assert known.winners[first.entry].key.problem.n == 362
        assert [one.bucket.last for one in more] == ([] if last_us == 20.1 else [512])
        assert not any(computes_all(known, one) for one in known.buckets)  # both take rows of even numbers alone
    assert first.bucket.last > 450


def bounded(border: int) -> dict[str, SearchSpace]:
    """Where the wide tile computes up to so many rows, and others compute more."""
    wide = f"tile_n == {dict(WIDE.parameters)['tile_n']}"
    rules = (f"not ({wide}) or m <= {border}", f"{wide} or m > {border}")
    added = tuple(Constraint(parse(text), "rows") for text in rules)
    return {**SPACES, "simt": replace(SIMT, constraints=(*SIMT.constraints, *added))}


@pytest.mark.parametrize("border", [363, 450, 512])
def test_sizes_are_served_by_the_winner_that_can_compute_them(border: int) -> None:
    """Where neither can compute the other's shape, what is told of each part is what the header does."""
    known = collect(tuned()[:2], bounded(border), (), [ROWS])
    assert [one.bucket for one in known.buckets] == [Bucket(257, border), Bucket(border + 1, 513)]
    assert all(computes_all(known, one) for one in known.buckets)
    for m, tuned_m in ((257, 363), (border, 363), (border + 1, 513)):
        assert known.winners[pick(known, ROWS.at(m), GPU).entry].key.problem.m == tuned_m


def test_with_few_kernels_a_bucket_loses_over_the_winner_of_the_shape() -> None:
    """As the lines on each shape say; the kernel that serves both of a bucket's is no measure."""
    rows = ((513, WIDE, 26.0), (1024, SMALL, 50.0), (725, WIDE, 36.0), (363, SMALL, 18.0))
    known, found = collect_few(tuned()[:2], SPACES, timed(*rows), [ROWS], most=1)
    assert found.kernels == 1
    losses = {one.winner.key.problem.m: one.loss for one in found.served}
    (bucket,) = known.buckets
    assert max(losses.values()) > 0.1
    assert bucket.loss == pytest.approx(losses[known.winners[bucket.other].key.problem.m])


def test_what_is_told_of_a_bucket_claims_no_more_than_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a loss of a generic kernel, whose time is not known, nor sizes that the kernel cannot compute."""
    known = collect(tuned()[:2], bounded(450), (), [ROWS])
    for number in range(2):
        few = replace(known, generics=[known.entries[number]], buckets=[])
        add_buckets(few, [ROWS], [{}, {WIDE.identity: 20.06}], [15.0, 20.0])
        tell_buckets(few)
        told = capsys.readouterr().err
        assert "unknown loss at 513" in told
        assert "slower" not in told
    tell_buckets(replace(known, buckets=[BucketServed(ROWS, Bucket(257, last), 0, 0) for last in (450, 451)]))
    whole, part = capsys.readouterr().err.splitlines()
    assert whole.endswith("m 257 to 450: as for m 363")
    assert part.endswith("m 257 to 451: as for m 363 where its kernel can compute them")


def test_what_failed_on_the_other_shape_does_not_serve_the_bucket() -> None:
    """And if each fails on the other, nothing does."""
    keys = {best.key.problem.m: best.key for best in tuned()}
    wrong = Measurement("wrong_result", detail="at 3, 4")
    one = [*timed(*EVERY[1:]), (keys[513], {WIDE: wrong})]  # the winner of 363, by which 513 would be served
    known = collect(tuned(), SPACES, one, [ROWS])
    assert [known.winners[served.entry].key.problem.m for served in known.buckets] == [513, 725]
    both = [*timed(*EVERY[2:]), (keys[513], {WIDE: wrong}), (keys[363], {SMALL: wrong})]
    known = collect(tuned(), SPACES, both, [ROWS])
    assert [known.winners[served.entry].key.problem.m for served in known.buckets] == [725]


def test_a_bucket_of_which_a_shape_is_not_tuned_is_none() -> None:
    lacking = [best for best in tuned() if best.key.problem.m != 363]
    known = collect(lacking, SPACES, timed(*EVERY), [ROWS])
    assert [one.bucket for one in known.buckets] == [Bucket(514, 1024)]


def test_sizes_between_get_the_configuration_of_their_bucket() -> None:
    known = collect(tuned(), SPACES, timed(*EVERY), [ROWS])
    for m, entry_m in ((257, 513), (400, 513), (512, 513), (514, 725), (1023, 725)):
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
        "kt: fp32 nn 513x512x512, m 257 to 513: as for m 513, 0.4% slower at 363, measured",
        "kt: fp32 nn 1024x512x512, m 514 to 1024: as for m 725, 0.5% slower at 1024, measured",
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
