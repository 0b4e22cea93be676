"""Process-wide pools of host memory, at one address for all opened devices: signal slots, time records.

Not here: the contents of the slots (`signal`); the mapping into a device
(`hcq.driver.DriverDevice.map_host`).
"""

from __future__ import annotations

import mmap
import threading
from typing import Protocol

CHUNK_BYTES = 1 << 16
"""Bytes by which a pool grows."""

Slot = tuple[memoryview, int, int, "list[Slot]"]
"""(u64 elements of the chunk, index of the slot's first element, address, free list).

A slot is freed by appending it to its free list. As the slot carries the list, a forked child never returns a
slot of its parent to its own pool.
"""


class HostMapping(Protocol):
    """The part of a device that pools use; `hcq.driver.DriverDevice` implements it."""

    def map_host(self, va: int, size: int) -> None:
        """Map host memory [va, va + size) into the device at the same address."""

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`."""

    def signal_written(self, va: int) -> None:
        """Wake the device's waiters for the slot at `va`, which the host wrote."""


class HostPool:
    """Slots of `slot_bytes` bytes, zeroed when taken. Freed slots are reused; memory is never unmapped.

    Thread-safe. Taking and freeing a slot hold no lock, so that a finaliser may free one at any time; growing
    and attaching do.
    """

    def __init__(self, slot_bytes: int) -> None:
        self._slot_bytes = slot_bytes
        self._lock = threading.RLock()
        self._free: list[Slot] = []
        self._chunks: list[tuple[mmap.mmap, int]] = []
        """(memory, its address) of each chunk."""
        self._attached: list[HostMapping] = []

    def take(self) -> Slot:
        """Return a zeroed slot. Raises the error of `map_host` if a device cannot map a new chunk."""
        while True:
            try:
                slot = self._free.pop()
            except IndexError:
                self._grow()
                continue
            words, index = slot[0], slot[1]
            for i in range(self._slot_bytes // 8):
                words[index + i] = 0
            return slot

    def attach(self, device: HostMapping) -> None:
        """Map the pool, now and as it grows, into a device. A failure maps nothing."""
        with self._lock:
            mapped: list[int] = []
            try:
                for _, va in self._chunks:
                    device.map_host(va, CHUNK_BYTES)
                    mapped.append(va)
            except BaseException:
                for va in mapped:
                    device.unmap_host(va, CHUNK_BYTES)
                raise
            self._attached.append(device)

    def devices(self) -> tuple[HostMapping, ...]:
        """Return the attached devices."""
        return tuple(self._attached)

    def detach(self, device: HostMapping) -> None:
        """Undo `attach`. Does nothing for a device that is not attached."""
        with self._lock:
            if device not in self._attached:
                return
            self._attached.remove(device)
            for _, va in self._chunks:
                device.unmap_host(va, CHUNK_BYTES)

    def written(self, va: int) -> None:
        """Wake all waiters for the slot at `va`, which the host wrote."""
        for device in tuple(self._attached):
            device.signal_written(va)

    def forget(self) -> None:
        """Reset the pool in a forked child: the old memory belongs to the parent."""
        self.__init__(self._slot_bytes)  # type: ignore[misc]  # reset in place: others refer to it

    def _grow(self) -> None:
        import ctypes  # noqa: PLC0415 - only here, and slow to import

        with self._lock:
            if self._free:
                return
            # Shared, as a fork must not copy pages that a device has pinned.
            chunk = mmap.mmap(-1, CHUNK_BYTES)
            va = ctypes.addressof(ctypes.c_char.from_buffer(chunk))
            mapped: list[HostMapping] = []
            try:
                for device in self._attached:
                    device.map_host(va, CHUNK_BYTES)
                    mapped.append(device)
                self._chunks.append((chunk, va))
            except BaseException:
                for device in mapped:
                    device.unmap_host(va, CHUNK_BYTES)
                raise
            words = memoryview(chunk).cast("Q")
            step = self._slot_bytes // 8
            free = self._free
            free += [(words, i, va + 8 * i, free) for i in range(len(words) - step, -1, -step)]


SIGNALS = HostPool(64)
"""The slots of all signals."""
STAMPS = HostPool(32)
"""The time records of all devices."""
