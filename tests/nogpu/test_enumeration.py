"""Enumeration: the valid configurations and the counts of rejections, equal to brute force, fast, in bounded memory."""

import itertools
import resource
import time
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kt.devices.device import Device
from kt.errors import InputError
from kt.problems import Problem
from kt.search_spaces import masks
from kt.search_spaces.enumeration import MAX_COMBINATIONS, MAX_VALID, Enumeration, enumerate_space
from kt.search_spaces.expression import ExpressionError, parse
from kt.search_spaces.launch import derive, launch_limits, violated
from kt.search_spaces.loader import builtin_spaces, load_space
from kt.search_spaces.names import Names
from kt.search_spaces.space import Constraint, LaunchRule, SearchSpace, Value

DEVICE = Device("test", (9, 0), 132, 2**37, smem_per_block_optin=232448).names()
PROBLEM = Problem(4096, 4096, 4096).names()
SIGNATURE = {name: PROBLEM[name] for name in ("sizeof_in", "sizeof_acc", "layout_a", "dtype")}

GEMM = """\
op: gemm
family: gemm
template: gemm.cu.j2
dtypes: [fp32]
parameters:
  tile_m: [16, 32, 64, 128]
  tile_n: [16, 32, 64, 128]
  tile_k: [16, 32]
  threads_m: [8, 16, 32]
  threads_n: [8, 16, 32]
  load_a: [8, 16, 32]
  load_b: [8, 16, 32]
  vector_m: [1, 2, 4, 8]
  vector_n: [1, 2, 4, 8]
  stride_m: [0, 1]
  stride_n: [0, 1]
  stage_a: [0, 1]
  stage_b: [0, 1]
default: {tile_m: 32, tile_n: 32, tile_k: 16, threads_m: 8, threads_n: 8, load_a: 8, load_b: 8, vector_m: 1,
  vector_n: 1, stride_m: 0, stride_n: 0, stage_a: 0, stage_b: 0}
derived:
  threads: threads_m * threads_n
  smem_bytes: (stage_a * tile_k * tile_m + stage_b * tile_k * tile_n) * sizeof_in
constraints:
  - {require: threads <= 512, reason: threads}
  - {require: tile_m % (threads_m * vector_m) == 0, reason: rows of C}
  - {require: tile_n % (threads_n * vector_n) == 0, reason: columns of C}
  - {require: tile_m % (load_a * vector_m) == 0, reason: rows of A}
  - {require: tile_n % (load_b * vector_n) == 0, reason: columns of B}
  - {require: tile_k % (threads // load_a) == 0, reason: depth of A}
  - {require: tile_k % (threads // load_b) == 0, reason: depth of B}
  - {require: smem_bytes * 2 <= device.smem_per_block_optin // 8, reason: shared memory}
  - {require: tile_m <= m, reason: small problems}
launches:
  - {kernel: gemm, grid: "cdiv(m, tile_m) * cdiv(n, tile_n)", block: threads, smem_bytes: smem_bytes}
"""


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> SearchSpace:
    path = tmp_path_factory.mktemp("space") / "gemm.yaml"
    path.write_text(GEMM)
    return load_space(path)


def make(
    parameters: Mapping[str, tuple[Value, ...]],
    constraints: list[str],
    derived: Mapping[str, str] | None = None,
    runtime: Mapping[str, tuple[Value, ...]] | None = None,
) -> SearchSpace:
    rule = LaunchRule("k", parse(1), parse(32), parse(0), parse(True), parse(False))
    return SearchSpace(
        "gemm", "made", "k.cu.j2", ("fp32",), (7, 5), parameters, runtime or {}, {},
        {name: parse(text) for name, text in (derived or {}).items()},
        tuple(Constraint(parse(text), f"reason {i}") for i, text in enumerate(constraints)), (rule,), parse(0),
    )  # fmt: skip


