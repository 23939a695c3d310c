"""What all tests share: a cache of their own, an environment without kt's variables, and the skip of GPU tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kt.devices.local import local_device
from kt.errors import NoUsableGpu
from support.commands import Command, Outcome
from support.small_family import SMALL_SPACE, SMALL_TEMPLATE

ROOT = Path(__file__).parents[1]
KT_VARIABLES = ("KT_DEVICE", "KT_JOBS", "KT_PROGRESS")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test sees or changes the cache of the person who runs it; returns the folder of the test's own cache."""
    folder = tmp_path_factory.mktemp("kt-cache")
    monkeypatch.setenv("KT_CACHE_DIR", str(folder))
    for name in KT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose driver shows no GPU, also where there is one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, here and in processes started here; a shell's background jobs inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def kt(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a `kt` command in this process: `kt("tune", "gemm", "--shapes", path)`."""
    from kt.cli.main import app

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            app([str(argument) for argument in arguments], prog_name="kt")
        captured = capsys.readouterr()
        return Outcome(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def kt_process() -> Command:
    """Runs a `kt` command in a process of its own, as a checkout does: `python -m kt …`."""

    def run(*arguments: object, cwd: Path = ROOT, env: dict[str, str] | None = None, stdin: str = "") -> Outcome:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        command = [sys.executable, "-m", "kt", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=cwd, env=environment, input=stdin, capture_output=True, text=True, timeout=240
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def small_family(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str, str]:
    """Options that replace the built-in families by one of four kernels, each compiled in a moment."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "space.yaml").write_text(SMALL_SPACE)
    (folder / "templates" / "gemm").mkdir(parents=True)
    (folder / "templates" / "gemm" / "small.cu.j2").write_text(SMALL_TEMPLATE)
    return "--space", str(folder / "space.yaml"), "--templates", str(folder / "templates")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where no GPU is usable, and say why."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    try:
        local_device()
    except NoUsableGpu as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no usable GPU: {error.message}"))
