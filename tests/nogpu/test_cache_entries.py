"""What listings and exports see: the state of every winner, one pick for each problem, and what is missing and why."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.entries import Entry, entries, lookup, select
from kt.cache.missing import best_for_architecture, differences, missing, near_matches
from kt.cache.ranking import rank
from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.devices.device import DeviceIdentity
from kt.problems import Problem

Make = Callable[..., BestConfig]
NOW = {"simt": "digest-1", "mma": "digest-1"}
H200 = DeviceIdentity("NVIDIA H200", (9, 0), 132, 140)
H100 = DeviceIdentity("NVIDIA H100 80GB HBM3", (9, 0), 132, 80)
H100_PCIE = DeviceIdentity("NVIDIA H100 PCIe", (9, 0), 114, 80)
SLICE = DeviceIdentity("NVIDIA H200", (9, 0), 60, 70)
A100 = DeviceIdentity("NVIDIA A100", (8, 0), 108, 80)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


def test_labels_of_any_length_are_put_in_order(make_winner: Make) -> None:
    """By the size of their numbers, also of such as Python does not make from text."""
    ordered = ["13.9", "13.10", "13.0011", f"13.{'9' * 5000}", f"13.1{'0' * 5000}"]
    found = sorted((make_winner(toolchain=f"nvrtc {one}") for one in reversed(ordered)), key=rank, reverse=True)
    assert [best.key.toolchain for best in found] == [f"nvrtc {one}" for one in ordered]


def put(store: Store, *winners: BestConfig) -> list[Entry]:
    for winner in winners:
        store.put_best(winner)
    return entries(store, NOW)


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({}, "valid", ""),
        ({"complete": False, "tried": 12, "total": 40}, "partial", "12 of 40 tried"),
        ({"predicted": True, "method": "model/1"}, "predicted", ""),
        ({"sources": {"simt": "digest-0"}}, "stale", "template or space of simt changed"),
        ({"sources": {"simt": "digest-1", "mine": "x"}}, "stale", "family mine is not among the present ones"),
        ({"sources": {"simt": "digest-0", "mma": "digest-0"}}, "stale", "template or space of mma, simt changed"),
        ({"sources": {"simt": "digest-0"}, "complete": False}, "stale", "simt changed"),
    ],
)
def test_each_entry_says_its_state_and_why(
    changes: dict[str, object], state: str, reason: str, store: Store, make_winner: Make
) -> None:
    """B11 and staleness: what is not a finished, measured winner of today's sources says so."""
    (entry,) = put(store, make_winner(**changes))
    assert entry.state == state
    assert reason in entry.reason
    assert bool(entry.reason) == bool(reason)


def test_without_current_sources_nothing_is_called_stale(store: Store, make_winner: Make) -> None:
    """Staleness can only be judged against the templates at hand."""
    put(store, make_winner(sources={"simt": "digest-0"}))
    assert [entry.state for entry in entries(store)] == ["valid"]


def test_another_method_or_toolchain_makes_a_measured_entry_stale_where_they_are_known(
    store: Store, make_winner: Make
) -> None:
    """A6: when the way of timing changes, old timings say so; predictions have a method of their own."""
    put(store, make_winner(), make_winner(predicted=True, method="model/1"))
    found = entries(store, NOW, method="graph/2", toolchain="nvrtc 13.5")
    assert [entry.state for entry in found] == ["stale", "predicted"]
    assert found[0].reason == "method was graph/1, is graph/2; toolchain was nvrtc 13.0 -std=c++17, is nvrtc 13.5"


def test_the_order_of_entries_does_not_depend_on_the_order_of_storing(tmp_path: Path, make_winner: Make) -> None:
    """Same cache, same listing: by device, type, layout and size, then by the rule of the pick."""
    winners = [
        make_winner(Problem(m, 64, 64, dtype, layout), device=device)
        for m in (9, 10, 100)
        for dtype in ("bf16", "fp32")
        for layout in ("nn", "tt")
        for device in (H200, H100)
    ]
    listings = []
    for seed in range(3):
        shuffled = random.Random(seed).sample(winners, len(winners))
        with Store.open(tmp_path / str(seed)) as store:
            listings.append([entry.best for entry in put(store, *shuffled)])
    assert listings[0] == listings[1] == listings[2]
    problems = [(best.key.problem.dtype, best.key.problem.layout, best.key.problem.m) for best in listings[0][:4]]
    assert problems == [("bf16", "nn", 9), ("bf16", "nn", 10), ("bf16", "nn", 100), ("bf16", "tt", 9)]


# One pick for each problem and device


def pick(store: Store, *winners: BestConfig, **options: bool) -> list[BestConfig]:
    return [entry.best for entry in select(put(store, *winners), **options).chosen]


def test_complete_goes_before_partial_even_if_slower(store: Store, make_winner: Make) -> None:
    """B8: two entries for one problem, one of an interrupted search and faster."""
    partial = make_winner(time_us=1.0, complete=False, sources={"simt": "digest-1"})
    complete = make_winner(time_us=2.0, sources=NOW)
    assert pick(store, partial, complete) == [complete]


