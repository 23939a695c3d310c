"""Expressions printed as C++ mean what they mean in Python, whatever is filled in at export."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from kt.errors import InputError
from kt.export.cpp_expression import known, printed, reference
from kt.search_spaces.expression import Expression, parse

HERE = Path(__file__).parents[2] / "export"
GXX = shutil.which("g++")
NAMES = ("m", "n", "k", "tile", "word")
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]


def number(chooser: random.Random, depth: int) -> str:
    if depth == 0 or chooser.random() < 0.2:
        return chooser.choice([*("m", "n", "k", "tile") * 2, "1", "2", "3", "7", "16", "0", "-5", "2**31"])
    kind = chooser.randrange(12)
    first, second = (number(chooser, depth - 1) for _ in range(2))
    if kind < 5:
        return f"({first} {chooser.choice(['+', '-', '*', '//', '%'])} {second})"
    if kind == 5:
        return f"{first} {chooser.choice(['+', '-', '*'])} {second} {chooser.choice(['+', '-', '*'])} {first}"
    if kind == 6:
        return f"cdiv({first}, {second})"
    if kind == 7:
        return f"{chooser.choice(['min', 'max'])}({first}, {second}, {number(chooser, depth - 1)})"
    if kind == 8:
        return f"({first} if {truth(chooser, depth - 1)} else {second})"
    if kind == 9:
        return f"({first} {chooser.choice(['and', 'or'])} {second})"
    return chooser.choice([f"-({first})", f"abs({first})", f"({truth(chooser, depth - 1)}) * {second}"])


def truth(chooser: random.Random, depth: int) -> str:
    if depth == 0:
        return f"{number(chooser, 0)} {chooser.choice(COMPARISONS)} {number(chooser, 0)}"
    kind = chooser.randrange(6)
    first, second = (truth(chooser, depth - 1) for _ in range(2))
    if kind == 0:
        return f"({first} {chooser.choice(['and', 'or'])} {second})"
    if kind == 1:
        return f"{first} {chooser.choice(['and', 'or'])} {second} {chooser.choice(['and', 'or'])} {first}"
    if kind == 2:
        return f"not ({first})"
    if kind == 3:
        return f"{number(chooser, depth - 1)} {chooser.choice(['in', 'not in'])} (1, 2, {number(chooser, 0)})"
    if kind == 4:
        return f"word {chooser.choice(['==', '!='])} 'rows' and {first}"
    values = [number(chooser, depth - 1) for _ in range(3)]
    return f"{values[0]} {chooser.choice(COMPARISONS)} {values[1]} {chooser.choice(COMPARISONS)} {values[2]}"


def program(lines: list[str]) -> str:
    """Reads m, n, k and prints the value of each expression, or "-" where it has none."""
    numbers = (HERE / "checked_numbers.cuh").read_text()
    body = "\n".join(lines)
    return f"""#include <cstdio>
{numbers}
static void say(Int a) {{ a.valid ? (void)std::printf("%lld\\n", a.value) : (void)std::printf("-\\n"); }}
static void say(Truth a) {{ say(number(a)); }}
int main() {{
  long long given[3];
  while (std::scanf("%lld %lld %lld", given, given + 1, given + 2) == 3) {{
    const Int m = given[0], n = given[1], k = given[2];
    (void)m, (void)n, (void)k;
{body}
  }}
}}
"""


def built(folder: Path, source: str) -> Path:
    assert GXX is not None
    (folder / "program.cpp").write_text(source)
    strict = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    checks = ["-fsanitize=undefined", "-fno-sanitize-recover"]
    command = [GXX, *strict, *checks, str(folder / "program.cpp"), "-o", str(folder / "program")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return folder / "program"


@pytest.mark.skipif(GXX is None, reason="needs g++")
def test_printed_expressions_have_the_values_of_python(tmp_path: Path) -> None:
    """Random expressions, some names known at export and the others read at run time: no value differs from Python's.

    Where Python has no value, C++ has none either, but for a factor of 0 that is known: it makes the product 0.
    """
    chooser = random.Random(11)
    lines: list[str] = []
    cases: list[tuple[Expression, dict[str, int | str]]] = []
    while len(cases) < 250:
        expression = parse(number(chooser, 3) if chooser.random() < 0.5 else truth(chooser, 3))
        tile, word = chooser.choice([0, 1, 8, 128]), chooser.choice(["rows", "columns"])
        terms = {name: reference(name) for name in "mnk"} | {"tile": known(tile), "word": known(word)}
        try:
            term = printed(expression, terms)
        except InputError:
            continue  # a division of known numbers by zero, or too large a number
        kind = "Truth" if term.kind == "truth" else "Int"
        text = term.as_truth if kind == "Truth" else term.as_int
        lines.append(f"    say({kind}({text}));")
        cases.append((expression, {"tile": tile, "word": word}))
    sizes = [(0, 0, 0), (1, 1, 1), (2**31 - 1, 2**31 - 1, 2**31 - 1), (-3, 7, 128), (4096, 128, 3)]
    sizes += [(chooser.randrange(-9, 300), chooser.randrange(1, 5000), chooser.randrange(-2, 40)) for _ in range(8)]
    given = "\n".join(" ".join(map(str, size)) for size in sizes)
    command = [str(built(tmp_path, program(lines)))]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = iter(done.stdout.split())
    compared = absent = 0
    for m, n, k in sizes:
        for expression, more in cases:
            answer = next(answers)
            try:
                value = int(expression.evaluate({"m": m, "n": n, "k": k} | more))
            except InputError:
                absent += answer != "-"
                continue
            compared += answer != "-"
            assert answer in ("-", str(value)), (expression.text, m, n, k, more)
            assert answer != "-" or _is_wide(expression.text, m, n, k), (expression.text, m, n, k, more)
    assert compared > 2000
    assert absent < 60


def _is_wide(text: str, *sizes: int) -> bool:
    """Whether a number beyond 62 bits may have arisen on the way."""
    return "2**31" in text or max(map(abs, sizes)) > 2**20


def test_what_is_known_is_filled_in() -> None:
    """Constants are folded, conditions that are decided vanish, and what is left reads like the expression."""
    terms = {name: reference(name) for name in "mnk"} | {"tile": known(128), "word": known("rows"), "pack": known(0)}

    def text(source: str) -> str:
        term = printed(parse(source), terms)
        return str(term.constant) if term.known else term.text

    assert text("cdiv(m, tile) * cdiv(n, 2 * tile)") == "cdiv(m, 128) * cdiv(n, 256)"
    assert text("m if word == 'rows' else n") == "m"
    assert text("pack == 0 or m >= 512") == "1"
    assert text("pack == 1 or m >= 512") == "m >= 512"
    assert text("cdiv(m, 16) * k * pack") == "0"
    assert text("(m - n) - (k - 1)") == "m - n - (k - 1)"
    assert text("m // 2 % 3") == "m / 2 % 3"
    assert text("not (m < n and k > 0)") == "!(m < n && k > 0)"
    assert text("m in (1, 2)") == "m == 1 || m == 2"
    assert text("2 ** 31 - 1") == "2147483647"


@pytest.mark.parametrize("source", ["beta > 0", "beta == 2", "beta + m", "'a' if m > 0 else 'b'"])
def test_what_has_no_cpp_is_refused(source: str) -> None:
    """Text at run time, and beta but for the questions whether it is 0 or 1, cannot be exported."""
    with pytest.raises(InputError, match="C\\+\\+"):
        printed(parse(source), {"m": reference("m"), "beta": reference("beta", "real")})
