"""Shapes that stand for those that nobody lists: which they are, how they are searched, and what they count for."""

from collections import Counter
from dataclasses import replace
from itertools import product
from math import log

import pytest

from kt.cache.entries import Entry, entries, select, stand_ins
from kt.cache.missing import missing
from kt.cache.records import UNSEEN, BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.devices.catalog import modelled
from kt.export.clocks import counting
from kt.export.collect import collect, collect_few
from kt.export.dispatch import pick
from kt.export.expected_time import OTHER_ROWS
from kt.export.kernel_header import kernel_header
from kt.export.kernels import of_winner, on_device
from kt.export.runnable import launches_of, which_run
from kt.problems import LAYOUTS, Problem
from kt.problems.unseen import LARGEST, unseen
from kt.search_spaces.loader import builtin_spaces
from kt.templates.digest import template_digest
from kt.tuner.searches import BRIEF
from support.fake_run import HIGH_BEST, ODD, SQUARE, TALL, WIDE_BEST, Bench, only, two_winners, winner

H200 = modelled("h200")
SPACES = {space.family: space for space in builtin_spaces()}
LISTED = [Problem(4096, 4096, 4096, "bf16", layout) for layout in LAYOUTS]


# Which shapes


def test_each_kind_of_shape_has_its_turn() -> None:
    """Every layout of the list, half of its shapes with aligned rows, half with none that is."""
    kinds = Counter((one.layout, {one.alignment(name) >= 16 for name in "abc"} == {True}) for one in unseen(LISTED, 64))
    assert set(kinds) == set(product(LAYOUTS, (True, False)))
    assert set(kinds.values()) == {8}


def test_more_shapes_begin_with_the_same_ones() -> None:
    """So what a run with fewer of them has measured stays of use."""
    assert unseen(LISTED, 100)[:40] == unseen(LISTED, 40)


@pytest.mark.parametrize("count", [32, 64, 500])
def test_sizes_cover_the_box(count: int) -> None:
    """By ratios: each eighth of it, small or large in m, n and k, has its part of them, within 1 in 8."""
    middle = LARGEST**0.5
    found = unseen(LISTED, count)
    assert all(1 <= size <= LARGEST for one in found for size in (one.m, one.n, one.k))
    eighths = Counter((one.m < middle, one.n < middle, one.k < middle) for one in found)
    assert len(eighths) == 8
    assert all(abs(number / count - 1 / 8) <= 1 / 8 for number in eighths.values())
    for sizes in zip(*((one.m, one.n, one.k) for one in found), strict=True):
        assert abs(sum(map(log, sizes)) / count / log(LARGEST) - 0.5) < 0.06


def test_each_format_of_the_list_has_its_own_and_no_listed_shape_is_among_them() -> None:
    first = unseen(LISTED, 8)
    listed = [*LISTED, first[0], Problem(64, 64, 64)]
    found = unseen(listed, 8)
    assert first[0] not in found
    assert Counter((one.dtype, one.layout) for one in found if one.dtype == "fp32") == {("fp32", "nn"): 8}
    assert len([one for one in found if one.dtype == "bf16"]) == 7
    assert unseen(listed, 0) == []


# The search


def test_one_is_searched_briefly_and_has_no_finals(bench: Bench) -> None:
    """What a header would take for it is enough; the listed shapes are tuned as ever, and before."""
    bench.gpu.truth = two_winners
    result = bench.tune(SQUARE, unseen=(TALL,), strategy="auto")
    assert len(result.shapes) == len(result.unseen) == 1
    assert {only_problem for only_problem, _ in bench.observer.finished} == {SQUARE, TALL}
    own = [values for problem, values in bench.gpu.screened if problem == TALL]
    assert 0 < len(own) <= BRIEF + 2, "the winner of the other is timed besides, and its own again"
    assert len(bench.gpu.refined) == 1
    stored = bench.stored(TALL, partial=True)
    assert stored is not None
    assert stored.unseen
    assert not stored.complete
    assert not winner(result.shapes[0]).unseen


def test_it_is_not_searched_again_unless_it_is_listed(bench: Bench) -> None:
    """A later run finds it in the cache; tuned as a listed shape it is like any other."""
    bench.tune(SQUARE, unseen=(ODD,))
    bench.again()
    again = bench.tune(SQUARE, unseen=(ODD,))
    assert again.unseen[0].cached
    assert not bench.gpu.screened
    bench.again()
    listed = only(bench.tune(ODD))
    assert not listed.cached
    assert not winner(listed).unseen
    assert bench.stored(ODD) == winner(listed)


def test_a_kernel_that_wins_elsewhere_takes_its_place_without_finals(bench: Bench) -> None:
    """As it was screened: nobody asks how long the shape takes, only which kernel is quick there."""
    bench.gpu.truth = two_winners
    bench.tune(TALL)
    bench.again(lambda problem, values: 1.0 if problem == ODD and values == HIGH_BEST else two_winners(problem, values))
    result = bench.tune(TALL, SQUARE, unseen=(ODD,))
    assert winner(result.unseen[0]).config.as_dict() == HIGH_BEST
    assert winner(result.shapes[1]).config.as_dict() == WIDE_BEST
    assert all(HIGH_BEST in one or WIDE_BEST in one for one in bench.gpu.refined)


