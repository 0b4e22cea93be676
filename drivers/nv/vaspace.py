"""Device addresses: which are free, and the host addresses that stand beside them.

Every range is reserved in this process as well (no access, no memory), so that memory seen from both sides
can have one address, and no host memory that is shown to the device later can fall onto it. All ranges lie
below 2^40, where launch descriptors and push buffers must lie. The shared and local windows of the compute
engine are never handed out.

Not here: what is mapped at an address (`memory`), the mapping calls (`uvm`, `rm`).
"""

from __future__ import annotations

import errno
from bisect import insort
from typing import TYPE_CHECKING, Final

from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE
from hcq.errors import DriverError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivers.kernel import Kernel

FIRST: Final = 0x10_0000_0000
LAST: Final = 0xF0_0000_0000
HUGE: Final = 1 << 21

SHARED_WINDOW: Final = 0x4_0000_0000
"""Aligned to 4 GiB, and 4 GiB of nothing: required since Hopper, harmless before (nv.md 2.8)."""
LOCAL_WINDOW: Final = 0xFF00_0000
"""16 MiB of nothing."""
WINDOWS: Final[Mapping[str, tuple[int, int]]] = {
    "low": (SHARED_WINDOW, LOCAL_WINDOW),
    "high": (0xF4_0000_0000, 0xF8_0000_0000),
}
"""Where the shared and the local window lie: below all memory, or above it (`choices`)."""


class VaSpace:
    """The free ranges between FIRST and LAST, in order. Not thread-safe: the device holds its lock."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._free: list[tuple[int, int]] = [(FIRST, LAST)]
        self._low = FIRST
        """Below, what is free was in the way of something, or leapt over: looked at when nothing above is."""
        self._held: dict[int, int] = {}

    def take(self, size: int, align: int = HUGE) -> int:
        """Reserve `size` bytes (page multiple) and return their address.

        Over what else this process uses the search leaps, twice as far each time: each try is a system call.
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
        """Reserve the first place found from `low` on; None when there is none."""
        for index, (start, end) in enumerate(self._free):
            first = va = (max(start, low) + align - 1) & -align
            leap = max(align, HUGE)
            while va + size <= end:
                if self._reserve(va, size):
                    self._free[index : index + 1] = [
                        (a, b) for a, b in ((start, va), (va + size, end)) if a < b
                    ]
                    if va > first:
                        self._low = va
                    return va
                va, leap = va + leap, leap * growth
        return None

    def give_back(self, va: int) -> None:
        """Return a range that `take` gave; what is mapped there on the host goes, too."""
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

    def close(self) -> None:
        """Give all ranges back."""
        for va in list(self._held):
            self.give_back(va)

    def _reserve(self, va: int, size: int) -> bool:
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
        try:
            self._kernel.mmap(size, va=va, prot=PROT_NONE, flags=flags)
        except DriverError as error:
            if error.status == errno.EEXIST:
                return False
            raise
        return True
