"""Keys of compiled kernels in the disk cache (`hcq.store`).

A key covers the kernel's canonical text, the arch, the inputs of the target row, LLVM's version and a
digest of the compiler's own sources, so no entry is ever invalidated: an outdated entry is not found.
Reading needs no LLVM.

Not here: the files (`hcq.store`), the caches of this process (`recent`). Next: `compile`, which makes and
looks up the keys.
"""

from __future__ import annotations

import functools
from pathlib import Path

from compiler import llvm
from hcq.config import config
from hcq.store import key_of as _key_of
from hcq.store import store

KIND = "kernels"


@functools.cache
def sources_digest() -> str:
    """Digest of this package's sources and of what turns a kernel into its image's bytes."""
    folder = Path(__file__).parent
    parts: list[str | bytes] = []
    for path in sorted(folder.rglob("*.py")):
        parts += [str(path.relative_to(folder)), path.read_bytes()]
    return _key_of(*parts)


def key_of(text: str, arch: str, settings: str) -> str:
    """The key under which a kernel is stored."""
    return _key_of(sources_digest(), llvm.version(), arch, settings, text)


def get(key: str) -> bytes | None:
    """The payload of a key, or None."""
    return store(config().cache).get(KIND, key)


def put(key: str, payload: bytes) -> None:
    """Store a payload. If that fails, the next run compiles again."""
    store(config().cache).put(KIND, key, payload)
