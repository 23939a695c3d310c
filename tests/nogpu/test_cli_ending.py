"""How the command line ends when it is misspelt, cannot be read, or is interrupted before it began."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]
KT = f"{sys.executable} -m kt"
OUTPUTS = ["--help", "--version", "schema table", "show-cache --json", "cache path"]


def _shell(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash in which `kt` is this one; `$?` is that of the first command of a pipe.

    With buffers as Python has them by itself, unless `variables` say otherwise: without, it writes in another order.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **variables}
    script = f'kt() {{ {KT} "$@"; }}; {line}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(["bash", "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("tune", "gemm", "--strategy", "foo"), "invalid value for '--strategy': 'foo' is not one of", "kt tune gemm"),
        (("tune", "gemm"), "missing option '--shapes'", "kt tune gemm"),
        (("show-cache", "--stat"), "no such option: --stat", "kt show-cache"),
        (("plan", "gemm", "--jobs", "-1"), "invalid value for '--jobs'", "kt plan gemm"),
        (("plan", "gemm", "--jobs", "10000"), "invalid value for '--jobs'", "kt plan gemm"),
        (("plan", "gemm", "--jobs", "x"), "invalid value for '--jobs'", "kt plan gemm"),
        (("nope",), "no such command 'nope'", "kt"),
        (("cache", "nope"), "no such command 'nope'", "kt cache"),
        (("cache", "merge"), "missing argument", "kt cache merge"),
    ],
)
def test_a_misspelt_command_line_is_one_message(
    kt: Command, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    """Option errors have the form of every other error, exit 2, and a hint that names the help of the command."""
    outcome = kt(*arguments)
    lines = outcome.err.splitlines()
    assert (outcome.code, outcome.out, len(lines)) == (2, "", 2)
    assert lines[0].startswith(f"kt: error: {message}")
    assert "Value error" not in lines[0]
    assert lines[1] == f"hint: `{hint} --help` lists what there is"


@pytest.mark.parametrize("command", [("tune", "gemm"), ("plan", "gemm"), ("show-cache",)])
def test_a_shapes_file_without_its_option_is_told_with_it(kt: Command, command: tuple[str, ...]) -> None:
    """The commonest slip; a file of another option is none."""
    outcome = kt(*command, "my shapes.yaml", "--space", "space.yaml")
    assert outcome.code == 2
    assert outcome.err.splitlines()[1] == "hint: give the shapes file with its option: --shapes 'my shapes.yaml'"
    assert "--shapes" not in kt("tune", "gemm", "--space", "space.yaml").err.splitlines()[1]
    assert "give the" not in kt(*command, "x.yaml", "--shapes", "y.yaml").err


def test_a_variable_is_named_only_where_it_gave_the_value(kt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not beside an option that was given."""
    assert "KT_JOBS" not in kt("plan", "gemm", "-j", "1000").err
    monkeypatch.setenv("KT_JOBS", "1000")
    assert kt("plan", "gemm").err.startswith("kt: error: KT_JOBS: ")


def test_a_missing_choice_is_one_line(kt: Command) -> None:
    """The option parser writes one choice a line."""
    lines = kt("schema").err.splitlines()
    assert lines[0] == "kt: error: missing argument 'name'. Choose from: shapes, space, table"
    assert len(lines) == 2


@pytest.mark.parametrize("group", [(), ("tune",), ("cache",)])
def test_a_group_by_itself_shows_its_help(kt: Command, group: tuple[str, ...]) -> None:
    """Nothing was asked for: the help goes to standard error, exit 2."""
    outcome = kt(*group)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: kt")


@pytest.mark.parametrize("arguments", OUTPUTS)
def test_a_full_disk_is_one_message(arguments: str) -> None:
    """Data that cannot be written: exit 1 and one message, not a traceback and not silence."""
    done = _shell(f"kt {arguments} > /dev/full")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("kt: error: standard output cannot be written: No space left on device\nhint: ")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("arguments", OUTPUTS)
