"""Evidence of a rung: the kernel calls of its child, and what the kernel logged.

Calls are written out as they are made, so that the record of a child that hangs or is killed is complete up
to there.

Not here: calls as text and raw memory (`evidence` of a vendor), starting rungs (`ladder`).
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from drivers.kernel import Call

SHOWN_BYTES: Final = 160
"""Bytes shown of a structure."""
_LAST: Final = 12
"""Calls shown of a rung that failed."""
_MOST: Final = 20_000
"""Calls written out of one rung: a thousand launches and their doorbells."""
_SINCE: Final = 30


def hexed(data: bytes) -> str:
    """Return bytes in hex, the first `SHOWN_BYTES` of them."""
    return data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")


class Trace:
    """The calls of one child: the last ones in memory, all of them in a file where one is given.

    `line` gives a call as text.
    """

    def __init__(self, path: Path | None, line: Callable[[Call], str]) -> None:
        self.last: list[str] = []
        self._line = line
        self._count = 0
        self._file = path.open("w", buffering=1) if path is not None else None

    def note(self, call: Call) -> None:
        """Take a call down."""
        text = self._line(call)
        self.last.append(text[:1000])
        del self.last[:-_LAST]
        self._count += 1
        if self._file is not None and self._count <= _MOST:
            self._file.write(text + "\n")

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            self._file.close()


def kernel_log(words: Sequence[str]) -> list[str]:
    """Return the last lines of the kernel's log that hold one of `words`, in any case of letters.

    Nothing where the log cannot be read.
    """
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["/usr/bin/env", "dmesg"], capture_output=True, check=False, timeout=5)
        lines = done.stdout.decode(errors="replace").splitlines()
        spoken = [one for one in lines if any(word in one.lower() for word in words)]
        return spoken[-_SINCE:]
    return []
