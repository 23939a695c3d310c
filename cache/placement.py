"""Whether the open cache file is still the one under its name: people and programs remove files that are in use."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from kt.cache.damage import SIDECARS, alone
from kt.cache.waiting import Tell

__all__ = ["Placement"]

Identity = tuple[int, int]  # device and inode


@dataclass(frozen=True)
class Placement:
    """The identities that a cache file and its journals had under their names when the file was opened."""

    file: Path
    identities: dict[str, Identity | None]

    @classmethod
    def of(cls, file: Path) -> "Placement":
        return cls(file, {suffix: _identity(f"{file}{suffix}") for suffix in ("", *SIDECARS)})

    @property
    def lost(self) -> bool:
        """Another file, or none, lies under the name now: what is written to the open one will not be found."""
        known = self.identities[""]
        return known is not None and _identity(str(self.file)) != known

    def remove_orphans(self, tell: Tell) -> None:
        """Removes the journals that the lost file has left under their names, before a new file is read with them."""
        with alone(self.file, tell):
            for suffix in SIDECARS:
                name = f"{self.file}{suffix}"
                if self.identities[suffix] is not None and _identity(name) == self.identities[suffix]:
                    with contextlib.suppress(OSError):
                        os.unlink(name)


def _identity(name: str) -> Identity | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino
