"""Operations on halves and pairs of registers, and on a mix of halves and floats; sums of products of their parts.

Not here: the arithmetic of a lane (`vector_floats`), whole matrices (`matrix`). Next: `meanings`, how an operation
is defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import LANEWISE, Lanewise, lanewise, meaning
from drivers.amd.emu.isa.operands import Imm, Reg
from drivers.amd.emu.isa.vector_floats import INEXACT, fused, least, most
from drivers.emu.simt import numeric

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.emu.isa.operands import Operand
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value

_SCALARS = 128
"""Scalar registers; numbers above name special values."""


def _packed_float(stem: str, count: int, compute: Callable[..., Value]) -> None:
    PACKED[f"v_pk_{stem}_f16"] = (compute, "f16", count)


PACKED: dict[str, tuple[Callable[..., Value], str, int]] = {}
"""Operations on both halves of a register: what to compute, the type of a half, how many sources."""
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


def run_packed(t: Translator) -> None:
    """Write the code of an operation on halves: op_sel says which half of a source goes where."""
    c, i = t.c, t.instruction
    compute, type_, count = PACKED[t.stem]
    d, *rest = i.operands
    if len(rest) != count:
        raise t.error(f"{len(rest)} sources where {count} are known")
    halves = []
    for place, signs in ((0, "neg"), (1, "neg_hi")):
        select = i.get("op_sel" if place == 0 else "op_sel_hi")
        values = []
        for number, operand in enumerate(rest):
            whole = _halves(t, operand, type_)
            half = c.resize(c.op("lshr", whole, 16) if select >> number & 1 else whole, 16)
            if type_[0] == "f":
                half = c.as_float(half)
            if i.get(signs) >> number & 1:
                if type_[0] != "f":
                    raise t.error("sign of an integer operand")
                half = c.let(half.type, f"fneg {half}")
            values.append(t.as_source(half) if type_[0] == "f" else half)
        value = compute(t, *values)
        if type_[0] == "f":
            value = t.saturated(value, values)
            if i.get("clamp"):
                value = most(t, least(t, value, c.fconst(value.type, 1.0)), c.fconst(value.type, 0.0))
            value = c.as_int(t.as_result(value))
        halves.append(c.resize(value, 32))
    t.write(d, c.op("or", halves[0], c.op("shl", halves[1], 16)))


def _halves(t: Translator, operand: Operand, type_: str) -> Value:
    """Return both halves of a source. A float's inline constant is an f16 in the low one, with 0 in the high one."""
    if type_ == "f16" and isinstance(operand, Imm) and not operand.literal:
        return t.c.const(t.v("i32"), operand.half)
    return t.raw(operand)


@meaning("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32")
def _packed_pairs(t: Translator) -> None:
    """gfx9: the same operation on two registers."""
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


def _of_pair(t: Translator, operand: Operand, which: int) -> Value:
    """Return one of two registers; a constant is both."""
    if not isinstance(operand, Reg):
        return t.raw(operand)
    if operand.index + which >= _SCALARS and operand.file == "s":
        return t.c.resize(t.c.op("lshr", t.raw(operand, 64), 32 * which), 32)
    return t.raw(replace(operand, index=operand.index + which, count=1))


@meaning("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _mix(t: Translator) -> None:
    """Multiply and add; each source is an f32 or a half that is widened, the result an f32 or one half."""
    c, i = t.c, t.instruction
    d, *rest = i.operands
    values = []
    for number, operand in enumerate(rest):
        small = i.get("op_sel_hi") >> number & 1
        whole = t.raw(operand, 32)
        if small:
            from_half = t.raw(operand, 16) if not isinstance(operand, Reg) else c.resize(
                c.op("lshr", whole, 16) if i.get("op_sel") >> number & 1 else whole, 16
            )  # fmt: skip
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
    wide = numeric.odd_float(
        c,
        numeric.odd_sum(
            c,
            c.op("fmul", *(c.cast("fpext", v, "double") for v in values[:2])),
            c.cast("fpext", values[2], "double"),
        ),
    )
    value = t.saturated(c.cast("fptrunc", wide, "half"), values)
    if i.get("clamp"):
        value = most(t, least(t, value, c.fconst(value.type, 1.0)), c.fconst(value.type, 0.0))
    bits = c.resize(c.as_int(value), 32)
    old = t.raw(d)
    if t.stem.endswith("hi_f16"):
        t.write(d, c.op("or", c.op("and", old, 0xFFFF), c.op("shl", bits, 16)))
    else:
        t.write(d, c.op("or", c.op("and", old, 0xFFFF_0000), bits))


def _dot_halves(t: Translator, a: Value, b: Value, addend: Value) -> Value:
    """Sum of the products of both halves in f32."""
    c = t.c
    total = addend
    for shift in (0, 16):
        x, y = (
            c.cast("fpext", c.as_float(c.resize(c.op("lshr", v, shift) if shift else v, 16)), "float")
            for v in (a, b)
        )
        total = c.intrinsic("fma", x, y, total)
    return total


LANEWISE["v_dot2_f32_f16"] = Lanewise(_dot_halves, "f32", ("b32", "b32", "f32"))
LANEWISE["v_dot2acc_f32_f16"] = Lanewise(_dot_halves, "f32", ("b32", "b32", "f32"), accumulates=True)
INEXACT |= {"v_dot2_f32_f16", "v_dot2acc_f32_f16"}


@lanewise("v_dot4_u32_u8", "u32", "u32", "u32", "u32")
def _dot4_u8(t: Translator, a: Value, b: Value, total: Value) -> Value:
    c = t.c
    for k in range(4):
        x, y = (c.op("and", c.op("lshr", v, 8 * k) if k else v, 0xFF) for v in (a, b))
        total = c.op("add", total, c.op("mul", x, y))
    return total


@meaning("v_dot4_i32_iu8", "v_dot4_i32_i8")
def _dot4_i8(t: Translator) -> None:
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
