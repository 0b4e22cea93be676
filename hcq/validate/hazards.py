"""Hazards between submissions: a vector clock for each queue, and the access history of each buffer.

A clock maps each queue to the position up to which its work is known to be earlier. A submission starts with
the clock of its queue joined with that of the host. A Wait joins the clock of the submission that raises the
signal; setting a signal publishes the clock. Two accesses of one byte, one of them a write, are a hazard
unless the position of the older one is within the clock of the younger one.

A submission that waits for a signal which no submission raises yet is *deferred*, with all later submissions
of its queue, because its order is unknown. It is checked immediately before the submission that raises the
signal is sent. If it has a hazard, that submission is refused. If a device without validation raises the
signal, the deferred submission is checked before the next one of any queue, which is refused then. A wait for
a deferred submission is unknown too, even where the device has reached its point. A wait for a queue without
validation defers nothing, and gives no order.

Not here: waits that nothing can end (`waits`); accesses inside one submission (`accesses`). Next:
`validator`, the caller.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hcq.commands import Command, SetSignal, Wait
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.params import Param, Value
from hcq.process import OpenQueue
from hcq.signal import Signal
from hcq.validate.accesses import Access, Intervals, UnorderedKernels, accesses, number

Clock = dict[int, int]
"""`OpenQueue.number` -> position. Numbers instead of queues, so that clocks keep no device alive."""
_PROMISES_KEPT = 256
"""The most promises remembered for one signal; the newest stay."""
_DEAD_KEPT = 256
"""The most numbers of deleted queues that a clock may hold before it is cleaned."""


@dataclass(frozen=True, slots=True)
class Past:
    """A submitted access, as an entry of its buffer's history. It does not reference the buffer."""

    queue: OpenQueue
    tick: int
    begin: int
    end: int
    writes: bool
    what: str


@dataclass(slots=True)
class Promise:
    """A submitted SetSignal: the value it stores, and the clock that a Wait for it joins."""

    queue: int
    """`OpenQueue.number`."""
    value: int
    clock: Clock


@dataclass(slots=True)
class Draft:
    """The effects of a checked submission, entered into the ledger once it was sent."""

    queue: OpenQueue
    label: str
    clock: Clock
    touched: dict[tuple[Buffer, int, bool], Intervals] = field(default_factory=dict)
    """Byte ranges by (buffer, position, whether written)."""
    promises: list[tuple[Signal, Promise]] = field(default_factory=list)
    events: list[tuple[bool, Signal, int]] = field(default_factory=list)
    """(whether it waits, signal, slot value), in order."""
    deferred: tuple[Sequence[Command], Mapping[Param, Value]] | None = None
    """(commands, values of Params) of a deferred submission; None for one that was checked."""


@dataclass(eq=False, slots=True)
class Deferred:
    """A submission that was sent before its order was known; see the module."""

    queue: OpenQueue
    label: str
    todo: Sequence[Command]
    values: Mapping[Param, Value]
    signal: Signal
    """The signal whose slot its end raises to `value`."""
    value: int

    def values_of(self, signal: Signal) -> list[int]:
        """Return the slot values that it raises a signal to."""
        sets = [c for c in self.todo if isinstance(c, SetSignal) and c.signal is signal]
        ends = [self.value] if self.signal is signal else []
        return [*[number(c.value, self.values) for c in sets], *ends]


