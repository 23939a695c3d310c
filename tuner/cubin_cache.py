"""`CubinCache`: compiled kernels on disk, named by the hash of all that decides them.

A cubin lies in `<cache dir>/cubin/ab/abcdef….cubin`, beside a JSON file with what the compiler said about it. The JSON
file is written last and holds the hash of the cubin, so an entry that was cut off by a kill, a full disk or a power
failure is a miss, never a damaged kernel; that is why nothing waits for the disk (fsync). Both files come to their
names by a rename within their folder, so any number of processes share one cache. A compile error that the source
alone causes is kept too, as a JSON file without a cubin; a time-out, a crash or a missing header is not, because it
may pass next time.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kt.tuner.messages import Binary

__all__ = ["CubinCache"]

_FORMAT = 1
_SIZE_LIMIT = 2 * 2**30
_YOUNG_S = 3600.0  # an entry used this recently may be in use by another run


class CubinCache:
    """The cubins below one cache folder.

    Args:
        cache_dir: kt's cache folder; it need not exist, nor be writable.
    """

    def __init__(self, cache_dir: Path | str) -> None:
        self.cache_dir = Path(cache_dir)
        self.root = self.cache_dir / "cubin"
        self._aside: tempfile.TemporaryDirectory[str] | None = None

    def get(self, digest: str, *, used: bool = True) -> Binary | None:
        """The stored outcome, with `seconds` 0; None if there is none or it is damaged.

        Args:
            used: it counts as used now (see `prune`); otherwise nothing on disk changes.
        """
        try:
            record = json.loads(self._record_path(digest).read_bytes())
            binary = _binary(digest, record)
            if not binary.error:
                path = self._cubin_path(digest)
                if hashlib.sha256(path.read_bytes()).hexdigest() != record["sha256"]:
                    return None
                binary = replace(binary, path=str(path))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if used:
            with suppress(OSError):  # a read-only cache keeps its times
                os.utime(self._record_path(digest))
        return binary

    def put(self, binary: Binary, cubin: bytes, log: str = "") -> Binary:
        """Store an outcome; returns it with its path.

        Raises:
            OSError: the folder cannot be written, or the disk is full.
        """
        return _store(self.root, binary, cubin, log)

    def put_aside(self, binary: Binary, cubin: bytes) -> Binary:
        """Store an outcome in a temporary folder that lives until `close`, because the cache cannot be written."""
        if self._aside is None:
            self._aside = tempfile.TemporaryDirectory(prefix="kt-cubin-")
        return _store(Path(self._aside.name), binary, cubin, "")

    def prune(self, limit_bytes: int = _SIZE_LIMIT, young_s: float = _YOUNG_S) -> int:
        """Remove the entries unused for longest until the rest fits; returns the bytes freed.

        Entries used within `young_s` seconds stay, and so do younger temporary files; older ones, left by a process
        that was killed, go first.
        """
        now = time.time()
        entries = sorted(self._files())
        size = sum(bytes_ for _, bytes_, _ in entries)
        freed = 0
        for used, bytes_, path in entries:
            stale = path.suffix == ".tmp"
            if now - used < young_s or (size - freed <= limit_bytes and not stale):
                continue
            with suppress(OSError):  # another process was faster
                path.unlink()
                freed += bytes_
        return freed

    def close(self) -> None:
        """Remove what `put_aside` stored."""
        if self._aside is not None:
            self._aside.cleanup()
            self._aside = None

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Last use, size and path of each file; a cubin counts as used when its record was."""
        for folder in self.root.glob("??"):
            times: dict[str, float] = {}
            sizes: list[tuple[int, Path]] = []
            for path in folder.iterdir():
                with suppress(OSError):
                    status = path.stat()
                    times[path.stem] = max(times.get(path.stem, 0.0), status.st_mtime)
                    sizes.append((status.st_size, path))
            yield from ((times[path.stem], size, path) for size, path in sizes)

    def _record_path(self, digest: str) -> Path:
        return self.root / digest[:2] / f"{digest}.json"

    def _cubin_path(self, digest: str) -> Path:
        return self.root / digest[:2] / f"{digest}.cubin"


def _store(root: Path, binary: Binary, cubin: bytes, log: str) -> Binary:
    folder = root / binary.digest[:2]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{binary.digest}.cubin"
    if not binary.error:
        _write(path, cubin)
        binary = replace(binary, path=str(path))
    record = asdict(binary) | {"format": _FORMAT, "sha256": hashlib.sha256(cubin).hexdigest(), "log": log}
    for name in ("digest", "path", "timed_out"):
        del record[name]
    _write(folder / f"{binary.digest}.json", json.dumps(record, sort_keys=True).encode())
    return binary


def _write(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step: other processes see the old file or the new one."""
    temporary = path.with_name(f"{path.stem}-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _binary(digest: str, record: dict[str, Any]) -> Binary:
    if record["format"] != _FORMAT:
        raise ValueError("another format")
    return Binary(
        digest,
        registers=dict(record["registers"]),
        spill_bytes=dict(record["spill_bytes"]),
        static_smem_bytes=dict(record["static_smem_bytes"]),
        warnings=tuple(record["warnings"]),
        error=str(record["error"]),
    )
