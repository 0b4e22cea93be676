"""Stores of a channel's engines that no barrier has made visible yet (docs/facts/nv-caches.md, rule 5)."""

from __future__ import annotations


class UnflushedStores:
    """Who stored something that the host need not see although it sees that the work is done."""

    def __init__(self) -> None:
        self._running = self._done = ""

    def add(self, what: str) -> None:
        """Somebody stored, and nothing of its own flushes it."""
        self._running = what

    def idle(self) -> None:
        """The ring waited for the engines: what comes behind tells that they are done."""
        self._done = self._running or self._done
        self._running = ""

    def flushed(self) -> None:
        """A barrier with respect to the system."""
        self._running = self._done = ""

    @property
    def any(self) -> str:
        """Who stored what is not flushed; nothing if all is."""
        return self._running or self._done

    @property
    def done(self) -> str:
        """The same, of what the ring has waited for."""
        return self._done
