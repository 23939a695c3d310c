"""`Source`: a rendered, self-contained CUDA C++ translation unit."""

import hashlib
from dataclasses import dataclass

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """CUDA C++ text whose only `#include`s are CUDA's own number-format headers.

    Attributes:
        text: the translation unit.
        path: the template it came from, for messages.
    """

    text: str
    path: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal: the identity of the kernel."""
        return hashlib.sha256(self.text.encode()).hexdigest()