class Ledger:
    """The submitted work of all validated devices that later submissions may conflict with."""

    def __init__(self) -> None:
        self.clocks: weakref.WeakKeyDictionary[OpenQueue, Clock] = weakref.WeakKeyDictionary()
        self.host: Clock = {}
        """The work that the host has observed to be complete."""
        self.history: weakref.WeakKeyDictionary[Buffer, list[Past]] = weakref.WeakKeyDictionary()
        self.promises: weakref.WeakKeyDictionary[Signal, list[Promise]] = weakref.WeakKeyDictionary()
        self.deferred: list[Deferred] = []
        """Deferred submissions in the order in which they were sent."""

    def draft(
        self, queue: OpenQueue, label: str, todo: list[Command], values: Mapping[Param, Value]
    ) -> Draft:
        """Check a submission against all earlier ones; return its effects.

        Raises `UsageError` for a hazard, a missing barrier, and a signal value that does not grow.
        """
        self._enter_ready()  # a signal that no submission raised may have its value now
        if self._must_defer(queue, todo, values, self.deferred):
            draft = Draft(queue, label, {})
            draft.deferred = todo, values
            self._walk(draft, todo, values)
            return draft
        draft = self._checked(queue, label, todo, values)
        if self.deferred:
            self._check_released_by(draft)
        return draft

    def _checked(
        self,
        queue: OpenQueue,
        label: str,
        todo: Sequence[Command],
        values: Mapping[Param, Value],
        *,
        again: bool = False,
    ) -> Draft:
        """Check a submission whose order is known; return its effects. `again`: it was deferred before."""
        self.host = self._without_dead_queues(self.host)
        clock = self._without_dead_queues(dict(self.clocks.get(queue, {})))
        join(clock, self.host)
        draft = Draft(queue, label, clock)
        clock[queue.number] = clock.get(queue.number, 0) + 1
        self._walk(draft, todo, values, again=again)
        return draft

    def _walk(
        self, draft: Draft, todo: Sequence[Command], values: Mapping[Param, Value], *, again: bool = False
    ) -> None:
        """Check the commands in order; of a deferred submission only the order inside it."""
        group = UnorderedKernels(draft.label)
        for command in todo:
            if isinstance(command, Wait):
                self._wait(draft, command, number(command.value, values))
            elif isinstance(command, SetSignal):
                value = number(command.value, values)
                if not again:
                    self._check_increasing(draft, command.signal, value)
                self._set(draft, command.signal, value)
            touched = list(accesses(command, values))
            if command.overlaps:
                group.add(touched)
            elif command.orders:
                group.clear()
            if draft.deferred is None:
                for access in touched:
                    self._order(draft, access)

    def _must_defer(
        self,
        queue: OpenQueue,
        todo: Sequence[Command],
        values: Mapping[Param, Value],
        before: Iterable[Deferred],
    ) -> bool:
        """Return whether a submission waits for an unknown value, or follows one in its queue that does."""
        if any(deferred.queue is queue for deferred in before):
            return True
        return any(
            isinstance(command, Wait) and not self._known(command.signal, number(command.value, values))
            for command in todo
        )

    def _known(self, signal: Signal, value: int) -> bool:
        """Return whether the work that raises a signal to `value` is known, or can never become known."""
        if signal.host_set or not checked(signal):
            return True
        if any(promise.value >= value for promise in self.promises.get(signal, ())):
            return True
        # The device may have run a deferred submission, but its order is entered later.
        late = any(raised >= value for one in self.deferred for raised in one.values_of(signal))
        return not late and signal.value - signal.base >= value

    def _ready(self, deferred: Sequence[Deferred]) -> Deferred | None:
        """Return the first deferred submission whose order is known; None: there is none."""
        for i, one in enumerate(deferred):
            if not self._must_defer(one.queue, one.todo, one.values, deferred[:i]):
                return one
        return None

    def _check_released_by(self, draft: Draft) -> None:
        """Check the deferred submissions whose order is known once `draft` is sent; raises as `draft`."""
        clocks = dict(self.clocks)
        history = {root: list(entries) for root, entries in self.history.items()}
        promises = {signal: list(known) for signal, known in self.promises.items()}
        try:
            self._enter(draft)
            left = list(self.deferred)
            while (ready := self._ready(left)) is not None:
                self._enter_deferred(ready)
                left.remove(ready)
        finally:
            self.clocks = weakref.WeakKeyDictionary(clocks)
            self.history = weakref.WeakKeyDictionary(history)
            self.promises = weakref.WeakKeyDictionary(promises)

    def _without_dead_queues(self, clock: Clock) -> Clock:
        """Return a clock without deleted queues, if it may hold many: nothing compares them again."""
        if len(clock) <= len(self.clocks) + _DEAD_KEPT:
            return clock
        alive = {queue.number for queue in self.clocks}
        return {number: tick for number, tick in clock.items() if number in alive}

    def _wait(self, draft: Draft, command: Wait, value: int) -> None:
        draft.events.append((True, command.signal, value))
        for promise in self.promises.get(command.signal, ()):
            if promise.value >= value:
                join(draft.clock, promise.clock)
                return

    def _check_increasing(self, draft: Draft, signal: Signal, value: int) -> None:
        """Raise `UsageError` for a signal value that is not above all submitted before."""
        before = [promise.value for promise in self.promises.get(signal, ())][-1:]
        before += [promise.value for one, promise in draft.promises if one is signal]
        for deferred in self.deferred:
            before += deferred.values_of(signal)
        if before and value <= max(before):
            raise UsageError(
                f"{draft.label or 'a submission'} sets {signal!r} to {value}, but {max(before)} was "
                f"submitted before: a point is raised once, and values only grow"
            )

    def _set(self, draft: Draft, signal: Signal, value: int) -> None:
        draft.events.append((False, signal, value))
        number = draft.queue.number
        draft.promises.append((signal, Promise(number, value, dict(draft.clock))))
        draft.clock[number] = draft.clock.get(number, 0) + 1

    def _order(self, draft: Draft, access: Access) -> None:
        """Raise `UsageError` for an access that is not ordered after a conflicting one; else record it."""
        for past in self.history.get(access.root, ()):
            if past.queue is draft.queue or past.tick <= draft.clock.get(past.queue.number, 0):
                continue
            if past.begin >= access.end or access.begin >= past.end or not (past.writes or access.writes):
                continue
            mine, theirs = ("writes" if one.writes else "reads" for one in (access, past))
            raise UsageError(
                f"hazard: {access.what} {mine} {access.root!r} on {draft.queue.label}, and nothing orders it "
                f"after {past.what.rstrip(',')}, which {theirs} it on {past.queue.label}\n"
                f"hint: submit with after=[the point of that submission], or wait for it"
            )
        key = (access.root, draft.clock[draft.queue.number], access.writes)
        draft.touched.setdefault(key, Intervals()).add(access.begin, access.end, access.what)

    def check_end(self, root: Buffer, signal: Signal, value: int) -> None:
        """Raise `UsageError` for an access to `root` that `signal` reaching a slot value does not follow."""
        clock = dict(self.host)
        for promise in self.promises.get(signal, ()):
            if promise.value >= value:
                join(clock, promise.clock)
                break
        for past in self.history.get(root, ()):
            if past.tick > clock.get(past.queue.number, 0):
                raise UsageError(
                    f"{root!r} is closed at {signal!r} reaching {value + signal.base}, and nothing orders "
                    f"{past.what.rstrip(',')}, which uses it on {past.queue.label}, before that\n"
                    "hint: close it at the point of the last submission that uses it, or without at="
                )

    def commit(self, draft: Draft, signal: Signal, value: int) -> None:
        """Enter a submission that was sent; its end raises the slot of `signal`, a timeline, to `value`."""
        if draft.deferred is not None:
            self.deferred.append(Deferred(draft.queue, draft.label, *draft.deferred, signal, value))
        else:
            self._enter(draft, signal, value)
        with contextlib.suppress(UsageError):  # another thread sent it meanwhile; the next check reports it
            self._enter_ready()

    def _enter_ready(self) -> None:
        """Check and enter the deferred submissions whose order is known now. Raises as `draft`."""
        while (ready := self._ready(self.deferred)) is not None:
            self._enter_deferred(ready)
            self.deferred.remove(ready)

    def _enter_deferred(self, deferred: Deferred) -> None:
        draft = self._checked(deferred.queue, deferred.label, deferred.todo, deferred.values, again=True)
        self._enter(draft, deferred.signal, deferred.value)

    def _enter(self, draft: Draft, signal: Signal | None = None, value: int = 0) -> None:
        """Enter the effects of a submission; its end raises `signal` to `value`, if `signal` is given."""
        ends = [(signal, Promise(draft.queue.number, value, dict(draft.clock)))] if signal is not None else []
        for one, promise in (*draft.promises, *ends):
            known = self.promises.setdefault(one, [])
            # Promises already met are kept too: the progress of queues must not decide what is refused.
            del known[: -_PROMISES_KEPT + 1]
            known.append(promise)
        self.clocks[draft.queue] = draft.clock
        for (root, tick, writes), ranges in draft.touched.items():
            entries = self.history.setdefault(root, [])
            for begin, end, what in ranges:
                past = Past(draft.queue, tick, begin, end, writes, what)
                entries[:] = [old for old in entries if not _covers(past, old, draft.clock)]
                entries.append(past)

    def drop_in_flight(self, queues: Sequence[OpenQueue]) -> None:
        """Drop the work in flight in these queues: it is complete or lost."""
        numbers = {queue.number for queue in queues}
        self.deferred = [deferred for deferred in self.deferred if deferred.queue not in queues]
        for queue in queues:
            join(self.host, self.clocks.get(queue, {}))
        for signal, known in self.promises.items():
            known[:] = [p for p in known if p.queue not in numbers or p.value <= signal.value - signal.base]

    def host_observed(self, signal: Signal, value: int) -> None:
        """Order later submissions after all work that raised the slot of `signal` to `value`."""
        known = self.promises.get(signal, [])
        seen = [promise for promise in known if promise.value <= value]
        if not seen and len(known) == _PROMISES_KEPT:
            seen = known[:1]  # the promise of `value` was dropped; this is the next one
        newest = {promise.queue: promise for promise in seen}  # its clock has those of the queue's others
        for promise in newest.values():
            join(self.host, promise.clock)


def checked(signal: Signal) -> bool:
    """Return whether the device of a signal has its submissions checked, so that what raises it is known."""
    watch = getattr(signal.device, "watch", None)
    return watch is not None and watch.check


def join(clock: Clock, other: Clock) -> None:
    """Raise each position of `clock` to that of `other`."""
    for queue, tick in other.items():
        if clock.get(queue, 0) < tick:
            clock[queue] = tick


def _covers(new: Past, old: Past, clock: Clock) -> bool:
    """Return whether every access that conflicts with `old` also conflicts with `new`."""
    ordered = old.tick <= clock.get(old.queue.number, 0)
    return ordered and new.begin <= old.begin and old.end <= new.end and (new.writes or not old.writes)
