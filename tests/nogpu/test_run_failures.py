"""`tune` with children that only pretend: candidates and shapes that fail are named, and the others go on."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kt.cache.records import Measurement
from kt.cache.store import Store
from kt.devices.catalog import catalog
from kt.errors import CompilerUnavailable, InputError, NoUsableGpu, NoValidConfiguration
from kt.problems import Problem
from kt.tuner.messages import Binary, Failure, Refine, RefineReply
from kt.tuner.plan import plan
from kt.tuner.request import Budget
from kt.tuner.worker import WorkerDied
from support.fake_run import (
    MODELLED,
    ODD,
    SPACE,
    SQUARE,
    TALL,
    TEMPLATE,
    Bench,
    FakeGpu,
    Values,
    bowl,
    good_binary,
    only,
    values_of,
    winner,
)


def test_failing_candidates_are_named_and_the_others_go_on(bench: Bench) -> None:
    """CASES C1, C3, C5: one candidate per kind of failure."""

    def truth(problem: Problem, values: Values) -> Any:
        kinds = {
            (16, 16): WorkerDied("crashed", "an illegal memory access was encountered"),
            (16, 32): WorkerDied("timeout", "no answer within 6 s"),
            (32, 16): Measurement("wrong_result", detail="1 of 262144 elements differs"),
            (16, 64): Measurement("launch_error", detail="too many resources requested"),
        }
        return kinds.get((values["tile_m"], values["tile_n"]), bowl(problem, values))

    bench.gpu.truth = truth
    bench.pool.verdict = lambda digest, values: (
        Binary(digest, error="t.cu(3): error: identifier is undefined")
        if values["stages"] == 3
        else good_binary(digest, spills=8 if values["tile_k"] == 8 and values["tile_m"] == 128 else 0)
    )
    result = bench.tune(SQUARE, strategy="exhaustive")
    shape = only(result)
    assert winner(shape).config.as_dict()["tile_n"] == 128
    assert {"ok", "pruned", "compile_error", "crashed", "timeout", "wrong_result", "launch_error"} == set(
        shape.statuses
    )
    assert shape.statuses["compile_error"] > 0
    assert any("identifier is undefined" in cause for cause in result.failures)
    assert "crashed: an illegal memory access was encountered" in result.failures
    assert "timeout: no answer within 6 s" in result.failures, "figures are for people to read"
    counts = list(result.failures.values())
    assert counts == sorted(counts, reverse=True)


def test_only_failures_that_last_are_taken_over(bench: Bench) -> None:
    """What was wrong stays wrong; what crashed or ran out of time is tried again."""

    def truth(problem: Problem, values: Values) -> Any:
        if values["tile_m"] == 16:
            return WorkerDied("crashed", "gone")
        return Measurement("wrong_result", detail="x") if values["tile_m"] == 32 else bowl(problem, values)

    bench.gpu.truth = truth
    bench.tune(SQUARE, strategy="exhaustive", budget=Budget(evaluations=10**6))
    with Store.open(bench.folder / "cache") as store:
        store.remove(row.id for row in store.stored())
    bench.again(truth)
    bench.tune(SQUARE, strategy="exhaustive")
    assert {values["tile_m"] for _, values in bench.gpu.screened} == {16}


def test_a_default_that_has_left_the_finals_says_nothing_by_a_better_median(bench: Bench) -> None:
    """It has lost in the same rounds; its median is of the first ones, where the GPU was at a higher clock."""

    class Throttled(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            reply = super()._refine(message)
            early = {name: one for name, one in reply.measurements.items() if values_of(name) == bench.default}
            cooler = {name: replace(one, time_us=99.0) for name, one in early.items()}
            return RefineReply({**reply.measurements, **cooler}, (), {})

    bench.gpu = Throttled()
    best = winner(only(bench.tune(SQUARE)))
    assert best.measurement.time_us == pytest.approx(100.0)
    assert best.default_us is None


def test_a_default_that_spills_is_measured_all_the_same(bench: Bench) -> None:
    default = {name: bench.space.default[name] for name in bench.space.parameters}
    bench.pool.verdict = lambda digest, values: good_binary(digest, spills=16 if values == default else 0)
    assert winner(only(bench.tune(SQUARE))).default_us is not None


@pytest.mark.parametrize("device", ["measured", "modelled"])
def test_a_budget_that_ends_among_candidates_that_cannot_be_used(bench: Bench, device: str) -> None:
    """There are others, so the shape has not failed: more budget may help."""

    def excessive(digest: str, values: Values) -> Binary:
        return good_binary(digest, registers=256)

    bench.pool.verdict = excessive
    changes: dict[str, Any] = {"device": MODELLED} if device == "modelled" else {}
    result = only(bench.tune(SQUARE, budget=Budget(evaluations=2), **changes))
    assert result.untuned
    match = re.match(r"the budget ended with (\d+) of (\d+) candidates not tried: none of 2 candidates", result.failure)
    assert match
    assert int(match[2]) - int(match[1]) == 2
    assert "needs 256 registers" in result.failure
    bench.again()
    bench.pool.verdict = excessive
    result = only(bench.tune(SQUARE, **changes))
    assert not result.untuned
    assert result.failure.startswith("none of ")


def test_kernels_that_cannot_be_launched_are_pruned_with_figures(bench: Bench) -> None:
    """CASES C2 and C4: need and limit are named, and nothing is launched."""
    bench.pool.verdict = lambda digest, values: good_binary(digest, registers=256 if values["tile_n"] == 16 else 64)
    bench.tune(SQUARE, strategy="exhaustive")
    assert 16 not in {values["tile_n"] for _, values in bench.gpu.screened}
    with Store.open(bench.folder / "cache") as store:
        pruned = [one for one in store.measurements(bench.key(SQUARE)).values() if one.status == "pruned"]
    assert pruned
    assert all("needs 256 registers" in one.detail and "65536" in one.detail for one in pruned)


def test_when_all_compilations_fail_alike_the_cause_is_told_once(bench: Bench) -> None:
    """CASES C7: stops early, one message, nothing cached."""
    log = 'kt.cu(2): catastrophic error: could not open source file "cuda_fp16.h" (no directories in search list)'
    bench.pool.verdict = lambda digest, values: Binary(digest, error=log)
    with pytest.raises(CompilerUnavailable, match=r"cuda_fp16\.h"):
        bench.tune(SQUARE, TALL, strategy="exhaustive")
    assert bench.pool.compiled <= 2 * bench.pool.per_poll
    assert bench.pool.closed
    assert bench.gpu.closed
    assert bench.stored(SQUARE, partial=True) is None
    with Store.open(bench.folder / "cache") as store:
        assert store.measurements(bench.key(SQUARE)) == {}


def test_a_template_that_serves_one_format_fails_the_other_only(bench: Bench) -> None:
    """CASES F3: fp32 still tunes."""
    text = TEMPLATE.replace(
        "// {{ dtype }}", '{% if dtype == "fp64" %}#include <cuda_missing.h>{% endif %}// {{ dtype }}'
    )
    (bench.folder / "t.cu.j2").write_text(text)
    double = Problem(512, 512, 512, "fp64")
    result = bench.tune(double, SQUARE)
    assert result.shapes[0].best is None
    assert "cuda_missing.h" in result.shapes[0].failure
    assert result.shapes[1].best is not None


def test_a_broken_template_is_told_once_with_its_line(bench: Bench) -> None:
    (bench.folder / "t.cu.j2").write_text("{{ tile_q }}")
    with pytest.raises(InputError, match=r"t\.cu\.j2:1.*tile_q"):
        bench.tune(SQUARE, TALL)
    assert bench.gpu.closed


def test_a_reference_that_nothing_agrees_with_is_suspect(bench: Bench) -> None:
    """CASES D6."""
    bench.gpu.truth = lambda problem, values: Measurement("wrong_result", detail="all elements differ")
    shape = only(bench.tune(SQUARE))
    assert shape.best is None
    assert "the reference is suspect" in shape.failure
    assert len(bench.gpu.screened) < 40
    assert bench.stored(SQUARE, partial=True) is None


def test_one_wrong_kernel_says_nothing_of_the_reference(bench: Bench) -> None:
    bench.gpu.truth = lambda problem, values: Measurement("wrong_result", detail="all elements differ")
    shape = only(bench.tune(SQUARE, budget=Budget(evaluations=1)))
    assert "1 wrong_result; for example: all elements differ" in shape.failure
    assert "suspect" not in shape.failure


def test_a_finalist_that_fails_in_full_makes_room_for_the_next(bench: Bench) -> None:
    """The exact pass of the screening cannot see everything; the full verification decides."""
    screened = FakeGpu()

    class Strict(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            self.truth = lambda problem, values: (
                Measurement("wrong_result", detail="last column") if values["tile_n"] == 128 else bowl(problem, values)
            )
            return super()._refine(message)

    assert screened.truth is bowl
    bench.gpu = Strict()
    best = winner(only(bench.tune(SQUARE)))
    assert best.config.as_dict()["tile_n"] != 128


def test_who_left_the_finals_early_does_not_win_by_the_median_of_cooler_rounds(bench: Bench) -> None:
    """Times are compared within rounds; the order that the rounds gave stands, whatever the medians are."""

    class Throttled(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            reply = super()._refine(message)
            first, *left = reply.measurements
            slow = replace(reply.measurements[first], time_us=10 * (reply.measurements[first].time_us or 0.0))
            return RefineReply({first: slow, **{name: reply.measurements[name] for name in left}}, (), {})

    undisturbed = winner(only(bench.tune(SQUARE)))
    bench.gpu = Throttled()
    best = winner(only(bench.tune(SQUARE, retune=True)))
    assert best.config == undisturbed.config
    assert best.measurement.time_us == pytest.approx(10 * (undisturbed.measurement.time_us or 0.0))


@pytest.mark.parametrize("named", [True, False])
def test_a_finalist_that_ends_the_worker_is_dropped(bench: Bench, named: bool) -> None:
    class Fatal(FakeGpu):
        def _refine(self, message: Refine) -> Any:
            for candidate in message.candidates:
                if values_of(candidate.name)["tile_n"] == 128:
                    raise WorkerDied("crashed", "misaligned address", candidate.name if named else "")
            return super()._refine(message)

    bench.gpu = Fatal()
    shape = only(bench.tune(SQUARE))
    assert winner(shape).config.as_dict()["tile_n"] != 128
    assert shape.statuses["crashed"] >= 1


def test_a_space_that_prunes_to_nothing_is_a_named_failure(bench: Bench) -> None:
    """CASES G11: no entry with an empty configuration."""
    bench.space = bench.load(SPACE.replace("smem_bytes <= 30000", "smem_bytes <= m - 512"))
    result = bench.tune(SQUARE, Problem(65536, 64, 64))
    assert result.shapes[0].best is None
    assert "smem_bytes <= m - 512" in result.shapes[0].failure
    assert "shared memory of one block" in result.shapes[0].failure
    assert result.shapes[1].best is not None
    assert bench.stored(SQUARE, partial=True) is None


def test_a_format_that_no_family_serves_is_a_named_failure(bench: Bench) -> None:
    result = bench.tune(Problem(64, 64, 64, "bf16"), SQUARE)
    assert "no kernel family serves bf16" in result.shapes[0].failure
    assert "simt serves fp32, fp64" in result.shapes[0].failure
    assert result.shapes[1].best is not None


def test_what_nothing_serves_is_not_told_as_cached(bench: Bench) -> None:
    """The observer hears of every shape that has no winner in the cache, also of one that no family serves."""
    unserved = Problem(64, 64, 64, "bf16")
    bench.tune(SQUARE)
    bench.observer.finished.clear()
    result = bench.tune(unserved, SQUARE)
    assert bench.observer.started == (2, 1)
    assert bench.observer.finished == [(unserved, result.shapes[0].failure)]


def test_a_shape_that_does_not_fit_is_refused_with_figures(bench: Bench) -> None:
    """CASES C11: marked without trying; the next one is tuned."""
    huge = Problem(200_000, 200_000, 200_000)
    result = bench.tune(huge, SQUARE)
    assert result.shapes[0].failure.startswith("out of memory: needs 447.0 GiB")
    assert "139.8 GiB" in result.shapes[0].failure
    assert result.shapes[1].best is not None
    assert {problem for problem, _ in bench.gpu.screened} == {SQUARE}


@pytest.mark.parametrize("modelled", [False, True])
def test_the_model_refuses_what_a_measurement_would(bench: Bench, modelled: bool) -> None:
    """What cannot exist on the device is not predicted either; a plan says so too, and nothing is compiled for it."""
    huge, device = Problem(200_000, 200_000, 200_000), replace(catalog()["h200"], modelled=modelled)
    failure = "out of memory: needs 447.0 GiB for its operands; NVIDIA H200 has 139.8 GiB"
    assert only(bench.tune(huge, device=device)).failure == failure
    assert plan(bench.request(huge, device=device)).shapes[0].failure == failure
    assert bench.pool.jobs == []


def test_a_candidate_whose_workspace_does_not_fit_is_not_ranked(bench: Bench) -> None:
    """Operands of 128 GiB fit, slices of further 64 GiB do not: the failure has both figures."""
    bench.space = bench.load(SPACE.replace("split_k: [1, 2, 4]", "split_k: [1, 4]"))
    problem = Problem(65536, 65536, 229376)
    device = replace(catalog()["h200"], modelled=True)
    shape = only(bench.tune(problem, device=device))
    assert winner(shape).config.as_dict()["split_k"] == 1
    with Store.open(bench.folder / "cache") as store:  # as an older kt would have left it
        store.put_best(replace(winner(shape), workspace_bytes=4 * 65536 * 65536 * 4))
    bench.again()
    assert not only(bench.tune(problem, device=device)).cached
    bench.again()
    bench.space = bench.load(SPACE.replace("split_k: [1, 2, 4]", "split_k: [4]").replace("split_k: 1}", "split_k: 4}"))
    shape = only(bench.tune(problem, device=device))
    assert shape.best is None
    assert "out_of_memory" in shape.failure
    assert "needs 128.0 GiB for its operands and 64.0 GiB of workspace; NVIDIA H200 has 139.8 GiB" in shape.failure


def test_the_workers_own_refusal_is_passed_on(bench: Bench) -> None:
    bench.gpu.prepare = lambda problem: (
        Failure("out_of_memory", "needs 30.0 GiB, 12.1 GiB free of 139.8 GiB") if problem == TALL else None
    )
    result = bench.tune(TALL, SQUARE)
    assert result.shapes[0].failure == "out of memory: needs 30.0 GiB, 12.1 GiB free of 139.8 GiB"
    assert result.shapes[1].best is not None


def test_a_worker_that_dies_over_one_shape_costs_that_shape(bench: Bench) -> None:
    deaths: list[Problem] = []

    def prepare(problem: Problem) -> Any:
        if problem == TALL:
            deaths.append(problem)
            return WorkerDied("crashed", "ended by SIGKILL")
        return None

    bench.gpu.prepare = prepare
    result = bench.tune(SQUARE, TALL, ODD)
    assert [bool(shape.best) for shape in result.shapes] == [True, False, True]
    assert "SIGKILL" in result.shapes[1].failure
    assert len(deaths) == 2  # a second chance, and no third


def test_a_worker_that_never_starts_ends_the_run(bench: Bench) -> None:
    bench.gpu.prepare = lambda problem: WorkerDied("crashed", "ended with exit code 1: No module named 'cupy'")
    with pytest.raises(NoUsableGpu, match="No module named 'cupy'") as caught:
        bench.tune(SQUARE, TALL)
    assert caught.value.hint
    assert bench.gpu.closed
    assert bench.pool.closed


def without(kernel: str, *there: str) -> Callable[[str, Values], Binary]:
    """Compilers whose binaries have other kernels than `kernel`."""
    assert kernel not in there
    names = dict.fromkeys(there, 64)
    return lambda digest, values: Binary(digest, f"/cubins/{digest}", names, dict.fromkeys(there, 0), names)


@pytest.mark.parametrize("modelled", [False, True])
def test_a_binary_without_a_kernel_to_launch_is_a_failure_with_names(bench: Bench, modelled: bool) -> None:
    """Nothing is launched, ranked or kept; the cause names the kernel, those that are there, and the source."""
    bench.pool.verdict = without("kt_gemm", "kt_gem", "kt_other")
    with pytest.raises(NoValidConfiguration) as caught:
        bench.tune(SQUARE, device=replace(catalog()["h200"], modelled=modelled))
    assert "no kernel kt_gemm, which `launches` names; its kernels are: kt_gem, kt_other" in caught.value.message
    assert str(bench.folder / "cache" / "failures") in caught.value.message
    assert not bench.gpu.screened
    assert len(bench.pool.jobs) <= 40  # given up, not tried to the end


def test_only_candidates_that_launch_the_missing_kernel_fail(bench: Bench) -> None:
    reduce = '  - {kernel: kt_reduce, when: split_k > 1, grid: "1", block: 128}\nworkspace_bytes'
    bench.space = bench.load(SPACE.replace("workspace_bytes", reduce))
    shape = only(bench.tune(SQUARE))
    assert winner(shape).config.as_dict()["split_k"] == 1
    assert shape.statuses["compile_error"] > 0
    assert {values["split_k"] for _, values in bench.gpu.screened} == {1}


def test_a_finalist_of_an_earlier_run_needs_its_kernels_too(bench: Bench) -> None:
    """Its time is taken over, its binary is not trusted: the launches of the space may have changed."""
    bench.tune(SQUARE, budget=Budget(evaluations=8))
    bench.again()
    bench.pool.verdict = without("kt_gemm", "kt_gem")
    with pytest.raises(NoValidConfiguration, match="no kernel kt_gemm"):
        bench.tune(SQUARE, budget=Budget(evaluations=8))
    assert not bench.gpu.refined
