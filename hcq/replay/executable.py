"""Executables: compiled graphs, of which a replay writes only the changed values and the doorbell.

Each replay slot owns prebuilt words and argument memory, which the device reads in place. It records the
values that are bound to it, and is rewritten only after its last replay has completed. If an executable uses
one queue, a replay with the values of the previous one takes the same slot again, even while that is in
flight. When every slot is in flight another is made, up to a limit; at the limit a replay waits for the
oldest. Replays of one executable run in order in each queue. Between queues replay k+1 waits for replay k
where both may access the same memory.

A slot keeps references to the buffers that are bound to it, until other values are bound, memory is short, or
the executable is closed.

Not here: recording a graph (`hcq.graph`), one slot (`slot`), the values that a replay writes (`relocations`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter, is_, ne
from threading import RLock
from typing import Final

from hcq.commandbuffer import CommandBuffer
from hcq.commands import Command, Timestamp, Wait, check_ranges, opened
from hcq.device import Device
from hcq.errors import UsageError, UsageTypeError, refuse_copy
from hcq.locks import held, unless_taken
from hcq.memory import Buffer
from hcq.params import Expr, Param, Patch, Value, check_reach, check_values, reaches, resolve
from hcq.profile import timed
from hcq.queue import NOTHING, Queue
from hcq.replay.joined import JoinedReplay
from hcq.replay.relocations import compile_bind
from hcq.replay.slot import ReplaySlot, Segment
from hcq.signal import Point, Stamp, check_timeout

_EPOCH: Final = attrgetter("close_epoch")
_LOCK: Final = attrgetter("lock")
_REFUSAL: Final = attrgetter("refusal")
_SIGNAL: Final = attrgetter("timeline.signal")


def _has_open_size(command: Command) -> bool:
    return any(isinstance(touch.size, (Param, Expr)) for touch in command.touches())


class Executable:
    """A compiled graph. Made by `Graph.compile`. Thread-safe.

    `params` are its parameters in the order in which `replay` takes values; `queues` and `devices` are those
    it uses. It keeps the graph's commands and its own memory alive until `close` or the last reference.
    """

    def __init__(  # noqa: PLR0917 - made by Graph.compile alone
        self,
        label: str,
        params: tuple[Param, ...],
        pointers: Mapping[Param, int],
        segments: list[Segment],
        conflicts: set[tuple[Queue, Queue]],
        copies: int,
        limit: int,
    ) -> None:
        self.closed = False
        self.label = label
        self.params = params
        self.segments = segments
        self.queues: list[Queue] = list(dict.fromkeys([segment.queue for segment in segments]))
        self._in_order_of_locks = sorted(self.queues, key=id)
        self.devices: list[Device] = list(dict.fromkeys(segment.queue.device for segment in segments))
        self._conflicts = conflicts
        self._limit = limit
        self._pointers = [param in pointers for param in params]
        self._owners = [self.devices] * len(params) if len(self.devices) == 1 else self._users()
        """For each parameter the devices that use it, which must see its buffer; unused: all devices."""
        self._least = [max(param.size, pointers.get(param, 0)) for param in params]
        """The least bytes of a buffer for each parameter."""
        self._tails: dict[Queue, Point] = {}
        """The point at the end of the last replay in each queue."""
        quiet = True
        for q in self.queues:
            if q.watch is not None or q.crumbs is not None or q.device.trace or q.device.profile:
                quiet = False
        self._short = self.queues[0] if len(segments) == 1 and quiet else None
        """The queue, if `replay` may use its fast path: only one, without validation, trace or profile."""
        self._joint = len(segments) > 1 and quiet
        """Whether a replay is one submission to each queue."""
        self._turn = 0
        """Index of the slot of the last replay."""
        self._slots: list[ReplaySlot] = []
        self._checks: list[list[tuple[Patch, int]]] = [[] for _ in params]
        """(patch, bits that a number may have there) of every patch of each parameter."""
        self._floats = False
        """Whether a parameter is a floating-point number somewhere."""
        self._sized = [c for segment in segments for c in segment.commands if _has_open_size(c)]
        """Commands whose number of bytes is a parameter."""
        for segment in segments:
            if segment.queue.watch is not None:
                segment.commands = segment.queue.watch.reorder(segment.commands)
        held(self._locks(), lambda: [self._add_slot() for _ in range(copies)])
        self._epochs = [device.close_epoch for device in self.devices]
        for device in self.devices:
            device.keep(self)

    def _users(self) -> list[list[Device]]:
        """Return for each parameter the devices whose commands use it; all devices for an unused one."""
        found: dict[Param, dict[Device, None]] = {param: {} for param in self.params}
        for segment in self.segments:
            pointers, numbers = opened(segment.commands)
            for param in pointers.keys() | numbers:
                found[param][segment.queue.device] = None
        return [list(found[param]) or self.devices for param in self.params]

    def _locks(self) -> list[RLock]:
        """Return the locks of all queues, in the one order in which they are acquired."""
        return [*map(_LOCK, self._in_order_of_locks)]

    def _add_slot(self) -> ReplaySlot:
        slot = ReplaySlot(self.label, self.devices, self.segments, self.params)
        if self._slots and self._slots[0].plan == slot.plan:
            slot.bind = self._slots[0].bind
        else:
            slot.bind = compile_bind(slot.plan, self._least, self._pointers, self._owners, self._checker())
        if not self._slots:
            number = {param: i for i, param in enumerate(self.params)}
            patches = [patch for _, patch in slot.patches]
            for patch, reach in zip(patches, reaches(patches), strict=True):
                self._checks[number[patch.expr.param]].append((patch, reach))
                self._floats |= patch.expr.float_bits > 0
        self._slots.append(slot)
        return slot

    def _checker(self) -> Callable[[int, object], None]:
        """Return `_check` with a weak reference to this, so that no cycle delays its deletion."""
        me = weakref.ref(self)

        def check(i: int, value: object) -> None:
            executable = me()
            assert executable is not None  # it is being replayed
            executable._check(i, value)  # noqa: SLF001 - its own

        return check

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all slots: prebuilt words, argument blocks and ring words."""
        total = 0
        for slot in self._slots:
            for buffer in slot.kept.memories:
                total += buffer.size
            for template in slot.templates:
                if template is not None:
                    total += len(template.pushbuffer.words) * (template.pushbuffer.word_bits // 8)
        return total

    def _check(self, i: int, value: object) -> None:
        """Raise `UsageError` if a value does not fit parameter `i`."""
        param = self.params[i]
        if isinstance(value, Buffer) is not self._pointers[i] and self._checks[i]:
            wanted = "a Buffer" if self._pointers[i] else "a number"
            raise UsageError(f"{param.name}: wanted {wanted}, seen {value!r}")
        for device in self._owners[i]:
            number = resolve(param, value, device, least=self._least[i])
            if not self._pointers[i]:
                for patch, reach in self._checks[i]:
                    check_reach(patch, reach, number)

    def _bind(self, slot: ReplaySlot, given: Sequence[Value]) -> None:
        """Bind values to a slot: write those that changed. On an error the slot is unbound."""
        if given.__class__ is not list and not isinstance(given, (list, tuple)):
            raise UsageTypeError(
                f"replay of {self.label or 'a graph'}: wanted a list of values, seen {given!r}\n"
                "hint: replay([value]); submit({param: value}) takes values by parameter"
            )
        try:
            slot.bind(given, slot.kept.given, slot.views)
            for command in self._sized:
                check_ranges(command, dict(zip(self.params, given, strict=True)))
        except BaseException:
            slot.unbind()
            if len(given) != len(self.params):
                names = ", ".join(param.name for param in self.params)
                text = f"wanted {len(self.params)} values ({names}), {len(given)} were given"
                raise UsageError(f"replay of {self.label or 'a graph'}: {text}") from None
            for i, value in enumerate(given):
                self._check(i, value)  # raises the error with its text
            raise

    def replay(
        self, given: Sequence[Value] = (), *, after: Sequence[Point] = (), timeout_s: float | None = None
    ) -> Point:
        """Submit the graph with these values; return the point that is reached when all of it is complete.

        `given` has one value for each parameter, in the order of `params`: a Buffer for memory, else a
        number. Nothing is encoded, except with `profile`, for a new slot, and when a timeline has taken a
        fresh signal slot. If the slot is bound to the same values already, nothing is written either.

        Order: after the points of `after`; in each queue after all earlier submissions to it; between queues
        after the previous replay of this executable where both may access the same memory.

        Waits while all copies are in flight or a ring has no space, each time `timeout_s` seconds at most
        (None: no limit). The call does not wait for the work itself.

        Ownership: the buffers stay alive until the replay is complete, and then until other values are bound
        to the slot, memory is short, or the executable is closed.

        Threads: any thread may replay; the locks of all its queues are held during the call.

        Raises, and then has sent nothing: `UsageError` for a wrong count or class of values, a buffer that is
        closed, too small or not accessible to a device, a number out of range, a closed executable or device,
        and with validation for what `Queue.submit` lists; `UsageTypeError` for another class of `given`,
        `after` or `timeout_s`; `DeviceFault` after a fault, or when a point of `after` is lost;
        `OutOfMemoryError` when there is no memory for another slot; `SignalTimeout`. With several queues an
        error in a later queue is raised after the work of earlier ones was sent, and runs.

            executable.replay([images, 32]).wait()
        """
        queue = self._short
        if queue is None or after is not NOTHING or timeout_s is not None:
            if not self._joint or after is not NOTHING or timeout_s is not None:
                return self._replay(given, after, timeout_s)
            if self.closed or any(map(_REFUSAL, self.queues)):  # before the locks, as below
                self._refuse()
            locks = [*map(_LOCK, self._in_order_of_locks)]
            return held(locks, partial(self._replay_held, given, (), None))
        if queue.refusal is not None:  # before the lock: in a forked child nobody releases it
            raise queue.refusal()
        comparing = False
        try:  # not inside of the lock, which an interrupt at this line would keep
            with queue.lock:
                if queue.refusal is not None:
                    raise queue.refusal()
                if self._epochs[0] != queue.device.close_epoch:
                    if self.closed:
                        return self._replay(given, after, None)  # closed by another thread: raises
                    self._verify()  # before a slot is taken: it unbinds all
                slot = self._slots[self._turn]
                current, comparing = slot.kept.given, True  # 0.0 equals -0.0, which has other bits
                bound = given == current and (not self._floats or all(map(is_, given, current)))
                if not bound:
                    comparing = False
                    slot = self._next()
                    current, comparing = slot.kept.given, True  # values that alternate are in it already
                    bound = given == current and (not self._floats or all(map(is_, given, current)))
                comparing = False
                if not bound:
                    self._bind(slot, given)
                point = queue.timeline.next()
                template, signal = slot.templates[0], point.signal
                if template is None or template.signals[0] is not signal:
                    template = slot.ring_words(self.segments[0], ())
                if template.single >= 0:
                    template.pushbuffer.words[template.single] = point.value - signal.base
                else:
                    template.fill((point.value - signal.base,))
                slot.points = [point]  # before the submission: an interrupt may leave it in flight
                queue.submit_template(template.pushbuffer, point, slot.kept)
                return point
        except ValueError:
            if not comparing:
                raise
            return self._replay(given, after, None)  # an array, which `_bind` refuses

    def _refuse(self) -> None:
        """Raise the error of a closed executable or of a device that refuses submissions, if there is one."""
        if self.closed:
            raise UsageError(f"{self.label or 'the executable'} is closed")
        for queue in self.queues:
            if queue.refusal is not None:
                raise queue.refusal()

    def submit(
        self,
        values: Mapping[Param, Value] | None = None,
        *,
        after: Sequence[Point] = (),
        timeout_s: float | None = None,
    ) -> Point:
        """Replay with values by parameter; order, ownership and errors as in `replay`.

        Raises `UsageError` also for a parameter without a value and for one of another graph,
        `UsageTypeError` for values of other classes. Every value is checked, also one that is bound already.
        """
        values = {} if values is None else values
        check_values(values)
        unknown = [param.name for param in values if param not in self.params]
        missing = [param.name for param in self.params if param not in values]
        if unknown or missing:
            raise UsageError(
                f"{self.label or 'the graph'} takes {', '.join(p.name for p in self.params) or 'nothing'}; "
                f"missing: {', '.join(missing) or 'none'}; not its own: {', '.join(unknown) or 'none'}"
            )
        given = [values[param] for param in self.params]
        for i, value in enumerate(given):
            self._check(i, value)
        return self.replay(given, after=after, timeout_s=timeout_s)

    def _next(self, timeout_s: float | None = None) -> ReplaySlot:
        """Return a slot that is not in flight; wait for one at the limit. The caller holds the locks."""
        slots = self._slots
        turn = self._turn + 1
        self._turn = turn = turn if turn < len(slots) else 0
        slot = slots[turn]
        points = slot.points
        if points and not (points[0].passed() if len(points) == 1 else slot.done()):
            if len(slots) < self._limit:
                slot = self._add_slot()
                self._turn = len(slots) - 1  # after it: an interrupt must not leave a turn without a slot
                return slot
            for queue, point in zip(self.queues, points, strict=False):
                queue.cover(point)
                point.wait(timeout_s=timeout_s)
        return slot

    def _verify(self) -> None:
        """Check all commands again if a buffer or program was closed since the last check."""
        if any(map(ne, map(_EPOCH, self.devices), self._epochs)):
            for segment in self.segments:
                commands = CommandBuffer(segment.queue.kind, label=segment.label)
                commands.commands = segment.commands
                commands.verify(segment.queue.device)
            for slot in self._slots:
                slot.unbind()
            self._epochs = [device.close_epoch for device in self.devices]

    def _replay(self, given: Sequence[Value], after: Sequence[Point], timeout_s: float | None) -> Point:
        """Replay on several queues, or with options that the fast path does not handle."""
        if after.__class__ is not tuple or after or timeout_s is not None:
            if isinstance(after, Point) or not all(isinstance(point, Point) for point in _each(after)):
                raise UsageTypeError(f"after= takes a list of points, not {after!r}\nhint: after=[point]")
            check_timeout(timeout_s)
        self._refuse()  # before the locks: in a forked child nobody releases them
        return held(self._locks(), partial(self._replay_held, given, after, timeout_s))

    def _replay_held(self, given: Sequence[Value], after: Sequence[Point], timeout_s: float | None) -> Point:
        """Replay on several queues. The caller holds their locks."""
        if self.closed or any(map(_REFUSAL, self.queues)):
            self._refuse()
        slot = self._next(timeout_s)
        if any(map(ne, map(_EPOCH, self.devices), self._epochs)):
            self._verify()
        self._bind(slot, given)
        if self._joint and not after and timeout_s is None:
            joined = slot.joined
            if joined is None or joined.signals != [*map(_SIGNAL, self.queues)]:
                joined = slot.joined = JoinedReplay(slot, self.queues, self.segments, self._conflicts)
                self._joint = joined.fits()
            if self._joint and joined.send(slot, self._tails):
                return self._tails[self.segments[-1].queue]
        tails = dict(self._tails)
        for queue in self.queues:
            if queue in tails:
                queue.cover(tails[queue])
            others = [tail for other, tail in tails.items() if (queue, other) in self._conflicts]
            queue.wait_for([*after, *others], timeout_s)
        values = dict(zip(self.params, given, strict=True))
        points: list[Point] = []
        for segment in self.segments:
            waits = [points[i] for i in segment.waits]
            points.append(self._send(slot, segment, waits, values, None if points else timeout_s))
        return points[-1]

    def _send(
        self,
        slot: ReplaySlot,
        segment: Segment,
        waits: list[Point],
        values: Mapping[Param, Value],
        timeout_s: float | None,
    ) -> Point:
        queue = segment.queue
        if queue.watch is not None:
            todo: list[Command] = [Wait(p.signal, p.value - p.signal.base) for p in waits]
            queue.check(segment.label or self.label, [*todo, *segment.commands], values)
        if queue.device.profile or queue.crumbs is not None:
            return self._send_timed(slot, segment, waits, values)
        begin, end = Stamp(), Stamp()
        if queue.device.trace:
            queue.send([Timestamp(begin)])
        point = queue.timeline.next()
        # Before the submission: an interrupt may leave it in flight.
        self._tails[queue] = point
        slot.points = [self._tails[queue] for queue in self.queues if queue in self._tails]
        template = slot.ring_words(segment, tuple(wait.signal for wait in waits))
        template.fill([p.value - p.signal.base for p in (*waits, point)])
        kept = slot.kept
        if len(self.devices) > 1:
            kept = kept._replace(waits=tuple(Wait(p.signal, p.value - p.signal.base) for p in waits))
        queue.submit_template(template.pushbuffer, point, kept, timeout_s)
        if queue.device.trace:
            queue.send([Timestamp(end)])
            queue.device.span_log.expect(queue, [(segment.label or self.label or "replay", begin, end)])
        return point

    def _send_timed(
        self, slot: ReplaySlot, segment: Segment, waits: list[Point], values: Mapping[Param, Value]
    ) -> Point:
        """Encode a segment again, with time records or breadcrumbs at each kernel, which are not replayed."""
        queue = segment.queue
        whole = (segment.label or self.label or "replay") if queue.device.trace else ""
        todo, spans = timed(segment.commands, each=queue.device.profile, whole=whole)
        point = queue.send([*[Wait(p.signal, p.value - p.signal.base) for p in waits], *todo], values)
        self._tails[queue] = point
        slot.points = [self._tails[queue] for queue in self.queues if queue in self._tails]
        queue.device.span_log.expect(queue, spans)
        return point

    def forget(self) -> None:
        """Drop the references of idle slots to buffers, because memory is short."""
        unless_taken(self._locks(), self._unbind_all)  # else a replay is in progress and needs its buffers

    def _unbind_all(self) -> None:
        for slot in self._slots:
            slot.unbind()

    def recovered(self) -> None:
        """Drop lost replays after a device recovered. The next replay binds all values again."""
        held(self._locks(), self._restart)

    def _restart(self) -> None:
        self._tails = {queue: point for queue, point in self._tails.items() if not point.over()}
        for slot in self._slots:
            slot.restart()

    def close(self) -> None:
        """Free the memory of all slots; that of replays in flight once they are complete. Idempotent."""
        if not self.closed:
            held(self._locks(), self._close)

    def _close(self) -> None:
        self.closed, self._short, self._epochs = True, None, [-1] * len(self.devices)
        self._slots.clear()

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        names = ", ".join(param.name for param in self.params)
        return f"<Executable {self.label!r}({names}){' closed' if self.closed else ''}>"


def _each(after: object) -> Iterable[object]:
    """Return the elements of `after=`; of an object that is no sequence, the object itself."""
    try:
        return list(after)  # type: ignore[call-overload,no-any-return]  # raises if it cannot be iterated
    except TypeError:
        return (after,)
