"""The backing of local memory: one block for all threads that can run at once; it grows on demand.

Channels receive a new backing with their next submission. A replaced block is kept until the device is
closed, because kernels that were launched before may still use it.

Not here: the size that a kernel needs (`program`), the words that set the backing (`push`). Next: `device`,
which calls `LocalMemory.ensure` for each loaded kernel.
"""

from __future__ import annotations

from drivers.nv import push
from drivers.nv.layouts.compute import (
    LOCAL_THREADS_PER_WARP,
    LOCAL_TOTAL_ALIGN,
    LOCAL_TPC_ALIGN,
    LOCAL_WARP_ALIGN,
)
from drivers.nv.memory import NvMemories, NvMemory
from drivers.nv.topology import NvGpu


def sizes(gpu: NvGpu, bytes_per_thread: int) -> tuple[int, int]:
    """Return the bytes for each TPC and in total that `bytes_per_thread` requires (nv.md 2.8)."""
    warp = _up(bytes_per_thread * LOCAL_THREADS_PER_WARP, LOCAL_WARP_ALIGN)
    tpc = _up(warp * gpu.max_warps * gpu.sms_per_tpc, LOCAL_TPC_ALIGN)
    # Litter counts and not the counts after floor-sweeping, because the numbers of units have gaps.
    return tpc, _up(tpc * gpu.litter_tpcs, LOCAL_TOTAL_ALIGN)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class LocalMemory:
    """The backing block; there is none until a kernel needs local memory.

    The caller holds the device's lock.
    """

    def __init__(self, gpu: NvGpu, memories: NvMemories) -> None:
        self._gpu, self._memories = gpu, memories
        self._bytes = 0
        self._memory: NvMemory | None = None
        self.epoch = 0
        """Incremented whenever channels need new settings."""

    def ensure(self, bytes_per_thread: int) -> None:
        """Grow the block if it has less than `bytes_per_thread` for each thread.

        Raises as `NvMemories.vram`.
        """
        if bytes_per_thread <= self._bytes:
            return
        _, total = sizes(self._gpu, bytes_per_thread)
        self._memory = self._memories.vram(total, label=f"local memory, {bytes_per_thread} bytes a thread")
        self._bytes = bytes_per_thread
        self.epoch += 1

    def words(self, *, all_sms: bool) -> push.Words:
        """Return the words that set the backing on a compute channel; empty if there is no block."""
        if self._memory is None:
            return ()
        tpc, _ = sizes(self._gpu, self._bytes)
        return push.local_memory(
            self._memory.va, tpc, self._gpu.sms // self._gpu.sms_per_tpc, all_sms=all_sms
        )
