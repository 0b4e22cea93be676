"""The execution of one channel: doorbell, ring, push buffers, subchannels, work in flight.

Engine work starts in order. It finishes in an order that the machine's seed determines, unless a method waits
for it. Source: docs/facts/nv.md 3.1, 3.2.

What the GPU refuses raises `ChannelError`, which stops the channel.

Not here: the methods (`host`, `compute`, `copy`), the order of queues (`emulator.shared.scheduler`). Next:
`pushbuffer`, the decoder.
"""

# ruff: noqa: D102 - contracts of methods without a docstring are in the Protocols

from __future__ import annotations

import itertools
import random
import struct
import threading
import zlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import (
    HOST_METHODS_END,
    GpfifoControl,
    GpfifoOpcode,
    HopperAControlGPFifo,
)
from drivers.nv.layouts.host import HostMethod, SetObject
from emulator.nv.engines.combining import GpfifoRing
from emulator.nv.engines.compute import Compute
from emulator.nv.engines.copy import CopyEngine
from emulator.nv.engines.faults import Faults
from emulator.nv.engines.host import HostEngine
from emulator.nv.engines.inflight import InFlight
from emulator.nv.engines.pushbuffer import RingEntries, RingEntry, decode, decode_entry
from emulator.nv.reports import ChannelError, FindingKind, host_error
from emulator.shared.caches import UnflushedStores
from emulator.shared.combining import WriteCombining
from emulator.shared.races import QueueWork
from emulator.shared.scheduler import EngineOperation, StepOutcome
from emulator.shared.vaspace import AccessKind
from emulator.shared.waits import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emulator.nv.engines.engine import Backed, Setup, SubchannelEngine
    from emulator.nv.engines.pushbuffer import MethodCall
    from emulator.nv.engines.semaphore import Acquire
    from emulator.nv.machine.gpu import EmulatedGpu
    from emulator.nv.machine.machine import NvMachine
    from emulator.shared.vaspace import VaSpace
    from emulator.shared.waits import SemaphoreStore, VectorClock
    from emulator.simt.slices import SlicedLaunch

_FINISH_CHANCE = 0.125
"""The probability that a step advances work in flight although the channel could continue.

It is small, so that work overlaps.
"""
_REPORTS_GET = 0.75
"""Share of channels whose user area reports GPGet, on GPUs that may report it."""
_channels = itertools.count(1)
_GP_PUT = HopperAControlGPFifo.offset_of("GPPut")
_GP_GET = HopperAControlGPFifo.offset_of("GPGet")
_SET_OBJECT = int(HostMethod.SET_OBJECT)


@dataclass(slots=True)
class _Entry:
    """A ring entry as it was at the doorbell that covered it."""

    slot: int
    raw: int
    digest: int | None
    """Checksum of its segment; None if the segment is not mapped."""
    known: VectorClock
    """The clock of all work that the host may have observed as done at the doorbell."""


