"""The reduction over the threads of a workgroup; every thread receives the result.

It is a butterfly reduction. In each step a thread combines its value with that of the thread whose number
differs in one bit, from the highest bit down, so the order depends only on the number of threads. Between
warps values are exchanged through shared memory, several of them between two barriers. Within a warp they are
exchanged through registers.

Not here: the part of a reduction that one thread computes. Next: `reductions`, which writes it, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import dtypes, storage_type
from compiler.emit import conversions, isel
from compiler.emit.linear import POINTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line

SHARED_BYTES = 4096
"""Bytes of shared memory of one exchange; the arrays of all types and sizes together fit in 48 KiB."""


class Total(NamedTuple):
    """One thread's partial result of a reduction."""

    op: str
    dtype: DType
    value: Line


def over_threads(b: Builder, totals: Sequence[Total], threads: int, warp: int) -> list[Line]:
    """Return the combined value of each total, in order. All threads of the workgroup must run the lines.

    `threads` are those of the workgroup, `warp` those of a warp, both powers of two.
    """
    values = [total.value for total in totals]
    step = threads // 2
    while step >= warp:
        for some in _batches(values, threads):
            others = _through_memory(b, [values[i] for i in some], step, threads)
            for i, other in zip(some, others, strict=True):
                values[i] = isel.combine(b, *totals[i][:2], values[i], other)
        step //= 2
    while step:
        values = [
            isel.combine(b, *total[:2], value, exchanged(b, value, step, min(threads, warp)))
            for total, value in zip(totals, values, strict=True)
        ]
        step //= 2
    return values


def _batches(values: Sequence[Line], threads: int) -> list[list[int]]:
    """Group the indices of values by type, each group small enough for one exchange."""
    kinds: dict[DType, list[int]] = {}
    for i, value in enumerate(values):
        kinds.setdefault(value.dtype, []).append(i)
    batches = []
    for dtype, numbers in kinds.items():
        most = max(1, SHARED_BYTES // (threads * storage_type(dtype).itemsize))
        batches += [numbers[at : at + most] for at in range(0, len(numbers), most)]
    return batches


def _through_memory(b: Builder, values: Sequence[Line], step: int, threads: int) -> list[Line]:
    """Exchange values with the thread whose index differs in the bit `step`, through shared memory."""
    dtype = values[0].dtype
    kind = storage_type(dtype)
    rows = 1 << (len(values) - 1).bit_length()
    memory = b.line("shared", POINTER, 1, (), (kind, rows * threads))
    thread = b.line("thread", dtypes.int64, 1, (), 0)
    partner = b.alu("xor", thread, b.index(step))
    for row, value in enumerate(values):
        mine = b.offset(memory, b.add(thread, b.index(row * threads)), kind)
        b.line("store", kind, 1, (mine, conversions.pack(b, value, dtype)))
    written = b.line("barrier", dtypes.bool, 1)
    others = []
    for row in range(len(values)):
        place = b.offset(memory, b.add(partner, b.index(row * threads)), kind)
        others.append(conversions.unpack(b, b.line("load", kind, 1, (place, written)), dtype))
    b.line("barrier", dtypes.bool, 1)
    return others


def exchanged(b: Builder, value: Line, step: int, active: int) -> Line:
    """Return the value of the thread of the same warp whose index differs in `step`, by 32-bit exchanges."""

    def swap(word: Line) -> Line:
        return b.line("exchange", dtypes.uint32, 1, (word,), (step, active))

    dtype = value.dtype
    stored = conversions.pack(b, value, dtype)
    if stored.dtype.bits < 32:
        narrow = b.convert("trunc", swap(b.convert("zext", stored, dtypes.uint32)), stored.dtype)
        return conversions.unpack(b, narrow, dtype)
    if stored.dtype.bits == 32:
        return b.convert("bitcast", swap(b.convert("bitcast", stored, dtypes.uint32)), dtype)
    bits, half = b.convert("bitcast", stored, dtypes.uint64), b.const(dtypes.uint64, 32)
    low = swap(b.convert("trunc", bits, dtypes.uint32))
    high = swap(b.convert("trunc", b.alu("lshr", bits, half), dtypes.uint32))
    wide = [b.convert("zext", word, dtypes.uint64) for word in (low, high)]
    return b.convert("bitcast", b.alu("or", wide[0], b.alu("shl", wide[1], half)), dtype)
