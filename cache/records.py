"""The value types that are remembered: `CacheKey`, `Measurement`, `BestConfig`."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from kt.devices.device import DeviceIdentity
from kt.problems import Problem
from kt.search_spaces.space import Config, Launch

__all__ = ["NEVER_RAN", "STATUSES", "UNSEEN", "BestConfig", "CacheKey", "Measurement", "Status"]

Status = Literal[
    "ok", "pruned", "compile_error", "launch_error", "wrong_result", "timeout", "crashed", "out_of_memory"
]  # fmt: skip
STATUSES: tuple[str, ...] = get_args(Status)
NEVER_RAN = frozenset({"pruned", "compile_error"})  # outcomes that cost the GPU nothing
UNSEEN = "unseen"  # in a winner's provenance: its shape was searched briefly, to stand for those that nobody lists


@dataclass(frozen=True)
class Measurement:
    """What became of one candidate on one problem. A failure is a status, never a number.

    Attributes:
        status: one of `STATUSES`.
        time_us: median time of one run in microseconds; None unless `ok`.
        spread: interquartile range divided by the median; None with fewer than three samples.
        samples: number of timed samples behind `time_us`.
        refined: measured in the paired refinement of the best few, not only screened.
        noisy: the retries on noise ran out and the spread is still above the limit.
        predicted: the time is the model's, not a measurement.
        detail: for a failure, the one-line cause.
        registers, spill_bytes, smem_bytes: of the main kernel, where known (static plus dynamic shared memory).
        screened_us: of a refined one, what its screening said, where known. A screening follows a pause, and finals are
            a load, so that the GPU's clock may be 15% lower there: what was only screened compares with this, not with
            `time_us`.
    """

    status: Status
    time_us: float | None = None
    spread: float | None = None
    samples: int = 0
    refined: bool = False
    noisy: bool = False
    predicted: bool = False
    detail: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None
    screened_us: float | None = None

    @property
    def never_ran(self) -> bool:
        """It was left out before any launch."""
        return self.status in NEVER_RAN

    @property
    def failed(self) -> bool:
        """It ran on the GPU, or was to, and was wrong or did not end well."""
        return self.status != "ok" and not self.never_ran


@dataclass(frozen=True)
class CacheKey:
    """All that could change which configuration wins.

    Attributes:
        problem: what is computed (alpha and beta count by use: zero, one, other).
        device: the one device identity.
        toolchain: compiler and its options, e.g. "nvrtc 13.0 -std=c++17 …".
        method: how it is verified and timed (see `kt.tuner.method`); "model/1" for predictions.
    """

    problem: Problem
    device: DeviceIdentity
    toolchain: str
    method: str


@dataclass(frozen=True)
class BestConfig:
    """The winner of one key.

    Attributes:
        key: what it is the winner of.
        config: the winning configuration.
        measurement: its measurement.
        sources: digest by family of template, headers and space of every family that competed.
        launches, workspace_bytes: launch geometry of the winner on this problem.
        ties: configurations that could not be told apart from the winner, fastest first.
        default_us: time of the winning family's default configuration in the same rounds; None if unknown.
        baseline: peers measured in the same run: name to microseconds.
        floor_us: roofline floor of the problem on the device, microseconds.
        tried, total: configurations tried, and valid configurations of the spaces.
        complete: the search ended by itself (not by a budget, an interrupt or a kill).
        edge: parameters whose winning value is the last offered, where one further would be valid as well.
        provenance: fields that are recorded and never compared: kt version, driver, seed, date.
    """

    key: CacheKey
    config: Config
    measurement: Measurement
    sources: dict[str, str]
    launches: tuple[Launch, ...] = ()
    workspace_bytes: int = 0
    ties: tuple[Config, ...] = ()
    default_us: float | None = None
    baseline: dict[str, float] = field(default_factory=dict)
    floor_us: float | None = None
    tried: int = 0
    total: int = 0
    complete: bool = False
    edge: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Something ended its search, or its ranking by the model, before its time; a brief one is as long as meant."""
        return not (self.complete or self.unseen)

    @property
    def unseen(self) -> bool:
        """Nobody has listed the shape: it was searched briefly, to stand for others."""
        return UNSEEN in self.provenance
