"""A capture as text: one line for each event, with symbols, and on demand the packets that the ring got.

Not here: the decoders of packets (`drivers.nv.decode`, `drivers.amd.decode`, `drivers.cpu.layouts`). Next:
`replayer`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from math import inf
from typing import TYPE_CHECKING, Any, Final

from drivers.amd import decode as amd
from drivers.amd.layouts import chips
from drivers.cpu import layouts as cpu
from drivers.nv import decode as nv
from hcq.capture.log import unpack
from hcq.errors import size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Record = dict[str, Any]

_AQL_FROM: Final = "gfx9"
"""The generation whose compute queues take AQL packets."""
_WIDE_FROM: Final = 90
"""The first NVIDIA architecture with the methods of Hopper."""


class Symbols:
    """The names of a capture's objects, from the lines read so far."""

    def __init__(self) -> None:
        self.devices: dict[int, Record] = {}
        self.buffers: dict[int, Record] = {}
        self.programs: dict[int, Record] = {}
        self.signals: dict[int, Record] = {}
        self.raised: dict[int, list[tuple[int, int]]] = {}
        """Signal -> the (value of its slot, submission) that raise it, by value."""
        self.submits: dict[int, Record] = {}
        """Submissions by number."""

    def take(self, record: Record) -> None:
        """Note what a line declares."""
        table = {
            "device": self.devices, "buffer": self.buffers, "program": self.programs, "signal": self.signals,
        }.get(record["t"])  # fmt: skip
        if table is not None:
            table[record["id"]] = record
        elif record["t"] == "submit":
            self.submits[record["n"]] = record
        elif record["t"] == "sent":
            insort(self.raised.setdefault(record["signal"], []), (record["value"], record["n"]))

    def raiser(self, signal: int, value: int) -> int | None:
        """Return the first submission after which a signal has at least this value, or None."""
        raised = self.raised.get(signal, [])
        at = bisect_left(raised, (value, 0))
        return raised[at][1] if at < len(raised) else None

    def reached(self, signal: int, value: int) -> int | None:
        """Return the last submission that is done when a signal has this value, or None."""
        raised = self.raised.get(signal, [])
        at = bisect_right(raised, (value, inf))
        return raised[at - 1][1] if at else None

    def pointer(self, pointer: Any) -> str:
        """Return a pointer as "#buffer+offset 'label'"."""
        if isinstance(pointer, dict):
            return f"{pointer['va']:#x}"
        number, offset = pointer
        label = self.buffers[number]["label"]
        at = f"+{offset}" if offset else ""
        return f"#{number}{at}" + (f" {label!r}" if label else "")

    def signal(self, number: int, value: int) -> str:
        """Return a value of a signal, with the submission that raises it."""
        submission = self.raiser(number, value)
        label = self.signals[number]["label"]
        by = f" of submission {submission}" if submission is not None else ""
        return f"signal {label or number} >= {value + self.signals[number]['base']}{by}"

    def command(self, command: Record) -> str:
        """Return one command as text."""
        kind = command["c"]
        if kind == "Exec":
            return self._launch(command)
        if kind in {"Wait", "SetSignal"}:
            return f"{kind.lower()} {self.signal(command['signal'], command['value'])}"
        parts = [
            f"{name}={self.pointer(value) if isinstance(value, (list, dict)) else value}"
            for name, value in command.items()
            if name != "c" and value is not None
        ]
        return " ".join([kind.lower(), *parts])

    def _launch(self, command: Record) -> str:
        image = self.programs[command["program"]]["image"]
        values = [
            f"{slot['name']}={self._argument(slot, value)}"
            for slot, value in zip(image["args"], command["args"], strict=True)
        ]
        groups, threads = ("x".join(map(str, command[name])) for name in ("groups", "threads"))
        cluster = f", clusters {'x'.join(map(str, command['cluster']))}" if command["cluster"] else ""
        return f"exec {image['name']}({', '.join(values)}) groups {groups}, threads {threads}{cluster}"

    def _argument(self, slot: Record, value: Any) -> str:
        if slot["kind"] == "POINTER":
            return f"{self.pointer(value)} {slot['access']}"
        if slot["kind"] == "FLOAT":
            return str(float_of(value, slot["size"]))
        return str(value)


