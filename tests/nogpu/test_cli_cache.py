"""`kt show-cache`, `kt export` and `kt cache` over a cache made by hand."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.location import database_path
from kt.cache.records import UNSEEN, BestConfig
from kt.cache.store import Store
from kt.cli.cache_entries import current_sources, current_spaces
from kt.devices.device import DeviceIdentity
from kt.problems import Problem
from kt.search_spaces.space import Config
from kt.tuner.method import METHOD_LABEL

ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_gpu")

SHAPES = (
    "dtype: fp32\nshapes:\n  - {m: 512, n: 512, k: 512}\n  - {m: 256, n: 512, k: 512}\n  - {m: 1, n: 512, k: 512}\n"
)


@pytest.fixture
def fresh(make_winner: Callable[..., BestConfig]) -> Callable[..., BestConfig]:
    """Winners of the sources, the space and the method of today."""
    sources = {"simt": current_sources(None, ())["simt"]}
    space = current_spaces(None)["simt"]

    def make(m: int = 512, **changes: Any) -> BestConfig:
        dtype = changes.pop("dtype", "fp32")
        choices = dict(space.default) | {"tile_m": changes.pop("tile_m", space.default["tile_m"])}
        config = Config(
            "simt",
            tuple((name, choices[name]) for name in space.parameters),
            tuple((name, choices[name]) for name in space.runtime),
        )
        today = {"sources": sources, "method": METHOD_LABEL, "config": config}
        return make_winner(Problem(m, 512, 512, dtype), **today | changes)

    return make


def _fill(folder: Path, *winners: BestConfig) -> None:
    with Store.open(folder) as store:
        for best in winners:
            store.put_best(best)


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(SHAPES)
    return path


def test_an_empty_cache_is_no_error(kt: Command) -> None:
    """Nothing is in the cache before the first run, and listing it says so on standard error."""
    outcome = kt("show-cache")
    assert (outcome.code, outcome.out) == (0, "")
    assert "no results" in outcome.err


def test_the_listing_names_state_and_figures(kt: Command, own_environment: Path, fresh: Command) -> None:
    """Each winner is one line with time, rates and state."""
    _fill(own_environment, fresh(512), fresh(256, sources={"simt": "old"}), fresh(1, complete=False, tried=12))
    outcome = kt("show-cache")
    assert outcome.code == 0
    lines = {line.split()[2]: line for line in outcome.out.splitlines()[1:]}
    assert " valid" in lines["512x512x512"]
    assert "12.5" in lines["512x512x512"]
    assert "0.88x" in lines["512x512x512"]  # cuBLAS took 11.0 us
    assert " stale" in lines["256x512x512"]
    assert "simt changed" in lines["256x512x512"]
    assert "12/92" in lines["1x512x512"]
    assert " partial" in lines["1x512x512"]


def test_off_a_terminal_the_table_is_plain_text(kt: Command, own_environment: Path, fresh: Command) -> None:
    """One line per shape, no colours, no frames, whatever the width of the window is."""
    _fill(own_environment, fresh(512), fresh(256))
    out = kt("show-cache").out
    assert "\x1b" not in out
    assert out.isascii()
    assert len(out.splitlines()) == 3
    verbose = kt("show-cache", "--verbose").out
    assert f"fp32 nn 256x512x512  {fresh().config.label}" in verbose.splitlines()


def test_json_listing(kt: Command, own_environment: Path, fresh: Command) -> None:
    """The document names its schema and holds the rows of the exported table, each with its state."""
    _fill(own_environment, fresh(512))
    document = kt("show-cache", "--json").json
    assert document["schema"] == "kt.cache/1"
    (entry,) = document["entries"]
    assert entry["state"] == "valid"
    assert entry["problem"]["m"] == 512
    assert entry["time_us"] == 12.5


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ((), {512, 256, 1}),
        (("--dtype", "fp64"), {1}),
        (("--layout", "nn"), {512, 256, 1}),
        (("--layout", "tt"), set()),
        (("--family", "simt"), {512, 256, 1}),
        (("--family", "mma"), set()),
        (("--state", "stale"), {256}),
        (("--state", "stale", "--state", "valid"), {512, 256, 1}),
        (("--device", "h200"), {512, 256, 1}),
        (("--device", "a100"), set()),
        (("--device", "model:a100"), set()),
    ],
)
def test_filters(kt: Command, own_environment: Path, fresh: Command, filters: tuple[str, ...], left: set[int]) -> None:
    """Only entries that pass every filter are listed."""
    _fill(own_environment, fresh(512), fresh(256, sources={"simt": "old"}), fresh(1, dtype="fp64"))
    document = kt("show-cache", "--json", *filters).json
    assert {entry["problem"]["m"] for entry in document["entries"]} == left


def test_with_shapes_a_format_still_only_selects(
    kt: Command, own_environment: Path, fresh: Command, tmp_path: Path
) -> None:
    """--dtype and --layout keep those of the file's shapes that are so; a default of the file means what it says."""
    _fill(own_environment, fresh(512), fresh(256, dtype="bf16"), fresh(512, dtype="bf16"))
    file = tmp_path / "shapes.yaml"
    file.write_text("dtype: fp32\nshapes:\n  - {m: 512, n: 512, k: 512}\n  - {m: 256, n: 512, k: 512, dtype: bf16}\n")
    for dtype, m in (("bf16", 256), ("fp32", 512)):
        document = kt("show-cache", "--shapes", file, "--dtype", dtype, "--json").json
        assert [entry["problem"]["m"] for entry in document["entries"]] == [m]
        assert (document["shapes"], document["missing"]) == (1, [])
        table = kt("export", "--json", "--shapes", file, "--dtype", dtype).json
        assert [row["problem"]["m"] for row in table["rows"]] == [m]
    for command in (("show-cache", "--layout", "tt"), ("export", "--json", "--dtype", "fp64")):
        outcome = kt(*command, "--shapes", file)
        assert outcome.code == 2
        assert f"none of the 2 shapes of {file} has {command[-2].strip('-')} {command[-1]}" in outcome.err


