"""The validation layer: it checks every submission before encoding, and raises `UsageError` for a wrong one.

It is off by default (`HCQ_VALIDATE=1`, `hcq.open(..., validate=True)`). It checks that buffers and programs
are open, that copies and launches stay inside their buffers and the device's limits, that conflicting kernels
have a Barrier between them (`accesses`), and that queues which share memory are ordered by points
(`hazards`). A wait of the host raises when nothing can end it any more (`waits`).

With a seed it also shuffles the kernels between two Barriers. Hardware may run them in any order, so this
makes tests expose missing barriers.

Not here: vector clocks (`hazards`), the simulation of waits (`waits`), guard zones (`guards`). Next:
`hcq.queue` and `hcq.device`, the callers.
"""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence

from hcq.commands import Command, Exec, operands
from hcq.errors import FaultReport, OutOfMemoryError, UsageError, user_line
from hcq.heap import Block, FreeList, Pool
from hcq.memory import Buffer, Owner
from hcq.params import Param, Value
from hcq.process import OpenQueue, in_children
from hcq.signal import Point, Signal
from hcq.validate.accesses import Access, accesses, number
from hcq.validate.guards import GUARD_BYTES, Guards
from hcq.validate.hazards import Draft, Ledger
from hcq.validate.waits import HostWait, RoomWait, WaitGraph

FREED_KEPT = 256
"""Freed buffers that a device remembers for fault reports."""


