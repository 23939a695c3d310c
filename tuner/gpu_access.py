"""`GpuAccess`: questions to the GPU's worker, with compilation going on while an answer is awaited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from kt.tuner.worker import WorkerDied

if TYPE_CHECKING:
    from kt.tuner.compilation import Compilation

__all__ = ["GpuAccess", "WorkerLike"]

TICK_S = 0.1  # compilers over their time limit are ended at least so often


class WorkerLike(Protocol):
    """The part of `Worker` that a run uses."""

    @property
    def connection(self) -> Connection | None: ...
    @property
    def busy(self) -> bool: ...
    def submit(self, message: Any, timeout_s: float) -> None: ...
    def poll(self, timeout: float) -> Any | None: ...
    def close(self) -> None: ...


@dataclass
class GpuAccess:
    """The worker and what is to be done while it works.

    Attributes:
        worker: owns the GPU; one request at a time.
        compilation: its binaries are collected while an answer is awaited.
    """

    worker: WorkerLike
    compilation: Compilation

    def ask(self, message: Any, limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Send `message` and wait for its reply.

        Args:
            limit_s: seconds after which the worker is ended.
            meanwhile: called now and then while the worker is busy.

        Raises:
            WorkerDied: the worker ended or was ended; the next request starts another one.
        """
        self.begin(message, limit_s)
        return self.reply(meanwhile)

    def begin(self, message: Any, limit_s: float) -> None:
        """Send `message`; a worker that has ended since the last reply is replaced."""
        try:
            self.worker.submit(message, limit_s)
        except WorkerDied:
            self.worker.submit(message, limit_s)

    def reply(self, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """The reply to the request that is under way."""
        while (reply := self.worker.poll(0.0)) is None:
            self.compilation.collect()
            meanwhile()
            connection = self.worker.connection
            wait([*self.compilation.connections, *([connection] if connection else [])], TICK_S)
        return reply

    def abandon(self) -> None:
        """Let the request that is under way end, whatever its reply."""
        if self.worker.busy:
            try:
                self.reply()
            except WorkerDied:
                return
