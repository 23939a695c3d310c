"""What a run of a `kt` command leaves behind."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Command", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What a command left behind: its exit code, its data and its messages."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Outcome]
