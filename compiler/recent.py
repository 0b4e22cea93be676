"""A cache of least recently used values, limited by their bytes, for several threads.

Not here: what is kept and how large it is, which the caller gives; the cache on disk (`hcq.store`). Next:
`compile`, its only user.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by key; above `limit` bytes those unused for longest are dropped. Threads may share it.

    A value larger than the limit is kept alone, until the next one comes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        """Bytes of all values that are kept, as given to `put`."""
        self._kept: dict[Hashable, tuple[Value, int]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, which is then the one used last, or None."""
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                return None
            self._kept[key] = found
            return found[0]

    def put(self, key: Hashable, value: Value, nbytes: int) -> None:
        """Keep a value of so many bytes, in place of what was there."""
        with self._lock:
            self.nbytes += nbytes - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = value, nbytes
            while self.nbytes > self.limit and len(self._kept) > 1:
                oldest = next(iter(self._kept))
                self.nbytes -= self._kept.pop(oldest)[1]

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)
