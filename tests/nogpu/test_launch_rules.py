"""One configuration: what it derives, launches and breaks."""

import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.devices.catalog import modelled
from kt.devices.device import Device
from kt.errors import InputError
from kt.problems import Problem
from kt.search_spaces.enumeration import enumerate_space
from kt.search_spaces.expression import Expression, ExpressionError, parse
from kt.search_spaces.launch import (
    decided_by_parameters,
    derive,
    first_broken,
    launch_limits,
    launchable,
    resolve,
    violated,
)
from kt.search_spaces.loader import builtin_spaces, load_space
from kt.search_spaces.space import Config, Constraint, Launch, SearchSpace

SPACE = """\
op: gemm
family: sample
template: sample.cu.j2
dtypes: [fp32]
parameters: {tile: [16, 32, 64, 128], stages: [1, 2, 4], order: [row, column]}
runtime: {split_k: [1, 2, 4]}
default: {tile: 32, stages: 1, order: row, split_k: 1}
derived: {smem_bytes: stages * 2 * tile * 32 * sizeof_in, tiles: "cdiv(m, tile) * cdiv(n, tile)"}
constraints:
  - {require: tile != 64 or stages > 1, reason: one stage is slow}
  - {require: smem_bytes <= device.smem_per_block_optin, reason: shared memory of one block}
  - {require: split_k <= k, reason: every split has work}
launches:
  - {kernel: gemm, grid: tiles * split_k * batch, block: tile * 8, smem_bytes: smem_bytes}
  - {kernel: reduce, when: split_k > 1 and order == "row", grid: "cdiv(m * n, 256)", block: 256}
workspace_bytes: (split_k > 1) * split_k * batch * m * n * sizeof_acc
"""
DEVICE = Device("test", (8, 0), 108, 2**35, smem_per_block_optin=65536)


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    (tmp_path / "space.yaml").write_text(SPACE)
    return load_space(tmp_path / "space.yaml")


def names(m: int = 100, n: int = 50, k: int = 64, **more: Any) -> dict[str, Any]:
    return {**DEVICE.names(), **Problem(m, n, k, **more).names()}


def config(space: SearchSpace, **values: Any) -> Config:
    return space.config({**space.default, **values})


def test_launches_and_workspace(space: SearchSpace) -> None:
    """Launches are numbers, in order, those only whose `when` holds; the workspace is in bytes."""
    launches, workspace = resolve(space, config(space), names())
    assert launches == (Launch("gemm", 4 * 2, 256, 8192),)
    assert workspace == 0
    launches, workspace = resolve(space, config(space, split_k=4, stages=2), names(batch=3))
    assert launches == (Launch("gemm", 8 * 4 * 3, 256, 16384), Launch("reduce", 20, 256, 0))
    assert workspace == 4 * 3 * 100 * 50 * 4
    assert [launch.kernel for launch in resolve(space, config(space, split_k=4, order="column"), names())[0]] == [
        "gemm"
    ]
    assert all(type(value) in (int, bool) for value in vars(launches[0]).values() if not isinstance(value, str | tuple))


def test_a_kernel_is_launchable_unless_no_run_time_value_asks_for_it(space: SearchSpace) -> None:
    chosen = config(space)
    both = launchable(space, chosen)
    assert both == {rule.kernel for rule in space.launches}
    assert len(both) == 2
    assert launchable(replace(space, runtime={"split_k": (1,)}), chosen) == both - {"reduce"}
    of_the_problem = replace(space.launches[1], when=parse("m > 10 ** 9"))
    assert "reduce" in launchable(replace(space, launches=(space.launches[0], of_the_problem)), chosen)


def test_what_constraints_forbid_is_not_launchable(space: SearchSpace) -> None:
    """With what is known of the formats; a constraint of the problem's sizes, or without a value, forbids nothing."""
    chosen = config(space)

    def left(text: str, names: dict[str, Any]) -> bool:
        rules = (*space.constraints, Constraint(parse(text), "a reason"))
        return "reduce" in launchable(replace(space, constraints=rules), chosen, names)

    wide = "sizeof_in < 4 or split_k == 1"
    assert [left(wide, {"sizeof_in": size}) for size in (2, 4)] == [True, False]
    assert left(wide, {})
    assert left("k < 4096 or split_k == 1", {"sizeof_in": 4})
    assert left("tile // (stages - 1) > split_k", {"sizeof_in": 4})


