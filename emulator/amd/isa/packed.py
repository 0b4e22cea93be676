"""Packed operations: v_pk_* on both halves or on pairs of registers, v_fma_mix, and dot products (v_dot2, v_dot4).

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapter of VOP3P.

Not here: the arithmetic of a lane (`vector_floats`), matrices (`matrix`). Next: `meanings`, how an operation is
defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Imm, Reg
from emulator.amd.isa.meanings import lanewise, meaning
from emulator.amd.isa.vector_floats import INEXACT, fused, least, most

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.amd.isa.instruction import Operand
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

_SCALARS = 128
"""The number of scalar registers; encodings from here on name special values."""
_MINUS = 0xFFFF
"""The upper half of the bits of a negative inline integer."""


def _packed_float(stem: str, count: int, compute: Callable[..., IrValue]) -> None:
    PACKED[f"v_pk_{stem}_f16"] = (compute, "f16", count)


PACKED: dict[str, tuple[Callable[..., IrValue], str, int]] = {}
"""Name of an operation on both halves of a register -> what computes a half, its type, number of sources."""
for _stem, _ir in (("add", "fadd"), ("mul", "fmul")):
    _packed_float(_stem, 2, lambda t, a, b, _ir=_ir: t.c.op(_ir, a, b))
_packed_float("fma", 3, fused)
_packed_float("min", 2, least)
_packed_float("max", 2, most)
for _sign, _of in (("i", "s"), ("u", "u")):
    for _stem, _ir in (("min", f"{_of}min"), ("max", f"{_of}max")):
        PACKED[f"v_pk_{_stem}_{_sign}16"] = (
            lambda t, a, b, _ir=_ir: t.c.intrinsic(_ir, a, b),
            f"{_sign}16",
            2,
        )
    for _stem in ("add", "sub"):
        PACKED[f"v_pk_{_stem}_{_sign}16"] = (
            lambda t, a, b, _s=_stem, _o=_of: t.c.intrinsic(f"{_o}{_s}.sat", a, b) if t.instruction.get("clamp") else t.c.op(_s, a, b),
            f"{_sign}16", 2,
        )  # fmt: skip
    PACKED[f"v_pk_mad_{_sign}16"] = (
        lambda t, a, b, d: t.c.op("add", t.c.op("mul", a, b), d),
        f"{_sign}16",
        3,
    )
PACKED["v_pk_mul_lo_u16"] = (lambda t, a, b: t.c.op("mul", a, b), "u16", 2)
for _stem, _ir, _type in (("lshlrev", "shl", "b16"), ("lshrrev", "lshr", "b16"), ("ashrrev", "ashr", "i16")):
    PACKED[f"v_pk_{_stem}_{_type}"] = (
        lambda t, a, b, _ir=_ir: t.c.op(_ir, b, t.c.op("and", a, 15)),
        _type,
        2,
    )


def run_packed(t: IsaTranslator) -> None:
    """Write the code of an operation of `PACKED`; op_sel selects the halves of the sources.

    Raises `IsaError` for another number of sources, or clamp of an integer operation other than add and sub.
    """
    c, i = t.c, t.instruction
    compute, type_, count = PACKED[t.stem]
    d, *rest = i.operands
    if len(rest) != count:
        raise t.error(f"wanted {count} sources, saw {len(rest)}")
    if i.get("clamp") and type_[0] != "f" and not t.stem.startswith(("v_pk_add", "v_pk_sub")):
        raise t.error("clamp of this packed operation is not supported")
    halves = []
    for place in (0, 1):
        values = [part_of(t, number, operand, type_, place) for number, operand in enumerate(rest)]
        value = compute(t, *values)
        if type_[0] == "f":
            value = c.as_int(t.as_result(t.clamped(t.saturated(value, values))))
        halves.append(c.resize(value, 32))
    t.write(d, c.op("or", halves[0], c.op("shl", halves[1], 16)))


def part_of(t: IsaTranslator, number: int, operand: Operand, type_: str, place: int) -> IrValue:
    """Return the half of a source for the low (`place` 0) or high (1) half of the result, negated if asked.

    `number` is the source's. Raises `IsaError` for neg or abs of the whole operand, and for neg of an integer.
    """
    c, i = t.c, t.instruction
    select = place
    if i.opcode.form.name == "VOP3P":
        select = i.get("op_sel_hi" if place else "op_sel") >> number & 1
    if isinstance(operand, (Reg, Imm)) and (operand.neg or operand.abs):
        raise t.error("one sign of a pair of halves is not documented")
    whole = _halves(t, operand, type_)
    half = c.resize(c.op("lshr", whole, 16) if select else whole, 16)
    sign = i.get("neg_hi" if place else "neg") >> number & 1
    if type_[0] != "f":
        if sign:
            raise t.error("sign of an integer operand")
        return half
    half = c.as_float(half)
    return t.as_source(c.let(half.type, f"fneg {half}") if sign else half)


def _halves(t: IsaTranslator, operand: Operand, type_: str) -> IrValue:
    """Return both halves of a source. An inline float is an f16 and 0, an inline integer has 32 bits."""
    if (
        type_ == "f16"
        and isinstance(operand, Imm)
        and not operand.literal
        and 0 < operand.bits >> 16 < _MINUS
    ):
        return t.c.const(t.v("i32"), operand.half)
    return t.raw(operand)


@meaning("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32")
def _packed_pairs(t: IsaTranslator) -> None:
    """gfx9: an operation on two 32-bit values in a pair of registers."""
    c, i = t.c, t.instruction
    d, *rest = i.operands
    if not isinstance(d, Reg) or i.get("clamp"):
        raise t.error("clamp of a packed pair is not supported")
    results = []
    for place, signs in ((0, "neg"), (1, "neg_hi")):
        # v_pk_mov_b32: D.lo = S0[OPSEL[0]], D.hi = S1[OPSEL[1]] (CDNA3 ISA); op_sel_hi has no meaning
        select = i.get("op_sel" if place == 0 or t.stem == "v_pk_mov_b32" else "op_sel_hi")
        values = []
        for number, operand in enumerate(rest):
            part = _of_pair(t, operand, select >> number & 1)
            if t.stem.endswith("f32"):
                part = c.as_float(part)
                if i.get(signs) >> number & 1:
                    part = c.let(part.type, f"fneg {part}")
                part = t.as_source(part)
            values.append(part)
        if t.stem == "v_pk_mov_b32":
            value = values[place]
        elif "fma" in t.stem:
            value = c.intrinsic("fma", *values)
        else:
            value = c.op("fmul" if "mul" in t.stem else "fadd", *values)
        results.append(c.as_int(t.as_result(value)) if t.stem.endswith("f32") else value)
    t.write(d, t.known.join(c, results[0], results[1]))


def _of_pair(t: IsaTranslator, operand: Operand, which: int) -> IrValue:
    """Return the low (`which` 0) or high (1) register of a pair; a constant is both."""
    if not isinstance(operand, Reg):
        return t.raw(operand)
    if operand.index + which >= _SCALARS and operand.file == "s":
        return t.c.resize(t.c.op("lshr", t.raw(operand, 64), 32 * which), 32)
    return t.raw(replace(operand, index=operand.index + which, count=1))


@meaning("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _mix(t: IsaTranslator) -> None:
    """Fused multiply and add; each source is an f32 or a widened f16, the result an f32 or one f16 half."""
    c, i = t.c, t.instruction
    d, *rest = i.operands
    values = []
    for number, operand in enumerate(rest):
        small = i.get("op_sel_hi") >> number & 1
        whole = t.raw(operand, 32)
        if small:
            word = isinstance(operand, Reg) or (isinstance(operand, Imm) and operand.literal)
            half = c.op("lshr", whole, 16) if word and i.get("op_sel") >> number & 1 else whole
            from_half = c.resize(half, 16) if word else t.raw(operand, 16)
            value = c.cast("fpext", c.as_float(from_half), "float")
        else:
            value = c.as_float(whole)
        if i.get("abs") >> number & 1:
            value = c.intrinsic("fabs", value)
        if i.get("neg") >> number & 1:
            value = c.let(value.type, f"fneg {value}")
        values.append(value)
    if t.stem == "v_fma_mix_f32":
        t.finish(d, c.intrinsic("fma", *values))
        return
    # the sum is an f32 before it is a half (ISA documents: f32_to_f16(fma(...)))
    value = t.clamped(t.saturated(c.cast("fptrunc", c.intrinsic("fma", *values), "half"), values))
    bits = c.resize(c.as_int(value), 32)
    old = t.raw(d)
    if t.stem.endswith("hi_f16"):
        t.write(d, c.op("or", c.op("and", old, 0xFFFF), c.op("shl", bits, 16)))
    else:
        t.write(d, c.op("or", c.op("and", old, 0xFFFF_0000), bits))


@meaning("v_dot2_f32_f16", "v_dot2acc_f32_f16")
def _dot_halves(t: IsaTranslator) -> None:
    """Sum of the products of both halves, in f32; v_dot2acc adds to its destination."""
    c = t.c
    d, x, y, *more = t.instruction.operands
    total = t.source(more[0] if more else d, "f32")
    if t.instruction.get("neg") >> 2 & 1:
        total = c.let(total.type, f"fneg {total}")
    for place in (0, 1):
        a, b = (c.cast("fpext", part_of(t, n, o, "f16", place), "float") for n, o in enumerate((x, y)))
        total = c.intrinsic("fma", a, b, total)
    t.finish(d, total)


INEXACT |= {"v_dot2_f32_f16", "v_dot2acc_f32_f16"}


@lanewise("v_dot4_u32_u8", "u32", "u32", "u32", "u32")
def _dot4_u8(t: IsaTranslator, a: IrValue, b: IrValue, total: IrValue) -> IrValue:
    c = t.c
    for k in range(4):
        x, y = (c.op("and", c.op("lshr", v, 8 * k) if k else v, 0xFF) for v in (a, b))
        total = c.op("add", total, c.op("mul", x, y))
    return total


@meaning("v_dot4_i32_iu8", "v_dot4_i32_i8")
def _dot4_i8(t: IsaTranslator) -> None:
    """Sum of the products of four bytes and an addend; for iu8, neg says which source is signed."""
    c, i = t.c, t.instruction
    if i.get("clamp"):
        raise t.error("clamp is not supported")
    d, x, y, z = i.operands
    signed = (True, True) if t.stem.endswith("_i8") else (bool(i.get("neg") & 1), bool(i.get("neg") & 2))
    a, b, total = t.raw(x), t.raw(y), t.raw(z)
    for k in range(4):
        parts = [
            c.resize(c.resize(c.op("lshr", v, 8 * k) if k else v, 8), 32, signed=s)
            for v, s in ((a, signed[0]), (b, signed[1]))
        ]
        total = c.op("add", total, c.op("mul", *parts))
    t.write(d, total)
