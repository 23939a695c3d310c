"""The values of options: what they may be, and that those that cannot be meant are refused before any work."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store

ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")

SHAPES = "dtype: fp32\nshapes:\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(SHAPES + "  - {m: 64, n: 64, k: 64}\n  - {m: 32, n: 64, k: 64}\n")
    return path


def test_several_shapes_files_count_as_one(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """--shapes twice: all shapes in the order of the files; what stands in both stands once."""
    more = tmp_path / "more.yaml"
    more.write_text(SHAPES + "  - {m: 32, n: 64, k: 64}\n  - {m: 16, n: 64, k: 64}\n")
    outcome = kt("plan", "gemm", "--device", "model:h200", "--shapes", shapes, "--shapes", more, "--json")
    assert outcome.code == 0
    assert [shape["problem"]["m"] for shape in outcome.json["shapes"]] == [64, 32, 16]


@pytest.mark.parametrize("second", ["--shapes", "--space"])
@pytest.mark.parametrize("command", [("tune", "gemm"), ("plan", "gemm"), ("export", "--json"), ("show-cache",)])
def test_standard_input_stands_for_one_file(kt: Command, command: tuple[str, ...], second: str) -> None:
    """It can be read once; that the second file is empty would be no explanation."""
    outcome = kt(*command, "--shapes", "-", second, "-")
    assert outcome.code == 2
    assert f"--shapes and {second} both name standard input" in outcome.err


def test_one_space_alone_can_be_named(kt: Command, shapes: Path) -> None:
    """--shapes and --templates may be repeated; of several spaces the last one would have counted without a word."""
    given = ("--space", "one.yaml", "--space", "two.yaml")
    outcome = kt("plan", "gemm", "--device", "model:h200", "--shapes", shapes, *given)
    assert outcome.code == 2
    assert "kt: error: --space is given twice" in outcome.err


@pytest.mark.parametrize("option", ["--output", "--depfile"])
def test_one_output_alone_can_be_named(kt: Command, tmp_path: Path, option: str) -> None:
    """The first of two files would not have been written, without a word; -o is --output."""
    short = "-o" if option == "--output" else option
    outcome = kt("export", "--json", "-o", tmp_path / "t", short, tmp_path / "one", option, tmp_path / "two")
    assert (outcome.code, list(tmp_path.glob("[ot]*"))) == (2, [])
    assert f"kt: error: {option} is given twice" in outcome.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("x=1:9",), "--range 'x=1:9': it is no range\nhint: m=1:4096, or"),
        (("m=1:0",), "--range 'm=1:0': the range from 1 to 0 is empty\nhint: give the smaller one first"),
        (("m=1:9:0",), "--range 'm=1:9:0': it has 0 buckets; there must be 1 to 256"),
        (("m=1:9", "m=1:4"), "--range 'm=1:4': m has another range already\nhint: give one for a size"),
    ],
)
def test_a_range_that_cannot_be_used_is_shown(kt: Command, shapes: Path, given: tuple[str, ...], said: str) -> None:
    """With what is wrong with it, and what to write."""
    options = [word for text in given for word in ("--range", text)]
    outcome = kt("plan", "gemm", "--device", "model:h200", "--shapes", shapes, *options)
    assert outcome.code == 2
    assert outcome.err.startswith(f"kt: error: {said}")


def test_a_shapes_file_in_the_place_of_a_space_is_told_by_its_key(kt: Command, shapes: Path) -> None:
    """Not by what it lacks as a space."""
    outcome = kt("plan", "gemm", "--device", "model:h200", "--space", shapes)
    assert outcome.code == 2
    assert "shapes.yaml:1:1: dtype is not a known key; did you mean dtypes?" in outcome.err


def test_an_option_without_its_value_names_the_command_s_help(kt: Command) -> None:
    outcome = kt("plan", "gemm", "--range")
    assert outcome.code == 2
    assert "hint: `kt plan gemm --help` lists what there is" in outcome.err


def test_a_number_is_asked_for_in_words_beside_what_was_given(kt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a variable above all, which was perhaps set somewhere else."""
    outcome = kt("export", "--header", "--max-kernels", "few")
    assert outcome.code == 2
    assert "'few' is not a whole number, 1 or more" in outcome.err
    for value, shown in (("fast", "'fast'"), ("1.5", "'1.5'"), ("257", "257"), ("-1", "-1")):
        monkeypatch.setenv("KT_JOBS", value)
        assert f"kt: error: KT_JOBS: {shown} is not a whole number from 0 to 256\n" in kt("plan", "gemm").err


