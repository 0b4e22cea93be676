"""The cpu device's packets: sizes and where operands lie.

Source: the design of the command processor: packets are one cache line of eight u64 words, so that none wraps
in a ring that is a power of two, and a patch of word w of packet i is at 64 * i + 8 * w.
"""

# fmt: off
PACKET_BYTES, PACKET_WORDS, WORD_BYTES = 64, 8, 8

OPERANDS: dict[str, tuple[str, ...]] = {
    "EXEC": ("function", "args", "x", "y", "z", "group_ns"),
    "INDIRECT": ("packets", "count"),
    "PATCH": ("values", "plan", "count"),
}
"""Packet -> its operands in words 1, 2, ... (word 0 is the operation)."""
PACKETS = ("EXEC", "COPY", "FILL", "WAIT", "SIGNAL", "TIMESTAMP", "BARRIER", "INDIRECT", "PATCH")

SIGNAL_BYTES, SIGNAL_VALUE_OFFSET, STAMP_BYTES = 64, 0, 32
WAITER_COUNTERS = 64

FUTEX_WORDS = ("write", "freed", "done")
"""Words of a queue on whose low half somebody sleeps."""
EXAMPLE_EXEC = (0x7F00_0000_1000, 0x7F00_0000_2000, 4, 3, 2, 250)
"""function, args, x, y, z, estimated nanoseconds a group."""
