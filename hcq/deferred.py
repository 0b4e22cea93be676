"""Deferred submissions: the host holds them until what they wait for is done, and can cancel them until then.

Not here: the contract (`Queue.submit_later`), the thread that submits them (`callbacks`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

from hcq.beginning import check_commands
from hcq.callbacks import WAITER
from hcq.commandbuffer import CommandBuffer
from hcq.errors import UsageTypeError
from hcq.params import Param, Value, check_values
from hcq.process import OpenQueue
from hcq.signal import Point

_ENDS = threading.local()
"""`waiting`: the calls of this thread that follow the end of a future, the one that runs first."""


def submit_later(
    queue: OpenQueue,
    submit: Callable[..., Point],
    commands: CommandBuffer,
    after: Sequence[Point | Future[Point]],
    values: Mapping[Param, Value],
) -> Future[Point]:
    """Do what `Queue.submit_later` says, by `queue.submit`; raises `UsageTypeError` as that does."""
    check_commands(queue, commands)
    commands.verify(queue.device)
    check_values(values)
    if not isinstance(after, (list, tuple)) or not all(isinstance(one, (Point, Future)) for one in after):
        raise UsageTypeError(f"after= takes a list of points and futures, not {after!r}\nhint: after=[point]")
    points = [one for one in after if isinstance(one, Point)]
    for point in points:
        point.passed()  # checks the value
    own = CommandBuffer(commands.kind, label=commands.label)
    own.commands, own.spans = commands.commands[:], commands.spans
    future: Future[Point] = Future()
    call = {0: partial(submit, own, values=dict(values))}
    # Popped by whoever ends the wait: the last of `after`, an error, or `cancel`.
    left = list(range(len(after) + 1))  # popped once for each of `after`, and once below: the last gets 0

    def cancelled(_: object) -> None:
        if call.pop(0, None) is not None:
            future.set_running_or_notify_cancel()

    def reached(error: BaseException | None) -> None:
        if isinstance(error, CancelledError):
            future.cancel()
            return
        send = call.pop(0, None) if error is not None or left.pop() == 0 else None
        if send is None or not future.set_running_or_notify_cancel():
            return
        try:
            if error is None:
                point = send(after=points + [one.result() for one in after if isinstance(one, Future)])
        except BaseException as raised:  # noqa: BLE001 - it goes to whoever asks for the result
            error = raised
        if error is not None:
            future.set_exception(error)
        else:
            WAITER.add(point, lambda _, bad: future.set_exception(bad) if bad else future.set_result(point))

    def followed(one: Future[Point]) -> None:
        _in_turn(partial(reached, CancelledError() if one.cancelled() else one.exception()))

    future.add_done_callback(cancelled)
    for one in after:
        if isinstance(one, Future):
            one.add_done_callback(followed)
        else:
            WAITER.add(one, lambda _, error: reached(error))
    reached(None)
    return future


def _in_turn(call: Callable[[], None]) -> None:
    """Call `call` now, or after the call that runs: a long chain of futures ends without recursion."""
    waiting: deque[Callable[[], None]] = vars(_ENDS).setdefault("waiting", deque())
    waiting.append(call)
    if len(waiting) > 1:
        return
    try:
        while waiting:
            waiting[0]()
            waiting.popleft()
    finally:
        waiting.clear()
