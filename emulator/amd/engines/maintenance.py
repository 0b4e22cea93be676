"""Which caches each packet maintains, and RELEASE_MEM: which are legal, and what one does at its turn.

Bits of ACQUIRE_MEM, RELEASE_MEM and GCR_REQ, scopes of AQL; the names are those of `coherence`. Source:
docs/facts/amd-caches.md.

Not here: when all before a release is over (`pm4`, `order`), the effect on caches (`coherence`).
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
from emulator.amd.engines.errors import packet_fault, unsupported
from emulator.amd.engines.packets import wide

if TYPE_CHECKING:
    from drivers.amd.layouts.pm4_generations import GcrCntl, ReleaseMem
    from emulator.amd.engines.bus import Bus
    from hcq.layout import BitStruct

_WRITTEN: Final = frozenset({AGENT, SYSTEM})
_SCOPES: Final = {
    FenceScope.NONE: frozenset[str](), FenceScope.AGENT: frozenset({AGENT}), FenceScope.SYSTEM: _WRITTEN,
}  # fmt: skip


def _named(*, scalar: bool, vector: bool, l2: bool, back: bool) -> frozenset[str]:
    asked = zip(LOAD_CACHES, (scalar, vector, l2), strict=True)
    return frozenset(name for name, wanted in asked if wanted) | (_WRITTEN if back else frozenset())


def of_acquire_gfx9(packet: AcquireMemGfx9) -> frozenset[str]:
    """Return what COHER_CNTL asks for."""
    return _named(
        scalar=packet.SH_KCACHE or packet.KCACHE_VOL,
        vector=packet.TCL1 or packet.TCL1_VOL,
        l2=packet.TC,
        back=packet.TC_WB,
    )


def of_gcr(control: GcrCntl, generation: int) -> frozenset[str]:
    """Return what GCR_CNTL asks for; the vector caches are L0 and, before gfx12, GL1."""
    vector = control.GLV_INV and (control.GL1_INV or generation >= 12)
    return _named(scalar=control.GLK_INV, vector=vector, l2=control.GL2_INV, back=control.GL2_WB)


def check_gcr(control: GcrCntl, what: str) -> None:
    """Refuse operations on ranges, and those that drop what was not written back."""
    for name in ("GL1_RANGE", "GL2_RANGE", "GL2_US", "GL2_DISCARD", "RANGE_IS_PA"):
        if getattr(control, name):
            raise unsupported(f"{what} with {name}: caches are written back and invalidated whole")
    if control.GLI_INV > 1:
        raise unsupported(f"{what} with GLI_INV {control.GLI_INV}: 1 invalidates all of its cache")


def of_release(packet: ReleaseMem, generation: int) -> frozenset[str]:
    """Return what a release maintains; only CACHE_FLUSH_AND_INV_TS does (docs/sources-amd.md, D15)."""
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
    """Return what the fences of an AQL packet maintain, before and after it."""
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
_EVENTS: Final = {
    Event.CACHE_FLUSH_AND_INV_TS: EventIndex.END_OF_PIPE,
    Event.BOTTOM_OF_PIPE_TS: EventIndex.END_OF_PIPE,
    Event.CS_DONE: EventIndex.SHADER_DONE,
}


def check_release(bus: Bus, packet: ReleaseMem, at: str, generation: int, *, alone: bool) -> None:
    """Refuse a release that is not legal, and object to one that may be early, lost or hidden.

    `at` names its place; `alone` says that one XCC executes it. Raises `QueueFault`; doubts go to the bus.
    """
    index = _EVENTS.get(packet.EVENT_TYPE)
    if index is None or index != packet.EVENT_INDEX:
        raise packet_fault(
            f"RELEASE_MEM with event {packet.EVENT_TYPE:#x}, EVENT_INDEX {packet.EVENT_INDEX:d}: an end "
            "of pipe has "
            f"{Event.CACHE_FLUSH_AND_INV_TS:#x} or {Event.BOTTOM_OF_PIPE_TS:#x} with 5, CS_DONE 6"
        )
    if not bus.queue.eop_va and alone:
        raise packet_fault("RELEASE_MEM on a queue that was created without an end-of-pipe buffer")
    if isinstance(packet, ReleaseMemGfx10) and generation < 12 and packet.GLM_WB and not packet.GLM_INV:
        raise packet_fault("RELEASE_MEM has GLM_WB without GLM_INV")
    _check_fields(bus, packet, at)
    va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
    if packet.DATA_SEL is DataSel.ATOMIC_ADD_32 and generation < 10:
        raise packet_fault(f"{at} adds to memory, which gfx{generation} cannot (facts 4.2)")
    if packet.DATA_SEL is not DataSel.NONE:
        size = _DATA_BYTES[packet.DATA_SEL]
        bus.aligned(va, RELEASE_ALIGN_64 if size == 8 else size, "RELEASE_MEM")
    if packet.INT_SEL not in (IntSel.NONE, IntSel.DATA_AFTER_WRITE) and not packet.INT_CTXID:
        bus.doubt("RELEASE_MEM interrupts with context 0, which names no event")
    if packet.INT_SEL is IntSel.INTERRUPT:
        bus.doubt("RELEASE_MEM interrupts before its store has arrived, and may be early")
    for name in ("EXECUTE", "PQ_EXE_STATUS"):
        if getattr(packet, name, 0):
            bus.doubt(f"{at} with {name}: no source says what it does")


def _check_fields(bus: Bus, packet: ReleaseMem, at: str) -> None:
    """Object to fields that have no effect, and to operations that lose or hide what was stored."""
    if packet.DST_SEL is not ReleaseDst.MEMORY:
        bus.doubt(f"{at} stores to the L2, where the host may not see it")
    for name in ("GL2_DISCARD", "GL2_RANGE", "GL2_US"):
        if getattr(packet, name, 0):
            raise unsupported(f"{at} with {name}: the L2 is written back and invalidated whole")
    data = {
        DataSel.LOW_32: packet.DATA_HI, DataSel.ATOMIC_ADD_32: packet.DATA_HI, DataSel.FULL_64: 0,
    }.get(packet.DATA_SEL, packet.DATA_LO | packet.DATA_HI)  # fmt: skip
    if data:
        bus.doubt(f"{at} has data {data:#x}, which {packet.DATA_SEL.name} does not store")
    if packet.INT_CTXID and packet.INT_SEL in (IntSel.NONE, IntSel.DATA_AFTER_WRITE):
        bus.doubt(f"{at} has context {packet.INT_CTXID:#x} and raises no interrupt")


def release(bus: Bus, packet: ReleaseMem, generation: int, xcc: int | None) -> None:
    """Maintain caches, store and interrupt; `xcc` is the one that does, None if it is the only one."""
    va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
    what, data = "RELEASE_MEM", wide(packet.DATA_LO, packet.DATA_HI)
    maintained = of_release(packet, generation)
    bus.maintain(maintained, xcc)
    if packet.DATA_SEL in (DataSel.LOW_32, DataSel.FULL_64) and SYSTEM not in maintained:
        bus.told(what)
    if packet.DATA_SEL in (DataSel.GPU_CLOCK, DataSel.SYSTEM_CLOCK):
        data = bus.clock()
    if packet.DATA_SEL is DataSel.ATOMIC_ADD_32:
        bus.store(va, bus.load(va, 4, what) + packet.DATA_LO, 4, what, adds=True)
    elif packet.DATA_SEL is not DataSel.NONE:
        bus.store(va, data, _DATA_BYTES[packet.DATA_SEL], what)
    if packet.INT_SEL not in (IntSel.NONE, IntSel.DATA_AFTER_WRITE):
        bus.interrupt(packet.INT_CTXID, END_OF_PIPE_CONTEXT_BITS)
