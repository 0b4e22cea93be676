"""Semaphores: the comparisons of acquires, and the stores of releases and reductions (docs/facts/nv.md 3.3).

Also the reasons why a channel does not continue (error, semaphore, no doorbell), and its future releases,
which are decoded from the words that it has not executed yet, for the detection of deadlocks.

Not here: executing methods (`host`), deadlocks (`emulator.shared.waits`). Next: `emulator.shared.waits`, the
order that releases create.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.dma import DmaMethod, DmaSemaphoreType, LaunchDma
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, Subchannel
from drivers.nv.layouts.host import (
    SEMAPHORE_RECORD_BYTES,
    SEMAPHORE_TIME_OFFSET,
    HostMethod,
    SemExecute,
    SemOperation,
    SemReduction,
)
from drivers.nv.layouts.qmd_values import SemaphoreSize
from emulator.nv.engines.pushbuffer import decode
from emulator.nv.reports import ChannelError, FindingKind, host_error
from emulator.shared.vaspace import AccessKind, read_word
from emulator.shared.waits import SemaphoreStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.engines.pushbuffer import MethodCall
    from emulator.nv.rm.objects import RmChannel
    from emulator.shared.vaspace import VaSpace
    from emulator.shared.waits import SemaphoreHistory


@dataclass(frozen=True, slots=True)
class Acquire:
    """A wait of the host engine."""

    va: int
    """Device address of the semaphore."""
    operation: SemOperation
    """One of the acquire operations."""
    payload: int
    """The value to which the semaphore is compared."""
    bits: int
    """Width of the comparison: 32 or 64."""

    @property
    def equality(self) -> bool:
        """Whether only the exact payload ends the wait."""
        return self.operation is SemOperation.ACQUIRE

    def satisfied(self, value: int) -> bool:
        """Return whether the value in memory ends the wait."""
        mask = (1 << self.bits) - 1
        payload = self.payload & mask
        match self.operation:
            case SemOperation.ACQUIRE:
                return value == payload
            case SemOperation.ACQ_STRICT_GEQ:
                return value >= payload
            case SemOperation.ACQ_CIRC_GEQ:
                return (value - payload) & mask < 1 << (self.bits - 1)
            case SemOperation.ACQ_AND:
                return value & payload != 0
            case _:
                assert self.operation is SemOperation.ACQ_NOR
                return ~(value | payload) & mask != 0

    def __str__(self) -> str:
        return f"{self.operation.name} of {self.payload:#x} ({self.bits} bits) at {self.va:#x}"


@dataclass(frozen=True, slots=True)
class Release:
    """The address, payload and width of a release, which may lie in the future."""

    va: int
    payload: int
    """Only the lower `bits` bits count."""
    bits: int
    """Width of the store: 32 or 64."""
    error: Callable[[str], ChannelError] = host_error
    """A factory of the writing engine's error."""


Tell: TypeAlias = "Callable[[SemaphoreStore], None]"
"""Called before a store becomes visible: a host that reads the new value may write a doorbell at once."""


def misfit(size: int, *, wide: bool) -> tuple[FindingKind, str] | None:
    """Return the kind and a description of a mistake in the structure that a release writes; None if valid.

    `size` is a `SemaphoreSize`; `wide`: the payload has 64 bits.
    """
    match size, wide:
        case (SemaphoreSize.SEMAPHORE_ONE_WORD, True):
            return FindingKind.METHOD, "one word with a payload of 64 bits"
        case (SemaphoreSize.SEMAPHORE_TWO_WORDS, False):  # the facts do not define the second word
            return FindingKind.UNSUPPORTED, "two words with a payload of 32 bits"
        case _ if size not in tuple(SemaphoreSize):
            return FindingKind.METHOD, f"structure size {size}, which does not exist"
        case _:
            return None


def check_alignment(va: int, size: int, what: str, error: Callable[[str], ChannelError] = host_error) -> None:
    """Raise `error` for a semaphore at `va` that is not aligned to `size` bytes, those of its access.

    The facts state only that an address has bits 31:2. But a value that is accessed atomically must be
    aligned to its size.
    """
    if va % size:
        raise error(f"{what} at {va:#x} must be aligned to {size} bytes")