def test_sizes_beyond_32_bits_are_exact(space: SearchSpace) -> None:
    """A workspace above 2**63 bytes is an exact number, not a wrapped one."""
    huge = names(2**31 - 1, 2**31 - 1, batch=2)
    with pytest.raises(InputError, match="gemm cannot be launched"):
        resolve(space, config(space, split_k=2), huge)
    _, workspace = resolve(space, config(space, split_k=2, tile=128, order="column"), names(2**20, 2**20))
    assert workspace == 2 * 2**40 * 4


def test_derive_has_every_name(space: SearchSpace) -> None:
    """`derive` gives parameters, derived quantities and given names; without sizes it leaves out what needs them."""
    values = derive(space, config(space), names())
    assert values == {**names(), **space.default, "smem_bytes": 8192, "tiles": 8}
    values = derive(space, config(space), {**DEVICE.names(), "sizeof_in": 4})
    assert values["smem_bytes"] == 8192
    assert "tiles" not in values


def test_violated_names_the_first_broken_constraint(space: SearchSpace) -> None:
    """A stored configuration is checked again where it is used: on this problem and this device."""
    assert violated(space, config(space), names()) is None
    broken = violated(space, config(space, tile=64, split_k=4), names(k=2))
    assert broken is not None
    assert broken.reason == "one stage is slow"
    broken = violated(space, config(space, tile=128, stages=4), names())
    assert broken is not None
    assert broken.reason == "shared memory of one block"
    larger = Device("larger", (9, 0), 132, 2**37, smem_per_block_optin=232448).names()
    assert violated(space, config(space, tile=128, stages=4), {**names(), **larger}) is None
    broken = violated(space, config(space, split_k=4), names(k=2))
    assert broken is not None
    assert broken.reason == "every split has work"
    assert violated(space, config(space, split_k=4), {**DEVICE.names(), "sizeof_in": 4}) is None


def test_violated_includes_cuda_limits(space: SearchSpace) -> None:
    """A grid beyond CUDA's limit is found although no constraint of the file names it."""
    broken = violated(space, config(space, tile=16), names(2**21, 2**21))
    assert broken is not None
    assert broken.reason == "a launch of gemm has 1 to 2147483647 blocks"
    with pytest.raises(InputError, match="gemm cannot be launched with 17179869184 blocks of 128 threads") as caught:
        resolve(space, config(space, tile=16), names(2**21, 2**21))
    assert "add a constraint" in (caught.value.hint or "")
    assert violated(space, config(space, tile=128), names(2**20, 2**20)) is None


@pytest.mark.parametrize(
    ("place", "expression", "problem"),
    [
        ("workspace_bytes", "m // 0", "`m // 0`: // by zero"),
        ("programmatic", "m % (split_k - 1) == 0", "`m % (split_k - 1) == 0`: % by zero"),
        ("when", "1 // (split_k - 1) == 0", "`1 // (split_k - 1) == 0`: // by zero"),
    ],
)
def test_what_has_no_value_is_told_with_its_file(space: SearchSpace, place: str, expression: str, problem: str) -> None:
    """No constraint stands before these, so the enumeration has not met them."""
    without = parse(expression)
    changed = {
        "workspace_bytes": replace(space, workspace_bytes=without),
        "programmatic": replace(space, launches=(replace(space.launches[0], programmatic=without),)),
        "when": replace(space, launches=(replace(space.launches[0], when=without),)),
    }
    space = changed[place]
    with pytest.raises(InputError) as caught:
        resolve(space, config(space), names())
    assert caught.value.message.startswith(f"{space.source}: {problem} for sample tile=32")
    if place == "when":
        with pytest.raises(InputError, match=re.escape(f"{space.source}: {problem} for sample tile=32")):
            launchable(space, config(space))


def test_violated_agrees_with_the_enumeration(space: SearchSpace) -> None:
    """A configuration is valid alone exactly where it is among the enumerated ones."""
    for problem in (names(), names(k=2), names(2**21, 2**21)):
        found = enumerate_space(space, problem)
        for tile in space.parameters["tile"]:
            for stages in space.parameters["stages"]:
                for split_k in space.runtime["split_k"]:
                    choice = config(space, tile=tile, stages=stages, split_k=split_k)
                    assert (violated(space, choice, problem) is None) == (found.index(choice) is not None)


