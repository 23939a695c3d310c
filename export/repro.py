"""One winner as a program of its own: kernel, launches, operands, check and time in a single CUDA C++ file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kt import __version__
from kt.cache.key import key_digest
from kt.cache.records import BestConfig
from kt.devices.device import Device
from kt.export.header import template
from kt.export.literals import double_literal, int_literal, string_literal
from kt.problems import Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Launch, SearchSpace, TensorMap
from kt.templates.render import render, signature_names
from kt.tuner.arguments import RUNTIME_ARGUMENTS
from kt.tuner.exact_values import exact_scalars, exact_values
from kt.tuner.method import MAX_SETS, REFINE_SAMPLE_US, ROTATION_FACTOR
from kt.tuner.tensor_map import MapFigures, map_figures
from kt.tuner.tolerance import tolerance

__all__ = ["BANNER", "render_repro"]

BANNER = "kt repro: "  # what the first line of each file begins with, behind the comment sign

_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
_ELEMENTS = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "FLOAT64"}


def render_repro(
    best: BestConfig, space: SearchSpace, device: Device, template_dirs: Sequence[Path] = ()
) -> dict[str, str]:
    """The files by name: the program, and a makefile for it. The same winner and sources give the same bytes.

    Args:
        space: that of the winner's family.
        device: that of the winner's key.
        template_dirs: folders with templates of the user's own.

    Raises:
        InputError: the kernel cannot be rendered, or the configuration has no launch.
    """
    problem = best.key.problem
    launches, workspace = resolve(space, best.config, {**device.names(), **problem.names()})
    context = {
        **_names(best, device),
        **signature_names(problem.signature, device.arch),
        **_numbers(problem),
        **_arguments(best),
        "source": render(space, best.config, problem.signature, device.arch, template_dirs).text.strip("\n"),
        "launches": [_launch(launch, problem) for launch in launches],
        "maps": any(launch.tensor_maps for launch in launches),
        "workspace_bytes": workspace,
    }
    return {"repro.cu": template("repro.cu.j2").render(context), "Makefile": template("repro.mk.j2").render(context)}


def _names(best: BestConfig, device: Device) -> dict[str, Any]:
    """What is said about the winner, and what it is for."""
    problem, time_us = best.key.problem, best.measurement.time_us or 0.0
    how = "predicted" if best.measurement.predicted else "measured"
    major, minor = device.compute_capability
    facts = [
        f"device         {best.key.device.label}",
        f"configuration  {best.config.label}",
        f"time           {time_us:g} us ({how}), {problem.flops / time_us / 1e6:.4g} TFLOP/s",
        f"compiler       {best.key.toolchain}",
        f"method         {best.key.method}",
        f"key            {key_digest(best.key)}",
    ]
    return {
        "title": BANNER + _comment(problem.label),
        "facts": [_comment(fact) for fact in facts],
        "version": __version__,
        "expected_us": double_literal(time_us),
        "how_known": how,
        "device_name": string_literal(best.key.device.name),
        "capability": f"{major}.{minor}",
        "capability_number": major * 10 + minor,
        "virtual_arch": device.arch.replace("sm_", "compute_"),
        "most_sets": MAX_SETS,
        "rotation_factor": ROTATION_FACTOR,
        "sample_us": double_literal(REFINE_SAMPLE_US),
    }


def _comment(text: str) -> str:
    """Fit for one line of a `//` comment: nothing that ends the line, or goes on with it in the next."""
    return "".join(letter if letter.isprintable() else " " for letter in text).rstrip("\\ ")


def _numbers(problem: Problem) -> dict[str, Any]:
    """The problem as literals, and the numbers that the check rests on."""
    exact = exact_scalars(problem.alpha, problem.beta)
    values = exact_values(problem, exact)
    allowed = tolerance(problem, (problem.alpha, problem.beta))
    return {
        **{name: getattr(problem, name) for name in ("m", "n", "k", "batch")},
        "alpha": double_literal(problem.alpha),
        "beta": double_literal(problem.beta),
        "a": _matrix(problem, "a", problem.layout[0] == "n"),
        "b": _matrix(problem, "b", problem.layout[1] == "n"),
        "c": _matrix(problem, "c", True),
        "offset": problem.base_alignment if problem.base_alignment < 256 else 0,
        "exact_alpha": double_literal(exact[0]),
        "exact_beta": double_literal(exact[1]),
        "magnitude": values.magnitude,
        "density": double_literal(values.density),
        "c_magnitude": values.c_magnitude,
        "tolerance": ", ".join(map(double_literal, (allowed.product, allowed.relative, allowed.absolute))),
    }


def _matrix(problem: Problem, operand: str, by_rows: bool) -> str:
    """Element strides, and the elements from the first to the last, padding included."""
    pitch = int_literal(getattr(problem, f"ld{operand}"))
    steps = (pitch, "1") if by_rows else ("1", pitch)
    elements = problem.footprint(operand) // problem.element_bytes[operand]
    return ", ".join([*steps, int_literal(getattr(problem, f"stride_{operand}")), int_literal(elements)])


def _arguments(best: BestConfig) -> dict[str, str]:
    """The rest of what every kernel is given."""
    problem, runtime = best.key.problem, dict(best.config.runtime)
    strides = ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")
    return {
        "strides": ", ".join(int_literal(getattr(problem, name)) for name in strides),
        "runtime_names": ", ".join(RUNTIME_ARGUMENTS),
        "runtime_values": ", ".join(
            int_literal(int(runtime.get(name, usual))) for name, usual in RUNTIME_ARGUMENTS.items()
        ),
    }


def _launch(launch: Launch, problem: Problem) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "address": f"reinterpret_cast<const void*>(::{launch.kernel})",
        "grid": launch.grid,
        "block": launch.block,
        "smem_bytes": launch.smem_bytes,
        "programmatic": launch.programmatic,
        "maps": [_map(one, problem) for one in launch.tensor_maps],
    }


def _map(tensor_map: TensorMap, problem: Problem) -> dict[str, str]:
    found: MapFigures = map_figures(tensor_map, problem)
    element = "TFLOAT32" if found.rounds_tf32 else _ELEMENTS[found.element_bytes]
    operand = f"const_cast<void*>({found.operand})" if found.operand != "c" else "c"
    return {
        "base": operand if found.offset is None else f"static_cast<char*>(workspace) + {found.offset}",
        "type": f"CU_TENSOR_MAP_DATA_TYPE_{element}",
        "extents": ", ".join(str(max(1, extent)) for extent in found.extents),
        "strides": ", ".join(map(str, found.strides)),
        "box": ", ".join(map(str, (*found.box, 1))),
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[found.swizzle]}",
        "rows": f", {found.element_bytes}, {found.rows.of}, {found.rows.number}" if found.rows else "",
    }
