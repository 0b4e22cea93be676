"""The products and sums of matrix operations: a helper function for each shape, which its instructions call.

The helper stores its operands to memory as rows. A row of B lies in the lanes of one register, and so does a row of
D. So each step of k adds, for each row of D, one element of A times a row of B. An element of a sparse A is
multiplied by the row of B that its index selects; other rows of B are not used.

Not here: where elements lie (`matrix_shapes`), the instructions (`matrix`). Next: `matrix`.
"""

# ruff: noqa: E501, PLR0917 - summaries read best on one line; sums take the operands one by one

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa.matrix_shapes import BYTES
from emulator.ir.vector import CodeBuilder, IrValue

if TYPE_CHECKING:
    from emulator.amd.isa.matrix_shapes import MatrixShape, Place
    from emulator.ir.library import Library

_XF32 = 0xFFFF_E000
"""The bits of a float32 that an operation on xf32 reads; the others are cut off (docs/sources-amd.md)."""
_ROWS = 8
"""Rows of D that are summed at a time, so that they stay in the host's registers."""


def element(c: CodeBuilder, register: IrValue, type_: str, part: int, *, fnuz: bool) -> IrValue:
    """Return one part of a register as float32 or int32 for each lane; `part` counts from the lowest bits."""
    if type_ == "f32":
        return c.as_float(register)
    if type_ == "xf32":
        return c.as_float(c.op("and", register, _XF32))
    bits = 8 * BYTES[type_]
    shifted = c.op("lshr", register, bits * part) if part else register
    if type_ in ("i8", "u8"):
        return c.resize(c.resize(shifted, 8), 32, signed=type_ == "i8")
    small = c.resize(shifted, bits)
    if type_ == "f16":
        return c.cast("fpext", c.as_float(small), "float")
    if type_ == "bf16":
        return c.as_float(c.op("shl", c.resize(small, 32), 16))
    return small_float(c, c.resize(small, 32), type_, fnuz=fnuz)


def small_float(c: CodeBuilder, bits: IrValue, type_: str, *, fnuz: bool) -> IrValue:
    """Return 8-bit floats (in i32) as float32: "fp8" is e4m3, "bf8" is e5m2.

    The formats are OCP's, or with `fnuz` those without infinities and -0.
    """
    mantissa = 3 if type_ == "fp8" else 2
    bias = {"fp8": 7, "bf8": 15}[type_] + (1 if fnuz else 0)
    magnitude = c.op("and", bits, 0x7F)
    value = c.as_float(c.op("shl", magnitude, 23 - mantissa))
    value = c.op("fmul", value, c.fconst(value.type, 2.0 ** (127 - bias)))
    if not fnuz and type_ == "bf8":  # the top exponent is infinity and NaN
        special = c.op("or", c.op("shl", c.op("and", magnitude, 3), 21), 0x7F80_0000)
        value = c.select(c.icmp("uge", magnitude, 0x7C), c.as_float(special), value)
    nan = c.as_float(c.const(bits.type, 0x7FC0_0000))
    if fnuz:
        is_nan = c.icmp("eq", bits, 0x80)
    elif type_ == "fp8":
        is_nan = c.icmp("eq", magnitude, 0x7F)
    else:
        is_nan = c.icmp("ugt", magnitude, 0x7C)
    value = c.select(is_nan, nan, value)
    negative = c.icmp("ne", c.op("and", bits, 0x80), 0)
    return c.select(c.op("and", negative, c.not_(is_nan)), c.let(value.type, f"fneg {value}"), value)


