"""The data file of GPUs: every GPU that kt can model, and the rates of an architecture for any other."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kt.devices.device import Device
from kt.errors import OptionError

__all__ = ["DeviceRates", "Rates", "architecture_rates", "catalog", "compute_capabilities", "find", "modelled"]

Rates = dict[str, float]


class DeviceRates(NamedTuple):
    """The rates of a `Device`."""

    flops: Rates
    simt_flops: Rates
    mma_flops: Rates


SHORT_NAME = 5  # letters: a GPU whose name is no longer and differs in a letter is another one
_TERA, _GIGA, _MEGA = 1e12, 1e9, 1e6
# Formats that share a unit: kt's name for a dtype -> the data file's name of the rate. fp8 has one rate for both forms;
# consumer GPUs have one of their own for fp16 that is summed in fp16.
_TENSOR_UNIT = {
    "fp16": "fp16", "bf16": "bf16", "tf32": "tf32", "fp64": "fp64", "int8": "int8",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp32": "fp32", "fp16/fp16": "fp16_in_fp16",
}  # fmt: skip
# Without tensor cores, the 16-bit formats are widened and multiplied in fp32, and int8 in int32.
_SIMT_UNIT = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp32", "bf16": "fp32", "fp64": "fp64", "int8": "int32",
              "fp8_e4m3": "fp32", "fp8_e5m2": "fp32"}  # fmt: skip


@cache
def catalog() -> dict[str, Device]:
    """Every GPU of the data file by its key, as it would be if it were here."""
    data = _data()
    return {key: _device(key, row, data) for key, row in data["gpus"].items()}


def modelled(key: str) -> Device:
    """The GPU `key` (or an alias) as a stand-in that is compiled for and ranked by the model, never measured on.

    Raises:
        OptionError: the data file has no such GPU; the message lists those it has.
    """
    wanted = _plain(key)
    names = _keys_by_plain_name()
    if wanted not in names:
        close = _slip(wanted, names)
        hint = f"did you mean model:{names[close]}?" if close else None
        have = f"no such GPU is in kt's data file, which has {', '.join(catalog())}"
        raise OptionError("device", f"model:{key}: {have}", hint=hint)
    return replace(catalog()[names[wanted]], modelled=True)


def _slip(wanted: str, names: Iterable[str]) -> str | None:
    """The name that `wanted` is a slip of, if it is no GPU of its own, as H20, L40 and A10G are."""
    from kt.problems.yaml_values import closest

    close = closest(wanted, names)
    return close if close and (len(wanted) > SHORT_NAME or sorted(close) == sorted(wanted)) else None


def find(name: str, compute_capability: tuple[int, int], sm_count: int) -> Device | None:
    """The GPU of the data file with this identity, or None. The whole identity must agree: a slice is another GPU."""
    for device in catalog().values():
        if (device.name, device.compute_capability, device.sm_count) == (name, compute_capability, sm_count):
            return device
    return None


def architecture_rates(compute_capability: tuple[int, int], sm_count: int, clock_hz: float) -> DeviceRates:
    """Estimated rates of a GPU from its multiprocessors and clock."""
    data = _data()
    figures = data["compute_capabilities"][_nearest(compute_capability, data["compute_capabilities"])]
    per_clock = 2 * sm_count * clock_hz
    achievable = data["achievable"]
    units = {unit: count * per_clock * achievable["simt"] for unit, count in figures["fma_per_clock"].items()}
    peak = {unit: count * per_clock for unit, count in figures["tensor_per_clock"].items()}
    tensor = {unit: rate * achievable["tensor"] for unit, rate in peak.items()}
    return _by_dtype(units, tensor, _through_mma(peak, figures, achievable))


@cache
def compute_capabilities() -> tuple[tuple[int, int], ...]:
    """Those that the data file has figures of, ascending."""
    found = (text.split(".") for text in _data()["compute_capabilities"])
    return tuple(sorted((int(major), int(minor)) for major, minor in found))


@cache
def _data() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (Path(__file__).parent / "gpus.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=loader)
    return loaded


def _device(key: str, row: Mapping[str, Any], data: Mapping[str, Any]) -> Device:
    limits = data["compute_capabilities"][row["compute_capability"]]
    major, minor = row["compute_capability"].split(".")
    bandwidth = row.get("measured_bandwidth_gbs", row["peak_bandwidth_gbs"] * data["achievable"]["bandwidth"])
    rates = _rates(row, limits, data["achievable"])
    return Device(
        name=row["name"],
        compute_capability=(int(major), int(minor)),
        sm_count=row["sm_count"],
        memory_bytes=int(row["memory_gib"] * 2**30),
        key=key,
        l2_bytes=row["l2_mib"] * 2**20,
        smem_per_block_optin=limits["smem_per_block_kib"] * 1024,
        smem_per_sm=limits["smem_per_sm_kib"] * 1024,
        threads_per_sm=limits["threads_per_sm"],
        blocks_per_sm=limits["blocks_per_sm"],
        clock_hz=row["clock_mhz"] * _MEGA,
        bandwidth=bandwidth * _GIGA,
        flops=rates.flops,
        simt_flops=rates.simt_flops,
        mma_flops=rates.mma_flops,
    )


def _rates(row: Mapping[str, Any], limits: Mapping[str, Any], achievable: Mapping[str, float]) -> DeviceRates:
    per_clock = 2 * row["sm_count"] * row["clock_mhz"] * _MEGA
    units = {unit: count * per_clock * achievable["simt"] for unit, count in limits["fma_per_clock"].items()}
    units |= {unit: rate * _TERA for unit, rate in row.get("measured_simt_tflops", {}).items()}
    peak = {unit: rate * _TERA for unit, rate in row["peak_tflops"].items()}
    tensor = {unit: rate * achievable["tensor"] for unit, rate in peak.items()}
    tensor |= {unit: rate * _TERA for unit, rate in row.get("measured_tflops", {}).items()}
    mma = _through_mma(peak, limits, achievable)
    mma |= {unit: rate * _TERA for unit, rate in row.get("measured_mma_tflops", {}).items()}
    return _by_dtype(units, tensor, mma)


def _through_mma(peak: Rates, figures: Mapping[str, Any], achievable: Mapping[str, float]) -> Rates:
    """Rates through mma.sync: where newer instructions exist, it reaches a smaller part of the peak."""
    parts = figures.get("mma_of_peak", {})
    return {unit: rate * parts.get(unit, achievable["tensor"]) for unit, rate in peak.items()}


def _by_dtype(units: Rates, tensor: Rates, mma: Rates) -> DeviceRates:
    """The best for each dtype of any unit, the plain units alone, and tensor cores through mma.sync."""
    simt = {dtype: units[unit] for dtype, unit in _SIMT_UNIT.items() if unit in units}
    best = {
        dtype: max(tensor.get(unit, 0.0), mma.get(unit, 0.0), simt.get(dtype, 0.0))
        for dtype, unit in _TENSOR_UNIT.items()
        if unit in tensor or dtype in simt
    }
    through_mma = {dtype: mma[unit] for dtype, unit in _TENSOR_UNIT.items() if unit in mma}
    return DeviceRates(best, simt, through_mma)


def _nearest(compute_capability: tuple[int, int], known: Mapping[str, Any]) -> str:
    """The newest known architecture that is not newer than the GPU's, else the oldest known."""
    versions = sorted(tuple(int(part) for part in text.split(".")) for text in known)
    older = [version for version in versions if version <= compute_capability]
    major, minor = older[-1] if older else versions[0]
    return f"{major}.{minor}"


@cache
def _keys_by_plain_name() -> dict[str, str]:
    names = {_plain(key): key for key in _data()["gpus"]}
    for key, row in _data()["gpus"].items():
        names |= {_plain(alias): key for alias in row.get("aliases", ())}
    return names


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
