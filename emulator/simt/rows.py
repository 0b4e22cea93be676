"""Generated accesses by rows of 16 lanes whose addresses are consecutive or equal: one vector access for each row.

`try_load` and `try_store` write the usual case of an access: every row lies in the allocation that the instruction
last accessed, or in shared memory. Then one address of each row is checked.

Several accesses may take all their addresses from one register: `shape` finds once whether the lanes of every row of the
register are consecutive or equal, and `load_shaped` and `store_shaped` check one address for each row of an access.

Not here: the search for an allocation (`emulator.ir.addresses`). Next: `access`, all other accesses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir.findings import i32, site_record
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


def _window(
    c: CodeBuilder, space: str, warp: IrValue, site: IrValue
) -> tuple[IrValue, IrValue, Callable[[IrValue], IrValue]]:
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


MIXED, CONSECUTIVE, EQUAL = 0, 1, 2
"""Shapes of a register: all rows have consecutive lanes; all rows have equal lanes; neither (MIXED)."""
PLAIN, UNSIGNED, SIGNED = "", "u", "s"
"""The extension of a register to an address of 64 bits: none (PLAIN, for 64-bit registers and 32-bit addresses), with zeros, with
the sign."""


def shape(
    lib: Library, c: CodeBuilder, register: IrValue, mask: IrValue, step: int, extended: str = PLAIN
) -> IrValue:
    """Return the shape of a register in the lanes of a mask, as i32. Consecutive lanes differ by `step`.

    `extended` is the extension of the register. A row whose values wrap in 32 bits is not consecutive.
    """
    name = shape_helper(lib, bits_of(register.type), step, extended)
    return c.call(name, "i32", register, mask)


def shape_helper(lib: Library, bits: int, step: int, extended: str) -> str:
    """`emu.shape.BITS.STEP(register, mask) -> shape`, the helper of `shape`, which LLVM may inline."""

    def body(k: CodeBuilder, values: IrValue, lanes: IrValue) -> None:
        found = rows_of(lib, k, values, step)
        idle = k.not_(lanes)
        consecutive = k.icmp("eq", k.op("or", found.following, idle), -1)
        if extended:
            limit = (1 << (bits if extended == UNSIGNED else bits - 1)) - (ROW - 1) * step
            for row, base in enumerate(found.bases):
                fits = k.icmp("ult" if extended == UNSIGNED else "slt", base, limit)
                unused = k.icmp("eq", row_mask(k, lanes, row), 0)
                consecutive = k.op("and", consecutive, k.op("or", fits, unused))
        equal = k.icmp("eq", k.op("or", found.same, idle), -1)
        k.ret(k.select(consecutive, i32(CONSECUTIVE), k.select(equal, i32(EQUAL), i32(MIXED))))

    name = f"emu.shape.{bits}.{step}{extended}"
    return lib.define(name, "i32", f"{lib.v(f'i{bits}')}, mask", body, core=True, small=True, attributes="#0")


def bases(
    lib: Library,
    c: CodeBuilder,
    register: IrValue,
    mask: IrValue,
    start: IrValue,
    shift: IrValue | None,
    offset: IrValue,
    extended: str,
) -> list[IrValue]:
    """Return the address (i64) of each row's first lane: the register, extended and shifted left, plus `offset`.

    `shift` may be None only without an extension. A row without lanes in the mask gets `start`.
    """
    found = []
    for row in range(lib.lanes // ROW):
        base = c.extract(register, row * ROW)
        if extended:
            assert shift is not None
            base = c.op("shl", c.resize(base, 64, signed=extended == SIGNED), shift)
        base = c.resize(c.op("add", base, offset), 64)
        found.append(c.select(c.icmp("eq", row_mask(c, mask, row), 0), start, base))
    return found


def window(c: CodeBuilder, space: str, warp: IrValue, site: IrValue) -> tuple[IrValue, IrValue, IrValue]:
    """Return the memory that an access may touch: its first address (i64), its bytes (i64), a host pointer to it.

    It is shared memory, or the allocation that the instruction `site` last accessed.
    """
    thread = WARP.load(c, warp, "thread")
    if space == "shared":
        room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
        return c.const("i64", 0), room, WARP.load(c, warp, "shared")
    record = site_record(c, warp, site)
    start, delta = SITE.load(c, record, "start"), SITE.load(c, record, "delta")
    return start, SITE.load(c, record, "bytes"), c.let("ptr", f"inttoptr {c.op('add', start, delta)} to ptr")


def _inside(c: CodeBuilder, offsets: list[IrValue], span: IrValue, room: IrValue) -> IrValue:
    """Return whether `span` bytes from each offset on lie within the first `room` bytes."""
    limit = c.intrinsic("usub.sat", room, c.op("sub", span, 1))
    good = c.icmp("ult", offsets[0], limit)
    for offset in offsets[1:]:
        good = c.op("and", good, c.icmp("ult", offset, limit))
    return good


def load_shaped(
    c: CodeBuilder, kind: IrValue, offsets: list[IrValue], room: IrValue, host: IrValue, bits: int, count: int
) -> None:
    """Append code that loads and returns, if all rows have one of the shapes and lie in the memory of `room` bytes at `host`.

    `kind` is the shape, `offsets` those of the rows' first lanes in the memory. The code that follows is for all other
    accesses. Addresses may have any alignment. Values of lanes outside the mask are undefined.
    """
    size = bits // 8 * count
    near = c.icmp("eq", kind, CONSECUTIVE)
    span = c.select(near, c.const("i64", size * ROW), c.const("i64", size))
    there = c.op("and", c.icmp("ne", kind, MIXED), _inside(c, offsets, span, room))
    c.emit(f"br {there}, label %there, label %elsewhere, !prof !0")
    c.label("there")
    c.branch(near, "consecutive", "equal")
    c.label("consecutive")
    blocks = [c.load(f"<{ROW * count} x i{bits}>", c.gep(host, at), align=1) for at in offsets]
    if count == 1:
        c.ret(joined(c, blocks))
    else:
        picks = [range(n, ROW * count, count) for n in range(count)]
        c.ret(structure(c, [joined(c, [c.shuffle(block, None, pick) for block in blocks]) for pick in picks]))
    c.label("equal")
    parts = [
        joined(c, [
            c.splat(c.load(f"i{bits}", c.gep(host, c.op("add", at, n * bits // 8)), align=1), ROW)
            for at in offsets
        ])
        for n in range(count)
    ]  # fmt: skip
    c.ret(parts[0] if count == 1 else structure(c, parts))
    c.label("elsewhere")


def store_shaped(
    c: CodeBuilder,
    kind: IrValue,
    offsets: list[IrValue],
    room: IrValue,
    host: IrValue,
    values: list[IrValue],
    mask: IrValue,
) -> None:
    """Append code that stores and returns, if all rows are consecutive and lie in the memory of `room` bytes at `host`.

    Arguments are as for `load_shaped`. Several values for each lane, and values of fewer than 32 bits, are stored here only if
    all lanes are in the mask. The code that follows is for all other accesses. Addresses may have any alignment.
    """
    bits, count = bits_of(values[0].type), len(values)
    there = _inside(c, offsets, c.const("i64", bits // 8 * count * ROW), room)
    there = c.op("and", c.icmp("eq", kind, CONSECUTIVE), there)
    whole = c.icmp("eq", mask, -1)
    masks = count == 1 and bits >= 32
    if not masks:
        there = c.op("and", there, whole)
    c.emit(f"br {there}, label %there, label %elsewhere, !prof !0")
    c.label("there")
    if masks:
        c.branch(whole, "whole", "part")
        c.label("part")
        for row, at in enumerate(offsets):
            part = c.shuffle(values[0], None, range(row * ROW, (row + 1) * ROW))
            c.masked_store(part, c.gep(host, at), c.mask_lanes(row_mask(c, mask, row)), 1)
        c.ret()
        c.label("whole")
    for row, at in enumerate(offsets):
        parts = [c.shuffle(value, None, range(row * ROW, (row + 1) * ROW)) for value in values]
        if count > 1:
            order = [lane + ROW * n for lane in range(ROW) for n in range(count)]
            parts = [c.shuffle(joined(c, parts), None, order)]
        c.store(parts[0], c.gep(host, at), align=1)
    c.ret()
    c.label("elsewhere")
