"""A fair reentrant lock for the state of an emulated machine.

Vendor-neutral. Next: `scheduler`, whose thread takes it for each turn.
"""

from __future__ import annotations

import threading


class TurnLock:
    """A reentrant lock that a waiting thread gets before the previous holder can take it again.

    The scheduler's thread takes it continuously; calls of the driver on other threads get it between two
    steps.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._held = threading.Lock()
        self._owner = 0
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            with self._next:
                self._held.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._held.release()