def brute_force(space: SearchSpace, names: Mapping[str, Any]) -> tuple[list[dict[str, Value]], list[int]]:
    """The valid combinations in order, and the count of each constraint: one combination at a time, in plain Python."""
    offered = {**space.parameters, **space.runtime}
    counts, valid = Counter[int](), []
    for values in itertools.product(*offered.values()):
        choices = dict(zip(offered, values, strict=True))
        lazy = Names({**names, **choices}, space.derived)
        broken = next((i for i, c in enumerate(space.constraints) if not c.require.evaluate(lazy)), None)
        if broken is None:
            valid.append(choices)
        else:
            counts[broken] += 1
    return valid, [counts[i] for i in range(len(space.constraints))]


def counts_of(found: Enumeration) -> dict[str, int]:
    return {row.require: row.count for row in found.rejections + found.problem_rejections}


def check_against_brute_force(space: SearchSpace, names: Mapping[str, Any]) -> Enumeration:
    found = enumerate_space(space, names)
    valid, counts = brute_force(space, names)
    assert [found.config(i).as_dict() for i in range(len(found))] == valid
    assert [counts_of(found)[rule.require.text] for rule in space.constraints] == counts
    assert len(found) + sum(counts) == found.total == space.size
    for name in found.choices:
        assert found.columns[name].tolist() == [choices[name] for choices in valid]
    for name, rule in space.derived.items():
        expected = [rule.evaluate(Names({**names, **choices}, space.derived)) for choices in valid]
        assert found.columns[name].tolist() == expected
    return found


value_lists = st.lists(st.integers(-2, 6), min_size=1, max_size=4, unique=True).map(tuple)
templates = (
    "{a} * {b} <= 6", "{a} % 2 == 0", "{a} + {b} > {c}", "{a} in (0, 2, 4)", "{a} <= d1", "d1 % 3 != 1", "d2 < 20",
    "{a} != 0 and {b} % {a} == 0", "not {a} or d2 // {a} < 3", "k >= {a}", "word == 'x' or {a} > 1", "limit > {a} - 3",
    "{a} == {b} if {c} > 1 else {b} < 4", "{a} * {b} * 2 ** 62 < 2 ** 63", "{b} % {a} == 0", "{a} != 0",
)  # fmt: skip


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    letters = ["p", "q", "r", "s"]
    parameters: dict[str, tuple[Value, ...]] = {name: draw(value_lists) for name in letters[:3]}
    parameters["word"] = draw(st.sampled_from([("x",), ("x", "y"), ("y", "z", "x")]))
    names = st.sampled_from(letters)
    constraints = [
        text.format(a=draw(names), b=draw(names), c=draw(names))
        for text in draw(st.lists(st.sampled_from(templates), max_size=5))
    ]
    derived = {"d1": draw(st.sampled_from(["p + q", "p * 2", "limit", "k - s"])), "d2": "d1 * r + p"}
    return make(parameters, list(dict.fromkeys(constraints)), derived, {"s": draw(value_lists)})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spaces(), st.sampled_from([4, 16, 2**20]), st.sampled_from([1, 16]), st.integers(0, 5))
def test_equals_brute_force(monkeypatch: pytest.MonkeyPatch, space: SearchSpace, block: int, few: int, k: int) -> None:
    """Survivors, order, columns and the count of each constraint are those of plain Python, in blocks of any size."""
    monkeypatch.setattr(masks, "BLOCK", block)
    monkeypatch.setattr(masks, "FEW", few)
    names = {"k": k, "limit": 3}
    try:
        brute_force(space, names)
    except ExpressionError:  # a division by zero that no constraint above keeps from being reached
        with pytest.raises(InputError, match=r"the constraint .* by zero, for "):
            enumerate_space(space, names)
    else:
        check_against_brute_force(space, names)


