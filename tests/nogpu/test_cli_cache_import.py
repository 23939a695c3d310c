"""`kt cache import`: winners of JSON tables come into a cache, by the rule of merging and never by trust alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt.cache.location import database_path
from kt.cache.merge import foresee, of_winners
from kt.cache.merge import merge as merge_sources
from kt.cache.records import BestConfig
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources, current_spaces
from kt.devices.catalog import modelled
from kt.devices.device import DeviceIdentity
from kt.export.json_table import render_table
from kt.problems import Problem
from kt.search_spaces.launch import resolve
from kt.search_spaces.space import Config
from kt.tuner.method import METHOD_LABEL
from support.commands import Command

Make = Callable[..., BestConfig]
pytestmark = pytest.mark.usefixtures("no_gpu")
H200 = modelled("h200")


@pytest.fixture
def fresh(make_winner: Make) -> Make:
    """Winners of today's `simt` and method on an H200, with the launches that their configuration has."""
    space, sources = current_spaces(None)["simt"], {"simt": current_sources(None, ())["simt"]}

    def make(m: int = 512, **changes: Any) -> BestConfig:
        choices = dict(space.default) | changes.pop("choices", {})
        config, problem = space.config(choices), Problem(m, 512, 512)
        launches, workspace = resolve(space, config, {**H200.names(), **problem.names()})
        today = {"sources": sources, "method": METHOD_LABEL, "config": config, "device": H200.identity}
        return make_winner(problem, **{**today, "launches": launches, "workspace_bytes": workspace, **changes})

    return make


def tabled(path: Path, *winners: BestConfig) -> Path:
    path.write_text(render_table(winners))
    return path


def times(kt: Command) -> dict[int, float]:
    return {entry["problem"]["m"]: entry["time_us"] for entry in kt("show-cache", "--json").json["entries"]}


def test_an_exported_table_comes_back_as_it_was(
    kt: Command, own_environment: Path, fresh: Make, tmp_path: Path
) -> None:
    """Export, import elsewhere, export again: the same bytes."""
    with Store.open(own_environment) as store:
        for best in (fresh(512), fresh(256), fresh(1, complete=False, tried=3)):
            store.put_best(best)
    table = tmp_path / "table.json"
    assert kt("export", "--json", "-o", table).code == 0
    outcome = kt("cache", "import", table, "--cache-dir", tmp_path / "new")
    assert outcome.code == 0, outcome.err
    assert outcome.out == "3 new winners imported, 0 already here, 0 in conflict\n"
    assert kt("export", "--json", "--cache-dir", tmp_path / "new").out == table.read_text()
    again = kt("cache", "import", table, "--cache-dir", tmp_path / "new", "--json")
    assert (again.json["winners"], again.json["same"], again.json["conflicts"]) == (0, 3, [])
    assert again.json["schema"] == "kt.cache-import/1"


