"""Timing without a GPU: a simulated one stands behind the stopwatch, with the faults that real timing has."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from kt.tuner import method
from kt.tuner.measure import screen
from kt.tuner.refinement import PeerUnavailable, refine
from kt.tuner.sampling import Run, Sample, TimerStuck
from kt.tuner.timing_rules import (
    BatchShape,
    batch_shape,
    compare,
    measurement_of,
    order_of_round,
    ratio_interval,
    repeats_for,
    settled,
    spread,
    tied_at_the_end,
)


@dataclass
class SimulatedGpu:
    """Runs take what they are made to take; a batch that finds the GPU idle waits for the host first.

    Attributes:
        resolution: the timer counts in steps of so many microseconds.
        busy_us: time the GPU has worked so far; the clock of `refine` here.
        runs: how often each kernel ran.
    """

    resolution: float = 0.5
    launch_us: float = 7.0
    busy_us: float = 0.0
    runs: dict[str, int] = field(default_factory=dict)
    graphs: list[int] = field(default_factory=list)

    def kernel(self, name: str, time_us: float | Callable[[int], float], noise: float = 0.0, seed: int = 0) -> Run:
        randoms = random.Random(f"{name}{seed}")
        self.runs[name] = 0

        def run() -> None:
            base = time_us(self.runs[name]) if callable(time_us) else time_us
            self.runs[name] += 1
            self.busy_us += base * max(0.1, 1 + noise * randoms.gauss(0, 1))

        return run

    def batch(self, run: Run, shape: BatchShape) -> "SimulatedBatch":
        if shape.graph:
            self.graphs.append(shape.runs)
        return SimulatedBatch(self, run, shape.runs, shape.graph)

    def time(self, samples: Sequence[Sample]) -> list[float]:
        elapsed, idle = [], True
        for sample in samples:
            before = self.busy_us
            for _ in range(sample.repeats):
                sample.batch.enqueue()
            wait = self.launch_us if idle else 0.0
            elapsed.append(math.floor((self.busy_us - before + wait) / self.resolution) * self.resolution)
            idle = False
        return elapsed

    def clock(self) -> float:
        return self.busy_us / 1e6


@dataclass
class SimulatedBatch:
    gpu: SimulatedGpu
    run: Run
    runs: int
    graph: bool

    def enqueue(self) -> None:
        """Outside a graph the host needs `launch_us` per launch, which shows when the kernel is shorter than that."""
        for _ in range(self.runs):
            before = self.gpu.busy_us
            self.run()
            if not self.graph:
                self.gpu.busy_us = max(self.gpu.busy_us, before + self.gpu.launch_us)


# --- screening -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_us", [0.6, 2.0, 5.0, 55.0, 190.0, 250.0, 1500.0, 20_000.0])
def test_a_screened_time_is_the_kernels_own(time_us: float) -> None:
    """Within 2%, from the shortest kernel to a long one, though the host needs longer for a launch than some run."""
    gpu = SimulatedGpu()
    measurement = screen(gpu, gpu.kernel("k", time_us), 60, time_us + 300, None)
    assert measurement.status == "ok"
    assert measurement.time_us == pytest.approx(time_us, rel=0.02)
    assert not measurement.refined


def test_screening_a_short_kernel_takes_milliseconds_and_a_long_one_two_runs() -> None:
    gpu = SimulatedGpu()
    screen(gpu, gpu.kernel("short", 5.0), 60, 300.0, None)
    assert gpu.busy_us < 5_000
    screen(gpu, gpu.kernel("long", 20_000.0), 1, 20_100.0, None)
    assert gpu.runs["long"] <= 2


def test_a_straggler_is_stopped_after_its_first_run() -> None:
    gpu = SimulatedGpu()
    measurement = screen(gpu, gpu.kernel("slow", 50_000.0), 1, 50_000.0, 100.0)
    assert gpu.runs["slow"] == 0, "the verifying run was enough"
    assert (measurement.status, measurement.samples, measurement.spread) == ("ok", 1, None)
    assert measurement.time_us == 50_000.0


def test_a_slower_candidate_is_stopped_before_its_graph_is_captured() -> None:
    gpu = SimulatedGpu()
    measurement = screen(gpu, gpu.kernel("slower", 150.0), 60, 300.0, 20.0)
    assert gpu.runs["slower"] <= 4
    assert gpu.graphs == []
    assert measurement.time_us == pytest.approx(150.0, rel=0.05)


@pytest.mark.parametrize("launch_us", [7.0, 75.0])
@pytest.mark.parametrize("time_us", [2.0, 19.0, 300.0])
def test_a_good_candidate_is_not_stopped_for_what_the_host_added(time_us: float, launch_us: float) -> None:
    """The first run of a kernel loads it: 0.9 ms here; a lone launch of a short kernel waits for the host."""
    gpu = SimulatedGpu(launch_us=launch_us)
    measurement = screen(gpu, gpu.kernel("good", time_us), 60, time_us + 900, time_us * 1.1)
    assert measurement.samples > 1
    assert measurement.time_us == pytest.approx(time_us, rel=0.02)


@pytest.mark.parametrize("resolution", [0.5, 100.0, 5_000.0])
def test_a_coarse_timer_gets_longer_samples_and_never_yields_zero(resolution: float) -> None:
    gpu = SimulatedGpu(resolution=resolution)
    measurement = screen(gpu, gpu.kernel("k", 1.0), 4, 0.0, None)
    assert measurement.time_us is not None
    assert measurement.time_us > 0


def test_a_timer_that_stands_still_is_an_error_after_a_bounded_effort() -> None:
    class Broken(SimulatedGpu):
        def time(self, samples: Sequence[Sample]) -> list[float]:
            super().time(samples)
            return [0.0] * len(samples)

    gpu = Broken()
    with pytest.raises(TimerStuck):
        screen(gpu, gpu.kernel("k", 1.0), 1, 0.0, None)
    assert gpu.runs["k"] <= 2 ** (method.MAX_DOUBLINGS + 2)


def test_negative_times_are_measured_again() -> None:
    class Jumpy(SimulatedGpu):
        calls = 0

        def time(self, samples: Sequence[Sample]) -> list[float]:
            self.calls += 1
            elapsed = super().time(samples)
            return [-1.0] * len(samples) if self.calls % 2 else elapsed

    gpu = Jumpy()
    measurement = screen(gpu, gpu.kernel("k", 50.0), 4, 100.0, None)
    assert measurement.time_us == pytest.approx(50.0, rel=0.05)


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("estimate", "sets"), [(1.0, 1), (2.0, 512), (5.0, 60), (150.0, 3)])
def test_a_graph_holds_at_least_one_whole_rotation(estimate: float, sets: int) -> None:
    shape = batch_shape(estimate, sets)
    assert shape.graph
    assert shape.runs >= sets
    assert shape.runs * estimate >= 100


def test_long_kernels_are_launched_one_by_one() -> None:
    assert batch_shape(method.GRAPH_BELOW_US, 60) == BatchShape(1, False)


def test_samples_are_long_and_a_zero_time_asks_for_longer_ones() -> None:
    assert repeats_for(100.0, 1000.0) == 10
    assert repeats_for(3000.0, 1000.0) == 1
    assert repeats_for(0.0, 1000.0) == 2


# --- statistics ------------------------------------------------------------------------------------------------------


def test_the_spread_of_few_samples_is_unknown_and_never_nan() -> None:
    assert spread([]) is None
    assert spread([1.0, 2.0]) is None
    assert spread([1.0, 1.0, 1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    single = measurement_of([7.0], refined=False)
    assert (single.time_us, single.spread, single.samples, single.noisy) == (7.0, None, 1, False)


def test_only_a_spread_above_the_limit_is_noisy_and_only_once_the_retries_ran_out() -> None:
    wide, narrow = [1.0, 1.2, 1.4, 1.6], [1.0, 1.0, 1.001, 1.002]
    assert measurement_of(wide, refined=True, retries_ran_out=True).noisy
    assert not measurement_of(wide, refined=True).noisy
    assert not measurement_of(narrow, refined=True, retries_ran_out=True).noisy


@pytest.mark.parametrize("count", [6, 9, 15, 40])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """Over 2000 draws of a skewed distribution, the interval misses its median in at most 5% and a margin for luck."""
    randoms = random.Random(count)
    median, missed = math.exp(0.0), 0
    for _ in range(2000):
        low, high = ratio_interval([math.exp(randoms.gauss(0, 0.5)) for _ in range(count)])
        missed += not low <= median <= high
    assert missed / 2000 < 0.065


def test_more_ratios_make_a_narrower_interval() -> None:
    randoms = random.Random(1)
    ratios = [1 + randoms.gauss(0, 0.01) for _ in range(200)]
    few, many = ratio_interval(ratios[:8]), ratio_interval(ratios)
    assert many[1] - many[0] < few[1] - few[0]


def test_verdicts() -> None:
    best = [100.0, 101.0, 99.0, 100.0, 100.0, 100.0]
    assert compare(best, [value * 1.02 for value in best]) == "slower"
    assert compare(best, [value * 1.001 for value in best]) == "tied"
    assert compare(best, [90.0, 120.0, 99.0, 101.0, 130.0, 100.0]) == "open"
    assert compare(best[:4], [101.0, 103.0, 101.0, 102.0]) == "open", "too few rounds to say"


def test_who_is_far_slower_in_each_of_the_first_rounds_leaves_before_an_interval_can_be_given() -> None:
    far, rounds = 100 * (1 + method.CLEARLY) + 1, method.LEAST_ROUNDS
    assert rounds < method.MIN_ROUNDS
    assert compare([100.0] * rounds, [far] * rounds) == "slower"
    assert compare([100.0] * (rounds - 1), [far] * (rounds - 1)) == "open"
    assert compare([100.0] * rounds, [*[far] * (rounds - 1), 101.0]) == "open"


@pytest.mark.parametrize(("median", "verdict"), [(1.004, "tied"), (1.006, "slower")])
def test_an_interval_no_wider_than_a_tie_is_decided_by_its_median(median: float, verdict: str) -> None:
    """A candidate right at the border of a tie does not keep the race going for nothing."""
    ratios = [median + method.TIE * (step / 10 - 0.5) for step in range(11)]
    low, high = ratio_interval(ratios)
    assert low < 1 + method.TIE < high
    assert compare([1.0] * 11, ratios) == verdict


def test_paired_samples_tell_apart_what_medians_alone_would_not() -> None:
    """Clocks drift by 20% during the rounds; the pairs still show which one is 2% slower."""
    drift = [1 + 0.2 * math.sin(i) for i in range(12)]
    assert compare(drift, [value * 1.02 for value in drift]) == "slower"


def test_not_told_apart_is_a_tie_and_so_is_half_a_percent() -> None:
    best = [100.0] * 12
    assert tied_at_the_end(best, [100.4] * 12)
    assert tied_at_the_end(best, [98.0, 104.0] * 6)
    assert not tied_at_the_end(best, [101.0] * 12)


def test_a_single_candidate_is_settled_after_the_least_rounds() -> None:
    assert not settled({"a": [1.0] * (method.MIN_ROUNDS - 1)})
    assert settled({"a": [1.0] * method.MIN_ROUNDS})


def test_the_order_of_rounds_gives_every_place_and_every_neighbour_to_everybody() -> None:
    names = ["a", "b", "c", "d"]
    orders = [order_of_round(names, number) for number in range(8)]
    for name in names:
        assert {order.index(name) for order in orders} == {0, 1, 2, 3}
    before = {(x, y) for order in orders for x, y in itertools.pairwise(order)}
    assert {("a", "b"), ("b", "a")} <= before


# --- refinement ------------------------------------------------------------------------------------------------------


def test_refinement_finds_the_fastest_of_noisy_candidates() -> None:
    for seed in range(10):
        gpu = SimulatedGpu()
        runs = {name: gpu.kernel(name, us, 0.02, seed) for name, us in (("a", 10.3), ("b", 10.0), ("c", 12.0))}
        refined = refine(gpu, runs, {}, 30, 2.0, gpu.clock)
        assert list(refined.measurements) == ["b", "a", "c"]
        assert refined.ties == ()
        assert all(m.refined and m.status == "ok" for m in refined.measurements.values())
        assert refined.measurements["b"].time_us == pytest.approx(10.0, rel=0.01)


def test_equally_fast_candidates_are_tied_and_slower_ones_are_not() -> None:
    gpu = SimulatedGpu()
    runs = {name: gpu.kernel(name, us, 0.01) for name, us in (("x", 20.0), ("y", 20.02), ("z", 21.0))}
    refined = refine(gpu, runs, {}, 30, 2.0, gpu.clock)
    first = next(iter(refined.measurements))
    assert {first, *refined.ties} == {"x", "y"}


def test_clearly_slower_candidates_leave_early() -> None:
    gpu = SimulatedGpu()
    runs = {"a": gpu.kernel("a", 100.0, 0.05), "b": gpu.kernel("b", 100.2, 0.05), "slow": gpu.kernel("slow", 150.0)}
    refined = refine(gpu, runs, {}, 4, 0.5, gpu.clock)
    assert refined.measurements["slow"].samples < refined.measurements["a"].samples
    assert refined.measurements["slow"].samples == method.LEAST_ROUNDS


def test_settled_candidates_end_the_rounds_long_before_the_time_is_up() -> None:
    gpu = SimulatedGpu()
    runs = {"a": gpu.kernel("a", 100.0, 0.002), "b": gpu.kernel("b", 110.0, 0.002)}
    refine(gpu, runs, {}, 4, 2.0, gpu.clock)
    assert gpu.clock() < method.WARM_UP_US / 1e6 + 0.1


def test_the_time_limit_holds_for_long_kernels() -> None:
    """Ten candidates of 0.4 s that are hard to tell apart: a few rounds, not hundreds."""
    gpu = SimulatedGpu()
    runs = {str(i): gpu.kernel(str(i), 4e5, 0.02) for i in range(10)}
    refined = refine(gpu, runs, {}, 1, 2.0, gpu.clock)
    assert max(m.samples for m in refined.measurements.values()) <= method.LEAST_ROUNDS
    assert len(refined.measurements) == 10


def test_long_kernels_run_no_more_than_they_are_timed() -> None:
    """One run tells how long they take, and twelve of them in turn are load enough to begin with the rounds."""
    gpu = SimulatedGpu()
    runs = {str(i): gpu.kernel(str(i), 3e4 + i, 0.0005) for i in range(12)}
    refined = refine(gpu, runs, {"cublas": gpu.kernel("cublas", 3e4)}, 1, 2.0, gpu.clock)
    assert {gpu.runs[name] - refined.measurements[name].samples for name in runs} == {1}
    assert gpu.runs["cublas"] > refined.measurements["0"].samples + 1, "it may load itself in its first run"


def test_peers_are_timed_in_the_same_rounds_and_never_leave() -> None:
    gpu = SimulatedGpu()
    runs = {"a": gpu.kernel("a", 10.0, 0.01), "b": gpu.kernel("b", 10.02, 0.01)}
    refined = refine(gpu, runs, {"cublas": gpu.kernel("cublas", 30.0)}, 30, 0.3, gpu.clock)
    assert refined.peers["cublas"] == pytest.approx(30.0, rel=0.01)
    assert "cublas" not in refined.measurements


def test_a_peer_that_refuses_is_reported_and_disturbs_nobody() -> None:
    def refuse() -> None:
        raise PeerUnavailable("cuBLAS: not supported")

    gpu = SimulatedGpu()
    refined = refine(gpu, {"a": gpu.kernel("a", 10.0)}, {"cublas": refuse}, 30, 0.3, gpu.clock)
    assert refined.peer_errors == {"cublas": "cuBLAS: not supported"}
    assert refined.peers == {}
    assert list(refined.measurements) == ["a"]


def test_peers_are_timed_without_candidates_too() -> None:
    gpu = SimulatedGpu()
    refined = refine(gpu, {}, {"cublas": gpu.kernel("cublas", 30.0)}, 30, 0.3, gpu.clock)
    assert refined.measurements == {}
    assert refined.peers["cublas"] == pytest.approx(30.0, rel=0.01)
    assert refine(gpu, {}, {}, 30, 0.3, gpu.clock).peers == {}


def test_noise_is_retried_a_bounded_number_of_times_and_then_marked() -> None:
    gpu = SimulatedGpu()
    refined = refine(gpu, {"a": gpu.kernel("a", 500.0, 0.3)}, {}, 1, 0.2, gpu.clock)
    assert refined.measurements["a"].noisy
    assert refined.measurements["a"].time_us is not None
    assert gpu.clock() < 0.2 * (1 + method.NOISE_RETRIES)


def test_noise_that_passes_leaves_no_mark() -> None:
    """Another process loads the GPU for the first 20 runs and then ends."""
    gpu = SimulatedGpu()
    randoms = random.Random(3)
    a = gpu.kernel("a", lambda count: 500.0 * (1 + (randoms.random() if count < 20 else 0.0)))
    refined = refine(gpu, {"a": a}, {}, 1, 0.1, gpu.clock)
    measurement = refined.measurements["a"]
    assert not measurement.noisy
    assert measurement.time_us == pytest.approx(500.0, rel=0.01)


def test_a_steady_measurement_is_not_noisy() -> None:
    gpu = SimulatedGpu()
    measurement = refine(gpu, {"a": gpu.kernel("a", 5.0, 0.05)}, {}, 60, 1.0, gpu.clock).measurements["a"]
    assert measurement.spread is not None
    assert measurement.spread < method.NOISE_LIMIT
    assert not measurement.noisy


def test_the_differences_of_small_kernels_exceed_the_noise() -> None:
    """20 candidates from 2.0 to 2.95 µs: events around single launches would show 7 µs for each of them."""
    gpu = SimulatedGpu()
    times = [screen(gpu, gpu.kernel(str(i), 2 + i * 0.05, 0.02), 300, 10.0, None).time_us or 0 for i in range(20)]
    assert times == sorted(times)
    assert max(times) / min(times) == pytest.approx(2.95 / 2.0, rel=0.02)


# --- the method's label ----------------------------------------------------------------------------------------------


def test_the_label_names_every_number_that_a_time_depends_on() -> None:
    for value in (method.ROTATION_FACTOR, method.MAX_SETS, method.GRAPH_BELOW_US, method.SCREEN_SAMPLE_US):
        assert f"{value:g}" in method.METHOD_LABEL
    rounds = (method.MIN_ROUNDS, method.CLEARLY, method.TIE, method.NOISE_LIMIT, method.NOISE_RETRIES)
    for value in (method.REFINE_SAMPLE_US, *rounds):
        assert f"{value:g}" in method.METHOD_LABEL