def test_a_filter_with_a_typo_is_refused(kt: Command) -> None:
    """An unknown format or layout is not an empty listing."""
    assert kt("show-cache", "--dtype", "fp23").code == 2
    assert kt("show-cache", "--layout", "xx").code == 2


def test_missing_shapes_are_listed(kt: Command, own_environment: Path, fresh: Command, shapes: Path) -> None:
    """Which shapes of a file have no winner can be read by a program, with the reason, and shows in the exit code."""
    _fill(own_environment, fresh(512), fresh(256, sources={"simt": "old"}))
    outcome = kt("show-cache", "--shapes", shapes, "--json")
    assert outcome.code == 5
    document = outcome.json
    assert document["shapes"] == 3
    missing = {item["problem"]["m"]: item["reason"] for item in document["missing"]}
    assert missing.keys() == {256, 1}
    assert "stale" in missing[256]
    assert missing[1] == "never tuned"
    assert {entry["problem"]["m"] for entry in document["entries"]} == {512, 256}


def test_a_message_names_the_first_of_many_shapes(
    kt: Command, own_environment: Path, fresh: Command, tmp_path: Path
) -> None:
    """Not a line for each of ten thousand; the listing and its JSON have all."""
    _fill(own_environment, fresh(512))
    (tmp_path / "many.yaml").write_text(f"shapes: [{{m: {list(range(1, 1001))}, n: 64, k: 64}}]\n")
    outcome = kt("export", "--json", "--shapes", tmp_path / "many.yaml")
    assert outcome.code == 5
    first, *named, hint = outcome.err.splitlines()
    assert first == "kt: error: 1000 of 1000 shapes have no winner to export"
    assert named == [*(f"  fp32 nn {m}x64x64" for m in range(1, 21)), "  and 980 more"]
    assert hint.startswith("hint: ")


