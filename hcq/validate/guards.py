"""Guard zones: a pattern behind every buffer of a validated device, which shows that a kernel overran it.

A zone lies in the block that was taken for the buffer, which is that much larger. It is read when a
submission that named the buffer is found done, at `Device.sync`, before the block is taken again, and when
the device is closed. A damaged pattern is written anew, so each overrun is reported once. Memory that the
host cannot see has no zone.

Not here: bounds that commands and kernels declare (`validator`).
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from hcq.commands import Exec, operands
from hcq.errors import UsageError
from hcq.memory import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hcq.commands import Command
    from hcq.memory import Block, Home
    from hcq.params import Param, Value
    from hcq.signal import Point
    from hcq.validate.watch import Line

GUARD_BYTES: Final = 64
_PATTERN: Final = bytes((151 * k + 0xA5) & 0xFF for k in range(GUARD_BYTES))
_SUSPECTS_KEPT: Final = 64
"""How many of its newest launches a zone records."""


class Zone:
    """The guard of one buffer; its block returns to the free list through a last check of the pattern."""

    __slots__ = ("_bytes", "_gone", "_guards", "_home", "_text", "suspects", "va")

    def __init__(self, guards: Guards, view: memoryview, home: Home, va: int, text: str) -> None:
        self._guards = guards
        self._bytes = view
        self._home = home
        self._text = text
        self._gone = False
        """Whether the block went back: the bytes may be another buffer's."""
        self.va = va
        self.suspects: deque[tuple[Point, str]] = deque(maxlen=_SUSPECTS_KEPT)
        """Kernels that had the buffer as an argument and may have run since the last check."""
        view[:] = _PATTERN

    def append(self, block: Block, /) -> None:
        """Look once more, then let the block be taken again: nothing uses it."""
        self.look(last=True)
        self._home.append(block)

    def look(self, *, last: bool = False) -> None:
        """Note it with the device when the pattern is damaged, and write it anew. Raises nothing."""
        with self._guards.lock:  # held for this alone: finalisers come here, too
            if self._gone or self._guards.ended:
                return
            seen = self._bytes.tobytes()
            if seen != _PATTERN:
                self._bytes[:] = _PATTERN
            self._gone = last
        if last:
            self._guards.zones.pop(self.va, None)
        if seen == _PATTERN:
            while self.suspects and self.suspects[0][0].passed():
                self.suspects.popleft()
        else:
            self._guards.damages.append(self._damage(seen))

    def renew(self) -> None:
        """Write the pattern anew."""
        with self._guards.lock:
            if not (self._gone or self._guards.ended):
                self._bytes[:] = _PATTERN

    def _damage(self, seen: bytes) -> str:
        wrong = [at for at in range(GUARD_BYTES) if seen[at] != _PATTERN[at]]
        names = ", ".join(dict.fromkeys(name for _, name in tuple(self.suspects)))
        self.suspects.clear()
        return (
            f"overrun: {self._text} was written past the end: byte {wrong[0]} behind it is the first of "
            f"{len(wrong)} that changed, of a guard zone of {GUARD_BYTES}\n"
            f"hint: {f'kernels with it as an argument since the last check: {names}' if names else _NOBODY}"
        )


_NOBODY: Final = "no kernel had it as an argument since the last check: one overran a neighbouring buffer"


class Guards:
    """The guard zones of one device, and the latest users of the guarded buffers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while the bytes of a zone are read or written."""
        self.ended = False
        """Whether the memory is gone, or goes."""
        self.zones: dict[int, Zone] = {}
        """By the address of their buffers."""
        self.damages: deque[str] = deque()
        """What was found and not reported yet."""
        self._named: dict[Line, tuple[list[Zone], list[tuple[Zone, str]]]] = {}
        self._running: dict[Line, deque[tuple[Point, list[Zone]]]] = {}
        """What submissions not known to be done may damage, oldest first."""
        self._retiring = threading.Lock()

    def plant(self, block: Block, home: Home, size: int, label: str) -> Home:
        """Write the pattern behind the first `size` bytes of a block; return where the block goes back to."""
        allocation = block.chunk.allocation
        if allocation.host is None:
            return home
        start = block.offset + size
        name = f"Buffer {label!r}" if label else "Buffer"
        text = f"<{name} of {size} bytes at {block.va:#x}>"
        zone = Zone(self, allocation.host[start : start + GUARD_BYTES], home, block.va, text)
        self.zones[block.va] = zone
        return zone

    def judged(self, queue: Line, todo: Iterable[Command], values: Mapping[Param, Value]) -> None:
        """Record the buffers of a submission, to check their zones when it is done."""
        named = [value for value in values.values() if isinstance(value, Buffer)]
        suspects: list[tuple[Zone, str]] = []
        for command in todo:
            buffers = tuple(operands(command))
            named += buffers
            if isinstance(command, Exec):
                given = [
                    expr if isinstance(expr, Buffer) else values.get(expr.param)
                    for _, expr in command.args.pointers()
                ]
                suspects += [(zone, command.program.name) for zone in _zones(given)]
        zones = list(dict.fromkeys(_zones(named)))
        self._named[queue] = zones, suspects

    def refused(self, queue: Line) -> None:
        """Drop the submission that was checked last on this queue: it was not sent."""
        self._named.pop(queue, None)

    def sent(self, queue: Line, point: Point) -> None:
        """Enter the submission that was checked last on this queue; it ends at `point`."""
        zones, suspects = self._named.pop(queue, ((), ()))
        for zone, name in suspects:
            zone.suspects.append((point, name))
        if zones:
            self._running.setdefault(queue, deque()).append((point, list(zones)))

    def retire(self) -> None:
        """Look behind the buffers of submissions that are done. Raises nothing."""
        if not self._running or not self._retiring.acquire(blocking=False):
            return  # another thread looks just now
        try:
            done: dict[Zone, None] = {}
            for running in tuple(self._running.values()):
                while running and running[0][0].over():
                    done.update(dict.fromkeys(running.popleft()[1]))
        finally:
            self._retiring.release()
        for zone in done:
            zone.look()

    def look(self) -> None:
        """Look behind all buffers. Raises nothing."""
        for zone in tuple(self.zones.values()):
            zone.look()

    def tell(self) -> None:
        """Raise `UsageError` with what was found since the last time, if anything."""
        told: list[str] = []
        while self.damages:
            with suppress(IndexError):  # another thread reported it
                told.append(self.damages.popleft())
        if told:
            raise UsageError("\n".join(told))

    def recovered(self) -> None:
        """Go on after a fault, which was reported: what lost work may have damaged counts no more."""
        self._named.clear()
        self._running.clear()
        for zone in tuple(self.zones.values()):
            zone.suspects.clear()
            zone.renew()

    def end(self) -> None:
        """Look no more: the memory goes back to the driver."""
        with self.lock:
            self.ended = True
        self._named.clear()
        self._running.clear()
        self.zones.clear()


@runtime_checkable
class Guarded(Protocol):
    """A validation layer with guard zones."""

    guards: Guards


def _zones(buffers: Iterable[object]) -> list[Zone]:
    """Return the zones of buffers, views by what they are views of; also those of other devices."""
    found: list[Zone] = []
    for buffer in buffers:
        if isinstance(buffer, Buffer):
            root = buffer.root or buffer
            watch = root.device.watch
            zone = watch.guards.zones.get(root.va) if isinstance(watch, Guarded) else None
            found += [zone] if zone is not None else []
    return found
