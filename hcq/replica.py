"""One set of an Executable's encoded words and argument memory, and the ring words that run it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from hcq.arguments import ARGUMENTS
from hcq.commands import Indirect, SetSignal, Wait
from hcq.errors import UsageError
from hcq.inflight import Kept
from hcq.params import Param, Patch
from hcq.patchplan import Placed, elements
from hcq.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.binding import Value
    from hcq.commands import Command
    from hcq.device import Device
    from hcq.executable import Executable
    from hcq.graph import Segment
    from hcq.memory import Buffer
    from hcq.queue import Queue
    from hcq.signal import Point, Signal

ARENA_BYTES = 1 << 12
"""The first argument memory of a copy; each further one is twice as large."""


class Arena:
    """Argument memory of one copy: grows by buffers, gives nothing back before the copy goes."""

    __slots__ = ("_device", "_label", "buffers")

    def __init__(self, device: Device, label: str) -> None:
        self._device = device
        self._label = label
        self.buffers: list[Buffer] = []

    def room(self, stream: Stream, size: int) -> None:
        """Give `stream` a new buffer, each twice the one before."""
        least = 2 * self.buffers[-1].size if self.buffers else ARENA_BYTES
        buffer = self._device.alloc(max(size, least), ARGUMENTS, label=f"arguments of {self._label}")
        self.buffers.append(buffer)
        stream.view, stream.base = buffer.host().cast("Q"), buffer.va
        stream.at, stream.limit = 0, buffer.size


class Launch:
    """The ring words of one segment of one copy: waits, the jump to the body, the timeline's value."""

    __slots__ = ("places", "signals", "single", "stream")

    def __init__(
        self, segment: Segment, body: Indirect | None, waits: Sequence[Signal], scratch: Stream
    ) -> None:
        queue = segment.queue
        done = Param("done")
        before = [Param(f"wait{i}") for i in range(len(waits))]
        own = queue.timeline.signal
        commands: list[Command] = [Wait(signal, param) for signal, param in zip(waits, before, strict=True)]
        commands += [body] if body is not None else []
        commands.append(SetSignal(own, done))
        words, patches, calls = encoded(queue, commands, scratch)
        self.stream = Stream(scratch.word_bits, scratch.memory)
        self.stream.words = words = array("I" if scratch.word_bits == 32 else "Q", words)
        self.stream.calls = calls
        self.signals = (*waits, own)
        """What the words wait for and, last, what they set: timelines change slots."""
        number = {param: i for i, param in enumerate((*before, done))}
        self.places: list[tuple[int, int, int, int, int]] = []
        """(word, bits that stay, which number, shift, lowest bit) of all that changes with each replay.

        Slot values have 31 bits: pieces above are always 0.
        """
        for patch in patches:
            if patch.target != "words":
                raise UsageError("an encoder put the value of a Wait or SetSignal into argument memory")
            if patch.expr.shift < 32:
                index = 8 * patch.offset // scratch.word_bits
                place = (index, words[index], number[patch.expr.param], patch.expr.shift, patch.lo)
                self.places.append(place)
        self.single = -1
        """The word that is the own value and nothing else, when that is all there is to fill in."""
        if len(self.places) == 1 and self.places[0][1:] == (0, 0, 0, 0):
            self.single = self.places[0][0]

    def fill(self, values: Sequence[int]) -> None:
        """Write slot values, the own one last, into the words."""
        words = self.stream.words
        for index, base, _, _, _ in self.places:
            words[index] = base
        for index, _, which, shift, lo in self.places:
            words[index] |= (values[which] >> shift) << lo


def encoded(
    queue: Queue, commands: Sequence[Command], scratch: Stream
) -> tuple[Sequence[int], list[Patch], list[tuple[int, int]]]:
    """Encode into a scratch stream; return its words, patches and calls, and leave it empty."""
    try:
        queue.encode(commands, scratch)
        return scratch.words[:], scratch.patches[:], scratch.calls[:]
    finally:
        scratch.clear()


