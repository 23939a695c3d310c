"""`--depfile`: make learns what an output was made from, whatever the files are called."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kt.errors import InputError
from kt.export.depfile import render_depfile
from support.commands import Command

MAKE = shutil.which("make")
needs_make = pytest.mark.skipif(MAKE is None, reason="needs make")

NAMES = [
    "shapes.yaml", "two words.yaml", "a#b", "a$b", "a$(b)c", "a%b%c", "a:b", "a*b", "a?b", "[a]b", "~a", "a~", "-a",
    "@a", "(a)b", "é 目录", "a,b", "a&b", "a'b", 'a"b', "a!b", "{a}", "a^b", "a+b", "a`b", "a<b>",
]  # fmt: skip
UNSPEAKABLE = ["", "a\nb", "a\tb", "a;b", "a=b", "a|b", "a\\b", "lib(member)", "a\udcffb"]


def make(folder: Path, target: str = "out") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", target], cwd=folder, capture_output=True, text=True)


@needs_make
@pytest.mark.parametrize("name", NAMES)
def test_make_follows_a_prerequisite_of_any_name(name: str, tmp_path: Path) -> None:
    """A newer one rebuilds, an older one does not, and make goes on if it is gone."""
    (tmp_path / "Makefile").write_text("out:\n\t@echo run >> log; touch $@\n-include out.d\n")
    (tmp_path / "out.d").write_text(render_depfile("out", [name, "other"]))
    (tmp_path / "other").touch()
    (tmp_path / name).touch()
    now = time.time()
    for file, age in ((name, 50), ("other", 50)):
        os.utime(tmp_path / file, (now - age, now - age))
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: None,
        lambda: os.utime(tmp_path / name, (now + 50, now + 50)),
        (tmp_path / name).unlink,
    ]
    runs = []
    for change in changes:
        change()
        done = make(tmp_path)
        assert done.returncode == 0, done.stderr
        runs.append((tmp_path / "log").read_text().count("run"))
    assert runs == [1, 1, 2, 3]


@needs_make
@pytest.mark.parametrize("name", [name for name in NAMES if name[0] not in "-@~"])
def test_make_knows_a_target_of_any_name(name: str, tmp_path: Path) -> None:
    """The target of the rule is quoted too."""
    (tmp_path / "Makefile").write_text("include out.d\n")
    (tmp_path / "out.d").write_text(render_depfile(name, ["missing"]))
    (tmp_path / name).touch()
    done = make(tmp_path, name)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", UNSPEAKABLE)
def test_a_name_that_make_cannot_have_is_refused(name: str) -> None:
    """Better than a makefile that means something else."""
    for target, prerequisite in ((name, "a"), ("a", name)):
        with pytest.raises(InputError, match="cannot be named in a makefile"):
            render_depfile(target, [prerequisite])


def test_each_prerequisite_is_a_target_once_and_the_target_is_none_of_its_own() -> None:
    """As -MP has it; a file that is named twice stands once."""
    text = render_depfile("out", ["b", "a", "b", "out"])
    assert text == "out: \\\n  b \\\n  a \\\n  out\n\nb:\n\na:\n"


# The commands


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_family: tuple[str, ...], no_gpu: None) -> Path:
    """A folder with shapes, a space, templates and a kt.toml, tuned by the model."""
    folder = tmp_path / "my project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "shapes.yaml").write_text("shapes: [{m: 16, n: 16, k: 16}]\n")
    (folder / "space.yaml").write_bytes(Path(small_family[1]).read_bytes())
    shutil.copytree(small_family[3], folder / "templates")
    (folder / "kt.toml").write_text('device = "model:h200"\nspace = "space.yaml"\ntemplates = ["templates"]\n')
    return folder


TUNE = ("tune", "gemm", "--shapes", "shapes.yaml", "-q")
EXPORT = ("export", "--json", "--predicted", "--shapes", "shapes.yaml", "-q")


def prerequisites(depfile: str) -> tuple[str, list[str]]:
    """Target and prerequisites of a depfile, as make reads them."""
    target, _, rest = Path(depfile).read_text().partition("\n\n")[0].partition(":")
    return target, [word.replace("\\ ", " ") for word in rest.replace("\\\n", "").split("  ") if word.strip()]


def test_a_table_depends_on_all_that_decides_it(kt: Command, project: Path) -> None:
    """Shapes as given, space, templates with all they include, kt.toml; not the cache, which a run changes."""
    assert kt(*TUNE, "-o", "table.json", "--depfile", "table.d").code == 0
    target, names = prerequisites("table.d")
    assert target == "table.json"
    files = [name.strip() for name in names]
    assert files[0] == "shapes.yaml"
    for wanted in ("space.yaml", "templates/gemm/small.cu.j2", "include/kt/common.cuh", "kt.toml"):
        assert any(name.endswith(wanted) for name in files), wanted
    assert not any("sqlite3" in name for name in files)
    assert all(Path(name).exists() for name in files)


def test_an_export_depends_on_the_cache_too(kt: Command, project: Path, own_environment: Path) -> None:
    """What it writes comes from there."""
    assert kt(*TUNE).code == 0
    assert kt(*EXPORT, "-o", "t.json", "--depfile", "t.d", "--depfile-target", "t.stamp").code == 0
    target, names = prerequisites("t.d")
    assert target == "t.stamp"
    assert str(own_environment / "kt.sqlite3") in [name.strip() for name in names]


def test_a_depfile_that_would_not_change_is_left_alone(kt: Command, project: Path) -> None:
    """As the output itself."""
    assert kt(*TUNE, "-o", "table.json", "--depfile", "table.d").code == 0
    os.utime("table.d", (1, 1))
    assert kt(*TUNE, "-o", "table.json", "--depfile", "table.d").code == 0
    assert Path("table.d").stat().st_mtime == 1


def test_without_an_output_there_is_no_depfile(kt: Command, project: Path) -> None:
    """An export that fails leaves both as they were."""
    Path("t.d").write_text("old")
    Path("t.json").write_text("old")
    assert kt(*EXPORT, "-o", "t.json", "--depfile", "t.d").code == 5
    assert (Path("t.d").read_text(), Path("t.json").read_text()) == ("old", "old")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--depfile", "t.d"), "needs an output file"),
        (("-o", "-", "--depfile", "t.d"), "needs an output file"),
        (("-o", "t", "--depfile", "-"), "not standard output"),
        (("-o", "t", "--depfile-target", "x"), "is for --depfile"),
        (("-o", "t", "--depfile", "./t"), "both the output and its depfile"),
        (("-o", "t", "--depfile", "shapes.yaml"), "is an input"),
        (("-o", "t", "--depfile", "kt.toml"), "is an input"),
        (("-o", "t", "--depfile", "."), "is a folder\nhint: name a file in it with --depfile"),
        (("-o", "t", "--depfile", ""), "is empty"),
        (("-o", "t", "--depfile", "no/t.d"), "does not exist"),
        (("-o", "t", "--depfile", "t.d", "--depfile-target", "a=b"), "cannot be named"),
        (("-o", "t", "--depfile", "t.d", "--depfile-target", ""), "cannot be named"),
    ],
)
@pytest.mark.parametrize("command", [TUNE, EXPORT], ids=["tune", "export"])
def test_what_cannot_be_is_refused_before_any_work(
    kt: Command, project: Path, command: tuple[str, ...], given: tuple[str, ...], words: str
) -> None:
    """Exit 2, and nothing is made or changed."""
    before = sorted(os.listdir("."))
    outcome = kt(*command, *given)
    assert outcome.code == 2
    assert words in outcome.err
    assert sorted(os.listdir(".")) == before


def test_the_cache_is_no_depfile(kt: Command, project: Path, own_environment: Path) -> None:
    """Its results would be lost."""
    assert kt(*TUNE).code == 0
    outcome = kt(*EXPORT, "-o", "t.json", "--depfile", own_environment / "kt.sqlite3")
    assert outcome.code == 2
    assert "is the cache" in outcome.err
    assert "--depfile" in outcome.err


RULE = """
out: table.json
	cat $< > $@; echo built >> log
