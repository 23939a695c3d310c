"""`plan`: the numbers that people decide by before they spend time on a GPU; and the candidates behind them."""

import math
import os
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kt.devices.catalog import catalog
from kt.problems import DTYPES, Problem
from kt.problems.shapes_file import load_shapes
from kt.search_spaces import enumeration
from kt.search_spaces.expression import parse
from kt.search_spaces.loader import builtin_spaces, load_space
from kt.search_spaces.space import Constraint, SearchSpace
from kt.tuner import candidates as candidates_module
from kt.tuner.candidates import Candidates, nothing_valid
from kt.tuner.compilation import Compilation
from kt.tuner.compiled_plan import compile_plan
from kt.tuner.messages import Binary, CompileJob
from kt.tuner.plan import plan
from kt.tuner.request import Budget, TuneRequest
from kt.tuner.searches import LEAST_CANDIDATES

SPACE = """
op: gemm
family: simt
template: t.cu.j2
dtypes: [fp32]
parameters: {tile_m: [16, 32, 64, 128], tile_n: [16, 32, 64], order: [rows, columns]}
runtime: {split_k: [1, 2, 4], raster_group: [1, 8]}
default: {tile_m: 32, tile_n: 32, order: rows, split_k: 1, raster_group: 8}
derived: {smem_bytes: 4 * (tile_m + tile_n) * 32}
constraints:
  - {require: tile_m + tile_n <= 128, reason: shared memory of one block}
  - {require: split_k == 1 or split_k * 32 <= k, reason: every slice needs a step}
  - {require: raster_group == 1 or m > tile_m, reason: there are rows to group}
launches:
  - {kernel: kt_gemm, grid: "cdiv(m, tile_m) * cdiv(n, tile_n) * split_k", block: 128, smem_bytes: smem_bytes}
"""
H200 = catalog()["h200"]
SQUARE = Problem(512, 512, 512)


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "t.cu.j2").write_text(
        '// {{ tile_m }} {{ tile_n }} {{ order }}\nextern "C" __global__ void kt_gemm() {}\n'
    )
    return load_space(tmp_path / "space.yaml")


def request(space: SearchSpace, *problems: Problem, **changes: Any) -> TuneRequest:
    values: dict[str, Any] = {"device": H200, "compilers": 16, "template_dirs": (Path(space.source).parent,)}
    return TuneRequest(problems or (SQUARE,), [space], **(values | changes))


def test_the_counts_add_up(space: SearchSpace) -> None:
    shape = plan(request(space)).shapes[0]
    (family,) = shape.families
    assert family.combinations == 4 * 3 * 2 * 3 * 2
    assert family.combinations - sum(row.count for row in family.rejections) == family.valid == shape.valid
    assert family.rejections[0].reason == "shared memory of one block"
    assert family.binaries == 2 * 9  # of 12 tile shapes, three are too large
    assert shape.best is not None
    assert shape.predicted_us is not None
    assert shape.floor.us <= shape.predicted_us


def test_each_shape_has_its_own_counts(space: SearchSpace) -> None:
    shapes = plan(request(space, SQUARE, Problem(512, 512, 32), Problem(16, 512, 512))).shapes
    assert shapes[1].valid == shapes[0].valid / 3  # no split-K
    assert shapes[2].valid < shapes[0].valid


def test_a_shape_without_candidates_says_why(space: SearchSpace) -> None:
    none = plan(request(replace(space, parameters={**space.parameters, "tile_m": (256,)})))
    assert none.shapes[0].valid == 0
    assert "shared memory of one block" in none.shapes[0].failure
    unserved = plan(request(space, Problem(64, 64, 64, "fp64"))).shapes[0]
    assert unserved.failure == "no kernel family serves fp64: simt serves fp32"


def test_a_family_that_needs_a_newer_gpu_is_named_with_what_it_needs(space: SearchSpace) -> None:
    """Where nothing serves a format here, and where what is left of the families has no valid configuration."""
    newer = replace(space, family="mma", min_compute_capability=(10, 0))
    impossible = replace(space, parameters={**space.parameters, "tile_m": (256,)})
    unserved = plan(replace(request(space), spaces=[newer])).shapes[0].failure
    need = "mma serves fp32 from compute capability 10.0 on"
    assert unserved == f"no kernel family serves fp32 on compute capability 9.0: {need}"
    nothing = plan(replace(request(space), spaces=[impossible, newer])).shapes[0].failure
    assert nothing.endswith(f"(shared memory of one block); on newer GPUs {need}")


