"""CSV tables and T4 results: what the cache says, in formats of others, the same bytes every time."""

import csv
import io
import json
import os
import random
import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kt.cache.location import database_path
from kt.cache.records import STATUSES, BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.export.csv_table import render_csv
from kt.export.json_table import row
from kt.export.t4_results import render_t4
from kt.problems import Problem
from kt.search_spaces.space import Config
from support.commands import Command

Make = Callable[..., BestConfig]

# What T4 1.0.0 demands of results, in our own words: the rules of its published results schema.
_VALIDITIES = ["timeout", "compile", "runtime", "correctness", "constraints", "correct"]
_TEXT, _NUMBER, _LIST, _OBJECT = ({"type": name} for name in ("string", "number", "array", "object"))
_MEASUREMENT = {"name": _TEXT, "value": {"type": ["number", "string", "array"]}, "unit": _TEXT}
_TIMES = dict.fromkeys(("compilation_time", "framework", "search_algorithm", "validation"), _NUMBER)
T4 = {
    "type": "object",
    "properties": {
        "schema_version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["configuration", "times", "invalidity", "correctness"],
                "properties": {
                    "timestamp": _TEXT,
                    "configuration": _OBJECT,
                    "objectives": _LIST,
                    "times": {"type": "object", "properties": {**_TIMES, "runtimes": _LIST}},
                    "invalidity": {"enum": _VALIDITIES},
                    "correctness": _NUMBER,
                    "measurements": {"type": "array", "items": {"type": "object", "properties": _MEASUREMENT}},
                },
            },
        },
    },
    "required": ["schema_version", "results"],
}


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def is_t4(document: object) -> None:
    jsonschema.Draft202012Validator(T4).validate(document)


def test_a_csv_line_says_what_the_row_of_the_json_table_says(make_winner: Make) -> None:
    """Every figure of the row is a cell; what is not known is empty."""
    best = make_winner(Problem(7, 8, 9, "fp16", "nt"), floor_us=None, baseline={"cublas": 11.0}, screened_us=9.5)
    (line,), found = lines(render_csv([best])), row(best)
    for name in (
        "time_us",
        "spread",
        "samples",
        "screened_us",
        "tflops",
        "tried",
        "registers",
        "toolchain",
        "key",
        "family",
    ):
        assert line[name] == str(found[name])
    assert {name: line[name] for name in found["problem"]} == {k: str(v) for k, v in found["problem"].items()}
    assert (line["device"], line["compute_capability"], line["sm_count"]) == ("NVIDIA H200", "9.0", "132")
    assert (line["parameter.tile_m"], line["parameter.copy"], line["runtime.split_k"]) == ("64", "cp.async", "1")
    assert (line["baseline.cublas"], line["ratio.cublas"]) == ("11.0", "0.88")
    assert (line["floor_us"], line["floor_fraction"], line["complete"], line["kind"]) == ("", "", "true", "measured")


def test_families_with_other_parameters_share_a_csv_table(make_winner: Make) -> None:
    """A column for each parameter of any family; a cell that is not of the row's family is empty."""
    other = Config("mma", (("stages", 3), ('odd, "name"\n', "a,b")))
    first, second = lines(render_csv([make_winner(), make_winner(Problem(9, 9, 1024), config=other)]))
    assert second["m"] == "512" or first["m"] == "9"
    by_family = {line["family"]: line for line in (first, second)}
    assert by_family["mma"]['parameter.odd, "name"\n'] == "a,b"
    assert (by_family["mma"]["parameter.tile_m"], by_family["simt"]["parameter.stages"]) == ("", "")


def test_csv_has_the_same_bytes_in_any_order(make_winner: Make) -> None:
    """Order of the winners, their provenance: nothing of it shows."""
    winners = [make_winner(Problem(m, 64, 64)) for m in (9, 10, 100, 1)]
    text = render_csv(winners)
    shuffled = [replace(best, provenance={}) for best in random.Random(2).sample(winners, 4)]
    assert render_csv(shuffled) == text
    assert [line["m"] for line in lines(text)] == ["1", "9", "10", "100"]
    assert "\r" not in text


def test_a_csv_table_of_nothing_has_its_headings() -> None:
    """The columns that do not depend on the contents are always there."""
    (headings,) = render_csv([]).splitlines()
    assert {"device", "m", "family", "time_us", "key"} <= set(headings.split(","))


@pytest.fixture
def key(make_winner: Make) -> CacheKey:
    return make_winner().key


