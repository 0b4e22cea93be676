"""The decoder of push buffers: words to method calls (nv.md 3.2). Malformed words are a host error.

Words that hardware skips silently are also an error, because they show a mistake of the driver: a header
without data, words after the end of a segment.

Not here: fetching (`channel`), the meaning of a method (`host`, `compute`, `copy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drivers.nv.emu.machine.reports import host_error
from drivers.nv.layouts.gpfifo import MAX_METHOD_WORDS, MethodHeader, SecOp

if TYPE_CHECKING:
    from collections.abc import Sequence

_METHOD_SPACE = 1 << 14


def _low(name: str) -> int:
    """Return the lowest bit of a field of a header."""
    mask = MethodHeader.FIELDS[name].mask()
    return (mask & -mask).bit_length() - 1


_ADDRESS_MASK = MethodHeader.FIELDS["ADDRESS"].mask()
_COUNT_SHIFT = _low("COUNT")
_OPCODE_SHIFT = _low("OPCODE")
_SPREADS = (SecOp.INCREMENTING, SecOp.NON_INCREMENTING, SecOp.INCREMENT_ONCE)
_NOP = 0
"""A header that does nothing (open-gpu-kernel-modules 595.45.04, clc56f.h, NVC56F_DMA_NOP)."""


class MethodCall(NamedTuple):
    """One method with its data word."""

    subchannel: int
    address: int
    value: int
    word: int
    """Index of the data word in its segment."""
    last: bool
    """Whether this is the last data word of its header."""


def decode(words: Sequence[int]) -> list[MethodCall]:
    """Return the method calls of a segment, in order."""
    calls: list[MethodCall] = []
    at = 0
    while at < len(words):
        if words[at] == _NOP:
            at += 1
            continue
        header = MethodHeader.from_int(words[at])
        # The field has three bits; the named subchannels are only the vendor's convention (nv.md 3.2).
        violations = [one for one in header.check() if one.field != "SUBCHANNEL"]
        if violations:
            raise host_error(f"word {at}: header {words[at]:#010x}: {violations[0]}")
        at += 1
        if header.OPCODE is SecOp.END_PB_SEGMENT:
            if header.COUNT or header.ADDRESS or header.SUBCHANNEL:
                raise host_error(
                    f"word {at - 1}: header {words[at - 1]:#010x} ends the segment, its other bits must be 0"
                )
            if at != len(words):
                raise host_error(f"word {at - 1}: the segment ends, {len(words) - at} words follow")
            break
        if header.OPCODE is SecOp.IMMEDIATE:
            calls.append(MethodCall(int(header.SUBCHANNEL), header.ADDRESS, header.COUNT, at - 1, last=True))
            continue
        if header.COUNT == 0:
            raise host_error(f"word {at - 1}: header {words[at - 1]:#010x} has no data")
        if at + header.COUNT > len(words):
            raise host_error(
                f"word {at - 1}: {header.COUNT} data words announced, {len(words) - at} are left in "
                "the segment"
            )
        calls += _spread(header, words[at : at + header.COUNT], at)
        at += header.COUNT
    return calls


def values_of(words: Sequence[int], address: int) -> list[int]:
    """Return the data words of one method in a segment, on any subchannel, without checks.

    It decodes only headers that can contain the method, so it is fast enough for segments that are not
    fetched yet.
    """
    out, at = [], 0
    while at < len(words):
        word = words[at]
        immediate = word >> _OPCODE_SHIFT == SecOp.IMMEDIATE
        count = 0 if immediate or word == _NOP else word >> _COUNT_SHIFT & MAX_METHOD_WORDS
        first = (word & _ADDRESS_MASK) << 2
        if first <= address <= first + 4 * count and not immediate:
            header = MethodHeader.from_int(word)
            if header.OPCODE in _SPREADS:
                calls = _spread(header, words[at + 1 : at + 1 + count], at + 1) if count else []
                out += [call.value for call in calls if call.address == address]
        at += 1 + count
    return out


def _spread(header: MethodHeader, data: Sequence[int], at: int) -> list[MethodCall]:
    step, most = {
        SecOp.INCREMENTING: (4, len(data)),
        SecOp.NON_INCREMENTING: (0, 0),
        SecOp.INCREMENT_ONCE: (4, 1),
    }[header.OPCODE]
    calls = [
        MethodCall(
            int(header.SUBCHANNEL),
            header.ADDRESS + step * min(i, most),
            value,
            at + i,
            last=i == len(data) - 1,
        )
        for i, value in enumerate(data)
    ]
    if calls[-1].address >= _METHOD_SPACE:
        raise host_error(f"word {at - 1}: the methods run past {_METHOD_SPACE:#x}")
    return calls