@pytest.mark.parametrize("key", ["t4", "a100"])
def test_what_a_newer_gpu_needs_is_what_its_constraints_ask_for(key: str) -> None:
    """Of a format that a family serves from a later capability on than others, or on one alone."""
    asked = TuneRequest([Problem(512, 512, 512, "fp8_e4m3")], list(builtin_spaces()), catalog()[key])
    found = plan(asked).shapes[0].failure
    needs = [f"{family} serves fp8_e4m3 from compute capability 8.9 on" for family in ("mma", "skinny")]
    assert all(need in found for need in needs)
    assert "wgmma serves fp8_e4m3 on compute capability 9.0" in found
    assert "8.0" not in found


def test_a_family_for_older_gpus_only_is_not_offered_for_newer_ones(space: SearchSpace) -> None:
    old = replace(space, constraints=(Constraint(parse("device.compute_capability < 80"), "old"), *space.constraints))
    found = plan(request(old)).shapes[0].failure
    assert found.startswith("none of")
    assert "newer GPUs" not in found


def test_shapes_of_one_signature_share_kernels(space: SearchSpace) -> None:
    one = plan(request(space, strategy="exhaustive")).kernels
    two = plan(request(space, SQUARE, Problem(1024, 1024, 1024), strategy="exhaustive")).kernels
    assert two == one
    assert plan(request(space, SQUARE, Problem(511, 509, 503), strategy="exhaustive")).kernels == 2 * one


def test_the_estimate_grows_with_the_work_and_keeps_to_the_budget(space: SearchSpace) -> None:
    small, large = (plan(request(space, Problem(size, size, size))).seconds for size in (512, 16384))
    assert small < large
    assert plan(request(space, Problem(16384, 16384, 16384), budget=Budget(seconds=3.0))).seconds == 3.0
    assert plan(request(space, budget=Budget(evaluations=7))).shapes[0].evaluations == 7


def test_a_shape_of_long_runs_is_planned_with_as_few_candidates_as_it_is_tuned_with(space: SearchSpace) -> None:
    """A run bounds the GPU time of one shape; so does the plan, unless a person says how many candidates."""
    assert plan(request(space)).shapes[0].evaluations > LEAST_CANDIDATES
    huge = Problem(65536, 65536, 65536)
    assert plan(request(space, huge)).shapes[0].evaluations == LEAST_CANDIDATES
    assert plan(request(space, huge, budget=Budget(evaluations=70))).shapes[0].evaluations == 70


def test_a_list_of_candidates_is_compiled_whole(space: SearchSpace) -> None:
    """Exhaustive and random compile every binary, as far as the budget goes; it does not matter that they hand out
    their candidates in batches."""
    for strategy in ("exhaustive", "random"):
        assert plan(request(space, strategy=strategy)).kernels == 2 * 9
        assert plan(request(space, strategy=strategy, budget=Budget(evaluations=7))).kernels == 7
    builtin = TuneRequest([SQUARE], builtin_spaces(), H200, strategy="exhaustive")
    planned = plan(builtin)
    assert planned.kernels == sum(family.binaries for family in planned.shapes[0].families) > 10_000


def test_a_budget_of_candidates_bounds_the_kernels(space: SearchSpace) -> None:
    assert plan(request(space, budget=Budget(evaluations=7))).kernels <= 7


def test_more_compilers_take_less_time() -> None:
    few, many = (
        plan(TuneRequest([SQUARE], builtin_spaces(), H200, compilers=compilers)).seconds for compilers in (2, 16)
    )
    assert 4 < few / many <= 8