def test_every_status_has_its_word_in_t4(key: CacheKey) -> None:
    """What became of a candidate is told in the format's words; only what ran and was right is correct."""
    config = [Config("simt", (("tile_m", size),), (("split_k", 1),)) for size in range(len(STATUSES))]
    tried = {
        one: Measurement(status, 2500.0 if status == "ok" else None, detail="why")  # type: ignore[arg-type]
        for one, status in zip(config, STATUSES, strict=True)
    }
    document = json.loads(render_t4([(key, tried)]))
    is_t4(document)
    found = {result["configuration"]["tile_m"]: result for result in document["results"]}
    words = {STATUSES[number]: result["invalidity"] for number, result in found.items()}
    assert words == {
        "ok": "correct", "pruned": "constraints", "compile_error": "compile", "launch_error": "runtime",
        "wrong_result": "correctness", "timeout": "timeout", "crashed": "runtime", "out_of_memory": "runtime",
    }  # fmt: skip
    assert [result["correctness"] for result in found.values()] == [int(status == "ok") for status in STATUSES]


def test_times_in_t4_are_milliseconds(key: CacheKey) -> None:
    """2500 us are 2.5 ms, as a measurement and as the one run time that is known; a failure has neither."""
    tried = {
        Config("simt", (("tile_m", 1),)): Measurement(
            "ok", 2500.0, 0.01, 21, refined=True, registers=40, smem_bytes=0, screened_us=2250.0
        ),
        Config("simt", (("tile_m", 2),)): Measurement("wrong_result", detail="off by one"),
    }
    good, bad = json.loads(render_t4([(key, tried)]))["results"]
    assert good["configuration"] == {"family": "simt", "tile_m": 1}
    assert good["times"]["runtimes"] == [2.5]
    assert good["objectives"] == ["time"]
    values = {one["name"]: (one["value"], one["unit"]) for one in good["measurements"]}
    assert values == {
        "time": (2.5, "ms"), "samples": (21, ""), "screened_time": (2.25, "ms"), "spread": (0.01, ""),
        "registers": (40, ""), "smem_bytes": (0, "B"),
    }  # fmt: skip
    assert bad["times"]["runtimes"] == []
    assert bad["measurements"] == [{"name": "error", "value": "wrong_result: off by one", "unit": ""}]
    assert good["problem"] == key.problem.as_dict()
    assert good["device"]["sm_count"] == 132


def test_every_field_of_t4_is_documented(key: CacheKey) -> None:
    """docs/formats.md has a line for each."""
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    (result,) = json.loads(render_t4([(key, {Config("simt", (("tile_m", 1),)): Measurement("ok", 1.0)})]))["results"]
    assert documented == set(result)


def test_what_the_model_says_is_no_result_in_t4(key: CacheKey) -> None:
    """A prediction never ran, so nobody can call it correct; a failure is one, whoever ranked the rest."""
    tried = {
        Config("simt", (("tile_m", 1),)): Measurement("ok", 2500.0, predicted=True),
        Config("simt", (("tile_m", 2),)): Measurement("ok", 2500.0),
        Config("simt", (("tile_m", 3),)): Measurement("compile_error", detail="why", predicted=True),
    }
    results = json.loads(render_t4([(key, tried)]))["results"]
    assert [(one["configuration"]["tile_m"], one["invalidity"]) for one in results] == [(2, "correct"), (3, "compile")]


# The commands, on a cache that a run without a GPU has made


@pytest.fixture
def tuned(kt: Command, small_family: tuple[str, ...], tmp_path: Path, no_gpu: None) -> tuple[str, ...]:
    """Options for `kt export` of a cache with two shapes, all of whose candidates the model has ranked."""
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("shapes:\n  - {m: [16, 32], n: 16, k: 16}\n")
    outcome = kt("tune", "gemm", "--shapes", shapes, "--device", "model:h200", *small_family, "-q")
    assert outcome.code == 0, outcome.err
    return ("--predicted", *small_family)


@pytest.fixture
def measured(own_environment: Path, tuned: tuple[str, ...]) -> tuple[str, ...]:
    """The same, as if each candidate had been run."""
    with sqlite3.connect(database_path(own_environment)) as database:
        database.execute("UPDATE measurements SET predicted = 0")
    database.close()
    return tuned


def test_predictions_are_no_t4(kt: Command, tuned: tuple[str, ...]) -> None:
    """Not even with --predicted: counted, and exit 5 if there is nothing else."""
    outcome = kt("export", "--t4", *tuned)
    assert (outcome.code, outcome.out) == (5, "")
    assert re.search(r"left out: \d+ predictions of the model", outcome.err)
    assert "predictions do not count" in outcome.err


def test_t4_hints_at_no_option_that_fails_too(kt: Command, tuned: tuple[str, ...], tmp_path: Path) -> None:
    """--predicted adds nothing to T4; the format that takes predictions is named, and works."""
    _, *family = tuned
    for shapes in ((), ("--shapes", tmp_path / "shapes.yaml")):
        plain, other = (kt("export", option, *family, *shapes) for option in ("--t4", "--json"))
        assert (plain.code, other.code) == (5, 5)
        assert plain.err.splitlines()[-1].endswith("not what only the model ranked: --json --predicted has that")
        assert other.err.splitlines()[-1] == "hint: --predicted takes what only the model ranked, too"
    assert kt("export", "--json", *tuned).code == 0


