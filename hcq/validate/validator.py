"""The validation layer: sees every submission before it is encoded, refuses what could go wrong one day.

Opt-in (`HCQ_VALIDATE=1`, `hcq.open(..., validate=True)`). It checks that buffers and programs are open, that
copies and launches stay inside their buffers and the device's limits, that kernels which conflict have a
Barrier between them (`hcq.validate.hazards`), and that queues which share memory are ordered by points. A
wait of the host raises when nothing can meet it any more (`hcq.validate.waits`).

With a seed it also reorders the kernels between two Barriers, so that tests expose missing barriers: they may
overlap and finish in any order on real hardware.

Next: `watch`, the protocol between devices and this layer.
"""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from hcq.commands import Exec, operands
from hcq.errors import UsageError
from hcq.process import in_children
from hcq.validate.guards import GUARD_BYTES, Guards
from hcq.validate.hazards import Access, Draft, Ledger, accesses, number
from hcq.validate.waits import HostWait, RoomWait, WaitGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.commands import Command
    from hcq.memory import Buffer
    from hcq.params import Param, Value
    from hcq.signal import Point, Signal
    from hcq.validate.watch import Line

FREED_KEPT = 256


class _Shared:
    """What the watches of all devices have in common: hazards and waits cross devices."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.ledger = Ledger()
        self.waits = WaitGraph()


_SHARED = _Shared()


def forget() -> None:
    """Start anew in a forked child: who holds the lock may be a thread that is not here."""
    _SHARED.__init__()  # type: ignore[misc]  # the same object again, empty


class Validator:
    """The validation layer of one device."""

    def __init__(self, *, check: bool, seed: int) -> None:
        in_children(forget)
        self.check = check
        self._random = random.Random(seed) if seed else None  # noqa: S311 - to be repeatable, not secret
        self._drafts: dict[Line, Draft] = {}
        self._live: dict[weakref.ref[Buffer], tuple[int, int, str]] = {}
        """(address, size, label) by buffer: an address may be reused before its last entry is dropped."""
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=FREED_KEPT)
        self.guards = Guards()
        """The guard zones behind the device's buffers."""
        self.guard_bytes = GUARD_BYTES if check else 0
        """Bytes that a buffer's block has beyond the requested size."""

    def submission(
        self,
        queue: Line,
        label: str,
        todo: list[Command],
        values: Mapping[Param, Value] | None,
    ) -> list[Command]:
        """Refuse what is wrong with a submission; return its commands, reordered where they may be."""
        if self.check:
            self.guards.retire()
            self.tell()
            values = values or {}
            with _SHARED.lock:
                for command in todo:
                    self._lifetimes(queue, command)
                    self._limits(queue, command, values)
                self._drafts[queue] = _SHARED.ledger.draft(queue, label, todo, values)
            self.guards.judged(queue, todo, values)
        return self.reorder(todo)

    def sent(self, queue: Line, point: Point, words: int) -> None:
        """Enter the submission that was checked last on this queue: so many words, which end at `point`."""
        if not self.check:
            return
        self.guards.sent(queue, point)
        with _SHARED.lock:
            draft = self._drafts.pop(queue, None) or _SHARED.ledger.draft(queue, "", [], {})
            _SHARED.ledger.commit(draft, point.signal, point.value - point.signal.base)
            _SHARED.waits.commit(draft, point, words)
            _SHARED.waits.unblock()  # it may have waited for room

    def ended(self, queues: Sequence[Line]) -> None:
        """Drop what was in flight in the rings of a device: it recovered, or is closed."""
        with _SHARED.lock:
            for queue in queues:
                self._drafts.pop(queue, None)
            self.guards.recovered()
            _SHARED.ledger.recovered(queues)
            _SHARED.waits.recovered(queues)

    def reorder(self, commands: list[Command]) -> list[Command]:
        """Return the commands with every run of neighbours that may overlap in another order."""
        if self._random is None:
            return commands
        out: list[Command] = []
        run: list[Command] = []
        for command in commands:
            if command.overlaps:
                run.append(command)
                continue
            self._random.shuffle(run)
            out += [*run, command]
            run = []
        self._random.shuffle(run)
        return out + run

    def _lifetimes(self, queue: Line, command: Command) -> None:
        for buffer in operands(command):
            buffer.live()
            if not buffer.visible_to(queue.device):
                raise UsageError(f"{queue.label} was given {buffer!r}, {buffer.unseen_by(queue.device)}")
        if isinstance(command, Exec) and command.program.closed:
            raise UsageError(f"{command.program!r} was launched after it was closed")

    def _limits(self, queue: Line, command: Command, values: Mapping[Param, Value]) -> None:
        if isinstance(command, Exec):
            _check_launch(queue, command, [number(word, values) for word in command.groups])
        touched = list(accesses(command, values))  # refuses what lies outside its buffer
        for i, access in enumerate(touched):
            _check_aligned(queue, access)
            if command.disjoint and any(access.overlaps(other) for other in touched[:i]):
                begins = f"bytes {touched[0].begin} and {access.begin} on overlap"
                raise UsageError(f"{access.what} within {access.root!r}: {begins}")

    def waiting(self, signal: Signal, value: int) -> None:
        """Note that this thread waits for a signal's slot; raise `UsageError` when nothing can raise it."""
        if not self.check:
            return
        wait = HostWait(signal, value)
        self._block(wait, f"the host waits for {wait}, and nothing can raise it")

    def stalled(self, queue: Line, words: int) -> None:
        """Note that this thread waits for room in a ring; raise `UsageError` when none can become free."""
        if not self.check:
            return
        self._block(RoomWait(queue, words), f"{queue.label} has no room for a submission, and none can come")

    def _block(self, wait: HostWait | RoomWait, what: str) -> None:
        """Note a wait of this thread; raise `UsageError` with the wait graph when nothing can end it."""
        with _SHARED.lock:
            graph = _SHARED.waits
            graph.block(wait)
            outcome = graph.simulate()
            if not graph.ends(outcome, wait) and not graph.may_progress(outcome):
                raise UsageError(
                    f"{what}: all that could end this wait is waiting itself{_lines(graph.text(outcome))}"
                )

    def woke(self) -> None:
        """Note that this thread waits no more."""
        if self.check:
            _SHARED.waits.unblock()

    def saw(self, signal: Signal, value: int) -> None:
        """Order what is submitted from now on after what raised `signal` to `value`: the host saw it."""
        if self.check:
            with _SHARED.lock:
                _SHARED.ledger.host_saw(signal, value)
            self.guards.retire()

    def look(self) -> None:
        """Raise `UsageError` when a buffer of the device was overrun."""
        self.guards.look()
        self.tell()

    def tell(self) -> None:
        """Raise `UsageError` with the overruns that were found and not reported yet."""
        self.guards.tell()

    def wait_graph(self) -> list[str]:
        """Return, as text, which queues cannot continue, and why."""
        with _SHARED.lock:
            return _SHARED.waits.text(_SHARED.waits.simulate())

    def refused(self, queue: Line) -> None:
        """Drop the submission that was checked last on this queue: it was not sent."""
        self.guards.refused(queue)
        with _SHARED.lock:
            self._drafts.pop(queue, None)
            _SHARED.waits.unblock()

    def allocated(self, buffer: Buffer) -> None:
        """Record a buffer, and where it is dropped, for fault reports."""
        known = buffer.va, buffer.size, buffer.label

        finalizing = sys.is_finalizing  # modules are empty when buffers go with the interpreter

        def dropped(ref: weakref.ref[Buffer]) -> None:
            if finalizing():
                return
            va, size, label = known
            self._live.pop(ref, None)
            self._freed.append((va, size, f"{label!r}, dropped at {_user_line()}"))

        self._live[weakref.ref(buffer, dropped)] = known

    def nearest(self, va: int) -> str:
        """Return which buffer, alive or freed, is nearest to an address, as text; alive ones first."""
        best: tuple[int, int, str] | None = None
        for rank, (start, size, text) in enumerate(self._ranges()):
            away = max(start - va, va - (start + size) + 1, 0)
            where = f"{away} bytes {'before' if va < start else 'after the end of'}" if away else "inside"
            line = f"{where} {start:#x} to {start + size:#x}, {size} bytes, {text}"
            if best is None or (away, rank) < best[:2]:
                best = (away, rank, line)
        return best[2] if best else ""

    def _ranges(self) -> list[tuple[int, int, str]]:
        opened: list[tuple[int, int, str]] = []
        closed: list[tuple[int, int, str]] = []
        for ref, (va, size, label) in tuple(self._live.items()):
            buffer = ref()
            if buffer is not None and buffer.closed:
                closed.append((va, size, f"{label!r}, closed at {buffer.where}"))
            else:
                opened.append((va, size, repr(label)))
        return opened + closed + list(reversed(self._freed))


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"\n  {line}" for line in lines)


