"""A ring of the `cpu` device: words are copied into it, then a native call writes the doorbell.

Not here: its memory and the threads, which the device owns (`device`), the packets (`layouts`). Next:
`processor`, the reader.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from drivers.cpu.layouts import PACKET, Op, Queue
from hcq.errors import DeviceFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.cpu.device import CpuDevice
    from hcq.pushbuffer import PushBuffer

RING_PACKETS = 4096
"""The size of a ring in packets, a power of two."""
RING_BYTES = RING_PACKETS * PACKET
_RING_WORDS = RING_BYTES // 8


class CpuRing:
    """One ring of a device; see `hcq.driver.Ring`. The caller holds the queue's lock around `submit`."""

    def __init__(self, device: CpuDevice, label: str, queue: Queue, memory: memoryview) -> None:
        self._device = device
        self.label = label
        self.queue = queue
        self._words = memory.cast("Q")
        self._write = 0
        self._read = 0
        """The last value read from `queue.read`."""
        self.stalled: Callable[[int], None] = lambda _until: None
        """This attribute and the next two: see `hcq.driver.Ring`."""
        self.words = _RING_WORDS
        self.submissions = RING_PACKETS
        self._doorbell = device.native_ring
        self._state = queue.va

    @property
    def taken(self) -> int:
        """Total bytes written to the ring; see `hcq.driver.Ring`."""
        return self._write

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Copy the words into the ring and write the doorbell; see `hcq.driver.Ring`.

        Blocks while the ring has no space. Raises `UsageError` for a word above 64 bits and for too many
        words; while it waits `DeviceFault` after a fault, `UsageError` after a close, and as `stalled`.
        """
        words = pushbuffer.words
        if words.__class__ is not array:  # the encoder makes an array
            try:
                words = array("Q", words)
            except (OverflowError, TypeError) as error:
                raise UsageError(f"a word of the stream does not fit 64 bits: {error}") from None
        count = len(words)
        write = self._write
        end = write + 8 * count
        if end - self._read > RING_BYTES:
            self._wait_for_space(8 * count)
        first = (write >> 3) % _RING_WORDS
        last = first + count
        if last <= _RING_WORDS:
            self._words[first:last] = words
        else:
            self._words[first:] = words[: _RING_WORDS - first]
            self._words[: last - _RING_WORDS] = words[_RING_WORDS - first :]
        self._write = end
        self._doorbell(self._state, end)

    def unread(self, ending_words: int) -> int:
        """Return the least number of unread bytes of a submission while the queue waits inside it.

        A packet counts as read when it is done, so they are the wait and the packets that end the submission.
        """
        return 8 * ending_words + PACKET

    def restart(self) -> None:
        """Reset to an empty ring, after the device has cleared the queue's record."""
        self._write = self._read = 0

    def _wait_for_space(self, size: int) -> None:
        """Wait until `size` bytes are free. Raises as `submit` does."""
        if size > RING_BYTES:
            raise UsageError(
                f"{size // PACKET} packets do not fit the ring of {RING_PACKETS}\n"
                "hint: use `hcq.Queue.submit`, which places long streams in memory outside the ring"
            )
        device, queue = self._device, self.queue
        needed = self._write + size - RING_BYTES
        wanted = max(needed, self._write - RING_BYTES // 2)  # one sleep for half a ring, not for each packet
        while queue.read < needed:
            device.native_space(self._state, wanted, device.poll_va)
            if queue.read < needed:
                self.stalled(needed)
            report = device.fault()
            if report is not None:
                raise DeviceFault(report)
            device.require_open()
        self._read = queue.read

    def stuck(self) -> str:
        """Describe the packet in execution and the number of packets after it.

        "" if there is none, or if the processor is between two packets and their operands may be mixed.
        """
        queue = self.queue
        op, signal, first, second = queue.op, queue.stuck, queue.first, queue.second
        later = max(0, self._write - queue.read) // PACKET - 1
        if op == Op.WAIT and not (signal and signal == queue.stuck == first):
            return ""  # between two packets: `first` may already be an operand of the next one
        text = self._device.describe(op, first, second)
        packets = "1 packet" if later == 1 else f"{later} packets"
        return f"{text}, {packets} after it" if text and later > 0 else text

    def close(self) -> None:
        """Stop the whole device, because its threads serve all queues."""
        self._device.stop()
