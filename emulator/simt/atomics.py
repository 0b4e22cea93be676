"""Atomic operations on device memory: one host atomic for each lane, lowest lane first.

Not here: loads and stores (`access`). Next: `emulator.nv.ptx.atomics`, the PTX instructions that use these.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir import numeric
from emulator.ir.addresses import ATOMIC, address_type, translate
from emulator.ir.findings import i32
from emulator.ir.vector import IrValue, Spilled
from emulator.sanitizers import sanitize

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

INTEGER = {  # operation -> LLVM's name for atomicrmw
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "smin": "min",
    "smax": "max",
    "umin": "umin",
    "umax": "umax",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


def atomic(lib: Library, space: str, operation: str, bits: int, format_: str = "", *, how: int = 0) -> str:
    """`emu.atomic...(warp, addresses, values, [new values,] mask, site) -> old values`, zero in lanes outside the mask.

    `operation` is a key of INTEGER, "cas" (compares with `values`, stores the new values), or "fadd", "fmin", "fmax" with
    `format_` f16, bf16, f32, f64, f16x2 or bf16x2. `how` is flags of `emulator.ir.addresses`, such as NARROW, or STRONG for
    an atomic that polls.
    """
    type_ = lib.v(f"i{bits}")
    swaps = operation == "cas"

    def body(c: CodeBuilder, warp: IrValue, addresses: IrValue, values: IrValue, *rest: IrValue) -> None:
        mask, site = rest[-2:]
        hosts = c.call(
            translate(lib, space, bits // 8), lib.v("i64"), warp, addresses, mask, site, i32(ATOMIC)
        )
        sanitize.watch(lib, c, space, warp, addresses, mask, site, bits // 8, ATOMIC | how)
        where, data, old = Spilled(c, hosts), Spilled(c, values), Spilled(c, type_)
        fresh = Spilled(c, rest[0]) if swaps else data
        with c.each_lane(mask) as lane:
            pointer = c.let("ptr", f"inttoptr {where.get(lane)} to ptr")
            value = data.get(lane)
            if swaps:
                pair = f"cmpxchg {pointer}, {value}, {fresh.get(lane)} seq_cst seq_cst, align {bits // 8}"
                found = c.let(f"{{ i{bits}, i1 }}", pair)
                old.set(lane, c.let(f"i{bits}", f"extractvalue {found}, 0"))
            elif operation in _FLOATING:
                old.set(lane, _float_step(c, pointer, value, operation, format_))
            else:
                step = f"atomicrmw {INTEGER[operation]} {pointer}, {value} seq_cst, align {bits // 8}"
                old.set(lane, c.let(f"i{bits}", step))
        c.ret(old.whole())

    parameters = {"warp": "ptr", "addresses": address_type(lib, space), "values": type_}
    parameters |= {"fresh": type_} if swaps else {}
    parameters |= {"mask": lib.mask, "site": "i32"}
    scope = f".{how}" if how and lib.checks.any else ""
    name = f"emu.atomic.{space}.{operation}.{format_ or bits}{scope}"
    return lib.define(name, type_, parameters, body)


_FLOATING = {"fadd": "fadd", "fmin": "minimumnum", "fmax": "maximumnum"}


def _float_step(c: CodeBuilder, pointer: IrValue, value: IrValue, operation: str, format_: str) -> IrValue:
    """Append an addition (rounded to nearest even), minimum or maximum by compare and swap; return the old bits."""
    type_ = value.type
    head, done = c.fresh("try"), c.fresh("done")
    seen = c.slot(type_)
    c.store(c.load(type_, pointer), seen)
    c.jump(head)
    c.label(head)
    old = c.load(type_, seen)
    fresh = _combined(c, old, value, operation, format_)
    pair = c.let(f"{{ {type_}, i1 }}", f"cmpxchg {pointer}, {old}, {fresh} seq_cst seq_cst")
    c.store(c.let(type_, f"extractvalue {pair}, 0"), seen)
    c.branch(c.let("i1", f"extractvalue {pair}, 1"), done, head)
    c.label(done)
    return c.load(type_, seen)


def _combined(c: CodeBuilder, a: IrValue, b: IrValue, operation: str, format_: str) -> IrValue:
    """Return two values combined by a floating-point operation, as bits; NaNs of f32 and f64 are canonical."""

    def exact(x: IrValue, y: IrValue) -> IrValue:
        return c.op("fadd", x, y) if operation == "fadd" else c.intrinsic(_FLOATING[operation], x, y)

    if format_ in ("f32", "f64"):
        total = exact(c.as_float(a), c.as_float(b))
        nan = c.fcmp("uno", total, total)
        return c.select(
            nan, c.const(a.type, 0x7FFF_FFFF if format_ == "f32" else 0xFFF8_0000_0000_0000), c.as_int(total)
        )
    small = format_.removesuffix("x2")

    def one(x: IrValue, y: IrValue) -> IrValue:
        return numeric.to_small(
            c, exact(numeric.from_small(c, x, small), numeric.from_small(c, y, small)), small
        )

    if not format_.endswith("x2"):
        return one(a, b)
    low = one(c.resize(a, 16), c.resize(b, 16))
    high = one(c.resize(c.op("lshr", a, 16), 16), c.resize(c.op("lshr", b, 16), 16))
    return c.op("or", c.resize(low, 32), c.op("shl", c.resize(high, 32), 16))