def sums(
    lib: Library, shape: MatrixShape, family: str, blocks: tuple[int, ...] = (), *, fnuz: bool
) -> tuple[str, str]:
    """Return the helper that adds A times B to C, and the type of its result.

    Its parameters are vectors: the registers of A and of B as i32; for a sparse A the index, two bits an
    element from bit 0 on; then C as float32 or int32, in the order of registers and parts of D. The result is
    a structure with D, as C. `blocks` has the block of A for each block; () if each block uses its own.
    """
    number = "i32" if shape.d_type == "i32" else "float"
    keys = _places(shape)
    result = "{ " + ", ".join([lib.v(number)] * len(keys)) + " }"
    b_count = shape.b_registers or shape.a_registers
    counts = {"a": shape.a_registers, "b": b_count, "index": int(shape.sparse)}
    parameters = {f"{side}{n}": lib.v("i32") for side, count in counts.items() for n in range(count)}
    parameters |= {f"c{n}": lib.v(number) for n in range(len(keys))}

    def body(c: CodeBuilder, *values: IrValue) -> None:
        count, left = shape.a_registers, list(values)
        a = _decoded(c, tuple(left[:count]), shape.a_type, lib.lanes, fnuz=fnuz)
        b = _decoded(c, tuple(left[count : count + b_count]), shape.b_type, lib.lanes, fnuz=fnuz)
        del left[: count + b_count]
        places = _indices(c, shape, lib.lanes, left.pop(0)) if shape.sparse else None
        d = c.slot(f"[{len(keys) * lib.lanes} x {number}]")
        for n, value in enumerate(left):
            c.store(value, c.gep(d, 4 * n * lib.lanes), align=4)
        for block in range(shape.blocks):
            of = (blocks[block] if blocks else block, block)
            for first in range(0, shape.m, _ROWS):
                rows = range(first, min(first + _ROWS, shape.m))
                if places is None:
                    _add_rows(c, shape, lib.lanes, (a, b, d), of, rows, keys)
                else:
                    _add_sparse_rows(c, shape, lib.lanes, (a, b, d, places), rows, keys)
        whole = IrValue(result, "poison")
        for n in range(len(keys)):
            row = c.load(lib.v(number), c.gep(d, 4 * n * lib.lanes), align=4)
            whole = c.let(result, f"insertvalue {whole}, {row}, {n}")
        c.ret(whole)

    name = f"amd.matrix.{family}.{shape.m}x{shape.n}x{shape.k}.{shape.a_type}.{shape.b_type}.{shape.d_type}"
    name += f".{shape.blocks}.{'_'.join(map(str, blocks))}" if shape.blocks > 1 else ""
    name += ".fnuz" if fnuz else ""
    name += ".sparse" if shape.sparse else ""
    return lib.define(name, result, parameters, body, attributes="noinline #0"), result


def _places(shape: MatrixShape) -> dict[tuple[int, int], int]:
    """Return (register, part) of D -> its number in the order of registers and parts."""
    found = {
        (register + shape.d_block(block)[0], part)
        for i in range(shape.m)
        for j in range(shape.n)
        for block in range(shape.blocks)
        for register, part, _ in [shape.d_place(i, j)]
    }
    return {place: number for number, place in enumerate(sorted(found))}


def _decoded(c: CodeBuilder, registers: tuple[IrValue, ...], type_: str, lanes: int, *, fnuz: bool) -> IrValue:
    """Store all parts of all registers as float32 or int32, and return the area: a row of lanes for each part."""
    parts = 4 // BYTES[type_]
    number = "i32" if type_ in ("i8", "u8") else "float"
    area = c.slot(f"[{len(registers) * parts * lanes} x {number}]")
    for n, register in enumerate(registers):
        for part in range(parts):
            value = element(c, register, type_, part, fnuz=fnuz)
            c.store(value, c.gep(area, 4 * lanes * (n * parts + part)), align=4)
    return area


def _add_rows(
    c: CodeBuilder,
    shape: MatrixShape,
    lanes: int,
    areas: tuple[IrValue, IrValue, IrValue],
    blocks: tuple[int, int],
    rows: range,
    keys: dict[tuple[int, int], int],
) -> None:
    """Add all products to some rows of D. `blocks` are the block of A, and that of B and D."""
    a, b, d = areas
    number = "i32" if shape.d_type == "i32" else "float"
    begins = [_offset(shape, lanes, shape.a_place(0, step)) for step in range(shape.k)]
    places = [_row_place(c, shape, lanes, d, i, blocks[1], keys) for i in rows]
    row = f"<{shape.n} x {number}>"
    totals = _begun(c, row, places)
    with c.count(IrValue("i32", str(shape.k))) as k:
        offset = c.resize(c.extract(c.ints(f"<{shape.k} x i32>", begins), k), 64)
        right = c.load(row, c.gep(c.gep(b, offset), 4 * shape.m * blocks[1]), align=4)
        left = c.gep(c.gep(a, offset), 4 * shape.m * blocks[0])
        for i, total in zip(rows, totals, strict=True):
            factor = c.load(number, c.gep(left, 4 * i), align=4)
            _add_product(c, total, factor, right, row)
    for total, place in zip(totals, places, strict=True):
        c.store(c.load(row, total), place, align=4)


