"""Generated accesses by rows of 16 lanes whose addresses are consecutive or equal: one vector access for each row.

`try_load` and `try_store` write the usual case of an access: every row lies in the allocation that the instruction
last accessed, or in shared memory. Then one address of each row is checked.

Not here: the search for an allocation (`emulator.ir.addresses`). Next: `access`, all other accesses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir.findings import site_record
from emulator.ir.ir_text import bits_of, lanes_of
from emulator.ir.library import iota
from emulator.ir.state import SITE, THREAD, WARP
from emulator.ir.vector import IrValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

ROW = 16
"""Lanes of a row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The addresses of a vector of lanes, by rows."""

    bases: list[IrValue]
    """The address of the first lane of each row."""
    following: IrValue
    """The mask of lanes whose address is consecutive to their row's first lane."""
    same: IrValue
    """The mask of lanes that have the address of their row's first lane."""


def contiguous(lib: Library, c: CodeBuilder, hosts: IrValue, step: int) -> tuple[IrValue, IrValue]:
    """Return the address of lane 0, and the mask of lanes i whose address is i * `step` after it."""
    base = c.extract(hosts, 0)
    wanted = c.op("add", c.splat(base, lib.lanes), c.ints(lib.v("i64"), iota(lib.lanes, step)))
    return base, c.mask_bits(c.icmp("eq", hosts, wanted))


