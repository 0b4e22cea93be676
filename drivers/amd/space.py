"""Device addresses: ranges that this process reserves, so that host and GPUs see memory at one address.

Not here: allocations and their mappings (`memory`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.kernel import MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PAGE, PROT_NONE

if TYPE_CHECKING:
    from drivers.kernel import Kernel

HUGE: Final = 1 << 21
"""Memory of at least this size is aligned to it: the kernel then uses large page-table entries."""


class Space:
    """Reserves free addresses of this process. Thread-safe."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def take(self, size: int) -> int:
        """Reserve `size` bytes, whole pages, and return their address. Raises `OutOfMemoryError`."""
        align = HUGE if size >= HUGE else PAGE
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        room = size + align - PAGE
        start = self._kernel.mmap(room, prot=PROT_NONE, flags=flags).va
        va = -(-start // align) * align
        for first, end in ((start, va), (va + size, start + room)):
            if first < end:
                self._kernel.munmap(first, end - first)
        return va

    def give_back(self, va: int, size: int) -> None:
        """Release a range that `take` reserved, and the host's mappings in it."""
        self._kernel.munmap(va, size)
