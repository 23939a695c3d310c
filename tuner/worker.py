"""`Worker`: the parent's end of the process that owns the GPU.

It sends one request at a time and watches the clock. A worker process that faults, hangs or says that its CUDA context
is dead is killed; the next request starts another one and prepares the problem again, before the request itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Self

from kt.cache.records import Status
from kt.tuner.child_process import ChildProcess
from kt.tuner.messages import Failure, Prepare, Prepared, Release

__all__ = ["DEVICE_VARIABLE", "Worker", "WorkerDied"]

DEVICE_VARIABLE = "KT_WORKER_DEVICE"  # the worker process reads the index of its GPU from it
PREPARE_LIMIT_S = 120.0  # start of the process, its CUDA context, operands and reference of the largest problem


class WorkerDied(Exception):
    """The worker process ended, or had to be ended, while it served a request.

    Attributes:
        status: "timeout" or "crashed": the status of the candidate that was running.
        detail: what is known, e.g. the CUDA error, or the signal that ended the process.
        candidate: name of the candidate that was running, "" if not known.
    """

    def __init__(self, status: Status, detail: str, candidate: str = "") -> None:
        super().__init__(f"{status}: {detail}")
        self.status: Status = status
        self.detail = detail
        self.candidate = candidate


class Worker:
    """Serves the messages of `kt.tuner.messages` from a child process that starts with the first request.

    Args:
        device_index: which of the visible GPUs it owns.
        module: main module of the child.
        env: environment variables set for the child.
        prepare_limit_s: seconds that preparing again may take in a fresh child.
    """

    def __init__(
        self,
        device_index: int = 0,
        *,
        module: str = "kt.tuner.gpu_worker",
        env: Mapping[str, str] | None = None,
        prepare_limit_s: float = PREPARE_LIMIT_S,
    ) -> None:
        self._module = module
        self._env = {**(env or {}), DEVICE_VARIABLE: str(device_index)}
        self._prepare_limit_s = prepare_limit_s
        self._child: ChildProcess | None = None
        self._problem: Prepare | None = None  # what a fresh child must be given first
        self._request: Any = None
        self._repreparing = False
        self._limit_s = 0.0
        self._deadline = 0.0
        self.starts = 0  # child processes started so far

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connection(self) -> Connection | None:
        """What to wait on, together with others, for a reply; None while no child runs."""
        return self._child.connection if self._child else None

    @property
    def busy(self) -> bool:
        """Whether a request awaits its reply."""
        return self._request is not None

    def request(self, message: Any, timeout_s: float) -> Any:
        """Send `message` and wait for its reply.

        Raises:
            WorkerDied: the child ended, took longer than `timeout_s`, or reported a dead CUDA context.
        """
        self.submit(message, timeout_s)
        while True:
            if (reply := self.poll(self._remaining())) is not None:
                return reply

    def submit(self, message: Any, timeout_s: float) -> None:
        """Send `message`; `poll` returns its reply. The time limit begins when the child can begin with it.

        Raises:
            WorkerDied: the child had ended before it could take the message.
        """
        if self.busy:
            raise RuntimeError("the worker serves one request at a time")
        self._limit_s = timeout_s
        self._request = message
        fresh = self._child is None
        try:
            child = self._child or self._start()
            self._repreparing = fresh and self._problem is not None and not isinstance(message, Prepare | Release)
            if self._repreparing:
                child.send(self._problem)
            child.send(message)
        except EOFError as error:
            raise self._died("crashed", str(error)) from error
        self._deadline = time.monotonic() + (self._prepare_limit_s if self._repreparing else timeout_s)

    def poll(self, timeout: float) -> Any | None:
        """The reply to the submitted request, or None if it has not come within `timeout` seconds.

        Raises:
            WorkerDied: as for `request`.
        """
        if self._child is None or not self.busy:
            raise RuntimeError("no request was submitted")
        if not self._child.poll(max(0.0, min(timeout, self._remaining()))):
            if self._remaining() <= 0:
                what = "preparing the problem again took longer than" if self._repreparing else "no answer within"
                limit = self._prepare_limit_s if self._repreparing else self._limit_s
                raise self._died("timeout", f"{what} {limit:g} s")
            return None
        try:
            reply = self._child.recv()
        except EOFError as error:
            raise self._died("crashed", str(error)) from error
        return self._accept(reply)

    def close(self) -> None:
        """End the child, whatever it does."""
        self._request = None
        if self._child:
            self._child.kill()
            self._child = None

    def _start(self) -> ChildProcess:
        self._child = ChildProcess(self._module, env=self._env)
        self.starts += 1
        return self._child

    def _remaining(self) -> float:
        return self._deadline - time.monotonic()

    def _accept(self, reply: Any) -> Any | None:
        """Act on what the child sent: a repeated `Prepare` is swallowed, a dead context ends the child."""
        if isinstance(reply, Failure) and (reply.status == "crashed" or self._repreparing):
            if self._repreparing:
                self._problem = None
            raise self._died("crashed", reply.detail, reply.candidate)
        if self._repreparing:
            self._repreparing = False
            self._deadline = time.monotonic() + self._limit_s
            return None
        if isinstance(self._request, Prepare):
            self._problem = self._request if isinstance(reply, Prepared) else None
        elif isinstance(self._request, Release):
            self._problem = None
        self._request = None
        return reply

    def _died(self, status: Status, detail: str, candidate: str = "") -> WorkerDied:
        if isinstance(self._request, Prepare):
            self._problem = None
        name = getattr(getattr(self._request, "candidate", None), "name", "")
        self.close()
        return WorkerDied(status, detail, candidate or name)