def rows_of(lib: Library, c: CodeBuilder, places: IrValue, step: int) -> Rows:
    """Return the rows of addresses, where consecutive addresses differ by `step`."""
    firsts = c.shuffle(places, None, [lane // ROW * ROW for lane in range(lib.lanes)])
    wanted = c.op("add", firsts, c.ints(places.type, [lane % ROW * step for lane in range(lib.lanes)]))
    bases = [c.extract(places, row) for row in range(0, lib.lanes, ROW)]
    return Rows(bases, c.mask_bits(c.icmp("eq", places, wanted)), c.mask_bits(c.icmp("eq", places, firsts)))


def row_mask(c: CodeBuilder, mask: IrValue, row: int) -> IrValue:
    """Return the bits of a mask that belong to a row."""
    return c.resize(c.op("lshr", mask, row * ROW) if row else mask, ROW)


def joined(c: CodeBuilder, parts: list[IrValue]) -> IrValue:
    """Return the concatenation of vectors of one type; their number is a power of two."""
    while len(parts) > 1:
        size = 2 * lanes_of(parts[0].type)
        parts = [c.shuffle(low, high, range(size)) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def load_rows(c: CodeBuilder, pointers: list[IrValue], mask: IrValue, bits: int) -> IrValue:
    """Load rows of consecutive addresses from a pointer for each row; lanes outside the mask are zero."""
    return joined(c, [
        c.masked_load(f"<{ROW} x i{bits}>", pointer, c.mask_lanes(row_mask(c, mask, row)), bits // 8)
        for row, pointer in enumerate(pointers)
    ])  # fmt: skip


def spread_rows(c: CodeBuilder, pointers: list[IrValue], mask: IrValue, bits: int) -> IrValue:
    """Load one element for all lanes of each row; a row without active lanes loads nothing and is zero."""
    type_, parts = f"<{ROW} x i{bits}>", []
    for row, pointer in enumerate(pointers):
        some = c.resize(c.icmp("ne", row_mask(c, mask, row), 0), ROW)
        item = c.masked_load(type_, pointer, c.mask_lanes(some), bits // 8)
        parts.append(c.shuffle(item, None, [0] * ROW))
    return joined(c, parts)


def _window(c: CodeBuilder, space: str, warp: IrValue, site: IrValue) -> tuple[IrValue, IrValue, Callable[[IrValue], IrValue]]:
    """Return the first address and the bytes (i64) of the memory of an access, and a function from an address to a pointer."""
    if space == "shared":
        room = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
        shared = WARP.load(c, warp, "shared")
        return c.const("i64", 0), c.resize(room, 64), lambda base: c.gep(shared, base)
    record = site_record(c, warp, site)
    delta = SITE.load(c, record, "delta")
    return (
        SITE.load(c, record, "start"),
        SITE.load(c, record, "bytes"),
        lambda base: c.let("ptr", f"inttoptr {c.op('add', base, delta)} to ptr"),
    )


def _within(
    c: CodeBuilder,
    window: tuple[IrValue, IrValue, Callable[[IrValue], IrValue]],
    bases: list[IrValue],
    span: int,
    size: int,
) -> IrValue:
    """Return whether `span` bytes from each base on lie in the memory of `_window`, and all bases are multiples of `size`."""
    start, length, _ = window
    room = c.intrinsic("usub.sat", length, c.const("i64", span - 1))
    good: IrValue | None = None
    for base in bases:
        this = c.icmp("ult", c.op("sub", base, start), room)
        if size > 1:
            this = c.op("and", this, c.icmp("eq", c.op("and", base, size - 1), 0))
        good = this if good is None else c.op("and", good, this)
    assert good is not None
    return good


def try_load(
    lib: Library, c: CodeBuilder, space: str, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, bits: int, count: int,
) -> None:  # fmt: skip
    """Append code that loads and returns, if all rows are consecutive, aligned, and in the memory of `_window`.

    With `count` 1 it also does if the lanes of each row have one address, in all rows. The code that follows is for all
    other accesses. Lanes outside the mask get undefined values.
    """
    size = bits // 8 * count
    window = _window(c, space, warp, site)
    rows = rows_of(lib, c, addresses, size)
    idle = c.not_(mask)
    bases = [
        c.select(c.icmp("eq", row_mask(c, mask, row), 0), window[0], c.resize(base, 64))
        for row, base in enumerate(rows.bases)
    ]  # a row of which no lane takes part may have any address
    inside = _within(c, window, bases, size * ROW, size)
    following = c.icmp("eq", c.op("or", rows.following, idle), -1)
    c.branch(c.op("and", inside, following), "consecutive", "not_consecutive" if count == 1 else "other")
    c.label("consecutive")
    blocks = [c.load(f"<{ROW * count} x i{bits}>", window[2](base), align=size) for base in bases]
    parts = [
        joined(
            c,
            [
                c.shuffle(block, None, range(k, ROW * count, count)) if count > 1 else block
                for block in blocks
            ],
        )
        for k in range(count)
    ]
    c.ret(parts[0] if count == 1 else structure(c, parts))
    if count == 1:
        c.label("not_consecutive")
        inside = _within(c, window, bases, size, size)
        same = c.icmp("eq", c.op("or", rows.same, idle), -1)
        c.branch(c.op("and", inside, same), "single", "other")
        c.label("single")
        items = [c.load(f"i{bits}", window[2](base), align=size) for base in bases]
        c.ret(joined(c, [c.splat(item, ROW) for item in items]))
    c.label("other")


def structure(c: CodeBuilder, parts: list[IrValue]) -> IrValue:
    """Return a structure of values of one type."""
    type_ = "{ " + ", ".join(part.type for part in parts) + " }"
    whole = IrValue(type_, "poison")
    for i, part in enumerate(parts):
        whole = c.let(type_, f"insertvalue {whole}, {part}, {i}")
    return whole


def try_store(
    lib: Library, c: CodeBuilder, space: str, warp: IrValue, addresses: IrValue, values: list[IrValue], mask: IrValue, site: IrValue,
) -> None:  # fmt: skip
    """Append code that stores and returns, if all lanes store, and all rows are consecutive, aligned, and in the memory of `_window`.

    The code that follows is for all other accesses.
    """
    bits, count = bits_of(values[0].type), len(values)
    size = bits // 8 * count
    window = _window(c, space, warp, site)
    rows = rows_of(lib, c, addresses, size)
    bases = [c.resize(base, 64) for base in rows.bases]
    inside = _within(c, window, bases, size * ROW, size)
    all_of_them = c.icmp("eq", c.op("and", rows.following, mask), -1)
    c.branch(c.op("and", inside, all_of_them), "consecutive", "other")
    c.label("consecutive")
    for row, base in enumerate(bases):
        parts = [c.shuffle(value, None, range(row * ROW, (row + 1) * ROW)) for value in values]
        if count > 1:
            parts = [
                c.shuffle(
                    joined(c, parts), None, [lane + ROW * k for lane in range(ROW) for k in range(count)]
                )
            ]
        c.store(parts[0], window[2](base), align=size)
    c.ret()
    c.label("other")
