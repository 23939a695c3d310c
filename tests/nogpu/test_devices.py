"""Devices: the data file, the driver library read without a context, and what `--device` means."""

import ctypes
from typing import Any

import pytest

from kt.devices import local as selection
from kt.devices.catalog import architecture_rates, catalog, find, modelled
from kt.devices.device import Device
from kt.devices.local import local_device, select_device
from kt.errors import InputError, NoUsableGpu

H200_ATTRIBUTES = {
    13: 1980000, 16: 132, 20: 0, 36: 3201000, 37: 6144, 38: 62914560, 39: 2048, 75: 9, 76: 0, 81: 233472, 82: 65536,
    97: 232448, 106: 32,
}  # fmt: skip


class FakeDriver:
    """The calls of libcuda.so.1 that kt makes, answered from values; `fail` maps a function to its error code."""

    def __init__(
        self,
        *,
        version: int = 13000,
        devices: int = 1,
        name: bytes = b"NVIDIA H200",
        attributes: dict[int, int] | None = None,
        fail: dict[str, int] | None = None,
    ) -> None:
        self.version, self.devices, self.name, self.fail = version, devices, name, fail or {}
        self.attributes = H200_ATTRIBUTES | (attributes or {})

    def __getattr__(self, function: str) -> Any:
        def call(*arguments: Any) -> int:
            return self.fail.get(function) or self._answer(function, arguments)

        return call

    def _answer(self, function: str, arguments: tuple[Any, ...]) -> int:
        if function == "cuDeviceGetName":
            arguments[0].value = self.name
        elif function == "cuGetErrorName":
            arguments[1]._obj.value = b"CUDA_ERROR_TESTED"
        elif function == "cuDeviceGetAttribute":
            arguments[0]._obj.value = self.attributes[arguments[1]]
        elif function != "cuInit":
            values = {
                "cuDriverGetVersion": self.version,
                "cuDeviceGetCount": self.devices,
                "cuDeviceGet": 0,
                "cuDeviceTotalMem_v2": int(139.81 * 2**30),
            }
            arguments[0]._obj.value = values[function]
        return 0


def read(driver: FakeDriver, index: int = 0) -> Device:
    return local_device(index, load=lambda name: driver)


def test_catalog_has_the_promised_gpus_with_every_figure() -> None:
    assert {"t4", "a10", "a100", "l40s", "rtx3090", "rtx4090", "h100", "h200", "b200"} <= set(catalog())
    for key, device in catalog().items():
        assert device.key == key
        assert device.bandwidth > 2e11
        assert device.smem_per_block_optin <= device.smem_per_sm
        assert device.simt_flops["fp32"] <= device.flops["fp32"]
        assert {"fp32", "fp64", "fp16", "bf16", "int8"} <= set(device.simt_flops)


def test_h200_figures_are_the_measured_ones() -> None:
    device = catalog()["h200"]
    assert (device.sm_count, device.smem_per_block_optin, device.smem_per_sm) == (132, 227 * 1024, 228 * 1024)
    assert device.bandwidth == pytest.approx(4.45e12)
    assert device.simt_flops["fp32"] == pytest.approx(63.5e12)
    assert device.simt_flops["fp64"] == pytest.approx(30.7e12)
    assert device.arch == "sm_90a"


def test_no_rate_exceeds_the_boost_clock_times_the_plain_units() -> None:
    for device in catalog().values():
        lanes = 64 if device.compute_capability in {(7, 5), (8, 0)} else 128
        assert device.simt_flops["fp32"] < 2 * lanes * device.sm_count * device.clock_hz


def test_modelled_device_says_so_and_takes_aliases() -> None:
    assert modelled("h200").modelled
    assert not catalog()["h200"].modelled
    assert modelled("RTX-4090").key == modelled("4090").key == "rtx4090"
    assert modelled("a100-80GB").key == "a100"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rxt4090", "rtx4090"), ("h100_sxn", "h100"), ("2h00", "h200"), ("h20", None), ("a10g", None),
        ("gh200", None), ("l40", None), ("rtx4080", None),
    ],
)  # fmt: skip
def test_unknown_model_lists_the_file_and_suggests_no_other_gpu(name: str, meant: str | None) -> None:
    """H20, A10G, GH200, L40 and RTX 4080 are GPUs of their own, and no slips."""
    with pytest.raises(InputError, match="h200") as caught:
        modelled(name)
    assert caught.value.hint == (f"did you mean model:{meant}?" if meant else None)


