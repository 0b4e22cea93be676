"""A ring of the `cpu` device: words are copied into it, then a native call rings its processor.

The control memory that it lies in and the threads are the device's (`device`); what a packet means is in
`layouts`.

Next: `device`, the owner; `processor`, the reader.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from drivers.cpu.layouts import PACKET, Op
from hcq.errors import DeviceFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.cpu.device import CpuDevice
    from drivers.cpu.layouts import Queue
    from hcq.pushbuffer import PushBuffer

RING_PACKETS = 4096
RING_BYTES = RING_PACKETS * PACKET
_RING_WORDS = RING_BYTES // 8


def _nothing(_words: int) -> None:
    """Do nothing."""


class CpuRing:
    """One ring of a device. The caller holds the queue's lock around `submit`."""

    def __init__(self, device: CpuDevice, label: str, queue: Queue, memory: memoryview) -> None:
        self._device = device
        self.label = label
        self.queue = queue
        self._words = memory.cast("Q")
        self._write = 0
        self._read = 0
        """What `queue.read` was when last looked at."""
        self.stalled: Callable[[int], None] = _nothing
        """See `hcq.driver.Ring`; the two below, too."""
        self.words = _RING_WORDS
        self.submissions = RING_PACKETS
        self._bell = device.native_ring
        self._state = queue.va

    @property
    def taken(self) -> int:
        """Bytes ever written to the ring; see `hcq.driver.Ring`."""
        return self._write

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Copy the words into the ring and write the doorbell; sleep while there is no room."""
        words = pushbuffer.words
        if words.__class__ is not array:  # prebuilt words are one
            try:
                words = array("Q", words)
            except (OverflowError, TypeError) as error:
                raise UsageError(f"a word of the stream does not fit 64 bits: {error}") from None
        count = len(words)
        write = self._write
        end = write + 8 * count
        if end - self._read > RING_BYTES:
            self._wait_for_room(8 * count)
        first = (write >> 3) % _RING_WORDS
        room = _RING_WORDS - first
        if count <= room:
            self._words[first : first + count] = words
        else:
            self._words[first:] = words[:room]
            self._words[: count - room] = words[room:]
        self._write = end
        self._bell(self._state, end)

    def restart(self) -> None:
        """Begin anew with an empty ring: the queue's record is zero again."""
        self._write = self._read = 0

    def _wait_for_room(self, size: int) -> None:
        if size > RING_BYTES:
            raise UsageError(
                f"{size // PACKET} packets do not fit the ring of {RING_PACKETS}\n"
                "hint: `hcq.Queue.submit` sends so many from memory of their own"
            )
        device, queue = self._device, self.queue
        needed = self._write + size - RING_BYTES
        wanted = max(needed, self._write - RING_BYTES // 2)  # sleep once for half a ring, not for each packet
        while queue.read < needed:
            device.native_space(self._state, wanted, device.poll_va)
            if queue.read < needed:
                self.stalled(size // 8)
            report = device.fault()
            if report is not None:
                raise DeviceFault(report)
            device.require_open()
        self._read = queue.read

    def stuck(self) -> str:
        """Return which packet is in execution, as far as that can be read meanwhile."""
        queue = self.queue
        op, signal, first, second = queue.op, queue.stuck, queue.first, queue.second
        behind = max(0, self._write - queue.read) // PACKET - 1
        if op == Op.WAIT and not (signal and signal == queue.stuck == first):
            return ""  # between two packets: `first` may be an operand of the next one, and no signal
        text = self._device.describe(op, first, second)
        packets = "1 packet" if behind == 1 else f"{behind} packets"
        return f"{text}, {packets} behind it" if text and behind > 0 else text

    def close(self) -> None:
        """Stop the device: its threads serve all queues."""
        self._device.stop()
