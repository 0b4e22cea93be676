"""Joined replays: one submission to each queue, with the ring words of all its segments in their order.

Segments wait for each other by values of the queues' timelines. All values of a replay are issued before
anything is sent, so a submission may wait for one that is sent after it. The words are those of the separate
submissions. Where one cannot be sent, its queue still raises the values for which the others wait.

Not here: separate submissions, which validation, traces and breadcrumbs need (`executable`). Next:
`template`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hcq.commands import Wait
from hcq.inflight import Kept
from hcq.pushbuffer import PushBuffer
from hcq.replay.template import SubmitTemplate
from hcq.signal import SLOT_VALUES, Point, Signal

if TYPE_CHECKING:
    from hcq.queue import Queue
    from hcq.replay.slot import ReplaySlot, Segment

Recipe = list[tuple[int, int]]
"""(index of a number, what is added to it) of each value.

The numbers are the slot value at which each queue starts, then for each queue that of its last replay.
"""


class JoinedTemplate:
    """The ring words of all segments of one queue, made of one template for each.

    Each part comes with the values of its template: those that it waits for, and its own.
    """

    __slots__ = ("fields", "pushbuffer", "queue", "waits")

    def __init__(self, queue: Queue, parts: Sequence[tuple[SubmitTemplate, Recipe]]) -> None:
        self.queue = queue
        first, words = parts[0][0].pushbuffer, array("I" if parts[0][0].pushbuffer.word_bits == 32 else "Q")
        self.pushbuffer = joined = PushBuffer(first.word_bits, first.memory)
        joined.words = words
        self.waits: list[tuple[Wait, int, int]] = []
        """(a wait of the words, index of a number, addend) of each."""
        fields: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
        for template, recipe in parts:
            at, own = len(words), template.pushbuffer
            joined.calls += [(at + place, entry) for place, entry in own.calls]
            words.extend(own.words)
            for index, base, which, shift, lo in template.places:
                fields.setdefault(at + index, (base, []))[1].append((*recipe[which], shift, lo))
            self.waits += [(Wait(s, 0), *n) for s, n in zip(template.signals, recipe, strict=True)][:-1]
        self.fields = [(words, index, base, tuple(terms)) for index, (base, terms) in fields.items()]
        """(words, index in them, constant bits, (index of a number, addend, shift, lowest bit) of each)."""


class JoinedReplay:
    """The joined templates of one slot, one for each queue, for the signals that the timelines have now."""

    __slots__ = (
        *("_fields", "_kept", "_queues", "_repeats", "_source", "_waits"),
        *("counts", "signals", "templates"),
    )

    def __init__(
        self, slot: ReplaySlot, queues: Sequence[Queue], segments: Sequence[Segment],
        conflicts: set[tuple[Queue, Queue]],
    ) -> None:  # fmt: skip
        self.signals: list[Signal] = [queue.timeline.signal for queue in queues]
        self.counts = [sum([segment.queue is queue for segment in segments]) for queue in queues]
        """Number of segments of each queue."""
        self._repeats = bool(conflicts)
        """Whether a replay waits for the previous one in other queues."""
        number = {queue: i for i, queue in enumerate(queues)}
        value: list[tuple[int, int]] = []
        """For each segment its queue and its number in the queue, from 1 on."""
        for segment in segments:
            at = number[segment.queue]
            value.append((at, 1 + sum([queue == at for queue, _ in value])))
        self.templates: list[JoinedTemplate] = []
        for i, queue in enumerate(queues):
            parts = []
            for n, segment in enumerate([segment for segment in segments if segment.queue is queue]):
                recipe = [value[k] for k in segment.waits]
                if n == 0:  # the previous replay, in queues with which memory is shared
                    recipe += [(len(queues) + number[q], 0) for q in queues if (queue, q) in conflicts]
                waits = [self.signals[at % len(queues)] for at, _ in recipe]
                scratch, body = slot.scratch[queue.device], slot.bodies[segment.index]
                template = SubmitTemplate(queue, scratch, body=body, waits=waits)
                parts.append((template, [*recipe, (i, n + 1)]))
            self.templates.append(JoinedTemplate(queue, parts))
        self._fields = [field for template in self.templates for field in template.fields]
        self._waits = [wait for template in self.templates for wait in template.waits]
        self._queues = list(queues)
        self._source: Kept | None = None
        self._kept: list[Kept] = []
        """What each submission keeps alive: what `_source`, of the slot, does, and its waits."""

    def fits(self) -> bool:
        """Return whether each queue's ring has room for its words."""
        return all([len(t.pushbuffer.words) <= t.queue.most_words for t in self.templates])  # noqa: C419 - a list is faster

    def send(self, slot: ReplaySlot, tails: dict[Queue, Point]) -> bool:
        """Submit to each queue, and record the points in the slot and as the new tails.

        The caller holds the locks. Return False, and send nothing, where the replay must be sent in separate
        submissions: there is no earlier replay to wait for, an earlier submission was interrupted, or a
        timeline is about to take, or has just taken, a fresh slot. Raises as `Queue.submit_template`.
        """
        numbers, before = [], []
        for template, signal, count in zip(self.templates, self.signals, self.counts, strict=True):
            timeline = template.queue.timeline
            start, tail = timeline.value - signal.base, tails.get(template.queue)
            if timeline.value != timeline.last.value or start + count > SLOT_VALUES:
                return False
            if self._repeats if tail is None else tail.signal is not signal:
                return False
            numbers.append(start)
            before.append(0 if tail is None else tail.value - signal.base)
        if self._source is not slot.kept:
            self._source = slot.kept
            self._kept = [slot.kept._replace(waits=tuple([w for w, _, _ in t.waits])) for t in self.templates]
        points: list[Point] = []
        for template, signal, count in zip(self.templates, self.signals, self.counts, strict=True):
            timeline, point = template.queue.timeline, Point.__new__(Point)  # hot, as `Timeline.next`
            timeline.value = signal.issued = point.value = timeline.value + count
            point.signal = signal
            points.append(point)
        slot.points = points  # before the submission: an interrupt may leave it in flight
        tails.update(zip(self._queues, points, strict=True))
        numbers += before
        sent = 0
        try:
            for words, index, word, terms in self._fields:
                for i, more, shift, lo in terms:
                    word |= (numbers[i] + more >> shift) << lo  # noqa: PLW2901 - one value after the other
                words[index] = word
            for wait, i, more in self._waits:
                wait.value = numbers[i] + more
            for template, point, kept in zip(self.templates, points, self._kept, strict=True):
                template.queue.submit_template(template.pushbuffer, point, kept)
                sent += 1
        except BaseException:
            with ExitStack() as stack:
                for template, point in zip(self.templates[sent:], points[sent:], strict=True):
                    timeline = template.queue.timeline
                    timeline.value = timeline.signal.issued = max(timeline.value, point.value)
                    stack.callback(template.queue.cover, point)
            raise
        return True
