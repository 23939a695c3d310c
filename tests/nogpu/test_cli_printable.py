"""What stands in a file cannot give orders to a terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cli.printable import printable, printable_cell
from kt.devices.device import DeviceIdentity

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('shapes: [{m: 1, n: 1, k: 1, "\\e[31mred": 1}]\n', r"shapes[0].\x1b[31mred is not a known key"),
        ('shapes: [{m: 1, n: 1, k: 1, dtype: "\\e[2J"}]\n', r'is the text "\x1b[2J"'),
        ('shapes: [{m: 1, n: 1, k: 1, layout: "\\u202enn"}]\n', r"\u202enn"),
    ],
)
def test_messages_show_what_a_terminal_would_obey(kt: Command, tmp_path: Path, text: str, shown: str) -> None:
    """Written out, as Python would write it."""
    (tmp_path / "shapes.yaml").write_text(text)
    outcome = kt("plan", "gemm", "--shapes", tmp_path / "shapes.yaml")
    assert outcome.code == 2
    assert shown in outcome.err
    assert "\x1b" not in outcome.err
    assert "\u202e" not in outcome.err


def test_tables_show_it_too(kt: Command, own_environment: Path, make_winner: Callable[..., BestConfig]) -> None:
    """A cache that somebody else has sent may name a device in any way."""
    with Store.open(own_environment) as store:
        store.put_best(make_winner(device=DeviceIdentity("\x1b]0;gotcha\x07\nH200", (9, 0), 132, 140)))
    outcome = kt("show-cache", "--verbose")
    assert outcome.code == 0
    assert r"\x1b]0;gotcha\x07\nH200" in outcome.out
    assert "\x1b" not in outcome.out


def test_what_can_be_printed_stays() -> None:
    """Letters of any script; a message keeps its lines."""
    assert printable("é 目 µs\n  next\t1") == "é 目 µs\n  next\t1"
    assert printable_cell("a\nb") == r"a\nb"
