"""`kt tune gemm`: from a shapes file to verified winners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kt.cli import options
from kt.cli.given import cache_option
from kt.cli.listing import listed_by_cause
from kt.cli.outcome import end, note, teller
from kt.errors import BudgetEnded, CacheError, KtError, NoValidConfiguration, OptionError
from kt.interrupts import ended_by, exit_code
from kt.wording import part, plural, verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kt.cli.depfile import DepfilePlan
    from kt.tuner.request import ShapeResult, TuneRequest, TuneResult

__all__ = ["gemm"]

SCHEMA = "kt.tune/1"
GO_ON = "the same command goes on from there, and gets further with a larger --budget"


def gemm(
    shapes: options.Shapes,
    dtype: options.DtypeOverride = None,
    ranges: options.Ranges = None,
    device: options.Device = "local",
    space: options.Space = None,
    templates: options.Templates = None,
    strategy: options.Strategy = options.StrategyName.auto,
    budget: options.Budget = None,
    seed: options.Seed = 0,
    output: options.Output = None,
    depfile: options.Depfile = None,
    depfile_target: options.DepfileTarget = None,
    cache_dir: options.CacheDir = None,
    jobs: options.Jobs = 0,
    peers: options.Peers = "cublas",
    retune: Annotated[bool, typer.Option("--retune", help="Measure again although the cache has a winner.")] = False,
    unseen: options.Unseen = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    progress: options.Progress = options.ProgressMode.auto,
) -> None:
    """Tune GEMM for every shape of a file: compile, verify and time candidates, and remember the winners.

    Input files are checked first, then the device, then the cache. With --output the table of all shapes is written
    there if every shape has a result; otherwise the file is left as it was and the exit code says why.
    """
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli import inputs
    from kt.cli.depfile import plan_depfile
    from kt.cli.left_out import say_warnings
    from kt.cli.progress import progress as open_display
    from kt.cli.target import check_target, files_read
    from kt.devices.local import select_device
    from kt.problems.unseen import unseen as unseen_shapes
    from kt.tuner.request import TuneRequest
    from kt.tuner.run import tune

    inputs.check_streams(output, as_json=as_json)
    problems = inputs.read_shapes(shapes, dtype, ranges)
    spaces = inputs.read_spaces(space, problems)
    folders = inputs.check_templates(spaces, templates)
    limit, libraries = inputs.read_budget(budget), inputs.read_peers(peers)
    read = list(files_read(shapes, space, spaces, folders))
    check_target(output, cache_dir, read)
    dependencies = plan_depfile(depfile, depfile_target, output, read, cache_dir)
    target = select_device(device)
    if unseen and target.modelled:
        problem = f"asks for measurements, and {target.name} is only modelled here"
        raise OptionError("unseen", problem, hint="leave it out, or tune on a GPU")
    request = TuneRequest(
        problems,
        spaces,
        target,
        strategy.value,
        limit,
        seed,
        folders,
        libraries,
        jobs,
        retune=retune,
        space=space.name if space else "",
        unseen=unseen_shapes(problems, unseen),
    )
    if not quiet:
        _say_beforehand(request)
    with (
        Store.open(cache_folder(cache_dir), tell=teller(quiet=quiet)) as store,
        open_display(progress, quiet=quiet, verbose=verbose) as display,
    ):
        result = tune(request, store, display)
    say_warnings(store.warnings, quiet=False, verbose=verbose)  # quiet or not: results may be lost
    unwritten = _write_table(result, output, dependencies)  # first: who reads what is printed may go away at any time
    _print(request, result, output=output, as_json=as_json, verbose=verbose)
    if not quiet:
        _summarise(result)
    _finish(result, output, unwritten, store.failure, cache_dir)


def _say_beforehand(request: TuneRequest) -> None:
    """What a person should know before waiting: no GPU, and a variable that names no compiler."""
    from kt.tuner.toolchain import toolchain

    if request.device.modelled:
        note(f"no measuring: candidates are compiled for {request.device.name} and ranked by the model")
    for text in toolchain().notes:
        note(f"warning: {text}")


def _print(request: TuneRequest, result: TuneResult, *, output: str | None, as_json: bool, verbose: bool) -> None:
    """The data: one document, the table file alone on standard output, or the table for people."""
    from kt.cli.output import is_stdout, print_json

    if as_json:
        print_json(_document(request, result))
    elif not is_stdout(output):
        from kt.cli.result_table import ResultLine, print_results

        print_results(
            [ResultLine(shape.problem, shape.best, request.device, remark=_remark(shape)) for shape in result.shapes],
            verbose=verbose,
        )


def _document(request: TuneRequest, result: TuneResult) -> dict[str, object]:
    from kt.cache.key import device_fields

    return {
        "schema": SCHEMA,
        "device": device_fields(request.device.identity),
        "modelled": request.device.modelled,
        "seconds": round(result.seconds, 3),
        "compiled": result.compiled,
        "interrupted": result.interrupted,
        "shapes": [_shape_document(shape) for shape in result.shapes],
        "failures": result.failures,
    }


def _shape_document(shape: ShapeResult) -> dict[str, object]:
    from kt.export.json_table import row

    return {
        "problem": shape.problem.as_dict(),
        "outcome": _outcome(shape),
        "failure": shape.failure or None,
        "statuses": shape.statuses,
        "result": row(shape.best) if shape.best else None,
    }


def _remark(shape: ShapeResult) -> str:
    """The cause of a failure stands at the end of the run, once for all shapes that share it."""
    if shape.best is None:
        return "not tuned" if shape.untuned else "no valid configuration"
    return "from the cache" if shape.cached else ""


def _outcome(shape: ShapeResult) -> str:
    if shape.best is None:
        return "untuned" if shape.untuned else "failed"
    if shape.cached:
        return "cached"
    if shape.best.measurement.predicted:
        return "predicted"
    return "tuned" if shape.best.complete else "partial"


def _summarise(result: TuneResult) -> None:
    """What the run did in one line, then the failures by kind."""
    from collections import Counter

    outcomes = Counter(_outcome(shape) for shape in result.shapes)
    words = {"tuned": "tuned", "partial": "tuned in part", "cached": "from the cache"}
    words |= {"predicted": "ranked by the model", "failed": "failed", "untuned": "not tuned"}
    parts = [f"{outcomes[name]} {text}" for name, text in words.items() if outcomes[name]]
    if result.unseen:
        known = sum(shape.best is not None for shape in result.unseen)
        parts.append(f"{part(known, len(result.unseen), 'shape')} that {verb(known, 'stands', 'stand')} for others")
    note(f"{', '.join(parts)}; {plural(result.compiled, 'kernel')} compiled; {result.seconds:.1f} s")
    statuses = sum((Counter(shape.statuses) for shape in result.shapes), Counter[str]())
    failed = [f"{count} {_status_text(status)}" for status, count in statuses.most_common() if status != "ok"]
    if failed:
        note(f"candidates without a time: {', '.join(failed)}{'; causes as first met:' if result.failures else ''}")
    for cause, count in result.failures.items():
        note(f"  {count} × {cause}")


def _status_text(status: str) -> str:
    return "pruned (registers spill, or no launch fits)" if status == "pruned" else status.replace("_", " ")


def _finish(
    result: TuneResult,
    output: str | None,
    unwritten: KtError | None,
    unsaved: CacheError | None,
    cache_dir: Path | None,
) -> None:
    """Say why there is no table if there is none, and end with the code for what the run lacks.

    Results that could not be saved go before all else: the other codes say that the next run goes on from the cache.
    """
    from kt.cli.output import unwritten as left_as

    without = [shape for shape in result.shapes if shape.best is None]
    if output is not None and not _is_whole(result):
        note(f"{left_as(output)}, for the table is not whole{'' if unsaved else _partial_table(result, cache_dir)}")
    if unwritten is not None:
        raise unwritten
    if unsaved is not None:
        raise CacheError(f"not all results were saved: {unsaved.message}", hint=unsaved.hint)
    if result.interrupted:
        note(f"{ended_by()}{_kept(result)}")
        end(exit_code())
    failed = [shape for shape in without if not shape.untuned]
    if failed:
        raise NoValidConfiguration(_listing(failed, result, ("has", "have"), "no valid configuration"))
    if without:
        raise BudgetEnded(_listing(without, result, ("was", "were"), "not tuned before the budget ended"), hint=GO_ON)


def _kept(result: TuneResult) -> str:
    """What the cache has of a run that was interrupted: each candidate as it was done, with or without a winner."""
    if not any(shape.statuses for shape in result.shapes):
        return " before any candidate was done; the cache is as it was"
    return "; the cache has every candidate that was done, and the same command goes on from there"


def _partial_table(result: TuneResult, cache_dir: Path | None) -> str:
    """How to get a table of what has a result, if any has; `--shapes` would ask for all of them."""
    found = [shape.best.measurement for shape in result.shapes if shape.best is not None]
    if not found:
        return ""
    option = " --predicted" if any(measurement.predicted for measurement in found) else ""
    return f"; `kt export --json{option}{cache_option(cache_dir)}` writes all that the cache has"


def _is_whole(result: TuneResult) -> bool:
    return not result.interrupted and all(shape.best is not None for shape in result.shapes)


def _write_table(result: TuneResult, output: str | None, dependencies: DepfilePlan | None) -> KtError | None:
    """Write the table if it is whole; the failure, if that failed, is for the end: the results are printed anyway."""
    if output is None or not _is_whole(result):
        return None
    from kt.export.json_table import render_table
    from kt.export.write_file import write_if_changed

    try:
        write_if_changed(output, render_table(shape.best for shape in result.shapes if shape.best is not None))
        if dependencies is not None:
            dependencies.write()
    except KtError as error:
        return error
    return None


def _listing(shapes: Sequence[ShapeResult], result: TuneResult, verbs: tuple[str, str], what: str) -> str:
    """How many and which, those with one cause together."""
    causes = listed_by_cause((shape.problem.label, shape.failure) for shape in shapes)
    return "\n".join([f"{part(len(shapes), len(result.shapes), 'shape', *verbs)} {what}", *causes])
