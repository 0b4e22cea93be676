"""Decoders of ring entries, and of push buffers: words to method calls (docs/facts/nv.md 3.1, 3.2).

Malformed words are a host error. So are words that hardware skips silently, because they show a mistake of
the driver: a header without data, words after the end of a segment.

A host error is a `ChannelError`.

Not here: fetching (`channel`). Next: `host`, `compute` and `copy`, which run methods.
"""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from drivers.kernel import view_at
from drivers.nv.layouts.gpfifo import MAX_METHOD_WORDS, GpfifoEntry, MethodHeader, SecOp
from emulator.nv.reports import host_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drivers.nv.layouts.gpfifo import Method
    from emulator.shared.vaspace import VaSpace

_METHOD_SPACE = 1 << 14


def _low(name: str) -> int:
    """Return the lowest bit of a field of a header."""
    mask = MethodHeader.FIELDS[name].mask()
    return (mask & -mask).bit_length() - 1


_ADDRESS_MASK = MethodHeader.FIELDS["ADDRESS"].mask()
_COUNT_SHIFT = _low("COUNT")
_OPCODE_SHIFT = _low("OPCODE")
_STEPS: Final[Mapping[int, Callable[[int, int], Sequence[int]]]] = MappingProxyType(
    {
        SecOp.INCREMENTING: lambda first, count: range(first, first + 4 * count, 4),
        SecOp.NON_INCREMENTING: lambda first, count: [first] * count,
        SecOp.INCREMENT_ONCE: lambda first, count: [first, *[first + 4] * (count - 1)],
    }
)
"""Operation of a header -> the methods of its data words, given the first one and the number of words."""
_new = tuple.__new__
"""Makes a named tuple in a third of the time of a call of its class."""
_NOP = 0
"""A header that does nothing (open-gpu-kernel-modules 595.45.04, clc56f.h, NVC56F_DMA_NOP)."""


class MethodCall(NamedTuple):
    """One method with its data word."""

    subchannel: int
    address: int
    """The method's address in its class, such as `DmaMethod.LAUNCH_DMA`."""
    value: int
    """Its data word."""
    word: int
    """Index of the data word in its segment."""
    last: bool
    """Whether this is the last data word of its header."""


@functools.lru_cache(maxsize=4096)
def broken_rule(method: Method, value: int) -> str:
    """Return the first rule that the data word of a method breaks; "" if it breaks none.

    Results are cached, because streams repeat most data words.
    """
    violations = [] if method.data is None else method.data.from_int(value).check()
    return str(violations[0]) if violations else ""


class _Header(NamedTuple):
    """A header word, decoded and checked."""

    opcode: SecOp | int
    subchannel: int
    address: int
    data: int
    """COUNT: data words that follow, or immediate data."""
    violation: str
    """The broken rule; empty if there is none."""


@functools.lru_cache(maxsize=1024)
def _header(word: int) -> _Header:
    """Decode a header. Results are cached, because streams repeat most headers."""
    header = MethodHeader.from_int(word)
    # The field has three bits; the named subchannels are only the vendor's convention (nv.md 3.2).
    violations = [one for one in header.check() if one.field != "SUBCHANNEL"]
    violation = str(violations[0]) if violations else ""
    return _Header(header.OPCODE, int(header.SUBCHANNEL), header.ADDRESS, header.COUNT, violation)


def decode(words: Sequence[int]) -> list[MethodCall]:
    """Return the method calls of a segment, in order. Raises a host error for a malformed word."""
    calls: list[MethodCall] = []
    at = 0
    while at < len(words):
        if words[at] == _NOP:
            at += 1
            continue
        opcode, subchannel, address, count, violation = header = _header(words[at])
        if violation:
            raise host_error(f"word {at}: header {words[at]:#010x}: {violation}")
        at += 1
        if opcode is SecOp.END_PB_SEGMENT:
            if count or address or subchannel:
                raise host_error(
                    f"word {at - 1}: header {words[at - 1]:#010x} ends the segment, its other bits must be 0"
                )
            if at != len(words):
                raise host_error(f"word {at - 1}: the segment ends, {len(words) - at} words follow")
            break
        if opcode is SecOp.IMMEDIATE:
            calls.append(MethodCall(subchannel, address, count, at - 1, last=True))
            continue
        if count == 0:
            raise host_error(f"word {at - 1}: header {words[at - 1]:#010x} has no data")
        if at + count > len(words):
            raise host_error(
                f"word {at - 1}: {count} data words announced, {len(words) - at} are left in the segment"
            )
        calls += _spread(header, words[at : at + count], at)
        at += count
    return calls


