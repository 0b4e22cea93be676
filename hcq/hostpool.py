"""Process-wide pools of host memory, at one address for all opened devices: signal slots, time records.

Not here: the contents of the slots (`signal`); the mapping into a device
(`hcq.driver.DriverDevice.map_host`).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from typing import Protocol

from hcq.errors import UsageError

CHUNK_BYTES = 1 << 16
"""Bytes by which a pool grows."""

Slot = tuple[memoryview, int, int, "list[Slot]"]
"""(u64 elements of the chunk, index of the slot's first element, address, free list).

A slot is freed by appending it to its free list. As the slot carries the list, a forked child never returns a
slot of its parent to its own pool.
"""


SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""The seals of shared memory: its size is fixed, so that no process can take pages from another."""


def memory_file(size: int) -> int:
    """Return the descriptor of new, zeroed memory that processes can share. Raises `OSError`."""
    fd = os.memfd_create("hcq", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def file_size(fd: int) -> int:
    """Return the bytes of memory that `memory_file` made. Raises `UsageError` for any other descriptor."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS) if isinstance(fd, int) else 0
        size = os.fstat(fd).st_size if seals == SEALS else 0
    except (OSError, OverflowError, ValueError):  # of another kind, closed, or no descriptor
        size = 0
    if size and size % mmap.PAGESIZE == 0:
        return size
    raise UsageError(
        f"descriptor {fd!r} is no shared memory of hcq\n"
        "hint: pass what Buffer.export or Signal.export returned, by socket.send_fds or by inheritance"
    )


class HostMapping(Protocol):
    """The part of a device that pools use; `hcq.driver.DriverDevice` implements it."""

    def map_host(self, va: int, size: int) -> None:
        """Map host memory [va, va + size) into the device at the same address."""

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`."""

    def signal_written(self, va: int) -> None:
        """Wake the device's waiters for the slot at `va`, which the host wrote."""


class HostPool:
    """Slots of `slot_bytes` bytes, zeroed when taken. Freed slots are reused; their memory stays mapped.

    Memory that processes share is unmapped when its slot has no reference: at the next call of `share`,
    `attach` or `detach`.

    Thread-safe. Taking and freeing a slot hold no lock, so that a finaliser may free one at any time; growing
    and attaching do.
    """

    def __init__(self, slot_bytes: int) -> None:
        self._slot_bytes = slot_bytes
        self._lock = threading.RLock()
        self._free: list[Slot] = []
        self._chunks: list[tuple[mmap.mmap, int]] = []
        """(memory, its address) of each chunk."""
        self._shared: dict[int, weakref.ref[memoryview]] = {}
        """Address of each shared chunk -> its elements, which its signal refers to."""
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
            self._unmap_unused()
            mapped: list[tuple[int, int]] = []
            try:
                for chunk, va in self._chunks:
                    device.map_host(va, len(chunk))
                    mapped.append((va, len(chunk)))
            except BaseException:
                for va, size in mapped:
                    device.unmap_host(va, size)
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
            for chunk, va in self._chunks:
                device.unmap_host(va, len(chunk))
            self._unmap_unused()

    def share(self, fd: int) -> Slot:
        """Map shared memory into all devices, and return its first slot, with its contents."""
        with self._lock:
            self._unmap_unused()
            words, va = self._map(fd, file_size(fd))
            self._shared[va] = weakref.ref(words)
        return words, 0, va, []

    def _unmap_unused(self) -> None:
        """Unmap shared chunks whose signals are gone. The lock is held."""
        for chunk, va in tuple(self._chunks):
            if va in self._shared and self._shared[va]() is None:
                del self._shared[va]
                self._chunks.remove((chunk, va))
                for device in self._attached:
                    device.unmap_host(va, len(chunk))

    def written(self, va: int) -> None:
        """Wake all waiters for the slot at `va`, which the host wrote."""
        for device in tuple(self._attached):
            device.signal_written(va)

    def forget(self) -> None:
        """Reset the pool in a forked child: the old memory belongs to the parent."""
        self.__init__(self._slot_bytes)  # type: ignore[misc]  # reset in place: others refer to it

    def _grow(self) -> None:
        with self._lock:
            if self._free:
                return
            words, va = self._map(-1, CHUNK_BYTES)
            step = self._slot_bytes // 8
            free = self._free
            free += [(words, i, va + 8 * i, free) for i in range(len(words) - step, -1, -step)]

    def _map(self, fd: int, size: int) -> tuple[memoryview, int]:
        """Map a new chunk into all devices; return its u64 elements and its address. The lock is held."""
        import ctypes  # noqa: PLC0415 - only here, and slow to import

        # Shared, as a fork must not copy pages that a device has pinned.
        chunk = mmap.mmap(fd, size)
        va = ctypes.addressof(ctypes.c_char.from_buffer(chunk))
        mapped: list[HostMapping] = []
        try:
            for device in self._attached:
                device.map_host(va, size)
                mapped.append(device)
            self._chunks.append((chunk, va))
        except BaseException:
            for device in mapped:
                device.unmap_host(va, size)
            raise
        return memoryview(chunk).cast("Q"), va


SIGNALS = HostPool(64)
"""The slots of all signals."""
STAMPS = HostPool(32)
"""The time records of all devices."""
