"""Who enters the finals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kt.search_spaces.space import Config
from kt.tuner.winner import (
    FIRST_FINALISTS,
    FURTHER_BELOW_US,
    MOST_FINALISTS,
    OF_A_KIND,
    OF_A_STRUCTURE,
    WITHIN,
    WITHIN_OF_A_KIND,
    finalists,
)


def trials(*times: float, schedules: Sequence[str] = ()) -> list[Any]:
    """In the order of their times; `schedules`: those of the first ones, the others are cooperative."""
    all_schedules = [*schedules, *["cooperative"] * (len(times) - len(schedules))]
    configs = [Config("wgmma", (("schedule", schedule),), (("stream_k", 0),)) for schedule in all_schedules]
    return [
        SimpleNamespace(number=number, time_us=time_us, config=config)
        for number, (time_us, config) in enumerate(zip(times, configs, strict=True))
    ]


def by_tens(numbers: Sequence[int]) -> dict[int, int]:
    return {number: number // 10 for number in numbers}


def test_the_fastest_enter_whatever_they_are_then_a_few_of_each_other_structure() -> None:
    chosen = finalists(trials(*(100 + step / 100 for step in range(60))), set(), by_tens)
    assert [trial.number for trial in chosen[:FIRST_FINALISTS]] == list(range(FIRST_FINALISTS))
    later = Counter(trial.number // 10 for trial in chosen[FIRST_FINALISTS:])
    assert set(later) == {1, 2, 3, 4}
    assert set(later.values()) == {OF_A_STRUCTURE}
    assert len(chosen) == MOST_FINALISTS


def test_long_kernels_have_fewer_finalists() -> None:
    """One run of each finalist takes no longer than a limit, but for the first few."""
    each = FURTHER_BELOW_US / (FIRST_FINALISTS + 2.5)
    assert len(finalists(trials(*[each] * 60), set(), by_tens)) == FIRST_FINALISTS + 2
    assert len(finalists(trials(*[10 * each] * 60), set(), by_tens)) == FIRST_FINALISTS


def test_who_is_far_behind_or_has_failed_stays_out() -> None:
    chosen = finalists(trials(90.0, 100.0, 100.0 * WITHIN, 100.0 * WITHIN + 1), {0}, by_tens)
    assert [trial.number for trial in chosen] == [1, 2]


def test_a_kind_that_the_screening_puts_behind_enters_all_the_same() -> None:
    """By its best few, before others of the kinds that are there; not if it is too far behind, or runs too long."""
    schedules = ["cooperative"] * 30 + ["pingpong"] * 5
    far = 100 * (WITHIN + WITHIN_OF_A_KIND) / 2
    running = trials(*[100.0] * 30, *[far] * 5, schedules=schedules)
    chosen = [trial.number for trial in finalists(running, set(), by_tens)]
    assert [number for number in chosen if number >= 30] == [30, 31][:OF_A_KIND]
    too_far = trials(*[100.0] * 30, *[100 * WITHIN_OF_A_KIND + 1] * 5, schedules=schedules)
    assert all(trial.number < 30 for trial in finalists(too_far, set(), by_tens))
    each = FURTHER_BELOW_US / FIRST_FINALISTS
    long = trials(*[each] * 30, *[each * far / 100] * 5, schedules=schedules)
    assert all(trial.number < 30 for trial in finalists(long, set(), by_tens))


def test_there_may_be_none() -> None:
    assert finalists([], set(), by_tens) == []
    assert finalists(trials(90.0), {0}, by_tens) == []
