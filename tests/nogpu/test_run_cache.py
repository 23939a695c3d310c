"""`tune` with children that only pretend, and what the cache has: nothing that is known is done again."""

import multiprocessing
from dataclasses import replace
from typing import Any

import pytest

from kt.cache.store import Store
from kt.errors import CacheError
from kt.problems import Problem
from kt.templates.digest import template_digest
from kt.tuner.messages import Failure
from support.fake_run import ODD, SPACE, SQUARE, TEMPLATE, Bench, FakeGpu, only, winner


def test_what_the_cache_knows_is_served_without_children(bench: Bench) -> None:
    first = bench.tune(SQUARE)
    bench.gpu, bench.pool = None, None  # type: ignore[assignment]
    second = bench.tune(SQUARE)
    assert only(second).cached
    assert winner(only(second)).config == winner(only(first)).config
    assert second.compiled == 0
    assert bench.observer.started == (1, 1)


def test_retune_measures_again(bench: Bench) -> None:
    bench.tune(SQUARE)
    screened = len(bench.gpu.screened)
    bench.again()
    assert not only(bench.tune(SQUARE, retune=True)).cached
    assert len(bench.gpu.screened) == screened


def test_a_stored_winner_that_is_not_valid_here_is_tuned_again(bench: Bench, make_winner: Any) -> None:
    """CASES C16: a configuration is checked where it is used."""
    too_large = bench.space.config({"tile_m": 128, "tile_n": 128, "tile_k": 16, "stages": 3, "split_k": 1})
    key = bench.key(SQUARE)
    stored = make_winner(SQUARE, config=too_large, device=key.device, toolchain=key.toolchain, method=key.method)
    sources = {"simt": template_digest(bench.space, (bench.folder,))}
    with Store.open(bench.folder / "cache") as store:
        store.put_best(replace(stored, sources=sources))
    assert bench.stored(SQUARE) is not None
    shape = only(bench.tune(SQUARE))
    assert not shape.cached
    assert winner(shape).config.as_dict()["tile_m"] == 64


def test_a_new_value_measures_new_candidates_only(bench: Bench) -> None:
    """CASES A5: widening the space does not throw away what is known."""
    bench.tune(SQUARE, strategy="exhaustive")
    known = {tuple(sorted(values.items())) for _, values in bench.gpu.screened}
    bench.space = bench.load(SPACE.replace("tile_k: [8, 16]", "tile_k: [8, 16, 32]"))
    bench.again()
    bench.tune(SQUARE, strategy="exhaustive")
    assert bench.gpu.screened
    assert {values["tile_k"] for _, values in bench.gpu.screened} == {32}
    assert not known & {tuple(sorted(values.items())) for _, values in bench.gpu.screened}


def test_a_changed_template_makes_everything_new(bench: Bench) -> None:
    bench.tune(SQUARE)
    (bench.folder / "t.cu.j2").write_text(TEMPLATE + "// changed\n")
    bench.again()
    assert not only(bench.tune(SQUARE)).cached
    assert bench.gpu.screened


def test_a_cache_that_fails_midway_ends_the_saving_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES B5: the disk fills up during the run."""

    def full(*_: Any) -> None:
        raise CacheError("database or disk is full")

    monkeypatch.setattr(Store, "put_measurement", full)
    assert only(bench.tune(SQUARE)).best is not None
    assert bench.observer.warnings == ["results are no longer saved: database or disk is full"]


def test_eight_processes_share_one_cache(bench: Bench) -> None:
    """CASES B1: all shapes present and valid, and nobody fails."""
    problems = [Problem(256 * size, 256, 512) for size in range(1, 5)]
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=bench.tune, args=(*problems[turn % 4 :], *problems[: turn % 4])) for turn in range(8)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * 8
    for problem in problems:
        stored = bench.stored(problem)
        assert stored is not None
        assert stored.complete


def test_without_a_store_nothing_is_kept(bench: Bench) -> None:
    assert winner(only(bench.tune(SQUARE, store=False))).complete
    assert not (bench.folder / "cache").exists()


def test_what_was_launched_otherwise_is_measured_again(bench: Bench) -> None:
    """A mended grid is no other source, but another run: wrong results of the old one do not hold."""
    bench.space = bench.load(SPACE.replace("cdiv(n, tile_n)", "(n // tile_n)"))
    bench.gpu = FakeGpu(lambda problem, values: Failure("wrong_result", "differs"))
    assert only(bench.tune(ODD)).best is None
    bench.space = bench.load(SPACE)
    bench.again()
    assert winner(only(bench.tune(ODD))).complete
