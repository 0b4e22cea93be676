"""Doorbells of one process on one GPU: which of the 1024 each queue gets, and SDMA engines and queues.

Source: Linux kfd_doorbell.c, kfd_device_queue_manager.c (allocate_doorbell, allocate_sdma_queue).

Not here: doorbell stores (`drivers.amd.emu.machine`). Next: `queues`, the user.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from drivers.amd.emu.kfd.refusal import refuse
from drivers.amd.layouts.kfd import (
    DOORBELL_BYTES,
    DOORBELL_SLICE_BYTES,
    SDMA_DOORBELL_MIRROR,
    QueueType,
)

if TYPE_CHECKING:
    from drivers.amd.emu.kfd.profiles import GpuProfile

_RESERVED: Final = range(0x100, 0x200)
"""Doorbells of SDMA, interrupts and video; those behind `SDMA_DOORBELL_MIRROR` more, too."""
_SDMA_BASE: Final = 0x100
_SDMA_STRIDE: Final = 0xA
_COUNT: Final = DOORBELL_SLICE_BYTES // DOORBELL_BYTES


class DoorbellIds:
    """The free doorbells and SDMA queues."""

    def __init__(self, profile: GpuProfile) -> None:
        self._profile = profile
        reserved = {*_RESERVED, *(one + SDMA_DOORBELL_MIRROR for one in _RESERVED)}
        self._compute = [one for one in range(_COUNT) if one not in reserved]
        engines = profile.sdma_engines + profile.xgmi_engines
        slots = [(e, q) for q in range(profile.queues_per_engine) for e in range(engines)]
        self._sdma = {
            QueueType.SDMA: [one for one in slots if one[0] < profile.sdma_engines],
            QueueType.SDMA_XGMI: [one for one in slots if one[0] >= profile.sdma_engines],
        }
        self._taken: dict[int, tuple[QueueType, tuple[int, int]]] = {}

    def compute(self) -> int:
        """Take the lowest free doorbell of a compute queue; returns its number."""
        if not self._compute:
            refuse(errno.ENOSPC, "no doorbell is left")
        return self._compute.pop(0)

    def sdma(self, kind: QueueType, engine: int | None = None) -> tuple[int, int]:
        """Take an SDMA queue, of a given engine or of any; returns (doorbell, engine)."""
        pools = [self._sdma[kind]] if engine is None else list(self._sdma.values())
        for pool in pools:
            for slot in pool:
                if engine in (None, slot[0]):
                    pool.remove(slot)
                    at, queue = slot
                    doorbell = (
                        _SDMA_BASE + at * _SDMA_STRIDE + (queue & 1) * SDMA_DOORBELL_MIRROR + (queue >> 1)
                    )
                    owner = QueueType.SDMA if at < self._profile.sdma_engines else QueueType.SDMA_XGMI
                    self._taken[doorbell] = owner, slot
                    return doorbell, at
        what = kind.name if engine is None else f"engine {engine}"
        return refuse(errno.ENOMEM, f"no SDMA queue of {what} is left")

    def give_back(self, doorbell: int) -> None:
        """Return a doorbell of a destroyed queue."""
        if doorbell in self._taken:
            owner, slot = self._taken.pop(doorbell)
            self._sdma[owner].append(slot)
            self._sdma[owner].sort(key=lambda one: (one[1], one[0]))
        else:
            self._compute.append(doorbell)
            self._compute.sort()
