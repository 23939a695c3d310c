"""`ChildProcess` and `serve`: the two ends of a Python child process that answers one request at a time.

A fresh interpreter is started (never a fork: CUDA and threads do not survive one), joined to its parent by a socket
pair. It lives in a process group of its own, so that Ctrl-C on the terminal reaches the parent alone. It ends with its
parent, however that ends: by the end of file on the socket when idle, by the kernel's parent-death signal when busy.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import kt
from kt.errors import KtError

__all__ = ["ChildProcess", "serve"]

_PR_SET_PDEATHSIG = 1
_KILL_WAIT_S = 10.0  # a process killed inside the GPU driver needs a moment; it never takes this long
_LAST_WORDS_BYTES = 4096


class ChildProcess:
    """A child that runs `python -m module` and calls `serve`.

    The thread that creates it must live as long as the child: Linux sends the parent-death signal when the creating
    thread ends.

    Args:
        module: importable name of the child's main module.
        env: environment variables set on top of this process's own.

    Raises:
        KtError: the system starts no more processes or opens no more files; nothing is left open.
    """

    def __init__(self, module: str, *, env: Mapping[str, str] | None = None) -> None:
        with ExitStack() as opened:
            try:
                ours, theirs = map(opened.enter_context, socket.socketpair())
                self._last_words = os.memfd_create("kt-child-stderr")
                opened.callback(os.close, self._last_words)
                self._process = _start(module, theirs.fileno(), self._last_words, env or {})
            except OSError as error:
                raise _not_started(error) from error
            theirs.close()
            self.connection: Connection = Connection(ours.detach())
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        """Send one picklable message. Raises EOFError if the child is gone."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError(self.epitaph()) from error

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Whether `recv` would return, or raise, at once; waits up to `timeout` seconds (None: without limit)."""
        return self.connection.poll(timeout)

    def recv(self) -> Any:
        """The child's next message. Raises EOFError, with what is known about its end, if the child is gone."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise EOFError(self.epitaph()) from error

    def epitaph(self) -> str:
        """How the child ended, with the last line it printed; the child must have closed its end of the socket."""
        try:
            code = self._process.wait(_KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        how = f"ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        words = self.last_words().strip().splitlines()
        return f"{how}: {words[-1].strip()}" if words else how

    def last_words(self) -> str:
        """The end of what the child wrote to its standard output and error."""
        if self._last_words < 0:
            return ""
        size = os.fstat(self._last_words).st_size
        tail = os.pread(self._last_words, _LAST_WORDS_BYTES, max(0, size - _LAST_WORDS_BYTES))
        return tail.decode(errors="replace")

    def end(self) -> None:
        """Tell the child to end at once, whatever it does; `kill` then waits until it is gone."""
        self._process.kill()

    def kill(self) -> None:
        """End the child at once, whatever it does, and wait until it is gone. May be called again."""
        self.end()
        with suppress(subprocess.TimeoutExpired):  # stuck in the driver: waiting on would hang the run
            self._process.wait(_KILL_WAIT_S)
        self.connection.close()
        if self._last_words >= 0:
            os.close(self._last_words)
            self._last_words = -1


def _start(module: str, connection: int, output: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # -P: the working directory stays off the child's sys.path, so that a user's file there shadows no module.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(connection), str(os.getpid())],
        pass_fds=(connection,),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, "PYTHONPATH": _import_path(), **env},
        process_group=0,
    )


def _not_started(error: OSError) -> KtError:
    hint = "lower --jobs, or raise the limits that `ulimit -n` (open files) and `ulimit -u` (processes) show"
    return KtError(f"a process of its own could not be started: {error.strerror or error}", hint=hint)


def _import_path() -> str:
    """PYTHONPATH for the child: this kt first, then what the variable names, from wherever the child runs."""
    here = str(Path(kt.__file__).resolve().parents[1])
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([here, *(os.path.abspath(folder) for folder in named if folder)])


def serve(handle: Callable[[Any], Any]) -> None:
    """The child's main loop: receive a request, send what `handle` returns for it, until the parent is gone.

    An exception of `handle` is a bug or an end of the child: it surfaces as this process's traceback and exit code,
    which the parent reads from `ChildProcess.epitaph`.
    """
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _die_with(parent)
    with Connection(fd) as connection:
        while True:
            try:
                request = connection.recv()
            except (EOFError, ConnectionResetError):
                return
            reply = handle(request)
            try:
                connection.send(reply)
            except (BrokenPipeError, ConnectionResetError):
                return


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; leave at once if it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
