"""Backing of local memory: one block for all threads that can run, grown when a kernel needs more.

Channels receive the new backing at their next submission. An outgrown block stays until the device is closed:
kernels that were launched before may still use it.

Not here: the size that a kernel needs (`cubin`), the words that set the backing (`push`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv import push
from drivers.nv.layouts.compute import (
    LOCAL_THREADS_PER_WARP,
    LOCAL_TOTAL_ALIGN,
    LOCAL_TPC_ALIGN,
    LOCAL_WARP_ALIGN,
)

if TYPE_CHECKING:
    from drivers.nv.memory import Memories, Memory
    from drivers.nv.topology import Gpu


def sizes(gpu: Gpu, bytes_per_thread: int) -> tuple[int, int]:
    """Return the bytes a TPC and in all that `bytes_per_thread` takes (nv.md 2.8)."""
    warp = _up(bytes_per_thread * LOCAL_THREADS_PER_WARP, LOCAL_WARP_ALIGN)
    tpc = _up(warp * gpu.max_warps * gpu.sms_per_tpc, LOCAL_TPC_ALIGN)
    # Litter counts, not what is left after floor-sweeping: units are numbered with gaps.
    return tpc, _up(tpc * gpu.litter_tpcs, LOCAL_TOTAL_ALIGN)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class LocalMemory:
    """The block that shaders spill to; none until a kernel needs one."""

    def __init__(self, gpu: Gpu, memories: Memories) -> None:
        self._gpu, self._memories = gpu, memories
        self._bytes = 0
        self._memory: Memory | None = None
        self.epoch = 0
        """Counts up whenever channels must be sent new settings."""

    def need(self, bytes_per_thread: int) -> None:
        """Make sure that so much is there for every thread."""
        if bytes_per_thread <= self._bytes:
            return
        _, total = sizes(self._gpu, bytes_per_thread)
        self._memory = self._memories.vram(total, label=f"local memory, {bytes_per_thread} bytes a thread")
        self._bytes = bytes_per_thread
        self.epoch += 1

    def words(self, *, all_sms: bool) -> push.Words:
        """Return the settings that a compute channel is sent."""
        if self._memory is None:
            return ()
        tpc, _ = sizes(self._gpu, self._bytes)
        return push.local_memory(
            self._memory.va, tpc, self._gpu.sms // self._gpu.sms_per_tpc, all_sms=all_sms
        )
