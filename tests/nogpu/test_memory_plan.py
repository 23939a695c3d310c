"""The plan of device memory: refused before trying, no overlaps, bases aligned as asked and no better."""

import itertools

import pytest

from kt.problems import Problem
from kt.tuner.memory_plan import DoesNotFit, memory_margin, plan_memory, sets_wanted
from kt.tuner.method import MAX_SETS, ROTATION_FACTOR

GIB = 2**30
L2 = 60 << 20


def test_a_problem_that_cannot_fit_is_refused_with_the_figures() -> None:
    with pytest.raises(DoesNotFit, match=r"needs 89\d\.\d GiB, 138\.0 GiB free of 140\.0 GiB"):
        plan_memory(Problem(200_000, 200_000, 200_000), L2, 138 * GIB, 140 * GIB)


def test_the_margin_is_left_free() -> None:
    problem = Problem(4096, 4096, 4096)
    needed = plan_memory(problem, 0, 100 * GIB, 100 * GIB).bytes + memory_margin(16 * GIB)
    assert plan_memory(problem, 0, needed, 16 * GIB).sets == 1
    with pytest.raises(DoesNotFit):
        plan_memory(problem, 0, needed - 1, 16 * GIB)


def test_fewer_sets_rotate_before_a_problem_is_refused_and_the_plan_says_that_it_is_not_cold() -> None:
    problem = Problem(512, 512, 512)
    full = plan_memory(problem, L2, 100 * GIB, 16 * GIB)
    assert (full.sets, full.cold) == (60, True)
    least = plan_memory(problem, 0, 100 * GIB, 16 * GIB).bytes
    short = plan_memory(problem, L2, least + (10 << 20) + memory_margin(16 * GIB), 16 * GIB)
    assert 1 < short.sets < 10
    assert not short.cold
    assert short.bytes + memory_margin(16 * GIB) <= least + (10 << 20) + memory_margin(16 * GIB)


@pytest.mark.parametrize("m", [16, 128, 256, 1000, 4096, 16384])
def test_the_sets_exceed_the_cache_unless_there_would_be_too_many(m: int) -> None:
    problem = Problem(m, m, m)
    plan = plan_memory(problem, L2, 100 * GIB, 140 * GIB)
    size = 3 * m * m * 4
    assert plan.cold == (plan.sets * size >= ROTATION_FACTOR * L2)
    assert plan.cold or plan.sets == MAX_SETS
    assert plan.sets == 1 or (plan.sets - 1) * size < ROTATION_FACTOR * L2, "no more sets than needed"
    assert plan.sets == sets_wanted(problem, L2)


@pytest.mark.parametrize("alignment", [4, 8, 16, 128, 256, 4096])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_bases_are_aligned_as_the_problem_says_and_no_better(layout: str, alignment: int) -> None:
    problem = Problem(33, 65, 17, layout=layout, lda=100, ldb=100, ldc=100, batch=3, base_alignment=alignment)
    plan = plan_memory(problem, L2, 100 * GIB, 140 * GIB)
    operands = {name: slot for name, slot in plan.slots.items() if name.startswith("exact_") or name[0] in "abc"}
    operands.pop("column_norms")
    assert {"exact_a", "exact_b", "a0", "b0", "c0", "a1", "b1", "c1"} <= set(operands)
    for name, slot in operands.items():
        assert slot.base % alignment == 0, name
        assert alignment >= 256 or slot.base % (2 * alignment), f"{name} is aligned better than the problem promises"


def test_slots_hold_their_contents_and_do_not_overlap() -> None:
    problem = Problem(100, 200, 300, dtype="bf16", ldc=211, batch=2, base_alignment=2)
    plan = plan_memory(problem, L2, 100 * GIB, 140 * GIB)
    for before, after in itertools.pairwise(plan.slots.values()):
        assert before.end == after.start
    for operand in "abc":
        for index in range(plan.sets):
            slot = plan.slots[f"{operand}{index}"]
            assert slot.start <= slot.base
            assert slot.base + problem.footprint(operand) <= slot.end
    reference = plan.slots["reference"]
    assert reference.end - reference.base >= 100 * 200 * 2 * 4
    assert plan.bytes >= list(plan.slots.values())[-1].end


@pytest.mark.parametrize("n", [1, 100, 5000])
def test_guard_bands_hold_the_row_after_the_last_one(n: int) -> None:
    """The usual fault of a ragged tile is to store one row, or one column, too many."""
    problem = Problem(64, n, 8)
    slot = plan_memory(problem, L2, 100 * GIB, 140 * GIB).slots["c0"]
    row = 4 * problem.ldc
    assert slot.base - slot.start >= max(row, 1024)
    assert slot.end - (slot.base + problem.footprint("c")) >= max(row, 1024)


def test_after_the_guarded_c_lie_only_operands_of_timing() -> None:
    """A kernel that writes far past C must not spoil what later candidates are verified with."""
    plan = plan_memory(Problem(512, 512, 512), L2, 100 * GIB, 140 * GIB)
    names = list(plan.slots)
    later = names[names.index("c0") + 1 :]
    assert later
    assert all(name[0] in "abc" and int(name[1:]) >= 1 for name in later)