def test_an_imported_winner_is_served(kt: Command, fresh: Make, tmp_path: Path) -> None:
    """Nothing is left to tune for its shape."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes: [{m: 512, n: 512, k: 512}]\n")
    table = tabled(tmp_path / "t.json", fresh(512))
    assert kt("show-cache", "--shapes", shapes, "--device", "h200").code == 5
    assert kt("cache", "import", table, "-q").out == ""
    assert kt("show-cache", "--shapes", shapes, "--device", "h200").code == 0


@pytest.mark.parametrize(("here_us", "table_us"), [(10.0, 9.0), (9.0, 10.0)])
def test_a_conflict_is_decided_by_the_rule_and_explained(
    kt: Command, own_environment: Path, fresh: Make, tmp_path: Path, here_us: float, table_us: float
) -> None:
    """The faster one is kept; both, their sides and the reason are told."""
    with Store.open(own_environment) as store:
        store.put_best(fresh(512, time_us=here_us))
    outcome = kt("cache", "import", tabled(tmp_path / "t.json", fresh(512, time_us=table_us)))
    assert "1 in conflict" in outcome.out
    side = "the one here" if here_us < table_us else "the other"
    assert "kept 9 us" in outcome.out
    assert f"{side}, because it is faster; dropped 10 us" in outcome.out
    assert times(kt) == {512: 9.0}


def test_why_one_of_two_is_kept(make_winner: Make, tmp_path: Path) -> None:
    """Measured before predicted, then the faster, then the first by its text."""
    pairs = {
        "measured": (make_winner(time_us=2.0), make_winner(time_us=1.0, predicted=True)),
        "faster": (make_winner(time_us=1.0, tile_m=128), make_winner(time_us=2.0)),
        "equally fast": (make_winner(tile_m=128), make_winner(tile_m=64)),
        "this time": (make_winner(tried=91), make_winner(tried=92)),
    }
    for name, (kept, dropped) in pairs.items():
        for kept_here in (True, False):
            first, second = (kept, dropped) if kept_here else (dropped, kept)
            with Store.open(tmp_path / name / str(kept_here)) as store:
                store.put_best(first)
                (conflict,) = merge_sources(store, [of_winners([second])]).conflicts
            assert (conflict.kept, conflict.dropped, conflict.kept_here) == (kept, dropped, kept_here), name
            assert name in conflict.reason


def test_a_dry_run_says_the_same_and_changes_nothing(
    kt: Command, own_environment: Path, fresh: Make, tmp_path: Path
) -> None:
    """No cache is made for it, and one that is there stays byte for byte."""
    table = tabled(tmp_path / "t.json", fresh(512, time_us=9.0), fresh(256))
    outcome = kt("cache", "import", table, "--dry-run", "--cache-dir", tmp_path / "none")
    assert outcome.out == "2 new winners would be imported, 0 already here, 0 in conflict\n"
    assert not (tmp_path / "none").exists()
    with Store.open(own_environment) as store:
        store.put_best(fresh(512, time_us=10.0))
    before = database_path(own_environment).read_bytes()
    dry = kt("cache", "import", table, "--dry-run", "--json")
    assert database_path(own_environment).read_bytes() == before
    wet = kt("cache", "import", table, "--json")
    assert dry.json == wet.json | {"dry_run": True}
    assert (wet.json["winners"], len(wet.json["conflicts"])) == (1, 1)


def test_a_foreseen_merge_counts_rows_of_one_key_as_the_merge_does(make_winner: Make, tmp_path: Path) -> None:
    """Two rows for one key in tables: the second meets the first, which only the merge has stored."""
    source = of_winners([make_winner(time_us=2.0), make_winner(time_us=1.0), make_winner(Problem(1, 1, 1))])
    with Store.open(tmp_path) as store:
        foreseen = foresee(store, [source])
        assert store.stored() == []
        report = merge_sources(store, [source])
        assert [row.best.measurement.time_us for row in store.stored()] == [1.0, 12.5]
    assert (foreseen.winners, foreseen.conflicts) == (report.winners, report.conflicts)
    assert (report.winners, len(report.conflicts)) == (2, 1)


def _not_json(document: Any) -> str:
    return json.dumps(document)[:-5]


def _other_schema(document: Any) -> str:
    return json.dumps(document | {"schema": "kt.table/9"})


def _no_table(document: Any) -> str:
    return "[1, 2]"


def _without_a_field(document: Any) -> str:
    del document["rows"][1]["time_us"]
    return json.dumps(document)


def _foreign_key(document: Any) -> str:
    document["rows"][1]["problem"]["n"] = 511  # the digest is of 512
    return json.dumps(document)


def _no_time(document: Any) -> str:
    document["rows"][0]["time_us"] = 0
    return json.dumps(document)


@pytest.mark.parametrize("spoil", [_not_json, _other_schema, _no_table, _without_a_field, _foreign_key, _no_time])
def test_a_table_that_cannot_be_read_imports_nothing(
    kt: Command, own_environment: Path, fresh: Make, tmp_path: Path, spoil: Callable[[Any], str]
) -> None:
    """One message with the file, exit 2, no cache made; the good table beside it is not imported either."""
    good = tabled(tmp_path / "good.json", fresh(1))
    bad = tabled(tmp_path / "bad.json", fresh(512), fresh(256))
    bad.write_text(spoil(json.loads(bad.read_text())))
    outcome = kt("cache", "import", good, bad)
    assert outcome.code == 2
    assert outcome.err.count("kt: error:") == 1
    assert "bad.json" in outcome.err
    assert "nothing was imported" in outcome.err
    assert not database_path(own_environment).exists()


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_what_is_no_file_is_refused(kt: Command, tmp_path: Path, name: str) -> None:
    """A missing file and a folder are usage errors."""
    outcome = kt("cache", "import", tmp_path / name)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err


def test_what_has_no_end_is_refused(kt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is a standard input that is closed."""
    monkeypatch.setattr("kt.export.json_table.MAX_BYTES", 1000)
    outcome = kt("cache", "import", "/dev/zero")
    assert (outcome.code, "larger than" in outcome.err) == (2, True)
    monkeypatch.setattr("sys.stdin", None)
    outcome = kt("cache", "import", "-")
    assert (outcome.code, "standard input is closed" in outcome.err) == (2, True)


