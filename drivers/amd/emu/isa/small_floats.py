"""Vector conversions between f32 and 8-bit floats: of OCP on gfx12; without infinities and -0 on gfx9.

f32 is rounded to nearest even. What overflows is infinite, or NaN in a format without infinities. Where
FP16_OVFL is set it is the largest finite value, unless the source is infinite. There is one NaN.
Sources: OCP 8-bit Floating Point Specification; LLVM's AMDGPUUsage, COMPUTE_PGM_RSRC1.FP16_OVFL;
docs/sources-amd.md, "overflow under FP16_OVFL".

Not here: rounding by random bits (`v_cvt_sr_*`), which is not supported; the modes of a kernel (`modes`).
Next: `matrix_sums`, the value of an 8-bit float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from drivers.amd.emu.isa.matrix_sums import small_float
from drivers.amd.emu.isa.meanings import LANEWISE, MEANINGS, Lanewise
from drivers.amd.emu.isa.modes import SATURATES
from drivers.amd.emu.isa.operands import Reg
from drivers.emu.simt import numeric
from drivers.emu.simt.ir_types import like

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value

_EXPONENT: Final = {"fp8": (4, 3), "bf8": (5, 2)}
"""Bits of exponent and mantissa."""
_LARGEST: Final = {"fp8": 0x7E, "bf8": 0x7B}
"""The largest finite values of OCP; without infinities it is 0x7f."""
_INFINITE: Final = {"fp8": 0x7F, "bf8": 0x7C}
_NAN, _NAN_FNUZ = 0x7F, 0x80


def _fnuz(t: Translator) -> bool:
    return t.target.family == "gfx9"


def _byte(t: Translator, value: Value, type_: str) -> Value:
    """Return f32 as 8-bit floats, i16 a lane."""
    c, fnuz = t.c, _fnuz(t)
    nan = c.fcmp("uno", value, value)
    infinite = c.fcmp("oeq", c.intrinsic("fabs", value), c.fconst(value.type, float("inf")))
    beyond = _NAN_FNUZ if fnuz else _INFINITE[type_]
    finite = (0x7F if fnuz else _LARGEST[type_]) if t.modes & SATURATES else beyond
    scaled = c.op("fmul", value, c.fconst(value.type, 2.0)) if fnuz else value  # its bias is one more
    bits = numeric.small_float(c, scaled, *_EXPONENT[type_], "rn", largest=finite)
    if fnuz:
        bits = c.select(c.icmp("eq", c.op("and", bits, 0x7F), 0), _overflown(t, bits, scaled), bits)
    sign = c.op("and", c.resize(c.op("lshr", c.as_int(value), 24), 16), 0 if fnuz else 0x80)
    bits = c.select(infinite, c.op("or", sign, beyond), bits)
    return c.select(nan, c.const(bits.type, _NAN_FNUZ if fnuz else _NAN), bits)


def _overflown(t: Translator, bits: Value, scaled: Value) -> Value:
    """Return 0x80, NaN, for large values and 0 for others: where there is no -0."""
    c = t.c
    large = c.fcmp("ogt", c.intrinsic("fabs", scaled), c.fconst(scaled.type, 1.0))
    return c.select(large, c.const(bits.type, _NAN_FNUZ), c.const(bits.type, 0))


def _packed(t: Translator, a: Value, b: Value, *, type_: str) -> Value:
    """Two 8-bit floats, the first in the lower byte."""
    name = f"to.{type_}.{t.target.family}.{t.modes & SATURATES}"
    low, high = (t.called(name, like(v.type, "i16"), lambda t, x: _byte(t, x, type_), v) for v in (a, b))
    return t.c.op("or", low, t.c.op("shl", high, 8))


def _value(t: Translator, word: Value, at: int, type_: str) -> Value:
    """Return byte number `at` of a register as f32."""
    c = t.c
    byte = c.op("and", c.op("lshr", word, 8 * at) if at else word, 0xFF)

    def compute(t: Translator, bits: Value) -> Value:
        return small_float(t.c, bits, type_, fnuz=_fnuz(t))

    return t.called(f"of.{type_}.{t.target.family}", like(word.type, "float"), compute, byte)


def _single(t: Translator, a: Value, *, type_: str) -> Value:
    """One byte; of gfx12, op_sel names it, its bits in reverse order."""
    select = t.instruction.get("op_sel")
    return _value(t, a, (select & 1) << 1 | select >> 1 & 1, type_)


def _pair(t: Translator) -> None:
    """Write two registers from the bytes of one half of a register."""
    i, type_ = t.instruction, t.stem.rpartition("_")[2]
    d, x = i.operands
    if not isinstance(d, Reg) or i.get("clamp") or i.get("omod") or (i.get("sdwa") and i.get("dst_sel") != 6):
        raise t.error("a modifier of the results of this conversion is not supported")
    word, first = t.source(x, "b32"), 2 * (i.get("op_sel") & 1)
    values = [t.c.as_int(t.as_result(_value(t, word, first + n, type_))) for n in range(2)]
    for n, value in enumerate(values):
        t.write(replace(d, index=d.index + n, count=1), value)


for _type in ("fp8", "bf8"):
    LANEWISE[f"v_cvt_pk_{_type}_f32"] = Lanewise(
        lambda t, a, b, _t=_type: _packed(t, a, b, type_=_t), "b16", ("f32", "f32")
    )
    LANEWISE[f"v_cvt_f32_{_type}"] = Lanewise(lambda t, a, _t=_type: _single(t, a, type_=_t), "f32", ("b32",))
    MEANINGS[f"v_cvt_pk_f32_{_type}"] = _pair
