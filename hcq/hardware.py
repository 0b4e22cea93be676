"""Descriptions of devices, memory and queues as plain values.

It is the lowest module of the model. Not here: the interface of drivers, which pass these values (`driver`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from hcq.errors import UsageError

LIMITS: Final = {
    "max_threads": "threads of a workgroup; 0: the device runs no kernels",
    "max_groups_x": "workgroups along x",
    "max_groups_y": "workgroups along y",
    "max_groups_z": "workgroups along z",
    "max_shared_bytes": "bytes of shared memory (LDS) that one workgroup may have",
    "max_cluster": "workgroups of a cluster; absent: the device launches no clusters",
    "signal_bits": "bits of a signal that its queues compare; absent: 64",
}
"""The names that `DeviceInfo.limits` may have; validation refuses launches beyond a limit."""


class QueueKind(enum.Enum):
    """Kinds of queues: COMPUTE runs all commands, COPY all but `Exec`."""

    COMPUTE = "compute"
    COPY = "copy"


class Place(enum.Enum):
    """Places of memory: VRAM is the device's own, HOST is memory of the host."""

    VRAM = enum.auto()
    HOST = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSpec:
    """The kind of memory of an allocation."""

    place: Place = Place.VRAM
    host_visible: bool = False
    """Whether the host can read and write it (`Buffer.host`)."""
    coherent: bool = False
    """Whether host and device see each other's writes without a cache flush."""
    upload: bool = False
    """Whether the host only writes it and the device only reads it: a driver may place it in video memory
    that the host maps, although `place` is HOST. Reading it from the host may be slow."""
    executable: bool = False
    shared: bool = False
    """Whether another process may import it (`Buffer.export`); it then has whole pages of its own."""
    align: int = 256
    """Bytes, a power of two up to 2 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """Properties of a device that are known before it is opened. Raises `UsageError` for an unknown limit."""

    driver: str
    """The name that opens it: "cpu", "amd", "nv", "amd-emu", "nv-emu"."""
    index: int
    name: str
    arch: str
    """The architecture, which `KernelImage.arch` must equal."""
    vram_bytes: int
    compute_queues: int
    copy_queues: int
    compute_units: int = 0
    """Number of cores, multiprocessors or compute units; 0: not known."""
    word_bits: int = 32
    """Bits of a queue word: 64 on `cpu`."""
    host_addressable: bool = False
    """Whether device memory is host memory, so that the host can access every buffer."""
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Limits of a launch by the names in `LIMITS`; an absent one is not checked. Another name raises
    `UsageError`. Constants of an architecture, such as its wave size, are in the compiler's target table
    instead."""

    def __post_init__(self) -> None:
        unknown = sorted(self.limits.keys() - LIMITS.keys())
        if unknown:
            raise UsageError(
                f"{self.driver}:{self.index} has limits that nothing reads: {', '.join(unknown)}\n"
                f"hint: the limits of a device are {', '.join(LIMITS)}"
            )


@runtime_checkable
class BufferTracker(Protocol):
    """A device that checks the accesses of kernels against buffers, not only against whole allocations."""

    def buffer_taken(self, va: int, size: int) -> None:
        """Allow accesses to [va, va + size), whose contents are undefined.

        Of an allocation that has or had such buffers, kernels may access only them. The start of a buffer is
        a multiple of 256 bytes.
        """

    def buffer_exposed(self, va: int, size: int) -> None:
        """Count [va, va + size) as written from now on: the host may write it unobserved."""

    def buffer_dropped(self, va: int) -> None:
        """Forbid accesses to the buffer at `va`. No work in flight uses it."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Whole pages of device-visible memory: device address and size in bytes, and the driver's handle."""

    va: int
    size: int
    host: memoryview | None
    """The bytes in the host's address space; None when the host cannot access them."""
    handle: object = None
    tracker: BufferTracker | None = None
    """The object that must be told of each buffer in these pages; None: the device checks no accesses."""
