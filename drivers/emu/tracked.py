"""The buffers that a user-mode driver cuts from allocations of emulated GPUs.

Kernels are then checked against buffers to the byte, and a new buffer counts as unwritten memory. A checking
tool for real GPUs learns the same from calls of the allocator. Vendor-neutral.

Not here: the map that is checked (`drivers.emu.memory`), the buffers (`hcq.heap`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from drivers.emu.memory import AddressSpace


class TrackedBuffers:
    """A `hcq.hardware.BufferTracker` for all GPUs of an emulated machine. Thread-safe.

    `spaces` returns the machine's address spaces, and is called under `lock`.
    """

    def __init__(
        self, lock: AbstractContextManager[object], spaces: Callable[[], Iterable[AddressSpace]]
    ) -> None:
        self._lock = lock
        self._spaces = spaces
        self._taken: dict[int, list[AddressSpace]] = {}
        """Start of a buffer -> the address spaces that know it."""

    def _maps(self) -> list[AddressSpace]:
        with self._lock:
            return list(self._spaces())

    def buffer_taken(self, va: int, size: int) -> None:
        """Allow accesses to [va, va + size), and of its allocation only to buffers."""
        self._taken[va] = maps = self._maps()
        for one in maps:
            one.take_buffer(va, size)

    def buffer_exposed(self, va: int, size: int) -> None:
        """Count [va, va + size) as written."""
        for one in self._maps():
            one.mark_initialised(va, size)

    def buffer_dropped(self, va: int) -> None:
        """Forbid accesses to the buffer at `va`. Takes no lock, so that finalizers may call it."""
        for one in self._taken.pop(va, ()):
            one.drop_buffer(va)
