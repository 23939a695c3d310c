"""Who enters the finals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kt.tuner.winner import FIRST_FINALISTS, FURTHER_BELOW_US, MOST_FINALISTS, OF_A_STRUCTURE, WITHIN, finalists


def trials(*times: float) -> list[Any]:
    return [SimpleNamespace(number=number, time_us=time_us) for number, time_us in enumerate(times)]


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
