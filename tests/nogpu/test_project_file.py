"""`kt.toml`: below flags and variables, above the defaults; errors name file and key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cli.project_file import find_project_file, project_defaults
from kt.errors import InputError

Command = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path


def test_the_order_of_precedence(kt: Command, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag, then variable, then project file, then default."""
    default = project / "xdg" / "kt"
    assert kt("cache", "path").out == f"{default}\n"
    (project / "kt.toml").write_text('cache_dir = "from-file"\n')
    assert kt("cache", "path").out == f"{project / 'from-file'}\n"
    monkeypatch.setenv("KT_CACHE_DIR", str(project / "from-variable"))
    assert kt("cache", "path").out == f"{project / 'from-variable'}\n"
    assert kt("cache", "path", "--cache-dir", project / "from-flag").out == f"{project / 'from-flag'}\n"


def test_it_is_found_from_a_folder_below(project: Path, kt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest file upwards counts, and its paths are relative to it."""
    (project / "kt.toml").write_text('cache_dir = "cache"\n')
    below = project / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_project_file() == project / "kt.toml"
    assert kt("cache", "path").out == f"{project / 'cache'}\n"


def test_it_applies_to_the_commands_that_have_the_option(kt: Command, project: Path) -> None:
    """A key of another command's option does not disturb; a filter called --device is not the device of a run."""
    (project / "kt.toml").write_text('device = "model:h200"\nstrategy = "random"\njobs = 2\n')
    (project / "shapes.yaml").write_text("shapes: [{m: 4, n: 4, k: 4}]\n")
    assert kt("show-cache").code == 0
    assert kt("tune", "gemm", "--shapes", "shapes.yaml", "--device", "model:nothing").code == 2
    (project / "kt.toml").write_text('device = "model:nothing"\n')
    assert "nothing" in kt("tune", "gemm", "--shapes", "shapes.yaml").err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('devise = "auto"\n', "did you mean device?"),
        ("jobs = \n", "kt.toml"),
        (f"jobs = {'9' * 5000}\n", "kt.toml"),
        (f"templates = {'[' * 5000}{']' * 5000}\n", "nested too deep"),
    ],
)
def test_a_file_that_cannot_be_understood_ends_every_command(kt: Command, project: Path, text: str, said: str) -> None:
    """What is no TOML, and a key that nobody knows, is a usage error with the file's path."""
    (project / "kt.toml").write_text(text)
    outcome = kt("cache", "path")
    assert outcome.code == 2
    assert str(project / "kt.toml") in outcome.err
    assert said in outcome.err


def test_a_file_may_begin_with_a_byte_order_mark(kt: Command, project: Path) -> None:
    """As editors on Windows write it; shapes files may, too."""
    (project / "kt.toml").write_text('cache_dir = "here"\n', encoding="utf-8-sig")
    assert kt("cache", "path").out == f"{project / 'here'}\n"


def test_bytes_that_are_no_text_are_told_with_their_place(kt: Command, project: Path) -> None:
    (project / "kt.toml").write_bytes(b"# caf\xe9\n")
    outcome = kt("cache", "path")
    assert outcome.code == 2
    assert f"{project / 'kt.toml'}: byte 0xe9 at 5 is not UTF-8\nhint: save the file as UTF-8" in outcome.err


def test_a_link_that_leads_nowhere_is_not_passed_over(kt: Command, project: Path) -> None:
    """The command would go on with another device and another cache than the project's."""
    (project / "kt.toml").symlink_to("elsewhere.toml")
    outcome = kt("cache", "path")
    assert outcome.code == 2
    assert f"{project / 'kt.toml'}: cannot be read: No such file or directory" in outcome.err


TUNE = ("tune", "gemm", "--shapes", "shapes.yaml")
WRONG_KINDS = [
    ("jobs = true\n", "jobs is True; wanted is a whole number from 0 to 256"),
    ('jobs = "many"\n', "jobs is 'many'; wanted is a whole number from 0 to 256"),
    ("seed = 1.5\n", "seed is 1.5; wanted is a whole number, 0 or more"),
    ("device = [1]\n", "device is [1]; wanted is a name in quotes"),
    ("strategy = 3\n", 'strategy is 3; wanted is one of "auto", "exhaustive", "random"'),
    ("templates = [1]\n", "templates is [1]; wanted is a list of paths"),
    ('templates = [["a"]]\n', "templates is [['a']]"),
    ('cache_dir = "a\\u0000b"\n', "cache_dir is 'a\\x00b'"),
    (f"jobs = 0x{'f' * 5000}\n", "jobs is out of range"),
    ('cache_dir = ""\n', "cache_dir is ''"),
    ('templates = ["a", ""]\n', "templates is ['a', '']"),
]


@pytest.mark.parametrize(("text", "said"), WRONG_KINDS)
def test_errors_name_file_and_key_and_what_is_wanted(kt: Command, project: Path, text: str, said: str) -> None:
    """A value of the wrong kind ends a command that has the option, as a usage error."""
    (project / "kt.toml").write_text(text)
    outcome = kt(*TUNE)
    assert outcome.code == 2
    assert f"kt: error: {project / 'kt.toml'}: {said}" in outcome.err


@pytest.mark.parametrize("text", [text for text, _ in WRONG_KINDS if not text.startswith("cache_dir")])
def test_a_value_of_another_command_s_option_is_no_obstacle(kt: Command, project: Path, text: str) -> None:
    """Each key applies to the commands that have the option; help is given in any case."""
    (project / "kt.toml").write_text(text)
    assert kt("cache", "path").code == 0
    assert kt(*TUNE, "--help").code == 0


