"""Plain data about a device and its queues, sizes of context-save areas, and the scratch memory of a queue.

The device fills the data in, and encoders read it. The sizes of context-save areas come from sysfs, or from
the formula of the kernel if sysfs has none. Scratch memory is one block for all waves that can run at once,
and it grows when a kernel needs more. A replaced block is kept until the device is closed, because recorded
words with its address may run again.

Not here: properties of a target (`layouts.chips`), quirks (`quirks`), the layout of the save area
(`drivers.amd.layouts.cwsr`), how much scratch a kernel needs (`code`). Next: `rings`, which makes the queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import cwsr
from drivers.amd.layouts.registers import TMPRING
from drivers.amd.quirks import DEFAULT, AmdQuirks
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.kfd import Kfd
    from drivers.amd.layouts.chips import AmdChip
    from drivers.amd.memory import AmdMemories
    from drivers.amd.topology import AmdGpu

LANES: Final = 64
"""Lanes for which the scratch memory of a wave is sized; a wave of 32 lanes uses half of it."""
SCRATCH_ALIGN: Final = 1 << 16
"""Alignment in bytes of an XCC's part of the scratch memory; the registers need 256."""
MAX_WAVES: Final = (1 << 12) - 1
"""The largest WAVES of TMPRING_SIZE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Counts of a device's units, from the topology."""

    xccs: int = 1
    """Accelerator dies that work on one dispatch (`num_xcc`)."""
    compute_units: int
    """Compute units of each XCC: simd_count / simd_per_cu / num_xcc."""
    engines: int
    """Shader engines of each XCC: array_count / simd_arrays_per_engine / num_xcc."""
    scratch_slots: int = 32
    """Waves with scratch of each compute unit (`max_slots_scratch_cu`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptEvent:
    """The event whose interrupt ends waits of the host."""

    slot_va: int
    """Device address of the event's u64 in the event page, 8-byte aligned."""
    number: int
    """Its id, which is stored to the slot and is the interrupt's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchBacking:
    """Scratch memory of one compute queue; `lane_bytes` is 0 while there is none."""

    va: int = 0
    """Device address, 256-byte aligned."""
    lane_bytes: int = 0
    """Bytes of a lane; a wave of `LANES` is a multiple of the target's `scratch_unit`."""
    xcc_bytes: int = 0
    """Bytes of each XCC's part; the parts follow each other."""
    tmpring: int = 0
    """The value of the register TMPRING_SIZE."""


NO_SCRATCH: Final = ScratchBacking()


def _no_scratch() -> ScratchBacking:
    return NO_SCRATCH


def _ignore(_name: str) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """One queue of one device."""

    target: AmdChip
    geometry: Geometry
    choices: AmdQuirks = DEFAULT
    event: InterruptEvent | None = None
    """The event that a `SetSignal` raises after it stored the signal; None: no event."""
    scratch: Callable[[], ScratchBacking] = _no_scratch
    """Returns the queue's current scratch memory, large enough for all loaded kernels. Replaced memory stays
    valid, because recorded words with its address may run again."""
    launched: Callable[[str], object] = _ignore
    """Called with the name of each kernel that is encoded, for fault reports."""


def lane_bytes(target: AmdChip, wanted: int) -> int:
    """Return the scratch bytes of a lane: `wanted`, rounded up so that a wave has whole units."""
    step = target.scratch_unit // LANES
    return -(-wanted // step) * step


def backing(target: AmdChip, geometry: Geometry, wanted: int, va: int = 0) -> ScratchBacking:
    """Return the description of scratch memory at `va` with at least `wanted` bytes for each lane.

    The memory needs `geometry.xccs * xcc_bytes` bytes; with `va` 0 the result only serves to get this size.
    Raises `UnsupportedError` for more bytes than the registers can hold.
    """
    lane, one_engine = lane_bytes(target, wanted), target.scratch_waves_per_engine
    wave = lane * LANES
    slots = geometry.compute_units * geometry.scratch_slots
    per_engine = min(slots // geometry.engines, MAX_WAVES // (1 if one_engine else geometry.engines))
    waves = per_engine * geometry.engines
    layout = TMPRING[target.generation]
    _, most = layout.FIELDS["WAVESIZE"].bounds
    if wave // target.scratch_unit > most:
        limit = most * target.scratch_unit // LANES
        raise UnsupportedError(f"{wanted} bytes of scratch a thread; {target.name} has {limit} at most")
    (word,) = layout.pack(WAVES=per_engine if one_engine else waves, WAVESIZE=wave // target.scratch_unit)
    part = -(-wave * waves // SCRATCH_ALIGN) * SCRATCH_ALIGN
    return ScratchBacking(va=va, lane_bytes=lane, xcc_bytes=part, tmpring=word)


_CHECKED_SINCE: Final = (1, 17)
"""The KFD version of Linux 6.12, the first kernel that compares the sizes."""


def of(
    gpu: AmdGpu, target: AmdChip, geometry: Geometry, kfd: Kfd, choices: AmdQuirks = DEFAULT
) -> cwsr.Sizes:
    """Return the sizes of the context-save area for CREATE_QUEUE of a compute queue of this GPU."""
    get, printed = gpu.properties.get, choices.cwsr_sizes == "sysfs"
    return cwsr.sizes(
        target.name,
        units=geometry.compute_units,
        engines=geometry.engines,
        xccs=geometry.xccs,
        lds_bytes=get("lds_size_in_kb", 0) << 10,
        checked=kfd.version >= _CHECKED_SINCE,
        known_context=get("cwsr_size", 0) if printed else 0,
        known_stack=get("ctl_stack_size", 0) if printed else 0,
    )


class ScratchMemory:
    """The scratch memory of one queue; none until a kernel needs it. `memories` owns the blocks."""

    def __init__(self, target: AmdChip, geometry: Geometry, memories: AmdMemories, *, label: str) -> None:
        self._target, self._geometry, self._memories = target, geometry, memories
        self._label = label
        self.backing: ScratchBacking = NO_SCRATCH

    def need(self, lane_bytes: int) -> bool:
        """Provide at least `lane_bytes` bytes for each lane; return whether a new block was allocated.

        Raises `UnsupportedError` for more bytes than the registers can hold, `OutOfMemoryError`.
        """
        if lane_bytes <= self.backing.lane_bytes:
            return False
        sizes = backing(self._target, self._geometry, lane_bytes)
        total = sizes.xcc_bytes * self._geometry.xccs
        label = f"scratch of {self._label}, {lane_bytes} bytes a thread"
        memory = self._memories.vram(total, label=label)
        self.backing = backing(self._target, self._geometry, lane_bytes, memory.va)
        return True
