"""The caches of compiled kernels: `Recent` in this process, and the keys of the disk cache (`hcq.store`).

A key covers the kernel's canonical text, the architecture, the settings of the target, LLVM's version and a
digest of the compiler's sources. Therefore no entry is ever invalidated: a changed compiler has other keys. A
lookup does not load LLVM.

Not here: the files (`hcq.store`). Next: `compile`, which looks kernels up.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from compiler import llvm
from hcq.store import key_of as _key_of
from hcq.store import store

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hcq.config import Config

Value = TypeVar("Value")
KIND = "kernels"
"""The kind under which `hcq.store` keeps kernels."""


@functools.cache
def sources_digest() -> str:
    """Return the digest of the paths and contents of this package's Python files."""
    folder = Path(__file__).parent
    parts: list[str | bytes] = []
    for path in sorted(folder.rglob("*.py")):
        parts += [str(path.relative_to(folder)), path.read_bytes()]
    return _key_of(*parts)


@functools.cache
def compiler_digest() -> str:
    """Return the digest of this package's sources and LLVM's version, which determine an image's bytes."""
    return _key_of(sources_digest(), llvm.version())


def key_of(text: str, arch: str, settings: str) -> str:
    """Return the key of a kernel by its canonical text, its architecture and the target's settings."""
    return _key_of(compiler_digest(), arch, settings, text)


def get(key: str, settings: Config) -> bytes | None:
    """Return the payload of a key; None if the disk cache has none."""
    return store(settings.cache, settings.cache_bytes).get(KIND, key)


def put(key: str, payload: bytes, settings: Config) -> None:
    """Store a payload. A failure is not an error: the next run compiles the kernel again."""
    store(settings.cache, settings.cache_bytes).put(KIND, key, payload)


class Recent(Generic[Value]):
    """A cache that drops its least recently used values above `limit` bytes. Thread-safe.

    A value larger than the limit is kept alone until the next `put`.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        """Bytes of all values in the cache, as given to `put`."""
        self._kept: dict[Hashable, tuple[Value, int]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key and mark it as used, or return None."""
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                return None
            self._kept[key] = found
            return found[0]

    def put(self, key: Hashable, value: Value, nbytes: int) -> None:
        """Store a value of `nbytes` bytes; it replaces an earlier value of the key."""
        with self._lock:
            self.nbytes += nbytes - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = value, nbytes
            while self.nbytes > self.limit and len(self._kept) > 1:
                oldest = next(iter(self._kept))
                self.nbytes -= self._kept.pop(oldest)[1]

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)
