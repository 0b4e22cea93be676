"""Moves across lanes (DPP, swizzles, permutations, single lanes), and operations with masks of lanes.

The latter are carries, selections, v_mad_u64_u32 and v_mbcnt. Sources: RDNA3, RDNA4 and CDNA3 ISA documents,
chapters of DPP, VOP1, VOP2, VOP3 and LDS.

Not here: permutations of vectors (`emulator.ir.lanes`), comparisons (`compares`), integers without a carry
(`vector_integers`). Next: `meanings`, how an operation is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import VCC, Reg
from emulator.amd.isa.known_values import Carry
from emulator.amd.isa.meanings import meaning
from emulator.ir import lanes as crossing
from emulator.ir.vector import CodeBuilder, IrValue, Spilled

if TYPE_CHECKING:
    from emulator.amd.isa.values import IsaTranslator

_ROW = 16
"""Lanes of a row of DPP."""


def dpp_sources(control: int, lanes: int) -> list[int]:
    """Return, for each lane, the lane from which a DPP control takes the value; -1 if there is none."""
    found = []
    for lane in range(lanes):
        row, at = lane // _ROW * _ROW, lane % _ROW
        found.append(_dpp_source(control, lane, row, at, lanes))
    return found


def _dpp_source(control: int, lane: int, row: int, at: int, lanes: int) -> int:
    """Return the source lane of lane `row` + `at` (`row` is the first of its row); -1 for none."""
    if control < 0x100:
        return lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    kind, amount = control & 0x1F0, control & 15
    if kind == 0x100:
        return row + at + amount if at + amount < _ROW else -1
    if kind == 0x110:
        return row + at - amount if at >= amount else -1
    if kind == 0x120:
        return row + (at - amount) % _ROW
    if control in (0x130, 0x134):
        return (lane + 1) % lanes if lane + 1 < lanes or control == 0x134 else -1
    if control in (0x138, 0x13C):
        return (lane - 1) % lanes if lane or control == 0x13C else -1
    if control == 0x140:
        return row + _ROW - 1 - at
    if control == 0x141:
        return row + at // 8 * 8 + 7 - at % 8
    if control == 0x142:
        return row - 1 if row else -1
    if control == 0x143:
        return 31 if lane >= 32 else -1
    if kind == 0x150:
        return row + amount
    return row + (at ^ amount)


def _shuffled(t: IsaTranslator, value: IrValue, sources: list[int]) -> IrValue:
    zero = t.c.zero(value.type)
    return t.c.shuffle(value, zero, [s if s >= 0 else t.lanes for s in sources])


def apply_dpp(t: IsaTranslator) -> None:
    """Move the first source across lanes, and restrict the lanes that write, as DPP16 or DPP8 says.

    A source lane is invalid if it does not exist, or does not execute and fi is 0. Its value is then 0 in
    DPP8 and with bound_ctrl; else the destination is not written. Raises `IsaError` for a first source that
    is no vector register.
    """
    c, i = t.c, t.instruction
    slots = i.opcode.operands
    where = next(k for k, slot in enumerate(slots) if slot.field == "src0")
    operand = i.operands[where]
    if not isinstance(operand, Reg) or operand.file != "v":
        raise t.error("moves a vector register only")
    lanes = t.lanes
    if i.get("dpp8"):
        picks = i.get("dpp8_lanes")
        sources = [lane // 8 * 8 + (picks >> 3 * (lane % 8) & 7) for lane in range(lanes)]
        written = -1
        bound = True
    else:
        sources = dpp_sources(i.get("dpp_ctrl"), lanes)
        written = sum(
            1 << lane for lane in range(lanes)
            if i.get("row_mask") >> lane // _ROW & 1 and i.get("bank_mask") >> lane % _ROW // 4 & 1
        )  # fmt: skip
        bound = bool(i.get("bound_ctrl"))
    value = _shuffled(t, t.vgpr(operand.index), sources)
    there = sum(1 << lane for lane, source in enumerate(sources) if source >= 0)
    valid = c.const(t.lib.mask, there)
    if not i.get("fi"):
        bits = c.mask_lanes(t.active)
        executing = c.shuffle(bits, c.zero(bits.type), [s if s >= 0 else lanes for s in sources])
        valid = c.op("and", valid, c.mask_bits(executing))
    write = c.const(t.lib.mask, written)
    if bound:
        value = c.select(c.mask_lanes(valid), value, c.zero(value.type))
    else:
        write = c.op("and", write, valid)
    t.moved(value, write)


@meaning("ds_swizzle_b32")
def _swizzle(t: IsaTranslator) -> None:
    """Take the value of another lane of the 32, or of the four; a lane that does not execute gives 0."""
    c, i = t.c, t.instruction
    d, x = i.operands
    how = i.get("offset")
    sources = []
    for lane in range(t.lanes):
        group, at = lane // 32 * 32, lane % 32
        if how & 0x8000:
            if how & 0x7F00:
                raise t.error("swizzles by FFT or rotation are not supported")
            sources.append(lane // 4 * 4 + (how >> 2 * (lane % 4) & 3))
        else:
            sources.append(group + ((at & how & 31 | how >> 5 & 31) ^ how >> 10 & 31))
    value = c.select(c.mask_lanes(t.active), t.raw(x), c.zero(t.v("i32")))
    t.write(d, _shuffled(t, value, sources))


@meaning("ds_bpermute_b32", "ds_permute_b32")
def _permute(t: IsaTranslator) -> None:
    """Pull from (bpermute), or push to (permute), a lane by its number times 4; 0 without a sender."""
    c, i = t.c, t.instruction
    d, x, y = i.operands
    offset = i.get("offset")
    byte = t.raw(x)
    index = c.op("and", c.op("lshr", c.op("add", byte, offset) if offset else byte, 2), min(t.lanes, 64) - 1)
    if t.stem == "ds_bpermute_b32":
        value = c.select(c.mask_lanes(t.active), t.raw(y), c.zero(t.v("i32")))
        group = (
            c.ints(t.v("i32"), [lane // 32 * 32 for lane in range(t.lanes)])
            if t.lanes == 64 and t.target.family != "gfx9"
            else None
        )
        if group is not None:
            index = c.op("or", c.op("and", index, 31), group)
        t.write(d, crossing.permute(t.lib, c, value, index))
        return
    t.write(d, c.call(_push(t), t.v("i32"), t.raw(y), index, t.active))


def _push(t: IsaTranslator) -> str:
    """Return the helper of ds_permute_b32: the lanes of a mask store to other lanes, the highest last."""

    def body(k: CodeBuilder, data: IrValue, where: IrValue, mask: IrValue) -> None:
        values, wanted, result = Spilled(k, data), Spilled(k, where), Spilled(k, data.type)
        with k.each_lane(mask) as lane:
            result.set(wanted.get(lane), values.get(lane))
        k.ret(result.whole())

    return t.lib.define("amd.push.32", "i32 each", "i32 each, i32 each, mask", body)


def first_active(t: IsaTranslator) -> IrValue:
    """Return the number of the lowest lane that executes, as i32; 0 if none does."""
    c = t.c
    found = crossing.first(c, t.active)
    return c.op("and", found, t.lanes - 1)


@meaning("v_readfirstlane_b32")
def _read_first(t: IsaTranslator) -> None:
    d, x = t.instruction.operands
    t.set_scalar(d, t.c.extract(t.raw(x), first_active(t)))


@meaning("v_readlane_b32")
def _read_lane(t: IsaTranslator) -> None:
    d, x, y = t.instruction.operands
    t.set_scalar(d, t.c.extract(t.raw(x), t.c.op("and", t.scalar(y), t.lanes - 1)))


@meaning("v_writelane_b32")
def _write_lane(t: IsaTranslator) -> None:
    """Write one lane, whether it executes or not."""
    d, x, y = t.instruction.operands
    if not isinstance(d, Reg):
        raise t.error("no register to write")
    lane = t.c.op("and", t.scalar(y), t.lanes - 1)
    t.set_vgpr(d.index, t.c.insert(t.vgpr(d.index), t.scalar(x), lane), every=True)


@meaning("v_permlane16_b32", "v_permlanex16_b32")
def _permute_rows(t: IsaTranslator) -> None:
    """Each lane takes a lane of its row (x: of the row beside it), by four bits of a pair of scalars."""
    c, i = t.c, t.instruction
    d, x, low, high = i.operands
    picks = c.op("or", c.resize(t.scalar(low), 64), c.op("shl", c.resize(t.scalar(high), 64), 32))
    amounts = c.ints(t.v("i64"), [4 * (lane % _ROW) for lane in range(t.lanes)])
    within = c.resize(c.op("and", c.op("lshr", c.splat(picks, t.lanes), amounts), 15), 32)
    swapped = t.stem == "v_permlanex16_b32"
    rows = c.ints(t.v("i32"), [(lane // _ROW * _ROW) ^ (_ROW if swapped else 0) for lane in range(t.lanes)])
    index = c.op("or", within, rows)
    fetch, bound = i.get("op_sel") & 1, i.get("op_sel") >> 1 & 1
    value = crossing.permute(t.lib, c, t.raw(x), index)
    if not fetch:
        one = c.select(c.mask_lanes(t.active), c.const(t.v("i32"), 1), c.zero(t.v("i32")))
        valid = c.icmp("ne", crossing.permute(t.lib, c, one, index), 0)
        value = c.select(valid, value, c.zero(value.type) if bound else t.raw(d))
    t.write(d, value)


@meaning("v_permlane64_b32")
def _swap_halves(t: IsaTranslator) -> None:
    """Exchange the halves of a wave of 64; no effect in a wave of 32."""
    d, x = t.instruction.operands
    if t.lanes == 64:
        t.write(d, t.c.shuffle(t.raw(x), None, [(lane + 32) % 64 for lane in range(64)]))


@meaning(
    "v_add_co_u32",
    "v_add_co_ci_u32",
    "v_sub_co_u32",
    "v_sub_co_ci_u32",
    "v_subrev_co_u32",
    "v_subrev_co_ci_u32",
)
def _carry(t: IsaTranslator) -> None:
    """Add or subtract, with the carry out to a mask, and for _ci_ a carry in from a mask."""
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


def _carry_wide(t: IsaTranslator, low: Carry, a: IrValue, b: IrValue) -> None:
    """Add or subtract whole 64-bit values; `low` is the instruction that computed the lower halves."""
    c, (d, carry) = t.c, t.instruction.operands[:2]
    x, y = t.known.join(c, low.a, a), t.known.join(c, low.b, b)
    total = t.known.sum(c, x, y) if low.adds else c.op("sub", x, y)
    high = c.resize(c.op("lshr", total, 32), 32)
    t.known.same(low.total, high, total)
    t.write(d, high)
    t.set_mask(carry, c.icmp("ult", total, x) if low.adds else c.icmp("ult", x, y))


@meaning("v_mad_u64_u32", "v_mad_i64_i32")
def _mad_wide(t: IsaTranslator) -> None:
    """The mask of lanes gets bit 64 of the exact sum: the carry, or for signed values the sign."""
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
def _cndmask(t: IsaTranslator) -> None:
    """Select the second source in the lanes of a mask; neg and abs act as on floats."""
    d, x, y, *mask = t.instruction.operands
    chosen = t.condition(mask[0]) if mask else t.condition(Reg("s", VCC))
    type_ = "f32" if t.stem.endswith("32") else "f16"
    signed = any(getattr(o, "neg", False) or getattr(o, "abs", False) for o in (x, y))
    kind = type_ if signed else "b" + type_[1:]
    a, b = t.source(x, kind, 0), t.source(y, kind, 1)
    t.write(d, t.c.select(chosen, b, a))


@meaning("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def _mbcnt(t: IsaTranslator) -> None:
    """Add to the second source the number of bits of a mask for lower lanes, in one half of the wave."""
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
