"""The documentation and the program say the same thing."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kt.cli.main import ORDER, app
from kt.errors import KtError
from kt.interrupts import INTERRUPTED, TERMINATED

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield " ".join(path), command
    for name, child in inner.items():
        yield from _leaves(child, (*path, name))


COMMANDS: dict[str, Any] = dict(_leaves(typer.main.get_command(app)))


def _options(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")}


def _section(name: str) -> str:
    """The part of docs/commands.md under the heading of a command."""
    match = re.search(rf"^## `kt {re.escape(name)}`\n(.*?)(?=^## |\Z)", COMMANDS_PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"docs/commands.md has no heading ## `kt {name}`"
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    """Each command has a section in docs/commands.md, which names each of its options."""
    section = _section(name)
    for option in _options(COMMANDS[name]) - {"-h", "--help"}:
        assert re.search(rf"`(?:[^`\n]*[ ,])?{re.escape(option)}(?:[ ,][^`\n]*)?`", section), f"{option} of kt {name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_documented_options_exist(name: str) -> None:
    """No option stands in the table of a command that does not have it."""
    rows = [line.split("|")[1] for line in _section(name).splitlines() if line.startswith("| `-")]
    documented = {flag for row in rows for flag in re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", row)}
    assert documented <= _options(COMMANDS[name])


def test_every_documented_command_exists() -> None:
    """docs/commands.md has a section for commands only."""
    assert set(re.findall(r"^## `kt (.*)`$", COMMANDS_PAGE, re.MULTILINE)) == set(COMMANDS)


def test_every_command_says_what_it_does() -> None:
    """Help texts are there, for commands, arguments and options, and the root lists every command."""
    for name, command in COMMANDS.items():
        assert command.help, name
        assert all(parameter.help for parameter in command.params if hasattr(parameter, "help")), name
    assert set(ORDER) == {name.split()[0] for name in COMMANDS}


def _called() -> Iterator[tuple[str, str]]:
    """Every `kt …` in a code block or a code span of the pages, with the page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```(?:sh|console|bash|make|yaml)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        for line in [*lines, *spans]:
            match = re.match(r"^[\s$>]*(?:PYTHONPATH=\S+ )?(?:python3 -m )?kt ([a-z-].*)$", line)
            if match:
                yield page.name, re.sub(r"\s+#.*$", "", match[1])


@pytest.mark.parametrize(("page", "line"), sorted(set(_called())))
def test_commands_in_the_docs_exist(page: str, line: str) -> None:
    """A command that a page shows exists, with the options that it is shown with."""
    words = shlex.split(re.split(r"[|>&;]", line)[0].replace("…", ""))
    names = [word for word in words if not word.startswith("-")]
    known = [name for name in COMMANDS if names[: len(name.split())] == name.split()]
    groups = {" ".join(name.split()[:1]) for name in COMMANDS}
    flags = {re.sub(r"=.*", "", word) for word in words if re.match(r"--?[a-z]", word)}
    if words[0].startswith("-"):
        assert flags <= {"--help", "-h", "--version"}
    elif known:
        assert flags <= _options(COMMANDS[known[0]]) | {"--help", "-h"}
    else:  # a group by itself, or `kt cache merge|prune|path`
        assert names[0] in groups
        assert not flags - {
            flag for name in COMMANDS if name.split()[0] == names[0] for flag in _options(COMMANDS[name])
        }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    """A relative link of a page leads to a file of the repository."""
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_listed_in_the_readme() -> None:
    """The README leads to each page of docs/."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in readme


def _blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_family_of_the_docs_runs(kt: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The space and the template of docs/adding-a-kernel-family.md do what the page says, by its own commands."""
    page = "adding-a-kernel-family.md"
    (space,), (template,), (commands,) = (_blocks(page, language) for language in ("yaml", "jinja", "sh"))
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(space)
    Path("templates/gemm").mkdir(parents=True)
    Path("templates/gemm/small.cu.j2").write_text(template)
    Path("shapes.yaml").write_text("shapes: [{m: 64, n: 64, k: 64}]\n")
    plan, tune = (shlex.split(line)[1:] for line in commands.splitlines())
    planned = kt(*plan, "--json")
    assert planned.code == 0, planned.err
    assert all(one["registers"] > 0 and not one["verdict"] for one in planned.json["compiled"])
    tuned = kt(*tune, "--json")
    assert [shape["outcome"] for shape in tuned.json["shapes"]] == ["predicted"]


def _error_classes(cls: type[KtError] = KtError) -> Iterator[type[KtError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _error_classes(child)


def test_exit_codes_are_documented() -> None:
    """docs/exit-codes.md lists each code that kt can end with."""
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert documented >= {0, INTERRUPTED, TERMINATED, *(cls.exit_code for cls in _error_classes())}


def test_make_targets_of_the_docs_exist() -> None:
    """`make X` in a page is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    shown = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)\b`", page.read_text(encoding="utf-8"))}
    assert shown
    assert shown <= targets


