"""Evidence of a rung: the kernel calls of its child process, and lines of the kernel's log.

Each call is written when it is made, so the record of a child that hangs or is killed is complete up to that
call.

Not here: calls as text and raw memory (`evidence` of a vendor), starting rungs (`ladder`).
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from drivers.kernel_trace import TracedCall

SHOWN_BYTES: Final = 160
"""Bytes of a structure that are shown."""
_LAST: Final = 12
"""Calls of a failed rung that are shown."""
_MOST: Final = 20_000
"""Calls of one rung that are written to its file: enough for a thousand launches."""
_LOG_LINES: Final = 30


def hexed(data: bytes) -> str:
    """Return bytes in hex, the first `SHOWN_BYTES` of them."""
    return data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")


class Trace:
    """The calls of one child: the last ones in memory, and all of them in a file if `path` is given.

    `line` formats a call.
    """

    def __init__(self, path: Path | None, line: Callable[[TracedCall], str]) -> None:
        self.last: list[str] = []
        self._line = line
        self._count = 0
        self._file = path.open("w", buffering=1) if path is not None else None

    def note(self, call: TracedCall) -> None:
        """Record a call."""
        text = self._line(call)
        self.last.append(text[:1000])
        del self.last[:-_LAST]
        self._count += 1
        if self._file is not None and self._count <= _MOST:
            self._file.write(text + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def kernel_log(words: Sequence[str]) -> list[str]:
    """Return the last lines of the kernel's log that contain one of `words`, ignoring case.

    Empty if the log cannot be read.
    """
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["/usr/bin/env", "dmesg"], capture_output=True, check=False, timeout=5)
        lines = done.stdout.decode(errors="replace").splitlines()
        matching = [one for one in lines if any(word in one.lower() for word in words)]
        return matching[-_LOG_LINES:]
    return []