@pytest.mark.parametrize("builtin", builtin_spaces(), ids=lambda space: space.family)
def test_violated_is_the_first_of_all_constraints_and_limits(builtin: SearchSpace) -> None:
    """Whatever is done to be quick: the answer is that of asking every constraint in turn, for all kinds of choices."""
    device = modelled("h200") if builtin.family == "wgmma" else DEVICE
    offered = {**builtin.parameters, **builtin.runtime}
    chance = random.Random(1)
    problems = [
        Problem(m, 768, 512, builtin.dtypes[0], layout) for m in (1, 4096, 2**31 - 1) for layout in ("nn", "tt")
    ]
    answers = set()
    for turn in range(400):
        values = {name: chance.choice(offered[name]) for name in offered}
        choice = builtin.config(
            values if turn % 2 else {**builtin.default, **dict(chance.sample([*values.items()], 2))}
        )
        given = {**device.names(), **chance.choice(problems).names()}
        expected = first_broken(builtin, builtin.constraints + launch_limits(builtin), choice.as_dict(), given)
        assert violated(builtin, choice, given) == expected
        answers.add(expected)
    assert len(answers) > 5


def test_limits_of_launches_are_told_as_before(space: SearchSpace) -> None:
    """Each limit that only CUDA sets is named by its constraint; without sizes, those that need them are skipped."""
    limits = launch_limits(space)
    assert violated(space, config(space, tile=16), names(2**21, 2**21)) == limits[0]
    tall = replace(space, launches=(replace(space.launches[0], block=parse("tile * 64")), space.launches[1]))
    assert violated(tall, config(tall), names()) == launch_limits(tall)[1]
    wide = replace(space, launches=(replace(space.launches[0], smem_bytes=parse("tile * 4096")), space.launches[1]))
    assert violated(wide, config(wide), names()) == launch_limits(wide)[2]
    without = {name: value for name, value in names().items() if name not in ("m", "n")}
    assert violated(space, config(space), without) is None
    assert violated(wide, config(wide), without) == launch_limits(wide)[2]


def test_a_configuration_that_launches_nothing_is_not_valid(space: SearchSpace) -> None:
    """It would compute nothing; where each launch has a condition, that one of them holds is a limit like CUDA's."""
    gemm = replace(space.launches[0], when=parse("order == 'column' and m > 64"))
    some = replace(space, launches=(gemm, space.launches[1]))
    limit = launch_limits(some)[-1]
    assert limit.reason == "some kernel is launched"
    assert limit not in launch_limits(space)
    assert violated(some, config(some), names()) == limit
    assert violated(some, config(some, split_k=2), names()) is None
    column = config(some, order="column")
    assert violated(some, column, names()) is None
    assert violated(some, column, names(m=64)) == limit
    found = enumerate_space(some, names(m=64))
    assert all(resolve(some, found.config(index), names(m=64))[0] for index in range(len(found)))
    assert 0 < len(found) < len(enumerate_space(some, names())) < len(enumerate_space(space, names()))


def test_a_valid_configuration_costs_no_parsing(space: SearchSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up in the cache checks its winner; the limits are put into words only for one that breaks them."""

    def compose(text: str) -> Expression:
        raise AssertionError(text)

    monkeypatch.setattr("kt.search_spaces.launch.compose", compose)
    assert violated(space, config(space, split_k=2), names()) is None


def test_a_configuration_of_another_space_is_named(space: SearchSpace) -> None:
    """A stored configuration that lacks a parameter is refused by name, not an assertion or a default."""
    old = Config("sample", (("tile", 32), ("order", "row")), (("split_k", 1),))
    for use in (derive, resolve, violated):
        with pytest.raises(
            InputError, match="`sample tile=32 order=row split_k=1` has no stages, which the space sample"
        ):
            use(space, old, names())


def test_missing_names_are_named(space: SearchSpace) -> None:
    """Launches need the problem's sizes; the message says which name is missing."""
    with pytest.raises(ExpressionError, match=r"(m|n|batch) has no value"):
        resolve(space, config(space), {**DEVICE.names(), "sizeof_in": 4})


def test_what_parameters_alone_decide(space: SearchSpace) -> None:
    """Constraints that reach problem or device through a derived quantity are not among them."""
    assert [rule.reason for rule in decided_by_parameters(space)] == ["one stage is slow"]


def test_resolving_is_quick(space: SearchSpace) -> None:
    """A thousand candidates are checked and resolved in well under a second."""
    choice, given = config(space, split_k=2), names()
    start = time.perf_counter()
    for _ in range(1000):
        assert violated(space, choice, given) is None
        resolve(space, choice, given)
    assert time.perf_counter() - start < 1.5
