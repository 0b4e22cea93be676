"""The output ring of one module: `printf` records and failed assertions of its kernels.

The ring is host memory that the device can access, so that the host can read it after a fault, too. Kernels
append records from the start on. The host reads all of them at once and clears the ring.

Not here: the code that writes the ring (`interop.device_library`). Next: `hcq.outputs`, when it is read.
"""

from __future__ import annotations

import struct
import weakref
from typing import TYPE_CHECKING, Final

from hcq.errors import UsageError
from interop.arrays import STAGING
from interop.device_library import (
    COMPLETE,
    FAILED,
    FAILURE,
    FAILURE_TEXTS,
    HEAD_BYTES,
    LOST,
    RECORD_HEAD,
    USED,
)
from interop.printf import PrintfArguments, formatted

if TYPE_CHECKING:
    from hcq.device import Device

OUTPUT_BYTES: Final = 1 << 20
"""Bytes of a ring by default, as in CUDA."""


class OutputRing:
    """The ring of one module on one device; `device.outputs` reads it as long as it has a user.

    Raises `UsageError` for a size that is no multiple of 8 or below 2048, and as `Device.alloc`.
    """

    def __init__(self, device: Device, name: str, size: int = OUTPUT_BYTES) -> None:
        if size < 2 * HEAD_BYTES or size % 8:
            raise UsageError(f"output_bytes={size}: wanted a multiple of 8 from {2 * HEAD_BYTES} on")
        self._name = name
        self._buffer = device.alloc(size, STAGING, label=f"output of {name}")
        self._memory = self._buffer.borrow()
        self._memory[:] = bytes(size)
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self.va = self._buffer.va
        self.size = size
        device.outputs.add(self)

    def used_by(self, user: object) -> None:
        """Keep the ring in use as long as `user` exists: a kernel, or a program with the kernel's code."""
        self._users.add(user)

    def unused(self) -> bool:
        """Return whether no user exists any more, so that no kernel writes to the ring."""
        return not self._users

    def take(self) -> tuple[str, str]:
        """Return the text of all complete records, and a remark about lost ones or ""; clear the ring."""
        (used,) = struct.unpack_from("<Q", self._memory, USED)
        if not used:
            return "", ""
        (lost,) = struct.unpack_from("<I", self._memory, LOST)
        end = min(used, self.size - HEAD_BYTES)
        text, at = "", 0
        while at + RECORD_HEAD <= end:
            size, complete, *parts = struct.unpack_from("<5I", self._memory, HEAD_BYTES + at)
            if not size:
                break  # the record that did not fit, or one that a fault cut off
            start = HEAD_BYTES + at + RECORD_HEAD
            if complete:
                text += _text(self._memory[start : HEAD_BYTES + at + size], parts)
            lost += not complete
            at += size
        self._memory[HEAD_BYTES : HEAD_BYTES + end] = bytes(end)
        self._memory[:FAILED] = bytes(FAILED)
        remark = f"hcq: {lost} calls of printf by {self._name} were lost: its output has {self.size} bytes"
        return text, f"{remark}\nhint: interop.load(..., output_bytes={4 * self.size})" if lost else ""

    def finding(self) -> str:
        """Return the description of the assertion that failed first, and clear it; "" if none failed."""
        (state,) = struct.unpack_from("<I", self._memory, FAILED)
        if not state:
            return ""
        line, bx, by, bz, tx, ty, tz = struct.unpack_from("<7I", self._memory, FAILURE)
        message, file, function = (
            bytes(self._memory[FAILURE + at : FAILURE + at + size])
            .partition(b"\0")[0]
            .decode(errors="replace")
            for at, size in FAILURE_TEXTS
        )
        self._memory[FAILED:HEAD_BYTES] = bytes(HEAD_BYTES - FAILED)
        if state != COMPLETE:
            return f"a device assertion of {self._name} failed, and the kernel ended before it was described"
        return (
            f"device assertion failed: {file}:{line}: {function}: `{message}`, "
            f"block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})"
        )


def _text(data: memoryview, parts: list[int]) -> str:
    """Return the text of one record; `parts` are the numbers of bytes of format, arguments and strings."""
    pieces, at = [], 0
    for size in parts:
        pieces.append(bytes(data[at : at + size]))
        at += -(-size // 8) * 8
    pattern, arguments, strings = pieces
    return formatted(pattern.rstrip(b"\0").decode(errors="replace"), PrintfArguments(arguments, strings))
