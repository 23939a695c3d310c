"""Writing generated files: whole or not at all, only on change, and never in place of what is not a file."""

import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kt.errors import InputError, KtError
from kt.export.write_file import check_output, write_if_changed


def test_a_new_file_has_the_text_and_the_usual_permissions(tmp_path: Path) -> None:
    """Permissions follow the umask, as with any program's output."""
    mask = os.umask(0o027)
    try:
        assert write_if_changed(tmp_path / "é 目.h", "line é\n")
    finally:
        os.umask(mask)
    assert (tmp_path / "é 目.h").read_bytes() == "line é\n".encode()
    assert stat.S_IMODE((tmp_path / "é 目.h").stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["é 目.h"]


def test_equal_contents_leave_the_file_and_its_times_alone(tmp_path: Path) -> None:
    """Make rebuilds only what changed."""
    file = tmp_path / "table.json"
    write_if_changed(file, "1\n")
    os.utime(file, (1, 1))
    before = file.stat()
    assert not write_if_changed(file, "1\n")
    assert (file.stat().st_mtime, file.stat().st_ino) == (1, before.st_ino)
    assert write_if_changed(file, "2\n")
    assert file.read_text() == "2\n"


def test_a_working_folder_that_was_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name leads nowhere then; a whole one still does."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for use in (lambda: check_output("table.json"), lambda: write_if_changed("table.json", "1\n")):
        with pytest.raises(InputError, match=r"table\.json: the working folder is gone"):
            use()
    assert write_if_changed(tmp_path / "table.json", "1\n")


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    """A file that was closed to others stays closed."""
    file = tmp_path / "t"
    file.write_text("old")
    file.chmod(0o600)
    write_if_changed(file, "new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    """A link may lead into another folder or to a file that does not exist yet."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    for text in ("first", "second"):
        assert write_if_changed(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "file").read_text() == text
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """B1: the old or the new contents, at any moment."""
    file = tmp_path / "t"
    texts = ["a" * 200_000, "b" * 200_000]
    write_if_changed(file, texts[0])
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(file.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(20):
        write_if_changed(file, texts[(turn + 1) % 2])
    done.set()
    reader.join()
    assert seen <= set(texts)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """B5, G3: a full disk costs the new contents, not the old."""
    file = tmp_path / "t.h"
    write_if_changed(file, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(KtError, match=r"t\.h could not be written"):
            write_if_changed(file, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["t.h"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder", "is a folder"),
        ("absent/file", "absent does not exist"),
        ("protected", "is write-protected"),
        ("file/below", "does not exist"),
        ("", "is a folder"),
    ],
)
def test_what_cannot_be_an_output_is_refused_by_name(name: str, message: str, tmp_path: Path) -> None:
    """G3: an existing folder, a missing parent and a protected file are usage errors, also before a long run."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("file")
    (tmp_path / "protected").write_text("old")
    (tmp_path / "protected").chmod(0o444)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for attempt in (lambda: check_output(tmp_path / name), lambda: write_if_changed(tmp_path / name, "new")):
        with pytest.raises(InputError, match=message) as caught:
            attempt()
        assert caught.value.exit_code == 2
    assert (tmp_path / "protected").read_text() == "old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_folder_that_takes_no_new_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file itself may be written: it is replaced by a new one, which needs the right to make one."""
    file = tmp_path / "t.h"
    file.write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(InputError, match=r"t\.h: no file can be made in .*: no permission"):
        check_output(file)


def test_outputs_that_can_be_written_pass_the_check(tmp_path: Path) -> None:
    """The check makes nothing."""
    for path in ("-", "/dev/stdout", "/dev/null", tmp_path / "new"):
        check_output(path)
    assert list(tmp_path.iterdir()) == []


_WRITE = "import sys; from kt.export.write_file import write_if_changed; write_if_changed(sys.argv[1], 'data\\n')"


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_to_whatever_it_is(name: str, tmp_path: Path) -> None:
    """G3: a pipe or a file behind /dev/stdout gets the data; it is neither replaced nor removed."""
    command = [sys.executable, "-c", _WRITE, name]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "data\n"
    file = tmp_path / "out"
    with file.open("w") as stream:
        stream.write("before\n")
        stream.flush()
        inode = file.stat().st_ino
        subprocess.run(command, stdout=stream, check=True)
    assert file.read_text() == "before\ndata\n"
    assert file.stat().st_ino == inode


def test_devices_and_pipes_are_written_to_and_stay(tmp_path: Path) -> None:
    """G3: /dev/null is still a device afterwards, and a named pipe a pipe."""
    write_if_changed("/dev/null", "data")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    assert write_if_changed(pipe, "data")
    reader.join()
    assert got == ["data"]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_pipe_whose_reader_goes_away_is_one_message(tmp_path: Path) -> None:
    """Only standard output may end quietly; and no name at all is none."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDONLY)))
    reader.start()
    with pytest.raises(KtError, match="pipe could not be written: its reader went away"):
        write_if_changed(pipe, "data" * 100_000)
    reader.join()
    with pytest.raises(InputError, match="the name of the output is empty"):
        check_output("")


def test_what_takes_nothing_had_nothing() -> None:
    """That the old contents are unchanged is said of files only."""
    with pytest.raises(KtError, match="/dev/full could not be written: No space left") as caught:
        write_if_changed("/dev/full", "data")
    assert caught.value.hint == "free some space, or name another place with -o"


def test_a_file_system_below_dev_is_like_any_other() -> None:
    """/dev/shm holds ordinary files."""
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no writable /dev/shm here")
    file = folder / f"kt-test-{os.getpid()}"
    try:
        assert write_if_changed(file, "data")
        assert not write_if_changed(file, "data")
        assert file.read_text() == "data"
    finally:
        file.unlink(missing_ok=True)


def test_a_reader_that_went_away_is_the_callers_business() -> None:
    """`kt export -o - | head -1` must be able to end quietly."""
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{_WRITE}" - | true; echo ${{PIPESTATUS[0]}}'],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "could not be written" not in done.stderr
