"""Which accesses are ordered: vector clocks over queues, and the history of every buffer.

A clock maps queues to how far a piece of work is known to come after them. A submission starts with its
queue's clock and what the host has seen; a Wait joins the clock of whatever raises the signal; setting a
signal publishes the clock. Two accesses of one byte, one of them a write, are a hazard unless the older is
inside the younger's clock.

A submission that waits for a signal which nothing submitted raises yet is deferred, with all that comes
after it: what it is ordered after is not known. It is checked right before the submission that raises the
signal is sent, as if it had been submitted then; a hazard found so refuses that submission.

Not here: waits that can never be met (`waits`). Next: `validator`, which calls this for each submission.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq.commands import SetSignal, Wait
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.params import Expr, Param, look_up
from hcq.validate.intervals import Intervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hcq.commands import Command, Touch
    from hcq.params import Value
    from hcq.signal import Signal
    from hcq.validate.watch import Line

Clock = dict[int, int]
"""Queue, by `Line.number`, to how far it is known: what holds clocks keeps no device alive."""
_PROMISES_KEPT = 256
"""Promises of a signal that are kept, the newest."""
_DEAD_KEPT = 256
"""Numbers of queues that are gone which a clock may hold."""


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes [begin, end) of a root buffer, touched by one command."""

    root: Buffer
    begin: int
    end: int
    writes: bool
    what: str
    """ "kernel add, argument out"."""
    align: int = 1
    """What address and size must be multiples of."""

    def overlaps(self, other: Access) -> bool:
        """Return whether the two have bytes in common."""
        return self.root is other.root and self.begin < other.end and other.begin < self.end


@dataclass(frozen=True, slots=True)
class Past:
    """An access that was submitted, kept in its buffer's history; the buffer itself is not kept."""

    queue: Line
    tick: int
    begin: int
    end: int
    writes: bool
    what: str


@dataclass(slots=True)
class Promise:
    """A submitted SetSignal."""

    queue: int
    """`Line.number`."""
    value: int
    clock: Clock


@dataclass(slots=True)
class Draft:
    """What a submission will add to the ledger once it was sent."""

    queue: Line
    label: str
    clock: Clock
    touched: dict[tuple[Buffer, int, bool], Intervals] = field(default_factory=dict)
    """Byte ranges by buffer, tick, and whether they are written."""
    promises: list[tuple[Signal, Promise]] = field(default_factory=list)
    events: list[tuple[bool, Signal, int]] = field(default_factory=list)
    """(whether it waits, signal, slot value) in order."""
    held: tuple[Sequence[Command], Mapping[Param, Value]] | None = None
    """The commands and the values of their Params, of a submission that cannot be checked yet."""
    releases: list[Held] = field(default_factory=list)
    """Deferred submissions that can be checked once this one is sent, in order."""


@dataclass(eq=False, slots=True)
class Held:
    """A submission that was sent, and waits for what was not submitted yet."""

    queue: Line
    label: str
    todo: Sequence[Command]
    values: Mapping[Param, Value]
    signal: Signal
    """The slot that its end raises, to `value`."""
    value: int


