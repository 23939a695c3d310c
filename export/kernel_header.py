"""The C++17 header with kernels: the table, the winners' kernels, how they are launched, and which one is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt.cache.records import BestConfig
from kt.devices.device import Device
from kt.export.collect import collect
from kt.export.contents import BucketServed, Contents, Search
from kt.export.device_code import Group, Piece, grouped, kernels_as_templates, piece, tidy
from kt.export.expected_time import LAUNCH_PS, LONGEST_PS
from kt.export.header import check_namespace, table_context, table_devices, template
from kt.export.kernels import NEWEST, Kernel, Kernels
from kt.export.launch_code import Launcher, launcher
from kt.export.literals import double_literal, int_literal
from kt.problems import DTYPES
from kt.problems.ranges import RangedShape
from kt.search_spaces.space import SearchSpace
from kt.templates.environment import header_text
from kt.templates.render import rendered_parts
from kt.tuner.arguments import RUNTIME_ARGUMENTS

__all__ = ["kernel_header", "render_kernel_header"]

HERE = Path(__file__).parent
FIRST_EXACT = 90  # from this compute capability on, kernels are for an architecture-specific target, as sm_90a


@dataclass(frozen=True)
class _Emitted:
    """A kernel as the template of the header needs it; `code` is empty if another form of it has it."""

    name: str
    about: str
    code: str
    lines: tuple[str, ...]
    costs: tuple[str, ...]
    condition: str


def render_kernel_header(
    winners: Iterable[BestConfig],
    spaces: Mapping[str, SearchSpace],
    *,
    template_dirs: Sequence[Path] = (),
    searches: Iterable[Search] = (),
    ranged: Sequence[RangedShape] = (),
    unseen: Sequence[BestConfig] = (),
    predicted: bool = False,
    namespace: str = "kt",
) -> str:
    """The header's text; the same winners and sources give the same bytes, in whatever order winners come.

    Args:
        winners: at most one of each problem and device is used, by the rule of `kt.cache.ranking`.
        spaces: by family, those that the winners are from; the generic kernels are of these, too.
        searches: what was measured besides the winners, of kernels as they are today.
        ranged: shapes of which a size varies at run time.
        unseen: what is known of shapes that stand for others, for the choice alone.
        predicted: take winners that were ranked by the model too.

    Raises:
        InputError: a winner's family is not there, or cannot be exported; the namespace cannot be used.
    """
    given = [best for best in winners if predicted or not best.measurement.predicted]
    return kernel_header(
        collect(given, spaces, searches, ranged, unseen), template_dirs=template_dirs, namespace=namespace
    )


def kernel_header(listed: Contents, *, template_dirs: Sequence[Path] = (), namespace: str = "kt") -> str:
    """The text of a header with these contents."""
    check_namespace(namespace, with_kernels=True)
    context = _Writer(listed.kernels, tuple(template_dirs), namespace).context()
    context |= {"entry_variants": listed.entries, "generic_variants": listed.generics, **_candidates(listed)}
    context |= {"tiny_variants": listed.tiny}
    context |= _targets(listed)
    context |= {"buckets": [_bucket(one) for one in listed.buckets]}
    context |= {"dispatch": template("gemm_dispatch.cuh.j2").render(context)}
    context |= table_context(listed.winners, namespace=namespace, more=[str(value) for value in context.values()])
    context["calls"] = template("gemm_calls.cuh.j2").render(context)
    text: str = template("gemm_header.cuh.j2").render(context)
    return text


def _targets(listed: Contents) -> dict[str, Any]:
    """What nvcc compiles for: the GPUs of the table."""
    devices = {best.key.device.compute_capability for best in listed.winners}
    archs = [Device("", capability, 1, 1).arch.removeprefix("sm_") for capability in sorted(devices)]
    return {
        "targets": " ".join(f"-gencode arch=compute_{arch},code=sm_{arch}" for arch in archs),
        "tuned": [major * 10 + minor for major, minor in sorted(devices)],
    }


def _bucket(one: BucketServed) -> str:
    return f"{{Size::{one.shape.name}, {one.bucket.first}, {one.bucket.last}, {one.entry}}}"


def _candidates(listed: Contents) -> dict[str, Any]:
    """The initialisers of candidates and points, group by group."""
    devices = table_devices(listed.winners)
    points: list[str] = []
    candidates: list[str] = []
    groups: list[str] = []
    most = 1
    for (device, *formats, layout), members in listed.groups.items():
        dtype, accumulator, output, epilogue = formats
        names = [f"Format::{name}" for name in (dtype, accumulator, output)]
        where = [*names, f"Epilogue::{epilogue}", f"Layout::{layout}"]
        count = sum(len(one.variants) for one in members)
        groups.append(f"{{{devices.index(device)}, {', '.join(where)}, {len(candidates)}, {count}}}")
        most = max(most, count)
        for one in members:
            found = "standard" if one.standard else "neighbour"
            where_points = f"{len(points)}, {len(one.points)}"
            candidates += [f"{{{variant}, {where_points}, Found::{found}}}" for variant in one.variants]
            points += [
                f"{{{point.units}, {point.depth}, {double_literal(point.root)}, {double_literal(point.weight)}, "
                f"{point.entry}}}"
                for point in one.points
            ]
    return {
        "points": points,
        "candidates": candidates,
        "candidate_groups": groups,
        "most_candidates": most,
        "traffic": [listed.traffic[device] for device in devices],
        "launch_ps": LAUNCH_PS,
        "longest_ps": double_literal(LONGEST_PS),
    }


class _Writer:
    """Renders the kernels and their launches, each once."""

    def __init__(self, kernels: Kernels, template_dirs: tuple[Path, ...], namespace: str) -> None:
        self._kernels, self._template_dirs, self._namespace = kernels, template_dirs, namespace
        self._codes = list({kernel.code: kernel for kernel in kernels.kernels}.values())  # each once
        numbers = {kernel.code: number for number, kernel in enumerate(self._codes)}
        self._code_of = [numbers[kernel.code] for kernel in kernels.kernels]
        self._pieces = [self._piece(kernel) for kernel in self._codes]
        self._groups = grouped(self._pieces)

    def context(self) -> dict[str, Any]:
        launchers = self._launchers()
        emitted = [self._emitted(index, launchers[index]) for index in range(len(launchers))]
        codes = [self._emitted_code(number) for number in range(len(self._codes))]
        exact = sorted({one.least for one in self._kernels.kernels if one.capability >= FIRST_EXACT})
        return {
            "groups": [self._group(index, codes) for index in range(len(self._groups))],
            "kernels": emitted,
            "code_count": len(codes),
            "variants": [self._variant(index) for index in range(len(self._kernels.variants))],
            "most_steps": max([1, *(one.launches for one in launchers)]),
            "most_maps": max([1, *(one.tensor_maps for one in launchers)]),
            "functions": max(1, sum(one.launches for one in launchers)),
            "tensor_maps": any(one.tensor_maps for one in launchers),
            "clusters": any("KT_CLUSTER_DIMS" in one.code for one in codes),
            "cuda_headers": sorted({name for one in self._pieces for name in one.includes}),
            "exact_targets": exact,
            "namespace_prefix": "::" + self._namespace + "::",
            "formats_of": [(dtype.name, dtype.accumulators, dtype.outputs) for dtype in DTYPES.values()],
            "checked_numbers": _own("checked_numbers.cuh"),
            "gemm_kernels": _own("gemm_kernels.cuh"),
        }

    def _piece(self, kernel: Kernel) -> Piece:
        parts = rendered_parts(
            kernel.space, kernel.config, kernel.rendered, kernel.arch, self._template_dirs, kernel.forms
        )
        return piece(kernel.space.template, parts, self._header)

    def _header(self, name: str) -> str:
        return header_text(name, tuple(Path(folder).absolute() for folder in self._template_dirs))

    def _launchers(self) -> list[Launcher]:
        found: list[Launcher] = []
        for index, kernel in enumerate(self._kernels.kernels):
            first = sum(one.launches for one in found)
            number = self._code_of[index]
            scope = f"{_group_name(self._group_of(number))}::{_kernel_name(number)}"
            found.append(launcher(kernel, scope, first))
        return found

    def _group_of(self, code: int) -> int:
        return next(number for number, group in enumerate(self._groups) if code in group.members)

    def _emitted(self, index: int, of_launches: Launcher) -> _Emitted:
        """How a kernel is launched."""
        kernel, number = self._kernels.kernels[index], self._code_of[index]
        condition = self._reads(self._group_of(number))
        return _Emitted(_kernel_name(number), _about(kernel), "", of_launches.lines, of_launches.costs, condition)

    def _emitted_code(self, number: int) -> _Emitted:
        """What is compiled."""
        kernel = self._codes[number]
        where = kernel.space.source or kernel.space.family
        code = tidy(kernels_as_templates(self._pieces[number].code, _condition(kernel), where))
        about = _about_forms(kernel) if kernel.forms else _about(kernel)
        return _Emitted(_kernel_name(number), about, code, (), (), self._reads(self._group_of(number)))

    def _group(self, number: int, codes: Sequence[_Emitted]) -> dict[str, Any]:
        group: Group = self._groups[number]
        return {
            "name": _group_name(number),
            "condition": self._reads(number),
            "prologue": group.prologue,
            "headers": "\n".join(map(self._header, group.headers)),
            "kernels": [codes[index] for index in group.members],
            "macros": group.macros,
        }

    def _reads(self, number: int) -> str:
        """When a compiler reads a group at all: its headers may use what older GPUs do not have."""
        least = min(self._codes[index].least for index in self._groups[number].members)
        return f"!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= {least * 10}"

    def _variant(self, index: int) -> str:
        variant = self._kernels.variants[index]
        kernel = self._kernels.kernels[variant.kernel]
        runtime = RUNTIME_ARGUMENTS | dict(variant.runtime)
        choice = ", ".join(int_literal(int(runtime[name])) for name in RUNTIME_ARGUMENTS)
        signature = kernel.signature
        rows = ", ".join(str(align) for align in (signature.align_a, signature.align_b, signature.align_c))
        formats = [f"Format::{name}" for name in (signature.dtype, signature.accumulator, signature.out_dtype)]
        operands = ", ".join([*formats, f"Layout::{signature.layout}", f"{{{rows}}}"])
        functions = f"plan_{variant.kernel}, costs_{variant.kernel}"
        return f"{{{functions}, {{{choice}}}, {operands}, {kernel.least}, {kernel.most}}}"


def _condition(kernel: Kernel) -> str:
    bounds = [f"__CUDA_ARCH__ >= {kernel.least * 10}"]
    if kernel.most != NEWEST:
        bounds = [f"__CUDA_ARCH__ == {kernel.least * 10}"]
    if kernel.capability >= FIRST_EXACT:
        bounds.append(f"defined(__CUDA_ARCH_FEAT_SM{kernel.least}_ALL)")
    return " && ".join(["defined(__CUDA_ARCH__)", *bounds])


def _about(kernel: Kernel) -> str:
    signature = kernel.signature
    rows = f"{signature.align_a}, {signature.align_b} and {signature.align_c}"
    chosen = " ".join(f"{name}={value}" for name, value in kernel.config.parameters)
    return f"{kernel.config.family} {signature.dtype} {signature.layout}, rows aligned to {rows} bytes: {chosen}"


def _about_forms(kernel: Kernel) -> str:
    """The same of all its forms. Its comment goes over two lines."""
    layouts = " ".join(dict.fromkeys(form.layout for form in kernel.forms))
    stores = " or ".join(str(store) for store in sorted({form.align_c for form in kernel.forms}))
    rendered = kernel.rendered
    rows = f"{rendered.align_a}, {rendered.align_b} and {stores}"
    chosen = " ".join(f"{name}={value}" for name, value in kernel.config.parameters)
    about = f"{kernel.config.family} {rendered.dtype} {layouts}, rows aligned to {rows} bytes: {chosen}"
    return f"{about}\n// Its times in the table were measured of kernels for one layout each: they are predicted."


def _group_name(number: int) -> str:
    return f"device_{number}"


def _kernel_name(number: int) -> str:
    return f"kernel_{number}"


def _own(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