@settings(max_examples=150, deadline=None)
@given(spaces(), st.data(), st.integers(0, 5))
def test_matching_equals_brute_force(space: SearchSpace, data: st.DataObject, k: int) -> None:
    """The survivors with given choices, whichever parameters are named, are those that a walk over all finds."""
    offered = {**space.parameters, **space.runtime}
    named = data.draw(st.lists(st.sampled_from(list(offered)), unique=True))
    choices = {name: data.draw(st.sampled_from(offered[name])) for name in named}
    try:
        found = enumerate_space(space, {"k": k, "limit": 3})
    except InputError:  # a division by zero
        assume(False)
    expected = [i for i in range(len(found)) if choices.items() <= found.config(i).as_dict().items()]
    assert found.matching(choices).tolist() == expected


def test_matching_of_few_choices_holds_survivors_only(gemm: SearchSpace) -> None:
    """A start may leave nearly everything open: time and memory follow the survivors, not the combinations."""
    wide = replace(gemm, runtime={"split_k": tuple(range(1, 1001)), "group": (1, 2, 4, 8)})
    wide = replace(wide, constraints=(*wide.constraints, Constraint(parse("split_k == 7 and group == 2"), "few")))
    found = enumerate_space(wide, {**DEVICE, **PROBLEM})
    assert found.total > 2**31
    tracemalloc.start()
    try:
        assert len(found.matching({})) == len(found.matching({"group": 2})) == len(found)
        assert len(found.matching({"tile_m": 64, "split_k": 8})) == 0
        assert tracemalloc.get_traced_memory()[1] < 100 * len(found)
    finally:
        tracemalloc.stop()


def test_real_gemm_space_equals_brute_force(gemm: SearchSpace) -> None:
    """A cut of a real GEMM space agrees with brute force."""
    small = {name: values[:2] for name, values in gemm.parameters.items()}
    found = check_against_brute_force(replace(gemm, parameters=small), {**DEVICE, **Problem(20, 64, 64).names()})
    assert all(row.count for row in found.problem_rejections)
    assert 0 < len(found) < found.total


def test_a_real_gemm_space_is_quick(gemm: SearchSpace) -> None:
    """663,552 combinations with the constraints of a real GEMM: the bar is 0.3 s on this project's machine."""
    assert gemm.size == 663_552
    start = time.perf_counter()
    found = enumerate_space(gemm, {**DEVICE, **PROBLEM})
    columns = found.columns
    assert time.perf_counter() - start < 1.5
    assert len(found) == len(columns["threads"]) > 50_000
    assert all(violated(gemm, found.config(i), {**DEVICE, **PROBLEM}) is None for i in range(0, len(found), 5000))


def twelve(constraints: list[str]) -> SearchSpace:
    values = tuple(range(1, 13))
    derived = {"product": "a * b * c * d * e * f * g", "total": "a + b + c + d + e + f + g"}
    return make(dict.fromkeys("abcdefg", values), constraints, derived)


def test_checks_of_single_parameters_cost_nothing_where_they_reject_nothing() -> None:
    """Saying of every parameter what it may be must not unfold all parameters before the first real constraint."""
    space = next(space for space in builtin_spaces() if space.family == "simt")
    offered = {**space.parameters, **space.runtime}
    single = [rule for rule in space.constraints if len(rule.require.names) == 1 and rule.require.names <= set(offered)]
    assert len(single) >= 10
    bare = replace(space, constraints=tuple(rule for rule in space.constraints if rule not in single))
    began = time.process_time()
    found = enumerate_space(space, {**DEVICE, **PROBLEM})
    assert time.process_time() - began < 2.0
    assert len(found) == len(enumerate_space(bare, {**DEVICE, **PROBLEM}))
    texts = {rule.require.text for rule in single}
    assert {row.count for row in found.rejections if row.require in texts} == {0}


