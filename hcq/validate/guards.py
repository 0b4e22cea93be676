"""Guard zones: a pattern after every buffer of a validated device. A changed pattern proves an overrun.

The zone is the end of the buffer's block, which is taken that much larger. The pattern is checked when a
submission that named the buffer has completed, at `Device.sync`, before the block is reused, and when the
device is closed. A damaged pattern is restored, so that each overrun is reported once. Memory that the host
cannot access has no zone, nor has a buffer for whose zone memory is short.

Not here: bounds that commands and kernels declare (`validator`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from hcq.commands import Command, Exec, operands
from hcq.errors import UsageError
from hcq.heap import Block, FreeList
from hcq.memory import Buffer
from hcq.params import Param, Value
from hcq.process import OpenQueue
from hcq.signal import Point

GUARD_BYTES: Final = 64
_PATTERN: Final = bytes((151 * k + 0xA5) & 0xFF for k in range(GUARD_BYTES))
_SUSPECTS_KEPT: Final = 64
"""The most launches that a zone remembers; the newest stay."""


class Zone:
    """The guard zone of one buffer. It is the `FreeList` of the block: it checks, then returns the block."""

    __slots__ = ("_bytes", "_free_list", "_guards", "_returned", "_text", "suspects", "va")

    def __init__(self, guards: Guards, view: memoryview, free_list: FreeList, va: int, text: str) -> None:
        self._guards = guards
        self._bytes = view
        self._free_list = free_list
        self._text = text
        self._returned = False
        """Whether the block was returned, so that the bytes may belong to another buffer."""
        self.va = va
        self.suspects: deque[tuple[Point, str]] = deque(maxlen=_SUSPECTS_KEPT)
        """(point, name) of kernels with the buffer as an argument that may have run since the last check."""
        view[:] = _PATTERN

    def append(self, block: Block, /) -> None:
        """Check the zone a last time, then return the block to its free list."""
        self.check(last=True)
        self._free_list.append(block)

    def check(self, *, last: bool = False) -> None:
        """Record an overrun if the pattern is damaged, and restore it. Raises nothing."""
        with self._guards.lock:  # a leaf lock: finalisers call this too
            if self._returned or self._guards.closed:
                return
            seen = self._bytes.tobytes()
            if seen != _PATTERN:
                self._bytes[:] = _PATTERN
            self._returned = last
        if last:
            self._guards.zones.pop(self.va, None)
        if seen == _PATTERN:
            while self.suspects and self.suspects[0][0].passed():
                self.suspects.popleft()
        else:
            self._guards.damages.append(self._damage(seen))

    def renew(self) -> None:
        """Restore the pattern."""
        with self._guards.lock:
            if not (self._returned or self._guards.closed):
                self._bytes[:] = _PATTERN

    def _damage(self, seen: bytes) -> str:
        wrong = [at for at in range(GUARD_BYTES) if seen[at] != _PATTERN[at]]
        names = ", ".join(dict.fromkeys(name for _, name in tuple(self.suspects)))
        self.suspects.clear()
        return (
            f"overrun: {self._text} was written past the end: byte {wrong[0]} after it is the first of "
            f"{len(wrong)} that changed, of a guard zone of {GUARD_BYTES}\n"
            f"hint: {f'kernels that had it as an argument: {names}' if names else _NO_KERNEL}"
        )


_NO_KERNEL: Final = "no kernel had it as an argument since the last check; one overran a neighbouring buffer"


class Guards:
    """The guard zones of one device, and the submissions that may damage them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while the bytes of a zone are read or written."""
        self.closed = False
        """Whether the memory was, or is being, returned to the driver."""
        self.zones: dict[int, Zone] = {}
        """Zones by the address of their buffer."""
        self.damages: deque[str] = deque()
        """Texts of overruns that no error has reported yet."""
        self._checked: dict[OpenQueue, tuple[list[Zone], list[tuple[Zone, str]]]] = {}
        """(zones, (zone, kernel) of arguments) of the submission that each queue sends next."""
        self._running: dict[OpenQueue, deque[tuple[Point, list[Zone]]]] = {}
        """The zones that submissions in flight may damage, the oldest submission first."""
        self._retiring = threading.Lock()

    def add_zone(self, block: Block, free_list: FreeList, size: int, label: str) -> FreeList:
        """Make a zone after the first `size` bytes of a block; return the list that the block returns to.

        Memory that the host cannot access gets no zone.
        """
        allocation = block.chunk.allocation
        if allocation.host is None:
            return free_list
        start = block.offset + size
        name = f"Buffer {label!r}" if label else "Buffer"
        text = f"<{name} of {size} bytes at {block.va:#x}>"
        zone = Zone(self, allocation.host[start : start + GUARD_BYTES], free_list, block.va, text)
        self.zones[block.va] = zone
        return zone

    def record(self, queue: OpenQueue, todo: Iterable[Command], values: Mapping[Param, Value]) -> None:
        """Remember the buffers that a submission names, to check their zones when it is complete."""
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
        self._checked[queue] = zones, suspects

    def not_sent(self, queue: OpenQueue) -> None:
        """Drop the submission checked last on this queue, which was not sent."""
        self._checked.pop(queue, None)

    def sent(self, queue: OpenQueue, point: Point) -> None:
        """Record that the submission checked last on this queue was sent; it ends at `point`."""
        zones, suspects = self._checked.pop(queue, ((), ()))
        for zone, name in suspects:
            zone.suspects.append((point, name))
        if zones:
            self._running.setdefault(queue, deque()).append((point, list(zones)))

    def check_finished(self) -> None:
        """Check the zones of completed submissions. Raises nothing."""
        if not self._running or not self._retiring.acquire(blocking=False):
            return  # another thread is checking
        try:
            done: dict[Zone, None] = {}
            for running in tuple(self._running.values()):
                while running and running[0][0].over():
                    done.update(dict.fromkeys(running.popleft()[1]))
        finally:
            self._retiring.release()
        for zone in done:
            zone.check()

    def check_all(self) -> None:
        """Check all zones. Raises nothing."""
        for zone in tuple(self.zones.values()):
            zone.check()

    def raise_overruns(self) -> None:
        """Raise `UsageError` if overruns were found that no error has reported yet."""
        texts: list[str] = []
        while self.damages:
            with suppress(IndexError):  # another thread reported it
                texts.append(self.damages.popleft())
        if texts:
            raise UsageError("\n".join(texts))

    def renew(self) -> None:
        """Restore all patterns after a fault: damage by lost work is not reported."""
        self._checked.clear()
        self._running.clear()
        for zone in tuple(self.zones.values()):
            zone.suspects.clear()
            zone.renew()

    def close(self) -> None:
        """Stop checking: the memory returns to the driver."""
        with self.lock:
            self.closed = True
        self._checked.clear()
        self._running.clear()
        self.zones.clear()


def _zones(buffers: Iterable[object]) -> list[Zone]:
    """Return the zones of buffers, or of their roots, also of other devices."""
    found: list[Zone] = []
    for buffer in buffers:
        if isinstance(buffer, Buffer):
            root = buffer.root or buffer
            # `isinstance` with a protocol takes twenty times as long.
            guards: Guards | None = getattr(root.device.watch, "guards", None)
            zone = guards.zones.get(root.va) if guards is not None else None
            found += [zone] if zone is not None else []
    return found
