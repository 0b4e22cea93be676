"""Operations that take or give a bit a lane: carries, choices, and counts of lower lanes.

Not here: comparisons (`compares`), integers without a carry (`vector_integers`). Next: `meanings`, how an
operation is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.known_values import Carry
from drivers.amd.emu.isa.meanings import meaning
from drivers.amd.emu.isa.operands import VCC, Reg

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value


@meaning(
    "v_add_co_u32",
    "v_add_co_ci_u32",
    "v_sub_co_u32",
    "v_sub_co_ci_u32",
    "v_subrev_co_u32",
    "v_subrev_co_ci_u32",
)
def _carry(t: Translator) -> None:
    """Add or subtract with a carry into, and out of, masks of lanes."""
    c = t.c
    if t.instruction.get("clamp"):
        raise t.error("clamp with a carry is not supported")
    d, carry, *rest = t.instruction.operands
    carried = None
    before: Carry | None = None
    if "_ci_" in t.stem:
        *rest, last = rest
        if isinstance(last, Reg):
            before = t.known.carries.get(t.mask_at(last.index).ref)
        carried = t.condition(last)
    a, b = (t.source(o, "u32", k) for k, o in enumerate(rest))
    if "subrev" in t.stem:
        a, b = b, a
    adds = t.stem.startswith("v_add")
    if before is not None and before.adds == adds and before.active.ref == t.active.ref:
        _carry_wide(t, before, a, b)
        return
    total = c.op("add" if adds else "sub", a, b)
    out = c.icmp("ult", total, a) if adds else c.icmp("ult", a, b)
    if carried is not None:
        step = c.resize(carried, 32)
        more = c.op("add" if adds else "sub", total, step)
        again = c.icmp("ult", more, total) if adds else c.icmp("ult", total, step)
        total, out = more, c.op("or", out, again)
    t.write(d, total)
    mask = t.set_mask(carry, out)
    if carried is None:
        t.known.carries[mask.ref] = Carry(total, a, b, t.active, adds)


def _carry_wide(t: Translator, low: Carry, a: Value, b: Value) -> None:
    """Add or subtract 64-bit values whose lower halves the instruction before has done."""
    c, (d, carry) = t.c, t.instruction.operands[:2]
    x, y = t.known.join(c, low.a, a), t.known.join(c, low.b, b)
    total = t.known.sum(c, x, y) if low.adds else c.op("sub", x, y)
    high = c.resize(c.op("lshr", total, 32), 32)
    t.known.same(low.total, high, total)
    t.write(d, high)
    t.set_mask(carry, c.icmp("ult", total, x) if low.adds else c.icmp("ult", x, y))


@meaning("v_mad_u64_u32", "v_mad_i64_i32")
def _mad_wide(t: Translator) -> None:
    """The mask of lanes gets bit 64 of the sum: the carry, or of signed numbers the sign of the exact sum."""
    c = t.c
    if t.instruction.get("clamp"):
        raise t.error("clamp is not supported")
    d, carry, x, y, z = t.instruction.operands
    signed = "i64" in t.stem
    a, b = (c.resize(t.source(o, "u32", k), 64, signed=signed) for k, o in enumerate((x, y)))
    addend = t.source(z, "u64")
    product = c.op("mul", a, b)
    total = c.op("add", product, addend)
    if signed:
        over = c.op("and", c.op("xor", total, product), c.op("xor", total, addend))
        out = c.icmp("slt", c.op("xor", total, over), 0)
    else:
        out = c.icmp("ult", total, product)
    t.write(d, total)
    t.set_mask(carry, out)


@meaning("v_cndmask_b32", "v_cndmask_b16")
def _cndmask(t: Translator) -> None:
    """Choose by a mask of lanes; signs act as on floating point."""
    d, x, y, *mask = t.instruction.operands
    chosen = t.condition(mask[0]) if mask else t.condition(Reg("s", VCC))
    type_ = "f32" if t.stem.endswith("32") else "f16"
    signed = any(getattr(o, "neg", False) or getattr(o, "abs", False) for o in (x, y))
    kind = type_ if signed else "b" + type_[1:]
    a, b = t.source(x, kind, 0), t.source(y, kind, 1)
    t.write(d, t.c.select(chosen, b, a))


@meaning("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def _mbcnt(t: Translator) -> None:
    """Count the bits of a mask that belong to lower lanes, in the lower or the upper half of the wave."""
    d, x, y = t.instruction.operands
    low = "_lo_" in t.stem
    below = []
    for lane in range(t.lanes):
        here = min(lane, 32) if low else max(lane - 32, 0)
        value = (1 << here) - 1
        below.append(value - (1 << 32) if value >> 31 else value)
    masks = t.c.ints(t.v("i32"), below)
    count = t.c.intrinsic("ctpop", t.c.op("and", t.source(x, "b32"), masks))
    t.write(d, t.c.op("add", count, t.source(y, "u32", 1)))
