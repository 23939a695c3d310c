"""Starts: choices that have won elsewhere become the first candidates of a search; those of the built-in families."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kt.devices.catalog import catalog
from kt.problems import Problem
from kt.search_spaces.enumeration import enumerate_space
from kt.search_spaces.loader import builtin_spaces, load_space
from kt.search_spaces.space import SearchSpace, Value
from kt.tuner.candidates import COMPLETIONS, Candidates
from kt.tuner.strategies import Auto, Exhaustive, Random

SPACE = """
op: gemm
family: simt
template: t.cu.j2
dtypes: [fp32]
parameters: {tile_m: [16, 32, 64, 128], tile_n: [16, 32, 64], order: [rows, columns]}
runtime: {split_k: [1, 2, 4, 8], raster_group: [1, 8]}
default: {tile_m: 32, tile_n: 32, order: rows, split_k: 1, raster_group: 8}
starts:
  - {tile_m: 64, tile_n: 32}
  - {tile_m: 16}
  - {split_k: 4, order: columns}
  - {tile_m: 64, tile_n: 64, order: rows, split_k: 2, raster_group: 1}
  - {tile_m: 64, order: rows}
derived: {smem_bytes: 4 * (tile_m + tile_n) * 32}
constraints:
  - {require: tile_m + tile_n <= 128, reason: shared memory of one block}
  - {require: split_k == 1 or split_k * 32 <= k, reason: every slice needs a step}
launches:
  - {kernel: kt_gemm, grid: "cdiv(m, tile_m) * cdiv(n, tile_n) * split_k", block: 128, smem_bytes: smem_bytes}
"""
STRUCTURE = ("tile_m", "tile_n", "split_k")  # what of this space cuts the problem up
H200 = catalog()["h200"]
SQUARE = Problem(512, 512, 512)

Start = Mapping[str, Value]


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    (tmp_path / "space.yaml").write_text(SPACE)
    return load_space(tmp_path / "space.yaml")


def completions(candidates: Candidates, start: Start, family: str = "simt") -> list[int]:
    """By a walk over all candidates: the best predicted with the choices of `start`, one of each structure."""
    matching = [
        number
        for number in range(len(candidates))
        if candidates.config(number).family == family and start.items() <= candidates.config(number).as_dict().items()
    ]
    best: dict[tuple[Value, ...], int] = {}
    for number in sorted(matching, key=lambda number: (candidates.predicted_us(number), number)):
        choices = candidates.config(number).as_dict()
        best.setdefault(tuple(choices[name] for name in STRUCTURE), number)
    return list(best.values())[:COMPLETIONS]


def check(candidates: Candidates, found: Sequence[int], expected: set[int]) -> None:
    times = [candidates.predicted_us(number) for number in found]
    assert times == sorted(times)
    assert len(set(found)) == len(found)
    assert set(found) == expected


def test_of_each_start_the_best_predicted_completions_of_different_structure(space: SearchSpace) -> None:
    """At most `COMPLETIONS` of each, in one list by prediction, and none twice though starts overlap."""
    candidates = Candidates(SQUARE, H200, [space])
    each = [completions(candidates, start) for start in space.starts]
    assert [len(one) for one in each] == [COMPLETIONS, COMPLETIONS, COMPLETIONS, 1, COMPLETIONS]
    assert set(each[0]) & set(each[4]), "the starts overlap"
    check(candidates, candidates.starts, set().union(*each))


def test_starts_that_are_not_valid_on_the_problem_are_passed_over(space: SearchSpace) -> None:
    """With k = 32 nothing is split, so two of the starts have no completion; the others have theirs."""
    candidates = Candidates(Problem(512, 512, 32), H200, [space])
    each = [completions(candidates, start) for start in space.starts]
    assert [bool(one) for one in each] == [True, True, False, False, True]
    check(candidates, candidates.starts, set().union(*each))
    assert not any(candidates.config(number).as_dict()["split_k"] != 1 for number in candidates.starts)


def test_there_may_be_no_starts(space: SearchSpace) -> None:
    """No start, or none that is valid anywhere, is no special case: the search chooses by itself."""
    for starts in ((), ({"tile_m": 128, "tile_n": 64},)):
        candidates = Candidates(SQUARE, H200, [replace(space, starts=starts)])
        assert candidates.starts == ()
        assert len(Auto(candidates, 0).propose()) == Auto.FIRST


def test_starts_of_several_families_are_kept_apart(space: SearchSpace) -> None:
    """Each family's starts complete to its own candidates, and all stand in one order of prediction."""
    other = replace(space, family="other", starts=({"tile_m": 32, "tile_n": 64},))
    candidates = Candidates(SQUARE, H200, [space, other])
    each = [completions(candidates, start) for start in space.starts]
    own = completions(candidates, other.starts[0], "other")
    assert len(own) == COMPLETIONS
    check(candidates, candidates.starts, set(own).union(*each))


