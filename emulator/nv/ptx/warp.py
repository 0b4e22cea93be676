"""Operations across a warp: shfl, vote, match, redux, elect, activemask. Source: PTX ISA 9.7.9.6, 9.7.13.

A block begins at such an operation (`blocks.BasicBlock.gathers`), so the lanes of its mask have converged
there. If they cannot converge, the engine reports it.

Not here: the lane arithmetic (`emulator.ir.lanes`), matrix instructions (`mma`). Next: `core`.
"""

from __future__ import annotations

from emulator.ir import lanes
from emulator.ir.vector import IrValue
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.integers import is_signed
from emulator.nv.ptx.statements import TYPES, Operand, Pair, PtxImm, PtxInstruction
from emulator.sanitizers import sanitize

FLOAT_REDUX = 100
"""The first architecture with redux of float32."""


def participants(t: PtxTranslator, operand: Operand) -> IrValue:
    """Return for each lane the mask of lanes that it works with: those in its mask that are active here.

    `operand` is the mask. Lanes may have different masks; then several groups execute the operation at once,
    independently. The sanitizer of partial barriers reports lanes of a mask that are not active.
    """
    named = t.bits(operand, 32)
    if t.wf.lib.checks.partial_barriers:
        sanitize.absent_lanes(t.wf, named, t.site())
    here = t.c.op("and", named, t.wf.uniform(t.wf.active))
    sanitize.lanes_met(t.wf, here)
    return here


@meaning("shfl")
def _shfl(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    mode = m.need("up", "down", "bfly", "idx")
    m.need("b32")
    d, x, y, z, *mask = operands(t, i, 5 if sync else 4)
    if sync:
        participants(t, mask[0])
    target, valid = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    value = t.bits(x, 32)
    c = t.c
    if isinstance(y, PtxImm) and isinstance(z, PtxImm):
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
    """Return the lane from which a lane reads in shfl, and whether that is in range.

    If not, it is the lane itself.

    `mode` is "up", "down", "bfly" or "idx"; `b` and `control` are the second and third operand (PTX ISA).
    """
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


def _source_lanes(t: PtxTranslator, mode: str, b: IrValue, control: IrValue) -> tuple[IrValue, IrValue]:
    """Return what `shuffle_source` does, for all lanes and operands that are not constants."""
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
def _vote(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    how = m.need("all", "any", "uni", "ballot")
    m.need("pred", "b32")
    d, p, *mask = operands(t, i, 3 if sync else 2)
    c = t.c
    here = participants(t, mask[0]) if sync else t.wf.uniform(t.wf.active)
    votes = c.op("and", t.wf.uniform(c.mask_bits(t.pred(p))), here)
    if how == "ballot":
        t.write(d, votes)
        return
    none, every = c.icmp("eq", votes, 0), c.icmp("eq", votes, here)
    t.write(d, {"all": every, "any": c.not_(none), "uni": c.op("or", none, every)}[how])


@meaning("activemask")
def _activemask(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("b32")
    (d,) = operands(t, i, 1)
    t.write(d, t.wf.uniform(t.wf.active))


@meaning("match")
def _match(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    how = m.need("any", "all")
    m.need("sync")
    bits = TYPES[m.type()]
    d, x, mask = operands(t, i, 3)
    here = participants(t, mask)
    c, value = t.c, t.bits(x, bits)
    same = c.op("and", lanes.match(t.wf.lib, c, value, t.wf.active), here)
    if how == "any":
        t.write(d, same)
        return
    every = c.icmp("eq", same, here)
    target, valid = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    t.write(target, c.select(every, here, c.const(here.type, 0)))
    if valid is not None:
        t.write(valid, every)


@meaning("redux")
def _redux(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("sync")
    operation = m.need("add", "min", "max", "and", "or", "xor")
    type_ = m.type()
    if type_ == "f32":
        _redux_float(t, i, m, operation)
        return
    if type_ not in (("b32",) if operation in ("and", "or", "xor") else ("u32", "s32")):
        raise t.error(f".{operation} of .{type_} is not defined")
    if operation in ("min", "max"):
        operation = ("s" if is_signed(type_) else "u") + operation
    d, x, mask = operands(t, i, 3)
    here = participants(t, mask)
    t.write(d, lanes.reduce_groups(t.wf.lib, t.c, operation, t.bits(x, 32), here, t.wf.active))


def _redux_float(t: PtxTranslator, i: PtxInstruction, m: Modifiers, operation: str) -> None:
    """Translate redux of float32, by integers in the same order; -0 is below +0.

    NaNs are ignored unless all are NaN; with .NaN one is enough for a NaN.
    """
    if t.arch < FLOAT_REDUX or operation not in ("min", "max"):
        raise t.error(f".{operation} of .f32 needs sm_{FLOAT_REDUX} and is .min or .max")
    absolute, propagates = m.flag("abs"), m.flag("NaN")
    d, x, mask = operands(t, i, 3)
    here, c = participants(t, mask), t.c
    value = t.float(x, "f32")
    if absolute:
        value = c.intrinsic("fabs", value)
    nan, bits = c.fcmp("uno", value, value), c.as_int(value)
    low, high = c.const(bits.type, -(1 << 31)), c.const(bits.type, (1 << 31) - 1)
    first, last = (low, high) if operation == "min" else (high, low)
    key = c.op("xor", bits, c.op("lshr", c.op("ashr", bits, 31), 1))
    key = c.select(nan, first if propagates else last, key)
    key = lanes.reduce_groups(t.wf.lib, c, f"s{operation}", key, here, t.wf.active)
    t.write(d, t.canonical(c.op("xor", key, c.op("lshr", c.op("ashr", key, 31), 1))))


@meaning("elect")
def _elect(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("sync")
    d, mask = operands(t, i, 2)
    if not isinstance(d, Pair):
        raise t.error("elect writes a register and a predicate")
    here = participants(t, mask)
    leader = t.c.intrinsic("cttz", here, extra=(IrValue("i1", "false"),))
    t.write(d.first, leader)
    t.write(d.second, t.c.icmp("eq", leader, t.wf.lane_id()))
