"""Locks that an interrupt at any line leaves released.

`with lock:` is safe by itself: CPython delivers no signal between acquiring a lock and entering the block,
nor between leaving it and releasing the lock. A lock that Python code acquires, as by
`ExitStack.enter_context` or `acquire(blocking=False)`, may stay held when a signal arrives right after.

Next: `queue` and `hcq.replay.executable`, which use it; `python -m tools.fuzz.interrupts` tests it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import RLock

T = TypeVar("T")


def held(locks: Sequence[RLock], work: Callable[[], T]) -> T:
    """Return what `work` returns with all of some locks held, taken in the order given."""
    if not locks:
        return work()
    with locks[0]:
        return held(locks[1:], work)


def unless_taken(locks: Sequence[RLock], work: Callable[[], object]) -> None:
    """Call `work` with all of some reentrant locks held; do nothing when another thread holds one."""
    if not locks:
        work()
        return
    lock = locks[0]
    if _owned(lock):
        unless_taken(locks[1:], work)
        return
    try:
        if lock.acquire(blocking=False):
            with lock:
                lock.release()  # what `acquire` took: from here on the block alone holds it
                unless_taken(locks[1:], work)
    except BaseException:
        if _owned(lock):  # interrupted between `acquire` and `release`
            lock.release()
        raise


def _owned(lock: RLock) -> bool:
    """Return whether this thread holds a lock, by the method that `threading.Condition` uses."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - typeshed leaves it out
    return owned
