"""Kernels of several forms that an export would take: each is compiled, and one that spills is not taken."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kt.cli.outcome import note
from kt.errors import CompilerUnavailable, OutOfDate
from kt.wording import plural, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Self

    from kt.cache.records import BestConfig
    from kt.export.kernels import Kernel
    from kt.templates.source import Source
    from kt.tuner.compile_pool import CompilePool
    from kt.tuner.messages import Binary

__all__ = ["FormsCompiled", "FormsKnown", "compilers_of", "digest_of"]


class FormsKnown:
    """Says of a kernel of several forms whether it compiles without spills, by what the cache of cubins has.

    Nothing is compiled and nothing is written, so that the answer is the same with NVRTC and without. Nothing of such a
    kernel was measured, so what a compiler sees wrong in it counts.

    Args:
        compilers: labels of toolchains; what the first of them made that the cache knows counts.

    Raises:
        OutOfDate: from a question on, the cache does not know the kernel.
    """

    def __init__(self, template_dirs: tuple[Path, ...], cache_dir: Path, compilers: Sequence[str]) -> None:
        from kt.tuner.cubin_cache import CubinCache

        self._template_dirs, self._compilers = template_dirs, compilers
        self._cubins = CubinCache(cache_dir)
        self._binaries: dict[tuple[object, ...], Binary] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cubins.close()

    def __call__(self, kernel: Kernel) -> bool:
        binary = self.binary(kernel)
        return not (binary.error or binary.warnings or sum(binary.spill_bytes.values()))

    def expect(self, kernels: Sequence[Kernel]) -> None:
        """These are asked about next, all of them."""
        distinct = {kernel.code: kernel for kernel in kernels if kernel.code not in self._binaries}
        sources = {code: (kernel, self._source(kernel)) for code, kernel in distinct.items()}
        unknown = {}
        for code, (kernel, source) in sources.items():
            known = self._known(kernel, source)
            if known is None:
                unknown[code] = kernel, source
            else:
                self._binaries[code] = known
        if unknown:
            self._binaries |= zip(unknown, self._of_unknown(list(unknown.values())), strict=True)

    def binary(self, kernel: Kernel) -> Binary:
        """The outcome of its compilation."""
        self.expect([kernel])
        return self._binaries[kernel.code]

    def told(self, kernel: Kernel) -> str:
        """What the kernel has, and what it takes."""
        layouts = ", ".join(dict.fromkeys(form.layout for form in kernel.forms))
        stores = len({form.align_c for form in kernel.forms})
        rows = "rows of C aligned to 16 bytes or less" if stores > 1 else "rows of C aligned to 16 bytes"
        taken = f"{plural(self.binary(kernel).registers.get('kt_gemm', 0), 'register')} and no spills"
        return f"serves {layouts}, {rows}; {taken}; its times are those of kernels of one form"

    def _of_unknown(self, kernels: Sequence[tuple[Kernel, Source]]) -> Iterable[Binary]:
        """The outcomes of what the cache does not have, in this order."""
        count = len(kernels)
        raise OutOfDate(
            f"it cannot be told what the header would be: {plural(count, 'kernel')} of several forms that it may have "
            f"{verb(count, 'was', 'were')} not compiled yet by {' or '.join(self._compilers)}, and may spill",
            hint="the same command without --check compiles it, where NVRTC is and the cache can be written",
        )

    def _known(self, kernel: Kernel, source: Source) -> Binary | None:
        from kt.tuner.toolchain import job_digest

        digests = [job_digest(source, kernel.arch, label) for label in self._compilers]
        return next((known for digest in digests if (known := self._cubins.get(digest, used=False))), None)

    def _source(self, kernel: Kernel) -> Source:
        from kt.templates.render import render

        return render(kernel.space, kernel.config, kernel.rendered, kernel.arch, self._template_dirs, kernel.forms)


class FormsCompiled(FormsKnown):
    """Says the same by compiling what the cache of cubins does not have, all in one pool; what it was is kept.

    Args:
        tell: called with one line that a person should know.

    Raises:
        CompilerUnavailable: there is no NVRTC; from a question on, it does not fit.
    """

    def __init__(self, template_dirs: tuple[Path, ...], cache_dir: Path, *, tell: Callable[[str], None] = note) -> None:
        from kt.tuner.toolchain import toolchain

        super().__init__(template_dirs, cache_dir, [toolchain().label])
        self._tell = tell
        self._pool: CompilePool | None = None

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()
        super().__exit__()

    def _of_unknown(self, kernels: Sequence[tuple[Kernel, Source]]) -> Iterable[Binary]:
        from kt.tuner.compile_pool import CompilePool
        from kt.tuner.toolchain import compile_job, toolchain

        jobs = [compile_job(source, kernel.arch, toolchain()) for kernel, source in kernels]
        if self._pool is None:
            self._pool = CompilePool(0, self._cubins, warn=self._tell)
        for job in jobs:
            self._pool.submit(job)
        found: dict[str, Binary] = {}
        while self._pool.pending:
            found |= {binary.digest: binary for binary in self._pool.poll(1.0)}
        return [found[job.digest] for job in jobs]


def compilers_of(bests: Iterable[BestConfig]) -> list[str]:
    """Labels of the toolchain of this machine; where there is none, of those with which the winners were compiled."""
    from kt.tuner.toolchain import toolchain

    with suppress(CompilerUnavailable):
        return [toolchain().label]
    return sorted({best.key.toolchain for best in bests})


def digest_of(kernel: Kernel, template_dirs: tuple[Path, ...]) -> str:
    """The name of a kernel in the cache of cubins.

    Raises:
        CompilerUnavailable: there is no NVRTC, whose version is a part of it.
    """
    from kt.templates.render import render
    from kt.tuner.toolchain import job_digest, toolchain

    source = render(kernel.space, kernel.config, kernel.rendered, kernel.arch, template_dirs, kernel.forms)
    return job_digest(source, kernel.arch, toolchain().label)
