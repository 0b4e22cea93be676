"""What the devices of this process do, in shared memory, for `hcq top` (`HCQ_TOP=1`).

A thread writes a text of JSON every `PERIOD_S` seconds to a file of the process in a folder of the user in
memory. The file has a fixed size and begins with a sequence number, which is odd while the text changes, so
that a reader needs no lock. It is removed at the end of the process; a reader removes those of killed ones.

Not here: the values (`hcq.faults.crash`), the view (`tools.top`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import stat
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import UsageError
from hcq.faults.crash import state
from hcq.process import in_children, open_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

PERIOD_S: Final = 0.5
OWNERS_EVERY: Final = 10
"""Publications between two searches for the owners of memory, which look through all objects."""
SIZE: Final = 1 << 16
_HEAD: Final = struct.Struct("<QQ")
"""Sequence number, bytes of the text."""


def folder() -> Path:
    """Return the folder of this user's published processes, which may not exist."""
    return Path("/dev/shm") / f"hcq-{os.getuid()}"  # noqa: S108 - of mode 0700, made by this user


def _own_folder() -> None:
    """Make the folder. Raises `UsageError` for one that others may write, or that is a link."""
    folder().mkdir(mode=0o700, exist_ok=True)
    seen = folder().lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise UsageError(
            f"HCQ_TOP: {folder()} is not this user's alone: mode {seen.st_mode:o}, user {seen.st_uid}\n"
            "hint: remove it, or run without HCQ_TOP"
        )


def _remove(path: Path) -> None:
    """Remove the file of this process; a forked child, which calls this too, keeps that of its parent."""
    if path.name == str(os.getpid()):
        path.unlink(missing_ok=True)


class Publisher:
    """The file of this process and the thread that writes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread unless it runs.

        Raises `OSError` if the file cannot be made, `UsageError` for a folder that is another user's.
        """
        with self._lock:
            if self._thread is None:
                _own_folder()
                path = folder() / str(os.getpid())
                with path.open("w+b") as file:
                    file.truncate(SIZE)
                    memory = mmap.mmap(file.fileno(), SIZE)
                atexit.register(_remove, path)
                in_children(self.forget)
                # The name says that it submits nothing (`hcq.driver`).
                self._thread = threading.Thread(
                    target=self._run, args=(memory,), name="hcq publisher", daemon=True
                )
                self._thread.start()

    def forget(self) -> None:
        """Begin anew in a forked child, which has no such thread and no file."""
        self.__init__()  # type: ignore[misc]  # in place: others refer to it

    def _run(self, memory: mmap.mmap) -> None:
        number, owners = 0, dict[str, Any]()
        while True:
            shown = [one for one in map(_state, open_devices()) if one]
            if number % OWNERS_EVERY == 0:
                owners = {one["device"]: one.pop("find")() for one in shown}
            for one in shown:
                one.pop("find", None)
                one["owners"] = owners.get(one["device"], [])
            text = json.dumps({"pid": os.getpid(), "argv": sys.argv, "time": time.time(), "devices": shown})
            write(memory, text.encode())
            number += 1
            time.sleep(PERIOD_S)


def _state(device: Any) -> dict[str, Any] | None:
    if device.closed:
        return None
    return {**state(device), "find": lambda: [list(row) for row in device.retired.owners()[:8]]}


def write(memory: mmap.mmap, text: bytes) -> None:
    """Replace the text of a file; one that is too long is cut, and then no JSON."""
    sequence, _ = _HEAD.unpack_from(memory)
    text = text[: SIZE - _HEAD.size]
    _HEAD.pack_into(memory, 0, sequence + 1, 0)
    memory[_HEAD.size : _HEAD.size + len(text)] = text
    _HEAD.pack_into(memory, 0, sequence + 2, len(text))


def read_all(where: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield what each live process of this user has published; remove the files of those that are gone."""
    where = where or folder()
    for path in sorted(where.iterdir()) if where.is_dir() else ():
        if not Path(f"/proc/{path.name}").exists():
            path.unlink(missing_ok=True)
            continue
        for _ in range(100):
            content = path.read_bytes()
            sequence, size = _HEAD.unpack_from(content.ljust(_HEAD.size, b"\0"))
            again = path.read_bytes()[: _HEAD.size]
            if sequence % 2 == 0 and size and again == content[: _HEAD.size]:
                with contextlib.suppress(ValueError):  # cut, or of another version
                    yield json.loads(content[_HEAD.size : _HEAD.size + size])
                break
            time.sleep(0.001)


PUBLISHER: Final = Publisher()
"""The publisher of this process."""