def test_t4_has_all_that_was_tried(kt: Command, measured: tuple[str, ...]) -> None:
    """Every candidate of each winner's search, once."""
    outcome = kt("export", "--t4", *measured)
    assert outcome.code == 0, outcome.err
    is_t4(outcome.json)
    tried = kt("export", "--json", *measured).json["rows"]
    found = [(one["problem"]["m"], json.dumps(one["configuration"])) for one in outcome.json["results"]]
    assert len(found) == len(set(found)) == sum(one["tried"] for one in tried)
    assert {m for m, _ in found} == {16, 32}
    assert kt("export", "--t4", *measured).out == outcome.out


def test_t4_leaves_out_what_is_not_of_todays_kernels(
    kt: Command, own_environment: Path, measured: tuple[str, ...]
) -> None:
    """A measurement of another source, of a foreign configuration or one that cannot be read is no result."""
    before = len(kt("export", "--t4", *measured).json["results"])
    with sqlite3.connect(database_path(own_environment)) as database:
        rows = database.execute("SELECT key_id, config, source FROM measurements LIMIT 3").fetchall()
        changes = ("source = 'older'", 'config = \'["small",{"tile":3},{}]\'', "time_us = -1.0")
        for change, one in zip(changes, rows, strict=True):
            database.execute(f"UPDATE measurements SET {change} WHERE key_id = ? AND config = ? AND source = ?", one)
    database.close()
    outcome = kt("export", "--t4", *measured)
    assert len(outcome.json["results"]) == before - 3
    assert outcome.err.count("not of a kernel of today") >= 1
    assert "cannot be used" in outcome.err


def test_t4_of_winners_without_measurements_says_so(
    kt: Command, own_environment: Path, tuned: tuple[str, ...], tmp_path: Path
) -> None:
    """Nothing is written in place of results, and the old file stays."""
    with sqlite3.connect(database_path(own_environment)) as database:
        database.execute("DELETE FROM measurements")
    database.close()
    target = tmp_path / "results.json"
    target.write_text("old")
    outcome = kt("export", "--t4", *tuned, "-o", target)
    assert outcome.code == 5
    assert "no measurement" in outcome.err
    assert target.read_text() == "old"


@pytest.mark.parametrize("option", ["--csv", "--t4"])
def test_targets(kt: Command, measured: tuple[str, ...], tmp_path: Path, option: str) -> None:
    """Written whole, left alone if it would not change; a folder or a protected file is refused and stays."""
    target = tmp_path / "out"
    assert kt("export", option, *measured, "-o", target).code == 0
    assert target.read_text() == kt("export", option, *measured).out
    os.utime(target, (1, 1))
    assert kt("export", option, *measured, "-o", target).code == 0
    assert target.stat().st_mtime == 1
    assert kt("export", option, *measured, "-o", tmp_path).code == 2
    target.write_text("mine")
    target.chmod(0o444)
    assert kt("export", option, *measured, "-o", target).code == 2
    assert target.read_text() == "mine"


@pytest.mark.parametrize("option", ["--csv", "--t4"])
def test_dev_stdout_stays_what_it_is(
    kt_process: Command, measured: tuple[str, ...], own_environment: Path, option: str
) -> None:
    """It is written to, and is still there."""
    outcome = kt_process("export", option, *measured, "-o", "/dev/stdout")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("device," if option == "--csv" else "{")
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize("option", ["--csv", "--t4", "--json"])
def test_damaged_entries_are_never_exported(
    kt: Command, own_environment: Path, measured: tuple[str, ...], option: str
) -> None:
    """A winner whose record cannot be read is named and is in no format."""
    with sqlite3.connect(database_path(own_environment)) as database:
        (first,) = database.execute("SELECT min(id) FROM best").fetchone()
        database.execute("UPDATE best SET record = '{}' WHERE id = ?", (first,))
    database.close()
    outcome = kt("export", option, *measured)
    assert outcome.code == 0
    assert "cannot be used" in outcome.err
    sizes = {name: outcome.out.count(name) for name in ('"m": 16', '"m": 32')}
    if option == "--csv":
        assert len(lines(outcome.out)) == 1
    else:
        assert sorted(count > 0 for count in sizes.values()) == [False, True]


def test_a_cache_of_a_stranger_is_refused(kt: Command, tmp_path: Path) -> None:
    """A database that is not kt's is not exported from."""
    with Store.open(tmp_path / "own"):
        pass
    file = database_path(tmp_path / "foreign")
    file.parent.mkdir()
    sqlite3.connect(file).execute("CREATE TABLE t (x)").connection.close()
    assert kt("export", "--csv", "--cache-dir", tmp_path / "foreign").code == 1


def test_formats_exclude_each_other(kt: Command) -> None:
    """Those that clash are named; without one the hint names all of them."""
    outcome: Any = kt("export", "--csv", "--t4")
    assert outcome.code == 2
    assert "one format, not --csv and --t4" in outcome.err
    assert "--json, --csv, --t4 and --header" in kt("export").err
    assert "give --header too" in kt("export", "--json", "--table-only").err
