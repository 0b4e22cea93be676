"""Rings and signals: pointers, doorbells, ends of rings, records, clocks, what a timeline may hold.

Source: Linux 6.12.107, libhsakmt, kfdtest (PM4 and SDMA queues) and ROCr (AQL queues).
"""

# fmt: off
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ring:
    """What one kind of ring counts in; bytes where nothing else is said."""

    unit: int
    """Bytes that the write pointer counts as one."""
    minimum: int
    maximum: int | None
    doorbell_behind: int
    """The doorbell takes the write pointer less this."""
    read_bits: int
    """Bits of the read pointer that mean something."""
    read_wraps: bool
    """The read pointer restarts at 0 at the end of the ring."""
    filler: int
    """A word that fills the end of a ring; for AQL the header that stops the CP."""
    kept_free: int
    """Units that must stay free in a full ring."""


RINGS = {
    "PM4": Ring(4, 1024, None, 0, 32, True, 0xFFFF1000, 1),
    "AQL": Ring(64, 64 * 64, 131072 * 64, 1, 64, False, 1, 0),
    "SDMA": Ring(1, 1024, None, 0, 64, False, 0x00000000, 1),
}
"""AQL's write pointer is the number of packets written. PM4 also takes 0x80000000 as a filler."""
POINTER_BYTES, DOORBELL_BYTES = 8, 8
SDMA_RING_USED = 1 << 20
"""At least, by the kernel and the thunk."""

FREE_VECTORS_PM4 = ((0, 0, 256, 255), (10, 5, 256, 4), (5, 10, 256, 250), (0, 255, 256, 0))
"""(read index, write pointer, ring dwords, free dwords): (read - 1 - write) mod ring."""

TINYGRAD_SIGNAL = {"value": 0, "timestamp": 8, "bytes": 16}
SIGNAL_RECORD = {"value": 0, "start": 32, "end": 40, "bytes": 64}
"""A record whose time stamps are aligned to 32 bytes as SDMA wants them, but for the end's."""

COMPARE_BITS = 32
WRAP_DRAIN = 1 << 31
"""Where the low half of a timeline nears it, queues are drained."""
RELEASE_EVENT, RELEASE_INDEX, WAIT_FUNCTION, SDMA_WAIT_FUNCTION, SDMA_RETRY = 0x14, 5, 5, 5, 0xFFF

CLOCK_HZ = {"dGPU": 100_000_000, "soc21 APU": 99_810_000}
"""Nominal; DEV_INFO tells it in kHz."""
SOC21_APU_XCLK = 9981
SMALL_WAIT_TIMEOUT_MS = 200