def release(space: VaSpace, one: Release, time_ns: int | None, what: str, tell: Tell) -> None:
    """Write the payload and, if `time_ns` is not None, first the timestamp in the same record.

    `what` is the subject of error messages. Raises the error of `one` for a bad alignment, or the page fault.
    """
    size = SEMAPHORE_RECORD_BYTES if time_ns is not None else one.bits // 8
    check_alignment(one.va, size, what, one.error)
    at = space.host(one.va, size, AccessKind.WRITE, what)
    if time_ns is not None:
        space.write(one.va + SEMAPHORE_TIME_OFFSET, struct.pack("<Q", time_ns), what)
    old, new = read_word(at, one.bits), one.payload & ((1 << one.bits) - 1)
    _write(space, one, SemaphoreStore(at, old, new, adds=False, bits=one.bits, by=what), what, tell)


def reduce(
    space: VaSpace, one: Release, operation: SemReduction, what: str, tell: Tell, *, signed: bool
) -> None:
    """Reduce the payload into the value in memory. Raises as `release`."""
    change(space, one, lambda old: combine(old, one.payload, operation, one.bits, signed=signed), what, tell)


def change(space: VaSpace, one: Release, new: Callable[[int], int], what: str, tell: Tell) -> None:
    """Replace the value in memory by `new(value)`. Raises as `release`."""
    check_alignment(one.va, one.bits // 8, what, one.error)
    at = space.host(one.va, one.bits // 8, AccessKind.ATOMIC, what)
    old = read_word(at, one.bits)
    _write(space, one, SemaphoreStore(at, old, new(old), adds=True, bits=one.bits, by=what), what, tell)


def _write(space: VaSpace, one: Release, written: SemaphoreStore, what: str, tell: Tell) -> None:
    tell(written)
    space.write(one.va, struct.pack("<Q" if one.bits == 64 else "<I", written.new), what)


def combine(old: int, payload: int, operation: SemReduction, bits: int, *, signed: bool) -> int:
    """Return the result of a reduction of `bits` bits; `signed` matters for minimum and maximum only."""
    mask = (1 << bits) - 1
    payload &= mask

    def order(value: int) -> int:
        return value - (1 << bits) if signed and value >> (bits - 1) else value

    match operation:
        case SemReduction.IMIN:
            return min(old, payload, key=order)
        case SemReduction.IMAX:
            return max(old, payload, key=order)
        case SemReduction.IXOR:
            return old ^ payload
        case SemReduction.IAND:
            return old & payload
        case SemReduction.IOR:
            return old | payload
        case SemReduction.IADD:
            return (old + payload) & mask
        case SemReduction.INC:
            return 0 if old >= payload else old + 1
        case SemReduction.DEC:
            return payload if old == 0 or old > payload else old - 1


_WHAT = "SEM_EXECUTE acquire"


def passed(run: ChannelRun, history: SemaphoreHistory) -> str:
    """Return the reason why the channel's equality acquire never ends; "" if it may end, or none waits."""
    wait = run.waiting
    if wait is None:
        return ""
    at = run.space.host(wait.va, wait.bits // 8, AccessKind.READ, _WHAT)
    seen = run.space.word(wait.va, wait.bits, _WHAT)
    if not history.passed(at, wait, seen):
        return ""
    return (
        f"{run.name} waits until the semaphore at {wait.va:#x} equals {wait.payload:#x}, seen {seen:#x}: the "
        "value has passed, and only rises. ACQUIRE compares for equality, ACQ_STRICT_GEQ does not"
    )


def standing(channel: RmChannel) -> list[str]:
    """Describe why a channel makes no progress, one sentence for each reason; empty if none is known."""
    run = channel.run
    if run.dead is not None:
        code = int(run.dead.rc)
        return [f"{run.name} was stopped, and its error notifier has the code {code}: {run.dead.message}"]
    out = []
    try:
        if run.waiting is not None:
            seen = run.space.word(run.waiting.va, run.waiting.bits, _WHAT)
            if not run.waiting.satisfied(seen):
                above = run.waiting.operation is SemOperation.ACQUIRE and seen > run.waiting.payload
                why = ": it ends when both are equal, and the value has passed" if above else ""
                out.append(f"{run.name} waits: {run.waiting}, seen {seen:#x}; at {run.at}{why}")
        if run.busy and not channel.runs:
            why = "was disabled" if channel.disabled else "is not scheduled"
            out.append(f"{run.name} has work and {why}")
        out += _unrung(run)
    except ChannelError as error:
        out.append(f"{run.name}: {error.message}")
    return out


def _unrung(run: ChannelRun) -> list[str]:
    """Describe ring entries that the driver has written and not submitted: no doorbell, or GPPut too low."""
    put = run.host_put
    if put != run.put:
        text = f"the last doorbell had {run.put}: the entries between were never submitted"
        return [f"{run.name}: GPPut is {put}, {text}"]
    va = run.setup.ring_va + put * GpfifoEntry.SIZE
    raw = int.from_bytes(run.space.read(va, GpfifoEntry.SIZE, f"ring entry {put}"), "little")
    if raw != run.stale(put):
        return [f"{run.name}: ring entry {put} is written, and GPPut is still {put}"]
    return []


def promised(run: ChannelRun) -> Iterator[Release]:
    """Yield the releases that a channel has not executed yet, in stream order.

    Releases by grids are left out, and all after a word that cannot be decoded.
    """
    host = dict(run.host.registers)
    engines: dict[int, dict[int, int]] = {}
    for call in _ahead(run):
        if call.address < HOST_METHODS_END:
            host[call.address] = call.value
            if call.address == HostMethod.SEM_EXECUTE:
                execute = SemExecute.from_int(call.value)
                if execute.OPERATION == SemOperation.RELEASE:
                    yield Release(
                        host.get(HostMethod.SEM_ADDR_HI, 0) << 32 | host.get(HostMethod.SEM_ADDR_LO, 0),
                        host.get(HostMethod.SEM_PAYLOAD_HI, 0) << 32 | host.get(HostMethod.SEM_PAYLOAD_LO, 0),
                        64,
                    )
            continue
        registers = engines.setdefault(call.subchannel, {})
        registers[call.address] = call.value
        yield from _engine_release(call, registers)


def _engine_release(call: MethodCall, registers: dict[int, int]) -> Iterator[Release]:
    """Yield the release that a method call to an engine makes, if any; `registers` were set before it."""
    get = registers.get
    if call.subchannel == Subchannel.COPY and call.address == DmaMethod.LAUNCH_DMA:
        if LaunchDma.from_int(call.value).SEMAPHORE_TYPE != DmaSemaphoreType.NONE:
            payload = get(DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER, 0) << 32 | get(
                DmaMethod.SET_SEMAPHORE_PAYLOAD, 0
            )
            yield Release(
                get(DmaMethod.SET_SEMAPHORE_A, 0) << 32 | get(DmaMethod.SET_SEMAPHORE_B, 0), payload, 64
            )
    elif call.subchannel == Subchannel.COMPUTE and call.address == ComputeMethod.SET_REPORT_SEMAPHORE_D:
        va = get(ComputeMethod.SET_REPORT_SEMAPHORE_A, 0) << 32 | get(ComputeMethod.SET_REPORT_SEMAPHORE_B, 0)
        yield Release(va, get(ComputeMethod.SET_REPORT_SEMAPHORE_C, 0), 32)
    elif call.subchannel == Subchannel.COMPUTE and call.address == ComputeMethod.REPORT_SEMAPHORE_EXECUTE:
        m = ComputeMethod
        va = get(m.SET_REPORT_SEMAPHORE_ADDRESS_UPPER, 0) << 32 | get(m.SET_REPORT_SEMAPHORE_ADDRESS_LOWER, 0)
        payload = get(m.SET_REPORT_SEMAPHORE_PAYLOAD_UPPER, 0) << 32 | get(
            m.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 0
        )
        yield Release(va, payload, 64)


def _ahead(run: ChannelRun) -> Iterator[MethodCall]:
    """Yield the method calls that a channel has not executed yet, up to the first unreadable segment."""
    yield from run.calls
    for entry in run.pending():
        decoded = GpfifoEntry.from_int(entry.raw)
        try:
            data = run.space.read(decoded.ADDRESS, decoded.LENGTH * 4, "a push buffer")
            yield from decode(struct.unpack(f"<{decoded.LENGTH}I", data))
        except ChannelError:
            return