class Replica:
    """One set of encoded words and argument memory of an Executable, and what it is bound to."""

    __slots__ = (
        "bind",
        "bodies",
        "given",
        "kept",
        "launches",
        "patches",
        "plan",
        "points",
        "scratch",
        "views",
    )

    def __init__(self, executable: Executable) -> None:
        label = executable.label or "a graph"
        arenas = {device: Arena(device, label) for device in executable.devices}
        self.scratch = {d: Stream(d.info.word_bits, arena) for d, arena in arenas.items()}
        self.bodies: list[Indirect | None] = []
        self.patches: list[tuple[Segment, Patch]] = []
        """As encoded, in order."""
        words: list[Buffer] = []
        for segment in executable.segments:
            device = segment.queue.device
            text, patches, _ = encoded(segment.queue, segment.commands, self.scratch[device])
            self.patches += [(segment, patch) for patch in patches]
            body = None
            if text:
                data = array("I" if device.info.word_bits == 32 else "Q", text).tobytes()
                buffer = device.alloc((len(data) + 7) // 8 * 8, ARGUMENTS, label=f"words of {label}")
                buffer.host()[: len(data)] = data
                words.append(buffer)
                body = Indirect(buffer, len(text))
            self.bodies.append(body)
        memories = [*words, *(buffer for arena in arenas.values() for buffer in arena.buffers)]
        # "L", also 8 bytes: CPython stores to it in two thirds of the time that "Q" takes.
        self.views = tuple(buffer.host().cast("L") for buffer in memories)
        placed = [self._placed(segment, patch, memories) for segment, patch in self.patches]
        self.plan = elements(placed, executable.params, self.views)
        self.bind: Callable[[Sequence[Value], list[object], Sequence[memoryview]], None]
        self.given: list[object] = [None] * len(executable.params)
        """What the memory is bound to; None: nothing yet."""
        self.points: list[Point] = []
        """Where the last replay ends, a queue each."""
        self.kept = Kept(self.given, executable.segments, executable.params, tuple(memories))
        self.launches: list[Launch | None] = [None] * len(executable.segments)

    def _placed(self, segment: Segment, patch: Patch, memories: list[Buffer]) -> Placed:
        offset, expr = patch.offset, patch.expr
        if patch.target == "words":
            body = self.bodies[segment.index]
            assert body is not None  # it has patches, so it has words
            return Placed(memories.index(body.buffer), offset, patch.lo, patch.width, expr)
        for i, buffer in enumerate(memories):
            if buffer.device is segment.queue.device and buffer.va <= offset < buffer.va + buffer.size:
                return Placed(i, offset - buffer.va, patch.lo, patch.width, expr)
        raise UsageError(f"an encoder patches {offset:#x}, where it has not placed anything")

    def launch(self, segment: Segment, waits: tuple[Signal, ...]) -> Launch:
        """Return the ring words of a segment that waits for these signals.

        They are made anew when a timeline changed slots.
        """
        launch = self.launches[segment.index]
        if launch is None or launch.signals != (*waits, segment.queue.timeline.signal):
            scratch = self.scratch[segment.queue.device]
            launch = Launch(segment, self.bodies[segment.index], waits, scratch)
            self.launches[segment.index] = launch
        return launch

    def unbind(self) -> None:
        """Let go of the buffers; a replay in flight keeps its list of them."""
        self.given = [None] * len(self.given)
        self.kept = self.kept._replace(given=self.given)

    def restart(self) -> None:
        """Forget replays that are lost, and what the memory is bound to."""
        self.points[:] = [point for point in self.points if not point.over()]
        self.launches = [None] * len(self.launches)
        self.unbind()

    def done(self) -> bool:
        """Return whether the last replay is done."""
        return all(point.passed() for point in self.points)
