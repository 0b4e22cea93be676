"""What stops a channel, and device memory as its engines reach it."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import struct
import time
from typing import TYPE_CHECKING

from drivers.nv.layouts.fault import MmuAccess, RcCode

if TYPE_CHECKING:
    from drivers.emu.memory import AddressSpace


class Blocked(Exception):  # noqa: N818 - not an error
    """The method waits for memory to change."""


class ChannelError(Exception):
    """A robust-channel error: the code that the notifier gets, and what happened in words."""

    def __init__(self, code: RcCode, message: str, *, address: int | None = None, access: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.address = address
        self.access = access


class DeviceMemory:
    """An address space as engines see it: an access that is not mapped is an MMU fault."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    def host(self, va: int, size: int, *, write: bool = False) -> int:
        """Return where [va, va + size) lies, or fault."""
        mapping = self.space.find(va, max(size, 1))
        access = MmuAccess.WRITE if write else MmuAccess.READ
        if mapping is None:
            nearest = self.space.nearest(va)
            raise ChannelError(
                RcCode.MMU_FAULT,
                f"{access.name.lower()} of {size} bytes at {va:#x}; nearest: {nearest}",
                address=va,
                access=access,
            )
        if write and not mapping.writable:
            raise ChannelError(
                RcCode.MMU_FAULT, f"write to read-only {mapping} at {va:#x}", address=va, access=access
            )
        return mapping.host + va - mapping.va

    def fetch(self, va: int, size: int) -> bytes:
        """Copy out."""
        return ctypes.string_at(self.host(va, size), size)

    def store(self, va: int, data: bytes) -> None:
        """Copy in."""
        ctypes.memmove(self.host(va, len(data), write=True), data, len(data))
        self.space.mark_initialised(va, len(data))

    def read(self, va: int, size: int) -> int:
        """Read 4 or 8 bytes at once."""
        at = self.host(va, size)
        return int((ctypes.c_uint64 if size == 8 else ctypes.c_uint32).from_address(at).value)

    def read64(self, va: int) -> int:
        """Read 8 bytes at once."""
        return self.read(va, 8)

    def read_words(self, va: int, count: int) -> tuple[int, ...]:
        """Read 32-bit words."""
        return struct.unpack(f"<{count}I", self.fetch(va, 4 * count))

    def release(self, va: int, payload: int, size: int, *, timestamp: bool) -> None:
        """Write a semaphore: the time first, then the payload, each in one store."""
        at = self.host(va, 16 if timestamp else size, write=True)
        if timestamp:
            ctypes.c_uint64.from_address(at + 8).value = time.monotonic_ns()
        if size == 8:
            ctypes.c_uint64.from_address(at).value = payload
        else:
            if timestamp:
                ctypes.c_uint32.from_address(at + 4).value = 0
            ctypes.c_uint32.from_address(at).value = payload

    @staticmethod
    def reduce(operation: int, old: int, value: int, size: int, *, signed: bool) -> int:
        """Compute a semaphore reduction: IMIN, IMAX, IXOR, IAND, IOR, IADD, INC, DEC."""
        top = 1 << (8 * size)

        def number(x: int) -> int:
            return x - top if signed and x >= top // 2 else x

        result = (
            lambda: min(number(old), number(value)), lambda: max(number(old), number(value)), lambda: old ^ value, lambda: old & value,
            lambda: old | value, lambda: old + value, lambda: 0 if old >= value else old + 1, lambda: value if old == 0 or old > value else old - 1,
        )[operation]()  # fmt: skip
        return result % top