def test_changelog_knows_the_version() -> None:
    """What is not released stands under Unreleased, and each release has its heading."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[Unreleased\]$", changelog, re.MULTILINE)


FAKE_KT = """#!/bin/sh
echo run >> calls
cmp -s wanted table.json || cp wanted table.json
"""


@pytest.mark.parametrize(("recipe", "asked_again"), [(0, True), (1, False)], ids=["plain", "stamp"])
def test_the_makefiles_of_the_docs(tmp_path: Path, recipe: int, asked_again: bool) -> None:
    """As the page says: with a table that stays the same, only the stamp spares asking again; neither rebuilds."""
    text = _blocks("make.md", "make")[recipe]
    (tmp_path / "Makefile").write_text(f"out: table.json\n\tcat $< > $@\n{text}")
    (tmp_path / "kt").write_text(FAKE_KT)
    (tmp_path / "kt").chmod(0o755)
    (tmp_path / "shapes.yaml").touch()

    def make(wanted: str, at: int) -> tuple[int, str]:
        """Calls of kt so far, and what was built, after the shapes file was saved at a time and `make` run twice."""
        (tmp_path / "wanted").write_text(wanted)
        os.utime(tmp_path / "shapes.yaml", (at, at))
        for _ in range(2):
            environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
            subprocess.run(["make"], cwd=tmp_path, env=environment, check=True, capture_output=True)
        return (tmp_path / "calls").read_text().count("run"), (tmp_path / "out").read_text()

    now = int(time.time())
    assert make("one", now - 500) == (1, "one")
    for name, age in (("table.json", 400), ("table.stamp", 400), ("out", 300)):
        if (tmp_path / name).exists():
            os.utime(tmp_path / name, (now - age, now - age))
    assert make("one", now - 200) == (3 if asked_again else 2, "one")
    assert (tmp_path / "out").stat().st_mtime == now - 300
    if recipe:
        os.utime(tmp_path / "table.stamp", (now - 150, now - 150))
    calls, built = make("two", now - 100)
    assert (built, calls) == ("two", 4 if asked_again else 3)
    (tmp_path / "table.json").unlink()
    calls, built = make("three", now - 100)
    assert built == "three", "a table that was deleted comes back, whatever the stamp says"


def test_what_no_family_serves_is_documented() -> None:
    """docs/shapes-file.md names the formats that a file may ask for and no built-in family has yet."""
    from kt.problems import DTYPES
    from kt.search_spaces.loader import builtin_spaces

    text = " ".join((ROOT / "docs" / "shapes-file.md").read_text(encoding="utf-8").split())
    sentence = text.partition("serves today: for ")[2].partition(" and sums in")[0]
    served = {name for space in builtin_spaces() for name in space.dtypes}
    assert set(re.findall(r"`(\w+)`", sentence)) == set(DTYPES) - served


def test_the_size_of_the_built_in_space_is_documented() -> None:
    """docs/search-spaces.md gives the number of combinations of `simt`."""
    from math import prod

    from kt.search_spaces.loader import builtin_spaces

    (simt,) = (space for space in builtin_spaces() if space.family == "simt")
    total = prod(len(values) for values in [*simt.parameters.values(), *simt.runtime.values()])
    page = (ROOT / "docs" / "search-spaces.md").read_text(encoding="utf-8")
    assert f"`simt` space ({total:,} combinations" in page