def test_local_device_reads_limits_from_the_driver_and_rates_from_the_file() -> None:
    device = read(FakeDriver())
    assert (device.key, device.driver, device.ordinal, device.modelled) == ("h200", 13000, 0, False)
    assert device.flops == catalog()["h200"].flops
    assert (device.l2_bytes, device.smem_per_block_optin) == (62914560, 232448)


def test_local_and_modelled_identity_are_equal() -> None:
    assert read(FakeDriver()).identity == modelled("h200").identity


def test_a_slice_is_another_gpu_with_rates_of_its_own() -> None:
    device = read(FakeDriver(name=b"NVIDIA H200 MIG 1g.18gb", attributes={16: 16}))
    assert device.key == ""
    assert device.simt_flops["fp32"] == pytest.approx(2 * 128 * 16 * 1.98e9 * 0.94)
    assert device.bandwidth == pytest.approx(0.9 * 3201e6 * 6144 / 8 * 2)


def test_unknown_gpu_without_clocks_still_has_every_rate() -> None:
    device = read(FakeDriver(name=b"NVIDIA X1", attributes={13: 0, 36: 0, 75: 13, 76: 1}))
    assert device.bandwidth > 0
    assert device.clock_hz > 0
    assert device.flops["bf16"] > device.simt_flops["fp32"] > 0


def test_rates_of_an_architecture_newer_than_the_file_are_those_of_the_newest_before_it() -> None:
    assert architecture_rates((10, 3), 100, 2e9) == architecture_rates((10, 0), 100, 2e9)
    assert architecture_rates((5, 0), 100, 2e9) == architecture_rates((7, 5), 100, 2e9)


def test_find_wants_the_whole_identity() -> None:
    assert find("NVIDIA H200", (9, 0), 132) is catalog()["h200"]
    assert find("NVIDIA H200", (9, 0), 114) is None


@pytest.mark.parametrize(
    ("driver", "cause"),
    [
        (FakeDriver(version=11080), "CUDA 11.8"),
        (FakeDriver(fail={"cuInit": 100}), "sees no GPU"),
        (FakeDriver(fail={"cuInit": 802}), "fabric manager"),
        (FakeDriver(fail={"cuInit": 803}), "reboot"),
        (FakeDriver(fail={"cuInit": 205}), "cuInit failed .CUDA error 205, CUDA_ERROR_TESTED"),
        (FakeDriver(devices=0), "no GPU number 0"),
        (FakeDriver(attributes={20: 2}), "prohibited compute mode"),
    ],
)
def test_each_cause_is_named_with_the_way_on(driver: FakeDriver, cause: str) -> None:
    with pytest.raises(NoUsableGpu, match=cause) as caught:
        read(driver)
    assert caught.value.hint is not None
    assert "--device auto" in caught.value.hint


def test_hidden_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoUsableGpu, match="CUDA_VISIBLE_DEVICES is ''"):
        read(FakeDriver(fail={"cuInit": 100}))


def test_a_number_beyond_the_last_gpu_is_refused() -> None:
    with pytest.raises(NoUsableGpu, match="no GPU number 2: the driver shows 2"):
        read(FakeDriver(devices=2), 2)


def test_missing_driver_library_is_the_cause() -> None:
    def load(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(NoUsableGpu, match="no NVIDIA driver library"):
        local_device(load=load)


def test_device_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def local(index: int = 0) -> Device:
        seen.append(index)
        return read(FakeDriver(devices=4), index)

    monkeypatch.setattr(selection, "local_device", local)
    assert not select_device("local").modelled
    assert select_device("3").ordinal == 3
    assert select_device("auto").key == "h200"
    assert seen == [0, 3, 0]
    assert select_device("model:t4").modelled
    with pytest.raises(InputError, match="names no device"):
        select_device("gpu")


def test_auto_falls_back_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def local(index: int = 0) -> Device:
        raise NoUsableGpu("none")

    monkeypatch.setattr(selection, "local_device", local)
    device = select_device("auto")
    assert (device.key, device.modelled) == ("h200", True)
