"""Stores that no barrier has made visible to the host yet (docs/facts/nv-caches.md, rule 5).

A vendor's queue reports stores, waits for idle and system-wide barriers. Not here: stores of the host
(`combining`), stale reads (`caches`). Next: `drivers.nv.emu.engines.channel`, the user.
"""

from __future__ import annotations


class UnflushedStores:
    """Stores of one queue's engines that the host may not see although it sees that the work is done."""

    def __init__(self) -> None:
        self._running = self._done = ""

    def add(self, what: str) -> None:
        """Record a store by `what` that nothing of its own flushes."""
        self._running = what

    def idle(self) -> None:
        """Record that the queue waited for its engines: what follows in the queue reports them done."""
        self._done = self._running or self._done
        self._running = ""

    def flushed(self) -> None:
        """Record a barrier of system scope: all stores are visible."""
        self._running = self._done = ""

    @property
    def any(self) -> str:
        """Which work has stores that are not flushed; empty if none has."""
        return self._running or self._done

    @property
    def done(self) -> str:
        """The same, of work that the queue has waited for."""
        return self._done
