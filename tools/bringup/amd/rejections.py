"""What an emulated AMD GPU, or its kernel driver, refuses: a row for each uncertain value of the driver.

A row describes what the driver sends with the default of the value. An emulated GPU that is opened with the
row refuses it, as a GPU would on which the default is wrong. The evidence for each value, and which public
driver sends what, is in docs/sources-amd.md ("Values that a driver chooses").

Not here: the table that is printed (`tools.bringup.quirks`). Next: `emulator.shared.surprises`, how an
emulated GPU uses a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.amd.layouts.kfd import MemFlags, QueueType, RuntimeMode
from drivers.amd.layouts.pm4 import (
    DataSel,
    DispatchDirect,
    Event,
    EventWrite,
    IntSel,
    MemSpace,
    WaitRegMem,
)
from drivers.amd.layouts.pm4_generations import AcquireMem, AcquireMemGfx9, ReleaseMem
from drivers.amd.layouts.registers import Initiator
from drivers.amd.layouts.sdma import FENCE_MTYPE_UC, SMALL_PIECE, CopyLinear, Fence
from emulator.amd.reports import packet_fault
from emulator.shared.surprises import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LARGE_RING: Final = 16 << 20
_STAMP_BYTES: Final = 8
_ACQUIRES: Final = (AcquireMem, AcquireMemGfx9)


def _pm4(kind: Any, meets: Callable[[Any], Any]) -> Rejection:
    """Return a row for packets of a kind that compute queues execute as NOPs."""
    return Rejection("packet", lambda packet, *_: isinstance(packet, kind) and meets(packet))


def _sdma(kind: Any, meets: Callable[[Any], Any]) -> Rejection:
    """Return a row for packets of a kind that copy queues execute as NOPs."""
    return Rejection("copy packet", lambda packet: isinstance(packet, kind) and meets(packet))


def _started(packet: DispatchDirect) -> Initiator:
    return Initiator.from_int(packet.INITIATOR)


def _acquires_behind_a_kernel(packet: object, _words: object, before: object) -> bool:
    """Stop the queue at an ACQUIRE_MEM right after a kernel: nothing has waited for the kernel's end."""
    if isinstance(packet, _ACQUIRES) and isinstance(before, DispatchDirect):
        raise packet_fault("ACQUIRE_MEM while a kernel runs (quirk acquire)")
    return False


def _maintains(packet: Any) -> bool:
    return bool(getattr(packet, "GL2_WB", 0) or getattr(packet, "TC_WB_ACTION", 0))


REJECTIONS: Final[Mapping[str, Rejection]] = {
    "order": _pm4(EventWrite, lambda _: True),
    "acquire": Rejection("packet", _acquires_behind_a_kernel),
    "coher_size": Rejection("packet", lambda packet, words,
        _: isinstance(packet, _ACQUIRES) and words[3] == packet.SIZE_HI),
    "release_event": _pm4(ReleaseMem, lambda one: one.EVENT_TYPE is Event.CACHE_FLUSH_AND_INV_TS),
    "release_policy": _pm4(ReleaseMem, lambda one: _maintains(one) and not one.CACHE_POLICY),
    "release_caches": _pm4(ReleaseMem, lambda one: getattr(one, "TCL1_ACTION", 0)),
    "release_confirm": _pm4(ReleaseMem, lambda one: one.INT_SEL is IntSel.NONE),
    "signal_bits": _pm4(ReleaseMem, lambda one: one.DATA_SEL is DataSel.FULL_64),
    "ace_offload": _pm4(WaitRegMem,
        lambda one: one.OPTIMIZE_ACE_OFFLOAD_MODE and one.MEM_SPACE is MemSpace.MEMORY),
    "order_mode": _pm4(DispatchDirect, lambda one: not _started(one).ORDER_MODE),
    "force_start": _pm4(DispatchDirect, lambda one: _started(one).FORCE_START_AT_000),
    "priv": Rejection("launch", lambda one: one.rsrc1.PRIV),
    "trap_present": Rejection("launch", lambda one: not one.rsrc2.TRAP_PRESENT),
    "aql_scratch": Rejection("AQL queue", lambda one: one.scratch_backing_memory_byte_size),
    "copy_pieces": _sdma(CopyLinear, lambda one: one.COUNT_MINUS_ONE >= SMALL_PIECE),
    "copy_order": Rejection("late copy", lambda: True),
    "copy_stamp": _sdma(CopyLinear, lambda one: one.COUNT_MINUS_ONE == _STAMP_BYTES - 1),
    "fence_mtype": _sdma(Fence, lambda one: getattr(one, "MTYPE", 0) == FENCE_MTYPE_UC),
    "single_xcc": Rejection("queue", lambda args,
        gpu: args.queue_type == QueueType.COMPUTE and gpu.profile.target.compute_aql),
    "aql_eop": Rejection("queue", lambda args,
        _: args.queue_type == QueueType.COMPUTE_AQL and args.eop_buffer_size),
    "ring_bytes": Rejection("queue", lambda args, _: args.ring_size < _LARGE_RING),
    "cwsr_sizes": Rejection("save area in sysfs", lambda: True),
    "system_uncached": Rejection("memory", lambda flags: flags & MemFlags.GTT and flags & MemFlags.UNCACHED),
    "runtime": Rejection("runtime", lambda mode: mode & RuntimeMode.ENABLE),
    "hdp": Rejection("doorbell", lambda: True),
    "read_pointer": Rejection("read pointer", lambda kind: kind != QueueType.COMPUTE_AQL),
}  # fmt: skip
"""Name of an uncertain value -> what the emulated GPU refuses."""
