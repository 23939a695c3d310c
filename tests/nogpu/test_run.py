"""`tune` with a worker and compilers that only pretend: every shape ends, with the configuration that is fastest."""

from typing import Any

import pytest

from kt.cache.store import Store
from kt.problems import Problem
from kt.tuner.messages import Refine
from kt.tuner.request import Budget
from support.fake_run import ODD, SQUARE, TALL, Bench, FakeGpu, UnderLoad, Values, bowl, only, winner


class Busy(FakeGpu):
    """Takes a moment over the finals, in which the next shape is planned."""

    pause = False

    def submit(self, message: Any, timeout_s: float) -> None:
        super().submit(message, timeout_s)
        self.pause = isinstance(message, Refine)

    def poll(self, timeout: float) -> Any:
        if self.pause:
            self.pause = False
            return None
        return super().poll(timeout)


def test_the_next_shape_begins_with_what_has_led_on_this_one(bench: Bench) -> None:
    """It is planned during the finals, when the winner is not known yet."""
    bench.gpu = Busy()
    alike = Problem(512, 512, 640)
    bench.tune(SQUARE, alike)
    leader = {"tile_m": 64, "tile_n": 128, "tile_k": 16, "stages": 2, "split_k": 1}
    assert [values for problem, values in bench.gpu.screened if problem == alike][:2] == [bench.default, leader]


def test_the_fastest_configuration_wins(bench: Bench) -> None:
    best = winner(only(bench.tune(SQUARE)))
    assert best.config.as_dict() == {"tile_m": 64, "tile_n": 128, "tile_k": 16, "stages": 2, "split_k": 1}
    assert best.measurement.refined
    assert best.measurement.time_us == pytest.approx(100.0)
    assert (best.measurement.registers, best.measurement.smem_bytes) == (64, 2 * 192 * 16 * 4)
    assert best.complete
    assert best.tried <= best.total
    assert best.default_us == pytest.approx(bowl(SQUARE, bench.default))
    assert best.launches[0].grid == 8 * 4
    assert best.floor_us is not None
    assert best.provenance["seed"] == "0"


def test_three_shapes_in_three_results_out_in_order(bench: Bench) -> None:
    """CASES G10 and C6: exact set equality between what was asked and what is answered."""
    result = bench.tune(SQUARE, TALL, ODD)
    assert [shape.problem for shape in result.shapes] == [SQUARE, TALL, ODD]
    assert all(shape.best for shape in result.shapes)
    assert [problem for problem, _ in bench.observer.finished] == [SQUARE, TALL, ODD]
    for problem in (SQUARE, TALL, ODD):
        assert bench.stored(problem) is not None


def test_one_compilation_serves_all_shapes_of_a_signature(bench: Bench) -> None:
    bench.tune(SQUARE, TALL, Problem(1024, 1024, 1024), strategy="exhaustive")
    assert len(bench.pool.jobs) == len({tuple(job.items()) for job in bench.pool.jobs})


def test_a_finalist_keeps_what_its_screening_said(bench: Bench) -> None:
    """So that times of two clocks can be compared: of the winner, of the other finalists, and where a later run goes
    on with what this one has refined."""
    bench.gpu = UnderLoad()
    first = winner(only(bench.tune(SQUARE, budget=Budget(evaluations=20)))).measurement
    bench.again()
    bench.gpu = UnderLoad()
    best = winner(only(bench.tune(SQUARE))).measurement
    for one in (first, best):
        assert one.refined
        assert one.time_us == pytest.approx(1.3 * (one.screened_us or 0.0))
    with Store.open(bench.folder / "cache", read_only=True) as store:
        every = store.measurements(bench.key(SQUARE)).values()
    assert {one.screened_us is not None for one in every if one.refined} == {True}
    assert {one.screened_us is not None for one in every if not one.refined} == {False}
    assert best in every


def test_exhaustive_tries_everything(bench: Bench) -> None:
    best = winner(only(bench.tune(SQUARE, strategy="exhaustive")))
    assert best.tried == best.total == len(bench.gpu.screened)


def test_the_same_seed_makes_the_same_run(bench: Bench) -> None:
    bench.tune(SQUARE, store=False)
    first = bench.gpu.screened
    bench.again()
    bench.tune(SQUARE, store=False)
    assert bench.gpu.screened == first


def test_candidates_far_behind_are_stopped_early(bench: Bench) -> None:
    bench.tune(SQUARE)
    assert bench.gpu.stops[0] is None
    assert min(stop for stop in bench.gpu.stops if stop is not None) == pytest.approx(125.0)


def test_ties_go_to_the_simplest(bench: Bench) -> None:
    bench.gpu.truth = lambda problem, values: 50.0
    best = winner(only(bench.tune(SQUARE, strategy="exhaustive")))
    values = best.config.as_dict()
    assert (values["split_k"], values["stages"]) == (1, 2)
    assert len(best.ties) > 0


def test_the_winner_is_never_slower_than_the_default(bench: Bench) -> None:
    """CASES E7: a simpler configuration within the noise of the best does not win if the default beats it."""

    def truth(problem: Problem, values: Values) -> float:
        if values == bench.default:
            return 50.0
        return 50.2 if values["tile_m"] == 16 else 60.0

    bench.gpu.truth = truth
    best = winner(only(bench.tune(SQUARE, strategy="exhaustive")))
    assert best.default_us == 50.0
    assert best.measurement.time_us == 50.0


def test_values_at_the_edge_of_the_space_are_told(bench: Bench) -> None:
    best = winner(only(bench.tune(SQUARE)))
    assert best.edge == ("stages",)
    assert best.config.as_dict()["tile_n"] == 128  # the largest offered; 256 would not fit shared memory
    assert "split_k" not in best.edge  # 1 is a natural limit


def test_peers_are_recorded_and_a_missing_one_is_told_once(bench: Bench) -> None:
    result = bench.tune(SQUARE, TALL, peers=("cublas", "cublaslt"))
    assert winner(result.shapes[0]).baseline == {"cublas": 90.0}
    assert [text for text in bench.observer.warnings if "cublaslt" in text] == [
        "cublaslt cannot be timed: libcublasLt is not installed"
    ]
