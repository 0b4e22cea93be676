"""Evidence of a rung: the kernel calls of its child process, and lines of the kernel's log.

Each call is written when it is made, so the record of a child that hangs or is killed is complete up to its
last call.

Not here: starting rungs (`ladder`). Next: `tools.bringup.nv.evidence` and `tools.bringup.amd.evidence`, the
names of calls and the raw memory of a failed rung.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from drivers.kernel_trace import TracedCall

SHOWN_BYTES: Final = 160
"""Bytes of a structure that are shown."""
_LAST: Final = 12
"""Calls of a failed rung that are shown."""
_MOST: Final = 20_000
"""The most calls of one rung that are written to its file: enough for a thousand launches."""
_LOG_LINES: Final = 30
"""The most lines of the kernel's log in a result."""


def hexed(data: bytes) -> str:
    """Return the first `SHOWN_BYTES` bytes in hex, and "..." if there are more."""
    return data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")


def call_text(call: TracedCall, named: Callable[[int, bytes], tuple[str, str]]) -> str:
    """Return an ioctl as text: its name, its result, and the structure before and after it, in hex.

    Of any other call, and of an ioctl without a structure, the first 300 characters of `str` are returned.
    `named` gets the request of an ioctl and the structure after it; it returns the name of the ioctl and a
    text for the end of the line.
    """
    if call.name != "ioctl":
        return str(call)[:300]
    fd, request, after = call.arguments
    if not isinstance(request, int) or not isinstance(after, bytes):
        return str(call)[:300]
    name, end = named(request, after)
    result = f"{call.result:#x}" if isinstance(call.result, int) else repr(call.result)
    return (
        f"ioctl({fd}, {request:#x} {name}) = {result}  <{call.duration_ns / 1000:.1f} us> "
        f"in {hexed(call.before)} out {hexed(after)}{end}"
    )


def dumped(
    parts: Iterable[tuple[str, Callable[[], Mapping[str, str]]]], slots: Iterable[Any], word: str
) -> dict[str, str]:
    """Return the texts of all parts by label, and the first bytes of slots as `word`, number and address.

    It never raises for a part: an error of reading is the text of the part, under its own label.
    """
    found: dict[str, str] = {}
    for label, read in parts:
        try:
            found |= read()
        except Exception as error:  # noqa: BLE001 - an error of the evidence must not hide the rung's error
            found[label] = f"could not be read: {error!r}"
    for i, slot in enumerate(slots):
        if slot.view is not None:
            found[f"{word} {i} at {slot.va:#x}"] = bytes(slot.view[:64]).hex()
    return found


class Trace:
    """The kernel calls of one child: the last in memory, and up to `_MOST` in the file `path`, if given.

    `line` formats a call. The owner calls `close`. Raises `OSError` if the file cannot be written.
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
    """Return the last lines of the kernel's log that contain one of `words`, which are in lower case.

    The case of the log is ignored. The list is empty if the log cannot be read.
    """
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["/usr/bin/env", "dmesg"], capture_output=True, check=False, timeout=5)
        lines = done.stdout.decode(errors="replace").splitlines()
        matching = [one for one in lines if any(word in one.lower() for word in words)]
        return matching[-_LOG_LINES:]
    return []
