"""Every error that kt reports to a person.

A `KtError` says what went wrong and where (`message`), and what to do next (`hint`). Each class fixes one exit code
of the command line. Anything that is not a `KtError` is a bug and surfaces as a traceback.

    KtError                 1  failure
    ├─ InputError           2  usage, or a bad input file
    │  └─ OptionError       2  a value of an option that cannot be used
    ├─ NoValidConfiguration 3  some shape has no valid configuration
    ├─ NoUsableGpu          4  no usable GPU
    ├─ BudgetEnded          5  the budget ended with shapes untuned
    ├─ ShapesMissing        5  the cache has no winner of some shape: it is not tuned
    ├─ OutOfDate            6  a check found what no longer holds
    ├─ CacheError           1  the cache cannot be read or written
    └─ CompilerUnavailable  1  NVRTC or its headers are missing or do not fit
"""

__all__ = [
    "BudgetEnded",
    "CacheError",
    "CompilerUnavailable",
    "InputError",
    "KtError",
    "NoUsableGpu",
    "NoValidConfiguration",
    "OptionError",
    "OutOfDate",
    "ShapesMissing",
]


class KtError(Exception):
    """A failure with one clear message.

    Args:
        message: what failed, where, and the limit that was met.
        hint: what to do about it; shown on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(KtError):
    """A command line, shapes file or search space that cannot be used as it is."""

    exit_code = 2


class OptionError(InputError):
    """A value of an option that cannot be used; who reports it knows whether it came from the command line.

    Args:
        option: its name on the command line, without dashes.
        text: what is wrong; it continues the option's name.
    """

    def __init__(self, option: str, text: str, *, hint: str | None = None) -> None:
        super().__init__(f"--{option} {text}", hint=hint)
        self.option = option
        self.text = text


class NoValidConfiguration(KtError):
    """At least one shape ended without a verified configuration."""

    exit_code = 3


class NoUsableGpu(KtError):
    """A GPU was asked for and none can be used."""

    exit_code = 4


class BudgetEnded(KtError):
    """The budget of the run ended before every shape was tuned."""

    exit_code = 5


class ShapesMissing(KtError):
    """The cache has no winner that a command could take of some shape; whether it has a valid one is not known."""

    exit_code = 5


class OutOfDate(KtError):
    """A check found winners of sources that have changed, or a file that is not what the cache says."""

    exit_code = 6


class CacheError(KtError):
    """The cache file is damaged, foreign, newer than this kt, locked or not writable."""


class CompilerUnavailable(KtError):
    """NVRTC cannot be loaded, lacks its headers, or does not know the architecture."""