def test_a_reader_that_went_away_ends_quietly(arguments: str) -> None:
    """As `yes | head -1`: the exit code of a process that SIGPIPE ended, and no message."""
    done = _shell(f"kt {arguments} | true")
    assert (done.returncode, done.stderr) == (141, "")


def test_messages_that_nobody_reads_end_quietly_too() -> None:
    """A pipe that takes standard error and goes away ends the command in the same way."""
    assert _shell("kt nope 2>&1 >/dev/null | true").returncode == 141


def test_output_without_a_buffer_is_whole_or_a_failure() -> None:
    """`PYTHONUNBUFFERED`: Python itself would write once, and take what a full pipe leaves over for written."""
    program = "import os; from kt.cli.streams import checked_streams as checked; os.set_blocking(1, False)\n"
    program += "with checked(): print('x' * 300000)"
    done = _shell(f'{sys.executable} -c "{program}" | (sleep 1; wc -c)', PYTHONUNBUFFERED="1")
    assert int(done.stdout) < 300000, "the pipe holds less"
    assert done.returncode == 1
    assert "KtError: standard output cannot be written" in done.stderr
    blocking = program.replace("os.set_blocking(1, False)", "")
    done = _shell(f'{sys.executable} -c "{blocking}" | wc -c', PYTHONUNBUFFERED="1")
    assert (done.returncode, int(done.stdout)) == (0, 300001)


@pytest.mark.parametrize("arguments", OUTPUTS)
def test_a_closed_standard_output_is_one_message(arguments: str) -> None:
    """Nobody gets the data: exit 1."""
    done = _shell(f"kt {arguments} >&-")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "kt: error: standard output is closed")


def test_messages_never_get_into_the_data() -> None:
    """With standard error closed, messages go nowhere, and the exit code still tells."""
    done = _shell("kt export --json 2>&-")
    assert (done.returncode, done.stdout) == (5, "")


def test_messages_that_nobody_can_read_do_not_end_the_work() -> None:
    """A log on a full disk costs the log: data and exit code are what they are."""
    for command, code in (("plan gemm --device model:h200 --dtype fp64", 0), ("export --json", 5), ("nope", 2)):
        done, whole = _shell(f"kt {command} 2>/dev/full"), _shell(f"kt {command} 2>/dev/null")
        assert (done.returncode, done.stdout) == (whole.returncode, whole.stdout) == (code, whole.stdout)


