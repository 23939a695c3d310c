"""What `-o` must not name: the cache, and what the command itself reads."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store

ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.fixture
def cache(tmp_path: Path, make_winner: Callable[..., BestConfig]) -> Iterator[Path]:
    """A cache that is open elsewhere, so that its journals lie beside it."""
    with Store.open(tmp_path / "cache") as store:
        store.put_best(make_winner())
        yield tmp_path / "cache" / "kt.sqlite3"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_family: tuple[str, ...]) -> Path:
    """A folder with shapes, a space, a template and a kt.toml."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "shapes.yaml").write_text("shapes: [{m: 16, n: 16, k: 16}]\n")
    (folder / "space.yaml").write_bytes(Path(small_family[1]).read_bytes())
    Path(small_family[3]).rename(folder / "templates")
    (folder / "kt.toml").write_text('device = "model:h200"\n')
    return folder


@pytest.mark.parametrize("way", ["name", "symbolic link", "hard link", "-wal", "-shm"])
def test_the_cache_is_no_output(kt: Command, cache: Path, tmp_path: Path, way: str) -> None:
    """Under whatever name: exit 2 before any work, and its results are intact."""
    target = Path(f"{cache}{way}") if way.startswith("-") else cache if way == "name" else tmp_path / "link"
    if way == "symbolic link":
        target.symlink_to(cache)
    elif way == "hard link":
        os.link(cache, target)
    before = target.read_bytes()
    outcome = kt("export", "--json", "--cache-dir", cache.parent, "-o", target)
    assert outcome.code == 2
    assert outcome.err.startswith(f"kt: error: {target} is the cache, whose results would be lost\nhint: ")
    assert target.read_bytes() == before


def test_a_cache_that_is_not_there_yet_is_no_output(kt: Command, project: Path) -> None:
    """The run itself would make it."""
    command = ("tune", "gemm", "--shapes", "shapes.yaml", "--cache-dir", "new", "-o", "new/kt.sqlite3")
    assert kt(*command).code == 2  # its folder is missing
    Path("new").mkdir()
    assert "is the cache" in kt(*command).err
    assert list(Path("new").iterdir()) == []


@pytest.mark.parametrize("name", ["shapes.yaml", "space.yaml", "kt.toml", "templates/gemm/small.cu.j2"])
@pytest.mark.parametrize("command", [("tune", "gemm"), ("export", "--json"), ("bench", "gemm", "--device", "local")])
def test_an_input_is_no_output(kt: Command, project: Path, command: tuple[str, ...], name: str) -> None:
    """A table in place of the shapes that it is made from cannot be meant: exit 2, and the file stays as it is."""
    before = Path(name).read_bytes()
    given = ("--shapes", "shapes.yaml", "--space", "space.yaml", "--templates", "templates", "-o", name)
    outcome = kt(*command, *given)
    assert outcome.code == 2
    assert f"{name} is an input of this command" in outcome.err
    assert Path(name).read_bytes() == before


def test_a_file_on_standard_input_is_no_output(project: Path) -> None:
    """`--shapes - <shapes.yaml -o shapes.yaml`."""
    command = [sys.executable, "-m", "kt", "tune", "gemm", "--shapes", "-", "-o", "shapes.yaml"]
    with open("shapes.yaml") as shapes:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, stdin=shapes, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "shapes.yaml is an input of this command" in done.stderr


@pytest.mark.parametrize("name", ["export/gemm_table.h.j2", "devices/gpus.yaml", "kt/cli/main.py", "kt/py.typed"])
def test_a_file_of_kt_is_no_output(kt: Command, project: Path, name: str) -> None:
    """kt would not work any more."""
    file = ROOT / name
    before = file.read_bytes()
    for target in (file, project / "link"):
        if target != file:
            target.symlink_to(file)
        outcome = kt("tune", "gemm", "--shapes", "shapes.yaml", "-o", target)
        assert outcome.code == 2
        assert f"{target} is a file of kt itself" in outcome.err
    assert file.read_bytes() == before
