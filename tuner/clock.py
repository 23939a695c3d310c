"""`Clock`: how much of a run's time is left, and how it is shared out among the shapes that wait."""

import time
from dataclasses import dataclass, field

from kt.errors import InputError
from kt.tuner.request import Budget
from kt.wording import plural

__all__ = ["Clock", "check_budget"]


def check_budget(budget: Budget) -> None:
    """Refuse a budget that allows nothing.

    Raises:
        InputError: seconds or evaluations are not positive.
    """
    if budget.seconds is not None and not budget.seconds > 0:
        raise InputError(f"the budget is {budget.seconds:g} s; it must be more than 0")
    if budget.evaluations is not None and budget.evaluations < 1:
        raise InputError(f"the budget is {plural(budget.evaluations, 'evaluation')} a shape; it must be at least 1")


@dataclass
class Clock:
    """Wall-clock time from the start of a run.

    Attributes:
        seconds: the limit of the run; None for no limit.
        shape_deadline: when (time.monotonic) the shape at work must end; infinite without a limit.
    """

    seconds: float | None
    began: float = field(default_factory=time.monotonic)
    shape_deadline: float = float("inf")

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds until the run must end."""
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    @property
    def shape_left(self) -> float:
        """Seconds until the shape at work must end."""
        return self.shape_deadline - time.monotonic()

    def begin_shape(self, waiting: float) -> None:
        """Give the next shape its share: what is left, divided by it and those `waiting` behind it."""
        self.shape_deadline = time.monotonic() + self.left / (waiting + 1)
