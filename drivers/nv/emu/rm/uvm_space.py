"""The state of one open of /dev/nvidia-uvm: ranges, mappings, channels, and the use of addresses.

Not here: the commands (`uvm`, `uvm_ranges`), what the GPU finds at an address (`vaspace`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.emu.backing import PAGE
from drivers.nv.emu.machine.reports import Refused
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmInitFlags

if TYPE_CHECKING:
    from drivers.emu.backing import Backing
    from drivers.nv.emu.machine.machine import Machine
    from drivers.nv.emu.rm.files import OpenFile
    from drivers.nv.emu.rm.objects import Channel, VaSpaceObject
    from drivers.nv.layouts.uvm import NvProcessorUuid

Ranges = dict[int, int]
"""Base -> length."""


@dataclass(slots=True)
class Uvm:
    """The VA manager of one open file."""

    flags: int | None = None
    """The flags of UVM_INITIALIZE; None before that call."""
    mm_of: OpenFile | None = None
    """The first descriptor, if this is the second one."""
    has_mm: bool = False
    gpu: bool = False
    vaspace: VaSpaceObject | None = None
    ranges: Ranges = field(default_factory=dict)
    """External ranges and semaphore pools."""
    pools: dict[int, Backing] = field(default_factory=dict)
    """Base of a semaphore pool -> its pages."""
    mapped: Ranges = field(default_factory=dict)
    """Mappings in the address space."""
    owned: Ranges = field(default_factory=dict)
    """Mappings of the descriptor itself in this process: addresses that UVM owns."""
    channels: dict[Channel, tuple[int, int] | None] = field(default_factory=dict)
    """Registered channel -> the window (base, length) of its context buffers, if it has one."""

    @property
    def shared(self) -> bool:
        """Whether it was initialized in multi-process sharing mode."""
        return bool((self.flags or 0) & UvmInitFlags.MULTI_PROCESS_SHARING_MODE)

    @property
    def windows(self) -> Ranges:
        """The windows of context buffers."""
        return {window[0]: window[1] for window in self.channels.values() if window is not None}

    def claim(self, base: int, length: int, *tables: Ranges) -> None:
        """Refuse [base, base + length) if it overlaps an entry of a table."""
        for other, size in (entry for table in tables for entry in table.items()):
            if base < other + size and other < base + length:
                raise Refused(
                    NvStatus.UVM_ADDRESS_IN_USE,
                    f"[{base:#x}, +{length:#x}) overlaps [{other:#x}, +{size:#x})",
                )

    def range_of(self, base: int, length: int) -> int:
        """Return the base of the range that holds all of [base, base + length), or refuse."""
        for start, size in self.ranges.items():
            if start <= base and base + length <= start + size:
                return start
        raise Refused(NvStatus.INVALID_ADDRESS, f"[{base:#x}, +{length:#x}) lies in no range")

    def unmap(self, base: int, length: int, why: str) -> None:
        """Remove the mappings inside a range."""
        for va in [va for va in self.mapped if base <= va < base + length]:
            del self.mapped[va]
            if self.vaspace is not None and va in self.vaspace.space.backings:  # else it went with its space
                self.vaspace.space.remove(va, why)

    def disown(self, va: int, size: int) -> None:
        """Drop the mapping [va, va + size) of the descriptor."""
        for base, length in tuple(self.owned.items()):
            if base < va + size and va < base + length:
                del self.owned[base]
                if base < va:
                    self.owned[base] = va - base
                if va + size < base + length:
                    self.owned[va + size] = base + length - va - size

    def drop_channel(self, channel: Channel) -> None:
        """Unregister a channel; without its context buffers it cannot run."""
        del self.channels[channel]
        channel.registered = channel.scheduled = False

    def end(self) -> None:
        """Free everything, because the descriptor is closed."""
        self.close()
        while self.pools:
            self.pools.popitem()[1].drop()

    def close(self) -> None:
        """Release the address space, with its channels and mappings."""
        for channel in tuple(self.channels):
            self.drop_channel(channel)
        if self.vaspace is not None:
            self.unmap(0, 1 << 64, "with UVM")
            self.vaspace.registered = False
            self.vaspace = None


def check_gpu(machine: Machine, uuid: NvProcessorUuid) -> None:
    """Refuse the uuid of another GPU."""
    if uuid.uuid != machine.uuid:
        raise Refused(NvStatus.OBJECT_NOT_FOUND, f"no GPU has the uuid {uuid.uuid.hex()}")


def check_pages(machine: Machine, base: int, length: int) -> None:
    """Refuse a range that is not whole pages, or lies beyond the GPU's addresses."""
    if base == 0 or length == 0 or base % PAGE or length % PAGE:
        raise Refused(
            NvStatus.INVALID_ADDRESS, f"[{base:#x}, +{length:#x}) is empty, at 0 or not made of 4 KiB pages"
        )
    bits = machine.profile.va_bits
    if base + length > 1 << bits:
        raise Refused(NvStatus.INVALID_ADDRESS, f"[{base:#x}, +{length:#x}) ends above {bits} bits")
