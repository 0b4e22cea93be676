"""Scratch memory of one compute queue: a block for all waves that can run, grown when a kernel needs more.

A replaced block stays until the device is closed, because words that name it may run again.

Not here: how much a kernel needs (`metadata`). Next: `device`, the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.context import NO_SCRATCH, Backing, backing

if TYPE_CHECKING:
    from drivers.amd.context import Geometry
    from drivers.amd.memory import Memories
    from drivers.amd.targets import Target


class ScratchMemory:
    """The block of one queue; none until a kernel needs one."""

    def __init__(self, target: Target, geometry: Geometry, memories: Memories, *, label: str) -> None:
        self._target, self._geometry, self._memories = target, geometry, memories
        self._label = label
        self.backing: Backing = NO_SCRATCH

    def need(self, lane_bytes: int) -> bool:
        """Provide at least `lane_bytes` bytes for each lane; return whether the block is a new one."""
        if lane_bytes <= self.backing.lane_bytes:
            return False
        sizes = backing(self._target, self._geometry, lane_bytes)
        total = sizes.xcc_bytes * self._geometry.xccs
        label = f"scratch of {self._label}, {lane_bytes} bytes a thread"
        memory = self._memories.vram(total, label=label)
        self.backing = backing(self._target, self._geometry, lane_bytes, memory.va)
        return True
