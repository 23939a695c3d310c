"""The tables of `kt plan`: shapes, what is rejected and why, and the candidates as they were compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.cli.output import print_table
from kt.wording import part, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kt.tuner.compiled_plan import CompiledConfig, CompiledPlan
    from kt.tuner.plan import FamilyPlan, Plan, ShapePlan

__all__ = ["print_plan"]


def print_plan(planned: Plan, compiled: CompiledPlan | None, *, verbose: bool = False) -> None:
    """What would be tried, the estimate, then a line for each family; with `verbose` one for each constraint."""
    print_table(
        ("shape", "valid", "to try", "predicted us", "floor us", "limit", "best predicted"),
        [_shape_row(shape) for shape in planned.shapes],
        left=frozenset({"shape", "limit", "best predicted"}),
    )
    if compiled is not None:
        print()
        columns = ("registers", "spills", "shared", "blocks/SM", "occupancy", "limited by", "predicted us")
        print_table(
            ("shape", "notes", *columns, "configuration"),
            [_compiled_row(one) for one in _best_first(compiled.configs)],
            left=frozenset({"shape", "limited by", "configuration", "notes"}),
        )
    print(f"\n{estimate}\n" if (estimate := _estimate(planned)) else "")
    if verbose:
        _print_rejections(planned.shapes)
    else:
        _print_families(planned.shapes)


def _print_families(shapes: Sequence[ShapePlan]) -> None:
    """A line for each family: the list of its constraints would push the shapes out of sight."""
    rows = [
        (name, str(plans[0].combinations), _span([plan.valid for plan in plans]), _rejecting(plans))
        for name, plans in _by_family(shapes).items()
    ]
    if rows:
        print_table(("family", "combinations", "valid", "constraints"), rows, left=frozenset({"family", "constraints"}))
        print("--verbose lists the constraints, what each rejects and why")


def _rejecting(plans: Sequence[FamilyPlan]) -> str:
    counts = _rejected(plans)
    return f"{sum(any(found) for found in counts.values())} of {len(counts)} reject"


def _print_rejections(shapes: Sequence[ShapePlan]) -> None:
    rows = _rejection_rows(shapes)
    print_table(("family", "rejected", "unless", "reason"), rows, left=frozenset({"family", "unless", "reason"}))


def _estimate(planned: Plan) -> str:
    """What tuning would take; "" where no shape can be tuned."""
    if not any(shape.cached or shape.evaluations for shape in planned.shapes):
        return ""
    kernels = plural(planned.kernels, "kernel")
    return f"about {kernels} to compile and {_duration(planned.seconds)} to tune{_answered(planned)}"


def _answered(planned: Plan) -> str:
    """What the estimate leaves out; "" if that is nothing."""
    cached = sum(shape.cached for shape in planned.shapes)
    return f"; {part(cached, len(planned.shapes), 'shape', 'is', 'are')} in the cache" if cached else ""


def _shape_row(shape: ShapePlan) -> tuple[str, ...]:
    predicted = f"{shape.predicted_us:.1f}" if shape.predicted_us is not None else "-"
    best = shape.best.label if shape.best else "no valid configuration"  # why is said at the end
    to_try = "in the cache" if shape.cached else str(shape.evaluations)
    figures = (str(shape.valid), to_try, predicted, f"{shape.floor.us:.1f}", shape.floor.bound)
    return (shape.problem.label, *figures, best)


def _rejection_rows(shapes: Sequence[ShapePlan]) -> list[tuple[str, ...]]:
    """One line for each constraint; where shapes differ, the least and the most that it rejects."""
    rows: list[tuple[str, ...]] = []
    for name, plans in _by_family(shapes).items():
        rows.append((name, str(plans[0].combinations), "", "combinations of all values"))
        rows += [(name, _span(found), require, reason) for (require, reason), found in _rejected(plans).items()]
        rows.append((name, _span([family.valid for family in plans]), "", "are left"))
    return rows


def _by_family(shapes: Sequence[ShapePlan]) -> dict[str, list[FamilyPlan]]:
    families: dict[str, list[FamilyPlan]] = {}
    for shape in shapes:
        for family in shape.families:
            families.setdefault(family.family, []).append(family)
    return families


def _rejected(plans: Sequence[FamilyPlan]) -> dict[tuple[str, str], list[int]]:
    """How many combinations each constraint, named with its reason, rejects for each shape."""
    counts: dict[tuple[str, str], list[int]] = {}
    for family in plans:
        for rejection in family.rejections:
            counts.setdefault((rejection.require, rejection.reason), []).append(rejection.count)
    return counts


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _compiled_row(one: CompiledConfig) -> tuple[str, ...]:
    predicted = f"{one.predicted_us:.1f}" if one.predicted_us is not None else "-"
    figures = (str(one.registers), str(one.spill_bytes), str(one.smem_bytes), str(one.blocks_per_sm))
    notes = "; ".join(filter(None, ("default" if one.default else "", one.verdict)))
    if one.status == "compile_error":  # there are no figures
        return one.problem.label, notes, *("-" for _ in (*figures, "occupancy", "limit", "time")), one.config.label
    return one.problem.label, notes, *figures, f"{one.occupancy:.0%}", one.limiter, predicted, one.config.label


def _best_first(configs: Sequence[CompiledConfig]) -> list[CompiledConfig]:
    """Shape by shape, the best predicted first and what does not compile last; the default may be anywhere."""
    places = {problem: place for place, problem in enumerate(dict.fromkeys(one.problem for one in configs))}

    def rank(one: CompiledConfig) -> tuple[int, float]:
        return places[one.problem], float("inf") if one.predicted_us is None else one.predicted_us

    return sorted(configs, key=rank)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
