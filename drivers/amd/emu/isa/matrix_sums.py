"""Sums of products of a matrix operation: one function a shape, called wherever the operation stands.

Operands are laid out in memory as rows: what lies in the lanes of a register is a row of B, and a row of D is as
many lanes of one register as B has columns. So each step of k adds, row by row, one number of A times a row of B.

Not here: where elements lie (`matrix`).
"""

# ruff: noqa: E501, PLR0917 - summaries read best on one line; sums take the operands one by one

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.simt.vector import Code, Value

if TYPE_CHECKING:
    from drivers.amd.emu.isa.matrix import Shape
    from drivers.emu.simt.library import Library

BYTES = {"f16": 2, "bf16": 2, "i8": 1, "u8": 1, "fp8": 1, "bf8": 1, "f32": 4}
_ROWS = 8
"""Rows of D that are summed at a time: as many as stay in the host's registers."""


def element(c: Code, register: Value, type_: str, part: int, family: str) -> Value:
    """Return one part of every lane's register as float32 or int32."""
    if type_ == "f32":
        return c.as_float(register)
    bits = 8 * BYTES[type_]
    shifted = c.op("lshr", register, bits * part) if part else register
    if type_ in ("i8", "u8"):
        return c.resize(c.resize(shifted, 8), 32, signed=type_ == "i8")
    small = c.resize(shifted, bits)
    if type_ == "f16":
        return c.cast("fpext", c.as_float(small), "float")
    if type_ == "bf16":
        return c.as_float(c.op("shl", c.resize(small, 32), 16))
    return small_float(c, c.resize(small, 32), type_, fnuz=family == "gfx9")


def small_float(c: Code, bits: Value, type_: str, *, fnuz: bool) -> Value:
    """Return 8-bit floats (in i32) as float32: fp8 is e4m3, bf8 e5m2, of OCP or, with `fnuz`, without infinities and -0."""
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


def sums(lib: Library, shape: Shape, family: str) -> tuple[str, str]:
    """Return the helper that adds A times B to C, and the type of its result.

    It takes the registers of A, then of B, i32 a lane, then C as float32 or int32 a lane in the order of registers and parts
    of D, and returns D so, in a structure.
    """
    number = "i32" if shape.d_type == "i32" else "float"
    keys = _places(shape)
    result = "{ " + ", ".join([lib.v(number)] * len(keys)) + " }"
    parameters = {f"{side}{n}": lib.v("i32") for side in "ab" for n in range(shape.a_registers)}
    parameters |= {f"c{n}": lib.v(number) for n in range(len(keys))}

    def body(c: Code, *values: Value) -> None:
        count = shape.a_registers
        a = _decoded(c, values[:count], shape.a_type, family, lib.lanes)
        b = _decoded(c, values[count : 2 * count], shape.b_type, family, lib.lanes)
        d = c.slot(f"[{len(keys) * lib.lanes} x {number}]")
        for n, value in enumerate(values[2 * count :]):
            c.store(value, c.gep(d, 4 * n * lib.lanes), align=4)
        for first in range(0, shape.m, _ROWS):
            _add_rows(c, shape, lib.lanes, (a, b, d), range(first, first + _ROWS), keys)
        whole = Value(result, "poison")
        for n in range(len(keys)):
            row = c.load(lib.v(number), c.gep(d, 4 * n * lib.lanes), align=4)
            whole = c.let(result, f"insertvalue {whole}, {row}, {n}")
        c.ret(whole)

    name = f"amd.matrix.{family}.{shape.m}x{shape.n}x{shape.k}.{shape.a_type}.{shape.b_type}.{shape.d_type}"
    return lib.define(name, result, parameters, body, attributes="noinline #0"), result


def _places(shape: Shape) -> dict[tuple[int, int], int]:
    """Return the number of each (register, part) of D."""
    found = {shape.d_place(i, j)[:2] for i in range(shape.m) for j in range(shape.n)}
    return {place: number for number, place in enumerate(sorted(found))}


def _decoded(c: Code, registers: tuple[Value, ...], type_: str, family: str, lanes: int) -> Value:
    """Store every part of every register as numbers, a row of lanes each."""
    parts = 4 // BYTES[type_]
    number = "i32" if type_ in ("i8", "u8") else "float"
    area = c.slot(f"[{len(registers) * parts * lanes} x {number}]")
    for n, register in enumerate(registers):
        for part in range(parts):
            value = element(c, register, type_, part, family)
            c.store(value, c.gep(area, 4 * lanes * (n * parts + part)), align=4)
    return area


def _add_rows(
    c: Code,
    shape: Shape,
    lanes: int,
    areas: tuple[Value, Value, Value],
    rows: range,
    keys: dict[tuple[int, int], int],
) -> None:
    """Add all products of some rows of D."""
    a, b, d = areas
    number = "i32" if shape.d_type == "i32" else "float"
    parts = 4 // BYTES[shape.a_type]
    begins = []
    for step in range(shape.k):
        register, part, lane = shape.a_place(0, step)
        begins.append(4 * ((register * parts + part) * lanes + lane))
    places = []
    for i in rows:
        register, part, lane = shape.d_place(i, 0)
        places.append(c.gep(d, 4 * (keys[register, part] * lanes + lane)))
    row = f"<{shape.n} x {number}>"
    totals = [c.slot(row) for _ in rows]
    for total, place in zip(totals, places, strict=True):
        c.store(c.load(row, place, align=4), total)
    with c.count(Value("i32", str(shape.k))) as k:
        offset = c.resize(c.extract(c.ints(f"<{shape.k} x i32>", begins), k), 64)
        right = c.load(row, c.gep(b, offset), align=4)
        left = c.gep(a, offset)
        for i, total in zip(rows, totals, strict=True):
            factor = c.splat(c.load(number, c.gep(left, 4 * i), align=4), shape.n)
            before = c.load(row, total)
            if number == "i32":
                after = c.op("add", before, c.op("mul", factor, right))
            else:
                after = c.intrinsic("fma", factor, right, before)
            c.store(after, total)
    for total, place in zip(totals, places, strict=True):
        c.store(c.load(row, total), place, align=4)


def copies_differ(lib: Library, count: int) -> str:
    """Return the helper that tells whether lanes of some registers differ from the lane of the same number modulo 16."""

    def body(c: Code, *registers: Value) -> None:
        bad = c.const(lib.mask, 0)
        for register in registers:
            first = c.shuffle(register, None, [lane % 16 for lane in range(lib.lanes)])
            bad = c.op("or", bad, c.mask_bits(c.icmp("ne", register, first)))
        c.ret(c.icmp("ne", bad, 0))

    parameters = {f"r{n}": lib.v("i32") for n in range(count)}
    return lib.define(f"amd.matrix.copies.{count}", "i1", parameters, body, attributes="noinline #0")
