"""Signals, points and timelines: the objects that express all ordering.

A `Signal` is a 64-byte slot of coherent host memory, u64 value at +0. A `Point` is "this signal has reached
this value". A `Timeline` issues values of a signal in increasing order. Slots of all devices lie in one
process-wide pool that is mapped at the same address into every opened device, so any queue can wait for any
other's signal. A slot returns to the pool when nothing refers to its `Signal` any more.

Not here: the pool (`hostpool`), waits that can never be met (`hcq.validate.waits`), device commands that set
or await a signal (`commands`).
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hcq.errors import SignalTimeout, UsageError
from hcq.hostpool import SIGNALS, STAMPS
from hcq.uncopied import refuse_copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.errors import HcqError
    from hcq.hostpool import Slot

Refusal: TypeAlias = "Callable[[], HcqError]"
"""Makes the error that a call raises."""

POLL_S = 0.005
"""How long a wait sleeps between polls of the fault source and of Python's signals."""
SLOT_VALUES = (1 << 31) - 1
"""Values that a timeline takes from one slot: engines that compare 32 bits, circularly, can wait for every
one."""
_new = object.__new__
ANY_VALUE = 1 << 65
"""More than any signal reaches."""


class Waiter(Protocol):
    """The device that a signal belongs to, as far as waiting needs it."""

    def wait_slot(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until the slot is >= `value` or the time is over; False may be early."""
        ...

    def poll_faults(self, signal: Signal, value: int, *, timed: bool) -> None:
        """Raise when a wait for `signal` cannot end: its device, or one waited for, faulted or is closed."""
        ...

    def wait_ended(self) -> None:
        """Record, for the validation layer, that this thread sleeps no more in `wait`."""
        ...

    def host_observed(self, signal: Signal, value: int) -> None:
        """Record, for the validation layer, that the host read the slot at `value`."""
        ...

    def raise_overrun(self, signal: Signal) -> None:
        """Raise: the signal holds a value above `Signal.issued`, which no submission sets."""
        ...

    def stuck_on(self, signal: Signal, value: int, waited_s: float) -> str:
        """Return what the queues are doing as text, for `SignalTimeout`."""
        ...


class Signal:
    """A slot that queues set and wait for. Made by `Device.signal`.

    Values only grow. The host may set it only when it was made with `host_set=True`, so that a wait that
    nothing can satisfy is detectable.
    """

    __slots__ = (
        "__weakref__",
        "_index",
        "_slot",
        "_words",
        "base",
        "device",
        "host_set",
        "issued",
        "label",
        "va",
    )

    def __init__(
        self, device: Waiter, value: int = 0, *, host_set: bool = False, label: str = "", base: int = 0
    ) -> None:
        self._slot: Slot | None = None
        self._slot = slot = SIGNALS.take()
        self._words, self._index, self.va, _ = slot
        self._words[self._index] = value
        self.base = base
        """What is added to the slot's content to give the value: a timeline changes slots and counts on."""
        self.device = device
        self.host_set = host_set
        self.label = label
        self.issued = ANY_VALUE
        """The highest valid value: the last one that its timeline issued. Without a timeline: any."""

    @property
    def value(self) -> int:
        """What the signal has reached."""
        return self._words[self._index] + self.base

    @value.setter
    def value(self, value: int) -> None:
        """The value that the signal has reached; setting it is for signals with `host_set=True`.

        Setting raises `UsageError` for a value below the current one or beyond 64 bits, and without
        `host_set=True`.
        """
        if not self.host_set:
            raise UsageError(f"{self!r} was made without host_set=True: only queues set it")
        if value < self.value:
            raise UsageError(f"{self!r} cannot go back to {value}: values only grow")
        if value - self.base >= 1 << 64:
            raise UsageError(f"{value:#x} does not fit the 64 bits of {self!r}")
        self._words[self._index] = value - self.base
        SIGNALS.written(self.va)

    def at(self, value: int) -> Point:
        """Return the point "this signal has reached `value`"; nothing is allocated or checked."""
        return Point(self, value)

    def wait(self, value: int, *, timeout_s: float | None = None) -> None:
        """Sleep until the signal's value is >= `value`; at once if it is already.

        `timeout_s` None waits without limit. Afterwards the host sees the effects of the work that raised the
        value, and with validation what the host submits next is ordered after it. Any thread may wait; no
        lock is held, and other Python threads run.

        Raises `SignalTimeout` after `timeout_s` seconds, with the value seen and what each queue is stuck on;
        `DeviceFault` when a device that was to raise it has faulted; `UsageError` when the device is closed,
        and with validation, for a wait without a limit, when nothing can raise it any more, with the wait
        graph.
        """
        target = value - self.base
        words, index = self._words, self._index
        if words[index] < target:
            self._sleep(value, target, timeout_s)
        self.check_overrun()
        self.device.host_observed(self, target)

    def _sleep(self, value: int, target: int, timeout_s: float | None) -> None:
        words, index = self._words, self._index
        start = time.monotonic()
        left = POLL_S if timeout_s is None else min(POLL_S, timeout_s)
        try:
            while not self.device.wait_slot(self.va, target, left) and words[index] < target:
                self.device.poll_faults(self, target, timed=timeout_s is not None)
                if timeout_s is None:
                    continue
                waited = time.monotonic() - start
                if waited >= timeout_s and words[index] < target:
                    seen = self.value
                    text = self.device.stuck_on(self, value, waited)
                    raise SignalTimeout(text, point=Point(self, value), seen=seen, waited_s=waited)
                left = max(0.0, min(POLL_S, timeout_s - waited))
        finally:
            self.device.wait_ended()

    def check_overrun(self) -> None:
        """Raise `DeviceFault` if the slot exceeds the last issued value."""
        if self._words[self._index] + self.base > self.issued:  # read first: work may end meanwhile
            self.device.raise_overrun(self)

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Signal {self.label or hex(self.va)}: {self.value}>"

    def __del__(self) -> None:
        _give_back(self)


class Point:
    """`signal` has reached `value` (>=). All ordering is expressed by points. A value: do not change it.

    `Queue.submit` and `Executable.replay` return one; `after=`, `CommandBuffer.wait` and `wait` take it, on
    any open device. Points of one queue are reached in the order of its submissions. Once reached, a point
    stays reached; one of work that a fault ended is never reached, and waits for it raise `DeviceFault`.
    Equal when signal and value are. It keeps its signal alive, nothing else. Usable from any thread.

        point = device.compute.submit(commands)
        device.copies[0].submit(more, after=[point]).wait(timeout_s=5)

    Plain slots instead of a frozen dataclass: one is made a submission, and this costs a third.
    """

    __slots__ = ("signal", "value")

    def __init__(self, signal: Signal, value: int) -> None:
        self.signal = signal
        self.value = value

    def done(self) -> bool:
        """Return whether the point is reached; what the host does next is then ordered after it."""
        if not self.passed():
            self.signal.check_overrun()
            return False
        self.signal.device.host_observed(self.signal, self.value - self.signal.base)
        return True

    def passed(self) -> bool:
        """Return whether the point is reached, for housekeeping: not counted as seen by the host.

        By a value that was never submitted no point is reached.
        """
        signal = self.signal
        return self.value <= signal._words[signal._index] + signal.base <= signal.issued  # noqa: SLF001 - hot

    def over(self) -> bool:
        """Return whether the point is reached, or was lost to a fault: its work uses nothing any more."""
        return self.passed() or self.signal in LOST

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Sleep until the point is reached; `timeout_s`, order and errors as in `Signal.wait`."""
        self.signal.wait(self.value, timeout_s=timeout_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.signal is self.signal and other.value == self.value

    def __hash__(self) -> int:
        return hash((id(self.signal), self.value))

    def __repr__(self) -> str:
        return f"<Point {self.signal.label or hex(self.signal.va)} >= {self.value}, now {self.signal.value}>"


LOST: weakref.WeakKeyDictionary[Signal, tuple[int, Refusal]] = weakref.WeakKeyDictionary()
"""Signals that work lost to a fault was to raise: up to which slot value, and the error of who waits."""


class Timeline:
    """A signal whose values one owner issues once each, in increasing order.

    The owner sends words that raise a value, then makes its point `last`. Interrupted between the two, it is
    unknown whether the words were sent: `value` is above `last` then, until a later value is sent. That
    raises all before it, sent or not.

    Every 2^31 - 1 values it takes a fresh slot, since some engines compare 32 bits; a Point keeps the slot it
    was made with. Not thread-safe: the owner holds its lock.
    """

    __slots__ = ("device", "label", "last", "signal", "value")

    def __init__(self, device: Waiter, *, label: str = "", start: int = 0) -> None:
        self.device = device
        self.label = label
        self.signal = Signal(device, start % SLOT_VALUES, label=label, base=start - start % SLOT_VALUES)
        self.signal.issued = start
        self.last = Point(self.signal, start)
        """The last point that was sent; before the first one, a point that is reached. The owner sets it."""
        self.value = start
        """The value issued last."""

    def next(self) -> Point:
        """Issue the next value; its owner sends it and makes it `last`, or withdraws it."""
        value = self.value + 1
        signal = self.signal
        if value - signal.base > SLOT_VALUES:
            signal = self.signal = Signal(self.device, label=self.label, base=value - 1)
        signal.issued = value
        self.value = value
        point = _new(Point)  # one is made a submission: `Point(signal, value)` costs twice as much
        point.signal, point.value = signal, value
        return point

    def undo(self, point: Point) -> None:
        """Withdraw the point issued last: no words that raise it were sent."""
        self.value = self.signal.issued = point.value - 1

    def renew(self, reason: Refusal) -> None:
        """Continue with a fresh slot: issued values that are not reached now are lost."""
        if not Point(self.signal, self.value).passed():
            LOST[self.signal] = (SLOT_VALUES, reason)
        signal = Signal(self.device, label=self.label, base=self.value)
        signal.issued = self.value
        self.signal = signal
        self.last = Point(signal, self.value)


class Stamp:
    """A 32-byte record that a device writes its time into. Made by `Device.stamp`."""

    __slots__ = ("__weakref__", "_index", "_slot", "_words", "va")

    __reduce__ = refuse_copy

    def __init__(self) -> None:
        self._slot: Slot | None = None
        self._slot = slot = STAMPS.take()
        self._words, self._index, self.va, _ = slot

    @property
    def ticks_va(self) -> int:
        """Device address of the u64 that holds the time: 8 bytes in, where release records keep it."""
        return self.va + 8

    @property
    def ticks(self) -> int:
        """The device's time in its own ticks (`Clock.to_ns` converts); 0 until written."""
        return self._words[self._index + 1]

    def __del__(self) -> None:
        _give_back(self)


def _give_back(owner: Signal | Stamp) -> None:
    """Return the slot of an owner that is gone to its pool."""
    try:
        slot = owner._slot  # noqa: SLF001 - of this module
    except AttributeError:  # interrupted before it was made
        return
    if slot is not None:
        slot[3].append(slot)