def test_a_value_that_another_place_overrides_is_not_looked_at(
    kt: Command, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag and a variable go before the file, whatever stands in it."""
    (project / "kt.toml").write_text("cache_dir = 3\n")
    assert kt("cache", "path").code == 2
    assert kt("cache", "path", "--cache-dir", project / "flag").code == 0
    monkeypatch.setenv("KT_CACHE_DIR", str(project / "variable"))
    assert kt("cache", "path").out == f"{project / 'variable'}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs = 999\n", "jobs: 999 is not a whole number from 0 to 256"),
        ("seed = -1\n", "seed: -1 is not a whole number, 0 or more"),
        ('strategy = "best"\n', "strategy: 'best' is not one of 'auto', 'exhaustive', 'random'"),
        ('progress = "some"\n', "progress: 'some' is not one of"),
        ('budget = "soon"\n', "budget 'soon' is neither a time nor a number"),
        ('peers = "mkl"\n', "peers 'mkl': 'mkl' is unknown"),
        ('device = "fast"\n', "device 'fast' names no device"),
        ('device = "model:fast"\n', "device model:fast: no such GPU"),
        ('templates = ["none"]\n', "templates {project}/none is not a folder"),
        ('space = "none.yaml"\n', "space {project}/none.yaml does not exist"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_of_the_file(kt: Command, project: Path, text: str, said: str) -> None:
    """The message names the file and the key, where it can be changed, and no option that nobody has given."""
    (project / "kt.toml").write_text(text)
    (project / "shapes.yaml").write_text("shapes: [{m: 4, n: 4, k: 4}]\n")
    outcome = kt(*TUNE)
    assert outcome.code == 2
    assert f"kt: error: {project / 'kt.toml'}: {said.format(project=project)}" in outcome.err
    assert "'--" not in outcome.err
    assert "error: --" not in outcome.err


def test_a_value_of_the_command_line_is_told_of_the_option(
    kt: Command, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a flag or a variable goes before the file, the message is about that one."""
    (project / "kt.toml").write_text('device = "auto"\njobs = 2\nbudget = "60s"\n')
    (project / "shapes.yaml").write_text("shapes: [{m: 4, n: 4, k: 4}]\n")
    for flag, value in (("--device", "fast"), ("--budget", "soon"), ("--jobs", "999")):
        err = kt(*TUNE, flag, value).err
        assert flag in err
        assert "kt.toml" not in err
    monkeypatch.setenv("KT_DEVICE", "fast")
    assert "kt: error: KT_DEVICE 'fast' names no device" in kt(*TUNE).err
    monkeypatch.setenv("KT_JOBS", "999")
    assert "kt: error: KT_JOBS: 999 is not a whole number from 0 to 256" in kt(*TUNE).err


def test_a_cache_that_cannot_be_used_says_who_named_it(kt: Command, project: Path) -> None:
    (project / "file").write_text("")
    (project / "kt.toml").write_text('cache_dir = "file/cache"\ndevice = "model:h200"\n')
    (project / "shapes.yaml").write_text("shapes: [{m: 4, n: 4, k: 4}]\n")
    outcome = kt(*TUNE)
    assert outcome.code == 1
    assert f"(named by {project / 'kt.toml'}: cache_dir)" in outcome.err


def test_a_device_of_the_file_filters_no_results(kt: Command, project: Path) -> None:
    """`device` is what runs work on; as a filter of `kt cache prune` it would remove what nobody meant."""
    (project / "kt.toml").write_text('device = "model:h200"\n')
    for command in (("cache", "prune"), ("show-cache",), ("export", "--json")):
        assert "H200" not in kt(*command).err
    assert "nothing to prune by" in kt("cache", "prune", "--cache-dir", project).err


def test_values_keep_their_meaning(project: Path) -> None:
    """Lists of folders stay lists; numbers become what the command line would have said."""
    (project / "kt.toml").write_text('templates = ["t"]\nseed = 3\nbudget = "60s"\n')
    values = {name: value() for name, value in project_defaults(project / "kt.toml").items()}
    assert values == {"templates": [str(project / "t")], "seed": "3", "budget": "60s"}
    (project / "kt.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError):
        project_defaults(project / "kt.toml")


def test_a_removed_working_folder_is_no_bug(kt: Command, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell may stand in a folder that is gone."""
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_project_file() is None
    assert kt("--version").code == 0


def test_a_file_that_cannot_be_read_is_told(project: Path) -> None:
    (project / "kt.toml").symlink_to("/proc/self/mem")  # a regular file whose first byte no one can read, root neither
    with pytest.raises(InputError, match=r"kt\.toml: cannot be read: "):
        project_defaults(project / "kt.toml")


def test_a_folder_above_that_may_not_be_searched_is_passed_over(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "kt.toml").write_text("jobs = 2\n")
    below = project / "a"
    below.mkdir()
    monkeypatch.chdir(below)
    searched = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent == below:
            raise PermissionError(13, "Permission denied", str(path))
        return searched(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert find_project_file() == project / "kt.toml"


def test_the_home_folder_is_expanded_as_by_a_shell(kt: Command, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell reads the file: `~` by itself would make a folder of that name. One that is meant is written ./~."""
    monkeypatch.setenv("HOME", str(project / "home"))
    for written, meant in (("~/kt", project / "home" / "kt"), ("./~/kt", project / "~" / "kt")):
        (project / "kt.toml").write_text(f'cache_dir = "{written}"\n')
        assert kt("cache", "path").out == f"{meant}\n"
    (project / "kt.toml").write_text('cache_dir = "~nobody-here/kt"\n')
    outcome = kt("cache", "path")
    assert outcome.code == 2
    assert "cache_dir is '~nobody-here/kt'; there is no such home folder" in outcome.err