def test_a_partial_winner_counts_unless_excluded(store: Store, make_winner: Make) -> None:
    """A budgeted search has a verified winner too; it is marked, not hidden."""
    partial = make_winner(complete=False)
    assert pick(store, partial) == [partial]
    assert pick(store, partial, partial=False) == []


def test_among_complete_ones_the_fastest_is_picked_and_the_rest_passed_over(store: Store, make_winner: Make) -> None:
    """B8, G6: the pick is one measured entry, and what stands behind it is named."""
    slow, fast = make_winner(time_us=2.0), make_winner(time_us=1.0, sources=NOW, tile_m=128)
    selection = select(put(store, slow, fast))
    assert [entry.best for entry in selection.chosen] == [fast]
    assert [entry.best for entry in selection.passed_over] == [slow]


def test_a_stale_entry_is_never_picked(store: Store, make_winner: Make) -> None:
    """A changed header may have changed what is fastest, or what is right."""
    stale = make_winner(time_us=1.0, sources={"simt": "digest-0"})
    valid = make_winner(time_us=2.0)
    assert pick(store, stale, valid) == [valid]
    assert pick(store, stale, predicted=True) == [valid]


def test_a_prediction_is_picked_only_on_request_and_behind_every_measurement(store: Store, make_winner: Make) -> None:
    """The model's times are not comparable with measured ones."""
    predicted = make_winner(time_us=0.1, predicted=True, method="model/1")
    assert pick(store, predicted) == []
    assert pick(store, predicted, predicted=True) == [predicted]
    measured = make_winner(time_us=9.0, complete=False)
    assert pick(store, predicted, measured, predicted=True) == [measured]


def test_a_partial_prediction_needs_both_permissions(store: Store, make_winner: Make) -> None:
    """A state has one name; the flags still bind separately."""
    predicted = make_winner(predicted=True, method="model/1", complete=False)
    assert pick(store, predicted, predicted=True, partial=False) == []


def test_times_of_unlike_methods_are_not_ranked(store: Store, make_winner: Make) -> None:
    """A6: the later method goes first (10 after 9), however slow; so with toolchains."""
    old = make_winner(time_us=1.0, method="graph/9")
    new = make_winner(time_us=2.0, method="graph/10")
    assert pick(store, new, old) == [new]
    newer = make_winner(time_us=3.0, method="graph/10", toolchain="nvrtc 13.10")
    assert pick(store, newer, make_winner(time_us=1.0, method="graph/10", toolchain="nvrtc 13.9")) == [newer]


def test_problems_that_differ_in_one_field_do_not_hide_each_other(store: Store, make_winner: Make) -> None:
    """G7: near-identical problems each have their own entry, and the exact one is found."""
    base = Problem(64, 64, 64, "fp16")
    changes: list[dict[str, Any]] = [
        {}, {"layout": "nt"}, {"beta": 1.0}, {"out_dtype": "fp32"}, {"base_alignment": 16}, {"lda": 72},
    ]  # fmt: skip
    problems = [replace(base, **change) for change in changes]
    winners = [make_winner(problem, tile_m=index + 1) for index, problem in enumerate(problems)]
    winners += [make_winner(problems[0], device=device, tile_m=99) for device in (H100, SLICE)]
    chosen = pick(store, *winners)
    assert len(chosen) == len(winners)
    for problem, winner in zip(problems, winners, strict=False):
        assert lookup(chosen, problem, H200) == winner
    assert lookup(chosen, Problem(65, 64, 64, "fp16"), H200) is None
    assert lookup(chosen, problems[0], A100) is None