def _add_sparse_rows(
    c: CodeBuilder,
    shape: MatrixShape,
    lanes: int,
    areas: tuple[IrValue, IrValue, IrValue, IrValue],
    rows: range,
    keys: dict[tuple[int, int], int],
) -> None:
    """Add the products to some rows of D: of every four rows of B the two that the indices of A select."""
    a, b, d, indices = areas
    assert shape.b_place is not None
    number = "i32" if shape.d_type == "i32" else "float"
    begins = []
    for first in range(0, shape.k, 4):
        register, part, lane = shape.a_place(0, first)
        begins += [_offset(shape, lanes, (register, part + which, lane)) for which in (0, 1)]
    targets = [_offset(shape, lanes, shape.b_place(0, step)) for step in range(shape.k)]
    places = [_row_place(c, shape, lanes, d, i, 0, keys) for i in rows]
    row = f"<{shape.n} x {number}>"
    totals = _begun(c, row, places)
    with c.count(IrValue("i32", str(len(begins)))) as slot:
        offset = c.resize(c.extract(c.ints(f"<{len(begins)} x i32>", begins), slot), 64)
        four = c.op("shl", c.op("lshr", slot, 1), 2)
        for i, total in zip(rows, totals, strict=True):
            which = c.load("i32", c.gep(c.gep(indices, offset), 4 * i), align=4)
            target = c.extract(c.ints(f"<{shape.k} x i32>", targets), c.op("add", four, which))
            right = c.load(row, c.gep(b, c.resize(target, 64)), align=4)
            factor = c.load(number, c.gep(c.gep(a, offset), 4 * i), align=4)
            _add_product(c, total, factor, right, row)
    for total, place in zip(totals, places, strict=True):
        c.store(c.load(row, total), place, align=4)


def _offset(shape: MatrixShape, lanes: int, place: Place) -> int:
    """Return the offset in bytes of an element of A or B in its area."""
    register, part, lane = place
    return 4 * ((register * (4 // BYTES[shape.a_type]) + part) * lanes + lane)


def _row_place(
    c: CodeBuilder,
    shape: MatrixShape,
    lanes: int,
    d: IrValue,
    i: int,
    block: int,
    keys: dict[tuple[int, int], int],
) -> IrValue:
    """Return a pointer to a row of D in its area."""
    register, part, lane = shape.d_place(i, 0)
    registers_on, lanes_on = shape.d_block(block)
    return c.gep(d, 4 * (keys[register + registers_on, part] * lanes + lane + lanes_on))


def _begun(c: CodeBuilder, row: str, places: list[IrValue]) -> list[IrValue]:
    """Copy rows of D to stack slots, and return the slots."""
    totals = [c.slot(row) for _ in places]
    for total, place in zip(totals, places, strict=True):
        c.store(c.load(row, place, align=4), total)
    return totals


def _add_product(c: CodeBuilder, total: IrValue, factor: IrValue, right: IrValue, row: str) -> None:
    """Add an element of A times a row of B to a slot."""
    before, each = c.load(row, total), c.splat(factor, int(row[1:].split(maxsplit=1)[0]))
    if factor.type == "i32":
        c.store(c.op("add", before, c.op("mul", each, right)), total)
    else:
        c.store(c.intrinsic("fma", each, right, before), total)


def _indices(c: CodeBuilder, shape: MatrixShape, lanes: int, index: IrValue) -> IrValue:
    """Store, for each element of A, which of 4 rows of B it is multiplied by; return the area, as `_decoded`."""
    elements = shape.a_registers * (4 // BYTES[shape.a_type])
    area = c.slot(f"[{elements * lanes} x i32]")
    for n in range(elements):
        which = c.op("and", c.op("lshr", index, 2 * n), 3)
        c.store(which, c.gep(area, 4 * lanes * n), align=4)
    return area


def copies_differ(lib: Library, count: int) -> str:
    """Return the helper that says whether a lane of some registers differs from lane number (lane modulo 16)."""

    def body(c: CodeBuilder, *registers: IrValue) -> None:
        bad = c.const(lib.mask, 0)
        for register in registers:
            first = c.shuffle(register, None, [lane % 16 for lane in range(lib.lanes)])
            bad = c.op("or", bad, c.mask_bits(c.icmp("ne", register, first)))
        c.ret(c.icmp("ne", bad, 0))

    parameters = {f"r{n}": lib.v("i32") for n in range(count)}
    return lib.define(f"amd.matrix.copies.{count}", "i1", parameters, body, attributes="noinline #0")
