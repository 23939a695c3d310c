"""The `kt` command, also as `python -m kt`: what may fail before the command line itself is there."""

import contextlib
import signal
import sys
import time
from types import FrameType

PACKAGES = ("jinja2", "numpy", "platformdirs", "pydantic", "rich", "typer", "yaml")
INTERRUPTED = 130
ONCE_S = 1.0  # Ctrl-C that comes twice within this is one: the second would strike what the first has set going


class _CtrlC:
    """Raises KeyboardInterrupt, but not again while the command is about to end for it."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= ONCE_S:
            self._last = now
            raise KeyboardInterrupt


def main() -> None:
    """Entry point of the `kt` script. The imports belong to the command: Ctrl-C may come during them too."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it wants none
            signal.signal(signal.SIGINT, _CtrlC())
        from kt.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("kt: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(f"kt: error: the Python package {error.name} is missing", file=sys.stderr)
        print("hint: `pip install .` in the checkout installs kt with all that it needs", file=sys.stderr)
        sys.exit(1)
    finally:
        _end_by_exit_code()


def _end_by_exit_code() -> None:
    """From here on all is done, and Ctrl-C must not turn the exit code into an end by the signal.

    Python puts the signal's own effect back before it ends. And it ends by the signal of its own accord if Ctrl-C came
    while a text was being executed, as `dataclasses` and others do with theirs, whoever has dealt with it; the next
    text makes it forget that.
    """
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    exec("")


if __name__ == "__main__":
    main()
