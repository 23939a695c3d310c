"""Counts in messages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kt.wording import part, plural, verb

ROOT = Path(__file__).parents[2]
FOLDERS = ("cache", "cli", "devices", "export", "problems", "runtime", "search_spaces", "templates", "tuner")

# Behind a number that may be one: what a message counts.
NOUNS = "candidate|configuration|element|kernel|measurement|prediction|register|result|shape|winner"
COUNTED = re.compile(rf" (new |more )?({NOUNS})s\b")
LIMITS = re.compile(r"\{[A-Z_0-9]+\}$")  # constants above one, in capitals


def test_nouns_and_verbs_agree_with_the_number() -> None:
    """None are several, and of one thing of several the verb is that of one."""
    assert [plural(count, "kernel") for count in (0, 1, 2)] == ["0 kernels", "1 kernel", "2 kernels"]
    assert [verb(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]
    assert part(1, 1, "shape") == "1 of 1 shape"
    assert part(1, 2, "shape", "has", "have") == "1 of 2 shapes has"
    assert part(2, 2, "shape", "has", "have") == "2 of 2 shapes have"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_message_counts_one_things(folder: str) -> None:
    """What a message counts is written by `plural`; a plural of its own stands only behind a constant."""
    found = [text for path in sorted((ROOT / folder).rglob("*.py")) for text in counted_by_hand(path)]
    assert found == []


def counted_by_hand(path: Path) -> Iterator[str]:
    """Places where a noun of several stands behind a number that is only known at run time."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts = [text_of(part) for part in node.values] if isinstance(node, ast.JoinedStr) else []
        for before, number, after in zip(["", *parts], parts, parts[1:], strict=False):
            counts = number.startswith("{") and not LIMITS.match(number) and not before.endswith(" x ")
            if counts and COUNTED.match(after):
                yield f"{path.relative_to(ROOT)}: {number}{after}"


def text_of(part: ast.expr) -> str:
    """A piece of a formatted string as its source has it."""
    return f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else str(ast.literal_eval(part))