class Ledger:
    """Everything submitted to validated devices, as far as later submissions may conflict with it."""

    def __init__(self) -> None:
        self.clocks: weakref.WeakKeyDictionary[Line, Clock] = weakref.WeakKeyDictionary()
        self.host: Clock = {}
        """What the host has seen done."""
        self.history: weakref.WeakKeyDictionary[Buffer, list[Past]] = weakref.WeakKeyDictionary()
        self.promises: weakref.WeakKeyDictionary[Signal, list[Promise]] = weakref.WeakKeyDictionary()
        self.held: list[Held] = []
        """In the order in which they were sent."""

    def draft(self, queue: Line, label: str, todo: list[Command], values: Mapping[Param, Value]) -> Draft:
        """Check the order of a submission against all before it; return what it adds."""
        if self._open(queue, todo, values, self.held):
            draft = Draft(queue, label, {})
            draft.held = todo, values
            self._walk(draft, todo, values)
            return draft
        draft = self._judged(queue, label, todo, values)
        if self.held:
            draft.releases = self._released(draft)
        return draft

    def _judged(
        self,
        queue: Line,
        label: str,
        todo: Sequence[Command],
        values: Mapping[Param, Value],
        *,
        again: bool = False,
    ) -> Draft:
        """Return what a submission adds whose awaited values are all known; `again`: it was deferred."""
        self.host = self._of_the_living(self.host)
        clock = self._of_the_living(dict(self.clocks.get(queue, {})))
        join(clock, self.host)
        draft = Draft(queue, label, clock)
        clock[queue.number] = clock.get(queue.number, 0) + 1
        self._walk(draft, todo, values, again=again)
        return draft

    def _walk(
        self, draft: Draft, todo: Sequence[Command], values: Mapping[Param, Value], *, again: bool = False
    ) -> None:
        """Visit the commands; of a deferred submission only its internal order is checked."""
        group = Group(draft.label)
        for command in todo:
            if isinstance(command, Wait):
                self._wait(draft, command, number(command.value, values))
            elif isinstance(command, SetSignal):
                value = number(command.value, values)
                if not again:
                    self._grows(draft, command.signal, value)
                self._set(draft, command.signal, value)
            touched = list(accesses(command, values))
            if command.overlaps:
                group.add(touched)
            elif command.orders:
                group.clear()
            if draft.held is None:
                for access in touched:
                    self._order(draft, access)

    def _open(
        self,
        queue: Line,
        todo: Sequence[Command],
        values: Mapping[Param, Value],
        before: Iterable[Held],
    ) -> bool:
        """Return whether a submission waits for what is not submitted, or comes after one that does."""
        if any(held.queue is queue for held in before):
            return True
        return any(
            isinstance(command, Wait) and not self._known(command.signal, number(command.value, values))
            for command in todo
        )

    def _known(self, signal: Signal, value: int) -> bool:
        """Return whether what raises a signal to `value` is known, or cannot become known."""
        if signal.host_set or getattr(signal.device, "watch", None) is None:
            return True
        reached = signal.value - signal.base >= value
        return reached or any(promise.value >= value for promise in self.promises.get(signal, ()))

    def _released(self, draft: Draft) -> list[Held]:
        """Check deferred submissions as if `draft` had been sent; return those that could be, in order."""
        clocks = dict(self.clocks)
        history = {root: list(entries) for root, entries in self.history.items()}
        promises = {signal: list(known) for signal, known in self.promises.items()}
        try:
            self._enter(draft)
            out: list[Held] = []
            left = list(self.held)
            while True:
                ready = [h for i, h in enumerate(left) if not self._open(h.queue, h.todo, h.values, left[:i])]
                if not ready:
                    return out
                self._enter_held(ready[0])
                left.remove(ready[0])
                out.append(ready[0])
        finally:
            self.clocks = weakref.WeakKeyDictionary(clocks)
            self.history = weakref.WeakKeyDictionary(history)
            self.promises = weakref.WeakKeyDictionary(promises)

    def _of_the_living(self, clock: Clock) -> Clock:
        """Return a clock without queues that are gone, once it may hold many: they are not compared again."""
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

    def _grows(self, draft: Draft, signal: Signal, value: int) -> None:
        """Refuse a value that is not above all that were submitted before."""
        before = [promise.value for promise in self.promises.get(signal, ())][-1:]
        before += [promise.value for one, promise in draft.promises if one is signal]
        for held in self.held:
            sets = [c for c in held.todo if isinstance(c, SetSignal) and c.signal is signal]
            before += [number(c.value, held.values) for c in sets]
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
        """Refuse an access that nothing orders after a conflicting one; note it otherwise."""
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

    def commit(self, draft: Draft, signal: Signal, value: int) -> None:
        """Enter a submission that was sent and that raises a timeline's slot to `value`."""
        if draft.held is not None:
            self.held.append(Held(draft.queue, draft.label, *draft.held, signal, value))
            return
        self._enter(draft, signal, value)
        for held in draft.releases:
            if held in self.held and not self._open(held.queue, held.todo, held.values, ()):
                self.held.remove(held)
                self._enter_held(held)

    def _enter_held(self, held: Held) -> None:
        draft = self._judged(held.queue, held.label, held.todo, held.values, again=True)
        self._enter(draft, held.signal, held.value)

    def _enter(self, draft: Draft, signal: Signal | None = None, value: int = 0) -> None:
        """Add what a submission was found to do; its end raises `signal` to `value`, where that is known."""
        ends = [(signal, Promise(draft.queue.number, value, dict(draft.clock)))] if signal is not None else []
        for one, promise in (*draft.promises, *ends):
            known = self.promises.setdefault(one, [])
            # Also of what was reached: how far queues have come by now must not decide what is refused.
            del known[: -_PROMISES_KEPT + 1]
            known.append(promise)
        self.clocks[draft.queue] = draft.clock
        for (root, tick, writes), ranges in draft.touched.items():
            entries = self.history.setdefault(root, [])
            for begin, end, what in ranges:
                past = Past(draft.queue, tick, begin, end, writes, what)
                entries[:] = [old for old in entries if not _covers(past, old, draft.clock)]
                entries.append(past)

    def recovered(self, queues: Sequence[Line]) -> None:
        """Drop what was lost with these queues' rings: everything submitted to them is over."""
        numbers = {queue.number for queue in queues}
        self.held = [held for held in self.held if held.queue not in queues]
        for queue in queues:
            join(self.host, self.clocks.get(queue, {}))
        for signal, known in self.promises.items():
            known[:] = [p for p in known if p.queue not in numbers or p.value <= signal.value - signal.base]

    def host_saw(self, signal: Signal, value: int) -> None:
        """Order what the host submits from now on after everything that raised `signal` to `value`."""
        known = self.promises.get(signal, [])
        seen = [promise for promise in known if promise.value <= value]
        if not seen and len(known) == _PROMISES_KEPT:
            seen = known[:1]  # the one for `value` was dropped; this is the next
        for promise in seen:
            join(self.host, promise.clock)


