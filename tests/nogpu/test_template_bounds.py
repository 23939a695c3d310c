"""Templates that never end, grow without bound or cannot be read end in a message with the file, and the line."""

import time
from pathlib import Path

import pytest

from kt.errors import InputError
from kt.problems import Problem
from kt.search_spaces.loader import load_space
from kt.templates.digest import template_digest
from kt.templates.lookup import MAX_BYTES
from kt.templates.render import render
from support.commands import Command
from support.small_family import SMALL_SPACE


def rendered(folder: Path, text: str | bytes, **files: str) -> str:
    (folder / "gemm").mkdir(exist_ok=True)
    (folder / "gemm" / "small.cu.j2").write_bytes(text if isinstance(text, bytes) else text.encode())
    for name, content in files.items():
        (folder / f"{name}.j2").write_text(content)
    (folder / "space.yaml").write_text(SMALL_SPACE)
    space = load_space(folder / "space.yaml")
    return render(space, space.default_config, Problem(8, 8, 8).signature, "sm_80", [folder]).text


ENDLESS = "without end"


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ('\n{% include "gemm/small.cu.j2" %}', r"gemm/small\.cu\.j2:2", ENDLESS),
        ('\n\n{% include "other.j2" %}', r"(gemm/small\.cu\.j2:3|other\.j2:2)", ENDLESS),
        ('{% extends "gemm/small.cu.j2" %}', r"gemm/small\.cu\.j2:1", ENDLESS),
        ("{% macro f() %}\n{{ f() }}{% endmacro %}\n{{ f() }}", r"gemm/small\.cu\.j2:2", ENDLESS),
        ("\n{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", r"gemm/small\.cu\.j2", "nested too deep"),
        ("{% for i in [1] %}" * 30 + "{% endfor %}" * 30, r"gemm/small\.cu\.j2", "nested"),
        ("\n{% for i in range(10**10) %}{% endfor %}", r"gemm/small\.cu\.j2:2", "calls and turns of loops"),
        ("\n{% for i in range(10**30) %}{% endfor %}", r"gemm/small\.cu\.j2:2", "calls and turns of loops"),
        ("\n{% for i in range(10**4) %}{% for j in range(10**4) %}{% endfor %}{% endfor %}", r":2", "turns of loops"),
        (
            "{% macro f(n) %}\n{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
            r"gemm/small\.cu\.j2:2", "calls and turns of loops",
        ),
        ("{% for i in range(10**5) %}\n0123456789012345678901234567890123456789abcdef{% endfor %}", ":1", "4,194,304"),
        ('\n{{ "x" * 10**11 }}', r"gemm/small\.cu\.j2:2", "longer than"),
        ("\n{{ [1, 2] * 10**11 }}", r"gemm/small\.cu\.j2:2", "longer than"),
        ("\n{{ 10**(10**10) }}", r"gemm/small\.cu\.j2:2", "bits"),
        ("\n{{ '%0100000000000d' % tile }}", r"gemm/small\.cu\.j2:2", "width"),
        ('\n{{ "x" * tile | int ** 40 }}', r"gemm/small\.cu\.j2:2", "longer than"),
    ],
)  # fmt: skip
def test_a_runaway_template_is_told_with_its_place(tmp_path: Path, text: str, place: str, why: str) -> None:
    """And within seconds, whatever it would make."""
    began = time.process_time()
    with pytest.raises(InputError, match=rf"(?s)^{tmp_path}.*{place}.*{why}"):
        rendered(tmp_path, text, other='\n{% include "gemm/small.cu.j2" %}')
    assert time.process_time() - began < 10


def test_what_a_kernel_needs_is_within_the_bounds(tmp_path: Path) -> None:
    """Loops, products, powers, formats and recursion that ends; a second rendering has the bounds for itself."""
    text = (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}x{% endif %}{% endmacro %}{{ f(3) }}"
        "{% for i in range(9, 0, -3) %}{{ i }}{% endfor %}{{ 2 ** 10 }}{{ '%03d' % tile }}{{ 'ab' * 2 }}{{ 7 % 4 }}"
        "{% for i in range(600000) %}{% endfor %}"
    )
    for _ in range(3):
        assert rendered(tmp_path, text) == "xxx9631024008abab3"


@pytest.mark.parametrize("command", ["tune", "plan --compile"])
def test_commands_end_with_code_2(kt: Command, small_family: tuple[str, ...], tmp_path: Path, command: str) -> None:
    template = Path(small_family[-1]) / "gemm" / "small.cu.j2"
    template.write_text('{% include "gemm/small.cu.j2" %}')
    (tmp_path / "shapes.yaml").write_text("shapes: [{m: 64, n: 64, k: 64}]\n")
    verb, *more = command.split()
    outcome = kt(verb, "gemm", "--shapes", tmp_path / "shapes.yaml", *small_family, "--device", "model:h200", *more)
    assert outcome.code == 2
    assert f"{template}:1:" in outcome.err


def test_a_template_that_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    """By rendering and by the digest alike, in whatever file it is."""
    with pytest.raises(InputError, match=r"small\.cu\.j2:2: byte 0xe9 is not UTF-8"):
        rendered(tmp_path, b"// one\n// caf\xe9\n")
    with pytest.raises(InputError, match=r"small\.cu\.j2:2: byte 0xe9 is not UTF-8"):
        template_digest(load_space(tmp_path / "space.yaml"), [tmp_path])
    (tmp_path / "part.cuh").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"part\.cuh:1: byte 0xff is not UTF-8"):
        rendered(tmp_path, '{% include "part.cuh" %}')


def test_a_byte_order_mark_and_carriage_returns_are_no_text(tmp_path: Path) -> None:
    assert rendered(tmp_path, b"\xef\xbb\xbf// {{ tile }}\r\n//\r\n") == "// 8\n//\n"


def test_a_template_that_cannot_be_read_is_told_by_name(tmp_path: Path) -> None:
    rendered(tmp_path, "//")
    space = load_space(tmp_path / "space.yaml")
    path = tmp_path / "gemm" / "small.cu.j2"
    path.unlink()
    path.symlink_to("/proc/self/mem")  # a regular file whose first byte no one can read, root neither
    for use in (lambda: render(space, space.default_config, Problem(8, 8, 8).signature, "sm_80", [tmp_path]),
                lambda: template_digest(space, [tmp_path])):  # fmt: skip
        with pytest.raises(InputError, match=r"small\.cu\.j2: cannot be read: "):
            use()


def test_a_folder_that_cannot_be_searched_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    rendered(tmp_path, "//")
    space = load_space(tmp_path / "space.yaml")
    monkeypatch.setattr(Path, "is_file", denied)
    with pytest.raises(InputError, match=rf"{tmp_path}/gemm/small\.cu\.j2: cannot be read: Permission denied"):
        template_digest(space, [tmp_path])


def test_a_file_larger_than_any_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"small\.cu\.j2: larger than 4 MiB"):
        rendered(tmp_path, b"/" * (MAX_BYTES + 1))


def test_chance_is_no_part_of_a_source(tmp_path: Path) -> None:
    """Equal choices give equal sources, or the cache would hold kernels that nobody can make again."""
    with pytest.raises(InputError, match=r"small\.cu\.j2:1: .*random"):
        rendered(tmp_path, "{{ [1, 2, 3] | random }}")
