"""Memory, clock and interrupts of one queue's engine, and the atomics of packets.

Each access names a device address and `what` accesses it, for reports. It is checked against the page tables,
and recorded if races or caches are checked. An access that the page tables refuse raises `MemoryFault`.

`OPERATIONS` are the atomics of ATOMIC_MEM and of SDMA ATOMIC, by the numbers that the L2 gives them
(docs/sources-amd.md, PM4).

`EngineMachine` is what the engines need of the machine.

Other accesses that hardware refuses, and those that no source settles, raise `QueueFault`, which stops the
queue.

Not here: the address space (`emulator.amd.kfd.gpu`), atomics of kernels (`emulator.amd.isa.memory_atomics`).
Next: `order`, what is recorded.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Final, Protocol

from drivers.amd.layouts.events import UNSIGNALLED
from drivers.amd.layouts.pm4 import Function
from emulator.amd.profiles import HDP_FLUSH
from emulator.amd.reports import packet_fault
from emulator.shared.vaspace import AccessKind
from emulator.shared.waits import SemaphoreStore

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from emulator.amd.engines.order import QueueClock, Sort
    from emulator.amd.engines.packets import PacketWait
    from emulator.amd.kfd.gpu import GpuSpace, KfdGpu
    from emulator.amd.kfd.queues import QueueObject
    from emulator.shared.surprises import Rejections
    from hcq.counters import Counters


class EngineMachine(Protocol):
    """The machine of the emulated GPUs; engines call it with its lock held."""

    rng: random.Random
    """Chooses every order that hardware leaves undefined."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock of the machine's state."""

    launches: Counter[str]
    """Name of a kernel -> completed dispatches."""

    @property
    def counters(self) -> Mapping[int, Counters]:
        """gpu_id -> the counters of the GPU's dispatches; a GPU that does not count has no entry."""

    rejections: Rejections
    """The quirks whose default value its GPUs refuse (`emulator.shared.surprises`)."""

    hdp_flushes: int
    """Flushes of the host data path so far; engines count them here."""

    def lint(self, message: str) -> None:
        """Report, once a message, something that works but is probably a mistake."""

    def event_of(self, gpu: KfdGpu, va: int) -> int | None:
        """Return the number of the event whose slot is at `va`; None outside the signal page."""

    def interrupt(self, gpu: KfdGpu, context: int, bits: int, *, written: bool = False) -> None:
        """Raise an interrupt that carries the low `bits` of an event's number.

        `written` says that the queue stored to the event's slot before.
        """

    def clock(self, gpu: KfdGpu) -> int:
        """Return a GPU's counter, in its ticks."""


_CHUNK = 4 << 20
"""Bytes that a copy or a fill moves at a time."""


