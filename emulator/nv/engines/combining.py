"""NVIDIA's part of the write-combining check: the memory that a channel's ring entries refer to.

An entry refers to its push buffer. The push buffer's SEND_PCAS_A methods refer to launch descriptors, and
these to their arguments in constant bank 0. Source of the order of fences: open-gpu-kernel-modules,
uvm_channel.c and uvm_volta_host.c.

Not here: the check itself (`emulator.shared.combining`). Next: `emulator.shared.combining`.
"""

from __future__ import annotations

import functools
import struct
import zlib
from ctypes import string_at
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.gpfifo import GpfifoEntry
from emulator.nv.engines.banks import first_bank
from emulator.nv.engines.descriptor import descriptor_bytes
from emulator.nv.engines.pushbuffer import values_of
from emulator.shared.combining import EntryPart

if TYPE_CHECKING:
    from emulator.nv.engines.engine import EngineChannel

_LENGTH = GpfifoEntry.FIELDS["LENGTH"]
_ADDRESS = GpfifoEntry.FIELDS["ADDRESS"]


@dataclass(frozen=True, slots=True)
class GpfifoRing:
    """The ring of one channel; see `emulator.shared.combining.CombinedRing`."""

    run: EngineChannel
    put_name: str = "GPPut"

    @property
    def slots(self) -> int:
        """The number of entries."""
        return self.run.setup.entries

    @property
    def put(self) -> int:
        """GPPut in the user area."""
        return self.run.host_put

    @property
    def put_combined(self) -> bool:
        """Whether stores to the user area are write-combined."""
        return self.run.setup.userd[0].backing.combined

    @property
    def combined(self) -> bool:
        """Whether stores to the ring are write-combined."""
        ring = self.run.space.map.find(self.run.setup.ring_va)
        return ring is not None and self.run.space.combined(ring)

    def slot(self, number: int) -> int:
        """Return the raw value of an entry. Raises `ChannelError` if the ring is not mapped."""
        return self.run.slot(number)

    def stale(self, number: int) -> int:
        """Return the value of an entry when a doorbell last covered it; 0 if none did."""
        return self.run.stale(number)

    def parts(self, number: int, raw: int) -> tuple[EntryPart, ...]:
        """Return checksums of the push buffer, and of all launch descriptors and arguments that it refers to.

        A checksum is None if its memory is not write-combined or not mapped.
        """
        length, va = _LENGTH.extract(raw) * 4, _ADDRESS.extract(raw)
        space = self.run.space
        mapping = space.map.find(va, max(length, 1))
        segment = launch = None
        if length and mapping is not None:
            data = string_at(mapping.host + va - mapping.va, length)
            segment = zlib.crc32(data) if space.combined(mapping) else None
            for va in _descriptors(data):
                launch = self._add(va, launch)
        return (
            EntryPart(f"the push buffer of ring entry {number}", segment),
            EntryPart(f"a launch descriptor or arguments that ring entry {number} launches", launch),
        )

    def _add(self, va: int, before: int | None) -> int | None:
        """Return a checksum extended by the launch descriptor at `va` and its constant bank 0.

        None is the checksum of nothing. Memory that is not write-combined, or not mapped, is left out.
        """
        run = self.run
        size = descriptor_bytes(run.gpu.profile)
        mapping = run.space.map.find(va, size)
        if mapping is None:
            return before
        raw, found = string_at(mapping.host + va - mapping.va, size), before
        if run.space.combined(mapping):
            found = zlib.crc32(raw, found or 0)
        bank = first_bank(run.gpu.profile.generation.qmd, raw)
        mapping = None if bank is None else run.space.map.find(bank.va, bank.size)
        if bank is not None and mapping is not None and run.space.combined(mapping):
            content = string_at(mapping.host + bank.va - mapping.va, bank.size)
            found = zlib.crc32(content, found or 0)
        return found


@functools.lru_cache(maxsize=64)
def _descriptors(segment: bytes) -> tuple[int, ...]:
    """Return the addresses of the descriptors that a push buffer launches.

    Cached, because a fence and a doorbell decode the same push buffer.
    """
    words = struct.unpack(f"<{len(segment) // 4}I", segment)
    return tuple(value << 8 for value in values_of(words, ComputeMethod.SEND_PCAS_A))
