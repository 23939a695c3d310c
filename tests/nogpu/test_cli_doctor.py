"""`kt doctor`: every check has a state, and what is not fine has a remedy."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.devices.catalog import catalog
from kt.devices.device import Device
from kt.errors import CompilerUnavailable
from kt.tuner import cublas, toolchain
from kt.tuner.checkup import Check, checkup, is_healthy
from kt.tuner.extras import install

Command = Callable[..., Any]


@pytest.fixture
def states(no_gpu: None, kt: Command) -> Callable[..., dict[str, dict[str, str]]]:
    """The checks of `kt doctor --json` by name."""

    def run(*arguments: object) -> dict[str, dict[str, str]]:
        return {check["name"]: check for check in kt("doctor", "--json", *arguments).json["checks"]}

    return run


def test_it_is_healthy_without_a_gpu(no_gpu: None, kt: Command) -> None:
    """`--device auto` works without a GPU, so the exit code is 0; the GPU is absent, with the way out."""
    outcome = kt("doctor", "--json")
    assert (outcome.code, outcome.json["schema"], outcome.json["ok"]) == (0, "kt.doctor/1", True)
    checks = {check["name"]: check for check in outcome.json["checks"]}
    assert checks["gpu"]["state"] == "absent"
    assert "--device auto" in checks["gpu"]["remedy"]
    assert {name for name, check in checks.items() if check["state"] == "ok"} >= {
        "kt", "compiler", "headers", "compilation", "families", "cache",
    }  # fmt: skip


def test_text_for_people(no_gpu: None, kt: Command) -> None:
    """One line per check, remedies below, a verdict at the end."""
    out = kt("doctor").out
    assert out.splitlines()[-1] == "kt can work here"
    assert "remedy: " in out


def test_quiet_leaves_what_needs_a_look(no_gpu: None, kt: Command, own_environment: Path) -> None:
    """With -q, what is fine is not listed."""
    out = kt("doctor", "-q").out
    assert "absent   gpu" in out
    assert not [line for line in out.splitlines() if line.startswith("ok")]
    assert "kt can work here" not in out
    (own_environment / "kt.sqlite3").write_text("hello")
    assert kt("doctor", "-q").out.splitlines()[-1].startswith("kt cannot work here")


def test_a_damaged_cache_is_no_ok(states: Callable[..., dict[str, dict[str, str]]], own_environment: Path) -> None:
    """A file that had to be set aside is told of."""
    (own_environment / "kt.sqlite3").write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    check = states()["cache"]
    assert check["state"] == "warning"
    assert "was damaged" in check["detail"]


def test_everything_that_is_not_fine_has_a_remedy(
    states: Callable[..., dict[str, dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check without a remedy helps nobody."""
    monkeypatch.setenv("CUDA_HOME", "/nope")
    (tmp_path / "file").write_text("")
    checks = states("--cache-dir", tmp_path / "file" / "cache")
    wrong = {name: check for name, check in checks.items() if check["state"] != "ok"}
    assert {"gpu", "environment", "cache"} <= wrong.keys()
    assert all(check["remedy"] for check in wrong.values())


def test_the_libraries_of_peers_are_looked_for_as_a_run_does(
    states: Callable[..., dict[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of cublas and cublaslt is fine if it can be loaded, whatever packages are installed, else has its remedy."""
    there = {"cublas": ["libm.so.6"]}  # any library that can be loaded
    monkeypatch.setattr(cublas, "_library", cublas._library.__wrapped__)
    monkeypatch.setattr(cublas, "_found", lambda name: there.get(name, ["/nope/lib.so"]))
    monkeypatch.setattr(cublas, "cupy_major", lambda: 13)
    checks = states()
    assert (checks["cublas"]["state"], checks["cublas"]["detail"]) == ("ok", "libm.so.6")
    if checks["cublaslt"]["state"] == "ok":
        pytest.skip("the system has a libcublasLt of its own")
    assert checks["cublaslt"]["detail"] == "libcublasLt was not found; only --peers cublaslt needs it"
    assert checks["cublaslt"]["remedy"] == 'pip install ".[cuda13,baseline13]" in a checkout of kt'


def test_every_remedy_names_an_extra_that_there_is() -> None:
    """What `install` says of any CUDA version stands in pyproject.toml."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    for version in (0, 11, 12, 13, 14):
        for libraries in (False, True):
            named = re.findall(r"(?:cuda|baseline)[0-9]+", install(version, libraries=libraries))
            assert named
            assert set(named) <= extras.keys()


def test_a_bad_variable_is_named_and_no_obstacle(
    states: Callable[..., dict[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kt needs no CUDA_HOME; one that leads nowhere is a warning that names it."""
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert states()["environment"]["state"] == "ok"
    monkeypatch.setenv("CUDA_HOME", "/nope")
    checks = states()
    assert checks["environment"]["state"] == "warning"
    assert "CUDA_HOME=/nope" in checks["environment"]["detail"]
    assert checks["compilation"]["state"] == "ok"


def test_an_unwritable_cache_fails(no_gpu: None, kt: Command, tmp_path: Path) -> None:
    """Without a cache no run can save its results: exit 1."""
    (tmp_path / "file").write_text("")
    outcome = kt("doctor", "--cache-dir", tmp_path / "file" / "cache")
    assert outcome.code == 1
    assert "kt cannot work here" in outcome.out


def test_no_compiler_fails(kt: Command, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVRTC nothing can be compiled: exit 1, with what to install."""

    def missing() -> None:
        raise CompilerUnavailable("NVRTC was not found", hint="pip install it")

    monkeypatch.setattr(toolchain, "toolchain", missing)
    outcome = kt("doctor")
    assert outcome.code == 1
    assert "failed   compiler     NVRTC was not found" in outcome.out
    assert "remedy: pip install it" in outcome.out


def _state(checks: list[Check], name: str) -> str:
    return next(check.state for check in checks if check.name == name)


def test_with_a_gpu_its_driver_and_target_are_checked(tmp_path: Path) -> None:
    """The GPU is described, its driver named, and the real compilation is for it."""
    gpu: Device = catalog()["a100"]
    checks = checkup(lambda: gpu, tmp_path)
    assert _state(checks, "gpu") == _state(checks, "driver") == "ok"
    assert any("sm_80 compiles" in check.detail for check in checks)
    assert is_healthy(checks)


def test_a_gpu_that_the_compiler_does_not_know(tmp_path: Path) -> None:
    """A GPU older than the compiler's targets: the compilation fails with the versions of both."""
    from dataclasses import replace

    checks = checkup(lambda: replace(catalog()["a100"], compute_capability=(3, 5)), tmp_path)
    (check,) = [check for check in checks if check.name == "compilation"]
    assert check.state == "failed"
    assert "sm_35" in check.detail
    assert not is_healthy(checks)
