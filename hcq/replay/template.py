"""Submit templates: the ring words of a submission, encoded once, in which only signal values change.

The words are waits, a jump to prebuilt words where there are any, and the write of the queue's timeline.

Not here: the prebuilt words (`slot`). Next: `hcq.queue`, which sends them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hcq.commands import Command, Indirect, SetSignal, Wait
from hcq.errors import UsageError
from hcq.kernarg_ring import ARGUMENTS
from hcq.memory import Buffer, Owner
from hcq.params import Param, Patch
from hcq.process import OpenQueue
from hcq.pushbuffer import PushBuffer
from hcq.signal import Signal

ARENA_BYTES = 1 << 12
"""The first argument memory of an arena; each further one is twice as large."""


class ArgumentArena:
    """Argument memory of prebuilt words, in buffers of `device`: a bump allocator that never frees.

    The buffers live as long as the arena: prebuilt words hold their addresses.
    """

    __slots__ = ("_device", "_label", "buffers")

    def __init__(self, device: Owner, label: str) -> None:
        self._device = device
        self._label = label
        self.buffers: list[Buffer] = []

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        """Point `pushbuffer` at a new buffer of at least `size` bytes, and twice the size of the one before.

        The contents of older buffers stay valid. Raises as `Device.alloc`.
        """
        least = 2 * self.buffers[-1].size if self.buffers else ARENA_BYTES
        buffer = self._device.alloc(max(size, least), ARGUMENTS, label=f"arguments of {self._label}")
        self.buffers.append(buffer)
        pushbuffer.view, pushbuffer.base = buffer.borrow().cast("Q"), buffer.va
        pushbuffer.at, pushbuffer.limit = 0, buffer.size


def stored_words(device: Owner, words: Sequence[int], word_bits: int, *, label: str) -> Buffer:
    """Return a new buffer with queue words, for an `Indirect`. Raises as `Device.alloc`."""
    data = array("I" if word_bits == 32 else "Q", words).tobytes()
    buffer = device.alloc((len(data) + 7) // 8 * 8, ARGUMENTS, label=label)
    buffer.borrow()[: len(data)] = data
    return buffer


class SubmitTemplate:
    """The ring words of one submission: waits, the jump to `body` if there is one, the timeline's value.

    Valid while `signals` are still the signals of the waits and of the queue's timeline; when a timeline
    takes a fresh slot, its templates are stale, and the caller encodes a new one. `scratch` is only used
    while encoding. Raises `UsageError` when an encoder puts a signal's value into argument memory.
    """

    __slots__ = ("places", "pushbuffer", "signals", "single")

    def __init__(
        self,
        queue: OpenQueue,
        scratch: PushBuffer,
        *,
        body: Indirect | None = None,
        waits: Sequence[Signal] = (),
    ) -> None:
        done = Param("done")
        before = [Param(f"wait{i}") for i in range(len(waits))]
        own = queue.timeline.signal
        commands: list[Command] = [Wait(signal, param) for signal, param in zip(waits, before, strict=True)]
        commands += [body] if body is not None else []
        commands.append(SetSignal(own, done))
        words, patches, calls = encoded(queue, commands, scratch)
        self.pushbuffer = PushBuffer(scratch.word_bits, scratch.memory)
        self.pushbuffer.words = words = array("I" if scratch.word_bits == 32 else "Q", words)
        self.pushbuffer.calls = calls
        self.signals = (*waits, own)
        """The signals that the words wait for and, last, the one that they set."""
        number = {param: i for i, param in enumerate((*before, done))}
        self.places: list[tuple[int, int, int, int, int]] = []
        """(word index, its constant bits, index of the value, right shift, lowest bit) of each open field.

        Slot values have 31 bits: fields of bits 32 and above are always 0.
        """
        for patch in patches:
            if patch.target != "words":
                raise UsageError("an encoder put the value of a Wait or SetSignal into argument memory")
            if patch.expr.shift < 32:
                index = 8 * patch.offset // scratch.word_bits
                place = (index, words[index], number[patch.expr.param], patch.expr.shift, patch.lo)
                self.places.append(place)
        self.single = -1
        """Index of the word to fill in when there is just one and it is the whole timeline value, else -1."""
        if len(self.places) == 1 and self.places[0][1:] == (0, 0, 0, 0):
            self.single = self.places[0][0]

    def fill(self, values: Sequence[int]) -> None:
        """Write slot values, one for each of `signals` and in their order, into the words."""
        words = self.pushbuffer.words
        if self.single >= 0:
            words[self.single] = values[-1]
            return
        for index, base, _, _, _ in self.places:
            words[index] = base
        for index, _, which, shift, lo in self.places:
            words[index] |= (values[which] >> shift) << lo


def encoded(
    queue: OpenQueue, commands: Sequence[Command], scratch: PushBuffer
) -> tuple[Sequence[int], list[Patch], list[tuple[int, int]]]:
    """Encode into a scratch push buffer; return copies of its words, patches and calls."""
    scratch.clear()  # before, not after: an interrupted encoding leaves words there
    queue.encode(commands, scratch)
    return scratch.words[:], scratch.patches[:], scratch.calls[:]
