"""The C++17 header: winners as constexpr data, with an exact look-up that a plain compiler can use."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from kt import __version__
from kt.cache.key import canonical, key_digest, problem_fields, scalar_use
from kt.cache.ranking import choose, listing_order
from kt.cache.records import BestConfig
from kt.devices.device import DeviceIdentity
from kt.errors import OptionError
from kt.export.c_names import is_declared, is_macro
from kt.export.cuda_names import is_of_cuda
from kt.export.keywords import KEYWORDS
from kt.export.literals import bool_literal, double_literal, int_literal, string_literal
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.problems.dtypes import ACCUMULATORS, OUTPUT_BYTES
from kt.search_spaces.space import Config, Launch, Value

__all__ = ["check_namespace", "distinct", "render_header", "table_context", "table_devices", "template"]

_FORMATS = tuple(dict.fromkeys(["standard", *DTYPES, *OUTPUT_BYTES, *ACCUMULATORS]))
_USES = ("zero", "one", "other")
_EPILOGUES = ("linear",)

# Fields of `Query` in the order of its declaration, and in the order that entries are sorted by.
_FIELDS = (
    "m", "n", "k", "dtype", "layout", "batch", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c",
    "alpha", "beta", "accumulator", "out_dtype", "epilogue", "base_alignment",
)  # fmt: skip
_ORDER = ("dtype", "layout", *(name for name in _FIELDS if name not in ("dtype", "layout")))
_ENUMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dtype": ("Format", _FORMATS),
    "layout": ("Layout", LAYOUTS),
    "alpha": ("Use", _USES),
    "beta": ("Use", _USES),
    "accumulator": ("Format", _FORMATS),
    "out_dtype": ("Format", _FORMATS),
    "epilogue": ("Epilogue", _EPILOGUES),
}


def render_header(winners: Iterable[BestConfig], *, predicted: bool = False, namespace: str = "kt") -> str:
    """The header's text; the same winners give the same bytes, in whatever order they come.

    Args:
        winners: at most one of each problem and device is used, by the rule of `kt.cache.ranking`.
        predicted: take winners that were ranked by the model too; they are marked.
        namespace: C++ namespace of everything in the header.

    Raises:
        OptionError: the namespace is no C++ name, or one that cannot be had beside the headers of C and CUDA.
    """
    check_namespace(namespace)
    chosen = distinct(best for best in winners if predicted or not best.measurement.predicted)
    context = table_context(chosen, namespace=namespace)
    text: str = template("gemm_table.h.j2").render(context)
    return text


def table_context(winners: Sequence[BestConfig], *, namespace: str, more: object = None) -> dict[str, Any]:
    """What the templates of headers name of the table.

    Args:
        winners: one of each problem and device, as `distinct` gives them.
        more: what else the header says; the name of its inline namespace changes with it.
    """
    data = _data(winners)
    digest = hashlib.sha256(canonical([__version__, data, *([] if more is None else [more])]).encode()).hexdigest()[:16]
    return data | {
        "version": __version__,
        "namespace": namespace,
        "inline_namespace": f"table_{digest}",
        "guard": f"{namespace.replace('::', '_').upper()}_TABLE_{digest.upper()}_H",
        "formats": _FORMATS,
        "layouts": LAYOUTS,
        "epilogues": _EPILOGUES,
        "standards": [(dtype.name, dtype.accumulators[0], dtype.outputs[0]) for dtype in DTYPES.values()],
        "order": _ORDER,
    }


def check_namespace(namespace: str, *, with_kernels: bool = False) -> None:
    """Raises OptionError if `namespace` is no C++ name, or one that cannot be had beside C's and CUDA's headers.

    Args:
        with_kernels: the header has kernels and launches, whose code would find the namespace in place of CUDA's names.
    """
    if not re.fullmatch(r"[A-Za-z]\w*(::[A-Za-z]\w*)*", namespace, re.ASCII) or "__" in namespace:
        raise OptionError("namespace", f"{namespace!r} is not a C++ namespace", hint="e.g. --namespace mylib::tuned")
    names = namespace.split("::")
    for name in names:
        if name in KEYWORDS:
            problem = f"{name!r} is reserved in C++: no namespace can have it"
            raise OptionError("namespace", problem, hint="e.g. --namespace mylib")
        if is_macro(name):
            problem = f"{name!r} is a macro of C's headers, which would replace it"
            raise OptionError("namespace", problem, hint="e.g. --namespace mylib")
    if names[0] in ("std", "main") or is_declared(names[0]) or is_of_cuda(names[0]):
        problem = f"{names[0]!r} is a name of CUDA, of the C++ or C library, or of the program itself"
        nested = "tuned" if with_kernels and any(map(is_of_cuda, names)) else namespace
        raise OptionError("namespace", problem, hint=f"put it into a namespace of yours: --namespace mylib::{nested}")
    hidden = [name for name in names[1:] if with_kernels and is_of_cuda(name)]
    if hidden:
        problem = f"{hidden[0]!r} is a name of CUDA, which the header's kernels and launches could not use in it"
        raise OptionError("namespace", problem, hint="e.g. --namespace mylib::tuned")


def template(name: str) -> Any:
    """A template of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kt.export", ""), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    return environment.get_template(name)


