"""Strategies: what is tried, in which order, and when a search ends by itself."""

import gzip
import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from kt.cache.records import STATUSES
from kt.devices.catalog import catalog
from kt.problems import Problem
from kt.tuner.candidates import COMPLETIONS
from kt.tuner.model import predict_us
from kt.tuner.neighbours import NEAREST
from kt.tuner.request import MODEL_METHOD
from kt.tuner.run_measured import STOP_ABOVE
from kt.tuner.strategies import Auto, Brief, Exhaustive, Random, Search, Shortlist, make_search
from kt.tuner.terrain import Landscape, join
from kt.tuner.winner import MOST_FINALISTS, WITHIN


@dataclass(frozen=True)
class Grid:
    """A terrain of plain arrays: candidate i has row i of `digits`; the last digit is a run-time choice."""

    digits: np.ndarray
    predicted: np.ndarray
    defaults: tuple[int, ...] = ()
    structure_digits: int = 2
    starts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.digits)

    @cached_property
    def _all(self) -> Landscape:
        return self._rows(np.arange(len(self)))

    @property
    def sample(self) -> Landscape:
        return self._all

    def everything(self) -> Landscape:
        return self._all

    def at(self, numbers: Sequence[int]) -> Landscape:
        return self._rows(np.array(numbers, np.int64))

    def near(self, number: int, parameters: int) -> Landscape:
        steps = np.abs(self.digits - self.digits[number])
        near = (steps.max(axis=1) <= 1) & (np.count_nonzero(steps, axis=1) <= parameters)
        return self._rows(np.flatnonzero(near))

    def _rows(self, rows: np.ndarray) -> Landscape:
        digits = self.digits[rows].astype(np.int16)
        family = np.zeros(len(rows), np.int64)
        return Landscape(
            rows, self.predicted[rows], digits, family, _code(digits[:, :-1]), _code(digits[:, : self.structure_digits])
        )


class Hidden(Grid):
    """A terrain whose sample holds none of the starts, as that of a very large space."""

    @property
    def sample(self) -> Landscape:
        return self._rows(np.setdiff1d(np.arange(len(self)), np.array(self.starts)))


def _code(digits: np.ndarray) -> np.ndarray:
    code = np.zeros(len(digits), np.int64)
    for column in digits.T:
        code = code * 64 + column
    return code


