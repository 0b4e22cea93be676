"""Evidence of a rung of the NVIDIA ladder: kernel calls as text, and raw memory of a failed rung.

Not here: the rungs (`rungs`). Next: `tools.bringup.evidence`, the record of calls.
"""

from __future__ import annotations

from functools import partial
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
from tools.bringup.evidence import SHOWN_BYTES, call_text, dumped, hexed

if TYPE_CHECKING:
    from drivers.kernel_trace import TracedCall
    from drivers.nv.device import NvDevice
    from drivers.nv.ring import NvRing
    from tools.bringup.nv.bench import Bench

_WORDS: Final = 64
"""The most words of a ring entry that are shown."""
_RM_TYPE: Final = 0x46
"""The type in the requests of RM's ioctls, the letter F."""
_BANK: Final = 0x260
"""Bytes after a descriptor that are shown: constant bank 0 up to the first arguments."""


def line(call: TracedCall) -> str:
    """Return a call as text, with the name, the status and the parameters of an RM call."""
    return call_text(call, _name_and_inner)


def _name_and_inner(request: int, after: bytes) -> tuple[str, str]:
    """Return the name of an ioctl with its status, and the parameters that its structure points to."""
    if request >> 8 & 0xFF != _RM_TYPE:
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
    # The parameters are still alive: the call is recorded before it returns to its caller.
    return f" params {hexed(bytes(view_at(va, min(size, SHOWN_BYTES))))}" if va and size else ""


def memory(bench: Bench) -> dict[str, str]:
    """Return the contents of the rings, descriptors and semaphores of a rung as text, by label.

    It never raises: an error of reading is the text of its part.
    """
    rings = [*bench.rings, *(ring for device in bench.devices for ring in device.rings())]
    parts = [("descriptor", partial(launches, device)) for device in bench.devices]
    parts += [(ring.channel.label, partial(_ring, ring)) for ring in rings]
    return dumped(parts, bench.slots, "semaphore")


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
    return {f"{channel.label}: {what}": text for what, text in out.items()}


def launches(device: NvDevice) -> dict[str, str]:
    """Return the launch descriptors that the last push buffers of a device name, by label, as text.

    The bytes after each, which are its constant bank 0, are in hex.
    """
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
                out[f"after the descriptor at {va:#x}"] = data[layout.SIZE :].hex()
    return out


def last_segments(ring: NvRing) -> list[list[int]]:
    """Return the words of the last two ring entries, of those that point into the ring's own push memory."""
    channel, memory = ring.channel, ring.memory
    put = channel.userd[channel.put_index]
    found = []
    for entry in [channel.entries[i] for i in range(max(0, put - 2), min(put, len(channel.entries)))]:
        segment = GpfifoEntry.from_int(entry)
        at = segment.ADDRESS - memory.va
        if memory.view is not None and 0 <= at < memory.size:
            found.append(memory.view[at : at + 4 * min(segment.LENGTH, _WORDS)].cast("I").tolist())
    return found