def distinct(winners: Iterable[BestConfig]) -> list[BestConfig]:
    """One winner for each problem and device, in the order of the table."""
    groups: dict[tuple[DeviceIdentity, tuple[int, ...]], list[BestConfig]] = {}
    for best in sorted(winners, key=listing_order):
        groups.setdefault((best.key.device, _position(best.key.problem)), []).append(best)
    chosen = [best for best in map(choose, groups.values()) if best is not None]
    return sorted(chosen, key=lambda best: (_device_order(best.key.device), _position(best.key.problem)))


def _data(winners: Sequence[BestConfig]) -> dict[str, Any]:
    """The initialisers of the header's arrays, and where each device's entries begin."""
    devices = table_devices(winners)
    parameters, configs, launches = _Runs(), _Runs(), _Runs()
    entries = [_entry(best, devices, parameters, configs, launches) for best in winners]
    owners = [devices.index(best.key.device) for best in winners]
    return {
        "devices": [_device(device) for device in devices],
        "parameters": parameters.items,
        "configs": configs.items,
        "launches": launches.items,
        "first_entry": [sum(owner < index for owner in owners) for index in range(len(devices) + 1)],
        "entries": entries,
    }


def table_devices(winners: Iterable[BestConfig]) -> list[DeviceIdentity]:
    """The devices of the table, in its order."""
    return sorted({best.key.device for best in winners}, key=_device_order)


class _Runs:
    """Initialisers in one array; a run of them that is there already is not stored again."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._starts: dict[tuple[str, ...], int] = {}

    def start(self, run: Sequence[str]) -> int:
        """Index at which `run` begins in the array."""
        key = tuple(run)
        if key not in self._starts:
            self._starts[key] = len(self.items) if run else 0
            self.items += run
        return self._starts[key]


def _device_order(device: DeviceIdentity) -> tuple[object, ...]:
    return (device.name, device.compute_capability, device.sm_count, device.memory_gib)


def _position(problem: Problem) -> tuple[int, ...]:
    """Where the problem stands in the order of the look-up: enumerators count by their index."""
    fields = _query_fields(problem)
    return tuple(_ENUMS[name][1].index(fields[name]) if name in _ENUMS else fields[name] for name in _ORDER)


def _query_fields(problem: Problem) -> dict[str, Any]:
    return problem_fields(problem) | {"beta": scalar_use(problem.beta)}


def _entry(best: BestConfig, devices: list[DeviceIdentity], parameters: _Runs, configs: _Runs, launches: _Runs) -> str:
    config = configs.start([_config(best.config, parameters)])
    launch = launches.start([_launch(item) for item in best.launches])
    return _braces(
        _query(best.key.problem),
        devices.index(best.key.device),
        f"detail::configs + {config}",
        f"detail::launches + {launch}",
        len(best.launches),
        int_literal(best.workspace_bytes),
        double_literal(best.measurement.time_us or 0.0),
        bool_literal(best.complete),
        bool_literal(best.measurement.predicted),
        string_literal(key_digest(best.key)),
    )


def _query(problem: Problem) -> str:
    fields = _query_fields(problem)
    return _braces(
        *(f"{_ENUMS[name][0]}::{fields[name]}" if name in _ENUMS else int_literal(fields[name]) for name in _FIELDS)
    )


def _device(device: DeviceIdentity) -> str:
    return _braces(string_literal(device.name), *device.compute_capability, device.sm_count, device.memory_gib)


def _config(config: Config, parameters: _Runs) -> str:
    starts = [parameters.start([_choice(*item) for item in choices]) for choices in (config.parameters, config.runtime)]
    return _braces(
        string_literal(config.family),
        f"parameters + {starts[0]}", len(config.parameters),
        f"parameters + {starts[1]}", len(config.runtime),
    )  # fmt: skip


def _choice(name: str, value: Value) -> str:
    number, text = (int_literal(value), "nullptr") if isinstance(value, int) else ("0", string_literal(value))
    return _braces(string_literal(name), number, text)


def _launch(launch: Launch) -> str:
    return _braces(string_literal(launch.kernel), int_literal(launch.grid), launch.block, launch.smem_bytes)


def _braces(*items: object) -> str:
    return "{" + ", ".join(str(item) for item in items) + "}"
