"""`launched_digest`: the identity of all that runs for a candidate, under which its measurement is stored."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kt.search_spaces.space import Launch

__all__ = ["launched_digest"]


def launched_digest(source_digest: str, launches: tuple[Launch, ...], workspace_bytes: int) -> str:
    """Digest of the rendered source (by its own digest), and of how it is launched."""
    return hashlib.sha256(f"{source_digest}\n{launches}\n{workspace_bytes}".encode()).hexdigest()
