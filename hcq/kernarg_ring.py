"""The argument memory of direct submissions, and the values of their parameters.

Each queue has one ring of coherent host memory. The blocks of a submission follow those of the previous one,
and are freed when its point is reached. When the ring is full the queue waits for its oldest submission. A
submission that needs more than the whole ring gets a buffer of its own while it is in flight. `write_values`
checks values, and writes them into the words and argument blocks of a submission.

Not here: packing arguments (`kernargs`), the parameters (`params`), replays (`hcq.replay.slot`,
`hcq.replay.relocations`). Next: `queue`, the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hcq.commands import Command, check_ranges, opened
from hcq.errors import UsageError, UsageTypeError
from hcq.hardware import BufferSpec, Place
from hcq.memory import Buffer, Owner
from hcq.params import Param, Value, check_reach, look_up, piece, reaches, resolve
from hcq.pushbuffer import PushBuffer

RING_BYTES = 1 << 20
"""Bytes of the ring of a queue, unless `Config.ring_bytes` says otherwise."""
ARGUMENTS = BufferSpec(place=Place.HOST, host_visible=True, coherent=True, upload=True)
"""The kind of memory of argument blocks and prebuilt words."""


class ArgumentRing:
    """The argument ring of one queue, which holds its lock around every call. Made with `Device.alloc`."""

    __slots__ = ("_at", "_buffer", "_device", "_retire_oldest", "_view", "extra", "tail")

    def __init__(
        self, device: Owner, retire_oldest: Callable[[], bool], *, label: str, size: int = RING_BYTES
    ) -> None:
        self._device = device
        self._retire_oldest = retire_oldest
        """Waits for the oldest submission in flight and retires it; returns False when there is none."""
        self._buffer = device.alloc(size, ARGUMENTS, label=f"arguments of {label}")
        self._view = self._buffer.borrow().cast("Q")
        self.tail = 0
        """Byte offset of the oldest block in flight."""
        self.extra: list[Buffer] = []
        """Buffers of the current submission beside the ring."""
        self._at = 0
        """Byte offset of the ring's free space when the current submission left the ring."""

    def start(self, pushbuffer: PushBuffer) -> None:
        """Point a push buffer at the empty ring."""
        pushbuffer.view, pushbuffer.base = self._view, self._buffer.va
        pushbuffer.at, pushbuffer.limit = 0, self._buffer.size

    def restart(self, pushbuffer: PushBuffer) -> None:
        """Empty the ring, which no work in flight reads any more, and point a push buffer at it."""
        self.tail, self.extra = 0, []
        self.start(pushbuffer)

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        """Point `pushbuffer` at `size` free bytes; see `ArgumentMemory.room`.

        Raises as `Device.alloc` and as the wait for the oldest submission do.
        """
        end = self._buffer.size
        while not self.extra:
            at, tail = pushbuffer.at, self.tail
            if at >= tail and at + size <= end:
                pushbuffer.limit = end
                return
            if at >= tail and size < tail:
                # One byte stays free, so that full differs from empty.
                pushbuffer.at, pushbuffer.limit = 0, tail - 1
                return
            if at < tail and at + size < tail:
                pushbuffer.limit = tail - 1
                return
            if not self._retire_oldest():
                self._at = pushbuffer.at
                break
        buffer = self._device.alloc(max(size, end), ARGUMENTS, label="arguments of one large submission")
        self.extra.append(buffer)
        pushbuffer.view, pushbuffer.base = buffer.borrow().cast("Q"), buffer.va
        pushbuffer.at, pushbuffer.limit = 0, buffer.size

    def finish(self, pushbuffer: PushBuffer) -> list[Buffer]:
        """End a submission: return to the ring. Return the buffers beside it, to be kept while in flight."""
        extra = self.extra
        if extra:
            self.extra = []
            pushbuffer.view, pushbuffer.base, pushbuffer.at, pushbuffer.limit = (
                self._view,
                self._buffer.va,
                self._at,
                self._at,
            )
        return extra

    def write(self, va: int, lo: int, width: int, value: int) -> None:
        """Store `value` into bits [lo, lo + width) of the number at `va`, which are 0.

        Raises `UsageError` for an address that this submission has not placed.
        """
        for buffer in (self._buffer, *self.extra):
            if buffer.va <= va < buffer.va + buffer.size:
                at = va - buffer.va
                part = buffer.borrow()[at : at + (lo + width + 7) // 8]
                part[:] = (int.from_bytes(part, "little") | value << lo).to_bytes(len(part), "little")
                return
        raise UsageError(f"a patch at {va:#x} lies outside the blocks of this submission")


def write_values(
    pushbuffer: PushBuffer,
    arguments: ArgumentRing,
    commands: Sequence[Command],
    values: Mapping[Param, Value] | None,
    device: Owner,
) -> list[Value]:
    """Write the values of Params into the encoded words of `commands`, and into their argument blocks.

    Returns the values, to be kept while the submission is in flight. Raises `UsageError` for a Param without
    a value, or with one that does not fit; `UsageTypeError` for one of another class.
    """
    given: list[Value] = []
    pointers, _ = opened(commands)
    if values:
        for command in commands:
            check_ranges(command, values)
    for patch, reach in zip(pushbuffer.patches, reaches(pushbuffer.patches), strict=True):
        param = patch.expr.param
        value = look_up(param, values)
        if isinstance(value, Buffer) is not (param in pointers):
            wanted = "a Buffer" if param in pointers else "a number"
            raise UsageTypeError(f"{param.name}: wanted {wanted}, seen {value!r}")
        number = resolve(param, value, device, least=pointers.get(param, 0))
        check_reach(patch, reach, number)
        given.append(value)
        bits = piece(patch, number)
        if patch.target == "memory":
            arguments.write(patch.offset, patch.lo, patch.width, bits)
        else:
            pushbuffer.words[8 * patch.offset // pushbuffer.word_bits] |= bits << patch.lo
    return given
