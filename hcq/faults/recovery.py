"""Recovery of a device after a fault, and the waits that can never end because of it.

Work in flight when a device recovers is *lost*: its points are never reached, and a wait for one of them, on
any device, raises the error that ended the work. Signals that lost work would have set are recorded in
`LOST`; a signal that a later submission sets is valid again.

Not here: the restart of the hardware's rings (`hcq.driver.DriverDevice.recover`), texts (`messages`). Next:
`hcq.queue.Queue.restart`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.commands import SetSignal
from hcq.errors import UnsupportedError, UsageError
from hcq.inflight import Kept, commands_of, unmet
from hcq.locks import held
from hcq.memory import Buffer
from hcq.params import Expr
from hcq.process import OpenQueue, open_devices
from hcq.signal import LOST, Refusal, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.device import Device


def recover(device: Device) -> tuple[Buffer, ...]:
    """Give all queues of a device new rings; see `Device.recover`. The device's recovery lock is held."""
    reason = _reason(device)
    before = device.refusal
    device.refuse(reason)

    def restart() -> list[Sequence[object]]:
        try:
            device.driver.recover()
        except UnsupportedError:
            device.refuse(before)  # the device is unchanged
            raise
        return [kept for queue in device.queues for kept in queue.restart(reason)]

    lost = held([queue.lock for queue in sorted(device.queues, key=id)], restart)
    for command in commands_of(lost):
        if isinstance(command, SetSignal):
            _mark_lost(command, reason)
    for queue in device.queues:
        queue.prepended.drop_lost_waits()
    if device.watch is not None:
        device.watch.drop_in_flight(device.queues)
    for executable in tuple(device.retired.executables):
        executable.recovered()
    device.resume()
    return tuple(dict.fromkeys(buffer for kept in lost for buffer in _written(kept)))


def _reason(device: Device) -> Refusal:
    """Return the error factory of lost work. Raises `UsageError` for a device that has no fault."""
    device.poll_driver()
    if device.refusal is not None:
        return device.refusal
    for queue in device.queues:
        reason = waits_on_lost(queue)
        if reason is not None:
            return reason
    raise UsageError(f"{device.name} has no fault: there is nothing to recover from")


def _mark_lost(command: SetSignal, reason: Refusal) -> None:
    """Record that the work submitted so far will not raise a signal."""
    signal, value = command.signal, command.value
    target = value if isinstance(value, int) else 1 << 64
    if not signal.host_set and signal.value - signal.base < target and signal not in LOST:
        LOST[signal] = (target, reason)


def _written(kept: Sequence[object]) -> Iterator[Buffer]:
    """Yield the open buffers that a submission writes; for a view its root."""
    given: dict[object, object] = {}
    if isinstance(kept, Kept):
        given = dict(zip(kept.params, kept.given, strict=True))
    for command in commands_of([kept]):
        for touch in command.touches():
            if "w" not in touch.access:
                continue
            pointer = touch.pointer
            param = pointer.param if isinstance(pointer, Expr) else pointer
            # The values of a direct submission are not assigned to Params here, so all may be written.
            found = [given.get(param, param)] if given or isinstance(param, Buffer) else kept
            for buffer in found:
                if isinstance(buffer, Buffer) and not buffer.closed:
                    yield buffer.root or buffer


def check(signal: Signal, value: int) -> None:
    """Raise when only lost work, or work that waits for it, would raise the slot of `signal` to `value`.

    The error is that of the fault that ended the work.
    """
    if LOST:
        reason = _never_reached(signal, value, {})
        if reason is not None:
            raise reason()


def waits_on_lost(queue: OpenQueue) -> Refusal | None:
    """Return an error factory if this queue waits on lost work, else None."""
    return _stuck(queue, {}) if LOST else None


def _never_reached(signal: Signal, value: int, seen: dict[OpenQueue, Refusal | None]) -> Refusal | None:
    """Return the error factory if only lost work, or work that waits for it, raises a signal; else None.

    `seen`: the results of `_stuck` so far; they also end a search that comes back to its queue.
    """
    if signal.at(signal.base + value).passed():
        return None
    raisers = [queue for device in open_devices() for queue in device.queues if _raises(queue, signal, value)]
    if not raisers:
        target, reason = LOST.get(signal, (0, None))
        return reason if value <= target else None
    reasons = [_stuck(queue, seen) for queue in raisers]
    return reasons[0] if all(reasons) else None


def _stuck(queue: OpenQueue, seen: dict[OpenQueue, Refusal | None]) -> Refusal | None:
    """Return the error factory if the first unsatisfied wait in a queue can never end, else None."""
    if queue in seen:
        return seen[queue]
    seen[queue] = None
    first = next((one for _, kept in queue.inflight() for one in unmet(kept)), None)
    if first is not None:
        seen[queue] = _never_reached(*first, seen)
    return seen[queue]


def _raises(queue: OpenQueue, signal: Signal, value: int) -> bool:
    """Return whether work in flight in a queue raises a signal to at least a slot value."""
    if any(point.signal is signal and point.value - signal.base >= value for point, _ in queue.inflight()):
        return True
    return any(
        isinstance(command, SetSignal)
        and command.signal is signal
        and not (isinstance(command.value, int) and command.value < value)
        for command in commands_of(kept for _, kept in queue.inflight())
    )
