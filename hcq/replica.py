"""One set of an Executable's encoded words and argument memory."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from hcq.arguments import ARGUMENTS
from hcq.commands import Indirect
from hcq.errors import UsageError
from hcq.inflight import Kept
from hcq.patchplan import Placed, elements
from hcq.prebuilt import Arena, Prebuilt, encoded
from hcq.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.binding import Value
    from hcq.executable import Executable
    from hcq.graph import Segment
    from hcq.memory import Buffer
    from hcq.params import Patch
    from hcq.signal import Point, Signal


class Replica:
    """One set of encoded words and argument memory of an Executable, and what it is bound to."""

    __slots__ = (
        "bind",
        "bodies",
        "kept",
        "patches",
        "plan",
        "points",
        "prebuilt",
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
        self.points: list[Point] = []
        """Where the last replay ends, a queue each."""
        nothing: list[object] = [None] * len(executable.params)
        self.kept = Kept(nothing, executable.segments, executable.params, tuple(memories))
        """What a replay keeps alive; `kept.given` is what the memory is bound to, None: nothing yet."""
        self.prebuilt: list[Prebuilt | None] = [None] * len(executable.segments)

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

    def ring_words(self, segment: Segment, waits: tuple[Signal, ...]) -> Prebuilt:
        """Return the ring words of a segment that waits for these signals.

        They are made anew when a timeline changed slots.
        """
        prebuilt = self.prebuilt[segment.index]
        if prebuilt is None or prebuilt.signals != (*waits, segment.queue.timeline.signal):
            scratch = self.scratch[segment.queue.device]
            prebuilt = Prebuilt(segment.queue, scratch, body=self.bodies[segment.index], waits=waits)
            self.prebuilt[segment.index] = prebuilt
        return prebuilt

    def unbind(self) -> None:
        """Let go of the buffers; a replay in flight keeps its list of them."""
        self.kept = self.kept._replace(given=[None] * len(self.kept.given))

    def restart(self) -> None:
        """Forget replays that are lost, and what the memory is bound to."""
        self.points[:] = [point for point in self.points if not point.over()]
        self.prebuilt = [None] * len(self.prebuilt)
        self.unbind()

    def done(self) -> bool:
        """Return whether the last replay is done."""
        return all(point.passed() for point in self.points)