def test_seven_parameters_of_twelve_values() -> None:
    """35.8 million combinations with constraints over all parameters: seconds, and memory for the survivors only."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    space = twelve(["product <= 1024", "total % 12 == 0", "product % total == 0"])
    found = enumerate_space(space, {})
    assert time.perf_counter() - start < 10
    assert found.total == 35_831_808
    assert len(found) + sum(counts_of(found).values()) == found.total
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 500 * 1024  # KiB
    sums, products = found.columns["total"], found.columns["product"]
    assert len(found) > 0
    assert ((sums % 12 == 0) & (products % sums == 0) & (products <= 1024)).all()


def test_too_many_valid_combinations_are_refused_with_the_numbers() -> None:
    """Without constraints, seven parameters of twelve values are refused, without holding them."""
    start = time.perf_counter()
    with pytest.raises(InputError, match="made: more than 2,000,000 of 35,831,808 combinations are valid") as caught:
        enumerate_space(twelve(["a < 99"]), {})
    assert "add constraints" in (caught.value.hint or "")
    assert time.perf_counter() - start < 5
    assert MAX_VALID == 2_000_000


def test_huge_products_are_refused_at_once_with_the_number() -> None:
    """A product above the limit is refused before anything is evaluated; the message has both numbers."""
    space = make({name: tuple(range(40)) for name in "abcdef"} | {"g": tuple(range(41))}, ["a == 1"])
    start = time.perf_counter()
    with pytest.raises(
        InputError, match="made: the space has 167,936,000,000 combinations; kt enumerates at most"
    ) as e:
        enumerate_space(space, {})
    assert f"{MAX_COMBINATIONS:,}" in e.value.message
    assert e.value.hint == "shorten its lists of values; the longest is g with 41"
    assert time.perf_counter() - start < 0.1


def test_a_combination_counts_for_the_first_constraint_it_breaks() -> None:
    """The order of the file decides who is charged."""
    values = {"a": (1, 2, 3, 4)}
    first = enumerate_space(make(values, ["a > 1", "a > 2"]), {})
    other = enumerate_space(make(values, ["a > 2", "a > 1"]), {})
    assert [(row.require, row.reason, row.count) for row in first.rejections] == [
        ("a > 1", "reason 0", 1),
        ("a > 2", "reason 1", 1),
    ]
    assert [row.count for row in other.rejections] == [2, 0]


def test_constraints_protect_those_below_them() -> None:
    """A division by zero does no harm if an earlier constraint rejects the combination; else it is named."""
    values = {"tile": (8, 12), "thread": (0, 4, 8)}
    rules = ["thread > 0", "ratio * thread == tile"]
    found = check_against_brute_force(make(values, rules, {"ratio": "tile // thread"}), {})
    assert len(found) == 3
    with pytest.raises(InputError) as caught:
        enumerate_space(make(values, ["tile > 8", *rules[::-1]], {"ratio": "tile // thread"}), {})
    assert caught.value.message == (
        "made: the constraint `ratio * thread == tile`: `tile // thread`: // by zero, for tile=12 thread=0"
    )
    assert "above it" in (caught.value.hint or "")


def test_constraints_on_absent_sizes_are_skipped(gemm: SearchSpace) -> None:
    """Without the problem's sizes, what names them, directly or through a derived quantity, is left out."""
    sized = replace(gemm, derived={**gemm.derived, "tiles": parse("cdiv(m, tile_m)"), "waves": parse("tiles * 2")})
    sized = replace(sized, constraints=(*sized.constraints, Constraint(parse("waves > 3"), "enough waves")))
    without = enumerate_space(sized, {**DEVICE, **SIGNATURE})
    known = enumerate_space(sized, {**DEVICE, **Problem(64, 64, 64).names()})
    assert [row.require for row in without.rejections] == [row.require.text for row in gemm.constraints[:-1]]
    assert without.problem_rejections == ()
    assert [row.require for row in known.problem_rejections] == ["tile_m <= m", "waves > 3"]
    assert known.rejections == without.rejections
    assert len(known) == len(without) - sum(row.count for row in known.problem_rejections)
    assert "waves" in known.columns
    assert "waves" not in without.columns
    assert "threads" in without.columns


def test_a_missing_name_that_is_no_size_is_an_error() -> None:
    """Only sizes may be absent; any other name without a value is named."""
    with pytest.raises(InputError, match=r"device\.l2_bytes has no value"):
        enumerate_space(make({"a": (1, 2)}, ["a < device.l2_bytes"]), {})


