"""Kernels of several forms that an export would take: each is compiled, and one that spills is not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt.cli.outcome import note
from kt.wording import plural

if TYPE_CHECKING:
    from pathlib import Path

    from kt.export.kernels import Kernel
    from kt.tuner.messages import Binary, CompileJob

__all__ = ["FormsCompiled", "job_of"]


class FormsCompiled:
    """Says of a kernel of several forms whether it compiles without spills; what it was is kept.

    Nothing of such a kernel was measured, so what a compiler sees wrong in it counts.

    Raises:
        CompilerUnavailable: from the first kernel on, there is no NVRTC that fits.
    """

    def __init__(self, template_dirs: tuple[Path, ...], cache_dir: Path) -> None:
        self._template_dirs, self._cache_dir = template_dirs, cache_dir
        self._binaries: dict[tuple[object, ...], Binary] = {}

    def __call__(self, kernel: Kernel) -> bool:
        binary = self.binary(kernel)
        return not (binary.error or binary.warnings or sum(binary.spill_bytes.values()))

    def binary(self, kernel: Kernel) -> Binary:
        """The outcome of its compilation, from the cache of cubins if that has it."""
        if kernel.code not in self._binaries:
            self._binaries[kernel.code] = self._compiled(kernel)
        return self._binaries[kernel.code]

    def told(self, kernel: Kernel) -> str:
        """What the kernel has, and what it takes."""
        layouts = ", ".join(dict.fromkeys(form.layout for form in kernel.forms))
        stores = len({form.align_c for form in kernel.forms})
        rows = "rows of C aligned to 16 bytes or less" if stores > 1 else "rows of C aligned to 16 bytes"
        registers = self.binary(kernel).registers.get("kt_gemm", 0)
        taken = f"{plural(registers, 'register')} and no spills"
        return f"serves {layouts}, {rows}; {taken}; its times are those of kernels of one form"

    def _compiled(self, kernel: Kernel) -> Binary:
        from kt.tuner.compile_pool import CompilePool
        from kt.tuner.cubin_cache import CubinCache

        job = job_of(kernel, self._template_dirs)
        cubins = CubinCache(self._cache_dir)
        known = cubins.get(job.digest)
        if known is not None:
            return known
        found: list[Binary] = []
        with CompilePool(1, cubins, warn=note) as pool:
            pool.submit(job)
            while pool.pending:
                found += pool.poll(1.0)
        return found[0]


def job_of(kernel: Kernel, template_dirs: tuple[Path, ...]) -> CompileJob:
    """What is to be compiled for a kernel."""
    from kt.templates.render import render
    from kt.tuner.toolchain import compile_job, toolchain

    source = render(kernel.space, kernel.config, kernel.rendered, kernel.arch, template_dirs, kernel.forms)
    return compile_job(source, kernel.arch, toolchain())
