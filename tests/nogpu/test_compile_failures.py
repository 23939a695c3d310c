"""Compile failures are counted by cause, and a run in which all fail alike stops early with the one cause."""

from pathlib import Path

import pytest

from kt.errors import CompilerUnavailable, NoValidConfiguration
from kt.tuner.causes import Causes
from kt.tuner.compile_failures import FailureGroups, cause_of
from kt.tuner.messages import Binary

HEADER = 'kernel.cu({n}): catastrophic error: could not open source file "cuda_fp16.h" (no directories in search list)'
UNDEFINED = 'kernel.cu({n}): error: identifier "undefined_{n}" is undefined\n  a[0] = undefined_{n};'
SHARED = "ptxas error   : Entry function 'kt_gemm' uses too much shared data (0x{n:x} bytes, 0xc000 max)"
TIMEOUT = "compilation took longer than 30 s and was ended"
ASSERTION = 'kernel.cu({n}): error: static assertion failed with "a tile of {n} does not fit"'
ARCH = "nvrtc: error: invalid value for --gpu-architecture (-arch)"


def failed(pattern: str, number: int) -> Binary:
    return Binary(f"{number:064x}", error=pattern.format(n=number + 10))


def groups(pattern: str, count: int, folder: Path | None = None) -> FailureGroups:
    collected = FailureGroups(folder)
    for number in range(count):
        collected.add(failed(pattern, number), f"// source {number}")
    return collected


@pytest.mark.parametrize("pattern", [HEADER, UNDEFINED, SHARED, ASSERTION])
def test_positions_and_numbers_do_not_tell_causes_apart(pattern: str) -> None:
    assert cause_of(failed(pattern, 1).error) == cause_of(failed(pattern, 250).error)
    assert list(groups(pattern, 5).counts().values()) == [5]


def test_people_read_the_first_error_as_it_was() -> None:
    """Only the grouping does without numbers: a limit of 30 s is no limit of "N s"."""
    assert groups(TIMEOUT, 3).counts() == {"compilation took longer than 30 s and was ended": 3}
    causes = Causes()
    causes.add("timeout: took longer than 2 s", 2)
    causes.update({"timeout: took longer than 3 s": 1, "crashed": 9})
    assert causes.counts() == {"crashed": 9, "timeout: took longer than 2 s": 3}


def test_causes_are_counted_most_frequent_first() -> None:
    collected = groups(SHARED, 2)
    for number in range(3):
        collected.add(failed(TIMEOUT, number))
    collected.add(Binary("0" * 64, "/a.cubin"))
    assert list(collected.counts().values()) == [3, 2]
    assert [line.split(" × ")[0] for line in collected.summary()] == ["3", "2"]


@pytest.mark.parametrize(
    ("pattern", "enough"), [(HEADER, 8), (ARCH, 8), (UNDEFINED, 32), (SHARED, 500), (TIMEOUT, 500), (ASSERTION, 500)]
)
def test_all_alike_needs_more_failures_the_more_the_cause_may_depend_on_the_configuration(
    pattern: str, enough: int
) -> None:
    """A missing header meets every candidate; the first hundred may be too big for shared memory and others not."""
    assert not groups(pattern, enough - 1).all_alike(500)
    assert groups(pattern, enough).all_alike(500)


def test_fewer_candidates_than_that_fail_alike_when_all_have_failed() -> None:
    assert not groups(SHARED, 2).all_alike(3)
    assert groups(SHARED, 3).all_alike(3)
    assert not FailureGroups().all_alike(0), "nothing was tried"


def test_one_success_or_a_second_cause_is_not_all_alike() -> None:
    collected = groups(HEADER, 40)
    collected.add(Binary("1" * 64, "/a.cubin"))
    assert not collected.all_alike(500)
    collected = groups(HEADER, 40)
    collected.add(failed(TIMEOUT, 0))
    assert not collected.all_alike(500)


def test_the_common_failure_has_cause_remedy_and_the_kept_source(tmp_path: Path) -> None:
    """F4: the compile log comes first, with the path of the rendered source."""
    error = groups(HEADER, 8, tmp_path / "failed").common_failure()
    assert isinstance(error, CompilerUnavailable)
    assert 'could not open source file "cuda_fp16.h"' in error.message
    assert 'pip install ".[cuda13]"' in str(error.hint)
    source = tmp_path / "failed" / f"{0:064x}.cu"
    assert str(source) in error.message
    assert source.read_text() == "// source 0"
    assert "cuda_fp16.h" in source.with_suffix(".log").read_text()


def test_a_fault_of_the_template_is_not_blamed_on_the_installation(tmp_path: Path) -> None:
    error = groups(UNDEFINED, 32, tmp_path).common_failure()
    assert isinstance(error, NoValidConfiguration)
    assert 'identifier "undefined_10" is undefined' in error.message


def test_one_source_of_each_cause_is_kept_and_only_so_many(tmp_path: Path) -> None:
    collected = groups(HEADER, 20, tmp_path)
    assert len(list(tmp_path.glob("*.cu"))) == 1
    for number in range(100):
        letters = "".join(chr(97 + int(digit)) for digit in str(number))
        collected.add(Binary(f"{number + 50:064x}", error=f"kernel.cu(1): error: {letters}"), "// x")
    assert len(list(tmp_path.glob("*.cu"))) == 64
    assert len(list(tmp_path.glob("*.log"))) == 64


def test_a_folder_that_cannot_be_written_costs_only_the_kept_source(tmp_path: Path) -> None:
    (tmp_path / "failed").write_text("a file")
    collected = groups(HEADER, 8, tmp_path / "failed")
    assert collected.all_alike(8)
    assert "rendered source" not in collected.common_failure().message
