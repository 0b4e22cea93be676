"""Lock handling and finalizers that are safe against an interrupt (a Python signal handler that raises).

`with lock:` is safe by itself: CPython runs no signal handler between acquiring the lock and entering the
block, nor between leaving the block and releasing the lock. A lock that Python code acquires, for example by
`ExitStack.enter_context` or `acquire(blocking=False)`, can stay held if a handler raises right afterwards.
The `with` of a `threading.Condition` is such code; `Condition` here has the methods of its lock instead.

Python runs the handler of a signal when a function begins. If that function is a `__del__`, the
KeyboardInterrupt of a Ctrl-C is printed and dropped, and the rest of the finalizer does not run. A class
whose `__del__` is `DROP` has an attribute `_drop` instead: a C function without arguments, which is called
when the object is freed.

Not here: the finalizer of a device, which warns and closes (`device`). Next: `queue` and
`hcq.replay.executable`, the users; `python -m tests.fuzz.interrupts`, the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from threading import RLock
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Condition(threading.Condition):
    """A condition with a reentrant lock of its own, which an interrupt never leaves held."""

    __enter__: Any = property(attrgetter("_lock.__enter__"))
    __exit__: Any = property(attrgetter("_lock.__exit__"))


def held(locks: Sequence[RLock], work: Callable[[], T]) -> T:
    """Call `work` with all locks held, acquired in the order given; return its result."""
    if not locks:
        return work()
    if len(locks) == 2:  # hot: the queues of two devices
        with locks[0], locks[1]:
            return work()
    with locks[0]:
        return held(locks[1:], work)


def unless_taken(locks: Sequence[RLock], work: Callable[[], object]) -> None:
    """Call `work` with all reentrant locks held; do nothing if another thread holds one of them."""
    if not locks:
        work()
        return
    lock = locks[0]
    if owned(lock):
        unless_taken(locks[1:], work)
        return
    try:
        if lock.acquire(blocking=False):
            with lock:
                lock.release()  # undo `acquire`: now only the `with` block holds it
                unless_taken(locks[1:], work)
    except BaseException:
        if owned(lock):  # interrupted between `acquire` and `release`
            lock.release()
        raise


def owned(lock: RLock) -> bool:
    """Return whether this thread holds a lock, by the private method that `threading.Condition` uses."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - typeshed leaves it out
    return owned


DROP: Final[Any] = property(attrgetter("_drop"))
"""The value of `__del__`: Python looks it up, which gives `_drop`, and calls that."""
NOTHING: Final = bool
"""The `_drop` of an object that owns nothing."""
