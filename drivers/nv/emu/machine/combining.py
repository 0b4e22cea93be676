"""Host stores to write-combined memory: what a channel's engines may be told of, and was not fenced.

The CPU keeps such stores back and hands them on in any order, until a fence. Nothing is kept back here: at
each fence of the host the channel notes what its ring, its push buffers, descriptors and arguments hold, and
the doorbell compares. So a missing fence is found at its place, whatever a real CPU would have happened to
do: entries, push buffers and arguments come before a fence, then GPPut, then a fence, then the doorbell
(open-gpu-kernel-modules, uvm_channel.c and uvm_volta_host.c). Memory that is not write-combined needs none on
x86. The doorbell page is uncached: nothing is needed behind it.
"""

from __future__ import annotations

import struct
import threading
import zlib
from ctypes import string_at
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.nv.emu.engines.descriptor import banks_of, descriptor_bytes
from drivers.nv.emu.engines.pushbuffer import values_of
from drivers.nv.emu.machine.reports import ChannelError, Kind
from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.emu.engines.channel import ChannelRun

_LENGTH = GpfifoEntry.FIELDS["LENGTH"]
_ADDRESS = GpfifoEntry.FIELDS["ADDRESS"]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a fence found of a ring entry that GPPut did not tell of yet."""

    raw: int
    segment: int | None
    """Checksum of its push buffer; None where that needs no fence."""
    launch: int | None
    """Checksum of descriptors and arguments that it refers to; None where they need no fence."""


class Combining:
    """One channel's write-combined stores. Fences come from any thread, bells too."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._put = 0
        """GPPut at the last fence."""
        self._seen: dict[int, _Seen] = {}
        """Slot -> what the last fence before GPPut told of it found."""
        self._late: str = ""
        self._open = True

    def close(self) -> None:
        """The channel is gone, and its memory may be."""
        with self._lock:
            self._open = False

    def fence(self) -> None:
        """Take note of what memory holds now: a fence of the host has handed it on."""
        with self._lock:
            if self._open:
                try:
                    self._note()
                except ChannelError:
                    return  # the ring is not mapped any more, which its next doorbell tells

    def _note(self) -> None:
        run, put = self._run, self._run.told_put
        if put >= run.setup.entries:
            return  # which the doorbell refuses
        if put != self._put:
            self._publish(put)
        slot, raw = put, run.slot(put)
        while raw != run.stale(slot):
            self._seen[slot] = self._look(raw)
            slot = (slot + 1) % run.setup.entries
            if slot == put:
                break
            raw = run.slot(slot)

    def ring(self, first: int, put: int) -> ChannelError | None:
        """Judge the entries from `first` to `put` as the doorbell rings; return the error that it finds."""
        with self._lock:
            seen_put, late = self._put, self._late
            if put != self._put and not self._run.userd_combined:
                self._publish(put)
                late = self._late
            self._late = ""
            self._put = put
            if self._run.userd_combined and put != seen_put:
                late = late or (
                    f"no fence between the store of GPPut {put}, in write-combined memory, and the doorbell: "
                    f"the host may fetch up to {seen_put} only"
                )
            late = late or self._changed(first, put)
            self._seen.clear()
        name = self._run.name
        return ChannelError(RcCode.PBDMA_ERROR, Kind.COHERENCE, f"{name}: {late}") if late else None

    def _publish(self, put: int) -> None:
        """GPPut tells of more entries: whatever they refer to must have been fenced before."""
        if self._run.ring_combined:
            for slot in self._slots(self._put, put):
                raw, seen = self._run.slot(slot), self._seen.get(slot)
                if seen is None and raw == self._run.stale(slot):
                    break  # written anew with what it held, or not at all: what fences found ends here too
                if seen is None or raw != seen.raw:
                    self._late = self._late or (
                        f"no fence between the store of ring entry {slot}, in write-combined memory, and "
                        f"that of GPPut {put}: the host may fetch what the slot held before"
                    )
        self._put = put

    def _changed(self, first: int, put: int) -> str:
        """Return what of push buffers, descriptors and arguments was stored after the last fence."""
        for slot in self._slots(first, put):
            seen = self._seen.get(slot)
            if seen is None:
                continue
            now = self._look(self._run.slot(slot))
            where = "was stored and not fenced before GPPut told of it: it is in write-combined memory"
            if now.segment != seen.segment:
                return f"the push buffer of ring entry {slot} {where}"
            if now.launch != seen.launch:
                return f"a launch descriptor or arguments that ring entry {slot} launches {where}"
        return ""

    def _slots(self, first: int, put: int) -> Iterator[int]:
        slot = first
        while slot != put:
            yield slot
            slot = (slot + 1) % self._run.setup.entries

    def _look(self, raw: int) -> _Seen:
        """Return what an entry and all that it refers to hold now."""
        length, va = _LENGTH.extract(raw) * 4, _ADDRESS.extract(raw)
        space = self._run.space
        mapping = space.map.find(va, max(length, 1))
        if not length or mapping is None:
            return _Seen(raw, None, None)
        data = string_at(mapping.host + va - mapping.va, length)
        segment = zlib.crc32(data) if space.combined(mapping) else None
        launch = None
        for value in values_of(struct.unpack(f"<{length // 4}I", data), ComputeMethod.SEND_PCAS_A):
            launch = self._add(value << 8, launch)
        return _Seen(raw, segment, launch)

    def _add(self, va: int, before: int | None) -> int | None:
        """Add a launch descriptor and its first constant bank to a checksum."""
        run = self._run
        size = descriptor_bytes(run.machine.profile)
        mapping = run.space.map.find(va, size)
        if mapping is None:
            return before
        raw, found = string_at(mapping.host + va - mapping.va, size), before
        if run.space.combined(mapping):
            found = zlib.crc32(raw, found or 0)
        bank = banks_of(run.machine.profile, raw).get(0)
        mapping = None if bank is None else run.space.map.find(bank.va, bank.size)
        if bank is not None and mapping is not None and run.space.combined(mapping):
            content = string_at(mapping.host + bank.va - mapping.va, bank.size)
            found = zlib.crc32(content, found or 0)
        return found
