"""Queues: each has one hardware ring, and a timeline that counts its submissions.

A submission starts after the effects of the queue's previous one are visible. Between queues only `after=`
and recorded waits give order. A submission in flight keeps its commands alive, and through them its buffers,
programs and signals. Every method may be called from any thread; one lock per queue is held while a
submission is encoded and sent.

Not here: recording (`commandbuffer`), the waits and prepended commands that a submission begins with
(`beginning`), waits for ring space (`backpressure`), values of open parameters (`kernarg_ring`), graphs and
replays (`graph`), recovery after a fault (`hcq.faults.recovery`). Next: `hcq.replay.template`, words that are
encoded once and sent often.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from hcq.backpressure import Backpressure, stall_callback
from hcq.beginning import MOST_PENDING, Prepended, check_commands, check_stores, check_waits, waits_for
from hcq.callbacks import WAITER
from hcq.commandbuffer import CommandBuffer
from hcq.commands import Command, Indirect
from hcq.config import config
from hcq.errors import HcqError, OutOfMemoryError, SignalTimeout, UnsupportedError, UsageError, refuse_copy
from hcq.faults.messages import room_text
from hcq.faults.polling import poll_lost
from hcq.kernarg_ring import RING_BYTES, ArgumentRing, write_values
from hcq.locks import unless_taken
from hcq.params import Param, Value, check_values
from hcq.profile import timed
from hcq.pushbuffer import PushBuffer
from hcq.replay.template import ArgumentArena, SubmitTemplate, stored_words
from hcq.signal import LOST, SLOT_VALUES, Point, Refusal, Timeline, check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from hcq.device import Device
    from hcq.faults.breadcrumbs import Breadcrumbs
    from hcq.faults.limits import TimeLimits
    from hcq.hardware import QueueKind
    from hcq.memory import Buffer
    from hcq.validate.validator import Validator

_NOTHING_SENT = (UsageError, UnsupportedError, OutOfMemoryError, SignalTimeout)
"""Errors after which no word of the submission is in the ring."""
NOTHING = ()
"""The empty tuple, of which Python has one: `after=` is absent."""
_NUMBERS = itertools.count()
_ENDING_WORDS = 64
"""Ring words reserved for the end of a submission: more than any encoder needs to set a signal."""


class Queue:
    """An ordered sequence of submissions to one hardware ring. Made by its `Device`, and closed with it.

    `kind` says which commands it runs; `label`, such as "compute 0 of cpu:0", names it in errors.

        queue = device.compute
        point = queue.submit(queue.record(label="upload").copy(target, source))
        point.wait(timeout_s=5)
    """

    def __init__(self, device: Device, kind: QueueKind, index: int, *, watch: Validator | None) -> None:
        self.device = device
        self.kind = kind
        self.index = index
        self.number = next(_NUMBERS)
        """Unique among all queues that this process ever had."""
        self.label = f"{kind.value} {index} of {device.name}"
        self.lock = threading.RLock()
        """Held while a submission is encoded and sent."""
        self.refusal: Refusal | None = None
        """Error factory for every submission when the device is closed, faulted or belongs to a parent
        process; else None."""
        self.watch = watch
        """The validation layer, which checks every submission before it is encoded; None when it is off."""
        self.timeline = Timeline(device, label=self.label)
        self._inflight: deque[tuple[Point, Sequence[object], int]] = deque()
        """(point, objects kept alive, end of its arguments) of every submission not known to be complete."""
        settings = config()
        with ExitStack() as undo:
            self.ring = device.driver.ring(kind, index)
            undo.callback(self.ring.close)
            encoder = device.driver.encoder(kind, index)
            encoder.table.queue = self.label
            self.encode: Callable[[Sequence[Command], PushBuffer], None] = encoder.encode
            """Appends the words of commands to a push buffer. The caller holds the lock."""
            self._arguments = ArgumentRing(
                device, self.retire_oldest, label=self.label, size=settings.ring_bytes or RING_BYTES
            )
            undo.pop_all()
        self._pushbuffer = PushBuffer(device.info.word_bits, self._arguments)
        self._arguments.start(self._pushbuffer)
        self._backpressure = Backpressure(self.timeline)
        self.ring.stalled = stall_callback(self.stalled)
        self.most_words = self.ring.words - _ENDING_WORDS
        """The most command words of a submission that go into the ring itself; longer ones go beside it."""
        self.prepended = Prepended(device)
        """What `prepend` has left for the next submission."""
        self.crumbs: Breadcrumbs | None = None
        """The commands that finished and began last; None: they are not recorded."""
        if settings.breadcrumbs:
            from hcq.faults.breadcrumbs import Breadcrumbs  # noqa: PLC0415 - only when wanted

            self.crumbs = Breadcrumbs(device, self.label)
        self.limits: TimeLimits | None = None
        """The time limits of its submissions; None before the first one."""
        self._priority = 0
        self._ending: SubmitTemplate | None = None
        """The prebuilt end of a direct submission; None before the first one."""

    def record(self, *, label: str = "") -> CommandBuffer:
        """Return an empty command buffer for this kind of queue; `label` names it in errors and traces."""
        return CommandBuffer(self.kind, self.device, label)

    def submit(
        self,
        commands: CommandBuffer,
        *,
        after: Sequence[Point] = (),
        values: Mapping[Param, Value] | None = None,
        timeout_s: float | None = None,
        limit_s: float | None = None,
    ) -> Point:
        """Encode the commands, write the doorbell, and return the point that is reached when they are done.

        Arguments:
        - `commands`: recorded for this kind of queue. It may be submitted again, also while it runs.
        - `after`: points that must be reached before the first command starts, of queues of any open device.
          A point whose work is not submitted yet is allowed: the queue waits for it.
        - `values`: a Buffer or a number for each Param left open; values of other Params are ignored.
        - `timeout_s`: seconds to wait at most while the ring has no space. None: no limit; the wait still
          ends when the device faults or is closed.
        - `limit_s`: seconds that the work may run, from when what it waits for is done. After them the device
          is faulted (`FaultKind.HANG`), with all queues; `Device.recover` continues. None: no limit.

        Order: a submission starts after the effects of this queue's previous one are visible. Inside it,
        kernels between two barriers may overlap and finish in any order; all other commands run in the order
        recorded. Between queues, of one device or of several, only `after=` and recorded waits give order.
        The commands see the host's writes to host-visible memory before the call. The host sees their writes
        after it has waited for the returned point.

        Ownership: the queue keeps the commands, and with them their buffers, programs and signals, alive
        until the point is reached or lost to a fault. Closing a buffer meanwhile defers its free.

        Threads: any thread may submit. Submissions to one queue are ordered as the calls acquire its lock.
        The call returns once the words are in the ring; it does not wait for the work.

        Raises, and then has sent nothing:
        - `UsageError` for commands of another kind of queue; a closed buffer, program or device; memory that
          the device cannot access; `after` that is no sequence of points; a Param without a value, or with
          one that does not fit. With validation also for a hazard, a launch outside the device's limits, an
          overrun buffer, and a wait for ring space that nothing can end. A buffer that was closed with
          `reason=` raises that error.
        - `UsageTypeError` for another class of commands, values, timeout or limit.
        - `UnsupportedError` for a command that the device's encoder does not support.
        - `OutOfMemoryError` when there is no memory for arguments or for a large submission's words.
        - `DeviceFault` when the device has faulted, or a point of `after` was lost to a fault.
        - `SignalTimeout` when the ring had no space within `timeout_s` seconds.
        The queue can be used afterwards; after a `DeviceFault` only once `Device.recover` has succeeded.

            point = queue.submit(queue.record().copy(target, source), after=[uploaded])
            point.wait()
        """
        if (  # before the lock: in a forked child nobody releases it
            self.refusal is not None
            or commands.__class__ is not CommandBuffer
            or commands.kind is not self.kind
        ):
            check_commands(self, commands)
        if timeout_s is not None:
            check_timeout(timeout_s)
        if limit_s is not None:
            check_timeout(limit_s)
        if values is not None:
            check_values(values)
        with self.lock:
            if self.refusal is not None:
                raise self.refusal()
            device = self.device
            if commands.epoch != device.close_epoch:
                commands.verify(device)
            todo: list[Command] = commands.commands[:]
            if after is not NOTHING:
                todo[:0] = waits_for(self, after, poll_lost)
            if commands.spans or device.trace or device.profile:
                todo = self._timed(commands, todo)
            if self.watch is not None:
                todo = self.check(commands.label, todo, values)
            point = self._send(todo, values, todo, timeout_s)
            if limit_s is not None:
                self._time_limits().add(point, limit_s, commands.label, todo)
                WAITER.add(point, lambda _point, _error: None)  # so that a thread polls
            return point

    def submit_later(
        self,
        commands: CommandBuffer,
        *,
        after: Sequence[Point | Future[Point]] = (),
        values: Mapping[Param, Value] | None = None,
        limit_s: float | None = None,
    ) -> Future[Point]:
        """Submit commands once all of `after` is done; until then `cancel` of the future withdraws them.

        Work in a ring cannot be taken back, so the host holds these commands, which a later `submit` may
        pass; the thread of callbacks submits them. The future's result is their point, once it is reached.

        - `future.cancel()` returns True if the commands will never run, and releases them; False once they
          are submitted. `future.running()` says whether they are.
        - `after`: a list of points, and of futures that this method returned. A future after a cancelled one
          is cancelled too; after an error, or the lost work of a point, it has that error.
        - `values`, `limit_s`: as in `submit`. The commands and values are those of this call.

        `end`, `sync` and `idle` leave out what is not submitted yet. Wrong arguments raise as in `submit`,
        and nothing is held; later errors, such as that of a buffer closed meanwhile, are the future's.

            future = queue.submit_later(commands, after=[loaded])
            stopped = future.cancel() or future.result()
        """
        from hcq.deferred import submit_later  # noqa: PLC0415 - a process without futures starts faster

        check_timeout(limit_s)
        submit = partial(self.submit, limit_s=limit_s)
        return submit_later(self, submit, commands, after, {} if values is None else values)

    def _time_limits(self) -> TimeLimits:
        """Return the time limits of this queue, made at the first call. The caller holds the lock."""
        if self.limits is None:
            from hcq.faults.limits import TimeLimits  # noqa: PLC0415 - only when wanted

            self.limits = TimeLimits(emulated=self.device.emulated)
        return self.limits

    def prepend(self, commands: CommandBuffer, *, after: Sequence[Point] = ()) -> None:
        """Begin the next submission with waits for `after`, then with all stores of `commands`.

        They cost no doorbell of their own. Any submission carries them, also a replay; without one, `end` and
        `sync` send them, and the point of `end` covers them. Their order is that of a submission made now. If
        the submission that carries them is refused, the next one carries them. Stores to a buffer that is
        closed meanwhile are dropped; a `recover` of the device drops waits for lost work.

        `commands` is a CommandBuffer, whose class is not checked, of `write`s of numbers, and `after` has
        points of queues' submissions: neither can make another submission fail. Ownership, threads and errors
        as in `submit`; raises `UsageError` also for other commands and points, `UsageTypeError` for no
        list of points. After an error nothing was kept.
        """
        stores = commands.commands
        check_stores(stores)
        if self.refusal is not None:
            raise self.refusal()
        with self.lock:
            if self.refusal is not None:
                raise self.refusal()
            if commands.epoch != self.device.close_epoch:
                commands.verify(self.device)
            waits = waits_for(self, after, poll_lost)
            check_waits(waits, after)
            if self.watch is not None:
                self.check(commands.label or "prepended", [*waits, *stores], None)
                self.watch.not_sent(self)
            if len(self.prepended.commands) >= MOST_PENDING:
                self._flush()
            self.prepended.add(waits, stores)

    def check(self, label: str, todo: list[Command], values: Mapping[Param, Value] | None) -> list[Command]:
        """Return commands as validation orders them; it also checks the prepended ones, which run before.

        The caller holds the lock, and sends them next.
        """
        assert self.watch is not None, "validation is on"
        pending = self.prepended.opened()
        return self.watch.check_submission(self, label, [*pending, *todo], values)[len(pending) :]

    def _flush(self) -> None:
        """Send the prepended commands, and cover interrupted submissions. The caller holds the lock."""
        if self.watch is not None and self.prepended.commands:
            self.check("prepended", [], None)
        self._send([], None, ())

    def _send(
        self,
        todo: list[Command],
        values: Mapping[Param, Value] | None,
        kept: Sequence[object],
        timeout_s: float | None = None,
    ) -> Point:
        """Encode and send commands, followed by the timeline's next value. The caller holds the lock."""
        pushbuffer, arguments = self._pushbuffer, self._arguments
        pushbuffer.clear()  # first: an interrupted submission may have left words
        if arguments.extra:
            arguments.finish(pushbuffer)
        point = self.timeline.next()
        if timeout_s is not None:
            self._backpressure.allow(point.value, timeout_s)
        if self.crumbs is not None:
            todo = self.crumbs.marked(todo, point.value)
            kept = [*kept, *todo]
        try:
            prepended = self.prepended
            self.encode([*prepended.opened(), *todo] if prepended.commands else todo, pushbuffer)
            if pushbuffer.patches:
                kept = [*kept, *write_values(pushbuffer, arguments, todo, values, self.device)]
            if len(pushbuffer.words) > self.most_words:
                kept = [*kept, self._move_to_memory(pushbuffer)]
            signal, ending = point.signal, self._ending
            if ending is None or ending.signals[0] is not signal:
                ending = self._new_ending()
            if ending.single >= 0:  # as `fill` does, without its call
                ending.pushbuffer.words[ending.single] = point.value - signal.base
            else:
                ending.fill((point.value - signal.base,))
            pushbuffer.words += ending.pushbuffer.words
            if arguments.extra:
                kept = [*kept, *arguments.finish(pushbuffer)]
        except _NOTHING_SENT:
            self.timeline.undo(point)
            arguments.finish(pushbuffer)
            self._not_sent()
            raise
        self.submit_template(pushbuffer, point, kept)
        return point

    def _not_sent(self) -> None:
        self._backpressure.reset()
        if self.crumbs is not None:
            self.crumbs.undo()
        if self.watch is not None:
            self.watch.not_sent(self)

    def stalled(self, until: int) -> None:
        """Check a submission that waits for ring space; see `Backpressure.stalled` and `Ring.stalled`."""
        self._backpressure.stalled(
            lambda timed: self.device.poll_room(self, until, timed=timed), self._timeout
        )

    def _timeout(self, waited_s: float) -> SignalTimeout:
        """Return the error of a submission for which the ring had no space in time."""
        point = self._inflight[0][0]
        text = f"{self.label} had no room for a submission for {waited_s:.1f} s"
        return SignalTimeout(text + room_text(self), point=point, seen=point.signal.value, waited_s=waited_s)

    def _move_to_memory(self, pushbuffer: PushBuffer) -> Buffer:
        """Move the words to a new buffer, and replace them by a call of it; return the buffer."""
        count = len(pushbuffer.words)
        label = f"a large submission to {self.label}"
        buffer = stored_words(self.device, pushbuffer.words, pushbuffer.word_bits, label=label)
        pushbuffer.clear()
        self.encode([Indirect(buffer, count)], pushbuffer)
        return buffer

    def _new_ending(self) -> SubmitTemplate:
        """Return the words that raise a point of the timeline's signal when all before them are done."""
        scratch = PushBuffer(self._pushbuffer.word_bits, ArgumentArena(self.device, self.label))
        self._ending = ending = SubmitTemplate(self, scratch)
        return ending

    def _timed(self, commands: CommandBuffer, todo: list[Command]) -> list[Command]:
        """Add the time records of trace and profile, and register all spans of the submission."""
        device = self.device
        whole = (commands.label or f"{len(commands)} commands") if device.trace else ""
        todo, spans = timed(todo, each=device.profile, whole=whole)
        device.span_log.expect(self, [*commands.spans, *spans])
        return todo

    def submit_template(
        self, pushbuffer: PushBuffer, point: Point, kept: Sequence[object], timeout_s: float | None = None
    ) -> None:
        """Send words that raise `point`, the newest of the timeline. The caller holds the lock.

        `kept` stays alive until the point is reached. After an interrupt the words may have been sent: `kept`
        is still held then, and the value is not issued again. Raises as `submit` does.
        """
        inflight, ring, retired = self._inflight, self.ring, self.device.retired
        pending: list[Command] = []
        taken = 0
        while inflight and inflight[0][0].passed():  # as `_sweep` does, without its call
            _, _, self._arguments.tail = inflight.popleft()
        if retired.deferred or retired.unloads.waiting:
            retired.free()
        if timeout_s is not None:
            self._backpressure.allow(point.value, timeout_s)
        try:
            if self.prepended.commands:
                pending, taken = self.prepended.opened(), ring.taken
                pushbuffer = self._joined(pending, pushbuffer, point)
            inflight.append((point, kept, self._pushbuffer.at))
            ring.submit(pushbuffer)
        except BaseException as error:
            if pending and ring.taken == taken:
                self.prepended.commands = pending
            if isinstance(error, _NOTHING_SENT):
                while inflight and inflight[-1][0] is point:
                    inflight.pop()
                self.timeline.undo(point)
                self._not_sent()
            raise
        if self.watch is not None:
            self.watch.sent(self, point, pushbuffer.words, pushbuffer.word_bits)
        self.timeline.last = point

    def _joined(self, pending: list[Command], pushbuffer: PushBuffer, point: Point) -> PushBuffer:
        """Return the words of the prepended commands, followed by those given; nothing is pending then.

        The queue's own push buffer begins with them already: `_send` has encoded them.
        """
        own = self._pushbuffer
        kept: list[object] = [*pending]
        if pushbuffer is not own:
            own.clear()
            self.encode(pending, own)
            own.calls = [(at + len(own.words), entry) for at, entry in pushbuffer.calls]
            own.words += pushbuffer.words
            if self._arguments.extra:
                kept += self._arguments.finish(own)
        self.prepended.commands = []
        self._inflight.append((point, kept, own.at))
        return own

    @property
    def ending_words(self) -> int:
        """Number of words that end a direct submission."""
        return 0 if self._ending is None else len(self._ending.pushbuffer.words)

    def send(self, commands: list[Command], values: Mapping[Param, Value] | None = None) -> Point:
        """Submit commands without validation. The caller holds the lock. Raises as `submit`."""
        return self._send(commands, values, commands)

    def wait_for(self, points: Sequence[Point], timeout_s: float | None = None) -> None:
        """Make later submissions wait for points. The caller holds the lock. Raises as `submit`."""
        waits = waits_for(self, points, poll_lost)
        if waits:
            todo: list[Command] = list(waits)
            if self.watch is not None:
                self.check("wait", todo, None)
            self._send(todo, None, todo, timeout_s)

    def _sweep(self) -> None:
        """Retire completed submissions: drop references and argument memory. The caller holds the lock."""
        inflight = self._inflight
        while inflight and inflight[0][0].passed():
            _, _, self._arguments.tail = inflight.popleft()
        if self.device.retired.pending:
            self.device.retired.free()

    def sweep(self) -> None:
        """Retire completed submissions, unless another thread holds the queue's lock."""
        if self._inflight or self.device.retired.pending:
            unless_taken((self.lock,), self._sweep)

    def retire_oldest(self) -> bool:
        """Wait for the oldest submission in flight and retire it; return False when there is none.

        The caller holds the lock. Raises as `Signal.wait` does.
        """
        self._sweep()
        if not self._inflight:
            return False
        point = self._inflight[0][0]
        if point.value > self.timeline.last.value:
            return False  # all in flight were interrupted and may never have been sent
        point.wait(timeout_s=self._backpressure.limit())
        self._sweep()
        return True

    def oldest(self) -> Point | None:
        """Return the point of the oldest submission in flight; None when none is known to be."""
        try:
            point = self._inflight[0][0]
        except IndexError:
            return None
        return point if point.value <= self.timeline.last.value else None

    @property
    def priority(self) -> int:
        """The priority among the queues of the device, -3 to 3; 0 unless it was set."""
        return self._priority

    @priority.setter
    def priority(self, level: int) -> None:
        """The priority among the queues of the device; setting it takes effect for work in flight too.

        Setting raises `UsageError` for another level, `UnsupportedError` for a queue without priorities,
        `DriverError` if the kernel driver refuses it; then it stays as it was.
        """
        if not isinstance(level, int) or not -3 <= level <= 3:
            raise UsageError(f"priority of {self!r}: wanted -3 to 3, seen {level!r}")
        if self.refusal is not None:
            raise self.refusal()
        with self.lock:
            self.device.driver.set_priority(self.kind, self.index, level)
            self._priority = level

    @property
    def idle(self) -> bool:
        """Whether all submissions so far are complete or lost. Asks no driver; sends nothing."""
        last = self.timeline.last
        return last.over() and not self.prepended.commands and self.timeline.value == last.value

    def end(self) -> Point:
        """Return the point at which all submissions so far are complete, interrupted ones included.

        Sends the prepended commands, if any; raises as `submit` then.
        """
        timeline, prepended = self.timeline, self.prepended
        last = timeline.last
        if timeline.value != last.value or prepended.commands:  # interrupted, or another thread sends one
            if prepended.commands and self.refusal is not None:  # before the lock, as in `submit`
                raise self.refusal()
            with self.lock:
                if timeline.value != timeline.last.value or prepended.commands:
                    self._flush()
                last = timeline.last
        return last

    def shut(self, refusal: Refusal, timeout_s: float) -> str:
        """Send the prepended commands, and refuse all later ones; return why they could not be sent, or "".

        A concurrent submission finishes first. `timeout_s`: of a wait for room, in seconds.
        """
        with self.lock:
            unsent = ""
            try:
                if self.prepended.commands and self.refusal is None:
                    self._send([], None, (), timeout_s)
            except HcqError as error:
                unsent = str(error)
            self.refusal = self.refusal or refusal
        return unsent

    def cover(self, point: Point) -> None:
        """Ensure that a point of this queue will be reached even if its submission was interrupted.

        The caller holds the lock.
        """
        if point.value > self.timeline.last.value:
            self._flush()

    def inflight(self) -> list[tuple[Point, Sequence[object]]]:
        """Return (point, objects kept alive) of every submission not known to be complete."""
        return [(point, kept) for point, kept, _ in tuple(self._inflight)]

    def forget(self) -> None:
        """Drop the records of work in flight. The device must be stopped: it accesses no memory any more."""
        self._inflight.clear()
        self.prepended.commands.clear()

    def restart(self, reason: Refusal) -> list[Sequence[object]]:
        """Continue with an empty ring; return the objects kept by work in flight, which is lost.

        `reason` makes the error of waits for lost points. The caller holds the lock.
        """
        lost = [(point, kept) for point, kept, _ in self._inflight if not point.passed()]
        for point, _ in lost:
            LOST[point.signal] = (SLOT_VALUES, reason)
        self._inflight.clear()
        if self.crumbs is not None:
            self.crumbs.restart()
        self._pushbuffer.clear()
        self._arguments.restart(self._pushbuffer)
        self.timeline.renew(reason)
        return [kept for _, kept in lost]

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Wait until all submissions so far are complete. Raises as `Signal.wait` does."""
        check_timeout(timeout_s)
        if self.refusal is not None:
            raise self.refusal()
        self.end().wait(timeout_s=timeout_s)
        self.sweep()

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Queue {self.label}>"
