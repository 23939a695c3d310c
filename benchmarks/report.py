#!/usr/bin/env python3
"""Tell what whole suites reached, losses included: a table in Markdown and a plot, from files of `measure.py tune`.

    python3 benchmarks/report.py benchmarks/results/h200/suite-*-c4d578f.json --plot suite.svg

A ratio is the time of the best library, cuBLAS or the fastest of cuBLASLt's candidates, over the winner's time in the
same run: above 1, kt is faster. The plot needs matplotlib.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from kt.wording import plural, verb

LOSS = 0.97  # below it a shape counts as lost; between this and 1 it is within what two runs differ by
BENCH = Path(__file__).with_name("bench.yaml")


@dataclass(frozen=True, slots=True)
class Row:
    """One shape of a suite: the winner's microseconds, and the best library's or None where no library accepts it."""

    shape: str
    layout: str
    time_us: float
    library_us: float | None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the library."""
        return None if self.library_us is None else self.library_us / self.time_us


@dataclass(frozen=True, slots=True)
class Suite:
    """What one precision reached.

    Attributes:
        tune_seconds: until all searches were finished, in one run or, after a budget, in two.
    """

    dtype: str
    commit: str
    device: str
    driver: str
    tune_seconds: float
    rows: tuple[Row, ...]

    @property
    def ratios(self) -> list[float]:
        return [row.ratio for row in self.rows if row.ratio is not None]

    @property
    def geometric_mean(self) -> float:
        return math.exp(sum(map(math.log, self.ratios)) / len(self.ratios))


def read_suite(path: Path) -> Suite:
    """A file that `measure.py tune` wrote.

    Raises:
        ValueError: a shape has no time, so the suite is not whole.
    """
    document = json.loads(path.read_text())
    shapes: list[dict[str, Any]] = document["bench"]["shapes"]
    missing = [shape["problem"] for shape in shapes if shape["failure"]]
    if missing:
        raise ValueError(
            f"{path}: {plural(len(missing), 'shape')} {verb(len(missing), 'has', 'have')} no time, {missing[0]} first"
        )
    return Suite(
        document["dtype"], document["commit"][:7], document["device"], document["driver"],
        document["tune_seconds"] + sum(document.get("further_seconds", ())), tuple(_row(shape) for shape in shapes),
    )  # fmt: skip


def _row(shape: dict[str, Any]) -> Row:
    problem = shape["problem"]
    name = f"{problem['m']}×{problem['n']}×{problem['k']}"
    peers = [time for time in shape["peers_us"].values() if time]
    return Row(name, problem["layout"], shape["time_us"], min(peers, default=None))


def table(suites: Sequence[Suite]) -> str:
    """One line a precision, in Markdown."""
    lines = [
        "| | shapes | geometric mean | at least as fast | below 0.97× | best | worst | tuned in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for suite in suites:
        rows = sorted((row for row in suite.rows if row.ratio is not None), key=lambda row: row.ratio or 0)
        best, worst = rows[-1], rows[0]
        level, lost = sum(ratio >= 1 for ratio in suite.ratios), sum(ratio < LOSS for ratio in suite.ratios)
        lines.append(
            f"| {suite.dtype} | {len(suite.rows)} | {suite.geometric_mean:.3f}× | {level} of {len(rows)} | {lost} "
            f"| {best.ratio:.2f}× ({best.shape}) | {worst.ratio:.2f}× ({worst.shape}) | {suite.tune_seconds:.0f} s |"
        )
    return "\n".join(lines)


def losses(suite: Suite) -> str:
    """All that is slower than the best library, worst first."""
    slower = sorted((row.ratio, row) for row in suite.rows if row.ratio is not None and row.ratio < 1)
    return ", ".join(f"{row.shape} {row.layout} {ratio:.3f}" for ratio, row in slower) or "none"


def classes(path: Path = BENCH) -> list[tuple[str, int]]:
    """The classes of the suite's shapes in their order, and how many each has."""
    shapes = yaml.safe_load(path.read_text())["shapes"]
    return [(name, len(list(group))) for name, group in groupby(shape["class"] for shape in shapes)]


def plot(suites: Sequence[Suite], target: Path) -> None:
    """A field for each shape and precision, coloured by its ratio, losses in red; written as SVG or by the suffix."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "kt", "svg.fonttype": "none", "font.size": 8, "font.family": "sans-serif"})
    from matplotlib import pyplot
    from matplotlib.colors import TwoSlopeNorm

    names = [f"{row.shape} {row.layout}" for row in suites[0].rows]
    fields = [[math.log2(suite.rows[i].ratio or math.nan) for suite in suites] for i in range(len(names))]
    figure, axes = pyplot.subplots(figsize=(2.6 + 0.62 * len(suites), 0.5 + 0.19 * len(names)), layout="constrained")
    axes.imshow(fields, aspect="auto", cmap="RdYlGn", norm=TwoSlopeNorm(0, -0.5, 2.0))
    for i, row in enumerate(fields):
        for j, value in enumerate(row):
            text = "–" if math.isnan(value) else f"{2**value:.2f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(suites)), [f"{suite.dtype}\n{suite.geometric_mean:.2f}×" for suite in suites])
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    border = -0.5
    for _, count in classes()[:-1]:
        border += count
        axes.axhline(border, color="white", linewidth=2)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--plot", type=Path, help="image to write")
    args = parser.parse_args()
    suites = [read_suite(path) for path in args.results]
    print(table(suites))
    for suite in suites:
        print(f"\n{suite.dtype}, slower than the library: {losses(suite)}")
    if args.plot:
        plot(suites, args.plot)


if __name__ == "__main__":
    main()
