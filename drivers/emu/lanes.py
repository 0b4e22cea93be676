"""Work across the lanes of a warp: permutations, reductions over a mask, matching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.vector import Spilled, Value, bits_of, mangle

if TYPE_CHECKING:
    from drivers.emu.library import Library
    from drivers.emu.vector import Code


def permute(lib: Library, c: Code, values: Value, index: Value) -> Value:
    """Return for each lane the value of lane `index`, which must name a lane."""
    if lib.target.vector_bits == 512 and lib.lanes == 32 and bits_of(values.type) == 32:
        halves = [c.shuffle(values, None, range(k, k + 16)) for k in (0, 16)]
        picks = [c.shuffle(index, None, range(k, k + 16)) for k in (0, 16)]
        kind = halves[0].type
        found = [
            c.call("llvm.x86.avx512.vpermi2var.d.512", kind, halves[0], pick, halves[1]) for pick in picks
        ]
        return c.shuffle(found[0], found[1], range(32))

    def body(k: Code, data: Value, where: Value) -> None:
        all_in, wanted, all_out = Spilled(k, data), Spilled(k, where), Spilled(k, data.type)
        with k.count(Value("i32", str(lib.lanes))) as lane:
            all_out.set(lane, all_in.get(wanted.get(lane)))
        k.ret(all_out.whole())

    name = lib.define(
        f"emu.permute.{bits_of(values.type)}",
        values.type,
        {"values": values.type, "index": lib.v("i32")},
        body,
    )
    return c.call(name, values.type, values, index)


def reduce(c: Code, operation: str, values: Value, lanes: Value, neutral: int) -> Value:
    """Reduce the lanes that are set to a scalar: add, and, or, xor, smin, smax, umin, umax."""
    kept = c.select(lanes, values, c.const(values.type, neutral))
    return c.call(f"llvm.vector.reduce.{operation}.{mangle(values.type)}", f"i{bits_of(values.type)}", kept)


def match(lib: Library, c: Code, values: Value, mask: Value) -> Value:
    """Return for each lane of `mask` which lanes of it hold the same value, as i32."""

    def body(k: Code, data: Value, lanes: Value) -> None:
        all_in, all_out = Spilled(k, data), Spilled(k, lib.v("i32"))
        with k.each_lane(lanes) as lane:
            same = k.mask_bits(k.icmp("eq", data, k.splat(all_in.get(lane), lib.lanes)))
            all_out.set(lane, k.resize(k.op("and", same, lanes), 32))
        k.ret(all_out.whole())

    name = lib.define(
        f"emu.match.{bits_of(values.type)}", lib.v("i32"), {"values": values.type, "mask": lib.mask}, body
    )
    return c.call(name, lib.v("i32"), values, mask)


def first(c: Code, mask: Value) -> Value:
    """Return the lowest lane of a mask as i32; the number of lanes when it is empty."""
    return c.resize(c.call(f"llvm.cttz.{mask.type}", mask.type, mask, Value("i1", "false")), 32)