def bowl(shape: Sequence[int] = (6, 6, 4, 4, 3), error: float = 0.15) -> tuple[Grid, np.ndarray]:
    """A terrain with one valley, and the true times; the model knows them up to a random error."""
    digits = np.array(list(itertools.product(*(range(extent) for extent in shape))))
    bottom = np.array([extent // 2 for extent in shape])
    truth = 100.0 * (1 + 0.08 * ((digits - bottom) ** 2).sum(axis=1))
    predicted = truth * np.exp(np.random.default_rng(1).normal(0, error, len(truth)))
    return Grid(digits, predicted, defaults=(0,)), truth


def run(search: Search, time_of: Callable[[int], float | None]) -> list[int]:
    """All that a search tries, in order; it is asked for more as early as it allows."""
    tried: list[int] = []
    open_ones: deque[int] = deque()
    while True:
        while len(open_ones) <= search.ahead and (batch := search.propose()):
            open_ones.extend(batch)
        if not open_ones:
            return tried
        number = open_ones.popleft()
        tried.append(number)
        search.tell(number, time_of(number))


@pytest.mark.parametrize("strategy", ["auto", "exhaustive", "random"])
def test_defaults_come_first_and_nothing_twice(strategy: str) -> None:
    terrain, truth = bowl()
    terrain = Grid(terrain.digits, terrain.predicted, defaults=(77, 3))
    tried = run(make_search(strategy, terrain, 0), lambda number: float(truth[number]))  # type: ignore[arg-type]
    assert tried[:2] == [77, 3]
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("strategy", ["auto", "random"])
def test_the_seed_decides(strategy: str) -> None:
    terrain, truth = bowl()
    first, again, other = (
        run(make_search(strategy, terrain, seed), lambda number: float(truth[number]))  # type: ignore[arg-type]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_exhaustive_tries_everything_best_predicted_first() -> None:
    terrain, truth = bowl()
    tried = run(Exhaustive(terrain), lambda number: float(truth[number]))
    assert sorted(tried) == list(range(len(terrain)))
    assert (np.diff(terrain.predicted[tried[1:]]) >= 0).all()


def test_random_is_a_permutation_and_not_an_order() -> None:
    terrain, _ = bowl()
    tried = run(Random(terrain, 5), lambda number: 1.0)
    assert sorted(tried) == list(range(len(terrain)))
    assert abs(np.corrcoef(np.arange(len(tried)), tried)[0, 1]) < 0.1


def test_auto_finds_the_bottom_with_a_fraction_of_the_candidates() -> None:
    terrain, truth = bowl()
    fractions = []
    for seed in range(10):
        tried = run(Auto(terrain, seed), lambda number: float(truth[number]))
        assert len(tried) < 0.2 * len(terrain)
        fractions.append(truth.min() / truth[tried].min())
    assert np.mean(fractions) > 0.99


def test_auto_goes_on_from_what_an_earlier_run_has_found() -> None:
    """Told before the first selection, it neither ends the search behind that nor is lost among it."""
    terrain, truth = bowl()
    search, found = Auto(terrain, 0), int(np.argsort(truth)[5])
    search.tell(found, float(truth[found]))
    tried = run(search, lambda number: float(truth[number]))
    assert len(tried) > Auto.FIRST
    assert set(tried[Auto.FIRST :]) & set(terrain.near(found, 1).numbers.tolist())


def test_auto_survives_a_model_that_knows_nothing() -> None:
    terrain, truth = bowl()
    blind = Grid(terrain.digits, np.ones(len(terrain)), defaults=(0,))
    fractions = [truth.min() / truth[run(Auto(blind, seed), lambda n: float(truth[n]))].min() for seed in range(10)]
    assert np.mean(fractions) > 0.95


def test_auto_goes_on_when_candidates_fail() -> None:
    terrain, truth = bowl()
    tried = run(Auto(terrain, 0), lambda number: None if number % 3 == 0 else float(truth[number]))
    alive = [number for number in tried if number % 3]
    assert truth[alive].min() < 1.1 * truth.min()


def test_auto_ends_when_everything_fails() -> None:
    terrain, _ = bowl()
    assert len(run(Auto(terrain, 0), lambda number: None)) <= Auto.FIRST


def test_rounds_step_from_different_kernels_also_if_starts_lead() -> None:
    """Three starts that share a kernel and lead are one centre: the other kernels get their steps too."""
    grid, _ = bowl()
    kernel = grid.everything().binary
    shared = [number for number in range(len(grid)) if kernel[number] == kernel[200]]
    assert len(shared) == 3
    search = Auto(Hidden(grid.digits, grid.predicted, (0,), starts=tuple(shared)), 0)
    first = search.propose()
    others = [number for number in first if number not in shared]
    for number in first:
        search.tell(number, 10.0 if number in shared else 10.5)
    stepped = search.propose()
    near_others = {int(n) for other in others for n in grid.near(other, 1).numbers}
    near_shared = {int(n) for one in shared for n in grid.near(one, 1).numbers}
    assert set(stepped) & (near_others - near_shared)


class Families(Grid):
    """A terrain of two families, told apart by the first digit."""

    def _rows(self, rows: np.ndarray) -> Landscape:
        return replace(super()._rows(rows), family=self.digits[rows][:, 0])


def test_a_brief_search_gives_each_family_its_turn() -> None:
    """After what was given; each binary once, and no more than are asked for."""
    digits = np.array([(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0)])
    terrain = Families(digits, np.array([1.0, 2.0, 3.0, 90.0, 80.0, 70.0]), (0,), starts=(0, 1, 2, 3, 4))
    assert Brief(terrain, 20).propose() == [0, 4, 2, 3]
    assert Brief(terrain, 20, starts=[5, 2]).propose() == [5, 2, 0, 4, 3]
    assert Brief(terrain, 3, starts=[5]).propose() == [5, 0, 4]
    assert Brief(Families(digits, terrain.predicted, (0,)), 20).propose() == [0]


def test_auto_takes_starts_and_keeps_to_its_limit() -> None:
    terrain, truth = bowl()
    tried = run(Auto(terrain, 0, starts=[500, 0, 501], most=60), lambda number: float(truth[number]))
    assert tried[:3] == [0, 500, 501]
    assert len(tried) == 60


@pytest.mark.parametrize("offered", [60, 5])
def test_auto_tries_the_starts_of_the_spaces_first(offered: int) -> None:
    """Defaults, winners of similar problems, then the best predicted starts, at most `STARTS`; then what the model
    chooses, at least `OWN`, and more where there are few starts."""
    terrain, _ = bowl(error=0.05)
    likely = np.argsort(terrain.predicted, kind="stable")[:offered].tolist()
    assert terrain.predicted[likely].max() < Auto.TRUSTED * terrain.predicted.min()
    terrain = replace(terrain, starts=tuple(likely))
    first = Auto(terrain, 0, starts=[500, 501]).propose()
    given = list(dict.fromkeys([0, 500, 501, *likely[: Auto.STARTS]]))
    assert first[: len(given)] == given
    assert len(set(first)) == len(first) == len(given) + max(Auto.OWN, Auto.FIRST - len(given))


@pytest.mark.parametrize("offered", [60, 5])
def test_auto_tries_a_few_of_the_starts_that_the_model_doubts(offered: int) -> None:
    """They stand in for what the model does not see; more of its own choice does not take the others' place."""
    terrain, _ = bowl()
    unlikely = np.argsort(terrain.predicted, kind="stable")[-offered:].tolist()
    assert terrain.predicted[unlikely].min() > max(Auto.TRUSTED, Auto.PLAUSIBLE) * terrain.predicted.min()
    terrain = replace(terrain, starts=tuple(unlikely))
    first = Auto(terrain, 0, starts=[500, 501]).propose()
    taken = min(offered, Auto.DOUBTED)
    assert first[: 3 + taken] == [0, 500, 501, *unlikely[:taken]]
    assert not set(first[3 + taken :]) & set(unlikely)
    own = max(Auto.OWN, Auto.FIRST - 3 - min(offered, Auto.STARTS))
    assert len(set(first)) == len(first) == 3 + taken + own


def test_a_search_that_is_cut_off_early_has_seen_each_family() -> None:
    """The best predicted starts of each come first, however the model compares families; then all by prediction."""
    digits = np.array([(family, place, 0) for family in range(2) for place in range(30)])
    predicted = np.array([*range(100, 130), *range(140, 170)], float)
    terrain = Families(digits, predicted, (0,), starts=tuple(range(1, 60)))
    first = Auto(terrain, 0).propose()
    assert predicted[30] < Auto.TRUSTED * predicted[0]
    assert first[: 1 + 2 * Auto.EARLY] == [0, *range(1, 1 + Auto.EARLY), *range(30, 30 + Auto.EARLY)]
    rest = first[1 + 2 * Auto.EARLY : Auto.STARTS]
    assert rest == [number for number in range(1, 60) if number not in first[: 1 + 2 * Auto.EARLY]][: len(rest)]


def test_rounds_are_short_while_something_given_leads() -> None:
    grid, _ = bowl()
    for leads, size in ((500, Auto.SHORT_ROUND), (None, Auto.ROUND)):
        search = Auto(grid, 0, starts=[500])
        first = search.propose()
        best = first[-1] if leads is None else leads
        for number in first:
            search.tell(number, 10.0 if number == best else 10.5)
        assert len(search.propose()) == size


def test_auto_steps_on_from_a_start() -> None:
    """A start in a valley that the model does not see is where the search goes on."""
    terrain, truth = bowl(error=0.0)
    terrain = replace(terrain, defaults=(int(np.argmin(terrain.predicted)),))
    far = int(np.argmax(terrain.predicted))
    truth = np.where(terrain.predicted > 0.9 * terrain.predicted.max(), truth / 10, truth)
    tried = run(Auto(replace(terrain, starts=(far,)), 0), lambda number: float(truth[number]))
    assert truth[tried].min() == truth.min() < truth[far]
    blind = run(Auto(terrain, 0), lambda number: float(truth[number]))
    assert truth[blind].min() > 2 * truth.min()


def test_the_first_selection_is_diverse() -> None:
    terrain, _ = bowl()
    first = Auto(terrain, 0).propose()
    structures = _code(terrain.digits[first][:, :2])
    assert len(first) == Auto.FIRST
    assert len(set(structures.tolist())) >= 12


def test_small_spaces_are_tried_whole() -> None:
    terrain, truth = bowl((2, 3, 2, 1, 2))
    assert sorted(run(Auto(terrain, 0), lambda n: float(truth[n]))) == list(range(len(terrain)))


def test_an_empty_terrain_ends_at_once() -> None:
    terrain = Grid(np.zeros((0, 3), np.int64), np.zeros(0))
    for search in (Auto(terrain, 0), Exhaustive(terrain), Random(terrain, 0), Shortlist(terrain, 4)):
        assert search.propose() == []


def test_shortlist_compiles_each_binary_once() -> None:
    terrain, _ = bowl()
    chosen = run(Shortlist(terrain, 6), lambda number: 1.0)
    assert chosen[0] == 0
    assert len(chosen) == 7
    assert len(set(_code(terrain.digits[chosen][:, :-1]).tolist())) == 7


def test_shortlist_replaces_what_cannot_be_used() -> None:
    terrain, _ = bowl()
    order = run(Shortlist(terrain, 6), lambda number: None)
    assert len(order) == 13  # the default, and each of the six replaced once
    assert run(Shortlist(terrain, 6), lambda number: None if number == order[1] else 1.0) == order[:8]


def test_joined_landscapes_keep_families_apart() -> None:
    left, right = Grid(np.array([[0, 1]]), np.array([2.0])).sample, Grid(np.array([[0, 1, 2]]), np.array([1.0])).sample
    both = join([left, right])
    assert both.digits.tolist() == [[0, 1, 0], [0, 1, 2]]
    assert both.by_prediction().tolist() == [1, 0]


REPLAY = Path(os.environ.get("KT_REPLAY_DIR", "/nonexistent"))


@pytest.mark.skipif(not REPLAY.is_dir(), reason="KT_REPLAY_DIR names no folder with stored tuning spaces")
@pytest.mark.parametrize(("stored", "gpu"), [("RTX_3090", "rtx3090"), ("RTX_2080_Ti", "t4")])
def test_auto_on_a_stored_space_of_another_kernel(stored: str, gpu: str) -> None:
    """17,956 measured configurations of a GEMM whose shape the model does not know: within 8% of the best of all,
    after about 150 candidates, on average over seeds."""
    data = json.loads(gzip.decompress((REPLAY / f"clblast_gemm_{stored}.json.gz").read_bytes()))
    keys = [key for key in data["tune_params_keys"] if key != "PRECISION"]
    values = {key: np.array([row[key] for row in data["cache"].values()]) for key in keys}
    truth = np.array([row["time"] * 1e3 for row in data["cache"].values()])
    columns = {
        "tile_m": values["MWG"], "tile_n": values["NWG"], "tile_k": values["KWG"],
        "thread_m": values["MWG"] // values["MDIMC"], "thread_n": values["NWG"] // values["NDIMC"],
        "threads": values["MDIMC"] * values["NDIMC"], "smem_bytes": 4 * values["KWG"] * (values["MWG"] + values["NWG"]),
    }  # fmt: skip
    predicted = predict_us(Problem(4096, 4096, 4096, layout="tn"), catalog()[gpu], columns)
    structure_first = sorted(keys, key=lambda key: key not in ("MWG", "NWG", "MDIMC", "NDIMC"))
    digits = np.stack([np.searchsorted(np.unique(values[key]), values[key]) for key in structure_first], axis=1)
    terrain = Grid(np.pad(digits, ((0, 0), (0, 1))), predicted, structure_digits=4)
    results = [run(Auto(terrain, seed), lambda number: float(truth[number])) for seed in range(10)]
    assert np.mean([len(tried) for tried in results]) < 200
    assert np.mean([truth.min() / truth[tried].min() for tried in results]) > 0.92


def test_the_page_about_it_has_the_numbers_of_the_program() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "how-a-winner-is-found.md").read_text().split())
    assert f"slower than {STOP_ABOVE:g} times the best so far" in page
    assert f"at most {MOST_FINALISTS} and within {100 * (WITHIN - 1):.0f}% of the best" in page
    assert f"`{MODEL_METHOD}`" in page
    assert f"winners of the {NEAREST} nearest shapes" in page
    assert f"at most {COMPLETIONS} completions of each start" in page
    assert f"at most {Auto.STARTS} completions, best predicted first" in page
    assert f"{Auto.FIRST} candidates" in page
    assert f"takes {Auto.TRUSTED:g} times as long as its best only {Auto.DOUBTED} are tried" in page
    assert f"rounds of {Auto.SHORT_ROUND} instead of {Auto.ROUND}" in page
    assert f"at least {Auto.OWN}, are the model's own choice" in page
    assert all(f"| `{status}` |" in page for status in STATUSES)