class Bus:
    """Memory, clock and interrupts of one queue's engine."""

    def __init__(self, machine: EngineMachine, queue: QueueObject, order: QueueClock | None = None) -> None:
        """`order` records accesses and their order; None records nothing."""
        self.machine = machine
        self.queue = queue
        self.gpu = queue.gpu
        self.order = order
        self._slot = 0
        """Address of the event's slot that was written and is not followed by an interrupt yet; 0 for
        none."""

    @property
    def space(self) -> GpuSpace:
        """The address space of the queue's process on its GPU."""
        assert self.gpu.space is not None
        return self.gpu.space

    def read(self, va: int, size: int, what: str) -> bytes:
        """Read bytes."""
        return self.space.read(va, size, what)

    def write(self, va: int, data: bytes, what: str) -> None:
        """Write all the bytes, or none if any of them cannot be written."""
        self.space.write(va, data, what)

    def load(self, va: int, size: int, what: str) -> int:
        """Read an aligned number of `size` bytes."""
        self.aligned(va, size, what)
        return int.from_bytes(self.read(va, size, what), "little")

    def store(self, va: int, value: int, size: int, what: str, *, adds: bool = False) -> None:
        """Write an aligned number of `size` bytes (4 or 8) with one store.

        Higher bits of `value` are dropped. `adds` says that the new value depends on the old one. The store
        is recorded as a release, and checked if it goes to an event's slot.
        """
        self.aligned(va, size, what)
        host = self.space.host(va, size, AccessKind.WRITE, what)
        kind = ctypes.c_uint64 if size == 8 else ctypes.c_uint32
        word, new = kind.from_address(host), value & (1 << 8 * size) - 1
        if self.order is not None:
            self.order.on_store(SemaphoreStore(host, word.value, new, adds, 8 * size))
        word.value = new
        if self.order is not None and self.machine.event_of(self.gpu, va) is not None:
            self.settled()
            self._slot = va
            if self.load(va // 8 * 8, 8, what) == UNSIGNALLED:
                self.report_unverified(
                    f"{what} stores all ones to the event's slot at {va:#x}: that is unsignalled"
                )
        self.space.map.mark_initialised(va, size)

    @staticmethod
    def aligned(va: int, size: int, what: str) -> None:
        """Raise `QueueFault` unless an address is a multiple of `size` bytes."""
        if va % size:
            raise packet_fault(f"{what}: address {va:#x} is not aligned to {size} bytes")

    def words(self, va: int, count: int, what: str) -> list[int]:
        """Read `count` dwords."""
        return list(struct.unpack(f"<{count}I", self.read(va, 4 * count, what)))

    def store_words(self, va: int, words: list[int], what: str) -> None:
        """Write dwords one by one, the lowest address first."""
        self.on_access(va, 4 * len(words), write=True, what=what)
        for at, word in enumerate(words):
            self.store(va + 4 * at, word, 4, what)

    def copy(self, source: int, target: int, size: int, what: str) -> None:
        """Copy bytes in pieces from the lowest address up, as a copy engine does; an overlap is reported."""
        self.space.check_range(source, size, AccessKind.READ, what)
        self.space.check_range(target, size, AccessKind.WRITE, what)
        if source < target + size and target < source + size:
            self.machine.lint(f"{what}: source and destination overlap, the result is undefined")
        self.on_access(source, size, write=False, what=what)
        self.on_access(target, size, write=True, what=what)
        for at in range(0, size, _CHUNK):
            part = min(_CHUNK, size - at)
            states = self.space.states(source + at, part)
            self.space.write(target + at, self.read(source + at, part, what), what, states)

    def fill(self, target: int, pattern: bytes, count: int, what: str) -> None:
        """Write a pattern `count` times."""
        step = max(_CHUNK // len(pattern), 1)
        self.space.check_range(target, count * len(pattern), AccessKind.WRITE, what)
        self.on_access(target, count * len(pattern), write=True, what=what)
        if not any(pattern):
            self.space.zero(target, count * len(pattern), what)
            return
        for at in range(0, count, step):
            self.write(target + at * len(pattern), pattern * min(step, count - at), what)

    def on_access(self, va: int, size: int, *, write: bool, what: str) -> None:
        """Check and record a data access, if accesses are recorded."""
        if self.order is not None:
            self.space.check_range(va, size, AccessKind.WRITE if write else AccessKind.READ, what)
            self.order.on_access(va, size, write=write, what=what)

    def on_wait_all(self, sorts: Collection[Sort]) -> None:
        """Record that the current packet has waited for all earlier work of these kinds."""
        if self.order is not None:
            self.order.wait_all(sorts)

    def on_wait_end(self, wait: PacketWait) -> None:
        """Record the end of a wait."""
        if self.order is not None:
            host = self.space.host(wait.va, wait.bits // 8, AccessKind.READ, wait.name)
            self.order.on_wait_end(wait, host, self.load(wait.va, wait.bits // 8, wait.name))

    def maintain(self, what: frozenset[str], xcc: int | None = None) -> None:
        """Record maintenance of these caches by one XCC, or by all if None; names as in `coherence`."""
        if self.order is not None and self.order.watch.coherence is not None and what:
            self.order.watch.coherence.maintain(self.gpu, what, self.order.clock, xcc)

    def on_unflushed_release(self, what: str) -> None:
        """Check a release that does not write the L2 back (`Coherence.released`); `what` names the packet."""
        if self.order is not None and self.order.watch.coherence is not None:
            work = self.order.acting
            assert work is not None
            self.order.watch.coherence.released(self.gpu, work, what)

    def clock(self) -> int:
        """Return the GPU's counter, in its ticks."""
        return self.machine.clock(self.gpu)

    def interrupt(self, context: int, bits: int) -> None:
        """Raise an interrupt whose context has `bits` valid bits, and report one that names another event."""
        slot, self._slot = self._slot, 0
        number = self.machine.event_of(self.gpu, slot) if slot else None
        if number is not None and (number ^ context) & (1 << bits) - 1:
            self.report_unverified(
                f"an interrupt names event {context:#x} after a store to the slot of event {number:#x}: the "
                "kernel then looks through all slots, and sets every event whose slot was written"
            )
        self.machine.interrupt(self.gpu, context, bits, written=number is not None)

    def flush_host_path(self, request: int, done: int, wait: PacketWait, what: str) -> None:
        """Flush the host data path: write the payload to register `request`, and wait for register `done`.

        `request` and `done` are dword offsets. The flush completes at once, and `done` then holds the
        payload. Raises `QueueFault` for other registers, and for a wait that the payload does not end.
        """
        if (request, done) != HDP_FLUSH:
            raise packet_fault(
                f"{what} of registers {request:#x} and {done:#x}: user queues reach only GPU_HDP_FLUSH_REQ "
                f"and GPU_HDP_FLUSH_DONE, {HDP_FLUSH[0]:#x} and {HDP_FLUSH[1]:#x}"
            )
        if not wait.satisfied(wait.payload):
            raise packet_fault(
                f"{what} never ends: HDP_FLUSH_DONE holds {wait.payload:#x}, which was requested"
            )
        self.machine.hdp_flushes += 1

    def begin_wait(self, wait: PacketWait) -> PacketWait | None:
        """Return a wait for memory, after reports of a suspect compare; None if it is ALWAYS true."""
        if wait.function == Function.ALWAYS:
            self.report_unverified(f"{wait.name} with FUNCTION ALWAYS waits for nothing")
            return None
        if wait.unordered:
            self.report_unverified(f"{wait} under mask {wait.mask:#x}, which hides low bits")
        if wait.vain:
            self.waits_for_nothing(wait)
        return wait

    def waits_for_nothing(self, wait: PacketWait) -> None:
        """Report a wait that every value ends: a lint if no queue stored to its word yet, else unverified.

        A driver may wait for 0 before the first release of a timeline.
        """
        host = self.space.host(wait.va, wait.bits // 8, AccessKind.READ, wait.name)
        fresh = self.order is None or not self.order.watch.history.width(host)
        (self.lint if fresh else self.report_unverified)(f"{wait} waits for nothing: every value ends it")

    def settled(self) -> None:
        """Report an event's slot that was written without an interrupt afterwards."""
        slot, self._slot = self._slot, 0
        if slot:
            self.report_unverified(f"the event's slot at {slot:#x} was written, and no interrupt follows")

    def report_unverified(self, message: str) -> None:
        """Report behaviour that works here and may fail on hardware.

        Raises `QueueFault` if accesses are recorded (all checks on); else it is a lint.
        """
        if self.order is not None:
            raise packet_fault(message)
        self.lint(message)

    def lint(self, message: str) -> None:
        """Report, once a message, something that works but is probably a mistake."""
        self.machine.lint(f"{self.queue.name}: {message}")


_WIDE: Final = 32
"""Added to an operation's number for 64 bits."""
_NO_RETURN: Final = 64
"""Added for the form that returns nothing."""
COMPARE_SWAP: Final = 8
"""The number of compare-and-swap, the only operation that uses the expected value."""


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


OPERATIONS: Final[Mapping[int, Callable[[int, int, int, int], int]]] = {
    7: lambda _old, new, _expected, _bits: new,
    COMPARE_SWAP: lambda old, new, expected, _bits: new if old == expected else old,
    15: lambda old, new, _expected, _bits: old + new,
    16: lambda old, new, _expected, _bits: old - new,
    17: lambda old, new, _expected, bits: min(old, new, key=lambda v: _signed(v, bits)),
    18: lambda old, new, _expected, _bits: min(old, new),
    19: lambda old, new, _expected, bits: max(old, new, key=lambda v: _signed(v, bits)),
    20: lambda old, new, _expected, _bits: max(old, new),
    21: lambda old, new, _expected, _bits: old & new,
    22: lambda old, new, _expected, _bits: old | new,
    23: lambda old, new, _expected, _bits: old ^ new,
    24: lambda old, new, _expected, _bits: 0 if old >= new else old + 1,
    25: lambda old, new, _expected, _bits: new if old == 0 or old > new else old - 1,
}
"""Number -> new value, from the old value, the operand, the expected value and the width in bits.

Values are unsigned; the caller drops bits above the width.
"""


def width(number: int, what: str) -> int:
    """Return the bytes that an operation works on: 4 or 8. Raises `QueueFault` for an unknown number."""
    if number & ~(_WIDE | _NO_RETURN) not in OPERATIONS:
        raise packet_fault(f"{what}: there is no atomic operation {number}")
    return 8 if number & _WIDE else 4


def run_atomic(  # noqa: PLR0917 - a packet has that many parts
    bus: Bus, number: int, va: int, operand: int, expected: int, what: str
) -> int:
    """Run an atomic operation on the word at `va`, and return the old value.

    `operand` and `expected` are cut to the operation's width. Raises `QueueFault` for an unknown operation or
    an address that is not aligned to that width.
    """
    size = width(number, what)
    mask = (1 << 8 * size) - 1
    old = bus.load(va, size, what)
    act = OPERATIONS[number & ~(_WIDE | _NO_RETURN)]
    bus.store(va, act(old, operand & mask, expected & mask, 8 * size), size, what, adds=True)
    return old