@pytest.mark.parametrize(
    "command", [("tune", "gemm"), ("plan", "gemm"), ("bench", "gemm"), ("show-cache",), ("export", "--json")]
)
def test_a_format_that_nobody_knows_is_told_of_its_option(kt: Command, shapes: Path, command: tuple[str, ...]) -> None:
    """With those that there are, and the nearest; an empty one, as of a variable that is not set, is none."""
    for given in ((), ("--shapes", shapes)) if command[0] not in ("tune", "bench") else (("--shapes", shapes),):
        outcome = kt(*command, *given, "--dtype", "fp23")
        assert outcome.code == 2
        assert outcome.err.startswith("kt: error: --dtype is 'fp23'; it must be one of fp32, tf32, fp64, ")
        assert "hint: did you mean fp32?\n" in outcome.err
        assert "--dtype is ''" in kt(*command, *given, "--dtype", "").err


def test_quiet_and_verbose_together(kt: Command, shapes: Path, small_family: tuple[str, ...]) -> None:
    """More data and no messages: full configurations, but no line for each candidate."""
    outcome = kt("tune", "gemm", "--device", "model:h200", "--shapes", shapes, *small_family, "-q", "-v")
    assert outcome.code == 0
    assert outcome.err == ""
    assert "tile=" in outcome.out


@pytest.mark.parametrize(("name", "hint"), [("nope", "known: mma, "), ("smit", "did you mean simt?")])
def test_a_family_that_nobody_knows_is_refused(kt: Command, name: str, hint: str) -> None:
    """As an unknown format or layout is. One that only the cache knows, of a space of one's own, can be asked for."""
    outcome = kt("show-cache", "--family", name)
    assert outcome.code == 2
    assert outcome.err.startswith(f"kt: error: --family {name!r} is unknown\nhint: {hint}")


def test_a_family_of_the_cache_is_known(
    kt: Command, own_environment: Path, make_winner: Callable[..., BestConfig]
) -> None:
    """Its space need not be at hand."""
    with Store.open(own_environment) as store:
        store.put_best(make_winner(family="mine"))
    assert len(kt("show-cache", "--family", "mine", "--json").json["entries"]) == 1


def test_a_negative_seed_is_refused(kt: Command, shapes: Path) -> None:
    """--seed is 0 or more, as random number generators want it."""
    outcome = kt("tune", "gemm", "--device", "model:h200", "--shapes", shapes, "--seed", "-1")
    assert outcome.code == 2
    assert "invalid value for '--seed': -1 is not a whole number, 0 or more" in outcome.err


def test_help_speaks_of_values_in_words(kt: Command) -> None:
    """A metavariable in capitals, and no name of a type in the program."""
    for command in (("tune", "gemm"), ("plan", "gemm"), ("bench", "gemm"), ("show-cache",), ("export",)):
        out = kt(*command, "--help").out
        assert "int range" not in out
        assert "list[" not in out


@pytest.mark.parametrize(("end", "code"), [("| true", 141), ("> /dev/full", 1)])
def test_the_table_is_written_although_nobody_reads_what_is_printed(
    shapes: Path, tmp_path: Path, small_family: tuple[str, ...], end: str, code: int
) -> None:
    """A reader that goes away, or a full disk under standard output, costs no result: -o is written before."""
    table, many = tmp_path / "table.json", tmp_path / "many.yaml"
    many.write_text(SHAPES + "".join(f"  - {{m: {m}, n: 64, k: 64}}\n" for m in range(1, 201)))
    options = shlex.join([*small_family, "--device", "model:h200", "--shapes", str(many), "-q", "-o", str(table)])
    line = f"{sys.executable} -m kt tune gemm {options} {end}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stderr
    assert len(json.loads(table.read_text())["rows"]) == 200


