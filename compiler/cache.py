"""The disk cache of compiled kernels: one file a kernel, written whole, checked when read.

A key covers the kernel's canonical text, the arch, what the target row depends on, LLVM's version and a
digest of the compiler's own sources, so nothing is ever invalidated: what is out of date is simply not found.
A file that is torn or altered counts as absent (said on stderr under DEBUG) and is written again. Reading
needs no LLVM.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path

from compiler import llvm
from hcq.config import config

_SUM = 16
"""Bytes of the checksum in front of the payload."""


@functools.cache
def sources_digest() -> str:
    """Digest of this package's sources and of LLVM's version."""
    digest = hashlib.blake2b(digest_size=16)
    folder = Path(__file__).parent
    for path in sorted((*folder.glob("*.py"), *folder.glob("targets/*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(llvm.version().encode())
    return digest.hexdigest()


def key_of(text: str, arch: str, settings: str) -> str:
    """The name under which a kernel is kept."""
    whole = f"{sources_digest()}\0{arch}\0{settings}\0{text}"
    return hashlib.blake2b(whole.encode(), digest_size=20).hexdigest()


def _path(key: str) -> Path:
    return config().cache / "kernels" / key[:2] / key[2:]


def get(key: str) -> bytes | None:
    """The payload of a key, or None."""
    path = _path(key)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _say(f"cannot read {path}: {error}; compiling instead")
        return None
    payload = data[_SUM:]
    if hashlib.blake2b(payload, digest_size=_SUM).digest() != data[:_SUM]:
        _say(f"{path} is damaged; compiling again")
        return None
    return payload


def put(key: str, payload: bytes) -> None:
    """Keep a payload.

    A folder that cannot be written only costs the next run a compilation (said under DEBUG).
    """
    import tempfile  # noqa: PLC0415  # slow to import, and only a miss writes

    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.blake2b(payload, digest_size=_SUM).digest() + payload)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        _say(f"cannot keep a kernel in {path.parent}: {error}")


def _say(text: str) -> None:
    if config().debug:
        print(f"compiler cache: {text}", file=sys.stderr)  # noqa: T201  # DEBUG talk goes to stderr
