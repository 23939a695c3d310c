"""`Device`: the figures of one GPU that constraints, the model and the roofline use, and its `DeviceIdentity`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Device", "DeviceIdentity", "rate_of", "told_apart"]


@dataclass(frozen=True)
class DeviceIdentity:
    """What makes two GPUs the same for a tuned result. Every reader and writer gets it from `Device.identity`.

    Attributes:
        name: as the driver reports it, e.g. "NVIDIA H200".
        compute_capability: (major, minor).
        sm_count: multiprocessors visible to the process (a MIG slice has fewer).
        memory_gib: device memory, rounded to whole GiB.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_gib: int

    @property
    def label(self) -> str:
        """The whole identity on one line, e.g. `NVIDIA H200 (sm_90, 132 SMs, 140 GiB)`; no two have the same."""
        major, minor = self.compute_capability
        return f"{self.name} (sm_{major}{minor}, {self.sm_count} SMs, {self.memory_gib} GiB)"

    def matches(self, text: str) -> bool:
        """Whether a person may mean this device by `text`: a part of its label, in any case of letters."""
        return text.casefold() in self.label.casefold()


def told_apart(devices: Iterable[DeviceIdentity]) -> dict[DeviceIdentity, str]:
    """Each device by its name, or by its label where several have that name."""
    distinct = set(devices)
    names = Counter(device.name for device in distinct)
    return {device: device.name if names[device.name] == 1 else device.label for device in distinct}


def rate_of(rates: Mapping[str, float], dtype: str, accumulator: str) -> float:
    """The rate of products of `dtype` that are summed in `accumulator`, 0 if it is not known.

    `rates` is by dtype name. Where the accumulator makes a difference, there is one more for `dtype/accumulator`.
    """
    return rates.get(f"{dtype}/{accumulator}") or rates.get(dtype, 0.0)


@dataclass(frozen=True)
class Device:
    """One GPU.

    Attributes:
        name, compute_capability, sm_count, memory_bytes: as in `DeviceIdentity`.
        key: short name in the data file, e.g. "h200"; "" for a GPU that is not in it.
        l2_bytes: level-two cache, bytes.
        smem_per_block_optin: most shared memory of one block after opting in, bytes.
        smem_per_sm: shared memory of one multiprocessor, bytes.
        registers_per_sm, threads_per_sm, blocks_per_sm: limits of one multiprocessor.
        clock_hz: boost clock.
        bandwidth: achievable device-memory bandwidth, bytes/s (measured copy where known).
        flops: best achievable rate by dtype name on any unit of the GPU, operations/s: the roofline.
        simt_flops: achievable rate by dtype name on the plain multiply-add units, operations/s: what a kernel without
            tensor cores can reach.
        mma_flops: achievable rate by dtype name of tensor cores through mma.sync, operations/s. Newer GPUs have faster
            ways to use them.
        modelled: True if it stands in for a GPU that is not here (`--device model:NAME`).
        driver: driver's CUDA version (major * 1000 + minor * 10), 0 where modelled.
        ordinal: number of the GPU among those that the process sees; no part of the identity.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    key: str = ""
    l2_bytes: int = 0
    smem_per_block_optin: int = 49152
    smem_per_sm: int = 65536
    registers_per_sm: int = 65536
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    clock_hz: float = 0.0
    bandwidth: float = 0.0
    flops: Mapping[str, float] = field(default_factory=dict)
    modelled: bool = False
    driver: int = 0
    simt_flops: Mapping[str, float] = field(default_factory=dict)
    ordinal: int = 0
    mma_flops: Mapping[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> DeviceIdentity:
        return DeviceIdentity(self.name, self.compute_capability, self.sm_count, round(self.memory_bytes / 2**30))

    @property
    def arch(self) -> str:
        """NVRTC's name of the target, e.g. `sm_90a`: the architecture-specific one where there is one."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def names(self) -> dict[str, int]:
        """The `device.*` names that search-space expressions may use."""
        return {
            "device.sm_count": self.sm_count,
            "device.smem_per_block_optin": self.smem_per_block_optin,
            "device.smem_per_sm": self.smem_per_sm,
            "device.registers_per_sm": self.registers_per_sm,
            "device.threads_per_sm": self.threads_per_sm,
            "device.l2_bytes": self.l2_bytes,
            "device.compute_capability": self.compute_capability[0] * 10 + self.compute_capability[1],
        }