@pytest.mark.parametrize("variables", [{}, {"PYTHONIOENCODING": "utf-8:strict"}, {"PYTHONIOENCODING": "ascii"}])
@pytest.mark.parametrize("command", ["cache path", "show-cache"])
def test_a_path_that_is_not_utf_8(command: str, variables: dict[str, str], tmp_path: Path) -> None:
    """Its document is JSON, from which the path can be had again; by itself it is printed as it is."""
    folder = tmp_path / os.fsdecode(b"c\xff")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    arguments = [sys.executable, "-m", "kt", *command.split(), "--cache-dir", str(folder)]
    done = subprocess.run([*arguments, "--json"], env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    document = json.loads(done.stdout.decode("ascii"))
    assert os.fsencode(document["path" if "path" in document else "cache"]).startswith(os.fsencode(folder))
    plain = subprocess.run(arguments, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    assert plain.stdout == (os.fsencode(folder) + b"\n" if command == "cache path" else b"")


INTERRUPT_AN_IMPORT = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            {error}
sys.meta_path.insert(0, Interrupt())
sys.argv = ["kt", "--version"]
from kt.__main__ import main
main()
"""


def _import_fails(name: str, error: str, before: str = "", arguments: str = "--version") -> Any:
    code = before + INTERRUPT_AN_IMPORT.format(name=name, error=error).replace("--version", arguments)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["kt.cli.main", "typer", "kt.cli.tune"])
def test_ctrl_c_while_kt_is_loaded(name: str) -> None:
    """Before any command runs, Ctrl-C is exit 130 with one line as well."""
    done = _import_fails(name, "raise KeyboardInterrupt")
    assert (done.returncode, done.stderr) == (130, "kt: interrupted\n")


@pytest.mark.parametrize("name", ["kt.cli.main", "kt.cli.output"])
def test_sigterm_is_told_and_has_its_own_code(name: str) -> None:
    """As of `timeout` and of batch systems: the code that a shell reports for it, and a word."""
    done = _import_fails(name, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "", 'cache", "path')
    assert (done.returncode, done.stderr) == (143, "kt: ended by SIGTERM\n")


def test_whoever_ignores_sigterm_goes_on_ignoring_it() -> None:
    """It was set so by whoever started kt."""
    ignored = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    done = _import_fails("kt.cli.output", "os.kill(os.getpid(), signal.SIGTERM)", ignored, 'cache", "path')
    assert (done.returncode, done.stderr) == (0, "")


# Each line that is said brings another Ctrl-C.
AGAIN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
class Again:
    def __init__(self, stream): self.stream = stream
    def __getattr__(self, name): return getattr(self.stream, name)
    def write(self, text):
        os.kill(os.getpid(), signal.SIGINT)
        return self.stream.write(text)
sys.stderr = Again(sys.stderr)
"""


@pytest.mark.parametrize("name", ["kt.cli.main", "kt.cli.tune", "kt.cli.output"])
def test_ctrl_c_twice_is_ctrl_c(name: str) -> None:
    """The second one, while the first is being told, changes nothing."""
    done = _import_fails(name, "os.kill(os.getpid(), signal.SIGINT)", AGAIN, 'cache", "path')
    assert (done.returncode, done.stderr) == (130, "kt: interrupted\n")


@pytest.mark.parametrize("name", ["kt.cli.main", "kt.cli.output"])
def test_ctrl_c_in_a_text_that_is_executed(name: str, tmp_path: Path) -> None:
    """`python -m` then ends by the signal, though it was dealt with: not so kt."""
    hook = INTERRUPT_AN_IMPORT.partition("sys.argv")[0].format(name=name, error="exec('raise KeyboardInterrupt')")
    (tmp_path / "sitecustomize.py").write_text(hook)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}  # without a shell, which would report both as 130
    command = [sys.executable, "-m", "kt", "cache", "path"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "kt: interrupted\n")


def test_ctrl_c_while_the_command_line_is_read() -> None:
    """The option parser would end in silence."""
    code = """
import sys
from typer.core import TyperGroup
def make_context(*arguments, **more): raise KeyboardInterrupt
TyperGroup.make_context = make_context
sys.argv = ["kt", "--version"]
from kt.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "kt: interrupted\n")


def test_whoever_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    """As a background job of a shell, which does not mean the Ctrl-C that is typed at another program."""
    ignored = "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    done = _import_fails("kt.cli.output", "os.kill(os.getpid(), signal.SIGINT)", ignored, 'cache", "path')
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_package_is_named() -> None:
    """In a checkout without an install: which package, and the command that brings it. A fault of kt's own shows."""
    done = _import_fails("typer", "raise ModuleNotFoundError('no typer', name='typer')")
    assert done.returncode == 1
    assert done.stderr.startswith("kt: error: the Python package typer is missing\nhint: `pip install '.[cuda13]'`")
    assert "Traceback" in _import_fails("kt.cli.tune", "raise ModuleNotFoundError('x', name='kt.cli.tune')").stderr


def test_the_script_begins_where_interrupts_are_told() -> None:
    """The installed `kt` and `python -m kt` have one entry point."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"kt": "kt.__main__:main"}
    from kt.__main__ import PACKAGES

    names = {requirement.partition(">")[0].replace("pyyaml", "yaml") for requirement in project["dependencies"]}
    assert set(PACKAGES) == names