LONG = "n" * 300  # no file system takes a name of more than 255 bytes


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("-o", LONG, "cannot be written: File name too long"),
        ("-o", "circle", "cannot be written: Too many levels of symbolic links"),
        ("--templates", LONG, "is not a folder"),
        ("--templates", "circle", "is not a folder"),
    ],
)
def test_paths_that_the_system_refuses_are_one_message(
    kt: Command, shapes: Path, tmp_path: Path, option: str, name: str, message: str
) -> None:
    """Names that are too long and links in a circle: exit 2 with the path, before the device is looked for."""
    (tmp_path / "circle").symlink_to("circle")
    outcome = kt("tune", "gemm", "--shapes", shapes, option, tmp_path / name)
    assert outcome.code == 2
    assert outcome.err.startswith("kt: error: ")
    assert message in outcome.err.splitlines()[0]


def test_the_cache_folder_may_be_one_that_cannot_exist(kt: Command, tmp_path: Path) -> None:
    """`kt cache path` tells where the cache would be, whatever the system says about that place."""
    outcome = kt("cache", "path", "--json", "--cache-dir", tmp_path / LONG)
    assert outcome.code == 0
    assert outcome.json["exists"] is False


@pytest.mark.parametrize("what", ["--stale", "--unreadable", "--damaged", "--cubins"])
def test_pruning_what_cannot_be_looked_at_is_one_message(kt: Command, tmp_path: Path, what: str) -> None:
    """It is not taken for an empty cache either."""
    outcome = kt("cache", "prune", what, "--cache-dir", tmp_path / LONG)
    assert outcome.code == 1
    assert outcome.err.splitlines()[0].endswith("File name too long")


@pytest.mark.parametrize("what", ["--stale", "--failed", "--unreadable"])
def test_pruning_makes_no_cache(kt: Command, tmp_path: Path, what: str) -> None:
    """A folder without a cache is left as it is."""
    assert kt("cache", "prune", what, "--cache-dir", tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_a_missing_template_is_told_before_the_missing_gpu(
    kt: Command, shapes: Path, small_family: tuple[str, ...], command: str
) -> None:
    """Input files come first: exit 2 for the template of --space, not 4 for the GPU."""
    outcome = kt(command, "gemm", "--device", "local", "--shapes", shapes, *small_family[:2])
    assert outcome.code == 2
    assert "there is no template gemm/small.cu.j2" in outcome.err


@pytest.mark.parametrize("option", ["--shapes", "--space", "--templates", "--cache-dir"])
def test_an_empty_path_is_refused(kt: Command, shapes: Path, option: str) -> None:
    """What a shell makes of a variable that is not set does not name the working folder."""
    outcome = kt("plan", "gemm", "--device", "model:h200", "--shapes", shapes, option, "")
    assert outcome.code == 2
    assert option in outcome.err
    assert "a path is empty" in outcome.err


def test_an_empty_variable_is_no_variable(kt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """`KT_CACHE_DIR=` leaves the cache in its usual place."""
    monkeypatch.delenv("KT_CACHE_DIR")
    usual = kt("cache", "path").out
    monkeypatch.setenv("KT_CACHE_DIR", "")
    assert kt("cache", "path").out == usual
    assert usual


def test_an_output_that_is_spelt_as_a_folder_is_refused(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """`-o sub/` means no file called sub."""
    outcome = kt("tune", "gemm", "--device", "model:h200", "--shapes", shapes, "-o", f"{tmp_path}/sub/")
    assert outcome.code == 2
    assert "sub/ is the name of a folder" in outcome.err
    assert not (tmp_path / "sub").exists()


@pytest.mark.parametrize(("option", "value"), [("--budget", "\u0663s"), ("--device", "\u0660")])
def test_digits_are_those_of_ascii(kt: Command, shapes: Path, option: str, value: str) -> None:
    """Arabic digits, which Python takes for numbers, are a slip in a command line."""
    outcome = kt("tune", "gemm", "--device", "model:h200", "--shapes", shapes, option, value)
    assert outcome.code == 2
    assert outcome.err.startswith(f"kt: error: {option} ")


@pytest.mark.parametrize("command", [("show-cache",), ("cache", "prune", "--failed"), ("cache", "prune", "--damaged")])
def test_a_pipe_in_place_of_the_cache_is_refused(kt_process: Command, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Nobody writes to it, so to read from it would never end."""
    os.mkfifo(tmp_path / "kt.sqlite3")
    outcome = kt_process(*command, "--cache-dir", tmp_path)
    assert outcome.code == 1
    assert "kt.sqlite3 is not a kt cache: it is a pipe" in outcome.err
