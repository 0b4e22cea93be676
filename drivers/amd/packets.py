"""PM4 words: the packet sequences that this driver sends, as tuples of words.

Functions take addresses and return words. `Pm4Words` has the sequences that depend on the generation or on a
quirk, which are packed once.

Not here: the order of the sequences (`encode`), a kernel's launch (`launch`), the packets' fields
(`drivers.amd.layouts`). Next: `encode`.
"""

from __future__ import annotations

from typing import Final

from drivers.amd.layouts import pm4
from drivers.amd.layouts.chips import AmdChip
from drivers.amd.layouts.pm4_generations import ACQUIRE, RELEASE, GcrCntl
from drivers.amd.quirks import AmdQuirks

Words = tuple[int, ...]

_LOW: Final = 0xFFFF_FFFF
_GFX9: Final = 9
_GFX12: Final = 12

FLUSH: Final = pm4.EventWrite.pack(
    EVENT_TYPE=pm4.Event.CS_PARTIAL_FLUSH, EVENT_INDEX=pm4.EventIndex.CS_PARTIAL_FLUSH
)
"""Words that wait until all earlier kernels are done."""
WAIT_VALUE: Final = 4
"""Index of the value in the words of a wait."""
RELEASE_VALUE: Final = 5
"""Index of the value, low dword first, in the words of a release (`Pm4Words.signal`)."""
STORE_ADDRESS: Final = 2
STORE_VALUE: Final = 4
"""Indices of the address and of the value in the words of a `store`."""
_SIZE_HI: Final = 3
"""Index of COHER_SIZE_HI in an ACQUIRE_MEM."""
DMA_SOURCE: Final = 2
DMA_TARGET: Final = 4
DMA_BYTES: Final = 6
"""Indices, in the words of a copy or fill, of the source or value, the destination and the number of
bytes."""


def set_registers(first: int, *values: int) -> Words:
    """Set consecutive SH registers; `first` is the offset of the first one from their base, in dwords."""
    return (*pm4.SetShReg.pack(COUNT=len(values), REG_OFFSET=first), *values)


def indirect(va: int, words: int) -> Words:
    """Run `words` dwords of packets at `va`."""
    return pm4.IndirectBuffer.pack(ADDRESS_LO=va & _LOW, ADDRESS_HI=va >> 32, IB_SIZE=words, VALID=True)


def on_first_xcc(words: int) -> Words:
    """Restrict the next `words` dwords to the first XCC."""
    return pm4.PredExec.pack(EXEC_COUNT=words, DEVICE_SELECT=1)


def store(va: int, values: Words) -> Words:
    """Store dwords through L2 and wait until they have arrived."""
    head = pm4.WriteData.pack(
        COUNT=2 + len(values),
        DST_SEL=pm4.WriteDst.L2,
        WR_CONFIRM=True,
        ADDRESS_LO=va & _LOW,
        ADDRESS_HI=va >> 32,
    )
    return (*head, *values)


def copy(dst: int, src: int, size: int, *, last: bool) -> Words:
    """Copy `size` bytes through L2; with `last` the queue waits until all bytes have arrived."""
    return pm4.DmaData.pack(
        SRC_SEL=pm4.DmaSrc.L2,
        DST_SEL=pm4.DmaDst.L2,
        CP_SYNC=last,
        SRC_LO=src & _LOW,
        SRC_HI=src >> 32,
        DST_LO=dst & _LOW,
        DST_HI=dst >> 32,
        BYTE_COUNT=size,
    )


def fill(dst: int, value: int, size: int, *, last: bool) -> Words:
    """Fill `size` bytes with a u32 through L2; with `last` the queue waits until all have arrived."""
    return pm4.DmaData.pack(
        SRC_SEL=pm4.DmaSrc.DATA,
        DST_SEL=pm4.DmaDst.L2,
        CP_SYNC=last,
        SRC_LO=value,
        SRC_HI=0,
        DST_LO=dst & _LOW,
        DST_HI=dst >> 32,
        BYTE_COUNT=size,
    )


