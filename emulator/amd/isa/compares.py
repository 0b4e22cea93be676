"""Comparisons: vector comparisons write a mask of lanes to VCC, a scalar register or EXEC; scalar ones write SCC.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapters of VOPC, SOPC and SOPK. Not here: selections by a mask
(`lanes`), minima and maxima (`vector_floats`, `vector_integers`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import EXEC, Imm, Reg
from emulator.amd.isa.meanings import MEANINGS
from emulator.ir.ir_text import bits_of

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Operand
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

# Condition in the name of an operation -> LLVM's predicate.
_FLOAT = {
    "f": "false", "lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord", "u": "uno",
    "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge", "t": "true",
}  # fmt: skip
_INTEGER = {"lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "ne": "ne", "lg": "ne", "ge": "ge"}
_PATTERN = re.compile(r"v_cmp(x?)_(\w+)_([fiu])(16|32|64)")


def _predicate(how: str, kind: str) -> str:
    plain = _INTEGER[how]
    return plain if plain in ("eq", "ne") else ("s" if kind == "i" else "u") + plain


def _compare(t: IsaTranslator) -> None:
    """v_cmp_* and v_cmpx_* of integers and floats. A comparison of two scalars is computed once, for all lanes."""
    match = _PATTERN.fullmatch(t.stem)
    assert match is not None
    c, i, how, kind = t.c, t.instruction, match[2], match[3]
    type_ = kind + match[4]
    x, y = i.operands[-2:]
    if i.get("clamp"):
        raise t.error("clamp of a comparison (a signalling one) is not supported")
    if kind != "f" and match[4] != "16" and how in _INTEGER and _is_scalar(t, x) and _is_scalar(t, y):
        bits = int(match[4])
        once = c.icmp(_predicate(how, kind), t.scalar(x, bits), t.scalar(y, bits))
        _deliver_bits(t, c.resize(once, t.lanes, signed=True), executes=bool(match[1]))
        return
    a, b = t.source(x, type_, 0), t.source(y, type_, 1)
    if how in ("t", "f") and kind != "f":
        lanes = c.const(t.v("i1"), -1 if how == "t" else 0)
    elif kind == "f":
        lanes = c.fcmp(_FLOAT[how], a, b)
    else:
        lanes = c.icmp(_predicate(how, kind), a, b)
    _deliver(t, lanes, executes=bool(match[1]))


def _deliver(t: IsaTranslator, lanes: IrValue, *, executes: bool) -> None:
    """Write a mask to the destination; if `executes` (v_cmpx) to EXEC, on gfx9 to both."""
    i = t.instruction
    if not executes or t.target.family == "gfx9":
        t.set_mask(i.operands[0], lanes)
    if executes:
        bits = t.c.op("and", t.c.mask_bits(lanes), t.active)
        t.set_scalar(Reg("s", EXEC, t.lanes // 32), bits)


def _is_scalar(t: IsaTranslator, operand: Operand) -> bool:
    """Return whether an operand has one value for all lanes, the same that a scalar instruction would read."""
    if isinstance(operand, Reg):
        return operand.file == "s" and not t.instruction.get("sdwa")
    return isinstance(operand, Imm) and not operand.literal


def _deliver_bits(t: IsaTranslator, bits: IrValue, *, executes: bool) -> None:
    """Write a mask as `_deliver` does, from an integer with one bit for each lane."""
    bits = t.c.op("and", bits, t.active)
    if not executes or t.target.family == "gfx9":
        t.set_scalar(t.instruction.operands[0], bits)
    if executes:
        t.set_scalar(Reg("s", EXEC, t.lanes // 32), bits)


def classified(t: IsaTranslator, a: IrValue, wanted: IrValue) -> IrValue:
    """Return the lanes in which a float belongs to one of the classes in `wanted`, a mask of ten bits.

    From bit 0: signalling NaN, quiet NaN, -infinity, -normal, -subnormal, -0, +0, +subnormal, +normal, +infinity.
    """
    c, bits = t.c, bits_of(a.type)
    integers = c.as_int(a)
    negative = c.icmp("slt", integers, 0)
    size = c.intrinsic("fabs", a)
    smallest = c.fconst(a.type, {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[bits])
    nan, infinite = c.fcmp("uno", a, a), c.fcmp("oeq", size, c.fconst(a.type, math.inf))
    zero, tiny = c.fcmp("oeq", a, c.fconst(a.type, 0.0)), c.fcmp("olt", size, smallest)
    quiet = c.icmp("ne", c.op("and", integers, 1 << {16: 9, 32: 22, 64: 51}[bits]), 0)
    number = c.const(t.v("i32"), 8)  # positive normal
    for lanes, plus in ((tiny, 7), (zero, 6), (infinite, 9)):
        number = c.select(lanes, c.const(number.type, plus), number)
    below = c.const(t.v("i32"), 3)
    for lanes, minus in ((tiny, 4), (zero, 5), (infinite, 2)):
        below = c.select(lanes, c.const(number.type, minus), below)
    number = c.select(negative, below, number)
    number = c.select(nan, c.select(quiet, c.const(number.type, 1), c.const(number.type, 0)), number)
    return c.icmp("ne", c.op("and", c.op("lshr", wanted, number), 1), 0)


def _classify(t: IsaTranslator) -> None:
    """v_cmp_class_* and v_cmpx_class_*: the second source has the mask of classes."""
    match = re.fullmatch(r"v_cmp(x?)_class_f(16|32|64)", t.stem)
    assert match is not None
    x, y = t.instruction.operands[-2:]
    wanted = t.source(y, "b32", 1) if match[2] != "16" else t.c.resize(t.source(y, "b16", 1), 32)
    _deliver(t, classified(t, t.source(x, f"f{match[2]}"), wanted), executes=bool(match[1]))


for _x in ("", "x"):
    for _bits in ("16", "32", "64"):
        MEANINGS[f"v_cmp{_x}_class_f{_bits}"] = _classify
        for _how in _FLOAT:
            MEANINGS[f"v_cmp{_x}_{_how}_f{_bits}"] = _compare
        for _how in (*_INTEGER, "t", "f"):
            for _kind in "iu":
                MEANINGS[f"v_cmp{_x}_{_how}_{_kind}{_bits}"] = _compare


def _compare_scalar(t: IsaTranslator) -> None:
    """s_cmp_* and s_cmpk_* of integers; the 16-bit constant of a signed s_cmpk is sign-extended."""
    match = re.fullmatch(r"s_cmpk?_(\w+)_([iu])(32|64)", t.stem)
    assert match is not None
    x, y = t.instruction.operands
    bits = int(match[3])
    a, b = t.scalar(x, bits), t.scalar(y, bits)
    if t.stem.startswith("s_cmpk"):
        value = t.instruction.get("simm16")
        b = t.c.const("i32", value - 0x10000 if match[2] == "i" and value >> 15 else value)
    t.set_scc(t.c.icmp(_predicate(match[1], match[2]), a, b))


for _how in _INTEGER:
    for _kind in "iu":
        for _bits in ("32", "64"):
            MEANINGS[f"s_cmp_{_how}_{_kind}{_bits}"] = _compare_scalar
        MEANINGS[f"s_cmpk_{_how}_{_kind}32"] = _compare_scalar


def _compare_scalar_float(t: IsaTranslator) -> None:
    """s_cmp_* of floats, on gfx11 and gfx12; 16-bit values are the low halves of registers."""
    match = re.fullmatch(r"s_cmp_(\w+)_f(16|32)", t.stem)
    assert match is not None
    c, bits = t.c, int(match[2])
    words = [
        c.const("i16", o.half) if bits == 16 and isinstance(o, Imm) else c.resize(t.scalar(o), bits)
        for o in t.instruction.operands
    ]
    t.set_scc(c.fcmp(_FLOAT[match[1]], *(t.as_source(c.as_float(word)) for word in words)))


for _how in _FLOAT:
    for _bits in ("16", "32"):
        MEANINGS[f"s_cmp_{_how}_f{_bits}"] = _compare_scalar_float