# Damaged entries


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE best SET record = json_remove(record, '$.config.parameters') WHERE id = 1", "config.parameters: miss"),
        ("UPDATE best SET record = json_remove(record, '$.tried') WHERE id = 1", "tried: missing"),
        ("UPDATE best SET record = json_set(record, '$.tried', 'many') WHERE id = 1", "tried: must be a whole number"),
        ("UPDATE best SET record = json_set(record, '$.config.parameters', json('{}')) WHERE id = 1", "is empty"),
        ("UPDATE best SET record = json_set(record, '$.measurement.status', 'fine') WHERE id = 1", "'fine'"),
        ("UPDATE best SET record = json_set(record, '$.measurement.time_us', -1) WHERE id = 1", "time_us: is -1"),
        ("UPDATE best SET record = '[1]' WHERE id = 1", "must be an object, not a list"),
        ("UPDATE best SET record = '{' WHERE id = 1", "cannot be used"),
        ("UPDATE best SET record = x'ff00' WHERE id = 1", "cannot be used"),
        ("UPDATE best SET sources = 'simt' WHERE id = 1", "cannot be used"),
        ("UPDATE keys SET fields = json_set(fields, '$.problem.m', 65) WHERE id = 1", "digest"),
        ("UPDATE keys SET fields = json_set(fields, '$.problem.dtype', 'fp3') WHERE id = 1", "fp3"),
        ("UPDATE keys SET fields = json_set(fields, '$.device.compute_capability', 9) WHERE id = 1", "two whole"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named_and_skipped(
    statement: str, reason: str, store: Store, make_winner: Make
) -> None:
    """G4: one entry with a field missing or unknown costs that entry, with its number and the reason."""
    put(store, make_winner(Problem(64, 64, 64)), make_winner(Problem(32, 32, 32)))
    store.connection.execute(statement)
    assert [entry.best.key.problem.m for entry in entries(store, NOW)] == [32]
    assert str(store.warnings[0]).startswith("cache entry 1")
    assert reason in str(store.warnings[0])
    entries(store, NOW)
    assert len(store.warnings) == 1


def test_an_unreadable_entry_is_not_served(store: Store, make_winner: Make) -> None:
    """C16, G4: the look-up that tuning uses answers "not known", so the shape is tuned again."""
    put(store, make_winner())
    store.connection.execute("UPDATE best SET record = json_remove(record, '$.config.runtime')")
    assert store.best(make_winner().key, {"simt": "digest-1"}) is None


def test_fields_that_a_later_kt_may_add_do_no_harm(store: Store, make_winner: Make) -> None:
    """Within one schema, an unknown field of a record is ignored."""
    put(store, make_winner())
    ((record,),) = store.read("SELECT record FROM best")
    later = json.dumps(json.loads(record) | {"energy_j": 1.5})
    store.connection.execute("UPDATE best SET record = ?", (later,))
    assert store.best(make_winner().key, {"simt": "digest-1"}) == make_winner()


# What is missing


def reasons(store: Store, *problems: Problem, device: DeviceIdentity = H200) -> list[str]:
    return [shape.reason for shape in missing(store, problems, device, NOW)]


def test_missing_shapes_are_listed_with_the_reason(store: Store, make_winner: Make) -> None:
    """G8, G12: a list of shapes against the cache; each that has no usable winner says why."""
    there, stale, guessed, elsewhere, never = (Problem(m, 64, 64) for m in range(1, 6))
    put(
        store,
        make_winner(there),
        make_winner(stale, sources={"simt": "digest-0"}),
        make_winner(guessed, predicted=True, method="model/1"),
        make_winner(elsewhere, device=H100_PCIE),
    )
    assert reasons(store, never, there, stale, guessed, elsewhere) == [
        "never tuned",
        "stale: template or space of simt changed",
        "predicted",
        "tuned for NVIDIA H100 PCIe (sm_90, 114 SMs, 80 GiB): name is not 'NVIDIA H200', 114 SMs instead of 132, "
        "80 GiB instead of 140, same architecture",
    ]


def test_a_partial_winner_is_missing_only_on_request(store: Store, make_winner: Make) -> None:
    """B11: whether an interrupted search counts is the caller's choice."""
    put(store, make_winner(complete=False, tried=3, total=9))
    problem = make_winner().key.problem
    assert missing(store, [problem], H200, NOW) == []
    (shape,) = missing(store, [problem], H200, NOW, partial=False)
    assert shape.reason == "partial: 3 of 9 tried"


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (H200, ""),
        (SLICE, "60 SMs instead of 132, 70 GiB instead of 140, same architecture"),
        (A100, "another architecture"),
    ],
)
def test_devices_say_how_they_differ(other: DeviceIdentity, text: str) -> None:
    """A9, A10: exact or same-architecture is stated, down to the number of SMs."""
    assert differences(other, H200).endswith(text)
    assert bool(differences(other, H200)) == bool(text)


def test_a_near_device_is_offered_only_on_request(store: Store, make_winner: Make) -> None:
    """A9: the look-up is exact; the fallback is a call of its own, and its answer names its device."""
    problem = Problem(64, 64, 64)
    put(store, make_winner(problem, device=H100_PCIE), make_winner(problem, device=A100))
    assert store.best(make_winner(problem).key, {"simt": "digest-1"}) is None
    found = best_for_architecture(store, problem, H200, {"simt": "digest-1"})
    assert found is not None
    assert found.key.device == H100_PCIE
    assert best_for_architecture(store, problem, H200, {"simt": "digest-2"}) is None


def test_the_nearest_device_comes_first(store: Store, make_winner: Make) -> None:
    """Same name, then the nearest number of SMs; other architectures and stale entries never."""
    problem = Problem(64, 64, 64)
    devices = [H100_PCIE, A100, SLICE, H100]
    found = put(store, *(make_winner(problem, device=device, time_us=1.0) for device in devices))
    assert [entry.best.key.device for entry in near_matches(found, problem, H200)] == [SLICE, H100, H100_PCIE]
    stale = entries(store, {"simt": "digest-2"})
    assert near_matches(stale, problem, H200) == []
