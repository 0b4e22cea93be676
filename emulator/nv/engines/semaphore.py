"""Semaphores: the comparisons of acquires, and the stores of releases and reductions (docs/facts/nv.md 3.3).

Not here: executing methods (`host`), deadlocks (`standstill`). Next: `emulator.shared.waits`, the
order that releases create.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from drivers.nv.layouts.host import (
    SEMAPHORE_RECORD_BYTES,
    SEMAPHORE_TIME_OFFSET,
    SemOperation,
    SemReduction,
)
from drivers.nv.layouts.qmd_values import SemaphoreSize
from emulator.nv.reports import ChannelError, FindingKind, host_error
from emulator.shared.vaspace import AccessKind, read_word
from emulator.shared.waits import SemaphoreStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.shared.vaspace import VaSpace


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
