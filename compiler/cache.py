"""The caches of compiled kernels: `Recent` in this process, and the keys of the disk cache (`hcq.store`).

A key covers the kernel's canonical text, the arch, the inputs of the target row, LLVM's version and a
digest of the compiler's own sources, so no entry is ever invalidated: an outdated entry is not found.
Reading needs no LLVM.

Not here: the files (`hcq.store`). Next: `compile`, which looks kernels up.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from compiler import llvm
from hcq.config import config
from hcq.store import key_of as _key_of
from hcq.store import store

if TYPE_CHECKING:
    from collections.abc import Hashable

Value = TypeVar("Value")
KIND = "kernels"


@functools.cache
def sources_digest() -> str:
    """Digest of this package's sources."""
    folder = Path(__file__).parent
    parts: list[str | bytes] = []
    for path in sorted(folder.rglob("*.py")):
        parts += [str(path.relative_to(folder)), path.read_bytes()]
    return _key_of(*parts)


@functools.cache
def compiler_digest() -> str:
    """Digest of what turns a kernel into its image's bytes: this package's sources and LLVM's version."""
    return _key_of(sources_digest(), llvm.version())


def key_of(text: str, arch: str, settings: str) -> str:
    """The key under which a kernel is stored."""
    return _key_of(compiler_digest(), arch, settings, text)


def get(key: str) -> bytes | None:
    """The payload of a key, or None."""
    return store(config().cache).get(KIND, key)


def put(key: str, payload: bytes) -> None:
    """Store a payload. If that fails, the next run compiles again."""
    store(config().cache).put(KIND, key, payload)


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
