"""`FailureGroups`: compile failures counted by cause, and the decision to stop when all fail alike."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kt.errors import CompilerUnavailable, KtError, NoValidConfiguration
from kt.tuner.causes import without_numbers
from kt.tuner.extras import install
from kt.tuner.messages import Binary
from kt.tuner.ptxas_log import first_error

__all__ = ["FailureGroups", "cause_of"]

_KEPT_SOURCES = 64

# Causes that lie in the installation: every configuration meets them, and installing something ends them.
_MISSING_HEADER = re.compile(r"(?:could not|cannot) open source file")
_INSTALLATION = (
    (_MISSING_HEADER, f"a CUDA header is missing: {install()}"),
    (re.compile(r"gpu-architecture|-arch\b"), "NVRTC does not know this GPU: install another version; see kt doctor"),
    (re.compile(r"libnvrtc|builtins"), "the installation of NVRTC is incomplete: see kt doctor"),
    (re.compile(r"^the compiler process ended with exit code"), "compiler processes cannot start: see kt doctor"),
)  # fmt: skip
# Causes that lie in one configuration: another one may well be free of them, however many have failed.
_CONFIGURATION = re.compile(
    r"static assertion|took longer than|ended by SIG|too much shared data|register allocation|resources|out of memory",
    re.IGNORECASE,
)
_ENOUGH_INSTALLATION = 8
_ENOUGH_SOURCE = 32


def cause_of(error: str) -> str:
    """The cause that a compiler's log names, without what differs between configurations: positions and numbers.

    Two logs with equal causes are one failure.
    """
    return without_numbers(first_error(error))


@dataclass
class _Group:
    """One cause: how often it was met, the first log with it, and where the first source was kept."""

    error: str
    count: int = 0
    kept: str = ""


@dataclass
class FailureGroups:
    """The compile failures of one run.

    Attributes:
        folder: where the first source of each cause is kept for people to read; None keeps none.
    """

    folder: Path | None = None
    _groups: dict[str, _Group] = field(default_factory=dict)
    _compiled: int = 0

    def add(self, binary: Binary, source: str = "") -> None:
        """Count one outcome, good or bad; `source` is the text that was compiled."""
        if not binary.error:
            self._compiled += 1
            return
        cause = cause_of(binary.error)
        group = self._groups.get(cause)
        if group is None:
            group = self._groups[cause] = _Group(binary.error, kept=self._keep(binary, source))
        group.count += 1

    def counts(self) -> dict[str, int]:
        """The first error of each cause and how often it was met, most frequent first."""
        return {first_error(group.error): group.count for group in self._by_count()}

    def all_alike(self, expected: int) -> bool:
        """Whether to give up: nothing has compiled yet, and all that was tried failed for one cause.

        A cause in the installation is taken as common after 8 failures, one in the source after 32, and one that
        depends on the configuration (shared memory, registers, a static assertion, a time-out) only when all of the
        `expected` outcomes are in.
        """
        if self._compiled or len(self._groups) != 1:
            return False
        cause, group = next(iter(self._groups.items()))
        return group.count >= min(expected, _enough(cause))

    def common_failure(self) -> KtError:
        """The error to end with when `all_alike`: the cause, its remedy, and where source and log can be read."""
        cause, group = next(iter(self._groups.items()))
        one = first_error(group.error)
        message = f"each of the first {group.count} compilations failed: {one}" if group.count > 1 else one
        if group.kept:
            message += f"; rendered source and log: {group.kept}"
        remedy = _remedy(cause)
        if remedy:
            return CompilerUnavailable(message, hint=remedy)
        return NoValidConfiguration(message, hint="the template or the search space is at fault; read the log first")

    def summary(self) -> list[str]:
        """One line for each cause, most frequent first, for the end of a run."""
        return [
            f"{group.count} × {first_error(group.error)}" + (f" ({group.kept})" if group.kept else "")
            for group in self._by_count()
        ]

    def _by_count(self) -> list[_Group]:
        return [group for _, group in sorted(self._groups.items(), key=lambda item: (-item[1].count, item[0]))]

    def _keep(self, binary: Binary, source: str) -> str:
        """Write source and log; the path of the source, or "" where that is impossible, which must not end a run."""
        if self.folder is None or not source:
            return ""
        path = self.folder / f"{binary.digest}.cu"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
            path.with_suffix(".log").write_text(binary.error + "\n", encoding="utf-8")
            _forget_oldest(self.folder.glob("*.cu"))
            return str(path)
        return ""


def _enough(cause: str) -> int:
    if _remedy(cause):
        return _ENOUGH_INSTALLATION
    return 2**31 if _CONFIGURATION.search(cause) else _ENOUGH_SOURCE


def _remedy(cause: str) -> str:
    return next((remedy for pattern, remedy in _INSTALLATION if pattern.search(cause)), "")


def _forget_oldest(sources: Iterable[Path]) -> None:
    by_age = sorted(sources, key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[_KEPT_SOURCES:]:
        path.unlink(missing_ok=True)
        path.with_suffix(".log").unlink(missing_ok=True)