table.json: table.stamp ;
table.stamp: $(if $(wildcard table.json),,again)
	echo asked >> log
	{kt} tune gemm --shapes shapes.yaml -q -o table.json --depfile table.d --depfile-target $@
	touch $@
.PHONY: again
-include table.d
"""


@needs_make
def test_make_asks_again_only_if_something_has_changed(project: Path) -> None:
    """A changed template or list of shapes asks kt; only a changed table rebuilds."""
    kt = f"PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m kt"
    Path("Makefile").write_text(RULE.format(kt=kt))

    def made(change: Callable[[], object] = lambda: None) -> tuple[int, int]:
        """How often kt was asked and the product built after the change; a file that it touches is newer."""
        earlier = Path("log").read_text() if Path("log").exists() else ""
        for file in filter(Path.is_file, project.rglob("*")):
            age = {"table.stamp": 60, "table.json": 60, "out": 50}.get(file.name, 100)
            os.utime(file, (time.time() - age, time.time() - age))
        change()
        done = make(project)
        assert done.returncode == 0, done.stderr
        log = Path("log").read_text()[len(earlier) :]
        return log.count("asked"), log.count("built")

    assert made() == (1, 1)
    assert made() == (0, 0)
    shapes = Path("shapes.yaml")
    assert made(lambda: shapes.write_text(f"# a comment\n{shapes.read_text()}")) == (1, 0)
    assert made(lambda: shapes.write_text("shapes: [{m: [16, 32], n: 16, k: 16}]\n")) == (1, 1)
    template = Path("templates/gemm/small.cu.j2")
    assert made(lambda: template.write_text(template.read_text() + "// more\n")) == (1, 1)  # other sources in the table
    assert made(lambda: os.utime("kt.toml")) == (1, 0)
    assert made() == (0, 0)
    assert made(Path("table.json").unlink) == (1, 1)
    assert made() == (0, 0)
