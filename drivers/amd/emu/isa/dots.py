"""Sums of products of the parts of registers: two halves, four bytes.

Not here: whole matrices (`matrix`). Next: `meanings`, how an operation is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import LANEWISE, Lanewise, lanewise, meaning
from drivers.amd.emu.isa.vector_floats import INEXACT

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value


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
