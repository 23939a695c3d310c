"""`kt plan gemm`: what a run would do, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.listing import listed_by_cause
from kt.cli.outcome import note, teller
from kt.errors import CacheError, NoValidConfiguration
from kt.wording import part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kt.problems import Problem
    from kt.search_spaces.space import SearchSpace
    from kt.tuner.compiled_plan import CompiledPlan
    from kt.tuner.plan import Plan, ShapePlan
    from kt.tuner.request import TuneRequest

__all__ = ["gemm"]

SCHEMA = "kt.plan/1"
STANDARD = 4096  # m, n and k of the problem that stands in where no shapes are given


def gemm(
    shapes: options.OptionalShapes = None,
    dtype: options.DtypeOverride = None,
    ranges: options.Ranges = None,
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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List each constraint, what it rejects and why.")
    ] = False,
    progress: options.Progress = options.ProgressMode.auto,
) -> None:
    """Show what would be tried, the best predicted candidates, and about how long tuning would take.

    Nothing is measured and no GPU is touched. Shapes whose winners are in the cache count as no work. Without --shapes,
    a square problem of each operand format stands in.
    """
    from functools import partial

    from kt.cli import inputs
    from kt.cli.output import print_json
    from kt.cli.plan_tables import print_plan
    from kt.cli.progress import counted
    from kt.devices.local import select_device
    from kt.tuner.compiled_plan import PER_SHAPE
    from kt.tuner.plan import plan
    from kt.tuner.request import TuneRequest

    inputs.check_ranges(ranges, shapes)
    problems = inputs.read_shapes(shapes, dtype, ranges) if shapes else None
    spaces = inputs.read_spaces(space, problems or [])
    limit, folders = inputs.read_budget(budget), inputs.check_templates(spaces, templates)
    request = TuneRequest(
        problems or _stand_ins(spaces, dtype), spaces, select_device(device), strategy.value, limit,
        template_dirs=folders, compilers=jobs,
    )  # fmt: skip
    with counted("shapes planned", progress, quiet=quiet) as count:
        shortlist, total = PER_SHAPE if compile_ else 0, len(request.problems)
        planning = partial(plan, request, shortlist=shortlist, done=lambda done: count(done, total))
        unusable: CacheError | None = None
        if problems is not None:
            planned, unusable = _with_cache(planning, cache_dir, quiet=quiet)
        else:
            planned = planning()
    compiled: CompiledPlan | None = None
    if compile_ and unusable is None:
        with counted("kernels compiled", progress, quiet=quiet) as count:
            compiled = _compile(request, planned, cache_dir, count)
    if as_json:
        print_json(_document(request, planned, compiled))
    else:
        print_plan(planned, compiled, verbose=verbose)
    if not quiet:
        _say(request)
    if unusable is not None:
        raise unusable
    _raise_failures(planned, compiled)


def _with_cache(
    planning: Callable[..., Plan], cache_dir: Path | None, *, quiet: bool
) -> tuple[Plan, CacheError | None]:
    """The plan, less what the cache answers, and why a run could not use the cache; it sets a damaged file aside."""
    from kt.cache.connection import is_damage
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli.left_out import say_warnings

    try:
        with Store.open(cache_folder(cache_dir), read_only=True, tell=teller(quiet=quiet)) as store:
            planned = planning(store)
            say_warnings(store.warnings, quiet=quiet)
            return planned, None
    except CacheError as error:
        if error.__cause__ is None or not is_damage(error.__cause__):
            return planning(), error
        note(f"warning: planned without the cache: {error.message}")
        return planning(), None


def _say(request: TuneRequest) -> None:
    note(f"the limits are those of {request.device.name}{' (modelled)' if request.device.modelled else ''}")
    if request.without_effect:
        note(f"warning: {request.without_effect}")


def _raise_failures(planned: Plan, compiled: CompiledPlan | None) -> None:
    """End as a run would: one cause that leaves no shape is told alone, with its remedy; others shape by shape.

    Raises:
        NoValidConfiguration: a shape has no valid configuration, or none of its candidates compiles.
        InputError: the fault of every shape lies in the space or its template.
        CompilerUnavailable: nothing compiles, for a cause that lies in the installation.
    """
    from kt.tuner.refusal import common_error

    causes = {shape.problem: shape.failure for shape in planned.shapes if shape.failure}
    errors = {shape.problem: shape.error for shape in planned.shapes if shape.error}
    errors |= compiled.failures if compiled else {}
    if error := common_error(list(errors.values()), len(planned.shapes)):
        raise error
    causes |= {problem: error.message for problem, error in errors.items()}
    if causes:
        lines = [f"{part(len(causes), len(planned.shapes), 'shape', 'has', 'have')} no valid configuration"]
        lines += listed_by_cause((problem.label, cause) for problem, cause in causes.items())
        raise NoValidConfiguration("\n".join(lines))


def _stand_ins(spaces: Sequence[SearchSpace], dtype: str | None) -> list[Problem]:
    from kt.cli.inputs import read_dtype
    from kt.problems import Problem

    served = dict.fromkeys(name for space in spaces for name in space.dtypes)
    asked = read_dtype(dtype)
    wanted = list(served) if asked is None else [asked]
    return [Problem(STANDARD, STANDARD, STANDARD, name) for name in wanted]


def _compile(
    request: TuneRequest, planned: Plan, cache_dir: Path | None, report: Callable[[int, int], None]
) -> CompiledPlan:
    from kt.cache.location import cache_dir as cache_folder
    from kt.tuner.compilation import Compilation
    from kt.tuner.compile_pool import CompilePool
    from kt.tuner.compiled_plan import compile_plan
    from kt.tuner.cubin_cache import CubinCache

    folder = cache_folder(cache_dir)
    compilation = Compilation(
        request.device.arch,
        lambda: CompilePool(request.compilers, CubinCache(folder), request.compile_limit_s, warn=note),
        request.template_dirs,
        report,
        folder / "failures",
    )
    try:
        return compile_plan(request, planned, compilation)
    finally:
        compilation.close()


def _document(request: TuneRequest, planned: Plan, compiled: CompiledPlan | None) -> dict[str, object]:
    from kt.cache.key import device_fields

    document: dict[str, object] = {
        "schema": SCHEMA,
        "device": device_fields(request.device.identity),
        "modelled": request.device.modelled,
        "kernels": planned.kernels,
        "seconds": round(planned.seconds, 1),
        "cached": sum(shape.cached for shape in planned.shapes),
        "shapes": [_shape_document(shape, compiled) for shape in planned.shapes],
    }
    if compiled is not None:
        document["compiled"] = [
            vars(one) | {"problem": one.problem.as_dict(), "family": one.config.family, "config": one.config.as_dict()}
            for one in compiled.configs
        ]
    return document


def _shape_document(shape: ShapePlan, compiled: CompiledPlan | None) -> dict[str, object]:
    error = compiled.failures.get(shape.problem) if compiled else None
    return {
        "problem": shape.problem.as_dict(),
        "failure": shape.failure or (error.message if error else None),
        "cached": shape.cached,
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