def float_of(bits: int, size: int) -> float:
    """Return the number whose IEEE bits, of `size` bytes, are given."""
    number: float = struct.unpack(f"<{ {2: 'e', 4: 'f', 8: 'd'}[size] }", bits.to_bytes(size, "little"))[0]
    return number


def lines(records: Iterable[Record], *, packets: bool = False) -> Iterator[str]:
    """Yield the text of a capture. `packets`: also the packets of each submission, decoded.

    Raises `KeyError` for a line that names an object without a line before it.
    """
    symbols = Symbols()
    for record in records:
        symbols.take(record)
        yield from _line(record, symbols, packets=packets)


def _line(record: Record, symbols: Symbols, *, packets: bool) -> Iterator[str]:
    kind = record["t"]
    if kind == "device":
        yield f"device #{record['id']} {record['name']} ({record['arch']})"
    elif kind == "buffer":
        place = record["spec"]["place"].lower()
        label = f" {record['label']!r}" if record["label"] else ""
        yield f"buffer #{record['id']} {size_text(record['size'])} at {record['va']:#x} in {place}{label}"
    elif kind == "program":
        image = record["image"]
        yield f"program #{record['id']} {image['name']} ({len(unpack(image['code']))} bytes of code)"
    elif kind == "memory":
        held = " (work waits for the host)" if record["held"] else ""
        yield f"host writes #{record['buffer']}, {len(unpack(record['bytes']))} bytes{held}"
    elif kind == "submit":
        label = f" {record['label']!r}" if record["label"] else ""
        yield f"submission {record['n']} to {record['queue']}{label}"
        yield from (f"    {symbols.command(command)}" for command in record["commands"])
    elif kind == "sent":
        yield f"    sent; done when {symbols.signal(record['signal'], record['value'])}"
        if packets:
            yield from (f"        {line}" for line in decoded(record, symbols))
    elif kind == "dropped":
        yield f"    refused: submission {record['n']} was not sent"
    elif kind == "set":
        yield f"host sets {symbols.signal(record['signal'], record['value'])}"
    elif kind == "seen":
        yield f"host reads #{record['buffer']}: digest {record['digest']}"
    elif kind == "fault":
        yield f"fault of {symbols.devices[record['device']]['name']}: {record['text']}"
    elif kind == "end":
        yield f"device #{record['device']} closed or recovered"


def decoded(record: Record, symbols: Symbols) -> list[str]:
    """Return the packets of a line `sent` as text. A word that no decoder knows is an error in the text."""
    submission = symbols.submits[record["n"]]
    arch = symbols.devices[submission["device"]]["arch"]
    data, size = unpack(record["words"]), record["bits"] // 8
    words = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    try:
        if arch.startswith("sm_"):
            return nv.text(words, wide=int(arch[3:].rstrip("af")) >= _WIDE_FROM)
        if not arch.startswith("gfx"):
            return [str(packet) for packet in cpu.decode(words)]
        chip = chips.CHIPS[arch.partition(":")[0]]
        if submission["queue"].startswith("copy"):
            return amd.sdma_text(words, chip.sdma)
        if arch.startswith(_AQL_FROM):
            return amd.aql_text(words, chip.generation)
        return amd.pm4_text(words, chip.generation)
    except (ValueError, KeyError) as error:
        return [f"cannot be decoded: {error}"]


def crash_text(record: Record) -> str:
    """Return a crash report as text."""
    name = f"{record['device']} ({record['name']}, {record['arch']})"
    lines = [f"{name} at {record['time']}", record["text"]]
    for queue in record["queues"]:
        reached = f"reached {queue['reached']} of {queue['issued']}"
        lines.append(f"{queue['label']}: {reached}; {queue['at'] or 'idle'}")
        lines += [f"  waits: {wait}" for wait in queue["waits"]]
        lines += [f"  {queue['crumbs']}"] * bool(queue["crumbs"])
        lines += [f"  in flight: {command}" for command in record["in flight"][queue["label"]]]
    memory = record["memory"]
    parts = ", ".join(f"{size_text(memory[part])} {part}" for part in ("used", "deferred", "cached", "uncut"))
    lines.append(f"memory: {size_text(memory['reserved'])} in {memory['allocations']} allocations: {parts}")
    lines += [f"  {label}: {size_text(size)} in {count}" for label, size, count in memory["owners"]]
    lines += [f"{name}={value}" for name, value in record["settings"].items()]
    return "\n".join([*lines, " ".join(f"{key}={value}" for key, value in record["machine"].items())])
