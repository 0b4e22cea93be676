"""Operations across a warp: shfl, vote, match, redux, elect, activemask. Source: PTX ISA 9.7.9.6, 9.7.13.

The lanes that a mask names must all be there: hardware would wait for them, the emulator reports the ones
that are elsewhere.
"""

from __future__ import annotations

from drivers.emu import lanes
from drivers.emu.report import ReportKind
from drivers.emu.vector import Value
from drivers.nv.emu.ptx_core import Modifiers, Translator, meaning, operands
from drivers.nv.emu.ptx_int import is_signed
from drivers.nv.emu.ptx_syntax import TYPES, Imm, Instruction, Operand, Pair


def participants(t: Translator, operand: Operand) -> Value:
    """Return the lanes that take part, checking that all named live ones are here."""
    c = t.c
    if isinstance(operand, Imm):
        named = Value("i32", str(operand.value - (1 << 32) if operand.value >> 31 == 1 else operand.value))
    else:
        given = t.bits(operand, 32)
        named = lanes.reduce(c, "or", given, t.wf.active_lanes, 0)
    active = t.wf.active
    missing = c.op("and", c.op("and", named, t.wf.live), c.not_(active))
    with c.when(c.icmp("ne", missing, 0), likely=False), c.when(c.icmp("ne", active, 0)):
        t.wf.report(ReportKind.ABSENT_LANE, t.site(), active, other=c.resize(missing, 64))
    return c.op("and", named, active)


@meaning("shfl")
def _shfl(t: Translator, i: Instruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    mode = m.need("up", "down", "bfly", "idx")
    m.need("b32")
    d, x, y, z, *mask = operands(t, i, 5 if sync else 4)
    if sync:
        participants(t, mask[0])
    target, valid = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    value = t.bits(x, 32)
    c = t.c
    if isinstance(y, Imm) and isinstance(z, Imm):
        rows = [shuffle_source(mode, lane, y.value, z.value) for lane in range(32)]
        t.write(target, c.shuffle(value, None, [source for source, _ in rows]))
        if valid is not None:
            t.write(valid, c.ints(t.v("i1"), [int(good) for _, good in rows]))
        return
    index, good = _source_lanes(t, mode, t.bits(y, 32), t.bits(z, 32))
    t.write(target, lanes.permute(t.wf.lib, c, value, index))
    if valid is not None:
        t.write(valid, good)


def shuffle_source(mode: str, lane: int, b: int, control: int) -> tuple[int, bool]:
    """Return where a lane reads from, and whether that is in range."""
    clamp, segment = control & 31, control >> 8 & 31
    highest = (lane & segment) | (clamp & ~segment & 31)
    b &= 31
    source = {
        "up": lane - b,
        "down": lane + b,
        "bfly": lane ^ b,
        "idx": (lane & segment) | (b & ~segment & 31),
    }[mode]
    good = source >= highest if mode == "up" else source <= highest
    return (source if good else lane), good


def _source_lanes(t: Translator, mode: str, b: Value, control: Value) -> tuple[Value, Value]:
    c, lane = t.c, t.wf.lane_id()
    b = c.op("and", b, 31)
    clamp, segment = c.op("and", control, 31), c.op("and", c.op("lshr", control, 8), 31)
    outside = c.op("and", c.not_(segment), 31)
    lowest = c.op("and", segment, lane)
    highest = c.op("or", lowest, c.op("and", clamp, outside))
    if mode == "up":
        source = c.op("sub", lane, b)
        good = c.icmp("sge", source, highest)
    else:
        source = {
            "down": lambda: c.op("add", lane, b),
            "bfly": lambda: c.op("xor", lane, b),
            "idx": lambda: c.op("or", lowest, c.op("and", b, outside)),
        }[mode]()
        good = c.icmp("sle", source, highest)
    return c.select(good, source, lane), good


@meaning("vote")
def _vote(t: Translator, i: Instruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    how = m.need("all", "any", "uni", "ballot")
    m.need("pred", "b32")
    d, p, *mask = operands(t, i, 3 if sync else 2)
    here = participants(t, mask[0]) if sync else t.wf.active
    c = t.c
    votes = c.op("and", c.mask_bits(t.pred(p)), here)
    if how == "ballot":
        t.write(d, t.wf.uniform(votes))
        return
    none, every = c.icmp("eq", votes, 0), c.icmp("eq", votes, here)
    result = {"all": every, "any": c.not_(none), "uni": c.op("or", none, every)}[how]
    t.write(d, t.wf.uniform(result))


@meaning("activemask")
def _activemask(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.need("b32")
    (d,) = operands(t, i, 1)
    t.write(d, t.wf.uniform(t.wf.active))


@meaning("match")
def _match(t: Translator, i: Instruction, m: Modifiers) -> None:
    how = m.need("any", "all")
    m.need("sync")
    bits = TYPES[m.type()]
    d, x, mask = operands(t, i, 3)
    here = participants(t, mask)
    c, value = t.c, t.bits(x, bits)
    if how == "any":
        t.write(d, lanes.match(t.wf.lib, c, value, here))
        return
    first = c.op("and", lanes.first(c, here), 31)
    same = c.mask_bits(c.icmp("eq", value, t.wf.uniform(c.extract(value, first))))
    every = c.icmp("eq", c.op("and", same, here), here)
    target, valid = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    t.write(target, t.wf.uniform(c.select(every, here, Value("i32", "0"))))
    if valid is not None:
        t.write(valid, t.wf.uniform(every))


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


@meaning("redux")
def _redux(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.need("sync")
    operation = m.need("add", "min", "max", "and", "or", "xor")
    type_ = m.type()
    if type_ not in ("u32", "s32", "b32"):
        raise t.error(f"redux of .{type_} is not supported")
    if operation in ("min", "max"):
        operation = ("s" if is_signed(type_) else "u") + operation
    d, x, mask = operands(t, i, 3)
    here = participants(t, mask)
    total = lanes.reduce(t.c, operation, t.bits(x, 32), t.c.mask_lanes(here), _NEUTRAL[operation])
    t.write(d, t.wf.uniform(total))


@meaning("elect")
def _elect(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.need("sync")
    d, mask = operands(t, i, 2)
    if not isinstance(d, Pair):
        raise t.error("elect writes a register and a predicate")
    here = participants(t, mask)
    leader = t.wf.uniform(lanes.first(t.c, here))
    t.write(d.first, leader)
    t.write(d.second, t.c.icmp("eq", leader, t.wf.lane_id()))
