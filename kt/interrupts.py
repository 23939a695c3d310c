"""Ctrl-C and SIGTERM: both end a command as `KeyboardInterrupt`, and which of them it was decides the exit code.

Nothing heavy is imported here: either may come while kt is being loaded.
"""

import contextlib
import signal
import time
from types import FrameType

__all__ = ["INTERRUPTED", "TERMINATED", "ended_by", "exit_code", "leave", "listen"]

INTERRUPTED, TERMINATED = 130, 143  # what a shell reports for a process that ended by them: 128 + their number
ONCE_S = 1.0  # what comes twice within this is one: the second would strike what the first has set going
_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}


class _Interrupt:
    """Raises KeyboardInterrupt, but not again while the command is about to end for it."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self.number: int = signal.SIGINT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= ONCE_S:
            self._last, self.number = now, number
            raise KeyboardInterrupt


_interrupt = _Interrupt()


def listen() -> None:
    """From here on both signals are KeyboardInterrupt; but one that whoever started this has set to be ignored is."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def exit_code() -> int:
    """Of a command that a KeyboardInterrupt has ended."""
    return 128 + _interrupt.number


def ended_by() -> str:
    """What to say of a command that a KeyboardInterrupt has ended."""
    return _NAMES[signal.Signals(_interrupt.number)]


def leave() -> None:
    """All is done, and Ctrl-C must not turn the exit code into an end by the signal. SIGTERM may: its code is the same.

    Python puts SIGINT's own effect back before it ends.
    """
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if signal.getsignal(signal.SIGTERM) is _interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