def test_the_estimate_is_right_to_a_factor_of_two() -> None:
    """The run that the constants come from: 44 shapes on an H200 with 16 compilers took 286 s and 4,033 kernels."""
    shapes = load_shapes(Path(__file__).parents[2] / "benchmarks" / "bench.yaml", dtype="fp32")
    assert len(shapes) == 44
    planned = plan(TuneRequest(shapes, builtin_spaces(), H200, compilers=16))
    assert 0.5 < planned.seconds / 286 < 2
    assert 0.5 < planned.kernels / 4033 < 2
    assert 0.8 < sum(shape.evaluations for shape in planned.shapes) / (44 * 105) < 1.25


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The thread and the m of each enumeration."""
    seen: list[tuple[int, int]] = []

    def enumerate_space(space: SearchSpace, names: dict[str, Any]) -> Any:
        seen.append((threading.get_ident(), names["m"]))
        time.sleep(0.01)  # in which other threads begin
        return enumeration.enumerate_space(space, names)

    monkeypatch.setattr(candidates_module, "enumerate_space", enumerate_space)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    return seen


SHAPES = [Problem(m, 512, 512) for m in range(1, 25)]


def test_shapes_are_looked_at_once_each_and_several_together(space: SearchSpace, looks: list[tuple[int, int]]) -> None:
    """A plan of thousands of shapes uses the cores there are; what it says is in the order of the shapes."""
    counted: list[int] = []
    planned = plan(request(space, *SHAPES), done=counted.append)
    assert sorted(m for _, m in looks) == [problem.m for problem in SHAPES]
    assert len({thread for thread, _ in looks}) == 4
    assert [shape.problem for shape in planned.shapes] == SHAPES
    assert counted == list(range(1, 25))
    assert list(planned.shapes) == [plan(request(space, problem)).shapes[0] for problem in SHAPES]


def test_a_plan_that_is_interrupted_looks_at_no_further_shape(space: SearchSpace, looks: list[tuple[int, int]]) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    many = [Problem(m, 512, 512) for m in range(1, 401)]
    with pytest.raises(KeyboardInterrupt):
        plan(request(space, *many), done=stop)
    assert len(looks) < 200


def test_what_is_compiled_is_not_enumerated_again(
    space: SearchSpace, looks: list[tuple[int, int]], tmp_path: Path
) -> None:
    asked = request(space, *SHAPES[:3])
    compiled = compile_plan(asked, plan(asked, shortlist=2), Compilation("sm_90a", Compilers, (tmp_path,)))
    assert {one.problem for one in compiled.configs} == set(SHAPES[:3])
    assert len(looks) == 3


class Compilers:
    """Compilers that answer at once: 64 registers, and spills for tiles of 64 columns."""

    compiled = 0

    def __init__(self) -> None:
        self.jobs: list[CompileJob] = []

    @property
    def pending(self) -> int:
        return len(self.jobs)

    @property
    def connections(self) -> list[Connection]:
        return []

    def start(self, jobs: int | None) -> None: ...

    def submit(self, job: CompileJob) -> None:
        self.jobs.append(job)

    def poll(self, timeout: float = 0.0) -> list[Binary]:
        done, self.jobs = self.jobs, []
        return [self._binary(job) for job in done]

    def _binary(self, job: CompileJob) -> Binary:
        _, tile_m, tile_n, _ = job.source.split()[:4]
        if tile_m == "16":
            return Binary(job.digest, error="t.cu(1): error: too small")
        return Binary(job.digest, "/x", {"kt_gemm": 64}, {"kt_gemm": 8 * (tile_n == "64")}, {"kt_gemm": 0})

    def cancel_pending(self) -> None: ...
    def close(self) -> None: ...


def test_compiled_configurations_show_what_the_compiler_said(space: SearchSpace, tmp_path: Path) -> None:
    compilation = Compilation("sm_90a", Compilers, (tmp_path,))
    asked = request(space)
    rows = compile_plan(asked, plan(asked, shortlist=100), compilation).configs
    assert len({row.config.parameters for row in rows}) == compilation.asked == 2 * 9
    for row in rows:
        values = row.config.as_dict()
        if values["tile_m"] == 16:
            assert row.verdict == "too small"
            continue
        assert row.smem_bytes == 4 * (int(values["tile_m"]) + int(values["tile_n"])) * 32
        assert row.blocks_per_sm == min(2048 // 128, 65536 // (64 * 128), 233472 // (row.smem_bytes + 1024))
        assert row.occupancy == row.blocks_per_sm * 128 / 2048
        assert row.limiter in {"registers", "shared memory"}
        assert ("spill" in row.verdict) == (values["tile_n"] == 64)
        candidates = Candidates(SQUARE, H200, [space])
        number = candidates.find(row.config)
        assert number is not None
        assert row.predicted_us == candidates.predicted_us(number, 64)


def test_the_built_in_space_is_planned_in_less_than_a_second() -> None:
    began = time.process_time()
    planned = plan(TuneRequest([Problem(4096, 4096, 4096)], builtin_spaces(), H200))
    assert time.process_time() - began < 1.0
    assert planned.shapes[0].valid > 1000


# Candidates


def test_candidates_are_numbered_and_found_again(space: SearchSpace) -> None:
    candidates = Candidates(SQUARE, H200, [space])
    assert [candidates.find(candidates.config(number)) for number in range(len(candidates))] == list(
        range(len(candidates))
    )
    assert candidates.find(space.config({**space.default, "tile_m": 128})) is None
    assert candidates.config(candidates.defaults[0]) == space.default_config


def test_candidates_of_several_families_are_kept_apart(space: SearchSpace) -> None:
    other = replace(space, family="other")
    candidates = Candidates(SQUARE, H200, [space, other])
    half = len(candidates) // 2
    assert {candidates.config(number).family for number in range(half)} == {"simt"}
    assert {candidates.config(number).family for number in range(half, 2 * half)} == {"other"}
    assert [candidates.config(number).family for number in candidates.defaults] == ["simt", "other"]
    everything = candidates.everything()
    assert not set(everything.binary[:half]) & set(everything.binary[half:])
    assert set(candidates.near(half, 2).family) == {1}


def test_a_family_without_valid_configurations_does_not_disturb_the_others(space: SearchSpace) -> None:
    none = replace(space, family="none", constraints=(Constraint(parse("tile_m > 999"), "nothing"),))
    candidates = Candidates(SQUARE, H200, [none, space])
    assert len(candidates) == len(Candidates(SQUARE, H200, [space]))
    assert {candidates.config(number).family for number in candidates.sample.numbers} == {"simt"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_that_a_shapes_file_knows_has_a_plan(dtype: str) -> None:
    """With any accumulator: where a family takes none of it, the plan says so and goes on."""
    for accumulator in DTYPES[dtype].accumulators:
        planned = plan(
            TuneRequest([Problem(64, 64, 64, dtype, accumulator=accumulator)], builtin_spaces(), H200, compilers=16)
        )
        assert len(planned.shapes) == 1


def test_near_is_what_brute_force_finds(space: SearchSpace) -> None:
    candidates = Candidates(SQUARE, H200, [space])
    digits = candidates.everything().digits
    for number in (0, len(candidates) // 2, len(candidates) - 1):
        for parameters in (1, 2):
            steps = np.abs(digits - digits[number])
            expected = (steps.max(axis=1) == 1) & (np.count_nonzero(steps, axis=1) <= parameters)
            assert set(candidates.near(number, parameters).numbers) == set(np.flatnonzero(expected))


def test_a_large_space_is_sampled_and_the_sample_is_always_the_same(
    space: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates_module, "SAMPLE", 20)
    candidates = Candidates(SQUARE, H200, [space])
    assert len(candidates.sample) == 20 < len(candidates)
    assert candidates.sample.numbers.tolist() == Candidates(SQUARE, H200, [space]).sample.numbers.tolist()
    everything = candidates.everything()
    rows = candidates.sample.numbers
    assert (candidates.sample.predicted == everything.predicted[rows]).all()
    assert (candidates.sample.binary == everything.binary[rows]).all()


def test_a_default_gives_way_in_its_run_time_choices(space: SearchSpace) -> None:
    """With one tile row there is nothing to group: the default's kernel is compared with other arguments."""
    candidates = Candidates(Problem(16, 512, 512), H200, [space])
    found = candidates.config(candidates.defaults[0]).as_dict()
    assert found == {**space.default, "raster_group": 1}


