"""Signals, points and timelines: the objects that express all ordering.

A `Signal` is a 64-byte slot of coherent host memory with its u64 value at offset 0. A `Point` is the
condition "this signal has reached this value". A `Timeline` issues the values of a signal in increasing
order. The slots of all devices lie in one process-wide pool, which is mapped at the same address into every
open device, so that every queue can wait for every signal. A slot returns to the pool when its `Signal` is
freed.

Not here: the pool (`hostpool`), waits that nothing can end (`hcq.validate.waits`), the commands that set a
signal or wait for one (`commands`).
"""

from __future__ import annotations

import os
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hcq.callbacks import WAITER
from hcq.errors import HcqError, SignalTimeout, UsageError, UsageTypeError, refuse_copy
from hcq.hostpool import SIGNALS, STAMPS
from hcq.locks import DROP, NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Future


Refusal: TypeAlias = "Callable[[], HcqError]"
"""An error factory: returns the exception that a refused call raises."""

POLL_S = 0.005
"""Seconds that a wait sleeps between polls for faults and for Python signal handlers."""
SLOT_VALUES = (1 << 31) - 1
"""The values that a timeline issues from one slot.

Limited so that engines that compare 32 bits circularly can wait for each of them.
"""
_new = object.__new__
ANY_VALUE = 1 << 65
"""`Signal.issued` of a signal without a timeline: above every value that a signal can have."""


def check_timeout(timeout_s: float | None) -> None:
    """Raise `UsageTypeError` for a timeout that is neither None nor a number of seconds.

    A timeout of 0 or below has passed.
    """
    try:
        if timeout_s is None or timeout_s <= 0 or timeout_s > 0:
            return
    except (TypeError, ValueError):  # of an array of several numbers
        pass
    raise UsageTypeError(f"timeout_s: wanted seconds, as a number, or None for no limit, seen {timeout_s!r}")