def test_a_search_that_was_cut_short_is_no_finished_one(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """B11: what `kt tune` would go on with is listed as partial and does not count as there, whatever is beside it."""
    partial = {"complete": False, "tried": 12}
    _fill(own_environment, fresh(512), fresh(256, **partial), fresh(256, sources={"simt": "old"}), fresh(1, **partial))
    outcome = kt("show-cache", "--shapes", shapes, "--json")
    assert outcome.code == 5
    missing = {item["problem"]["m"]: item["reason"] for item in outcome.json["missing"]}
    assert missing == {256: "partial: 12 of 92 tried", 1: "partial: 12 of 92 tried"}
    listed = kt("show-cache", "--shapes", shapes)
    (line,) = [line for line in listed.out.splitlines() if " 1x512x512 " in line]
    assert "12/92" in line
    assert "partial" in line
    assert "2 of 3 shapes have no measured winner of a finished search; of 2 the search was cut short" in listed.err


def test_the_sizes_of_a_range_are_looked_for(kt: Command, own_environment: Path, fresh: Command, shapes: Path) -> None:
    """As `kt tune --range` has tuned them, in place of the file's."""
    _fill(own_environment, fresh(256))
    assert kt("show-cache", "--shapes", shapes, "--range", "m=256:256").code == 0
    assert kt("show-cache", "--range", "m=256:256").code == 2


def test_the_hint_can_be_typed_as_it_stands(kt: Command, shapes: Path, tmp_path: Path) -> None:
    """With the options that were given, quoted; the cache of the variable needs none."""
    options = ("--range", "m=8:8", "--cache-dir", tmp_path / "a cache")
    outcome = kt("show-cache", "--shapes", shapes, *options)
    command = f"kt tune gemm --shapes {shapes} --range m=8:8 --cache-dir '{tmp_path / 'a cache'}'"
    assert f"hint: `{command}` measures what is missing" in outcome.err
    assert f"hint: `kt tune gemm --shapes {shapes}` measures" in kt("show-cache", "--shapes", shapes).err


def test_nothing_missing_is_exit_0(kt: Command, own_environment: Path, fresh: Command, shapes: Path) -> None:
    """A cache with a winner of every shape passes."""
    _fill(own_environment, fresh(512), fresh(256), fresh(1))
    outcome = kt("show-cache", "--shapes", shapes, "--json")
    assert (outcome.code, outcome.json["missing"]) == (0, [])


def test_listing_names_missing_shapes_for_people(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """Without --json the missing shapes are lines of a table."""
    _fill(own_environment, fresh(512))
    outcome = kt("show-cache", "--shapes", shapes)
    assert outcome.code == 5
    assert "fp32 nn 1x512x512    never tuned" in outcome.out
    assert "2 of 3 shapes have no measured winner of a finished search\n" in outcome.err


def test_predicted_winners_are_no_measured_ones(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """A shape that only the model has ranked is missing, and the listing says predicted."""
    _fill(own_environment, fresh(512), fresh(256), fresh(1, predicted=True, method="model/1"))
    outcome = kt("show-cache", "--shapes", shapes, "--json")
    assert [item["problem"]["m"] for item in outcome.json["missing"]] == [1]
    (line,) = [line for line in kt("show-cache").out.splitlines() if " 1x512x512 " in line]
    assert line.split()[-1] == "predicted", "said once, as the state"


def test_a_shape_is_listed_once_and_the_hint_is_true_without_a_gpu(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """What the model has ranked stands among the results, not again as missing; measuring it needs that GPU."""
    _fill(own_environment, *(fresh(m, predicted=True, method="model/1") for m in (512, 256)))
    outcome = kt("show-cache", "--shapes", shapes)
    assert outcome.code == 5
    assert [outcome.out.count(f" {m}x512x512 ") for m in (512, 256, 1)] == [1, 1, 1]
    assert "fp32 nn 1x512x512  never tuned" in outcome.out
    assert "3 of 3 shapes have no measured winner of a finished search; 2 only predicted\n" in outcome.err
    assert (
        f"hint: `kt tune gemm --shapes {shapes}` measures what is missing, on a machine with NVIDIA H200; "
        "`kt export --predicted` takes what the model ranked, too\n"
    ) in outcome.err
    assert {item["problem"]["m"] for item in kt("show-cache", "--shapes", shapes, "--json").json["missing"]} == {
        512, 256, 1,
    }  # fmt: skip
    filtered = kt("show-cache", "--shapes", shapes, "--state", "valid").out
    assert "256x512x512  predicted" in filtered, "what a filter hides is still missing"


def test_filters_that_fit_nothing_are_not_an_empty_cache(kt: Command, own_environment: Path, fresh: Command) -> None:
    """ "No results" would be wrong where there are some."""
    _fill(own_environment, fresh(512), fresh(256))
    err = kt("show-cache", "--layout", "tt").err
    assert "none of the 2 results in" in err
    assert "no results" not in err
    assert "NVIDIA H200" not in err
    assert kt("show-cache", "--device", "A100").err.endswith("match; they are of NVIDIA H200\n")


def test_a_single_result_that_does_not_fit_is_one(
    kt: Command, own_environment: Path, fresh: Command, tmp_path: Path
) -> None:
    """Neither "none of the 1 result", nor of the 1 shape."""
    _fill(own_environment, fresh(512))
    assert "the only result in " in kt("show-cache", "--device", "A100").err
    file = tmp_path / "one.yaml"
    file.write_text("shapes: [{m: 512, n: 512, k: 512}]\n")
    assert f"no shape of {file} has dtype fp64" in kt("show-cache", "--shapes", file, "--dtype", "fp64").err


def test_what_is_only_predicted_elsewhere_is_not_called_tuned(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """The reason of a missing shape says what the other device has: a measured winner or the model's guess."""
    _fill(own_environment, fresh(512), fresh(256, predicted=True, method="model/1"))
    outcome = kt("show-cache", "--shapes", shapes, "--device", "model:t4", "--json")
    reasons = {item["problem"]["m"]: item["reason"] for item in outcome.json["missing"]}
    assert reasons[512].startswith("tuned for NVIDIA H200")
    assert reasons[256].startswith("predicted for NVIDIA H200")


H200 = DeviceIdentity("NVIDIA H200", (9, 0), 132, 140)
LESS = replace(H200, memory_gib=100)
SLICE = replace(H200, sm_count=60)


def test_devices_of_one_name_can_be_told_apart(kt: Command, own_environment: Path, fresh: Command) -> None:
    """A10: listings show what differs, and `--device` takes any part of what they show, for every command."""
    _fill(own_environment, fresh(512), fresh(256, device=LESS), fresh(1, device=SLICE), fresh(1, device=LESS))
    listed = kt("show-cache").out
    assert all(device.label in listed for device in (H200, LESS, SLICE))
    for text, found in (("140 gib", {512, 1}), ("100 GiB", {256, 1}), ("60 SMs", {1}), (H200.label, {512})):
        document = kt("show-cache", "--device", text, "--json").json
        assert {entry["problem"]["m"] for entry in document["entries"]} == found, text
        table = kt("export", "--json", "--device", text).json
        assert {row["problem"]["m"] for row in table["rows"]} == found, text
    assert kt("cache", "prune", "--device", "100 GiB", "--json").json["winners"] == 2
    assert {entry["problem"]["m"] for entry in kt("show-cache", "--json").json["entries"]} == {512, 1}
    assert H200.label not in kt("show-cache", "--device", "132 SMs", "--verbose").out  # the only one: its name will do


def test_an_ambiguous_device_is_named_with_the_way_out(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """A10: the message lists the devices, and the example in its hint works."""
    _fill(own_environment, fresh(512), fresh(256, device=LESS))
    for options in ((), ("--device", "h200")):
        outcome = kt("show-cache", "--shapes", shapes, *options)
        assert outcome.code == 2
        assert LESS.label in outcome.err
        assert H200.label in outcome.err
    example = outcome.err.splitlines()[-1].partition("--device '")[2].rstrip("'")
    assert example in (H200.label, LESS.label)
    assert kt("show-cache", "--shapes", shapes, "--device", example).code == 5


def test_what_is_left_out_of_an_export_is_told_apart_too(kt: Command, own_environment: Path, fresh: Command) -> None:
    _fill(own_environment, fresh(512), fresh(512, device=LESS, sources={"simt": "old"}))
    assert f"left out: fp32 nn 512x512x512 on {LESS.label}: stale" in kt("export", "--json").err


@pytest.mark.parametrize(
    ("taken", "other", "why"),
    [
        (
            {"predicted": True},
            {"predicted": True, "complete": False, "tried": 1, "total": 9, "time_us": 1.0},
            "its search was finished; this one is predicted (1 of 9 tried)",
        ),
        ({}, {"predicted": True, "time_us": 1.0, "method": "model/3"}, "it was measured; this one is predicted"),
        (
            {},
            {"complete": False, "tried": 1, "total": 9, "time_us": 1.0},
            "its search was finished; this one is partial (1 of 9 tried)",
        ),
    ],
)
def test_the_reason_names_the_winner_that_is_taken(
    kt: Command, own_environment: Path, fresh: Command, taken: dict[str, Any], other: dict[str, Any], why: str
) -> None:
    """Not what the option asked for would allow anyway: `predicted` is no reason beside --predicted. What is said of
    the other one says that it is of that."""
    _fill(own_environment, fresh(512, **taken), fresh(512, tile_m=64, **other))
    (line,) = kt("export", "--json", "--predicted").err.splitlines()
    assert line.endswith(f"512x512x512 on {H200.name}: another winner of this shape is taken, because {why}")


def test_prune_takes_a_device_as_the_listing_does(kt: Command, own_environment: Path, fresh: Command) -> None:
    """A modelled device is that one exactly; an empty name is a slip and not every device."""
    _fill(own_environment, fresh(512), fresh(256, device=LESS))
    for command in (("cache", "prune", "--older-than", "0m"), ("show-cache",), ("export", "--json")):
        assert kt(*command, "--device", "").code == 2
    assert kt("cache", "prune", "--device", "model:h200", "--json").json["winners"] == 1
    assert [entry["problem"]["m"] for entry in kt("show-cache", "--json").json["entries"]] == [256]


@pytest.mark.parametrize("command", [("show-cache",), ("export", "--json")])
def test_a_filter_for_the_missing_gpu_offers_no_model(kt: Command, command: tuple[str, ...]) -> None:
    """`--device local` without a GPU: results of other devices are found by name, and `--device auto` is no help."""
    outcome = kt(*command, "--device", "local")
    assert outcome.code == 4
    assert "hint: a part of a name" in outcome.err
    assert "--device auto" not in outcome.err


def test_a_lookup_among_several_gpus_asks_for_one(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path, no_gpu: None
) -> None:
    """By a part of its name; the lookup takes one device and has no word for all."""
    _fill(own_environment, fresh(512), fresh(256, device=LESS))
    outcome = kt("show-cache", "--shapes", shapes)
    assert outcome.code == 2
    assert "any part of its name that no other has: --device '" in outcome.err
    assert "or all" not in outcome.err


def test_an_export_that_lacks_shapes_says_what_would_help(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path
) -> None:
    """`--predicted` where the model has ranked them; else where to find out why there is none, and no promise."""
    _fill(own_environment, fresh(512), fresh(1))
    outcome = kt("export", "--json", "--shapes", shapes)
    assert "hint: `kt show-cache`" in outcome.err
    assert "makes them" not in outcome.err
    _fill(own_environment, fresh(256, predicted=True, method="model/1"))
    outcome = kt("export", "--json", "--shapes", shapes)
    assert outcome.code == 5
    assert "hint: --predicted takes" in outcome.err


def test_export_json_is_a_table(kt: Command, own_environment: Path, fresh: Command, tmp_path: Path) -> None:
    """The table goes to standard output alone, or to a file with the same bytes."""
    _fill(own_environment, fresh(512), fresh(256))
    outcome = kt("export", "--json")
    assert outcome.json["schema"] == "kt.table/1"
    assert [row["problem"]["m"] for row in outcome.json["rows"]] == [256, 512]
    assert kt("export", "--json", "-o", "-").out == outcome.out
    written = kt("export", "--json", "-o", tmp_path / "table.json")
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "table.json").read_text() == outcome.out


def test_an_unchanged_export_keeps_its_time_stamp(
    kt: Command, own_environment: Path, fresh: Command, tmp_path: Path
) -> None:
    """make does not rebuild what depends on an export that says the same as before."""
    _fill(own_environment, fresh(512))
    header = tmp_path / "table.h"
    assert kt("export", "--header", "-o", header).code == 0
    os.utime(header, (1, 1))
    assert kt("export", "--header", "-o", header).code == 0
    assert header.stat().st_mtime == 1
    _fill(own_environment, fresh(256))
    assert kt("export", "--header", "-o", header).code == 0
    assert header.stat().st_mtime > 1


def test_export_leaves_out_what_is_stale_and_says_so(kt: Command, own_environment: Path, fresh: Command) -> None:
    """Nothing is left out in silence."""
    _fill(own_environment, fresh(512), fresh(256, sources={"simt": "old"}), fresh(1, predicted=True, method="model/1"))
    outcome = kt("export", "--json")
    assert [row["problem"]["m"] for row in outcome.json["rows"]] == [512]
    assert "256x512x512" in outcome.err
    assert "stale" in outcome.err
    assert "1x512x512" in outcome.err
    predicted = kt("export", "--json", "--predicted")
    assert [row["problem"]["m"] for row in predicted.json["rows"]] == [1, 512]


def test_many_that_are_left_out_for_one_reason_have_one_line(
    kt: Command, own_environment: Path, fresh: Command
) -> None:
    """How many, why, and the first ones; --verbose names each. Other reasons and other GPUs have lines of their own."""
    stale = [fresh(m, sources={"simt": "old"}) for m in range(1, 45)]
    partial = [fresh(m, complete=False, tried=m) for m in (100, 200)]
    _fill(own_environment, fresh(512), *stale, *partial, fresh(7, device=LESS, sources={"simt": "old"}))
    said = kt("export", "--json", "--complete").err.splitlines()
    assert said[1:] == [
        f"kt: left out: 44 winners on {H200.label}: stale (template or space of simt changed): fp32 nn 1x512x512, "
        "fp32 nn 2x512x512, fp32 nn 3x512x512 and 41 more; --verbose names all",
        f"kt: left out: 2 winners on {H200.label}: partial: fp32 nn 100x512x512, fp32 nn 200x512x512",
    ]
    assert said[0].startswith(f"kt: left out: fp32 nn 7x512x512 on {LESS.label}: stale (")
    verbose = kt("export", "--json", "--complete", "--verbose").err
    assert len(verbose.splitlines()) == 47
    assert f"kt: left out: fp32 nn 100x512x512 on {H200.label}: partial (100 of 92 tried)" in verbose


def test_entries_that_cannot_be_read_for_one_reason_have_one_line(
    kt: Command, own_environment: Path, fresh: Command
) -> None:
    """The first ones and how many more; --verbose, and the document, name each."""
    _fill(own_environment, *(fresh(m) for m in range(1, 6)))
    with sqlite3.connect(database_path(own_environment)) as database:
        database.execute("UPDATE best SET record = '{}'")
    database.close()
    for command in (("show-cache",), ("export", "--json")):
        warnings = [line for line in kt(*command).err.splitlines() if "warning: " in line]
        assert len(warnings) == 1
        assert "fp32 nn 3x512x512" in warnings[0]
        assert " and 2 more: " in warnings[0]
        assert kt(*command, "--verbose").err.count("kt: warning: ") == 5
    assert len(kt("show-cache", "--json").json["warnings"]) == 5


def test_the_hint_of_an_empty_export_is_a_way_out(kt: Command, own_environment: Path, fresh: Command) -> None:
    """Not an option that was given, or that would not help."""
    _fill(own_environment, fresh(512, complete=False, predicted=True, method="model/1"))
    assert "hint: --predicted takes" in kt("export", "--json").err
    assert "hint: --predicted without --complete takes" in kt("export", "--json", "--complete").err
    asked = kt("export", "--json", "--complete", "--predicted").err
    assert "hint: without --complete, " in asked
    assert ": predicted by a search that did not finish (" in asked, "predictions are taken: that is not why"
    _fill(own_environment, fresh(256, complete=False))
    assert "hint: without --complete, " in kt("export", "--json", "--device", "h200", "--complete", "--predicted").err
    assert kt("export", "--json", "--predicted").code == 0
    filtered = kt("export", "--json", "--predicted", "--dtype", "fp64", "--device", "h200").err
    assert "the cache has nothing to export for --dtype fp64 and --device h200\n" in filtered


def test_export_of_shapes_is_all_or_nothing(
    kt: Command, own_environment: Path, fresh: Command, shapes: Path, tmp_path: Path
) -> None:
    """With --shapes, a shape without a winner means exit 5 and an untouched file."""
    _fill(own_environment, fresh(512), fresh(256))
    target = tmp_path / "table.json"
    target.write_text("old")
    outcome = kt("export", "--json", "--shapes", shapes, "-o", target)
    assert outcome.code == 5
    assert "1x512x512" in outcome.err
    assert target.read_text() == "old"
    _fill(own_environment, fresh(1))
    assert kt("export", "--json", "--shapes", shapes, "-o", target).code == 0
    assert len(json.loads(target.read_text())["rows"]) == 3


@pytest.mark.parametrize("formats", [(), ("--json", "--header")])
def test_export_needs_one_format(kt: Command, formats: tuple[str, ...]) -> None:
    """Neither format and both are usage errors."""
    outcome = kt("export", *formats)
    assert outcome.code == 2
    assert "one format" in outcome.err


def test_export_refuses_bad_targets(kt: Command, own_environment: Path, fresh: Command, tmp_path: Path) -> None:
    """A folder, a missing folder: exit 2, one message."""
    _fill(own_environment, fresh(512))
    for target in (tmp_path, tmp_path / "no" / "table.h"):
        outcome = kt("export", "--header", "-o", target)
        assert outcome.code == 2
        assert str(target) in outcome.err
        assert "Traceback" not in outcome.err


def test_export_to_dev_stdout_does_not_replace_it(own_environment: Path, fresh: Command, tmp_path: Path) -> None:
    """/dev/stdout is written to, redirected or not, and is still there afterwards."""
    _fill(own_environment, fresh(512))
    with (tmp_path / "out.json").open("w") as out:
        command = [sys.executable, "-m", "kt", "export", "--json", "-o", "/dev/stdout"]
        subprocess.run(command, check=True, stdout=out, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert json.loads((tmp_path / "out.json").read_text())["rows"]
    assert Path("/dev/stdout").is_symlink()


def test_cache_path(kt: Command, own_environment: Path, tmp_path: Path) -> None:
    """The flag comes before the variable."""
    assert kt("cache", "path").out == f"{own_environment}\n"
    assert kt("cache", "path", "--cache-dir", tmp_path).out == f"{tmp_path}\n"
    assert kt("cache", "path", "--json").json["path"] == str(own_environment)


def test_cache_merge(kt: Command, own_environment: Path, fresh: Command, tmp_path: Path) -> None:
    """Both sides' results are there afterwards; where both had one, the faster is kept and named."""
    _fill(own_environment, fresh(512, time_us=10.0), fresh(256))
    _fill(tmp_path / "other", fresh(512, time_us=9.0, tile_m=128), fresh(1))
    outcome = kt("cache", "merge", tmp_path / "other", "--json")
    assert (outcome.code, outcome.json["winners"]) == (0, 1)
    (conflict,) = outcome.json["conflicts"]
    assert "kept 9 us" in conflict
    times = {entry["problem"]["m"]: entry["time_us"] for entry in kt("show-cache", "--json").json["entries"]}
    assert times == {512: 9.0, 256: 12.5, 1: 12.5}


def test_cache_merge_of_nothing_is_refused(kt: Command, tmp_path: Path) -> None:
    """A path without a cache is a usage error that names it."""
    outcome = kt("cache", "merge", tmp_path / "nowhere")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_cache_prune(kt: Command, own_environment: Path, fresh: Command) -> None:
    """What is stale goes, the rest stays; --dry-run only counts."""
    _fill(own_environment, fresh(512), fresh(256, sources={"simt": "old"}))
    assert "1 winner" in kt("cache", "prune", "--stale", "--dry-run").out
    assert len(kt("show-cache", "--json").json["entries"]) == 2
    assert kt("cache", "prune", "--stale", "--json").json["winners"] == 1
    assert [entry["problem"]["m"] for entry in kt("show-cache", "--json").json["entries"]] == [512]


def test_a_dry_run_frees_nothing_and_says_nothing_of_it(kt: Command, own_environment: Path, fresh: Command) -> None:
    """How many bytes there are to gain is not known before."""
    _fill(own_environment, fresh(256, sources={"simt": "old"}))
    assert kt("cache", "prune", "--stale", "--dry-run").out == "1 winner and 0 measurements would be removed\n"


@pytest.mark.parametrize("option", ["--stale", "--failed", "--unreadable", "--damaged", "--cubins"])
def test_pruning_makes_no_cache(kt: Command, tmp_path: Path, option: str) -> None:
    """Where there is nothing, nothing is removed and nothing is made."""
    assert kt("cache", "prune", option, "--cache-dir", tmp_path / "none").code == 0
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_no_cache_is_not_moved_away(kt: Command, own_environment: Path) -> None:
    """`--damaged` is for kt's own file: another one is refused, and left as it is."""
    (own_environment / "kt.sqlite3").write_text("hello\n")
    outcome = kt("cache", "prune", "--damaged")
    assert outcome.code == 1
    assert "is not a kt cache" in outcome.err
    assert [path.name for path in own_environment.iterdir()] == ["kt.sqlite3"]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--damaged", "--stale"), ("--damaged", "--cubins"), ("--older-than", "soon"), ("--cubins", "--dry-run")],
)
def test_cache_prune_needs_a_clear_condition(kt: Command, arguments: tuple[str, ...]) -> None:
    """No condition, a mixture that cannot be meant, and a span that is none are refused."""
    assert kt("cache", "prune", *arguments).code == 2


@pytest.mark.parametrize(("span", "code"), [("999999999d", 0), ("1000000000d", 2), (f"{'9' * 5000}m", 2), ("٣d", 2)])
def test_spans_without_end_are_refused(
    span: str, code: int, kt: Command, own_environment: Path, fresh: Command
) -> None:
    """B20: the longest span is that of Python's time; digits are 0 to 9."""
    _fill(own_environment, fresh(512))
    assert kt("cache", "prune", "--older-than", span).code == code


def test_an_empty_span_is_not_no_span(kt: Command, own_environment: Path, fresh: Command) -> None:
    """As of a shell variable that is not set: beside another condition it would remove what is of any age."""
    _fill(own_environment, fresh(512))
    outcome = kt("cache", "prune", "--partial", "--older-than", "")
    assert outcome.code == 2
    assert "--older-than '' is no time span" in outcome.err


def test_an_empty_path_is_no_cache_to_merge(kt: Command) -> None:
    """It would mean the working folder."""
    outcome = kt("cache", "merge", "")
    assert outcome.code == 2
    assert "a path is empty" in outcome.err


def test_a_damaged_cache_is_named_with_its_remedy(kt: Command, own_environment: Path, fresh: Command) -> None:
    """Listing a damaged file ends in one message; `kt cache prune --damaged` sets it aside."""
    _fill(own_environment, fresh(512))
    (database,) = own_environment.glob("*.sqlite3")
    data = bytearray(database.read_bytes())
    data[200:] = b"\xff" * (len(data) - 200)
    database.write_bytes(data)
    outcome = kt("show-cache")
    assert outcome.code == 1
    assert "kt cache prune --damaged" in outcome.err
    pruned = kt("cache", "prune", "--damaged", "--json")
    assert pruned.json["set_aside"]
    assert Path(pruned.json["set_aside"]).exists()
    assert kt("show-cache").code == 0


BUSY = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(2.5)
"""


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_command_that_waits_says_so(
    kt: Command, own_environment: Path, fresh: Command, quiet: tuple[str, ...]
) -> None:
    """Who waits for another kt learns for which one; -q waits in silence."""
    _fill(own_environment, fresh(512))
    command = [sys.executable, "-c", BUSY, str(own_environment / "kt.sqlite3")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        outcome = kt("cache", "prune", "--failed", *quiet)
    assert outcome.code == 0
    waiting = (
        f"kt: waiting at most 60 s for process {process.pid}: the cache {own_environment / 'kt.sqlite3'} is in use\n"
    )
    assert outcome.err == ("" if quiet else waiting)


def test_a_winner_of_another_space_is_not_stale(
    kt: Command, own_environment: Path, small_family: tuple[str, ...], tmp_path: Path
) -> None:
    """Nothing has changed, the command was told of another space: it is called so, not used, and not pruned."""
    (tmp_path / "one.yaml").write_text("shapes: [{m: 64, n: 64, k: 64}]\n")
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text(Path(small_family[1]).read_text().replace("tile: [8, 16]", "tile: [8]"))
    templates = small_family[2:]
    tune = ("tune", "gemm", "--device", "model:h200", "--shapes", tmp_path / "one.yaml", *templates)
    assert kt(*tune, "--space", narrow).code == 0

    def states(*options: object) -> list[tuple[str, str]]:
        return [(one["state"], one["reason"]) for one in kt("show-cache", "--json", *options).json["entries"]]

    assert states(*templates, "--space", narrow) == [("predicted", "")]
    other = ("other-space", "tuned with --space narrow.yaml")
    assert states() == [other]
    assert states(*small_family) == [other]
    listed = kt("show-cache", "--shapes", tmp_path / "one.yaml", *small_family, "--json").json
    assert [one["reason"] for one in listed["missing"]] == [": ".join(other)]
    assert kt("export", "--json", "--predicted", *small_family).code == 5
    for options in ((), small_family):
        assert kt("cache", "prune", "--stale", *options, "--json").json["winners"] == 0
    narrow.write_text(narrow.read_text().replace("tile: [8]", "tile: [8, 32]"))
    assert states(*templates, "--space", narrow)[0][0] == "stale", "this one has changed"
    assert kt("cache", "prune", "--stale", *templates, "--space", narrow, "--json").json["winners"] == 1


def test_a_winner_of_the_built_in_spaces_is_not_stale_for_another(
    kt: Command, own_environment: Path, fresh: Command, tmp_path: Path
) -> None:
    """The reverse; but one that the built-in spaces have left behind is stale whatever is asked."""
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text("family: simt\nparameters: {tile_m: [64]}\n")
    _fill(own_environment, fresh(512), fresh(256, sources={"simt": "old"}))
    found = kt("show-cache", "--space", narrow, "--json").json["entries"]
    assert {one["problem"]["m"]: one["state"] for one in found} == {512: "other-space", 256: "stale"}
    (tmp_path / "wgmma.yaml").write_text("family: wgmma\nparameters: {tile_m: [128]}\n")
    found = kt("show-cache", "--space", tmp_path / "wgmma.yaml", "--json").json["entries"]
    states = {one["problem"]["m"]: one["state"] for one in found}
    assert states == {512: "valid", 256: "stale"}, "wgmma has not competed for fp32"
    assert kt("cache", "prune", "--stale", "--space", narrow, "--json").json["winners"] == 1


def test_partial_means_the_same_wherever_it_is_asked_for(kt: Command, own_environment: Path, fresh: Command) -> None:
    """What is listed is what would be removed: unfinished rankings and stale ones too, brief searches not."""
    unfinished = [fresh(2), fresh(3, method="model/1"), fresh(4, sources={"simt": "old"})]
    unfinished = [replace(best, complete=False) for best in unfinished]
    unfinished[1] = replace(unfinished[1], measurement=replace(unfinished[1].measurement, predicted=True))
    brief = replace(fresh(5), complete=False, provenance={UNSEEN: "1"})
    _fill(own_environment, fresh(512), *unfinished, brief)
    listed = kt("show-cache", "--json", "--state", "partial").json["entries"]
    assert {one["problem"]["m"]: one["state"] for one in listed} == {2: "partial", 3: "predicted", 4: "stale"}
    assert kt("cache", "prune", "--partial", "--json").json["winners"] == 3
    assert {one["problem"]["m"] for one in kt("show-cache", "--json").json["entries"]} == {512, 5}


def test_what_was_written_is_told(kt: Command, own_environment: Path, fresh: Command, tmp_path: Path) -> None:
    """In one line, whatever the format; not of standard output, whose reader has the data, and not with --quiet."""
    _fill(own_environment, fresh(512), fresh(256))
    file = tmp_path / "out"
    for options, kernels in (("--json",), ""), (("--header", "--table-only"), ""), (("--header",), r"[0-9]+ kernels, "):
        command = ("export", *options, "--device", "h200")
        for word in ("written", "unchanged"):
            outcome = kt(*command, "-o", file)
            told = rf"kt: {word}: {re.escape(str(file))} \({kernels}2 shapes, {file.stat().st_size} bytes\)"
            assert re.fullmatch(told, outcome.err.splitlines()[-1])
            assert outcome.out == ""
        assert kt(*command, "-o", file, "-q").err == ""
        for target in ((), ("-o", "-"), ("-o", "/dev/stdout")):
            assert "written" not in kt(*command, *target).err
