"""What is known to fail or to be slow before it has run: the verdict on a compiled configuration."""

from collections.abc import Sequence

from kt.cache.records import Measurement
from kt.devices.device import Device
from kt.search_spaces.space import Launch
from kt.tuner.messages import Binary
from kt.tuner.occupancy import limiter, occupancy
from kt.tuner.ptxas_log import first_error
from kt.wording import plural

__all__ = ["lacking", "main_launch", "prune", "resources"]


def lacking(binary: Binary, launches: Sequence[Launch]) -> str:
    """Which kernel of `launches` the binary does not have, and which it has; "" if it has all."""
    missing = next((launch.kernel for launch in launches if launch.kernel not in binary.registers), "")
    if binary.error or not missing:
        return ""
    mangled = any(f"{len(missing)}{missing}" in name for name in binary.registers)
    there = ", ".join(sorted(binary.registers)) or "none"
    advice = '; declare it extern "C"' if mangled else ""
    return f"the template has no kernel {missing}, which `launches` names; its kernels are: {there}{advice}"


def main_launch(binary: Binary, launches: Sequence[Launch]) -> Launch:
    """The launch that does the work: its threads hold the accumulators, so they take the most registers."""
    return max(launches, key=lambda launch: binary.registers.get(launch.kernel, 0))


def resources(binary: Binary, launches: Sequence[Launch]) -> tuple[int, int, int]:
    """Registers of a thread, spilled bytes, and shared memory of a block (static and dynamic) of the main kernel."""
    main = main_launch(binary, launches)
    return (
        binary.registers.get(main.kernel, 0),
        binary.spill_bytes.get(main.kernel, 0),
        binary.static_smem_bytes.get(main.kernel, 0) + main.smem_bytes,
    )


def prune(binary: Binary, launches: Sequence[Launch], device: Device, *, keep_spills: bool) -> Measurement | None:
    """Why a configuration is not to be run, None if it is.

    Args:
        keep_spills: run it although registers spill: the family's default configuration is measured as it is.
    """
    fault = first_error(binary.error) or lacking(binary, launches)
    if fault:
        return Measurement("compile_error", detail=fault)
    registers, spills, smem = resources(binary, launches)
    detail = _cause(launches, device, binary)
    if spills and not keep_spills:
        detail = detail or f"registers spill: {plural(spills, 'byte')} of each thread"
    if not detail:
        return None
    return Measurement("pruned", detail=detail, registers=registers, spill_bytes=spills, smem_bytes=smem)


def _cause(launches: Sequence[Launch], device: Device, binary: Binary) -> str:
    """What the device cannot launch, with need and limit."""
    for launch in launches:
        registers = binary.registers.get(launch.kernel, 0)
        smem = binary.static_smem_bytes.get(launch.kernel, 0) + launch.smem_bytes
        if occupancy(device, launch.block, registers, smem) < 1:
            return _need(launch, device, registers, smem)
    return ""


def _need(launch: Launch, device: Device, registers: int, smem: int) -> str:
    limit = limiter(device, launch.block, registers, smem)
    if limit == "registers":
        return (
            f"{launch.kernel} needs {plural(registers, 'register')} in each of {plural(launch.block, 'thread')}; "
            f"a multiprocessor has {device.registers_per_sm}"
        )
    if limit == "shared memory":
        most = device.smem_per_block_optin
        return f"{launch.kernel} needs {plural(smem, 'byte')} of shared memory; a block has at most {most}"
    return f"{launch.kernel} has {launch.block} threads; a block has at most 1024"
