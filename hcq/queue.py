"""Queues: one hardware ring each, and the timeline that counts its submissions.

A submission starts after the effects of the queue's previous one are visible; across queues only `after=`
orders. What is in flight keeps its commands, and through them its buffers, programs and signals, alive. Every
method may be called from any thread: one lock per queue is held while a submission is encoded and sent.

Not here: recording (`commands`), graphs and replays (`graph`), what happens after a fault
(`hcq.faults.recovery`).
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from array import array
from collections import deque
from typing import TYPE_CHECKING

from hcq.commandbuffer import CommandBuffer
from hcq.commands import Command, Indirect, Timestamp, Wait
from hcq.config import config
from hcq.errors import OutOfMemoryError, SignalTimeout, UnsupportedError, UsageError
from hcq.faults.messages import room_text
from hcq.kernarg_ring import ARGUMENTS, RING_BYTES, ArgumentRing
from hcq.locks import unless_taken
from hcq.params import check_reach, look_up, piece, reaches, resolve
from hcq.profile import timed
from hcq.pushbuffer import PushBuffer
from hcq.replay.template import Arena, SubmitTemplate
from hcq.signal import LOST, POLL_S, SLOT_VALUES, Point, Stamp, Timeline
from hcq.uncopied import refuse_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hcq.device import Device
    from hcq.hardware import QueueKind
    from hcq.memory import Buffer
    from hcq.params import Param, Value
    from hcq.signal import Refusal
    from hcq.validate.watch import Watch

_NOTHING_SENT = (UsageError, UnsupportedError, OutOfMemoryError, SignalTimeout)
"""Errors after which a ring has not taken the words."""
_NUMBERS = itertools.count()
_ENDING_WORDS = 64
"""More than any encoder takes to set a signal: words that are left for what ends a submission."""


class Queue:
    """One ring of a device. Made with its device."""

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_encoder",
        "_ending",
        "_inflight",
        "_most",
        "_patience",
        "_pushbuffer",
        "_stall",
        "device",
        "index",
        "kind",
        "label",
        "lock",
        "number",
        "refusal",
        "ring",
        "timeline",
        "watch",
    )

    def __init__(self, device: Device, kind: QueueKind, index: int, *, watch: Watch | None) -> None:
        self.device = device
        self.kind = kind
        self.index = index
        self.number = next(_NUMBERS)
        """Distinguishes it from all other queues of this process, also those that are gone."""
        self.label = f"{kind.value} {index} of {device.name}"
        self.lock = threading.RLock()
        """Held while a submission is encoded and sent."""
        self.refusal: Refusal | None = None
        """Makes the error that every submission raises: the device is closed, faulted or was left behind by a
        fork."""
        self.watch = watch
        """Sees every submission before it is encoded; None in normal use."""
        self.timeline = Timeline(device, label=self.label)
        self._inflight: deque[tuple[Point, Sequence[object], int]] = deque()
        """(point, what must stay alive, end of its arguments) of every submission not known to be done."""
        self.ring = device.driver.ring(kind, index)
        self._encoder = device.driver.encoder(kind, index)
        self._arguments = ArgumentRing(
            device, self.retire_oldest, label=self.label, size=config().ring_bytes or RING_BYTES
        )
        self._pushbuffer = PushBuffer(device.info.word_bits, self._arguments)
        self._arguments.start(self._pushbuffer)
        self._patience = -1, 0.0
        """A value of the timeline, and how many seconds its submission may wait for room."""
        self._stall = -1, 0.0, 0.0
        """Which value of the timeline waits for room, since when, and when to look next at why."""
        self.ring.stalled = _weakly(self)
        self._most = self.ring.words - _ENDING_WORDS
        """Words of commands that a submission may have in the ring."""
        self._ending: SubmitTemplate | None = None
        """What ends a direct submission; None before the first one."""

    def record(self, *, label: str = "") -> CommandBuffer:
        """Return an empty command buffer for this kind of queue."""
        return CommandBuffer(self.kind, self.device, label)

    def submit(
        self,
        commands: CommandBuffer,
        *,
        after: Sequence[Point] = (),
        values: Mapping[Param, Value] | None = None,
        timeout_s: float | None = None,
    ) -> Point:
        """Encode the commands, ring the doorbell, and return the point that is reached when they are done.

        Arguments:
        - `commands`: recorded for this kind of queue. It may be submitted again, also while it runs.
        - `after`: points that must be reached before the first command starts, of queues of any open device.
          A point whose work is not submitted yet is allowed: the queue waits for it.
        - `values`: a Buffer or a number for each Param left open; values of other Params are ignored.
        - `timeout_s`: how long to wait while the ring has no room. None: as long as work in flight
          progresses.

        Order: a submission starts after the effects of this queue's previous one are visible. Inside it,
        kernels between two barriers may overlap and finish in any order; all other commands run in the order
        recorded. Nothing orders two queues, of one device or of two, but `after=` and recorded waits. The
        host's writes to host-visible memory before the call are seen by the commands; their writes are seen
        by the host once the returned point was waited for.

        Ownership: the queue keeps the commands, and with them their buffers, programs and signals, alive
        until the point is reached or lost to a fault. Closing a buffer meanwhile defers its free.

        Threads: any thread may submit. Submissions to one queue are in the order in which the calls take its
        lock. The call returns once the words are in the ring; it does not wait for the work.

        Raises, before anything is sent: `UsageError` for another kind of queue, a closed buffer, program or
        device, memory that the device cannot see, a Param without a value or with one that does not fit, and
        with validation for a hazard or a wait that nothing can end; `UnsupportedError` for a command that the
        device has no words for; `OutOfMemoryError` for argument memory; `DeviceFault` if the device has
        faulted, or a point of `after` was lost to a fault; `SignalTimeout` if the ring had no room in time.
        After any of these the queue can be used as before, except after `DeviceFault` (`Device.recover`).

            point = queue.submit(queue.record().copy(target, source), after=[uploaded])
            point.wait()
        """
        if self.refusal is not None:  # before the lock too: after a fork no thread releases it
            raise self.refusal()
        if commands.kind is not self.kind:
            raise UsageError(
                f"{commands!r} was given to {self!r}\nhint: record it with that queue's record()"
            )
        with self.lock:
            if self.refusal is not None:
                raise self.refusal()
            device = self.device
            if commands.epoch != device.close_epoch:
                commands.verify(device)
            todo: list[Command] = [*self._waits(after), *commands.commands] if after else commands.commands[:]
            if commands.spans or device.trace or device.profile:
                todo = self._timed(commands, todo)
            if self.watch is not None:
                todo = self.watch.submission(self, commands.label, todo, values)
            return self._send(todo, values, todo, timeout_s)

    def _waits(self, after: Sequence[Point]) -> list[Wait]:
        """Return waits for the points that are not reached; those of this very queue are in order anyway."""
        waits = []
        if isinstance(after, Point):
            raise UsageError(f"after= takes a list of points, not {after!r}\nhint: after=[point]")
        for point in after:
            if point.__class__ is not Point:
                raise UsageError(f"after= takes points, not {point!r}")
            signal = point.signal
            if signal is not self.timeline.signal and (self.watch is not None or not point.passed()):
                waits.append(Wait(signal, point.value - signal.base))
        for wait in waits:
            wait.signal.check_overrun()
        if waits and LOST:
            for point in after:
                self.device.poll_lost(point.signal, point.value - point.signal.base)
        return waits

    def _send(
        self,
        todo: list[Command],
        values: Mapping[Param, Value] | None,
        kept: Sequence[object],
        timeout_s: float | None = None,
    ) -> Point:
        """Encode and send `todo` and the timeline's next value. The lock is held."""
        pushbuffer, arguments = self._pushbuffer, self._arguments
        pushbuffer.clear()  # at the start: what an interrupt left there is of no use
        if arguments.extra:
            arguments.finish(pushbuffer)
        point = self.timeline.next()
        if timeout_s is not None:
            self._patience = point.value, timeout_s
        try:
            self._encoder.encode(todo, pushbuffer)
            if pushbuffer.patches:
                kept = [*kept, *self._apply(pushbuffer, values)]
            if len(pushbuffer.words) > self._most:
                kept = [*kept, self._moved(pushbuffer)]
            pushbuffer.words += self._raising(point)
            if arguments.extra:
                kept = [*kept, *arguments.finish(pushbuffer)]
        except _NOTHING_SENT:
            self.timeline.undo(point)
            arguments.finish(pushbuffer)
            self._refused()
            raise
        self.submit_template(pushbuffer, point, kept)
        return point

    def _refused(self) -> None:
        self._patience = -1, 0.0  # the value is issued again
        if self.watch is not None:
            self.watch.refused(self)

    def _stalled(self, words: int) -> None:
        """Look, while a submission waits for room: raise when none can come, or the time is over."""
        now = time.monotonic()
        value = self.timeline.value
        if self._stall[0] != value:
            self._stall = value, now, now
        _, start, look = self._stall
        patience = self._limit()
        if patience is not None and now - start >= patience:
            raise self._timeout(now - start)
        if now < look:
            return
        self._stall = value, start, now + POLL_S
        self.device.poll_room(self, words, timed=patience is not None)

    def _limit(self) -> float | None:
        """Return how many seconds the running submission may wait for room; None: as long as it takes."""
        value, seconds = self._patience
        return seconds if value == self.timeline.value else None

    def _timeout(self, waited_s: float) -> SignalTimeout:
        """Return the error of a submission for which there was no room in time."""
        point = self._inflight[0][0]
        text = f"{self.label} had no room for a submission for {waited_s:.1f} s"
        return SignalTimeout(text + room_text(self), point=point, seen=point.signal.value, waited_s=waited_s)

    def _moved(self, pushbuffer: PushBuffer) -> Buffer:
        """Move more words than the ring takes to memory of their own, and call that; return it."""
        bits = pushbuffer.word_bits
        words = array("I" if bits == 32 else "Q", pushbuffer.words)
        data = words.tobytes()
        label = f"a large submission to {self.label}"
        buffer = self.device.alloc((len(data) + 7) // 8 * 8, ARGUMENTS, label=label)
        buffer.host()[: len(data)] = data
        pushbuffer.clear()
        self._encoder.encode([Indirect(buffer, len(words))], pushbuffer)
        return buffer

    def _raising(self, point: Point) -> Sequence[int]:
        """Return the words that raise a point when everything before is done."""
        signal, ending = point.signal, self._ending
        if ending is None or ending.signals[0] is not signal:
            scratch = PushBuffer(self._pushbuffer.word_bits, Arena(self.device, self.label))
            ending = self._ending = SubmitTemplate(self, scratch)
        ending.fill((point.value - signal.base,))
        return ending.pushbuffer.words

    def _apply(self, pushbuffer: PushBuffer, values: Mapping[Param, Value] | None) -> list[object]:
        """Write the values of Params into a push buffer; return the values, which must stay alive."""
        given = []
        for patch, reach in zip(pushbuffer.patches, reaches(pushbuffer.patches), strict=True):
            value = look_up(patch.expr.param, values)
            number = resolve(patch.expr.param, value, self.device)
            check_reach(patch, reach, number)
            given.append(value)
            bits = piece(patch, number)
            if patch.target == "memory":
                self._arguments.write(patch.offset, patch.lo, patch.width, bits)
            else:
                pushbuffer.words[8 * patch.offset // pushbuffer.word_bits] |= bits << patch.lo
        return list(given)

    def _timed(self, commands: CommandBuffer, todo: list[Command]) -> list[Command]:
        """Add the time records of a trace, and have the device read all spans once they ran."""
        spans = list(commands.spans)
        if self.device.profile:
            todo, more = timed(todo)
            spans += more
        if self.device.trace:
            begin, end = Stamp(), Stamp()
            spans.append((commands.label or f"{len(commands)} commands", begin, end))
            todo = [Timestamp(begin), *todo, Timestamp(end)]
        self.device.span_log.expect(self, spans)
        return todo

    def submit_template(
        self, pushbuffer: PushBuffer, point: Point, kept: Sequence[object], timeout_s: float | None = None
    ) -> None:
        """Ring words that raise `point`, the timeline's newest. The lock is held.

        Interrupted, the words may be on their way: what they use is kept, and the value is not used again.
        """
        self._sweep()
        if timeout_s is not None:
            self._patience = point.value, timeout_s
        inflight = self._inflight
        inflight.append((point, kept, self._pushbuffer.at))
        try:
            self.ring.submit(pushbuffer)
        except _NOTHING_SENT:
            inflight.pop()
            self.timeline.undo(point)
            self._refused()
            raise
        if self.watch is not None:
            self.watch.sent(self, point, len(pushbuffer.words))
        self.timeline.last = point

    @property
    def ending_words(self) -> int:
        """How many words end a direct submission."""
        return 0 if self._ending is None else len(self._ending.pushbuffer.words)

    def encode(self, commands: Sequence[Command], pushbuffer: PushBuffer) -> None:
        """Append the words of commands to a push buffer of the caller's. The lock is held by the caller."""
        self._encoder.encode(commands, pushbuffer)

    def send(self, commands: list[Command], values: Mapping[Param, Value] | None = None) -> Point:
        """Submit commands without validation. The lock is held."""
        return self._send(commands, values, commands)

    def hold(self, points: Sequence[Point], timeout_s: float | None = None) -> None:
        """Make later submissions of this queue wait for points that are not reached. The lock is held."""
        waits = self._waits(points)
        if waits:
            todo: list[Command] = list(waits)
            if self.watch is not None:
                self.watch.submission(self, "wait", todo, None)
            self._send(todo, None, todo, timeout_s)

    def _sweep(self) -> None:
        """Retire what is done: drop its references and its argument memory. The lock is held."""
        inflight = self._inflight
        while inflight and inflight[0][0].passed():
            _, _, self._arguments.tail = inflight.popleft()
        if self.device.leftovers:
            self.device.free_leftovers()

    def sweep(self) -> None:
        """Retire what is done, unless another thread holds the queue just now."""
        unless_taken((self.lock,), self._sweep)

    def retire_oldest(self) -> bool:
        """Wait for the oldest submission in flight, retire it; False when there is none. The lock is held."""
        self._sweep()
        if not self._inflight:
            return False
        point = self._inflight[0][0]
        if point.value > self.timeline.last.value:
            return False  # all that is in flight was interrupted and may never have been sent
        point.wait(timeout_s=self._limit())
        self._sweep()
        return True

    def oldest(self) -> Point | None:
        """Return the point of the oldest submission known to be in flight."""
        try:
            point = self._inflight[0][0]
        except IndexError:
            return None
        return point if point.value <= self.timeline.last.value else None

    def end(self) -> Point:
        """Return the point at which everything submitted so far is done, interrupted submissions too."""
        timeline = self.timeline
        last = timeline.last
        if timeline.value != last.value:  # one was interrupted, or another thread sends one just now
            with self.lock:
                if timeline.value != timeline.last.value:
                    self._send([], None, ())
                last = timeline.last
        return last

    def cover(self, point: Point) -> None:
        """Make sure that a point of this queue is reached although its submission was interrupted.

        The lock is held.
        """
        if point.value > self.timeline.last.value:
            self._send([], None, ())

    def inflight(self) -> list[tuple[Point, Sequence[object]]]:
        """Return what is not known to be done: points and the objects they keep."""
        return [(point, kept) for point, kept, _ in tuple(self._inflight)]

    def forget(self) -> None:
        """Drop work in flight: the device was stopped and accesses no memory any more."""
        self._inflight.clear()

    def restart(self, reason: Refusal) -> list[Sequence[object]]:
        """Continue with an empty ring: work in flight is lost. Return what it keeps. The lock is held."""
        lost = [(point, kept) for point, kept, _ in self._inflight if not point.passed()]
        for point, _ in lost:
            LOST[point.signal] = (SLOT_VALUES, reason)
        self._inflight.clear()
        self._pushbuffer.clear()
        self._arguments.restart(self._pushbuffer)
        self.timeline.renew(reason)
        return [kept for _, kept in lost]

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Wait until everything submitted so far is done."""
        if self.refusal is not None:
            raise self.refusal()
        self.end().wait(timeout_s=timeout_s)
        self.sweep()

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Queue {self.label}>"


def _weakly(queue: Queue) -> Callable[[int], None]:
    """Return what a ring calls when it has no room: drivers outlive devices that were dropped."""
    ref = weakref.ref(queue)

    def stalled(words: int) -> None:
        found = ref()
        if found is not None:
            found._stalled(words)  # noqa: SLF001 - of this module

    return stalled