class Waiter(Protocol):
    """The part of a device that signals use; `hcq.device.Device` implements it."""

    def wait_slot(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until the slot is >= `value`, or `timeout_s` seconds; return whether it is.

        May return early.
        """

    def poll_faults(self, signal: Signal, value: int, *, timed: bool) -> None:
        """Raise when a wait for `signal` cannot end, because a device faulted or is closed."""

    def wait_ended(self) -> None:
        """Record for the validation layer that this thread has stopped waiting."""

    def host_observed(self, signal: Signal, value: int) -> None:
        """Record for the validation layer that the host observed the slot at `value`."""

    def host_sets(self, signal: Signal, value: int) -> None:
        """Record for the validation layer that the host sets the signal to `value` next."""

    def raise_overrun(self, signal: Signal) -> None:
        """Raise `DeviceFault`: the value exceeds `Signal.issued`, so no submission set it."""

    def stuck_on(self, signal: Signal, value: int, waited_s: float) -> str:
        """Return the message of `SignalTimeout`, with the blocked operation of each queue."""


class Signal:
    """A 64-bit value that queues and the host set and wait for. Made by `Device.signal`.

    Values only grow. The host can set it only if it was made with `host_set=True`; for other signals a wait
    that nothing can satisfy is detectable. The slot is freed with the last reference. Usable from any thread.
    Making one raises `UsageError` for a value that 64 bits cannot hold.

        ready = device.signal(host_set=True, label="ready")
        device.compute.submit(device.compute.record().wait(ready, 1).copy(target, source))
        ready.value = 1      # the copy starts
    """

    __slots__ = (
        "__weakref__",
        "_drop",
        "_index",
        "_words",
        "base",
        "bits",
        "device",
        "file",
        "host_set",
        "issued",
        "label",
        "va",
    )

    def __init__(
        self,
        device: Waiter,
        value: int = 0,
        *,
        host_set: bool = False,
        label: str = "",
        base: int = 0,
        file: int = -1,
    ) -> None:
        self._drop: Callable[[], object] = NOTHING
        if not isinstance(value, int) or not 0 <= value < 1 << 64:
            raise UsageError(f"signal {label!r}: wanted an int of 64 bits as its value, seen {value!r}")
        self.file = file
        """The descriptor of its memory, which the signal owns, if processes share it; else -1."""
        if file < 0:
            slot = SIGNALS.take()
            self._drop = partial(slot[3].append, slot)
            slot[0][slot[1]] = value
        else:
            slot = SIGNALS.share(file)
            self._drop = partial(os.close, file)
        self._words, self._index, self.va, _ = slot
        self.base = base
        """Value minus slot contents. A timeline that takes a fresh slot continues counting with it."""
        self.bits = 64
        """The bits that queues which wait for it compare, at least; no value has more."""
        self.device = device
        self.host_set = host_set
        self.label = label
        self.issued = ANY_VALUE
        """The last value that its timeline issued, above which no value is right; `ANY_VALUE`: no
        timeline."""

    @property
    def value(self) -> int:
        """The value that the signal has reached."""
        return self._words[self._index] + self.base

    @value.setter
    def value(self, value: int) -> None:
        """The value that the signal has reached; setting it is for signals with `host_set=True`.

        Setting raises `UsageError` for a value below the current one or beyond the bits that queues of its
        device, or that wait for it, compare (`DeviceInfo.limits`, "signal_bits"), without `host_set=True`,
        and in a forked child; `UsageTypeError` for a value that is no int.
        """
        if not isinstance(value, int):
            raise UsageTypeError(f"{self!r}: wanted an int as its value, seen {value!r}")
        if not self.host_set:
            raise UsageError(f"{self!r} was made without host_set=True: only queues set it")
        if value < self.value:
            raise UsageError(f"{self!r} cannot go back to {value}: values only grow")
        if value - self.base >= 1 << 64:
            raise UsageError(f"{value:#x} does not fit the 64 bits of {self!r}")
        self.device.host_sets(self, value)
        self._words[self._index] = value - self.base
        SIGNALS.written(self.va)

    def check(self, value: int, bits: int = 64) -> None:
        """Raise `UsageError` for a value that a queue, which compares so many bits, would compare wrongly."""
        bits = min(bits, self.bits)
        if value >> bits:
            raise UsageError(
                f"{value:#x} is beyond the {bits} bits of {self!r} that queues compare\n"
                "hint: count in smaller steps, or take a new signal"
            )

    def limit(self, bits: int) -> None:
        """Limit its values to the bits that a queue which waits for it compares. Raises as `check`."""
        self.check(self.value, bits)
        self.bits = min(self.bits, bits)

    def export(self) -> int:
        """Return a descriptor of the signal, for `Device.import_signal` of another process.

        The caller passes it on (`socket.send_fds`, inheritance) and closes it. Raises `UsageError` for a
        signal that was made without `shared=True`.
        """
        if self.file < 0:
            raise UsageError(
                f"{self!r} is of this process alone\nhint: make it with Device.signal(shared=True)"
            )
        return os.dup(self.file)

    def at(self, value: int) -> Point:
        """Return the point "this signal has reached `value`". Nothing is allocated or checked."""
        return Point(self, value)

    def wait(self, value: int, *, timeout_s: float | None = None) -> None:
        """Sleep until the signal's value is >= `value`; return immediately if it is already.

        Afterwards the host sees the effects of the work that raised the value; with validation, later
        submissions count as ordered after that work. Any thread may wait. No lock is held, and other Python
        threads run.

        Raises `SignalTimeout` after `timeout_s` seconds (None: no limit), with the value seen and the blocked
        operation of each queue; `DeviceFault` when a device that would raise the signal has faulted;
        `UsageError` when the device is closed; `UsageTypeError` for a value that is no int, and a timeout
        that is no number. With validation, a wait without a timeout also raises `UsageError`, with the wait
        graph, as soon as nothing can raise the signal any more, and any wait does for an overrun buffer.
        """
        if timeout_s is not None:
            check_timeout(timeout_s)
        if value.__class__ is not int and not isinstance(value, int):
            raise UsageTypeError(f"wait for {self!r}: wanted an int, seen {value!r}")
        target = value - self.base
        words, index = self._words, self._index
        if words[index] < target:
            self._sleep(value, target, timeout_s)
        self.check_overrun()
        self.device.host_observed(self, target)

    def _sleep(self, value: int, target: int, timeout_s: float | None) -> None:
        words, index = self._words, self._index
        start = time.monotonic()
        left = POLL_S if timeout_s is None else max(0.0, min(POLL_S, timeout_s))
        try:
            while not self.device.wait_slot(self.va, target, left) and words[index] < target:
                self.device.poll_faults(self, target, timed=timeout_s is not None)
                if timeout_s is None:
                    continue
                waited = time.monotonic() - start
                if waited >= timeout_s and words[index] < target:
                    seen = self.value
                    text = self.device.stuck_on(self, value, waited)
                    if words[index] >= target:  # raised while the text was made, which takes time
                        return
                    raise SignalTimeout(text, point=Point(self, value), seen=seen, waited_s=waited)
                left = max(0.0, min(POLL_S, timeout_s - waited))
        finally:
            self.device.wait_ended()

    def check_overrun(self) -> None:
        """Raise `DeviceFault` if the slot exceeds the last issued value."""
        if self._words[self._index] + self.base > self.issued:  # in this order: work may complete
            self.device.raise_overrun(self)

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Signal {self.label or hex(self.va)}: {self.value}>"

    __del__ = DROP


class Point:
    """The condition "`signal` is >= `value`". All ordering is expressed by points. Immutable by convention.

    `Queue.submit` and `Executable.replay` return a point; `after=`, `CommandBuffer.wait` and `wait` take one,
    on any open device. Points of one queue are reached in the order of its submissions. A reached point stays
    reached. The point of work that a fault ended is never reached; waits for it raise `DeviceFault`. Two
    points are equal if signal and value are. A point keeps only its signal alive. Usable from any thread.

        point = device.compute.submit(commands)
        device.copies[0].submit(more, after=[point]).wait(timeout_s=5)

    A class with plain slots: one is made for each submission, and a frozen dataclass takes three times as
    long.
    """

    __slots__ = ("signal", "value")

    def __init__(self, signal: Signal, value: int) -> None:
        self.signal = signal
        self.value = value

    def done(self) -> bool:
        """Return whether the point is reached. If so, later submissions count as ordered after it.

        Raises `DeviceFault` if the signal exceeds the last value issued, `UsageTypeError` as `passed`, and
        with validation `UsageError` for an overrun buffer.
        """
        if not self.passed():
            self.signal.check_overrun()
            return False
        self.signal.device.host_observed(self.signal, self.value - self.signal.base)
        return True

    def passed(self) -> bool:
        """Return whether the point is reached, without recording that the host observed it.

        A value above the last one issued reaches no point. Raises `UsageTypeError` for a value that is no
        number, which `Signal.at` does not check.
        """
        signal = self.signal
        try:
            return self.value <= signal._words[signal._index] + signal.base <= signal.issued  # noqa: SLF001 - hot
        except (TypeError, ValueError):  # an array
            raise UsageTypeError(f"point of {signal!r}: wanted an int, seen {self.value!r}") from None

    def over(self) -> bool:
        """Return whether the point is reached, or its work lost to a fault. Raises as `passed`."""
        return self.passed() or self.signal in LOST

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Sleep until the point is reached; `timeout_s`, order and errors as in `Signal.wait`."""
        self.signal.wait(self.value, timeout_s=timeout_s)

    def add_done_callback(self, callback: Callable[[Point], object]) -> None:
        """Call `callback(point)` once, when the point is reached or a fault or a close has ended its work.

        One thread of the process calls all callbacks. For a point that is reached already it does so as soon
        as it can, in order of registration. Later submissions count as ordered after the point. A callback
        must not block for long, and may submit. In it `wait(timeout_s=0)` returns if the point is reached,
        else it raises the error that ended the work. If a callback raises, `threading.excepthook` reports the
        exception. Those not called when the interpreter ends are dropped. Raises as `passed`, and
        `UsageTypeError` for no function.
        """
        if not callable(callback):
            raise UsageTypeError(f"callback of {self!r}: wanted a function, seen {callback!r}")
        WAITER.add(self, lambda point, _: callback(point))

    def future(self) -> Future[None]:
        """Return a future whose result is None once the point is reached.

        Its exception is the one that `wait` would raise: `DeviceFault`, or `UsageError` after a close and
        for a wait that nothing can end. Cancelling it does not stop the work.
        """
        from concurrent.futures import Future  # noqa: PLC0415 - a process without futures starts faster

        future: Future[None] = Future()

        def finish(_: Point, error: HcqError | None) -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(None) if error is None else future.set_exception(error)

        WAITER.add(self, finish)
        return future

    def __await__(self) -> Generator[object, None, None]:
        """Wait in a coroutine of asyncio without blocking its event loop; errors as in `future`.

        Cancelling the task does not stop the work.
        """
        from asyncio import wrap_future  # noqa: PLC0415 - a process without asyncio starts faster

        return wrap_future(self.future()).__await__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.signal is self.signal and other.value == self.value

    def __hash__(self) -> int:
        return hash((id(self.signal), self.value))

    def __repr__(self) -> str:
        return f"<Point {self.signal.label or hex(self.signal.va)} >= {self.value}, now {self.signal.value}>"


LOST: weakref.WeakKeyDictionary[Signal, tuple[int, Refusal]] = weakref.WeakKeyDictionary()
"""Signals that lost work would have raised -> (highest slot value lost, error factory for waits)."""


class Timeline:
    """A signal whose values one owner issues once each, in increasing order.

    The owner sends the words that raise a value, then sets `last` to its point. After an interrupt between
    the two it is unknown whether the words were sent: `value` is above `last` then, until a later value is
    sent, which also satisfies all waits for earlier ones.

    After each 2^31 - 1 values it takes a fresh slot, as some engines compare 32 bits; a Point keeps the slot
    that it was made with. Not thread-safe: the owner holds its lock.
    """

    __slots__ = ("device", "label", "last", "signal", "value")

    def __init__(self, device: Waiter, *, label: str = "", start: int = 0) -> None:
        self.device = device
        self.label = label
        self.signal = Signal(device, start % SLOT_VALUES, label=label, base=start - start % SLOT_VALUES)
        self.signal.issued = start
        self.last = Point(self.signal, start)
        """The last point sent; before the first one, a reached point. The owner sets it."""
        self.value = start
        """The last value issued."""

    def next(self) -> Point:
        """Issue the next value; return its point. The owner sends it and sets `last`, or calls `undo`."""
        value = self.value + 1
        signal = self.signal
        if value - signal.base > SLOT_VALUES:
            signal = self.signal = Signal(self.device, label=self.label, base=value - 1)
        signal.issued = value
        self.value = value
        point = _new(Point)  # hot: `Point(signal, value)` takes twice as long
        point.signal, point.value = signal, value
        return point

    def undo(self, point: Point) -> None:
        """Withdraw the last point issued, of which no words were sent."""
        self.value = self.signal.issued = point.value - 1

    def renew(self, reason: Refusal) -> None:
        """Continue with a fresh slot.

        Issued values that are not reached are lost, with the error `reason`.
        """
        if not Point(self.signal, self.value).passed():
            LOST[self.signal] = (SLOT_VALUES, reason)
        signal = Signal(self.device, label=self.label, base=self.value)
        signal.issued = self.value
        self.signal = signal
        self.last = Point(signal, self.value)


class Stamp:
    """A 32-byte record that a device writes its time into.

    Made by `Device.stamp`, freed with its last reference.
    """

    __slots__ = ("__weakref__", "_drop", "_index", "_words", "va")

    __reduce__ = refuse_copy

    def __init__(self) -> None:
        slot = STAMPS.take()
        self._drop = partial(slot[3].append, slot)
        self._words, self._index, self.va, _ = slot

    @property
    def ticks_va(self) -> int:
        """Device address of the u64 with the time: at offset 8, where NVIDIA's release records have it."""
        return self.va + 8

    @property
    def ticks(self) -> int:
        """The device time in ticks, which `Clock.to_ns` converts; 0 until written."""
        return self._words[self._index + 1]

    __del__ = DROP
