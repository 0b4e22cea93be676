"""Process-wide pools of host memory, at one address for all opened devices: signal slots, time records.

Not here: what lies in the pools (`signal`, `profile`); mapping them, which each driver does when it opens a
device.
"""

from __future__ import annotations

import mmap
import threading
from typing import Protocol

CHUNK_BYTES = 1 << 16

Slot = tuple[memoryview, int, int, "list[Slot]"]
"""The chunk's u64 elements, the index of the slot's first, the address, and the list it goes back to.

To give a slot back append it to that list; a forked child's slots thus never mix with its own pool's.
"""


class HostMapping(Protocol):
    """What can be shown host memory: `DriverDevice`."""

    def map_host(self, va: int, size: int) -> None:
        """Make host memory visible to the device at the same address."""
        ...

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`."""
        ...

    def signal_written(self, va: int) -> None:
        """Wake what sleeps on a slot that the host wrote."""
        ...


class HostPool:
    """Fixed-size slots, zeroed when taken. Memory is never returned to the system; slots return to the pool.

    Taking and giving back need no lock, so a finaliser may run anywhere; growing and attaching do.
    """

    def __init__(self, slot_bytes: int) -> None:
        self._slot_bytes = slot_bytes
        self._lock = threading.RLock()
        self._free: list[Slot] = []
        self._chunks: list[tuple[mmap.mmap, int]] = []
        self._attached: list[HostMapping] = []

    def take(self) -> Slot:
        """Return a zeroed slot."""
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
        """Show all of the pool, and what it grows to, to a device."""
        with self._lock:
            done: list[int] = []
            try:
                for _, va in self._chunks:
                    device.map_host(va, CHUNK_BYTES)
                    done.append(va)
            except BaseException:
                for va in done:
                    device.unmap_host(va, CHUNK_BYTES)
                raise
            self._attached.append(device)

    def devices(self) -> tuple[HostMapping, ...]:
        """Return the devices that see the pool."""
        return tuple(self._attached)

    def detach(self, device: HostMapping) -> None:
        """Undo `attach`; nothing to do for a device that sees nothing."""
        with self._lock:
            if device not in self._attached:
                return
            self._attached.remove(device)
            for _, va in self._chunks:
                device.unmap_host(va, CHUNK_BYTES)

    def written(self, va: int) -> None:
        """Wake whatever sleeps on a slot that the host wrote."""
        for device in tuple(self._attached):
            device.signal_written(va)

    def forget(self) -> None:
        """Start anew in a forked child: the old memory is the parent's."""
        self.__init__(self._slot_bytes)  # type: ignore[misc]  # the same object again, empty

    def _grow(self) -> None:
        import ctypes  # noqa: PLC0415 - only here, and importing it costs

        with self._lock:
            if self._free:
                return
            # Shared, not private: a fork must not copy pages that a device has pinned.
            chunk = mmap.mmap(-1, CHUNK_BYTES)
            va = ctypes.addressof(ctypes.c_char.from_buffer(chunk))
            shown: list[HostMapping] = []
            try:
                for device in self._attached:
                    device.map_host(va, CHUNK_BYTES)
                    shown.append(device)
                self._chunks.append((chunk, va))
            except BaseException:
                for device in shown:
                    device.unmap_host(va, CHUNK_BYTES)
                raise
            words = memoryview(chunk).cast("Q")
            step = self._slot_bytes // 8
            free = self._free
            free += [(words, i, va + 8 * i, free) for i in range(len(words) - step, -1, -step)]


SIGNALS = HostPool(64)
STAMPS = HostPool(32)
