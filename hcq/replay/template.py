"""Submit templates: ring words made once, with the waits, a jump to prebuilt words, and the final signal.

Only the signal values change from one submission to the next; they are filled in.

Not here: the prebuilt words (`slot`). Next: `hcq.queue`, which sends them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from hcq.commands import SetSignal, Wait
from hcq.errors import UsageError
from hcq.kernarg_ring import ARGUMENTS
from hcq.params import Param
from hcq.pushbuffer import PushBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.commands import Command, Indirect
    from hcq.memory import Buffer, Owner
    from hcq.params import Patch
    from hcq.signal import Signal, Timeline

ARENA_BYTES = 1 << 12
"""The first argument memory of an arena; each further one is twice as large."""


class EncodingQueue(Protocol):
    """The queue that words are encoded for, as far as encoding needs it: a `Queue`."""

    timeline: Timeline

    def encode(self, commands: Sequence[Command], pushbuffer: PushBuffer) -> None:
        """Append the words of commands. The lock is held by the caller."""
        ...


class Arena:
    """Argument memory of prebuilt words: grows by buffers, gives nothing back before its owner goes."""

    __slots__ = ("_device", "_label", "buffers")

    def __init__(self, device: Owner, label: str) -> None:
        self._device = device
        self._label = label
        self.buffers: list[Buffer] = []

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        """Give `pushbuffer` a new buffer, each twice the one before."""
        least = 2 * self.buffers[-1].size if self.buffers else ARENA_BYTES
        buffer = self._device.alloc(max(size, least), ARGUMENTS, label=f"arguments of {self._label}")
        self.buffers.append(buffer)
        pushbuffer.view, pushbuffer.base = buffer.host().cast("Q"), buffer.va
        pushbuffer.at, pushbuffer.limit = 0, buffer.size


class SubmitTemplate:
    """The ring words of one submission: waits, the jump to a body if there is one, the timeline's value.

    Good as long as `signals` are the ones meant: timelines change slots.
    """

    __slots__ = ("_places", "pushbuffer", "signals", "single")

    def __init__(
        self,
        queue: EncodingQueue,
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
        """What the words wait for and, last, what they set."""
        number = {param: i for i, param in enumerate((*before, done))}
        self._places: list[tuple[int, int, int, int, int]] = []
        """(word, bits that stay, which number, shift, lowest bit) of all that changes with each sending.

        Slot values have 31 bits: pieces above are always 0.
        """
        for patch in patches:
            if patch.target != "words":
                raise UsageError("an encoder put the value of a Wait or SetSignal into argument memory")
            if patch.expr.shift < 32:
                index = 8 * patch.offset // scratch.word_bits
                place = (index, words[index], number[patch.expr.param], patch.expr.shift, patch.lo)
                self._places.append(place)
        self.single = -1
        """The word that is the own value and nothing else, when that is all there is to fill in."""
        if len(self._places) == 1 and self._places[0][1:] == (0, 0, 0, 0):
            self.single = self._places[0][0]

    def fill(self, values: Sequence[int]) -> None:
        """Write slot values, the own one last, into the words."""
        words = self.pushbuffer.words
        if self.single >= 0:
            words[self.single] = values[-1]
            return
        for index, base, _, _, _ in self._places:
            words[index] = base
        for index, _, which, shift, lo in self._places:
            words[index] |= (values[which] >> shift) << lo


def encoded(
    queue: EncodingQueue, commands: Sequence[Command], scratch: PushBuffer
) -> tuple[Sequence[int], list[Patch], list[tuple[int, int]]]:
    """Encode into a scratch push buffer; return its words, patches and calls."""
    scratch.clear()  # at the start: what an interrupt left there is of no use
    queue.encode(commands, scratch)
    return scratch.words[:], scratch.patches[:], scratch.calls[:]
