"""The cubin cache gives back what was stored or nothing, to any number of processes, whatever is done to its files."""

import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Binary

DIGEST = "ab" * 32
BINARY = Binary(DIGEST, "", {"k": 40}, {"k": 8}, {"k": 1024}, ("C7511 serialized",), seconds=1.5)
CUBIN = b"\x7fELF" + bytes(range(256)) * 8


@pytest.fixture
def cache(tmp_path: Path) -> CubinCache:
    return CubinCache(tmp_path / "José 目录")


def files(cache: CubinCache) -> list[Path]:
    return sorted(path for path in cache.root.rglob("*") if path.is_file())


def test_what_was_stored_comes_back(cache: CubinCache) -> None:
    stored = cache.put(BINARY, CUBIN, "a log")
    assert Path(stored.path) == cache.root / "ab" / f"{DIGEST}.cubin"
    assert Path(stored.path).read_bytes() == CUBIN
    assert cache.get(DIGEST) == replace(stored, seconds=0.0)
    assert cache.get("cd" * 32) is None
    assert len(files(cache)) == 2


def test_a_compile_error_comes_back_without_a_cubin(cache: CubinCache) -> None:
    failed = Binary(DIGEST, error="kernel.cu(1): error: no\n")
    assert cache.put(failed, b"") == failed == cache.get(DIGEST)
    assert [path.suffix for path in files(cache)] == [".json"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_entry_is_a_miss_or_unharmed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cut off or overwritten at any place, as after a kill, a full disk or a power failure: never a wrong kernel."""
    cache = CubinCache(tmp_path_factory.mktemp("cubins"))
    stored = replace(cache.put(BINARY, CUBIN), seconds=0.0)
    path = data.draw(st.sampled_from(files(cache)))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    junk = data.draw(st.sampled_from([b"", b"\0", b"\xff" * 16, b"null"]))
    path.write_bytes(content[:at] + junk)
    found = cache.get(DIGEST)
    assert found is None or (path.suffix == ".json" and found.registers == stored.registers)
    assert found is None or Path(found.path).read_bytes() == CUBIN
    cache.put(BINARY, CUBIN)
    assert cache.get(DIGEST) == stored


@pytest.mark.parametrize("name", [".cubin", ".json"])
def test_half_an_entry_is_a_miss(cache: CubinCache, name: str) -> None:
    cache.put(BINARY, CUBIN)
    next(path for path in files(cache) if path.suffix == name).unlink()
    assert cache.get(DIGEST) is None


@pytest.mark.parametrize("junk", [b"[]", b"{}", b'{"format": 99}', b"\xff\xfe", b""])
def test_a_foreign_record_is_a_miss(cache: CubinCache, junk: bytes) -> None:
    cache.put(BINARY, CUBIN)
    (cache.root / "ab" / f"{DIGEST}.json").write_bytes(junk)
    assert cache.get(DIGEST) is None


def test_many_processes_write_and_read_one_entry(tmp_path: Path) -> None:
    """A reader sees a whole entry or none while others replace it; no temporary file is left."""
    code = """
        import sys
        from kt.tuner.cubin_cache import CubinCache
        from kt.tuner.messages import Binary
        cache, cubin = CubinCache(sys.argv[1]), bytes(range(256)) * 400
        for i in range(60):
            for digest in ("ab" * 32, "ac" * 32):
                stored = cache.put(Binary(digest, registers={"k": 40}), cubin)
                found = cache.get(digest)
                assert found is None or open(found.path, "rb").read() == cubin
                assert found is None or found.registers == {"k": 40}
        assert cache.get("ab" * 32)
    """
    code = "\n".join(line[8:] for line in code.splitlines())

    def one(_: int) -> int:
        return subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=120).returncode

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one, range(4))) == [0] * 4
    assert {path.suffix for path in files(CubinCache(tmp_path))} == {".cubin", ".json"}
    assert len(files(CubinCache(tmp_path))) == 4


def test_files_follow_the_mask_so_that_a_shared_cache_is_shared(cache: CubinCache) -> None:
    before = os.umask(0o002)
    try:
        stored = cache.put(BINARY, CUBIN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(stored.path).st_mode) == 0o664


def test_a_cache_that_cannot_be_written_says_so_and_the_run_has_a_place_aside(tmp_path: Path) -> None:
    (tmp_path / "cubin").write_text("a file where the folder should be")
    cache = CubinCache(tmp_path)
    with pytest.raises(OSError, match="cubin"):
        cache.put(BINARY, CUBIN)
    aside = cache.put_aside(BINARY, CUBIN)
    assert Path(aside.path).read_bytes() == CUBIN
    assert tmp_path not in Path(aside.path).parents
    cache.close()
    assert not Path(aside.path).exists()
    assert (tmp_path / "cubin").read_text().startswith("a file")


def test_a_failed_write_leaves_the_old_entry_and_no_rest(cache: CubinCache, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = cache.put(BINARY, CUBIN)

    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        cache.put(BINARY, CUBIN[::-1])
    monkeypatch.undo()
    assert cache.get(DIGEST) == replace(stored, seconds=0.0)
    assert len(files(cache)) == 2


def entry(cache: CubinCache, number: int, hours_ago: float) -> str:
    digest = f"{number:02x}" * 32
    cache.put(replace(BINARY, digest=digest), CUBIN)
    used = time.time() - hours_ago * 3600
    for path in (cache.root / digest[:2]).iterdir():
        os.utime(path, (used, used))
    return digest


def test_pruning_forgets_what_was_unused_for_longest_and_nothing_in_use(cache: CubinCache) -> None:
    old, older, young = entry(cache, 1, 30), entry(cache, 2, 40), entry(cache, 3, 0.1)
    (cache.root / "02" / "left.tmp").write_bytes(b"x" * 100)
    os.utime(cache.root / "02" / "left.tmp", (1, 1))
    limit = 2 * sum(path.stat().st_size for path in (cache.root / "01").iterdir())
    assert cache.prune(limit) > len(CUBIN)
    assert (cache.get(old) is None, cache.get(older) is None, cache.get(young) is None) == (False, True, False)
    assert not (cache.root / "02" / "left.tmp").exists()
    assert cache.prune(0) == 0, "both were just used"


def test_use_keeps_an_entry(cache: CubinCache) -> None:
    used, unused = entry(cache, 1, 40), entry(cache, 2, 30)
    assert cache.get(used)
    cache.prune(0)
    assert cache.get(used)
    assert cache.get(unused) is None
