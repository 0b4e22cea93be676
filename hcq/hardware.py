"""Descriptions of devices, memory and queues as plain values; the lowest module of the model.

Not here: what a vendor implements (`driver`), which these values pass through.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


LIMITS: Final = {
    "max_threads": "threads of a workgroup; 0: the device runs no kernels",
    "max_groups_x": "workgroups along x",
    "max_groups_y": "workgroups along y",
    "max_groups_z": "workgroups along z",
    "max_shared_bytes": "bytes of shared memory (LDS) that one workgroup may have",
}
"""The limits that a device may have in `DeviceInfo.limits`; validation refuses launches beyond them."""


class QueueKind(enum.Enum):
    """Kinds of queues by the commands that they run."""

    COMPUTE = "compute"
    COPY = "copy"


class Place(enum.Enum):
    """Places of memory."""

    VRAM = enum.auto()
    HOST = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSpec:
    """The kind of memory of an allocation."""

    place: Place = Place.VRAM
    host_visible: bool = False
    """The CPU can map it."""
    coherent: bool = False
    """CPU and device see each other's writes without a flush."""
    executable: bool = False
    align: int = 256
    """Bytes, a power of two up to 2 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """Properties of a device that are known before it is opened."""

    driver: str
    """The name it is opened by: "cpu", "amd", "nv", "amd-emu", "nv-emu"."""
    index: int
    name: str
    arch: str
    """The architecture, which `KernelImage.arch` must equal."""
    vram_bytes: int
    compute_queues: int
    copy_queues: int
    compute_units: int = 0
    """What workgroups run on: cores of a CPU, multiprocessors or compute units of a GPU. 0: not known."""
    word_bits: int = 32
    """Bits of a queue word: 64 on `cpu`."""
    host_addressable: bool = False
    """Device memory is host memory: every buffer can be viewed by the CPU."""
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Limits of a launch, by the names in `LIMITS`; one that is absent is not checked.

    What an architecture fixes, as its wave size, is in the compiler's row of that architecture instead.
    """

    def __post_init__(self) -> None:
        unknown = sorted(self.limits.keys() - LIMITS.keys())
        if unknown:
            raise UsageError(
                f"{self.driver}:{self.index} has limits that nothing reads: {', '.join(unknown)}\n"
                f"hint: the limits of a device are {', '.join(LIMITS)}"
            )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Whole pages of device-visible memory, as the driver allocated them."""

    va: int
    size: int
    host: memoryview | None
    """Bytes as the CPU sees them, or None where the CPU cannot."""
    handle: object = None
