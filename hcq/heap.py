"""The memory of one device: its pools, what was closed while in use, what to try when it is short."""

from __future__ import annotations

import gc
import threading
from collections import deque
from typing import TYPE_CHECKING

from hcq.memory import Pool

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.driver import BufferSpec
    from hcq.memory import Block, Home
    from hcq.signal import Point


class Heap:
    """Pools by kind of memory. Thread-safe."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._pools: dict[BufferSpec, Pool] = {}
        self.deferred_frees: deque[tuple[list[Point], Block, Home]] = deque()
        """Memory of closed buffers that work in flight may still touch."""

    def pool(self, spec: BufferSpec) -> Pool:
        """Return the pool of a kind of memory."""
        pool = self._pools.get(spec)
        if pool is None:
            with self._lock:
                pool = self._pools.get(spec)
                if pool is None:
                    pool = self._pools[spec] = Pool(self._device.driver, spec, self._lock, self._reclaim)
        return pool

    def _reclaim(self, attempt: int) -> bool:
        """Free memory for an allocation that failed, harder each time; False when nothing is left to try."""
        device = self._device
        if attempt == 1:
            device.forget_bindings()
            gc.collect()
        elif attempt > 1:
            oldest = [point for queue in device.queues if (point := queue.oldest()) is not None]
            if not oldest:
                return False
            oldest[0].wait()
        device.sweep()
        for pool in tuple(self._pools.values()):
            pool.trim()
        return True

    def defer_free(self, points: list[Point], block: Block, home: Home) -> None:
        """Let a block be taken again when all points are reached, or lost."""
        if all(point.over() for point in points):
            home.append(block)
        else:
            self.deferred_frees.append((points, block, home))
            self._device.leftovers = True

    def sweep(self) -> None:
        """Let go of what waited for points that are over now."""
        with self._lock:
            for _ in range(len(self.deferred_frees)):  # one at a time: threads add to it without the lock
                self.defer_free(*self.deferred_frees.popleft())

    def close(self) -> None:
        """Give everything back to the driver."""
        for pool in self._pools.values():
            pool.close()

    def pages(self) -> list[tuple[int, int]]:
        """Return (address, bytes) of everything that the driver gave."""
        return [(page.va, page.size) for pool in tuple(self._pools.values()) for page in pool.chunks()]
