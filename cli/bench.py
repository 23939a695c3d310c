"""`kt bench gemm`: the cache's winners beside the vendor's library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kt.cli import options
from kt.cli.figures import time_text
from kt.cli.outcome import note, teller
from kt.errors import NoUsableGpu, NoValidConfiguration, ShapesMissing
from kt.wording import part

if TYPE_CHECKING:
    from kt.devices.device import Device
    from kt.tuner.bench import BenchReport, BenchRow
    from kt.tuner.request import TuneRequest

__all__ = ["gemm"]

SCHEMA = "kt.bench/1"


def gemm(
    shapes: options.Shapes,
    dtype: options.DtypeOverride = None,
    ranges: options.Ranges = None,
    device: options.Device = "local",
    space: options.Space = None,
    templates: options.Templates = None,
    peers: options.Peers = "cublas,cublaslt",
    output: options.Output = None,
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Time the winners of a shapes file beside cuBLAS and the best of cuBLASLt, interleaved in one run.

    Ratios are the library's time divided by the winner's: above 1, the winner is faster. A shape that has no winner
    is named, and the exit code is then 5; tune it first.
    """
    from kt.cli import inputs
    from kt.cli.output import is_stdout, json_text, print_json
    from kt.cli.target import check_target, files_read
    from kt.export.write_file import write_if_changed
    from kt.tuner.request import TuneRequest

    inputs.check_streams(output, as_json=as_json)
    problems = inputs.read_shapes(shapes, dtype, ranges)
    spaces = inputs.read_spaces(space, problems)
    folders, libraries = inputs.check_templates(spaces, templates), inputs.read_peers(peers)
    check_target(output, cache_dir, files_read(shapes, space, spaces, folders))
    request = TuneRequest(problems, spaces, _gpu(device), template_dirs=folders, peers=libraries)
    report = _run(request, cache_dir, quiet=quiet)
    document = _document(request, report)
    if output is not None and not report.failures:
        write_if_changed(output, json_text(document))
    if as_json:
        print_json(document)
    elif not is_stdout(output):
        _print_table(request, report)
    _finish(report, output)


def _gpu(text: str) -> Device:
    """The GPU to bench on.

    Raises:
        NoUsableGpu: there is none; a model will not do.
    """
    from kt.devices.local import select_device

    try:
        device = select_device(text)
    except NoUsableGpu as error:
        raise NoUsableGpu(error.message, hint="a bench measures: run it where the GPU is") from None
    if device.modelled:
        raise NoUsableGpu(f"{device.name} is only modelled here", hint="a bench measures: run it where the GPU is")
    return device


def _run(request: TuneRequest, cache_dir: Path | None, *, quiet: bool) -> BenchReport:
    from kt.cache.location import cache_dir as cache_folder
    from kt.cache.store import Store
    from kt.cli.left_out import say_warnings
    from kt.tuner.bench import bench
    from kt.tuner.compilation import Compilation
    from kt.tuner.compile_pool import CompilePool
    from kt.tuner.cubin_cache import CubinCache
    from kt.tuner.worker import Worker

    folder = cache_folder(cache_dir)
    compilation = Compilation(
        request.device.arch, lambda: CompilePool(0, CubinCache(folder), warn=note), request.template_dirs
    )
    with (
        Store.open(folder, read_only=True, tell=teller(quiet=quiet)) as store,
        Worker(request.device.ordinal) as worker,
    ):
        try:
            return bench(request, store, worker, compilation, (lambda row: None) if quiet else _Lines())
        finally:
            compilation.close()
            say_warnings(store.warnings, quiet=quiet)


class _Lines:
    """A line for each row; why a library has no time is said with the first row that lacks it for that cause."""

    def __init__(self) -> None:
        self._said = set[tuple[str, str]]()

    def __call__(self, row: BenchRow) -> None:
        time_us = row.measurement.time_us if row.measurement else None
        times = [f"{time_text(time_us)} us"] if time_us else []
        times += [f"{name} {time_text(us)} us" for name, us in row.peers.items()]
        times += [f"{name} cannot be timed: {error}" for name, error in self._new(row.peer_errors)]
        note(f"{row.problem.label}: {row.failure or ', '.join(times)}")

    def _new(self, errors: dict[str, str]) -> list[tuple[str, str]]:
        new = [item for item in errors.items() if item not in self._said]
        self._said.update(new)
        return new


def _document(request: TuneRequest, report: BenchReport) -> dict[str, object]:
    from kt.cache.key import device_fields
    from kt.tuner.method import METHOD_LABEL

    means = {peer: report.geometric_mean(peer) for peer in request.peers}
    return {
        "schema": SCHEMA,
        "device": device_fields(request.device.identity),
        "method": METHOD_LABEL,
        "shapes": [_row_document(request, row) for row in report.rows],
        "geometric_mean": means,
    }


def _row_document(request: TuneRequest, row: BenchRow) -> dict[str, object]:
    measurement = row.measurement
    return {
        "problem": row.problem.as_dict(),
        "failure": row.failure or None,
        "family": row.best.config.family if row.best else None,
        "config": row.best.config.as_dict() if row.best else None,
        "time_us": measurement.time_us if measurement else None,
        "spread": measurement.spread if measurement else None,
        "noisy": measurement.noisy if measurement else None,
        "peers_us": row.peers,
        "peer_errors": row.peer_errors,
        "ratios": {peer: row.ratio(peer) for peer in request.peers},
    }


def _print_table(request: TuneRequest, report: BenchReport) -> None:
    from kt.cli.output import print_table

    columns = ["shape", "kt us", *(f"{peer} us" for peer in request.peers), *(f"vs {peer}" for peer in request.peers)]
    rows = [
        [
            row.problem.label,
            _us(row.measurement.time_us if row.measurement else None),
            *(_us(row.peers.get(peer)) for peer in request.peers),
            *(_ratio(row.ratio(peer)) for peer in request.peers),
            row.failure or ("noisy" if row.measurement and row.measurement.noisy else ""),
        ]
        for row in report.rows
    ]
    means = ["geometric mean", "", *("" for _ in request.peers)]
    means += [_ratio(report.geometric_mean(peer)) for peer in request.peers]
    print_table([*columns, "notes"], [*rows, [*means, ""]], left=frozenset({"shape", "notes"}))


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _finish(report: BenchReport, output: str | None) -> None:
    from kt.cli.output import unwritten

    if not report.failures:
        return
    if output is not None:
        note(f"{unwritten(output)}: some shapes have no time")
    lines = [f"{part(len(report.failures), len(report.rows), 'shape', 'was', 'were')} not timed"]
    lines += [f"  {row.problem.label}: {row.failure}" for row in report.failures]
    untuned = all(row.untuned for row in report.failures)
    kind = ShapesMissing if untuned else NoValidConfiguration
    raise kind("\n".join(lines), hint="kt tune gemm with the same --shapes finds missing winners")