def values_of(words: Sequence[int], address: int) -> list[int]:
    """Return the data words of the method at `address` in a segment, on any subchannel.

    Only headers that may contain the method are decoded, which is fast. Words are not checked, except that a
    header whose methods run past the last address raises a host error.
    """
    out, at = [], 0
    while at < len(words):
        word = words[at]
        immediate = word >> _OPCODE_SHIFT == SecOp.IMMEDIATE
        count = 0 if immediate or word == _NOP else word >> _COUNT_SHIFT & MAX_METHOD_WORDS
        first = (word & _ADDRESS_MASK) << 2
        if first <= address <= first + 4 * count and not immediate:
            header = _header(word)
            if header.opcode in _STEPS:
                calls = _spread(header, words[at + 1 : at + 1 + count], at + 1) if count else []
                out += [call.value for call in calls if call.address == address]
        at += 1 + count
    return out


def _spread(header: _Header, data: Sequence[int], at: int) -> list[MethodCall]:
    subchannel, count = header.subchannel, len(data)
    addresses = _STEPS[header.opcode](header.address, count)
    calls = [
        _new(MethodCall, (subchannel, address, value, at + i, i + 1 == count))
        for i, (address, value) in enumerate(zip(addresses, data, strict=True))
    ]
    if calls[-1].address >= _METHOD_SPACE:
        raise host_error(f"word {at - 1}: the methods run past {_METHOD_SPACE:#x}")
    return calls


class RingEntry(NamedTuple):
    """A decoded entry."""

    address: int
    """Device address of the segment."""
    size: int
    """Bytes of the segment; 0 for a control entry, whose other fields mean nothing."""
    wrong: str
    """The broken rule; "" if the entry is valid."""


@functools.lru_cache(maxsize=1024)
def decode_entry(raw: int) -> RingEntry:
    """Decode an entry. Results are cached, because rings repeat their entries."""
    entry = GpfifoEntry.from_int(raw)
    violations = entry.check()
    wrong = str(violations[0]) if violations else "conditional fetch is not known" if entry.FETCH else ""
    return RingEntry(entry.ADDRESS, 4 * entry.LENGTH, wrong)


class RingEntries:
    """The reader of one ring's entries: `entries` slots from the device address `va` on.

    It searches for their memory only after a change of the address space.
    """

    __slots__ = ("_entries", "_space", "_va", "_version", "_words")

    def __init__(self, space: VaSpace, va: int, entries: int) -> None:
        self._space, self._va, self._entries = space, va, entries
        self._version = -1
        """The version of the map of allocations for which `_words` holds."""
        self._words: memoryview | None = None
        """The ring as u64 elements; None if no single allocation holds all of it."""

    def read(self, slot: int) -> int:
        """Return the contents of a slot. Raises the page fault if it is not mapped."""
        memory = self._space.map
        if memory.version != self._version:
            version = memory.version  # before the search: a change meanwhile is seen at the next read
            va, size = self._va, self._entries * GpfifoEntry.SIZE
            found = memory.find(va, size)
            self._words = None if found is None else view_at(found.host + va - found.va, size).cast("Q")
            self._version = version
        if self._words is not None:
            return self._words[slot]
        va = self._va + slot * GpfifoEntry.SIZE
        raw = self._space.read(va, GpfifoEntry.SIZE, f"ring entry {slot}")
        return int.from_bytes(raw, "little")
