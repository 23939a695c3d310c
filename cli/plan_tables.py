"""The tables of `kt plan`: shapes, what is rejected and why, and the candidates as they were compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kt.tuner.compiled_plan import CompiledConfig, CompiledPlan
    from kt.tuner.plan import FamilyPlan, Plan, ShapePlan

__all__ = ["print_plan"]


def print_plan(planned: Plan, compiled: CompiledPlan | None, *, verbose: bool = False) -> None:
    """What would be tried, the estimate, then what is rejected: the longest table last, with `verbose` all of it."""
    print_table(
        ("shape", "valid", "to try", "predicted us", "floor us", "limit", "best predicted"),
        [_shape_row(shape) for shape in planned.shapes],
        left=frozenset({"shape", "limit", "best predicted"}),
    )
    if compiled is not None:
        print()
        columns = ("registers", "spills", "shared", "blocks/SM", "occupancy", "limited by", "predicted us")
        print_table(
            ("shape", "verdict", *columns, "configuration"),
            [_compiled_row(one) for one in compiled.configs],
            left=frozenset({"shape", "limited by", "configuration", "verdict"}),
        )
    print(
        f"\nabout {planned.kernels} kernels to compile and {_duration(planned.seconds)} to tune{_answered(planned)}\n"
    )
    _print_rejections(planned.shapes, verbose=verbose)


def _print_rejections(shapes: Sequence[ShapePlan], *, verbose: bool) -> None:
    rows = _rejection_rows(shapes)
    shown = [row for row in rows if verbose or not _rejects_nothing(row)]
    print_table(("family", "rejected", "unless", "reason"), shown, left=frozenset({"family", "unless", "reason"}))
    if hidden := len(rows) - len(shown):
        print(f"constraints not shown, for they reject nothing here: {hidden}; --verbose lists them")


def _rejects_nothing(row: tuple[str, ...]) -> bool:
    _, rejected, require, _ = row
    return bool(require) and rejected == "0"


def _answered(planned: Plan) -> str:
    """What the estimate leaves out; "" if that is nothing."""
    cached = sum(shape.cached for shape in planned.shapes)
    return f"; {cached} of {len(planned.shapes)} shapes are in the cache" if cached else ""


def _shape_row(shape: ShapePlan) -> tuple[str, ...]:
    predicted = f"{shape.predicted_us:.1f}" if shape.predicted_us is not None else "-"
    best = shape.best.label if shape.best else shape.failure
    to_try = "in the cache" if shape.cached else str(shape.evaluations)
    figures = (str(shape.valid), to_try, predicted, f"{shape.floor.us:.1f}", shape.floor.bound)
    return (shape.problem.label, *figures, best)


def _rejection_rows(shapes: Sequence[ShapePlan]) -> list[tuple[str, ...]]:
    """One line for each constraint; where shapes differ, the least and the most that it rejects."""
    families: dict[str, list[FamilyPlan]] = {}
    for shape in shapes:
        for family in shape.families:
            families.setdefault(family.family, []).append(family)
    rows: list[tuple[str, ...]] = []
    for name, plans in families.items():
        rows.append((name, str(plans[0].combinations), "", "combinations of all values"))
        counts: dict[tuple[str, str], list[int]] = {}
        for family in plans:
            for rejection in family.rejections:
                counts.setdefault((rejection.require, rejection.reason), []).append(rejection.count)
        rows += [(name, _span(found), require, reason) for (require, reason), found in counts.items()]
        rows.append((name, _span([family.valid for family in plans]), "", "are left"))
    return rows


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _compiled_row(one: CompiledConfig) -> tuple[str, ...]:
    predicted = f"{one.predicted_us:.1f}" if one.predicted_us is not None else "-"
    figures = (str(one.registers), str(one.spill_bytes), str(one.smem_bytes), str(one.blocks_per_sm))
    if one.status == "compile_error":  # there are no figures
        return (
            one.problem.label,
            one.verdict,
            *("-" for _ in (*figures, "occupancy", "limit", "time")),
            one.config.label,
        )
    verdict = one.verdict or "ok"
    return one.problem.label, verdict, *figures, f"{one.occupancy:.0%}", one.limiter, predicted, one.config.label


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
