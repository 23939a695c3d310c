"""The table `kt.table/1`: strict JSON that its schema describes, the same bytes every time, and readable again."""

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kt.cache.records import BestConfig
from kt.devices.device import DeviceIdentity
from kt.errors import InputError
from kt.export.json_table import read_table, render_table, row, table
from kt.export.table_schema import table_schema
from kt.problems import DTYPES, LAYOUTS, Problem
from kt.search_spaces.space import Config

Make = Callable[..., BestConfig]
LAUNCH = {"kernel": "kt_gemm", "grid": 1, "block": 128, "smem_bytes": 0}
MAP = {"operand": "a", "box": [64, 64], "swizzle": 128, "copy": None}


def validate(document: object) -> None:
    jsonschema.Draft202012Validator(table_schema()).validate(document)


def strict(text: str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def winners(make_winner: Make) -> list[BestConfig]:
    """Plain and odd ones: ties, edges, no baseline, predicted, partial, noisy, batched, padded, other scalars."""
    return [
        make_winner(),
        make_winner(Problem(1, 2, 3, "fp16", "tt", batch=2, ldc=8, alpha=1.5, beta=0.5), noisy=True),
        make_winner(Problem(7, 8, 0), ties=(Config("mma", (("stages", 3), ("swizzle", "128B"))),), edge=("tile_m",)),
        make_winner(predicted=True, method="model/1", spread=None, samples=0, registers=None, baseline={}),
        make_winner(Problem(9, 9, 9), complete=False, tried=3, default_us=None, floor_us=None),
        make_winner(device=DeviceIdentity("NVIDIA A100 é", (8, 0), 108, 80), baseline={"cublas": 1.0, "cublaslt": 2}),
    ]


def test_the_table_is_strict_json_that_its_schema_describes(winners: list[BestConfig]) -> None:
    """No NaN, no unknown field, ASCII, one final newline."""
    text = render_table(winners)
    validate(strict(text))
    assert text.isascii()
    assert text.endswith("]\n}\n")


def test_the_schema_is_a_valid_schema_and_refuses_what_is_not_a_table(winners: list[BestConfig]) -> None:
    """`kt schema table` is of draft 2020-12, every field is typed, and required if all versions have written it."""
    jsonschema.Draft202012Validator.check_schema(table_schema())
    for name in table(winners)["rows"][0]:
        for change in ("missing", "wrong") if name != "screened_us" else ("wrong",):
            document = table(winners)
            if change == "missing":
                del document["rows"][0][name]
            else:
                document["rows"][0][name] = [{"no": "such"}]
            with pytest.raises(jsonschema.ValidationError):
                validate(document)


def test_the_derived_figures_are_right(make_winner: Make) -> None:
    """TFLOP/s, GB/s, fraction of the floor, and ratios follow from the time, to six digits."""
    best = make_winner(
        Problem(1000, 2000, 3000), time_us=250.0, floor_us=200.0, baseline={"cublas": 300.0, "cublaslt": 225.0}
    )
    found = row(best)
    assert found["tflops"] == 48.0
    assert found["gb_per_s"] == pytest.approx((1000 * 3000 + 3000 * 2000 + 1000 * 2000) * 4 / 250e-6 / 1e9)
    assert found["floor_fraction"] == 0.8
    assert found["ratio"] == {"cublas": 1.2, "cublaslt": 0.9}


def test_what_is_not_known_is_null_or_empty(make_winner: Make) -> None:
    """E8: no number stands for a missing one."""
    best = make_winner(spread=None, floor_us=None, default_us=None, baseline={}, registers=None)
    found = row(best)
    assert [found[name] for name in ("spread", "floor_us", "floor_fraction", "default_us", "registers")] == [None] * 5
    assert found["baseline"] == found["ratio"] == {}


def test_no_work_takes_no_rate(make_winner: Make) -> None:
    """k = 0 has no operations; its bytes are those of C."""
    found = row(make_winner(Problem(8, 8, 0), time_us=1.0))
    assert (found["tflops"], found["gb_per_s"]) == (0.0, 0.256)


def test_a_number_that_is_none_never_reaches_a_file(make_winner: Make) -> None:
    """A NaN that slipped in is a failure of the export, not invalid JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_table([make_winner(time_us=math.nan)])


def test_the_bytes_do_not_depend_on_order_or_provenance(winners: list[BestConfig]) -> None:
    """Same cache, same bytes: no time stamps, hosts, paths or seeds."""
    shuffled = random.Random(1).sample(winners, len(winners))
    elsewhere = [replace(best, provenance={"date": "tomorrow", "host": "x"}) for best in shuffled]
    assert render_table(elsewhere) == render_table(winners)
    assert "2025" not in render_table(winners)


def test_rows_are_ordered_by_device_type_layout_and_size(make_winner: Make) -> None:
    """Sizes count as numbers: 9 before 10."""
    problems = [Problem(m, n, 8, dtype, layout) for m, n in ((10, 9), (9, 10)) for dtype in ("fp32", "bf16")
                for layout in ("tn", "nn")]  # fmt: skip
    rows = table([make_winner(problem) for problem in problems])["rows"]
    order = [(r["problem"]["dtype"], r["problem"]["layout"], r["problem"]["m"]) for r in rows]
    assert order == sorted(order)
    assert len(order) == 8


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    """Nothing found is said as an empty list of rows."""
    validate(strict(render_table([])))
    (tmp_path / "t.json").write_text(render_table([]))
    assert read_table(tmp_path / "t.json") == []


def test_a_table_read_again_is_the_same_table(winners: list[BestConfig], tmp_path: Path) -> None:
    """All that a row says survives; only provenance is not in it."""
    file = tmp_path / "t.json"
    file.write_text(render_table(winners))
    again = read_table(file)
    assert render_table(again) == file.read_text()
    expected = [replace(best, provenance={}) for best in winners]
    assert sorted(again, key=repr) == sorted(expected, key=repr)


def test_a_table_of_before_does_not_know_the_screening(winners: list[BestConfig], tmp_path: Path) -> None:
    """Older versions wrote no `screened_us`; their tables are read all the same, and are what the schema says."""
    known = replace(winners[0], measurement=replace(winners[0].measurement, screened_us=1.5))
    document = strict(render_table([known]))
    assert document["rows"][0]["screened_us"] == 1.5
    del document["rows"][0]["screened_us"]
    validate(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    assert [best.measurement.screened_us for best in read_table(tmp_path / "t.json")] == [None]


_TIMES = st.floats(min_value=1e-3, max_value=1e9)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    m=st.integers(1, 2**31 - 1), n=st.integers(1, 2**31 - 1), k=st.integers(0, 2**31 - 1), batch=st.integers(1, 9),
    dtype=st.sampled_from(sorted(DTYPES)), layout=st.sampled_from(LAYOUTS), time_us=_TIMES,
    baseline=st.dictionaries(st.text(max_size=5), _TIMES, max_size=3),
    parameters=st.dictionaries(st.text(max_size=5), st.integers(-(2**60), 2**60) | st.text(max_size=5), min_size=1),
)  # fmt: skip
def test_any_winner_survives_the_table(
    m: int, n: int, k: int, batch: int, dtype: str, layout: str, time_us: float,
    baseline: dict[str, float], parameters: dict[str, int | str], make_winner: Make, tmp_path: Path,
) -> None:  # fmt: skip
    """Property: writing and reading is the identity, within the schema, for any sizes, texts and times."""
    config = Config("simt", tuple(parameters.items()))
    problem = Problem(m, n, k, dtype, layout, batch)
    best = make_winner(problem, time_us=time_us, baseline=baseline, config=config)
    file = tmp_path / "t.json"
    file.write_text(render_table([best]))
    validate(strict(file.read_text()))
    assert read_table(file) == [replace(best, provenance={})]


# What is no table


def broken(winners: list[BestConfig], change: Callable[[dict[str, Any]], object]) -> str:
    document = table(winners)
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.json:1:1: not JSON"),
        ('{"schema": ,}', r"t\.json:1:12: not JSON"),
        ("[1]", "must be an object, not a list"),
        ("{}", "schema: missing"),
        ('{"schema": "kt.bench/1", "rows": []}', "schema is 'kt.bench/1'"),
        ('{"schema": "kt.table/2", "rows": []}', "schema is 'kt.table/2', not 'kt.table/1'"),
        ('{"schema": "kt.table/1", "rows": {}}', "rows: must be a list, not an object"),
        ('{"schema": "kt.table/1", "rows": [3]}', r"rows\[0\]: must be an object, not 3"),
        ('{"schema": "kt.table/1", "schema": "kt.table/1", "rows": []}', "'schema' is repeated"),
        ('{"schema": "kt.table/1", "rows": [NaN]}', "NaN is not a number"),
        ("[" * 100_000, r"t\.json: lists and objects are nested too deep"),
        (f'{{"schema": {"9" * 5000}}}', r"t\.json: not strict JSON: a number has 5000 digits$"),
    ],
)
def test_what_is_no_table_is_refused_with_the_place(text: str, message: str, tmp_path: Path) -> None:
    """The message names file, and line or field."""
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("time_us",), -1.0, r"rows\[2\]\.time_us: is -1.0"),
        (("time_us",), None, "time_us: is None"),
        (("time_us",), "5", r"rows\[2\]\.time_us: must be a finite number, not '5'"),
        (("time_us",), 10**400, "time_us: must be a finite number, not a whole number beyond 64 bits"),
        (("config", "parameters"), {}, "parameters: is empty"),
        (("config", "parameters"), {"a": 1.5}, "parameters.a: must be a whole number or a text"),
        (("problem", "m"), 0, r"rows\[2\].problem: m is 0"),
        (("problem", "m"), True, "problem.m: must be a whole number, not True"),
        (("problem", "dtype"), "fp3", "dtype is 'fp3'"),
        (("problem", "ldb"), 1, "ldb is 1"),
        (("problem", "m"), 513, "key: is not the digest"),
        (("device", "sm_count"), 1, "key: is not the digest"),
        (("kind",), "guessed", "kind: is 'guessed'; must be one of measured, predicted"),
        (("launches",), [{"kernel": "k", "grid": 0, "block": 1, "smem_bytes": 0}], r"launches\[0\].grid: is 0"),
        (("complete",), 1, "complete: must be true or false"),
        (("edge",), [1], "edge: must be a list of texts"),
        (("sources",), {"simt": 1}, "sources.simt: must be a text"),
        (("time_us",), 1.25, "(tflops|gb_per_s): is .*; the row's times give"),
        (("gb_per_s",), "fast", 'gb_per_s: is "fast"; the row'),
        (("floor_fraction",), None, "floor_fraction: is null; the row"),
        (("tflops",), 10**400, "tflops: is 1000.*; the row"),
        (("ratio",), {"cublas": 9.0}, "ratio: is .*9.0"),
        (("ratio",), {}, "ratio: is {}; the row"),
        (("edge",), ["\udfff"], "edge: must be a list of texts"),
        (("launches",), [{**LAUNCH, "tensor_maps": [{**MAP, "box": [True, 64]}]}], "box: must be a list of two whole"),
        (("launches",), [{**LAUNCH, "tensor_maps": [{**MAP, "box": [64, 2**40]}]}], "box: .*, 1 to 256 each"),
        (("family",), "zzz", "sources: have no zzz, the winner's family"),
        (("problem", "stride_a"), -5, "stride_a is -5"),
        (("problem", "base_alignment"), 2**64, "base_alignment: must be a whole number, not a whole number beyond 64"),
        (("device", "sm_count"), 2**31, "sm_count: is 2147483648; must be at most 2147483647"),
        (("device", "compute_capability"), [9, False], "compute_capability: must be a list of two whole numbers"),
        (("device", "compute_capability"), [9, 10], "compute_capability: must be a list of two whole numbers"),
        (("device", "name"), "\ud800", "device.name: has half a surrogate pair"),
        (("baseline",), {"\ud800": 1.0}, "baseline: has a name with half a surrogate pair"),
        (("config", "parameters"), {"a": "\udfff"}, "parameters.a: has half a surrogate pair"),
    ],
)
def test_a_wrong_field_is_named_with_its_row(
    path: tuple[str, ...], value: object, message: str, winners: list[BestConfig], tmp_path: Path
) -> None:
    """Reading is strict: a table that was edited by hand is checked field by field."""

    def change(document: dict[str, Any]) -> None:
        *parents, last = path
        target = document["rows"][2]
        for name in parents:
            target = target[name]
        target[last] = value

    (tmp_path / "t.json").write_text(broken(winners, change))
    with pytest.raises(InputError, match=message) as caught:
        read_table(tmp_path / "t.json")
    assert "t.json: rows[2]." in caught.value.message


def test_a_prediction_is_not_taken_for_a_measurement(make_winner: Any, tmp_path: Path) -> None:
    """A method of the model measures nothing, whatever the row calls itself."""
    (tmp_path / "t.json").write_text(render_table([make_winner(method="model/3")]))
    with pytest.raises(InputError, match="kind: is measured, but the method model/3 measures nothing"):
        read_table(tmp_path / "t.json")
    (tmp_path / "t.json").write_text(render_table([make_winner(method="model/3", predicted=True)]))
    assert read_table(tmp_path / "t.json")


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    """No such file, a folder, other encodings; a byte order mark does no harm."""
    with pytest.raises(InputError, match="No such file"):
        read_table(tmp_path / "absent.json")
    with pytest.raises(InputError, match="Is a directory"):
        read_table(tmp_path)
    (tmp_path / "utf16.json").write_text("{}", encoding="utf-16")
    with pytest.raises(InputError, match="not UTF-8"):
        read_table(tmp_path / "utf16.json")
    (tmp_path / "bom.json").write_text(render_table([]), encoding="utf-8-sig")
    assert read_table(tmp_path / "bom.json") == []


# Documentation


def test_the_documented_row_is_a_table_and_every_field_is_explained(tmp_path: Path) -> None:
    """docs/table-schema.md: its example is valid and readable, and its list of fields is the schema's."""
    text = (Path(__file__).parents[2] / "docs" / "table-schema.md").read_text(encoding="utf-8")
    example = text.split("```json\n")[1].split("```")[0]
    validate(strict(example))
    (tmp_path / "t.json").write_text(example)
    (best,) = read_table(tmp_path / "t.json")
    assert render_table([best]) == example
    of_rows, of_launches = text.split("## Launches")
    schemas = table_schema()["$defs"]
    assert re.findall(r"^\| `(\w+)`", of_rows, re.MULTILINE) == list(schemas["row"]["properties"])
    launch, required = schemas["launch"]["properties"], schemas["launch"]["required"]
    shown = launch["tensor_maps"]["items"]["properties"]
    explained = re.findall(r"^\| `(\w+)`", of_launches, re.MULTILINE)
    assert {*required, *explained} == {*launch, *shown}
    assert set(required) <= set(re.findall(r"`(\w+)`", of_rows))