class _Shared:
    """The state that the validators of all devices share, as hazards and waits cross devices."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.ledger = Ledger()
        self.waits = WaitGraph()


_SHARED = _Shared()


def forget() -> None:
    """Reset the shared state in a forked child, where the thread that holds the lock may not exist."""
    _SHARED.__init__()  # type: ignore[misc]  # reset in place: others refer to it


class Validator:
    """The validation layer of one device."""

    def __init__(self, *, check: bool, seed: int) -> None:
        in_children(forget)
        self.check = check
        self._random = random.Random(seed) if seed else None  # noqa: S311 - must be repeatable
        self._drafts: dict[OpenQueue, Draft] = {}
        self._live: dict[weakref.ref[Buffer], tuple[int, int, str]] = {}
        """(address, bytes, label) by buffer; an address may be reused before its entry is removed."""
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=FREED_KEPT)
        """(address, bytes, label and line) of freed buffers, the newest last."""
        self.guards = Guards()
        """The guard zones after the device's buffers."""
        self.guard_bytes = GUARD_BYTES if check else 0
        """Bytes of the guard zone of a buffer."""

    def check_submission(
        self,
        queue: OpenQueue,
        label: str,
        todo: list[Command],
        values: Mapping[Param, Value] | None,
    ) -> list[Command]:
        """Return the commands of a submission, unordered kernels shuffled if there is a seed.

        Raises `UsageError` for a closed or inaccessible object, a range outside its buffer, a launch outside
        the limits, a hazard, and an overrun found since the last report.
        """
        if self.check:
            self.guards.check_finished()
            self.raise_overruns()
            values = values or {}
            with _SHARED.lock:
                line = user_line()
                for command in todo:
                    self._lifetimes(queue, command)
                    self._limits(queue, command, values)
                    if isinstance(command, Exec):
                        command.args.launched = line
                self._drafts[queue] = _SHARED.ledger.draft(queue, label, todo, values)
            self.guards.record(queue, todo, values)
        return self.reorder(todo)

    def sent(self, queue: OpenQueue, point: Point, words: Sequence[int] = (), bits: int = 32) -> None:
        """Record that the submission checked last on this queue was sent, and lies last in its ring.

        `words` are those that the ring got, of `bits` bits each; they are valid during the call.
        """
        del words, bits
        if not self.check:
            return
        self.guards.sent(queue, point)
        with _SHARED.lock:
            draft = self._drafts.pop(queue, None) or _SHARED.ledger.draft(queue, "", [], {})
            _SHARED.ledger.commit(draft, point.signal, point.value - point.signal.base)
            _SHARED.waits.commit(draft, point)
            _SHARED.waits.unblock()  # it may have waited for ring space

    def drop_in_flight(self, queues: Sequence[OpenQueue]) -> None:
        """Drop the work in flight in these queues, whose device recovered or is closed."""
        with _SHARED.lock:
            for queue in queues:
                self._drafts.pop(queue, None)
            self.guards.renew()
            _SHARED.ledger.drop_in_flight(queues)
            _SHARED.waits.drop_in_flight(queues)

    def reorder(self, commands: list[Command]) -> list[Command]:
        """Return the commands with each sequence of kernels without a barrier between them shuffled."""
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

    def _lifetimes(self, queue: OpenQueue, command: Command) -> None:
        for buffer in operands(command):
            buffer.live()
            if not buffer.visible_to(queue.device):
                raise UsageError(f"{queue.label} was given {buffer!r}, {buffer.unseen_by(queue.device)}")
        if isinstance(command, Exec) and command.program.closed:
            raise UsageError(f"{command.program!r} was launched after it was closed")

    def _limits(self, queue: OpenQueue, command: Command, values: Mapping[Param, Value]) -> None:
        if isinstance(command, Exec):
            _check_launch(queue, command, [number(word, values) for word in command.groups])
        touched = list(accesses(command, values))  # raises for a range outside its buffer
        for i, access in enumerate(touched):
            _check_aligned(queue, access)
            if command.disjoint and any(access.overlaps(other) for other in touched[:i]):
                begins = f"bytes {touched[0].begin} and {access.begin} on overlap"
                raise UsageError(f"{access.what} within {access.root!r}: {begins}")

    def check_wait(self, signal: Signal, value: int) -> None:
        """Record that this thread waits for a slot >= `value`. Raises `UsageError` for a deadlock."""
        if not self.check:
            return
        wait = HostWait(signal, value)
        self._block(wait, f"the host waits for {wait}, and nothing can raise it")

    def check_room(self, queue: OpenQueue, until: int) -> None:
        """Record that this thread waits until the queue has read `until` units of its ring (`Ring.taken`).

        Raises `UsageError` for a deadlock.
        """
        if not self.check:
            return
        self._block(RoomWait(queue, until), f"{queue.label} has no room for a submission, and none can come")

    def _block(self, wait: HostWait | RoomWait, what: str) -> None:
        """Record a wait of this thread. Raises `UsageError` with the wait graph when nothing can end it."""
        with _SHARED.lock:
            graph = _SHARED.waits
            graph.block(wait)
            outcome = graph.simulate()
            if not graph.ends(outcome, wait) and not graph.may_progress(outcome):
                raise UsageError(
                    f"{what}: all that could end this wait is waiting itself{_lines(graph.text(outcome))}"
                )

    def wait_ended(self) -> None:
        """Record that this thread has stopped waiting."""
        if self.check:
            _SHARED.waits.unblock()

    def host_observed(self, signal: Signal, value: int) -> None:
        """Order later submissions after the work that raised the slot of `signal` to `value`."""
        if self.check:
            with _SHARED.lock:
                _SHARED.ledger.host_observed(signal, value)
            self.guards.check_finished()

    def check_end(self, buffer: Buffer, at: Point) -> None:
        """Raise `UsageError` for work that uses a buffer and is not ordered before the point that ends it."""
        if self.check:
            with _SHARED.lock:
                value = at.value - at.signal.base
                _SHARED.ledger.check_end(buffer.root or buffer, at.signal, value)

    def check_overruns(self) -> None:
        """Check all guard zones of the device. Raises `UsageError` if a buffer was overrun."""
        self.guards.check_all()
        self.raise_overruns()

    def raise_overruns(self) -> None:
        """Raise `UsageError` if overruns were found that no error has reported yet."""
        self.guards.raise_overruns()

    def wait_graph(self) -> list[str]:
        """Return one line of text for each queue that cannot continue, with the reason."""
        with _SHARED.lock:
            return _SHARED.waits.text(_SHARED.waits.simulate())

    def not_sent(self, queue: OpenQueue) -> None:
        """Drop the submission checked last on this queue, which was not sent."""
        self.guards.not_sent(queue)
        with _SHARED.lock:
            self._drafts.pop(queue, None)
            _SHARED.waits.unblock()

    def viewed(self, buffer: Buffer) -> None:
        """Do nothing: the contents of buffers are not checked."""

    def host_sets(self, signal: Signal, value: int) -> None:
        """Do nothing: the wait graph reads the signals themselves."""

    def faulted(self, device: Owner, report: FaultReport) -> None:
        """Do nothing: faults are checked by the device."""

    def take(self, pool: Pool, size: int, label: str) -> tuple[Block, FreeList]:
        """Take the block of a new buffer, with a guard zone when checking and when memory suffices.

        Raises as `Pool.take`.
        """
        guard = self.guard_bytes if isinstance(size, int) and size > 0 else 0
        try:
            block, free_list = pool.take(size + guard if guard else size)
        except OutOfMemoryError:
            if not guard:
                raise
            guard = 0  # a program that fits in memory without validation must fit with it
            block, free_list = pool.take(size)
        return block, self.guards.add_zone(block, free_list, size, label) if guard else free_list

    def allocated(self, buffer: Buffer) -> None:
        """Record a buffer for fault reports, and the line that drops it."""
        known = buffer.va, buffer.size, buffer.label

        finalizing = sys.is_finalizing  # a local: modules are empty when the interpreter ends

        def dropped(ref: weakref.ref[Buffer]) -> None:
            if finalizing():
                return
            va, size, label = known
            self._live.pop(ref, None)
            self._freed.append((va, size, f"{label!r}, dropped at {user_line()}"))

        self._live[weakref.ref(buffer, dropped)] = known

    def nearest(self, va: int) -> str:
        """Return a text that names the buffer nearest to `va`; an open one before a freed one."""
        best: tuple[int, int, str] | None = None
        for rank, (start, size, text) in enumerate(self._ranges()):
            distance = max(start - va, va - (start + size) + 1, 0)
            side = "before" if va < start else "after the end of"
            where = f"{distance} bytes {side}" if distance else "inside"
            line = f"{where} {start:#x} to {start + size:#x}, {size} bytes, {text}"
            if best is None or (distance, rank) < best[:2]:
                best = (distance, rank, line)
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


def _check_aligned(queue: OpenQueue, access: Access) -> None:
    """Raise `UsageError` if the address or size of an access is no multiple of its alignment."""
    begin, align = access.root.va + access.begin, access.align
    if begin % align or (access.end - access.begin) % align:
        raise UsageError(
            f"{access.what} on {queue.label}: {access.end - access.begin} bytes at {begin:#x} of "
            f"{access.root!r}, wanted multiples of {align}"
        )


def _check_launch(queue: OpenQueue, command: Exec, groups: list[int]) -> None:
    """Raise `UsageError` for a launch outside the limits of the kernel or the device."""
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