@dataclass(slots=True, eq=False)
class ChannelRun:
    """The execution state of a channel. The scheduler calls `step` with the machine's lock held."""

    machine: NvMachine
    gpu: EmulatedGpu
    name: str
    setup: Setup
    objects: set[int] = field(default_factory=set)
    """Classes of the engine objects under the channel."""
    dead: ChannelError | None = None
    """The error that stopped it, or None."""
    waiting: Acquire | None = None
    """The semaphore that it waits for, or None."""
    draining: tuple[str | None, Callable[[], None]] | None = None
    """The engine whose work must be done first (None: all engines), and the action that follows."""
    yielded: bool = False
    """Whether the last step requested that another channel run next."""
    inflight: InFlight = field(default_factory=InFlight)
    calls: deque[MethodCall] = field(default_factory=deque)
    """Methods of the fetched segment that have not run."""
    entries: deque[_Entry] = field(default_factory=deque)
    """Ring entries that are submitted and not fetched."""
    bound: dict[int, SubchannelEngine] = field(default_factory=dict)
    """Subchannel -> the engine object bound to it."""
    _at: str | MethodCall = "nothing run yet"
    """A description of its position in the ring, or the method that it runs."""
    acting: EngineOperation | None = None
    """The engine operation that is running, or None."""
    known: VectorClock = field(default_factory=dict)
    """The channel's vector clock before the current method."""
    faults: Faults = field(default_factory=Faults)
    """The fault state that a debugger object reads."""
    unflushed: UnflushedStores = field(default_factory=UnflushedStores)
    """Stores of its engines that may not be visible yet; recorded if cache maintenance is checked."""
    _numbers: Counter[str] = field(default_factory=Counter)
    """Engine -> the pieces of work that started on it."""
    _entries_lock: threading.Lock = field(default_factory=threading.Lock)
    number: int = field(default_factory=_channels.__next__)
    """A number that is unique among all channels of all machines, freed ones included."""
    _put: int = 0
    """GPPut at the last doorbell."""
    _slot: int = 0
    """The slot after the entry that was fetched last."""
    _base: int = 0
    """The upper bits of segment addresses, which a control entry sets."""
    _covered: dict[int, int] = field(default_factory=dict)
    """Slot -> its contents when a doorbell last covered it."""
    reports_get: bool = field(init=False)
    """Whether the user area reports GPGet. Hardware may leave GPGet at 0 (docs/sources.md)."""
    combining: WriteCombining = field(init=False)
    """The check of the host's fences."""
    ring: RingEntries = field(init=False, repr=False)
    _put_view: memoryview = field(init=False, repr=False)
    _get_view: memoryview = field(init=False, repr=False)
    host: HostEngine = field(init=False)
    rng: random.Random = field(init=False)
    """A random generator for this channel alone: the number of steps of other channels is not repeatable."""

    def __post_init__(self) -> None:
        self.host = HostEngine(self)
        self.ring = RingEntries(self.setup.space, self.setup.ring_va, self.setup.entries)
        memory, offset = self.setup.userd
        view = memory.backing.view
        self._put_view, self._get_view = (
            view[offset + at : offset + at + 4].cast("I") for at in (_GP_PUT, _GP_GET)
        )
        self.combining = WriteCombining(GpfifoRing(self))
        self.rng = random.Random(self.machine.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        chosen = self.machine.leaves_get.random() < _REPORTS_GET
        self.reports_get = chosen and self.gpu.profile.generation.reports_get

    def hold(self) -> None:
        """Hold references to the pages that the hardware writes, even if their objects are freed."""
        for memory in self._memories():
            memory.backing.take()

    def release(self) -> None:
        """Release the references of `hold`."""
        for memory in self._memories():
            memory.backing.drop()

    def _memories(self) -> list[Backed]:
        return [memory for memory in (self.setup.userd[0], self.setup.notifier) if memory is not None]

    @property
    def space(self) -> VaSpace:
        """The address space."""
        return self.setup.space

    @property
    def at(self) -> str:
        at = self._at
        if isinstance(at, str):
            return at
        return (
            f"ring entry {(self._slot - 1) % self.setup.entries}, word {at.word}, subchannel "
            f"{at.subchannel}, method {at.address:#x} = {at.value:#x}"
        )

    @property
    def busy(self) -> bool:
        """Whether work is left to run."""
        return self.dead is None and bool(
            self.calls or self.entries or self.waiting or self.inflight or self.draining
        )

    @property
    def stuck(self) -> bool:
        return not self.inflight and self.waiting is not None and not self._can_advance()

    @property
    def computing(self) -> bool:
        return self.inflight.computing and not self._can_advance()

    def doorbell(self) -> None:
        """Record the entries up to GPPut at a doorbell; nothing is executed."""
        put = self.host_put
        if put >= self.setup.entries:
            self.machine.stop(self, host_error(f"GPPut is {put}, the ring has {self.setup.entries} entries"))
            return
        try:
            self._check_put(put)
            self._check_fences(put)
            entries = []
            while self._put != put:
                raw = self.ring.read(self._put)
                seen = self.machine.races.releases.host() if self.machine.races else {}
                entry = _Entry(self._put, raw, self._digest(raw), seen)
                entries.append(entry)
                self._covered[self._put] = raw
                self._put = (self._put + 1) % self.setup.entries
            with self._entries_lock:
                self.entries.extend(entries)
        except ChannelError as error:
            self.machine.stop(self, error)

    def _check_put(self, put: int) -> None:
        """Refuse a GPPut that is too high or too low for the entries that the driver has written.

        A full ring leaves one slot free, so the driver must not write the slot before the last GPPut.
        """
        at, last, newest = self._put, (self._put - 1) % self.setup.entries, (put - 1) % self.setup.entries
        wrong = ""
        if last in self._covered and self.ring.read(last) != self._covered[last]:
            wrong = (
                f"ring entry {last} was written after GPPut {at} had covered it and its old contents were "
                f"submitted: GPPut {at} was too high"
            )
        elif put == at and self.ring.read(at) != self.stale(at):
            wrong = f"the doorbell submits nothing, and ring entry {at} is written: GPPut {put} is too low"
        elif put != at and newest not in self._covered and not self.ring.read(newest):
            wrong = (
                f"GPPut {put} covers ring entry {newest}, which was never written: GPPut is too high for the "
                f"{self.setup.entries} entries of gpFifoEntries"
            )
        if wrong:
            raise host_error(f"{wrong}. GPPut is the number of the slot after the last entry")

    def _check_fences(self, put: int) -> None:
        missing = self.combining.check_doorbell(self._put, put)
        if missing is None:
            return
        if self.machine.strict or not missing.hazard:
            raise ChannelError(RcCode.PBDMA_ERROR, FindingKind.COHERENCE, f"{self.name}: {missing.text}")
        self.machine.lint(
            f"{self.name}: ring entries in write-combined memory, fenced after the store of GPPut only, "
            "not also before it: a GPU that reads GPPut before the doorbell may fetch old contents"
        )

    @property
    def host_put(self) -> int:
        return self._put_view[0]

    def slot(self, number: int) -> int:
        """Return the contents of a slot of the ring. Raises `ChannelError` if the ring is not mapped."""
        return self.ring.read(number)

    @property
    def put(self) -> int:
        """GPPut at the last doorbell."""
        return self._put

    def stale(self, slot: int) -> int:
        return self._covered.get(slot, 0)

    def pending(self) -> tuple[_Entry, ...]:
        """Return the entries that are not fetched yet; a doorbell may add more at any time."""
        with self._entries_lock:
            return tuple(self.entries)

    def _digest(self, raw: int) -> int | None:
        entry = decode_entry(raw)
        found = self.space.map.find(entry.address, max(entry.size, 1))
        return None if found is None else zlib.crc32(self.space.map.read(entry.address, entry.size))

    def step(self) -> StepOutcome:
        """Do the next thing; return the outcome.

        It runs one operation in flight, fetches one entry, or runs methods up to the first that does more
        than set a register.
        """
        if self.dead is not None:
            return StepOutcome.IDLE
        self.yielded = False
        can = self._can_advance()
        if self.inflight:
            ready = self.inflight.ready()
            if ready and (not can or self.rng.random() < _FINISH_CHANCE):
                return self._advance(ready.choose(self.rng))
        if not can:
            return StepOutcome.BLOCKED if self.waiting or self.inflight else StepOutcome.IDLE
        if self.draining is not None:
            (engine, then), self.draining = self.draining, None
            own = {(self.number, one): count for one, count in self._numbers.items() if engine in (None, one)}
            join(self.known, own)
            then()
        elif self.waiting is not None:
            self._acquired(self.waiting)
            self.waiting = None
        elif self.calls:
            # Other channels do not see registers, so the scheduler need not switch between two writes.
            while not self._run_call(self.calls.popleft()) and self.calls:
                pass
        else:
            self._fetch(self.entries.popleft())
        return StepOutcome.PROGRESS

    def _can_advance(self) -> bool:
        """Return whether the channel can continue in its ring."""
        if self.draining is not None:
            return not self.inflight.any(self.draining[0])
        if self.waiting is not None:
            value = self.space.word(self.waiting.va, self.waiting.bits, "SEM_EXECUTE acquire")
            return self.waiting.satisfied(value)
        return bool(self.calls or self.entries)

    def _advance(self, operation: EngineOperation) -> StepOutcome:
        at, self._at, self.acting = self._at, operation.at, operation
        over = operation.advance()
        if over:
            self._check_race(operation.work)
        self._at, self.acting = at, None
        self.inflight.ran(operation, over=over)
        return StepOutcome.PROGRESS if over else StepOutcome.SLICE

    def released(self, written: SemaphoreStore) -> None:
        self.machine.history.record(written)
        if self.machine.races is not None:
            known = self.known if self.acting is None else self.acting.work.end_clock()
            self.machine.races.releases.record(self.number, written, known)

    def _acquired(self, wait: Acquire) -> None:
        """Join the clock of the release that ended a wait; advise if it wrote 32 of 64 awaited bits."""
        what = "SEM_EXECUTE acquire"
        at = self.space.host(wait.va, wait.bits // 8, AccessKind.READ, what)
        if wait.bits == 64 and self.machine.history.width(at) == 32:
            # Correct if the driver uses another semaphore before 2^32, as 32-bit timelines do.
            self.machine.lint(
                f"the semaphore at {wait.va:#x} is waited for with 64 bits and was released with 32 by "
                f"{self.machine.history.writer(at)}: the release is cut once the value passes 2^32"
            )
        if self.machine.races is None:
            return
        value = self.space.word(wait.va, wait.bits, what)
        join(self.known, self.machine.races.releases.clock_after_wait(at, value, wait.bits, wait.satisfied))

    def touches(self, va: int, size: int, *, write: bool) -> None:
        if self.machine.notes and self.acting is not None:
            self._touch(self.acting.work, va, size, write=write)

    def wrote(self, engine: str, what: str, va: int, size: int) -> None:
        if not self.machine.notes:
            return
        work = self._work(engine, what)
        self._touch(work, va, size, write=True)
        self._check_race(work)
        join(self.known, work.end_clock())

    def _work(self, engine: str, what: str) -> QueueWork:
        """Create a piece of work with the channel's vector clock."""
        self._numbers[engine] += 1
        name = f"{what} on {self.name} ({self.at})" if self.machine.notes else what
        return QueueWork((self.number, engine), self._numbers[engine], name, dict(self.known))

    def _touch(self, work: QueueWork, va: int, size: int, *, write: bool) -> None:
        for at, length in self.space.pieces(va, size):
            mapping = self.space.map.find(at)
            if mapping is not None:
                work.touch(mapping, at, length, write=write)

    def _check_race(self, work: QueueWork) -> None:
        if self.machine.log is not None:
            self.machine.log.record(work)
        race = "" if self.machine.races is None else self.machine.races.check(work)
        if race:
            code = RcCode.CE0_ERROR if work.stream[1].startswith("copy") else RcCode.GR_EXCEPTION
            raise ChannelError(code, FindingKind.RACE, race)

    def launch(
        self, run: Callable[[], Iterator[SlicedLaunch] | None], engine: str, what: str, *, ordered: bool
    ) -> None:
        work = self._work(engine, what)
        if ordered:
            join(work.known, {work.stream: work.number - 1})
        self.inflight.add(EngineOperation(run, engine, ordered, what, self.at, work))

    def when_idle(self, then: Callable[[], None], engine: str | None = None) -> None:
        self.draining = (engine, then)

    def unbind(self, cls: int) -> None:
        """Unbind a freed engine object from all subchannels."""
        self.objects.discard(cls)
        self.bound = {at: engine for at, engine in self.bound.items() if engine.cls != cls}

    def abandon(self) -> None:
        """Drop all remaining work, also that in flight."""
        self.inflight.abandon()
        self.calls.clear()
        self.entries.clear()
        self.waiting = self.draining = None

    def _fetch(self, entry: _Entry) -> None:
        """Execute a ring entry: its control, or queue the method calls in its push buffer.

        Raises `ChannelError`.
        """
        self._at = f"ring entry {entry.slot}"
        join(self.known, entry.known)
        if self.ring.read(entry.slot) != entry.raw:
            raise ChannelError(
                RcCode.PBDMA_ERROR,
                FindingKind.LIFETIME,
                f"{self.at} was overwritten after its doorbell and before it was fetched",
            )
        decoded = decode_entry(entry.raw)
        if value := self.machine.rejections.refuses("ring entry", entry.raw, self.space):
            raise host_error(f"{self.at} is {entry.raw:#x} (quirk {value})")
        if decoded.size == 0:
            self._control(GpfifoControl.from_int(entry.raw))
        else:
            self._segment(decoded, entry)
        self._slot = (entry.slot + 1) % self.setup.entries
        if self.reports_get:
            self._get_view[0] = self._slot

    def _control(self, entry: GpfifoControl) -> None:
        violations = entry.check()
        if violations:
            raise host_error(f"{self.at}: {violations[0]}")
        if entry.OPCODE is GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE and self.gpu.profile.wide:
            self._base = entry.OPERAND << 40
        elif entry.OPCODE is not GpfifoOpcode.NOP:
            raise host_error(f"{self.at}: control {entry.OPCODE.name} is not for this channel")
        elif entry.OPERAND:
            raise host_error(f"{self.at}: control NOP has operand {entry.OPERAND:#x}, wanted 0")

    def _segment(self, decoded: RingEntry, entry: _Entry) -> None:
        """Queue the method calls in the push buffer to which an entry points. Raises `ChannelError`."""
        if decoded.wrong:
            raise host_error(f"{self.at}: {decoded.wrong}")
        va = self._base | decoded.address
        data = self.space.read(va, decoded.size, f"{self.at}: its push buffer")
        if entry.digest is not None and not self._base and zlib.crc32(data) != entry.digest:
            raise ChannelError(
                RcCode.PBDMA_ERROR,
                FindingKind.LIFETIME,
                f"the push buffer at {va:#x} changed after the doorbell and before it was fetched, "
                f"or LENGTH, {len(data) // 4} words, goes beyond what was written",
            )
        self.calls.extend(decode(struct.unpack(f"<{len(data) // 4}I", data)))

    def _run_call(self, call: MethodCall) -> bool:
        """Run one method; return whether it did more than set a register. Raises `ChannelError`."""
        self._at = call
        if call.address == _SET_OBJECT:
            self._bind(call)
            return True
        if call.address < HOST_METHODS_END:
            return self.host.method(call)
        engine = self.bound.get(call.subchannel)
        if engine is None:
            raise host_error(
                f"method {call.address:#x} on subchannel {call.subchannel}, which has no object: "
                "SET_OBJECT is the first method of a subchannel"
            )
        return engine.method(call)

    def _bind(self, call: MethodCall) -> None:
        """Execute SET_OBJECT: bind a class to a subchannel.

        A class that is bound already keeps its state. Raises `ChannelError`.
        """
        data = SetObject.from_int(call.value)
        if data.check() or data.ENGINE:
            raise host_error(f"SET_OBJECT {call.value:#x}: wanted a class in bits 15:0 and nothing else")
        if data.CLASS not in self.objects:
            raise host_error(f"SET_OBJECT {data.CLASS:#x}: the channel has no object of that class")
        before = self.bound.get(call.subchannel)
        if before is not None and before.cls == data.CLASS:
            return  # the state belongs to the channel and is kept
        error = None if before is None else before.left_over()
        if error is not None:
            raise error
        if self.gpu.profile.generation.compute == data.CLASS:
            self.bound[call.subchannel] = Compute(self)
        else:
            self.bound[call.subchannel] = CopyEngine(self, data.CLASS)