def test_a_default_that_is_not_valid_at_all_is_none(space: SearchSpace) -> None:
    narrow = replace(space, parameters={**space.parameters, "tile_m": (64,)})
    assert Candidates(SQUARE, H200, [narrow]).defaults == ()


def test_the_message_for_nothing_valid_names_the_constraints_that_reject_most(space: SearchSpace) -> None:
    narrow = replace(space, parameters={**space.parameters, "tile_m": (256,)})
    text = nothing_valid(Candidates(SQUARE, H200, [narrow]))
    assert text.startswith("none of 36 configurations is valid: 36 by `tile_m + tile_n <= 128`")


def test_what_takes_the_rest_of_several_families_is_told_once(space: SearchSpace) -> None:
    """With how many it takes of each; a family's own constraint is told with its name."""
    first = replace(space, constraints=(Constraint(parse("m < 64"), "mine"),))
    total = math.prod(map(len, space.parameters.values())) * math.prod(map(len, space.runtime.values()))
    text = nothing_valid(Candidates(SQUARE, H200, [first, replace(first, family="other")]))
    assert text == (
        f"none of {2 * total} configurations is valid: "
        f"{total} of {space.family} and {total} of other by `m < 64` (mine)"
    )
    other = replace(first, family="other", constraints=(Constraint(parse("n < 64"), "yours"),))
    text = nothing_valid(Candidates(SQUARE, H200, [first, other]))
    assert text.endswith(
        f"valid: the last {total} of {space.family} by `m < 64` (mine); the last {total} of other by `n < 64` (yours)"
    )


def test_the_message_for_nothing_valid_begins_with_the_constraint_that_decides(space: SearchSpace) -> None:
    """What took the rest: however little that is, without it there would be something."""
    rules = [f"tile_m != {value}" for value in (16, 32, 64)] + ["tile_n != 16", "tile_n != 32", "m < 64", "m > 1"]
    narrow = replace(space, constraints=tuple(Constraint(parse(text), "mine") for text in rules))
    assert nothing_valid(Candidates(SQUARE, H200, [narrow])) == (
        "none of 144 configurations is valid: the last 12 by `m < 64` (mine); before, 36 by `tile_m != 16` (mine); "
        "36 by `tile_m != 32` (mine); 36 by `tile_m != 64` (mine)"
    )
