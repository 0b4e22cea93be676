"""Cache maintenance of each packet, and RELEASE_MEM: its checks and its effect.

Decodes the cache bits of ACQUIRE_MEM, RELEASE_MEM and GCR_REQ, and the fence scopes of AQL packets, to names
of `coherence`. The caches "scalar", "vector" and "l2" are invalidated. "agent" and "system" say how far the
L2 is written back. Source: docs/facts/amd-caches.md.

Not here: when a release runs (`pm4`, `order`), the effect on caches (`coherence`). Next: `coherence`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.aql import FenceScope, Header
from drivers.amd.layouts.events import END_OF_PIPE_CONTEXT_BITS
from drivers.amd.layouts.pm4 import RELEASE_ALIGN_64, DataSel, Event, EventIndex, IntSel, ReleaseDst
from drivers.amd.layouts.pm4_generations import (
    AcquireMemGfx9,
    ReleaseMemGfx9,
    ReleaseMemGfx10,
    ReleaseMemGfx11,
)
from emulator.amd.engines.coherence import AGENT, LOAD_CACHES, SYSTEM
from emulator.amd.engines.packets import wide
from emulator.amd.reports import packet_fault, unsupported

if TYPE_CHECKING:
    from drivers.amd.layouts.pm4_generations import GcrCntl, ReleaseMem
    from emulator.amd.engines.bus import Bus
    from hcq.layout import BitStruct

_WRITTEN: Final = frozenset({AGENT, SYSTEM})
"""The L2 is written back to the other L2s of the GPU, and to memory."""
_SCOPES: Final = {
    FenceScope.NONE: frozenset[str](), FenceScope.AGENT: frozenset({AGENT}), FenceScope.SYSTEM: _WRITTEN,
}  # fmt: skip
"""Release scope of an AQL packet -> how far the L2 is written back."""


def _named(*, scalar: bool, vector: bool, l2: bool, back: bool) -> frozenset[str]:
    asked = zip(LOAD_CACHES, (scalar, vector, l2), strict=True)
    return frozenset(name for name, wanted in asked if wanted) | (_WRITTEN if back else frozenset())


def of_acquire_gfx9(packet: AcquireMemGfx9) -> frozenset[str]:
    """Return the maintenance that COHER_CNTL of gfx9 asks for."""
    return _named(
        scalar=packet.SH_KCACHE or packet.KCACHE_VOL,
        vector=packet.TCL1 or packet.TCL1_VOL,
        l2=packet.TC,
        back=packet.TC_WB,
    )


def of_gcr(control: GcrCntl, generation: int) -> frozenset[str]:
    """Return the maintenance that GCR_CNTL asks for; before gfx12 vector caches need GLV_INV and GL1_INV."""
    vector = control.GLV_INV and (control.GL1_INV or generation >= 12)
    return _named(scalar=control.GLK_INV, vector=vector, l2=control.GL2_INV, back=control.GL2_WB)


def check_gcr(control: GcrCntl, what: str) -> None:
    """Raise `QueueFault` for a discard, and for maintenance of a range or part; `what` names the packet."""
    for name in ("GL1_RANGE", "GL2_RANGE", "GL2_US", "GL2_DISCARD", "RANGE_IS_PA"):
        if getattr(control, name):
            raise unsupported(f"{what} with {name}: caches are written back and invalidated whole")
    if control.GLI_INV > 1:
        raise unsupported(f"{what} with GLI_INV {control.GLI_INV}: 1 invalidates all of its cache")


def of_release(packet: ReleaseMem, generation: int) -> frozenset[str]:
    """Return the maintenance of a release: only CACHE_FLUSH_AND_INV_TS has any (docs/sources-amd.md, D15)."""
    if packet.EVENT_TYPE is not Event.CACHE_FLUSH_AND_INV_TS:
        return frozenset()
    if isinstance(packet, ReleaseMemGfx9):
        return _named(
            scalar=False,
            vector=packet.TCL1_ACTION or packet.TCL1_VOL_ACTION,
            l2=packet.TC_ACTION,
            back=packet.TC_WB_ACTION,
        )
    assert isinstance(packet, ReleaseMemGfx10)
    return _named(
        scalar=isinstance(packet, ReleaseMemGfx11) and packet.GLK_INV,
        vector=packet.GLV_INV and (generation >= 12 or packet.GL1_INV),
        l2=packet.GL2_INV,
        back=packet.GL2_WB,
    )


def of_scopes(packet: BitStruct) -> tuple[frozenset[str], frozenset[str]]:
    """Return the maintenance of an AQL packet's acquire fence and of its release fence."""
    header = Header.from_int(int(packet) & 0xFFFF)
    before = frozenset[str]() if header.ACQUIRE_SCOPE is FenceScope.NONE else frozenset(LOAD_CACHES)
    return before, _SCOPES[header.RELEASE_SCOPE]