def _user_line() -> str:
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hcq."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _check_aligned(queue: Line, access: Access) -> None:
    """Refuse memory whose address, or size, is no multiple of its command's alignment."""
    begin, align = access.root.va + access.begin, access.align
    if begin % align or (access.end - access.begin) % align:
        raise UsageError(
            f"{access.what} on {queue.label}: {access.end - access.begin} bytes at {begin:#x} of "
            f"{access.root!r}, wanted multiples of {align}"
        )


def _check_launch(queue: Line, command: Exec, groups: list[int]) -> None:
    """Refuse a launch that the kernel, or the device, is not made for."""
    image, limits = command.program.image, queue.device.info.limits
    threads = command.threads[0] * command.threads[1] * command.threads[2]
    most = min(image.max_threads, limits.get("max_threads", image.max_threads))
    what = f"kernel {image.name} on {queue.label}"
    if min(command.threads) < 1 or threads > most:
        raise UsageError(f"{what}: {command.threads} is {threads} threads a group, wanted 1 to {most}")
    for axis, count in zip("xyz", groups, strict=True):
        highest = limits.get(f"max_groups_{axis}", (1 << 32) - 1)
        if not 1 <= count <= highest:
            raise UsageError(f"{what}: {count} groups along {axis}, wanted 1 to {highest}")
    shared = limits.get("max_shared_bytes")
    if shared is not None and image.shared_bytes > shared:
        raise UsageError(f"{what}: {image.shared_bytes} bytes of shared memory, the device has {shared}")
