"""Replay slots: one set of an Executable's encoded words and argument memory; and segments, which it submits.

Not here: which slot a replay takes (`executable`), the values that it writes (`relocations`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hcq.commands import Command, Indirect, Wait
from hcq.device import Device
from hcq.errors import UsageError
from hcq.inflight import Kept
from hcq.memory import Buffer
from hcq.params import Param, Patch, Value
from hcq.pushbuffer import PushBuffer
from hcq.queue import Queue
from hcq.replay.joined import JoinedReplay
from hcq.replay.relocations import Placed, elements
from hcq.replay.template import ArgumentArena, SubmitTemplate, encoded, stored_words
from hcq.signal import Point, Signal


@dataclass(slots=True)
class Segment:
    """Commands that one queue runs without waiting for another queue in between."""

    queue: Queue
    index: int
    """Index of the segment in its graph."""
    label: str = ""
    commands: list[Command] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    """Indices of segments in other queues that must be complete before."""


class ReplaySlot:
    """One set of encoded words and argument memory of an Executable, and the values bound to it.

    Making one raises as `Device.alloc` and the encoders, and `UsageError` for an encoder that patches memory
    which it has not placed.
    """

    def __init__(
        self, label: str, devices: Sequence[Device], segments: list[Segment], params: tuple[Param, ...]
    ) -> None:
        label = label or "a graph"
        arenas = {device: ArgumentArena(device, label) for device in devices}
        self.scratch = {d: PushBuffer(d.info.word_bits, arena) for d, arena in arenas.items()}
        self.bodies: list[Indirect | None] = []
        """The jump to the prebuilt words of each segment; None for a segment without words."""
        self.patches: list[tuple[Segment, Patch]] = []
        """Patches in the order of encoding, each with its segment."""
        words: list[Buffer] = []
        for segment in segments:
            device = segment.queue.device
            text, patches, _ = encoded(segment.queue, segment.commands, self.scratch[device])
            self.patches += [(segment, patch) for patch in patches]
            body = None
            if text:
                buffer = stored_words(device, text, device.info.word_bits, label=f"words of {label}")
                words.append(buffer)
                body = Indirect(buffer, len(text))
            self.bodies.append(body)
        memories = [*words, *[buffer for arena in arenas.values() for buffer in arena.buffers]]
        # "L" has 8 bytes too, and CPython stores to it in two thirds of the time of "Q".
        self.views = tuple([buffer.borrow().cast("L") for buffer in memories])
        placed = [self._placed(segment, patch, memories) for segment, patch in self.patches]
        self.plan = elements(placed, params, self.views)
        self.bind: Callable[[Sequence[Value], list[object], Sequence[memoryview]], None]
        self.points: list[Point] = []
        """The points at the end of the last replay, one for each queue."""
        nothing: list[object] = [None] * len(params)
        recorded = tuple([c for segment in segments for c in segment.commands if isinstance(c, Wait)])
        self.kept = Kept(nothing, segments, params, tuple(memories), recorded=recorded)
        """The objects that a replay keeps alive. `kept.given` are the values bound; None: not bound."""
        self.templates: list[SubmitTemplate | None] = [None] * len(segments)
        self.joined: JoinedReplay | None = None
        """The words of a replay with one submission to each queue; None: not encoded yet."""

    def _placed(self, segment: Segment, patch: Patch, memories: list[Buffer]) -> Placed:
        offset, expr = patch.offset, patch.expr
        if patch.target == "words":
            body = self.bodies[segment.index]
            assert body is not None  # patches imply words
            return Placed(memories.index(body.buffer), offset, patch.lo, patch.width, expr)
        for i, buffer in enumerate(memories):
            at = offset - buffer.address
            if buffer.device is segment.queue.device and 0 <= at < buffer.size:
                return Placed(i, at, patch.lo, patch.width, expr)
        raise UsageError(f"an encoder patches {offset:#x}, where it has not placed anything")

    def ring_words(self, segment: Segment, waits: tuple[Signal, ...]) -> SubmitTemplate:
        """Return the ring words of a segment that waits for these signals.

        They are encoded again when a timeline has taken another slot.
        """
        template = self.templates[segment.index]
        if template is None or template.signals != (*waits, segment.queue.timeline.signal):
            scratch = self.scratch[segment.queue.device]
            template = SubmitTemplate(segment.queue, scratch, body=self.bodies[segment.index], waits=waits)
            self.templates[segment.index] = template
        return template

    def unbind(self) -> None:
        """Drop the references to buffers. A replay in flight keeps its own."""
        self.kept = self.kept._replace(given=[None] * len(self.kept.given))

    def restart(self) -> None:
        """Drop lost replays and the bound values."""
        self.points[:] = [point for point in self.points if not point.over()]
        self.templates, self.joined = [None] * len(self.templates), None
        self.unbind()

    def done(self) -> bool:
        """Return whether the last replay is complete: `Point.passed` of each, without its call."""
        for point in self.points:
            signal = point.signal
            if not point.value <= signal._words[signal._index] + signal.base <= signal.issued:  # noqa: SLF001 - hot
                return False
        return True