_DATA_BYTES: Final = {
    DataSel.LOW_32: 4,
    DataSel.FULL_64: 8,
    DataSel.GPU_CLOCK: 8,
    DataSel.SYSTEM_CLOCK: 8,
    DataSel.ATOMIC_ADD_32: 4,
}
"""DATA_SEL -> bytes that the release stores; NONE stores nothing."""
_EVENTS: Final = {
    Event.CACHE_FLUSH_AND_INV_TS: EventIndex.END_OF_PIPE,
    Event.BOTTOM_OF_PIPE_TS: EventIndex.END_OF_PIPE,
    Event.CS_DONE: EventIndex.SHADER_DONE,
}
"""Legal EVENT_TYPE -> the EVENT_INDEX that belongs to it."""


def check_release(bus: Bus, packet: ReleaseMem, at: str, generation: int, *, alone: bool) -> None:
    """Raise `QueueFault` for a release that is not legal.

    A release whose store or interrupt may be early, lost or invisible is reported as unverified. `at` names
    the packet for reports; `alone` says that only one XCC executes it.
    """
    index = _EVENTS.get(packet.EVENT_TYPE)
    if index is None or index != packet.EVENT_INDEX:
        raise packet_fault(
            f"RELEASE_MEM with event {packet.EVENT_TYPE:#x}, EVENT_INDEX {packet.EVENT_INDEX:d}: an end of "
            f"pipe has {Event.CACHE_FLUSH_AND_INV_TS:#x} or {Event.BOTTOM_OF_PIPE_TS:#x} with 5, CS_DONE 6"
        )
    if not bus.queue.eop_va and alone:
        raise packet_fault("RELEASE_MEM on a queue that was created without an end-of-pipe buffer")
    if isinstance(packet, ReleaseMemGfx10) and generation < 12 and packet.GLM_WB and not packet.GLM_INV:
        raise packet_fault("RELEASE_MEM has GLM_WB without GLM_INV")
    _check_fields(bus, packet, at)
    va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
    if packet.DATA_SEL is DataSel.ATOMIC_ADD_32 and generation < 10:
        raise packet_fault(f"{at} adds to memory, which gfx{generation} cannot")
    if packet.DATA_SEL is not DataSel.NONE:
        size = _DATA_BYTES[packet.DATA_SEL]
        bus.aligned(va, RELEASE_ALIGN_64 if size == 8 else size, "RELEASE_MEM")
    if packet.INT_SEL not in (IntSel.NONE, IntSel.DATA_AFTER_WRITE) and not packet.INT_CTXID:
        bus.report_unverified("RELEASE_MEM interrupts with context 0, which names no event")
    if packet.INT_SEL is IntSel.INTERRUPT:
        bus.report_unverified("RELEASE_MEM interrupts before its store has arrived, and may be early")
    for name in ("EXECUTE", "PQ_EXE_STATUS"):
        if getattr(packet, name, 0):
            bus.report_unverified(f"{at} with {name}: no source says what it does")


def _check_fields(bus: Bus, packet: ReleaseMem, at: str) -> None:
    """Report fields without effect, and a store that the host may not see; refuse partial maintenance."""
    if packet.DST_SEL is not ReleaseDst.MEMORY:
        bus.report_unverified(f"{at} stores to the L2, where the host may not see it")
    for name in ("GL2_DISCARD", "GL2_RANGE", "GL2_US"):
        if getattr(packet, name, 0):
            raise unsupported(f"{at} with {name}: the L2 is written back and invalidated whole")
    data = {
        DataSel.LOW_32: packet.DATA_HI, DataSel.ATOMIC_ADD_32: packet.DATA_HI, DataSel.FULL_64: 0,
    }.get(packet.DATA_SEL, packet.DATA_LO | packet.DATA_HI)  # fmt: skip
    if data:
        bus.report_unverified(f"{at} has data {data:#x}, which {packet.DATA_SEL.name} does not store")
    if packet.INT_CTXID and packet.INT_SEL in (IntSel.NONE, IntSel.DATA_AFTER_WRITE):
        bus.report_unverified(f"{at} has context {packet.INT_CTXID:#x} and raises no interrupt")


def release(bus: Bus, packet: ReleaseMem, generation: int, xcc: int | None) -> None:
    """Execute a release: maintain caches, store, interrupt. `xcc` maintains its caches; None for all XCCs."""
    va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
    what, data = "RELEASE_MEM", wide(packet.DATA_LO, packet.DATA_HI)
    maintained = of_release(packet, generation)
    bus.maintain(maintained, xcc)
    if packet.DATA_SEL in (DataSel.LOW_32, DataSel.FULL_64) and SYSTEM not in maintained:
        bus.on_unflushed_release(what)
    if packet.DATA_SEL in (DataSel.GPU_CLOCK, DataSel.SYSTEM_CLOCK):
        data = bus.clock()
    if packet.DATA_SEL is DataSel.ATOMIC_ADD_32:
        bus.store(va, bus.load(va, 4, what) + packet.DATA_LO, 4, what, adds=True)
    elif packet.DATA_SEL is not DataSel.NONE:
        bus.store(va, data, _DATA_BYTES[packet.DATA_SEL], what)
    if packet.INT_SEL not in (IntSel.NONE, IntSel.DATA_AFTER_WRITE):
        bus.interrupt(packet.INT_CTXID, END_OF_PIPE_CONTEXT_BITS)
