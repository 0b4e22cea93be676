"""The allocator of device addresses, which are also reserved as host addresses.

Every range is also reserved in this process, without access or memory. So memory can have the same address
for the CPU and the GPU, and host memory that is mapped later cannot overlap device memory. All ranges are
below 2^40, as launch descriptors and push buffers require. The shared and local windows of the compute engine
are never allocated.

Not here: what is mapped at an address (`memory`), the mapping calls (`uvm`, `rm`). Next: `memory`.
"""

from __future__ import annotations

import errno
from bisect import insort
from collections.abc import Mapping
from typing import Final

from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, Kernel
from hcq.errors import DriverError, OutOfMemoryError

FIRST: Final = 0x10_0000_0000
LAST: Final = 0xF0_0000_0000
"""Device addresses are in [FIRST, LAST)."""
HUGE: Final = 1 << 21
"""Size of a huge page, in bytes."""

SHARED_WINDOW: Final = 0x4_0000_0000
"""Start of a window of 4 GiB without memory, aligned to 4 GiB; Hopper and later require it (nv.md 2.8)."""
LOCAL_WINDOW: Final = 0xFF00_0000
"""Start of a window of 16 MiB without memory."""
WINDOWS: Final[Mapping[str, tuple[int, int]]] = {
    "low": (SHARED_WINDOW, LOCAL_WINDOW),
    "high": (0xF4_0000_0000, 0xF8_0000_0000),
}
"""Addresses of the shared and the local window: below all memory, or above it (`NvQuirks.windows`)."""


class NvVaSpace:
    """The free ranges in [FIRST, LAST). Not thread-safe: the caller holds the device's lock."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._free: list[tuple[int, int]] = [(FIRST, LAST)]
        self._low = FIRST
        """Free ranges below this address are searched last, because host mappings were found there."""
        self._held: dict[int, int] = {}
        """Address of a reserved range -> its size."""

    def reserve(self, size: int, align: int = HUGE) -> int:
        """Reserve `size` bytes, a multiple of a page, and return their address.

        `align` is a power of two. Raises `OutOfMemoryError` if no range is free, `DriverError` if the kernel
        refuses a reservation for another reason. Each attempt is a system call, so the search skips other
        memory of this process in steps that double in size.
        """
        for low, growth in ((self._low, 2), (FIRST, 1)):
            va = self._search(size, align, low, growth)
            if va is not None:
                self._held[va] = size
                return va
        raise OutOfMemoryError(
            "reserve device addresses", errno.ENOMEM, "ENOMEM", arguments=f"{size:#x} bytes"
        )

    def _search(self, size: int, align: int, low: int, growth: int) -> int | None:
        """Reserve the first free range at `low` or above; None if there is none.

        After an attempt that fails, the step to the next one is multiplied by `growth`.
        """
        for index, (start, end) in enumerate(self._free):
            first = va = (max(start, low) + align - 1) & -align
            step = max(align, HUGE)
            while va + size <= end:
                if self._reserve(va, size):
                    self._free[index : index + 1] = [
                        (a, b) for a, b in ((start, va), (va + size, end)) if a < b
                    ]
                    if va > first:
                        self._low = va
                    return va
                va, step = va + step, step * growth
        return None

    def release(self, va: int) -> None:
        """Free a reserved range and unmap all host mappings in it."""
        size = self._held.pop(va)
        self._kernel.munmap(va, size)
        self._low = min(self._low, va)
        insort(self._free, (va, va + size))
        merged: list[tuple[int, int]] = []
        for start, end in self._free:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        self._free = merged

    def freed(self, va: int, error: type[BaseException] | None, *_: object) -> None:
        """Release a range as a context ends that frees its memory; after an error it stays held.

        New memory there would overlap what the kernel did not free.
        """
        if error is None:
            self.release(va)

    def keep(self, va: int) -> None:
        """Forget a reserved range without unmapping it: the host still uses its pages after the close."""
        del self._held[va]

    def close(self) -> None:
        """Free all ranges."""
        for va in list(self._held):
            self.release(va)

    def _reserve(self, va: int, size: int) -> bool:
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
        try:
            self._kernel.mmap(size, va=va, prot=PROT_NONE, flags=flags)
        except DriverError as error:
            if error.status == errno.EEXIST:
                return False
            raise
        return True