class Pm4Words:
    """The sequences that depend on the generation and on quirks."""

    def __init__(self, target: AmdChip, choices: AmdQuirks) -> None:
        self._generation = int(target.generation)
        self._choices = choices
        self.acquire_launch = self._acquire(l2=False, code=False)
        """Invalidates the data caches above L2."""
        self.acquire_system = self._acquire(l2=True, code=False)
        """Writes back and invalidates all data caches; needed after other agents have stored to memory."""
        self.acquire_code = self._acquire(l2=True, code=True)
        """Invalidates all caches, including the instruction cache."""
        self.write_back = self._acquire(l2=True, code=False, invalidate=False)
        """Writes L2 back; needed before other agents read memory."""
        self._release = self._release_control()
        self._no_interrupt = pm4.IntSel.DATA_AFTER_WRITE if choices.release_confirm else pm4.IntSel.NONE
        bottom = choices.release_event == "bottom"
        self._event = pm4.Event.BOTTOM_OF_PIPE_TS if bottom else pm4.Event.CACHE_FLUSH_AND_INV_TS
        self._wait_tail = pm4.WaitRegMem.pack(
            FUNCTION=pm4.Function.GE,
            MEM_SPACE=pm4.MemSpace.MEMORY,
            ADDRESS_LO=0,
            ADDRESS_HI=0,
            REFERENCE=0,
            MASK=pm4.ALL_BITS,
            POLL_INTERVAL=pm4.WAIT_POLL_INTERVAL,
            OPTIMIZE_ACE_OFFLOAD_MODE=choices.ace_offload,
        )
        value = pm4.DataSel.FULL_64 if choices.signal_bits == "64" else pm4.DataSel.LOW_32
        self._signal = self._store(value, visible=True)
        self._time = self._store(pm4.DataSel.GPU_CLOCK, visible=False)
        self._interrupt = self._store(value, visible=False, interrupt=True)

    def wait(self, va: int, value: int) -> Words:
        """Wait until the u32 at `va` is >= `value`."""
        head, control, _, _, _, mask, poll = self._wait_tail
        return (head, control, va & _LOW, va >> 32, value, mask, poll)

    def signal(self, va: int, value: int) -> Words:
        """Store a u64 when all earlier work is done and visible to every agent."""
        head, control, select, _, _, _, _, context = self._signal
        return (head, control, select, va & _LOW, va >> 32, value & _LOW, value >> 32, context)

    def timestamp(self, va: int) -> Words:
        """Store the GPU's clock, a u64 of ticks, when all earlier work is done."""
        head, control, select, _, _, _, _, context = self._time
        return (head, control, select, va & _LOW, va >> 32, 0, 0, context)

    def interrupt(self, slot_va: int, number: int) -> Words:
        """Store the number of an event to its slot, then interrupt the host."""
        head, control, select, *_ = self._interrupt
        return (head, control, select, slot_va & _LOW, slot_va >> 32, number, 0, number)

    def _acquire(self, *, l2: bool, code: bool, invalidate: bool = True) -> Words:
        whole = {"SIZE_LO": pm4.ALL_BITS, "SIZE_HI": 0xFF, "POLL_INTERVAL": pm4.ACQUIRE_POLL_INTERVAL}
        layout, more = ACQUIRE[self._generation], (1 << int(self._choices.coher_size)) - 1
        if self._generation == _GFX9:
            upper = {"TCL1": True, "SH_KCACHE": True, "SH_ICACHE": code, "TC": l2} if invalidate else {}
            return _widened(layout.pack(**whole, **upper, TC_WB=l2), more)
        older = invalidate and self._generation < _GFX12
        control = GcrCntl(
            GLI_INV=pm4.GLI_INV_ALL if code else 0,
            GLM_WB=older,
            GLM_INV=older,
            GLK_INV=invalidate,
            GLV_INV=invalidate,
            GL1_INV=older,
            GL2_INV=l2 and invalidate,
            GL2_WB=l2,
        )
        return _widened(layout.pack(**whole, GCR_CNTL=int(control)), more)

    def _release_control(self) -> dict[str, int]:
        """Return the cache operations of a release to all agents."""
        policy = self._choices.release_policy
        if self._generation == _GFX9:
            caches = dict.fromkeys(("TC_WB_ACTION", "TC_ACTION"), 1)
            if self._choices.release_caches == "all":
                caches |= dict.fromkeys(("TCL1_ACTION", "TC_MD_ACTION"), 1)
            return caches | ({"CACHE_POLICY": pm4.CACHE_BYPASS} if policy == "bypass" else {})
        caches = dict.fromkeys(("GL2_WB", "GL2_INV", "GLV_INV"), 1) | {"SEQ": pm4.Sequence.FORWARD}
        if self._generation == _GFX12:
            return caches | ({} if policy == "lru" else {"TEMPORAL": pm4.TEMPORAL_HINT})
        caches |= dict.fromkeys(("GLM_WB", "GLM_INV", "GL1_INV"), 1)
        return caches | ({"CACHE_POLICY": pm4.CACHE_BYPASS} if policy == "bypass" else {})

    def _store(self, data: pm4.DataSel, *, visible: bool, interrupt: bool = False) -> Words:
        return RELEASE[self._generation].pack(
            EVENT_TYPE=self._event,
            EVENT_INDEX=pm4.EventIndex.END_OF_PIPE,
            INT_SEL=pm4.IntSel.INTERRUPT_AFTER_WRITE if interrupt else self._no_interrupt,
            DATA_SEL=data,
            ADDRESS_LO=0,
            ADDRESS_HI=0,
            DATA_LO=0,
            DATA_HI=0,
            INT_CTXID=0,
            **(self._release if visible else {}),
        )


def _widened(acquire: Words, size_hi: int) -> Words:
    """Return an ACQUIRE_MEM with the bits `size_hi` set in its word COHER_SIZE_HI, also outside the field."""
    return (*acquire[:_SIZE_HI], acquire[_SIZE_HI] | size_hi, *acquire[_SIZE_HI + 1 :])
