"""Which caches each packet maintains: the bits of ACQUIRE_MEM, RELEASE_MEM and GCR_REQ, the scopes of AQL.

Names are those of `coherence`. Source: facts/amd.md 4.2, 5; docs/facts/amd-caches.md. Not here: the effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.emu.engines.coherence import AGENT, LOAD_CACHES, SYSTEM
from drivers.amd.emu.engines.errors import unsupported
from drivers.amd.layouts.aql import FenceScope, Header
from drivers.amd.layouts.pm4 import Event
from drivers.amd.layouts.pm4_generations import (
    AcquireMemGfx9,
    ReleaseMemGfx9,
    ReleaseMemGfx10,
    ReleaseMemGfx11,
)

if TYPE_CHECKING:
    from drivers.amd.layouts.pm4_generations import GcrCntl, ReleaseMem
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
    """Return what a release maintains; only CACHE_FLUSH_AND_INV_TS does (facts D15)."""
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
