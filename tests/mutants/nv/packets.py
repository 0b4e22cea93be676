"""Mutants of NVIDIA's push buffers: ring entries, packets, method headers and data.

Not here: launch descriptors and memory (`doorbells`, `contents`), the changes (`tests.mutants.sites`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts import compute, dma, host
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, Method, MethodHeader, SecOp, Subchannel
from tests.mutants.sites import DELETE, Mutant, fields, variants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def _methods(subchannel: int, address: int, *, wide: bool) -> Mapping[int, Method]:
    if address < HOST_METHODS_END:
        return host.METHODS if wide else host.METHODS_AMPERE
    if subchannel == Subchannel.COMPUTE:
        return compute.METHODS if wide else compute.METHODS_AMPERE
    return dma.METHODS if wide else dma.METHODS_AMPERE


def layout_of(subchannel: int, address: int, *, wide: bool = True) -> Method | None:
    """Return the method at an address; None if it is not known."""
    return _methods(subchannel, address, wide=wide).get(address)


def packets(words: Sequence[int]) -> Iterator[tuple[int, int, MethodHeader]]:
    """Yield word index, length in words and header of every packet."""
    at = 0
    while at < len(words):
        head = MethodHeader.from_int(words[at])
        size = 1 if head.OPCODE == SecOp.IMMEDIATE else 1 + head.COUNT
        yield at, size, head
        at += size


def methods(words: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield word index, subchannel, address and value of every method with a data word."""
    for at, size, head in packets(words):
        for i in range(1, size):
            yield at + i, head.SUBCHANNEL, _address(head, i - 1), words[at + i]


def _address(head: MethodHeader, index: int) -> int:
    step = {SecOp.INCREMENTING: index, SecOp.INCREMENT_ONCE: min(index, 1)}.get(head.OPCODE, 0)
    return head.ADDRESS + 4 * step


def _method(head: MethodHeader, index: int, *, wide: bool) -> Method:
    address = _address(head, index)
    return _methods(head.SUBCHANNEL, address, wide=wide)[address]


def segment(words: Sequence[int], index: int, entry: int, *, wide: bool) -> Iterator[Mutant]:
    """Yield the mutants of a segment: deletions of packets, and changes of fields of headers and data."""
    for at, size, head in packets(words):
        name = _method(head, 0, wide=wide).name
        where = f"{Subchannel(head.SUBCHANNEL).name.lower()} word {at} {name}"
        yield Mutant("packet", index, entry, at, ((0, 32 * size),), DELETE, where)
        yield from fields(MethodHeader, "word", index, entry, at, words[at], f"{where} header")
        for i in range(1, size):
            method, raw = _method(head, i - 1, wide=wide), words[at + i]
            name = f"{Subchannel(head.SUBCHANNEL).name.lower()} word {at + i} {method.name}"
            if method.data is not None:
                yield from fields(method.data, "word", index, entry, at + i, raw, name)
            else:
                yield from variants("word", index, entry, at + i, ((0, 32),), raw, name)


def ring_entry(raw: int, index: int, entry: int) -> Iterator[Mutant]:
    """Yield the mutants of a ring entry."""
    yield Mutant("entry", index, entry, 0, ((0, 64),), DELETE, f"entry {entry}")
    yield from fields(GpfifoEntry, "entry", index, entry, 0, raw, f"entry {entry}")