def test_cuda_limits_hold_whatever_the_file_says() -> None:
    """A launch beyond CUDA's limits is rejected and counted, though no constraint of the file says so."""
    grid, block = parse("cdiv(m, a) * 4096"), parse("a * 64")
    rule = LaunchRule("k", grid, block, parse("a * 2048"), parse("a"), parse(False))
    space = replace(make({"a": (1, 8, 32)}, []), launches=(rule,))
    names = {**DEVICE, **Problem(1048577, 16, 16).names()}
    found = enumerate_space(space, names)
    assert [found.config(i).as_dict() for i in range(len(found))] == [{"a": 8}]
    assert [(row.reason, row.count) for row in found.problem_rejections] == [
        ("a launch of k has 1 to 2147483647 blocks", 1)
    ]
    assert [(row.reason, row.count) for row in found.rejections] == [("a block of k has 1 to 1024 threads", 1)]
    small = {**names, "device.smem_per_block_optin": 4096}
    assert len(enumerate_space(space, small)) == 0
    assert len(launch_limits(space)) == 4  # with one that the launch, which has a condition, happens


def test_configurations_and_their_places(gemm: SearchSpace) -> None:
    """`index` is the inverse of `config`; what is invalid or not of this space has no place."""
    found = enumerate_space(gemm, {**DEVICE, **PROBLEM})
    for index in (0, 1, len(found) // 2, len(found) - 1):
        config = found.config(index)
        assert found.index(config) == index
        assert all(type(value) is int for value in config.as_dict().values())
        derived = derive(gemm, config, {**DEVICE, **PROBLEM})
        assert {name: column[index] for name, column in found.columns.items()}.items() <= derived.items()
    default = gemm.default_config
    assert found.index(default) is not None
    assert found.index(gemm.config({**gemm.default, "vector_m": 8})) is None
    assert found.index(replace(default, parameters=default.parameters[:-1])) is None
    assert found.index(gemm.config({**gemm.default, "tile_m": 48})) is None


def test_single_values_words_and_empty_results() -> None:
    """Parameters of one value, words, and spaces that prune to nothing are no special cases."""
    found = check_against_brute_force(make({"a": (3,), "w": ("x",)}, ["a == 3", "w == 'x'"], {"d": "a * 2"}), {})
    assert len(found) == 1
    found = check_against_brute_force(make({"w": ("x", "yy"), "a": (1, 2)}, ["w != 'yy' or a == 2"]), {})
    assert found.columns["w"].tolist() == ["x", "x", "yy"]
    found = check_against_brute_force(make({"a": (1, 2), "b": (1, 2)}, ["a > 5"], {"d": "a * b"}), {})
    assert len(found) == 0
    assert found.columns["d"].tolist() == []
    assert found.rejections[0].count == 4


def test_columns_beyond_64_bits_are_exact() -> None:
    """Derived quantities above 2**63 are Python's own integers; the others are int64."""
    space = make({"a": (1, 2)}, [], {"small": "a * 5", "large": "a * m * m * m", "flag": "a > 1", "same": "7"})
    columns = enumerate_space(space, {"m": 2**31 - 1}).columns
    assert columns["large"].tolist() == [(2**31 - 1) ** 3, 2 * (2**31 - 1) ** 3]
    assert columns["small"].dtype == columns["same"].dtype == np.int64
    assert columns["same"].tolist() == [7, 7]
    assert columns["flag"].tolist() == [False, True]


def test_many_parameters(tmp_path: Path) -> None:
    """The most parameters that a file may have are within numpy's limits."""
    values: dict[str, tuple[Value, ...]] = {f"p{i}": (1, 2) if i % 2 else (1,) for i in range(30)}
    found = enumerate_space(make(values, ["p1 == p3", "p5 + p7 + p9 + p11 == 4", "p13 == 1"]), {})
    assert len(found) == 2**15 // 2 // 16 // 2
