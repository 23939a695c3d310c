"""`kt plan gemm`: what a run would do, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.outcome import note, reported
from kt.errors import NoValidConfiguration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kt.problems import Problem
    from kt.search_spaces.space import SearchSpace
    from kt.tuner.plan import CompiledConfig, FamilyPlan, Plan, ShapePlan
    from kt.tuner.request import TuneRequest

__all__ = ["gemm"]

SCHEMA = "kt.plan/1"
STANDARD = 4096  # m, n and k of the problem that stands in where no shapes are given


@reported
def gemm(
    shapes: options.OptionalShapes = None,
    dtype: options.DtypeOverride = None,
    device: options.Device = "auto",
    space: options.Space = None,
    templates: options.Templates = None,
    strategy: options.Strategy = options.StrategyName.auto,
    budget: options.Budget = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Compile the best predicted candidates of each shape, and show them.")
    ] = False,
    cache_dir: options.CacheDir = None,
    jobs: options.Jobs = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the search spaces, what is rejected and why, and about how long tuning would take.

    Nothing is measured and no GPU is touched. Without --shapes, a square problem of each operand format stands in.
    """
    from kt.cli import inputs
    from kt.cli.output import print_json
    from kt.devices.local import select_device
    from kt.tuner.plan import plan
    from kt.tuner.request import TuneRequest

    problems = inputs.read_shapes(shapes, dtype) if shapes else None
    spaces = inputs.read_spaces(space, problems or [])
    limit, folders = inputs.read_budget(budget), inputs.check_folders(templates)
    problems = problems or _stand_ins(spaces, dtype)
    request = TuneRequest(
        problems, spaces, select_device(device), strategy.value, limit, template_dirs=folders, compilers=jobs
    )
    planned = plan(request)
    compiled = _compile(request, cache_dir) if compile_ else None
    if as_json:
        print_json(_document(request, planned, compiled))
    else:
        _print(request, planned, compiled)
    if not quiet:
        note(f"the limits are those of {request.device.name}{' (modelled)' if request.device.modelled else ''}")
    failed = [shape for shape in planned.shapes if shape.failure]
    if failed:
        lines = [f"{len(failed)} of {len(planned.shapes)} shapes have no valid configuration"]
        raise NoValidConfiguration("\n".join([*lines, *(f"  {one.problem.label}: {one.failure}" for one in failed)]))


def _stand_ins(spaces: Sequence[SearchSpace], dtype: str | None) -> list[Problem]:
    from kt.problems import Problem
    from kt.problems.dtype_names import check_dtype

    served = dict.fromkeys(name for space in spaces for name in space.dtypes)
    wanted = [check_dtype(dtype)] if dtype else list(served)
    return [Problem(STANDARD, STANDARD, STANDARD, name) for name in wanted]


def _compile(request: TuneRequest, cache_dir: Path | None) -> list[CompiledConfig]:
    from kt.cache.location import cache_dir as cache_folder
    from kt.tuner.compilation import Compilation
    from kt.tuner.compile_pool import CompilePool
    from kt.tuner.cubin_cache import CubinCache
    from kt.tuner.plan import compile_plan

    folder = cache_folder(cache_dir)
    compilation = Compilation(
        request.device.arch,
        lambda: CompilePool(request.compilers, CubinCache(folder), request.compile_limit_s, warn=note),
        request.template_dirs,
    )
    try:
        return compile_plan(request, compilation)
    finally:
        compilation.close()


def _print(request: TuneRequest, planned: Plan, compiled: Sequence[CompiledConfig] | None) -> None:
    from kt.cli.output import print_table

    print_table(
        ("shape", "valid", "to try", "predicted us", "floor us", "limit", "best predicted"),
        [_shape_row(shape) for shape in planned.shapes],
        left=frozenset({"shape", "limit", "best predicted"}),
    )
    print()
    print_table(
        ("family", "rejected", "unless", "reason"),
        _rejection_rows(planned.shapes),
        left=frozenset({"family", "unless", "reason"}),
    )
    if compiled is not None:
        print()
        columns = ("shape", "registers", "spills", "shared", "blocks/SM", "occupancy", "limited by", "predicted us")
        print_table(
            (*columns, "configuration", "verdict"),
            [_compiled_row(one) for one in compiled],
            left=frozenset({"shape", "limited by", "configuration", "verdict"}),
        )
    print(f"\nabout {planned.kernels} kernels to compile and {_duration(planned.seconds)} to tune")


def _shape_row(shape: ShapePlan) -> tuple[str, ...]:
    predicted = f"{shape.predicted_us:.1f}" if shape.predicted_us is not None else "-"
    best = shape.best.label if shape.best else shape.failure
    figures = (str(shape.valid), str(shape.evaluations), predicted, f"{shape.floor.us:.1f}", shape.floor.bound)
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
    return (
        one.problem.label, *figures, f"{one.occupancy:.0%}", one.limiter, predicted, one.config.label, one.verdict,
    )  # fmt: skip


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _document(request: TuneRequest, planned: Plan, compiled: Sequence[CompiledConfig] | None) -> dict[str, object]:
    from kt.cache.key import device_fields

    document: dict[str, object] = {
        "schema": SCHEMA,
        "device": device_fields(request.device.identity),
        "modelled": request.device.modelled,
        "kernels": planned.kernels,
        "seconds": round(planned.seconds, 1),
        "shapes": [_shape_document(shape) for shape in planned.shapes],
    }
    if compiled is not None:
        document["compiled"] = [
            vars(one) | {"problem": one.problem.as_dict(), "family": one.config.family, "config": one.config.as_dict()}
            for one in compiled
        ]
    return document


def _shape_document(shape: ShapePlan) -> dict[str, object]:
    return {
        "problem": shape.problem.as_dict(),
        "failure": shape.failure or None,
        "valid": shape.valid,
        "evaluations": shape.evaluations,
        "predicted_us": shape.predicted_us,
        "floor_us": shape.floor.us,
        "limit": shape.floor.bound,
        "family": shape.best.family if shape.best else None,
        "config": shape.best.as_dict() if shape.best else None,
        "families": [
            {
                "family": family.family,
                "combinations": family.combinations,
                "valid": family.valid,
                "binaries": family.binaries,
                "rejections": [vars(rejection) for rejection in family.rejections],
            }
            for family in shape.families
        ],
    }