def join(clock: Clock, other: Clock) -> None:
    """Let `clock` come after everything in `other`."""
    for queue, tick in other.items():
        if clock.get(queue, 0) < tick:
            clock[queue] = tick


def _covers(new: Past, old: Past, clock: Clock) -> bool:
    """Return whether any later conflict with `old` is one with `new` too."""
    ordered = old.tick <= clock.get(old.queue.number, 0)
    return ordered and new.begin <= old.begin and old.end <= new.end and (new.writes or not old.writes)


def number(word: int | Param | Expr, values: Mapping[Param, Value]) -> int:
    """Return the number that a word stands for, given the values of Params."""
    if isinstance(word, int):
        return word
    expr = word if isinstance(word, Expr) else Expr(word)
    value = look_up(expr.param, values)
    return expr.evaluate(value.va if isinstance(value, Buffer) else value)


def accesses(command: Command, values: Mapping[Param, Value]) -> Iterator[Access]:
    """Yield what a command touches, with Params replaced by their values."""
    for touch in command.touches():
        if touch.access != "x":
            yield _access(command, touch, values)


def resolved(pointer: Buffer | Param | Expr, values: Mapping[Param, Value]) -> tuple[Buffer, int]:
    """Return the buffer that a pointer stands for, and the bytes added to it."""
    if isinstance(pointer, Buffer):
        return pointer, 0
    expr = pointer if isinstance(pointer, Expr) else Expr(pointer)
    value = values.get(expr.param)
    if not isinstance(value, Buffer):
        raise UsageError(f"{expr.param.name}: wanted a Buffer, seen {value!r}")
    value.live()
    return value, expr.add


def _access(command: Command, touch: Touch, values: Mapping[Param, Value]) -> Access:
    buffer, add = resolved(touch.pointer, values)
    what = command.title() + (f", {touch.part}," if touch.part else "")
    if touch.size is None:
        if not 0 <= add < buffer.size:
            raise UsageError(f"{what.rstrip(',')}: byte {add} lies outside {buffer!r}")
        size = buffer.size - add
    else:
        buffer.live()
        size = number(touch.size, values)
        if add < 0 or add + size > buffer.size:
            raise UsageError(f"{what}: bytes {add} to {add + size} lie outside {buffer!r}")
    begin = buffer.offset + add
    return Access(buffer.root or buffer, begin, begin + size, "w" in touch.access, what, touch.align)


class Group:
    """The kernels since the last barrier: they may run in any order, and at the same time."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._touched: dict[Buffer, tuple[Intervals, Intervals]] = {}

    def clear(self) -> None:
        """Clear them: a barrier follows."""
        self._touched.clear()

    def add(self, touched: list[Access]) -> None:
        """Add one kernel, or refuse it: it conflicts with another of the group."""
        for one in touched:
            reads, writes = self._touched.get(one.root, (_NONE, _NONE))
            for others, verb in ((writes, "writes"), (reads, "reads")):
                other = others.find(one.begin, one.end)
                if other and (one.writes or others is writes):
                    raise UsageError(
                        f"missing barrier in {self._label or 'a submission'}: {other} {verb} {one.root!r} "
                        f"and {one.what} {'writes' if one.writes else 'reads'} it; nothing orders the two\n"
                        f"hint: record .barrier() between them"
                    )
        for one in touched:
            entry = self._touched.setdefault(one.root, (Intervals(), Intervals()))
            entry[one.writes].add(one.begin, one.end, one.what)


_NONE = Intervals()