def test_a_table_is_read_from_standard_input_once(kt_process: Command, fresh: Make, own_environment: Path) -> None:
    """`-` works, and twice it cannot."""
    text = render_table([fresh(512)])
    assert kt_process("cache", "import", "-", stdin="\ufeff" + text).out.startswith("1 new winner")
    assert "kt: error: <stdin>:1:1: not JSON" in kt_process("cache", "import", "-", stdin="nothing").err
    assert kt_process("cache", "import", "-", "-", stdin=text).code == 2
    assert kt_process("cache", "import", "-", "--space", "-", stdin=text).code == 2


def _grid(row: Any) -> None:
    row["launches"][0]["grid"] += 1


def _workspace(row: Any) -> None:
    row["workspace_bytes"] += 4


def _value(row: Any) -> None:
    row["config"]["parameters"]["tile_m"] = 24


def _parameter(row: Any) -> None:
    row["config"]["parameters"]["speed"] = 9


def _constraint(row: Any) -> None:
    row["config"]["parameters"] |= {"tile_m": 256, "tile_n": 256, "thread_m": 4, "thread_n": 4}


@pytest.mark.parametrize("spoil", [_grid, _workspace, _value, _parameter, _constraint])
def test_a_row_that_cannot_be_what_it_says_is_left_out_and_named(
    kt: Command, fresh: Make, tmp_path: Path, spoil: Callable[[Any], None]
) -> None:
    """A changed grid or tile would be exported and launched: only what the kernel's own rules give is taken."""
    table = tabled(tmp_path / "t.json", fresh(512), fresh(256))
    document = json.loads(table.read_text())
    assert document["rows"][0]["problem"]["m"] == 256
    spoil(document["rows"][0])
    table.write_text(json.dumps(document))
    outcome = kt("cache", "import", table)
    assert outcome.code == 0
    assert "1 new winner" in outcome.out
    assert "256x512x512" in outcome.err
    assert "was left out" in outcome.err
    assert times(kt) == {512: 12.5}


def test_a_format_that_the_family_does_not_serve_is_left_out(kt: Command, make_winner: Make, tmp_path: Path) -> None:
    """A row may say anything; `simt` has no tf32."""
    space, sources = current_spaces(None)["simt"], {"simt": current_sources(None, ())["simt"]}
    problem = Problem(64, 64, 64, "tf32")
    best = make_winner(problem, sources=sources, config=space.default_config, device=H200.identity)
    outcome = kt("cache", "import", tabled(tmp_path / "t.json", best))
    assert "does not serve tf32" in outcome.err
    assert times(kt) == {}


def test_what_is_of_other_sources_is_imported_and_called_stale(kt: Command, fresh: Make, tmp_path: Path) -> None:
    """Another version of kt may have made it: it is kept for that version, and not judged by this one's rules."""
    other = fresh(256, sources={"simt": "older"}, config=Config("simt", (("gone", 1),)))
    outcome = kt("cache", "import", tabled(tmp_path / "t.json", fresh(512), other), "--json")
    assert (outcome.json["winners"], outcome.json["stale"], outcome.json["warnings"]) == (2, 1, [])
    assert "1 of them" in outcome.err
    states = {entry["problem"]["m"]: entry["state"] for entry in kt("show-cache", "--json").json["entries"]}
    assert states == {512: "valid", 256: "stale"}


def test_a_gpu_that_kt_has_no_figures_of(kt: Command, fresh: Make, tmp_path: Path) -> None:
    """Its rows cannot be judged by limits, and come in as a merge would bring them."""
    best = fresh(512, device=DeviceIdentity("NVIDIA Unheard-of", (9, 0), 77, 11))
    assert kt("cache", "import", tabled(tmp_path / "t.json", best)).code == 0
    assert times(kt) == {512: 12.5}


def test_tables_are_not_changed_by_reading(kt: Command, fresh: Make, tmp_path: Path) -> None:
    """A table that a person keeps under version control stays as it is, and so does one named twice."""
    table = tabled(tmp_path / "t.json", fresh(512))
    before = table.read_bytes()
    assert kt("cache", "import", table, table).code == 2
    assert kt("cache", "import", table).code == 0
    assert table.read_bytes() == before
