"""Engine stores that no barrier has made visible to the host yet (docs/facts/nv-caches.md, rule 5).

A vendor's queue reports stores, waits for idle, and barriers of system scope. Not here: stores of the host
(`combining`), stale reads (`caches`). Next: `drivers.nv.emu.engines.channel`, the user.
"""

from __future__ import annotations


class UnflushedStores:
    """Stores of one queue's engines that the host may not see even when it sees their work as done."""

    def __init__(self) -> None:
        self._running = self._done = ""

    def add(self, what: str) -> None:
        """Record stores of `what`, a description of work that does not flush them itself."""
        self._running = what

    def idle(self) -> None:
        """Record that the queue waited for its engines: a later release signals that their work is done."""
        self._done = self._running or self._done
        self._running = ""

    def flushed(self) -> None:
        """Record a barrier of system scope: all stores are visible."""
        self._running = self._done = ""

    @property
    def any(self) -> str:
        """A description of work with stores that are not flushed; "" if there is none."""
        return self._running or self._done

    @property
    def done(self) -> str:
        """The same for work that the queue has waited for."""
        return self._done
