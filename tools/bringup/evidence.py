"""Evidence of a rung of the NVIDIA ladder: every kernel call, and raw memory where it failed.

Calls are written out as they are made, so that the record of a child that hangs or is killed is complete up
to there.

Not here: the rungs (`tools.bringup.nv.rungs`), starting them (`ladder`).
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from drivers.kernel import view_at
from drivers.nv import push
from drivers.nv.decode import fields_text
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.fault import NOTIFIER_ENTRIES, NvNotification
from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.qmd import QMDS
from drivers.nv.layouts.rm import NVOS54_PARAMETERS, NVOS64_PARAMETERS, Escape
from drivers.nv.layouts.status import status_name
from drivers.nv.layouts.uvm import UvmCommand
from drivers.nv.rm import class_name

if TYPE_CHECKING:
    from pathlib import Path

    from drivers.kernel import Call
    from drivers.nv.device import NvDevice
    from drivers.nv.ring import NvRing
    from tools.bringup.nv.bench import Bench

_LAST: Final = 12
"""Calls shown of a rung that failed."""
_MOST: Final = 20_000
"""Calls written out of one rung: a thousand launches and their doorbells."""
_BYTES: Final = 160
_WORDS: Final = 64
_FRONTEND: Final = 0x46
_SINCE: Final = 30
_BANK: Final = 0x260
"""Bytes shown behind a descriptor: constant bank 0 up to its first arguments."""


def line(call: Call) -> str:
    """Return a call with its name, its status and the bytes that went in and came back, in hex."""
    if call.name != "ioctl":
        return str(call)[:300]
    fd, request, after = call.arguments
    if not isinstance(request, int) or not isinstance(after, bytes):
        return str(call)[:300]
    name, inner = _name_and_inner(request, after)
    result = f"{call.result:#x}" if isinstance(call.result, int) else repr(call.result)
    return (
        f"ioctl({fd}, {request:#x} {name}) = {result}  <{call.duration_ns / 1000:.1f} us> "
        f"in {_hex(call.before)} out {_hex(after)}{inner}"
    )


def _name_and_inner(request: int, after: bytes) -> tuple[str, str]:
    """Return what an ioctl is, with the status in its structure, and the parameters that it points to."""
    if request >> 8 & 0xFF != _FRONTEND:
        known = request in UvmCommand._value2member_map_
        return UvmCommand(request).name if known else "uvm", ""
    number = request & 0xFF
    name = Escape(number).name if number in Escape._value2member_map_ else f"escape {number}"
    if number == Escape.NV_ESC_RM_CONTROL:
        control = NVOS54_PARAMETERS.from_bytes(after)
        what = Control(control.cmd).name if control.cmd in Control._value2member_map_ else hex(control.cmd)
        return f"{what} {status_name(control.status)}", _pointed(control.params, control.paramsSize)
    if number == Escape.NV_ESC_RM_ALLOC and len(after) == NVOS64_PARAMETERS.SIZE:
        made = NVOS64_PARAMETERS.from_bytes(after)
        what = f"{name} {class_name(made.hClass)} {status_name(made.status)}"
        return what, _pointed(made.pAllocParms, made.paramsSize)
    return name, ""


def _pointed(va: int, size: int) -> str:
    # The caller still holds them: the call is recorded before it returns.
    return f" params {_hex(bytes(view_at(va, min(size, _BYTES))))}" if va and size else ""


def _hex(data: bytes) -> str:
    return data[:_BYTES].hex() + ("..." if len(data) > _BYTES else "")


class Trace:
    """The calls of one child: the last ones in memory, all of them in a file where one is given."""

    def __init__(self, path: Path | None) -> None:
        self.last: list[str] = []
        self._count = 0
        self._file = path.open("w", buffering=1) if path is not None else None

    def note(self, call: Call) -> None:
        """Take a call down."""
        text = line(call)
        self.last.append(text[:1000])
        del self.last[:-_LAST]
        self._count += 1
        if self._file is not None and self._count <= _MOST:
            self._file.write(text + "\n")

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            self._file.close()


def memory(bench: Bench) -> dict[str, str]:
    """Return, in hex, what lies in the rings and semaphores of a rung; it raises for nothing."""
    found: dict[str, str] = {}
    for device in bench.devices:
        try:
            found |= launches(device)
        except Exception as error:  # noqa: BLE001 - evidence must not hide what it is of
            found["descriptor"] = f"could not be read: {error!r}"
    rings = [*bench.rings, *(ring for device in bench.devices for ring in device.rings())]
    for ring in rings:
        try:
            found |= {f"{ring.channel.label}: {what}": text for what, text in _ring(ring).items()}
        except Exception as error:  # noqa: BLE001 - the same
            found[ring.channel.label] = f"could not be read: {error!r}"
    for i, slot in enumerate(bench.slots):
        if slot.view is not None:
            found[f"semaphore {i} at {slot.va:#x}"] = bytes(slot.view[:64]).hex()
    return found


def _ring(ring: NvRing) -> dict[str, str]:
    channel = ring.channel
    put = channel.userd[channel.put_index]
    entries = [channel.entries[i] for i in range(max(0, put - 4), min(put, len(channel.entries)))]
    out = {
        "token": hex(channel.token),
        "user area": bytes(channel.userd).hex(),
        "notifier": bytes(channel.errors.cast("B")[: NOTIFIER_ENTRIES * NvNotification.SIZE]).hex(),
        "entries before put": " ".join(f"{entry:#018x}" for entry in entries),
    }
    if ring.memory.view is not None:
        out["progress"] = bytes(ring.memory.view[:16]).hex()
        for number, words in enumerate(last_segments(ring)):
            out[f"words, segment {number}"] = " ".join(f"{word:08x}" for word in words)
    return out


def launches(device: NvDevice) -> dict[str, str]:
    """Return the launch descriptors that the last words of a device name, decoded, and constant bank 0."""
    layout = QMDS[device.gpu.generation.qmd]
    visible = [memory for memory in device.memories.map.live() if memory.view is not None]
    out: dict[str, str] = {}
    for ring in device.rings():
        for words in last_segments(ring):
            for at, word in enumerate(words[:-1]):
                va = words[at + 1] << 8
                memory = next((m for m in visible if m.va <= va < m.va + m.size), None)
                if word != push.PCAS_A or memory is None or memory.view is None:
                    continue
                data = bytes(memory.view[va - memory.va :][: layout.SIZE + _BANK])
                out[f"descriptor at {va:#x}"] = fields_text(layout.from_bytes(data))
                out[f"behind the descriptor at {va:#x}"] = data[layout.SIZE :].hex()
    return out


def last_segments(ring: NvRing) -> list[list[int]]:
    """Return the words of the last two ring entries that point into the ring's own push memory."""
    channel, memory = ring.channel, ring.memory
    put = channel.userd[channel.put_index]
    found = []
    for entry in [channel.entries[i] for i in range(max(0, put - 2), min(put, len(channel.entries)))]:
        segment = GpfifoEntry.from_int(entry)
        at = segment.ADDRESS - memory.va
        if memory.view is not None and 0 <= at < memory.size:
            found.append(memory.view[at : at + 4 * min(segment.LENGTH, _WORDS)].cast("I").tolist())
    return found


def kernel_log() -> list[str]:
    """Return the last lines of the kernel's log about the GPU; nothing where it cannot be read."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["/usr/bin/env", "dmesg"], capture_output=True, check=False, timeout=5)
        lines = done.stdout.decode(errors="replace").splitlines()
        spoken = [one for one in lines if "NVRM" in one or "nvidia" in one.lower()]
        return spoken[-_SINCE:]
    return []