def test_a_search_begins_with_them(space: SearchSpace) -> None:
    """`auto` tries the default, then the starts; the other strategies have an order of their own."""
    candidates = Candidates(SQUARE, H200, [space])
    head = (*candidates.defaults, *candidates.starts)
    assert tuple(Auto(candidates, 0).propose()[: len(head)]) == head
    for search in (Exhaustive(candidates), Random(candidates, 0)):
        assert tuple(search.propose()[: len(head)]) != head


# The built-in families


def builtin_starts() -> list[tuple[SearchSpace, Start]]:
    return [(space, start) for space in builtin_spaces() for start in space.starts]


def test_the_built_in_family_has_starts_and_none_twice() -> None:
    starts = [(space.family, *sorted(start.items())) for space, start in builtin_starts()]
    assert "simt" in {family for family, *_ in starts}
    assert len(set(starts)) == len(starts)


@pytest.mark.parametrize(("space", "start"), builtin_starts(), ids=lambda value: getattr(value, "family", None))
def test_every_built_in_start_is_valid_somewhere(space: SearchSpace, start: Start) -> None:
    """On an H200, for problems with as few rows and columns as its tile, or many, also odd ones, or skinny; else
    it is a slip."""
    narrow = replace(space, parameters=_only(space.parameters, start), runtime=_only(space.runtime, start))
    rows, columns = int(start.get("tile_m", 4096)), int(start.get("tile_n", 4096))
    extents = (
        (rows, columns, 4096),
        (rows, 4096, 4096),
        (rows, 32768, 4096),
        (4096, 4096, 4096),
        (4096, 4096, 64),
        (4096, 4100, 4096),
        (4096, 4096, 4095),
        (8, 8192, 4096),
        (8, 8192, 64),
        (8, 96, 8192),
        (9001, 35, 4096),
    )
    problems = (
        Problem(m, n, k, dtype, layout) for layout in ("nn", "nt") for dtype in space.dtypes for m, n, k in extents
    )
    assert any(len(enumerate_space(narrow, {**H200.names(), **problem.names()})) for problem in problems)


def _only(offered: Mapping[str, tuple[Value, ...]], start: Start) -> dict[str, tuple[Value, ...]]:
    return {name: (start[name],) if name in start else values for name, values in offered.items()}


def test_the_starts_of_simt_fill_their_part_of_the_first_selection() -> None:
    """On a large square problem and on one row, of the kinds that they come from: those that are not doubted."""
    simt = [space for space in builtin_spaces() if space.family == "simt"]
    for problem in (Problem(4096, 4096, 4096), Problem(1, 4096, 4096)):
        candidates = Candidates(problem, H200, simt)
        first = Auto(candidates, 0).propose()
        trusted = Auto.TRUSTED * candidates.sample.predicted.min()
        likely = [one for one in candidates.starts[: Auto.STARTS] if candidates.order_us(one) <= trusted]
        assert set(likely) <= set(first)
        assert len(likely) >= Auto.OWN
        assert len(candidates.starts) >= Auto.STARTS
        assert len(first) <= len(candidates.defaults) + Auto.STARTS + Auto.OWN