# In the cache


def _judged(bench: Bench) -> list[Entry]:
    with Store.open(bench.folder / "cache", read_only=True) as store:
        return entries(store, {"simt": template_digest(bench.space, (bench.folder,))})


def test_it_is_told_apart_from_tuned_shapes(bench: Bench) -> None:
    """It is in no table, and a shapes file with it has a shape that was not tuned."""
    bench.tune(SQUARE, unseen=(TALL,))
    found = _judged(bench)
    assert {entry.best.key.problem: entry.state for entry in found} == {SQUARE: "valid", TALL: "unseen"}
    assert [entry.best.key.problem for entry in select(found).chosen] == [SQUARE]
    assert [best.key.problem for best in stand_ins(found)] == [TALL]
    with Store.open(bench.folder / "cache", read_only=True) as store:
        lacking = missing(store, [SQUARE, TALL], bench.key(SQUARE).device)
    assert [(one.problem, one.state) for one in lacking] == [(TALL, "unseen")]


# In a header


def _best(problem: Problem, time_us: float, family: str = "simt", **choices: int) -> BestConfig:
    space = SPACES[family]
    config = space.config({**space.default, **choices})
    kernel = of_winner(
        BestConfig(
            CacheKey(problem, H200.identity, "nvrtc", "graph"), config, Measurement("ok", time_us, samples=9), {}
        ),
        SPACES,
    )
    found = launches_of(kernel, config.runtime, problem, H200)
    assert found is not None
    launches, workspace = found
    return BestConfig(
        CacheKey(problem, H200.identity, "nvrtc", "graph"),
        config,
        Measurement("ok", time_us, samples=9),
        {family: "digest"},
        launches,
        workspace,
        complete=True,
    )


LARGE, SMALL = Problem(4096, 4096, 4096), Problem(33, 31, 29)


def _stands(best: BestConfig) -> BestConfig:
    return replace(best, complete=False, provenance={UNSEEN: "yes"})


def test_the_header_has_its_kernel_and_not_its_entry() -> None:
    """A problem like it gets its kernel; the table, and what is exact, are the listed shapes'."""
    listed = _best(LARGE, 1000.0)
    small = _stands(_best(SMALL, 1.5, tile_m=32, tile_n=32, thread_m=2, thread_n=2))
    known = collect([listed], SPACES, unseen=[small])
    assert known.winners == [listed]
    assert known.measured == [listed, small]
    chosen = pick(known, SMALL, H200)
    assert chosen.found == "standard"
    assert chosen.entry == -1
    kernel = known.kernels.kernels[known.kernels.variants[chosen.variant].kernel]
    assert kernel.config.parameters == small.config.parameters
    assert kernel_header(known).count("fp32 nn 33x31x29") == 0


@pytest.mark.parametrize(("time_us", "samples", "counts"), [(2.0, 1, True), (300.0, 1, False), (300.0, 3, True)])
def test_a_short_time_counts_whatever_its_samples(time_us: float, samples: int, counts: bool) -> None:
    """It was timed in a graph of many runs; a longer one that one run gave up was not."""
    assert (counting(Measurement("ok", time_us, samples=samples), 1.0) is not None) == counts


def test_what_was_measured_with_other_rows_weighs_little() -> None:
    """A kernel for aligned rows is another one than that for any."""
    best = _best(Problem(33, 31, 29), 1.5)
    known = collect([best], SPACES)
    own = of_winner(best, SPACES)
    aligned = replace(own, signature=replace(own.signature, align_a=16, align_b=16, align_c=16))
    weights = [known.points(kernel, [(0, best.config, 1.5)])[0].weight for kernel in (own, aligned)]
    assert weights == [1.0, OTHER_ROWS]


@pytest.mark.parametrize(
    ("family", "dtype"), [("skinny", "fp32"), ("skinny", "bf16"), ("simt", "fp32"), ("wgmma", "bf16")]
)
def test_what_a_kernel_can_compute_is_seen_at_once_as_one_by_one(family: str, dtype: str) -> None:
    """The choice of standard configurations asks thousands of times."""
    space, problems = SPACES[family], unseen([Problem(64, 64, 64, dtype, "nt")], 60)
    for rows in (16, 4):
        signature = replace(problems[0].signature, layout="nt", align_a=rows, align_b=rows, align_c=rows)
        kernel = on_device(space, space.default_config, signature, (9, 0))
        one_by_one = [launches_of(kernel, kernel.config.runtime, one, H200) is not None for one in problems]
        assert which_run(kernel, kernel.config.runtime, problems, H200) == one_by_one


def test_of_formats_that_are_not_exported_nothing_is_taken() -> None:
    other = _stands(_best(Problem(64, 64, 64, "fp16"), 2.0))
    assert collect([_best(LARGE, 1000.0)], SPACES, unseen=[other]).measured == [_best(LARGE, 1000.0)]


def test_few_kernels_are_chosen_for_listed_shapes_alone() -> None:
    listed = _best(LARGE, 1000.0)
    small = _stands(_best(SMALL, 1.5, tile_m=32, tile_n=32, thread_m=2, thread_n=2))
    known, found = collect_few([listed], SPACES, unseen=[small], most=4)
    assert found.kernels == 1
    assert not any(one.standard for group in known.groups.values() for one in group)
