"""Loads and stores of rows of lanes, for several accesses whose addresses all come from one register.

A row is 16 lanes. `shape` finds once whether the lanes of every row of the register are consecutive or equal. For each access,
`try_load` and `try_store` then check one address for each row, and make one vector access for each row.

Not here: rows that are found at each access (`rows`). Next: `access`, all other accesses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.findings import i32, site_record
from emulator.ir.ir_text import bits_of
from emulator.ir.state import SITE, THREAD, WARP
from emulator.simt.rows import ROW, joined, row_mask, rows_of, structure

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

MIXED, CONSECUTIVE, EQUAL = 0, 1, 2
"""Shapes of a register: all rows have consecutive lanes; all rows have equal lanes; neither (MIXED)."""
PLAIN, UNSIGNED, SIGNED = "", "u", "s"
"""The extension of a register to an address of 64 bits: none (PLAIN, for 64-bit registers and 32-bit addresses), with zeros, with
the sign."""


def shape(lib: Library, c: CodeBuilder, register: IrValue, mask: IrValue, step: int, extended: str = PLAIN) -> IrValue:
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


def try_load(
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


def try_store(
    c: CodeBuilder, kind: IrValue, offsets: list[IrValue], room: IrValue, host: IrValue, values: list[IrValue], mask: IrValue
) -> None:
    """Append code that stores and returns, if all rows are consecutive and lie in the memory of `room` bytes at `host`.

    Arguments are as for `try_load`. Several values for each lane, and values of fewer than 32 bits, are stored here only if
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
