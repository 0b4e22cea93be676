"""The file of a capture: lines of JSON, appended as they happen, one object a line.

A process that is killed leaves a file whose last line may be incomplete; `read` drops that line. Bytes are
zlib-compressed and in base64. Every line has `ns`, CLOCK_MONOTONIC, and `t`, its type:

| t | fields |
|---|---|
| `hcq-capture` | `version`; the first line |
| `device` | `id`; `name` that opens it; `arch`; `cpu`: whether all its memory is the host's |
| `buffer` | `id`, `device`, `va`, `size`, `spec` (fields of `BufferSpec`), `label` |
| `program` | `id`, `device`, `image` (fields of `KernelImage`) |
| `signal` | `id`, `device`, `value`, `base`, `host_set`, `label` |
| `memory` | `buffer`, `bytes` that the host has written; `held`: waiting work reads them; `done` |
| `submit` | `n`, its number; `device`, `queue`, `label`, `commands`; written before the doorbell |
| `sent` | `n`; `signal`, `value` of its slot when it is complete; `words` of the ring, `bits` of a word |
| `dropped` | `n`: it was refused, and nothing was sent |
| `set` | `signal`, `value` of its slot, which the host stores next |
| `seen` | `buffer`, `digest` of what the host could read; `done`: (signal, slot's value) of each queue |
| `closed` | `buffer` |
| `fault` | `device`, `text` of the report |
| `end` | `device`: it was closed, or recovered from a fault |

A command has `c`, its class, and its fields. A pointer is [buffer, byte offset], or {"va": address} if no
captured buffer holds it. An Exec's `args` have a pointer or a number of the slot's bits for each argument.

Not here: the choice of lines (`recorder`). Next: `tools.trace`, the commands that read a capture.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from hcq.errors import UsageError
from hcq.process import in_children

VERSION: Final = 1
encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""Returns an object as text of the file."""


def pack(data: bytes | memoryview) -> str:
    """Return bytes as text of the file."""
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpack(text: str) -> bytes:
    """Return the bytes of a text that `pack` made. Raises `ValueError` or `zlib.error` for another text."""
    return zlib.decompress(base64.b64decode(text, validate=True))


def digest(data: bytes | memoryview) -> str:
    """Return the digest of bytes that `seen` lines have: 16 bytes of BLAKE2b, in hexadecimal."""
    return blake2b(data, digest_size=16).hexdigest()


class CaptureLog:
    """A capture that is being written. All devices of a process share one. Thread-safe under `lock`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._pid = 0
        self._file = -1
        self._ids = 0
        self._ended = False
        """Whether the file could not be written."""
        self.submissions = 0
        """Number of submissions written so far."""
        self.ids: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """The numbers of devices, signals and programs in the file."""
        self.memories: dict[int, Any] = {}
        """What the recorders know of each buffer that is no view, by `id`; an entry ends with its buffer."""

    def number(self) -> int:
        """Return a number that no object of the file has. The caller holds `lock`."""
        self._ids += 1
        return self._ids

    def write(self, kind: str, *, commands: Sequence[str] | None = None, **fields: object) -> None:
        """Append one line; `commands` are JSON already, and become its last field. The caller holds `lock`.

        If the file cannot be written, a warning says so, and the capture ends there: the program goes on. A
        forked child that opens devices of its own writes to `path` with its process number appended.
        """
        if self._ended:
            return
        try:
            self._append(kind, fields, commands)
        except OSError as error:
            self._ended = True
            warnings.warn(f"the capture {self.path} is incomplete: {error}", stacklevel=2)

    def _append(self, kind: str, fields: dict[str, object], commands: Sequence[str] | None = None) -> None:
        if self._pid != os.getpid():
            path = f"{self.path}.{os.getpid()}" if self._pid else self.path
            self._pid = os.getpid()
            self._file = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            self._append("hcq-capture", {"version": VERSION})
        text = encode({"t": kind, "ns": time.monotonic_ns(), **fields})
        if commands is not None:
            text = f'{text[:-1]},"commands":[{",".join(commands)}]}}'
        line = f"{text}\n".encode()
        while line:
            line = line[os.write(self._file, line) :]


_LOGS: Final[dict[str, CaptureLog]] = {}
"""The captures of this process by file name."""


def _renew() -> None:
    """Make new locks in a forked child, where the thread that holds one may not exist."""
    for log in _LOGS.values():
        log.lock = threading.RLock()


def log_of(path: str) -> CaptureLog:
    """Return the capture of this process that is written to `path`; it is opened with its first line."""
    in_children(_renew)
    return _LOGS.setdefault(path, CaptureLog(path))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a capture as dicts; an incomplete last line is left out.

    An empty file has no lines. Raises `UsageError` for a file that is no capture, one of another version, and
    a damaged line, with its number; `OSError` if it cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                known = isinstance(record["t"], str)
            except (ValueError, TypeError, KeyError):
                known = False
            if not known:
                raise UsageError(
                    f"{path}, line {number}: wanted an object of JSON with `t`, seen {line[:60]!r}"
                )
            if number == 1 and (record["t"], record.get("version")) != ("hcq-capture", VERSION):
                raise UsageError(
                    f"{path} is no capture of version {VERSION}; its first line is {line[:60]!r}"
                )
            yield record
