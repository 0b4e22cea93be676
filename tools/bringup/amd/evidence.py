"""Evidence of a rung of the AMD ladder: kernel calls as text, and the decoded rings of a failed rung.

Not here: the rungs (`rungs`). Next: `tools.bringup.evidence`, the record of calls.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from drivers.amd import decode
from drivers.amd.layouts.kfd import Call as KfdCall
from drivers.amd.layouts.kfd import Request
from drivers.amd.queues import Packets
from drivers.kernel import PAGE
from tools.bringup.evidence import call_text, dumped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.amd.layouts.chips import AmdChip
    from drivers.amd.rings import AnyRing
    from drivers.kernel_trace import TracedCall
    from tools.bringup.amd.bench import Bench

_WORDS: Final = 64
"""Words before a ring's write pointer that are shown."""
_AQL_WORDS: Final = 16
"""Words of an AQL packet."""
_POINTER_BYTES: Final = 128
"""Bytes of a pointer page that are shown: they hold both pointers of every kind of queue."""


def line(call: TracedCall) -> str:
    """Return a call as text, with the name of an ioctl."""
    return call_text(call, _name)


def _name(request: int, _after: bytes) -> tuple[str, str]:
    """Return the name of an ioctl of /dev/kfd, or "drm" for one of the render node; and ""."""
    word = Request.from_int(request)
    if word.check():
        return "drm", ""
    known = word.NR in KfdCall._value2member_map_
    return (KfdCall(word.NR).name if known else f"kfd {word.NR}"), ""


def memory(bench: Bench) -> dict[str, str]:
    """Return the contents of the rings, pointer pages and slots of a rung as text, by label.

    It never raises: an error of reading a ring is that ring's text.
    """
    rings = [(ring, bench.target) for ring in bench.rings] if bench.rings else []
    rings += [(ring, device.target) for device in bench.devices for ring in device.rings()]
    return dumped([(one[0].queue.label, partial(_ring, *one)) for one in rings], bench.slots, "slot")


def _ring(ring: AnyRing, target: AmdChip) -> dict[str, str]:
    queue, pointers = ring.queue, ring.queue.pointers.view
    assert pointers is not None, "pointer pages are mapped"
    out = {
        "queue": f"id {queue.number}, {queue.packets.name}, ring {queue.ring.va:#x}+{queue.ring.size:#x}",
        "progress": ring.stuck() or "all entries were read",
        "exceptions": f"{queue.exceptions[0]:#x}, inactive reason: {queue.inactive[0]:#x}",
        "pointer page": bytes(pointers[: min(_POINTER_BYTES, PAGE)]).hex(),
    }
    words = last_words(ring)
    out["words before the write pointer"] = " ".join(f"{word:08x}" for word in words)
    out["decoded"] = "\n".join(text_of(queue.packets, words, target))
    return {f"{queue.label}: {what}": text for what, text in out.items()}


def last_words(ring: AnyRing) -> list[int]:
    """Return the last words before a ring's write pointer, the oldest first; of an AQL ring whole packets."""
    view = ring.queue.ring.view
    assert view is not None, "rings are mapped"
    words = view.cast("I")
    unit = _AQL_WORDS if ring.queue.packets is Packets.AQL else 1
    end = ring.taken * unit
    count = min(end, _WORDS)
    return [words[(end - count + i) % len(words)] for i in range(count)]


def text_of(packets: Packets, words: Sequence[int], target: AmdChip) -> list[str]:
    """Return a line for each packet that `words` hold; [] if no start decodes.

    The first words may belong to a packet whose start is missing: they are skipped until the rest decodes.
    """
    for start in range(len(words)):
        try:
            if packets is Packets.AQL:
                return decode.aql_text(words[start:], target.generation)
            if packets is Packets.SDMA:
                return decode.sdma_text(words[start:], target.sdma)
            return decode.pm4_text(words[start:], target.generation)
        except ValueError:
            continue
    return []
