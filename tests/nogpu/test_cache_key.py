"""What identifies a tuned result: every field that could change the winner is in the key, and nothing else is."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kt.cache.key import key_digest, key_fields, problem_digest
from kt.cache.records import BestConfig
from kt.devices.device import DeviceIdentity
from kt.problems import Problem

Make = Callable[..., BestConfig]
BASE = Problem(512, 512, 512, dtype="fp16", batch=2)

PROBLEM_CHANGES: dict[str, Any] = {
    "m": 513, "n": 511, "k": 510, "dtype": "bf16", "layout": "nt", "batch": 3, "lda": 520, "ldb": 520, "ldc": 520,
    "stride_a": 999999, "stride_b": 999999, "stride_c": 999999, "alpha": 1.5, "beta": 1.0, "accumulator": "fp16",
    "out_dtype": "fp32", "base_alignment": 16,
}  # fmt: skip
DEVICE_CHANGES: dict[str, Any] = {
    "name": "NVIDIA H100",
    "compute_capability": (10, 0),
    "sm_count": 66,
    "memory_gib": 79,
}


@pytest.mark.parametrize("name", PROBLEM_CHANGES)
def test_every_field_of_the_problem_is_part_of_the_key(name: str, make_winner: Make) -> None:
    """A1, A2, A3: a problem that differs in one field is another problem, on disk as in memory."""
    dense = {"lda": 0, "ldb": 0, "ldc": 0, "stride_a": 0, "stride_b": 0, "stride_c": 0, "out_dtype": ""}
    changed = Problem(**(BASE.as_dict() | dense | {name: PROBLEM_CHANGES[name]}))
    assert key_digest(make_winner(changed).key) != key_digest(make_winner(BASE).key)
    assert problem_digest(changed) != problem_digest(BASE)


def test_the_changes_above_cover_every_field_of_a_problem() -> None:
    """A field that is added to `Problem` must be added to the key's test; `epilogue` has one value so far."""
    assert set(PROBLEM_CHANGES) | {"epilogue"} == {field.name for field in dataclasses.fields(Problem)}
    assert set(DEVICE_CHANGES) == {field.name for field in dataclasses.fields(DeviceIdentity)}


@pytest.mark.parametrize("name", DEVICE_CHANGES)
def test_every_field_of_the_device_identity_is_part_of_the_key(name: str, make_winner: Make) -> None:
    """A10: a MIG slice or a cut-down card of the same name is another device."""
    key = make_winner(BASE).key
    other = dataclasses.replace(key.device, **{name: DEVICE_CHANGES[name]})
    assert key_digest(dataclasses.replace(key, device=other)) != key_digest(key)


@pytest.mark.parametrize("name", ["toolchain", "method"])
def test_toolchain_and_method_are_part_of_the_key(name: str, make_winner: Make) -> None:
    """A6: timings taken in another way, or of code from another compiler, are other results."""
    key = make_winner(BASE).key
    changes: dict[str, Any] = {name: "another"}
    assert key_digest(dataclasses.replace(key, **changes)) != key_digest(key)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"alpha": 1.5}, {"alpha": -2.0}, True),
        ({"alpha": 1.0}, {"alpha": 1.5}, False),
        ({"beta": 0.5}, {"beta": 3.0}, True),
        ({"beta": 0.0}, {"beta": -0.0}, True),
        ({"beta": 0.0}, {"beta": 1.0}, False),
        ({"beta": 1.0}, {"beta": 0.5}, False),
    ],
)
def test_alpha_and_beta_count_by_use(first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    """A kernel's speed does not depend on the value of a scalar, only on whether it is zero or one."""
    digests = {problem_digest(Problem(64, 64, 64, **scalars)) for scalars in (first, second)}
    assert (len(digests) == 1) == same


def test_the_fields_are_readable_and_name_everything(make_winner: Make) -> None:
    """The key is stored as plain values beside its digest, so that people can tell keys apart."""
    fields = key_fields(make_winner(Problem(1, 2, 3, alpha=1.5, beta=0.5)).key)
    assert fields["problem"]["m"] == 1
    assert (fields["problem"]["alpha"], fields["problem"]["beta"]) == ("other", "other")
    assert fields["device"] == {
        "name": "NVIDIA H200",
        "compute_capability": [9, 0],
        "sm_count": 132,
        "memory_gib": 140,
    }
    assert (fields["toolchain"], fields["method"]) == ("nvrtc 13.0 -std=c++17", "graph/1")


def test_spelled_out_defaults_are_the_same_key() -> None:
    """Dense leading dimensions written out, or left to kt, are one problem."""
    short = Problem(64, 32, 16, layout="tn")
    assert problem_digest(short) == problem_digest(Problem(**short.as_dict()))


def test_the_digest_is_stable_across_releases(make_winner: Make) -> None:
    """A change of this digest orphans every cache: it must be a decision, with a schema upgrade."""
    key = make_winner(Problem(512, 512, 512)).key
    assert key_digest(key) == "749aff203f61ffa46d0e40f67401a24f6b7f92a7d88199b8aea13e67de7361ea"
