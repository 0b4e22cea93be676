"""Operations across the lanes of a warp: permutations, reductions over groups of lanes, matching.

Not here: operations within a lane (`numeric`). Next: `emulator.nv.ptx.warp`, the PTX instructions that use these.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.ir_text import bits_of, mangle
from emulator.ir.vector import IrValue, Spilled

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder


def permute(lib: Library, c: CodeBuilder, values: IrValue, index: IrValue) -> IrValue:
    """Return for each lane the value of the lane whose number is in `index` (i32), which must be below the warp's width."""
    if lib.target.vector_bits == 512 and lib.lanes == 32 and bits_of(values.type) == 32:
        halves = [c.shuffle(values, None, range(k, k + 16)) for k in (0, 16)]
        picks = [c.shuffle(index, None, range(k, k + 16)) for k in (0, 16)]
        kind = halves[0].type
        found = [
            c.call("llvm.x86.avx512.vpermi2var.d.512", kind, halves[0], pick, halves[1]) for pick in picks
        ]
        return c.shuffle(found[0], found[1], range(32))

    def body(k: CodeBuilder, data: IrValue, where: IrValue) -> None:
        all_in, wanted, all_out = Spilled(k, data), Spilled(k, where), Spilled(k, data.type)
        with k.count(IrValue("i32", str(lib.lanes))) as lane:
            all_out.set(lane, all_in.get(wanted.get(lane)))
        k.ret(all_out.whole())

    name = lib.define(
        f"emu.permute.{bits_of(values.type)}",
        values.type,
        {"values": values.type, "index": lib.v("i32")},
        body,
    )
    return c.call(name, values.type, values, index)


_NEUTRAL = {
    "add": 0,
    "or": 0,
    "xor": 0,
    "and": -1,
    "smin": 0x7FFF_FFFF,
    "smax": -0x8000_0000,
    "umin": -1,
    "umax": 0,
}


def reduce_groups(
    lib: Library, c: CodeBuilder, operation: str, values: IrValue, groups: IrValue, active: IrValue
) -> IrValue:
    """Return for each active lane the reduction of `values` (i32) over its group; 0 in other lanes.

    `operation` is add, and, or, xor, smin, smax, umin or umax. `groups` has for each active lane the mask of its group,
    which includes the lane itself.
    """

    def body(k: CodeBuilder, data: IrValue, members: IrValue, lanes: IrValue) -> None:
        all_in, result, rest = Spilled(k, members), k.slot(data.type), k.slot(lanes.type)
        k.store(k.zero(data.type), result)
        k.store(lanes, rest)
        k.jump("test")
        k.label("test")
        left = k.load(lanes.type, rest)
        k.branch(k.icmp("ne", left, 0), "group", "end")
        k.label("group")
        mine = k.op(
            "or", all_in.get(first(k, left)), k.op("and", left, k.op("sub", k.const(left.type, 0), left))
        )
        within = k.mask_lanes(mine)
        kept = k.select(within, data, k.const(data.type, _NEUTRAL[operation]))
        name = f"llvm.vector.reduce.{operation}.{mangle(data.type)}"
        total = k.splat(k.call(name, f"i{bits_of(data.type)}", kept), lib.lanes)
        k.store(k.select(within, total, k.load(data.type, result)), result)
        k.store(k.op("and", left, k.not_(mine)), rest)
        k.jump("test")
        k.label("end")
        k.ret(k.load(data.type, result))

    parameters = {"values": values.type, "groups": groups.type, "active": active.type}
    name = lib.define(f"emu.reduce.{operation}.{bits_of(values.type)}", values.type, parameters, body)
    return c.call(name, values.type, values, groups, active)


def match(lib: Library, c: CodeBuilder, values: IrValue, mask: IrValue) -> IrValue:
    """Return for each lane of `mask` the lanes of `mask` with the same value, as an i32 mask; 0 in other lanes.

    For warps of 32 lanes.
    """

    def body(k: CodeBuilder, data: IrValue, lanes: IrValue) -> None:
        all_in, all_out = Spilled(k, data), Spilled(k, lib.v("i32"))
        with k.each_lane(lanes) as lane:
            same = k.mask_bits(k.icmp("eq", data, k.splat(all_in.get(lane), lib.lanes)))
            all_out.set(lane, k.resize(k.op("and", same, lanes), 32))
        k.ret(all_out.whole())

    name = lib.define(
        f"emu.match.{bits_of(values.type)}", lib.v("i32"), {"values": values.type, "mask": lib.mask}, body
    )
    return c.call(name, lib.v("i32"), values, mask)


def first(c: CodeBuilder, mask: IrValue) -> IrValue:
    """Return the lowest lane of a mask as i32; the number of lanes if the mask is empty."""
    return c.resize(c.call(f"llvm.cttz.{mask.type}", mask.type, mask, IrValue("i1", "false")), 32)
