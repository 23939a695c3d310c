"""Strict YAML: one meaning for every reader, and a place for every value."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kt.errors import InputError
from kt.problems import yaml_source
from kt.problems.yaml_source import MAX_BYTES, read_yaml


@pytest.fixture(params=["libyaml", "python"])
def read(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Reads a text as the file `f.yaml` of the working directory, with libyaml and with PyYAML's own parser."""
    monkeypatch.chdir(tmp_path)
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader")
    yaml_source._loader.cache_clear()

    def read_text(text: str | bytes) -> Any:
        Path("f.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_yaml("f.yaml")

    yield read_text
    yaml_source._loader.cache_clear()


def refused(read: Any, text: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1), ("-7", -7), ("+7", 7), ("0", 0), ("0x40", 64), ("1.5", 1.5), ("1e3", 1000.0), ("1e-3", 0.001),
        (".5", 0.5), ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None), (".inf", float("inf")),
        ("nn", "nn"), ("y", "y"), ("fp8_e4m3", "fp8_e4m3"), ("2001-12-14", "2001-12-14"), ("'64'", "64"),
        ('"no"', "no"), ("1_x", "1_x"), ("None", "None"), ("!!str 64", "64"), ("north", "north"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_words_have_the_meaning_of_yaml_1_2(read: Any, word: str, value: object) -> None:
    """Unquoted words follow the core schema; quoted ones are text."""
    data = read(f"key: {word}\n").data
    assert data == {"key": value}
    assert type(data["key"]) is type(value)


@pytest.mark.parametrize(
    ("word", "why", "advice"),
    [
        ("no", "true or false", "quotes"),
        ("Yes", "true or false", "quotes"),
        ("OFF", "true or false", "quotes"),
        ("on", "true or false", "quotes"),
        ("010", "octal", "leading zero"),
        ("-08", "octal", "leading zero"),
        ("0o17", "a number to some", "decimal"),
        ("0b11", "a number to some", "decimal"),
        ("-0x10", "a number to some", "decimal"),
        ("1:30", "base 60", "decimal"),
        ("1:30:07.5", "base 60", "decimal"),
        ("1_000", "a number to some", "underscores"),
        ("0xff_ff", "a number to some", "underscores"),
        ("1_0.5", "a number to some", "underscores"),
        ("9" * 200, "200 characters", "check"),
    ],
)
def test_words_that_readers_disagree_on_are_refused(read: Any, word: str, why: str, advice: str) -> None:
    """Each trap of YAML 1.1 is refused with file, line, column, key, the word, the reason and what to write."""
    error = refused(read, f"a: 1\nrows:\n  - {{m: 4, n: {word}}}\n")
    assert error.message.startswith("f.yaml:3:15: rows[0].n is " + word[:40])
    assert why in error.message
    assert advice in (error.hint or "")


def test_places(read: Any) -> None:
    """`where` gives line and column from 1, of the value or its closest parent; columns count characters."""
    document = read('é: "ü"\nrows:\n  - {m: 1, "né": [10, 20]}\n  - 5\n')
    assert document.where() == "f.yaml:1:1"
    assert document.where("é") == "f.yaml:1:4"
    assert document.where("rows", 0, "né", 1) == "f.yaml:3:23"
    assert document.where("rows", 1) == "f.yaml:4:5"
    assert document.where("rows", 0, "absent", 3) == "f.yaml:3:5"
    assert document.where("rows", 7) == "f.yaml:3:3"
    assert document.where_key("rows", 0, "né") == "f.yaml:3:12"
    assert document.text("é") == '"ü"'
    assert document.text("rows", 0, "m") == "1"
    assert document.text("rows") == ""


def test_bom_and_crlf(read: Any) -> None:
    """A byte-order mark and Windows line ends change neither values nor places."""
    document = read(b"\xef\xbb\xbfa: 1\r\nb: [2,\r\n  3]\r\n")
    assert document.data == {"a": 1, "b": [2, 3]}
    assert document.where("a") == "f.yaml:1:4"
    assert document.where("b", 1) == "f.yaml:3:3"


def test_repeated_key(read: Any) -> None:
    """A key given twice is refused at its second place, with the line of the first."""
    error = refused(read, "parameters:\n  tile_m: [8]\n  tile_n: [8]\n  tile_m: [16]\n")
    assert error.message == "f.yaml:4:3: parameters.tile_m is given twice, first in line 2"


def test_all_refusals_come_in_one_message(read: Any) -> None:
    """Ten at most, in the order of the file, each with its place, its reason and what to write."""
    error = refused(read, "a: 010\nb: [1_0, 4, on]\na: 4\n")
    lines = error.message.splitlines()
    assert lines[0] == "f.yaml: 4 values cannot be read"
    assert [line.split(" ")[:2] for line in lines[1:]] == [
        ["f.yaml:1:4:", "a"], ["f.yaml:2:5:", "b[0]"], ["f.yaml:2:13:", "b[2]"], ["f.yaml:3:1:", "a"],
    ]  # fmt: skip
    assert "(write " in lines[1]
    many = refused(read, "a:\n" + "  - 010\n" * 12).message.splitlines()
    assert (len(many), many[-1]) == (12, "and 2 more")


def test_aliases(read: Any) -> None:
    """An alias repeats a value; an unknown one is named; one inside itself is refused."""
    assert read("a: &rows [1, 2]\nb: *rows\n").data == {"a": [1, 2], "b": [1, 2]}
    error = refused(read, "a: 1\nb: {c: [*rows, 2]}\n")
    assert error.message == "f.yaml:2:9: alias *rows has no anchor"
    assert "&rows" in (error.hint or "")
    assert "repeats itself" in refused(read, "a: &x {b: [*x]}\n").message


def test_alias_bomb_is_read_in_linear_time(read: Any) -> None:
    """Aliases of aliases share one value instead of multiplying."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 15)]
    data = read("\n".join(lines)).data
    assert data["a14"][0] is data["a14"][8]


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("a: [1, 2\n", "f.yaml:2:1:", "begins in line 1"),
        ("rows:\n  - {m: 1 n: 2}\n", "f.yaml:2:12:", "not valid YAML"),
        ("rows:\n  - {m: 1, n: 2\n", "f.yaml:3:1:", "not valid YAML: while parsing a flow mapping"),
        ("rows:\n  - {m: 1, n: 2", "f.yaml:", "not valid YAML: while parsing a flow mapping"),
        ("rows: [1, 2\n", "f.yaml:2:1:", "not valid YAML: while parsing a flow sequence"),
        ("rows:\n\t- 1\n", "f.yaml:2:1:", "cannot start any token"),
        ("a: b: c\n", "f.yaml:1:5:", "mapping values"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1:", "single document"),
        ("a: !!python/object:os.system x\n", "f.yaml:1:4:", "tag"),
        ("a: !!int 3\n", "f.yaml:1:4:", "tag"),
        ("a: {<<: {b: 1}}\n", "f.yaml:1:5:", "merge key"),
        ("1: 2\n", "f.yaml:1:1:", "not a name"),
        ("? [a]\n: 1\n", "f.yaml:1:3:", "not a name"),
        ("a: {m: 1,000}\n", "f.yaml:1:10:", "`000`"),
        ("a: {grid: cdiv(m, 4) * 2}\n", "f.yaml:1:19:", "`4) * 2`"),
        ("a: é\x01\n", "f.yaml:1:5:", "control character"),
        (b"a: 1\nb: \xff\n", "f.yaml:2:4:", "0xff is not UTF-8"),
        ("a: 1\n".encode("utf-16"), "f.yaml:1:1:", "UTF-16"),
        ("a: 1\n".encode("utf-32"), "f.yaml:1:1:", "UTF-32"),
        (b"\0\0\xfe\xff" + "a: 1\n".encode("utf-32-be"), "f.yaml:1:1:", "UTF-32"),
        ("a: 1\n" + "b" * 2000 + ": 2\n", "f.yaml:2:1:", "a key of 2000 characters; YAML takes 1024"),
        ("a: {m: 1, " + "b" * 2000 + ": 2}\n", "f.yaml:1:11:", "a key of 2000 characters"),
        ('"' + "b " * 1000 + '": 2\n', "f.yaml:1:1:", "a key of 2002 characters"),
        ("[" * 25 + "]" * 25, "f.yaml:1:21:", "deeper than 20"),
        ("[" * 20000 + "]" * 20000, "f.yaml:", "deep|nesting"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_place(read: Any, text: str | bytes, place: str, part: str) -> None:
    """The message begins with file, line and column and says what is wrong."""
    error = refused(read, text)
    assert error.message.startswith(place)
    assert any(word in error.message for word in part.split("|"))


def test_comma_in_a_flow_mapping_gets_advice(read: Any) -> None:
    """An unquoted expression with a comma falls apart in YAML; the hint says to quote it."""
    assert "quotes" in (refused(read, "launches: [{grid: cdiv(m, 4)}]\n").hint or "")


@pytest.mark.parametrize("text", ["", "\n\n", "null\n", "# only a comment\n", "---\n...\n", b"\xef\xbb\xbf"])
def test_empty_file_is_an_error(read: Any, text: str | bytes) -> None:
    """A file without content says nothing; that is refused and not taken for an empty list."""
    assert refused(read, text).message == "f.yaml: the file is empty"


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """A missing file or a folder is one clear error."""
    with pytest.raises(InputError, match=r"absent\.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads standard input, and messages call it <stdin>."""

    class Stdin:
        buffer = io.BytesIO(b"a: no\n")

    monkeypatch.setattr(sys, "stdin", Stdin())
    with pytest.raises(InputError, match="<stdin>:1:4: a is no"):
        read_yaml("-")


def test_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no `sys.stdin` after `<&-`."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="<stdin>: cannot be read: standard input is closed"):
        read_yaml("-")


def test_input_without_end_is_refused_with_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB are read at most, be it a device, a file or standard input."""
    large = tmp_path / "large.yaml"
    large.touch()
    os.truncate(large, MAX_BYTES + 1)
    for path in (Path("/dev/zero"), large):
        with pytest.raises(InputError, match=rf"^{path}: larger than 64 MiB$"):
            read_yaml(path)
    with open("/dev/zero") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(InputError, match=r"^<stdin>: larger than 64 MiB$"):
            read_yaml("-")
