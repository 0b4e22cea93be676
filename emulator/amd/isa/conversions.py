"""Vector conversions (v_cvt_*): between integers and floats, between widths, and of 8-bit floats.

8-bit floats are those of OCP on gfx12 and gfx950; on gfx942 they have neither infinities nor -0. f32 is rounded to nearest even.
A value that overflows becomes infinite, or NaN in a format without infinities. Under FP16_OVFL it becomes the
largest finite value, unless the source is infinite. All NaNs give one NaN.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapter of vector instructions; OCP 8-bit Floating Point Specification;
LLVM's AMDGPUUsage, COMPUTE_PGM_RSRC1.FP16_OVFL; docs/sources-amd.md, "overflow under FP16_OVFL".

Not here: conversions of the scalar unit (`scalars`), arithmetic (`vector_floats`, `vector_integers`), modes
(`modes`). Stochastic rounding (`v_cvt_sr_*`) is not supported. Next: `meanings`, how an operation is defined;
`emulator.ir.numeric`, the rounding; `matrix_sums`, the value of an 8-bit float.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import Reg
from emulator.amd.isa.matrix_sums import small_float
from emulator.amd.isa.meanings import LANEWISE, MEANINGS, Lanewise, lanewise
from emulator.amd.isa.modes import SATURATES
from emulator.amd.isa.values import FLOATS
from emulator.ir import numeric
from emulator.ir.ir_text import like, mangle

if TYPE_CHECKING:
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue


def _to_integer(name: str, source: str, to: str, rounding: str = "") -> None:
    """Register a conversion that truncates, or applies `rounding` first; it saturates, and a NaN becomes 0.

    `rounding` is "" or "floor", LLVM's intrinsic, or "nearest": floor(a + 0.5), as the ISA defines it.
    """

    def compute(t: IsaTranslator, a: IrValue) -> IrValue:
        c = t.c
        if source == "f16":  # LLVM 22's own conversion to i16 makes NaN -0x8000 on hosts with AVX512-FP16
            a = c.cast("fpext", a, "float")
        if rounding:
            if rounding == "nearest":
                a = c.intrinsic("floor", c.op("fadd", a, c.fconst(a.type, 0.5)))
            else:
                a = c.intrinsic(rounding, a)
        result = like(a.type, f"i{to[1:]}")
        kind = "fptosi" if to[0] == "i" else "fptoui"
        return c.call(f"llvm.{kind}.sat.{mangle(result)}.{mangle(a.type)}", result, a)

    LANEWISE[name] = Lanewise(compute, to, (source,))


def _from_integer(name: str, source: str, to: str) -> None:
    def compute(t: IsaTranslator, a: IrValue) -> IrValue:
        return t.c.cast("sitofp" if source[0] == "i" else "uitofp", a, FLOATS[to])

    LANEWISE[name] = Lanewise(compute, to, (source,))


def _resized(name: str, source: str, to: str) -> None:
    def compute(t: IsaTranslator, a: IrValue) -> IrValue:
        return t.c.cast("fpext" if int(to[1:]) > int(source[1:]) else "fptrunc", a, FLOATS[to])

    LANEWISE[name] = Lanewise(compute, to, (source,))


for _float in ("f32", "f64"):
    for _int in ("i32", "u32"):
        _to_integer(f"v_cvt_{_int}_{_float}", _float, _int)
        _from_integer(f"v_cvt_{_float}_{_int}", _int, _float)
for _int in ("i16", "u16"):
    _to_integer(f"v_cvt_{_int}_f16", "f16", _int)
    _from_integer(f"v_cvt_f16_{_int}", _int, "f16")
_to_integer("v_cvt_nearest_i32_f32", "f32", "i32", "nearest")
_to_integer("v_cvt_floor_i32_f32", "f32", "i32", "floor")
_to_integer("v_cvt_rpi_i32_f32", "f32", "i32", "nearest")
_to_integer("v_cvt_flr_i32_f32", "f32", "i32", "floor")
for _a, _b in (("f16", "f32"), ("f32", "f16"), ("f32", "f64"), ("f64", "f32")):
    _resized(f"v_cvt_{_b}_{_a}", _a, _b)
for _number in range(4):
    LANEWISE[f"v_cvt_f32_ubyte{_number}"] = Lanewise(
        lambda t, a, _n=_number: t.c.cast("uitofp", t.c.op("and", t.c.op("lshr", a, 8 * _n) if _n else a, 0xFF), "float"),
        "f32", ("b32",),
    )  # fmt: skip
for _name, _signed, _bits in (("i32_i16", True, 16), ("u32_u16", False, 16)):
    LANEWISE[f"v_cvt_{_name}"] = Lanewise(
        lambda t, a, _s=_signed: t.c.resize(a, 32, signed=_s), _name[:3], (_name[4:],)
    )


@lanewise("v_cvt_pk_rtz_f16_f32", "b32", "f32", "f32")
def _pk_rtz(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
    """v_cvt_pk_rtz: two f16, rounded towards zero."""
    c = t.c
    low, high = (_half_toward_zero(t, v) for v in (a, b))
    return c.op("or", c.resize(low, 32), c.op("shl", c.resize(high, 32), 16))


def _half_toward_zero(t: IsaTranslator, a: IrValue) -> IrValue:
    """Return the bits of f32 `a` as f16, rounded towards zero; every NaN becomes the canonical one."""
    c = t.c
    nan = c.fcmp("uno", a, a)
    safe = c.select(nan, c.fconst(a.type, 0.0), a)
    return c.select(nan, c.const(like(a.type, "i16"), 0x7E00), numeric.small_float(c, safe, 5, 10, "rz"))


def _normalised() -> None:
    """Register v_cvt_pk_norm: two floats, clamped to [-1, 1] or [0, 1], scaled to 16-bit integers and packed."""
    for sign, scale in (("i", 32767.0), ("u", 65535.0)):
        for source in ("f32", "f16"):

            def compute(
                t: IsaTranslator, a: IrValue, b: IrValue, *, sign: str = sign, scale: float = scale
            ) -> IrValue:
                c = t.c
                halves = []
                for value in (a, b):
                    wide = t.widened(value)  # the product is rounded once
                    low = c.fconst(wide.type, -1.0 if sign == "i" else 0.0)
                    kept = c.intrinsic("minnum", c.intrinsic("maxnum", wide, low), c.fconst(wide.type, 1.0))
                    kept = c.select(c.fcmp("uno", wide, wide), c.fconst(wide.type, 0.0), kept)
                    rounded = c.intrinsic("roundeven", c.op("fmul", kept, c.fconst(wide.type, scale)))
                    halves.append(c.op("and", c.cast("fptosi", rounded, "i32"), 0xFFFF))
                return c.op("or", halves[0], c.op("shl", halves[1], 16))

            LANEWISE[f"v_cvt_pk_norm_{sign}16_{source}"] = Lanewise(compute, "b32", (source, source))


_normalised()


def _pack_small(t: IsaTranslator, a: IrValue, b: IrValue, *, type_: str) -> IrValue:
    """Return two f32 as f16 or bf16, the first in the lower half."""
    low, high = (t.c.resize(numeric.to_small(t.c, value, type_), 32) for value in (a, b))
    return t.c.op("or", low, t.c.op("shl", high, 16))


for _type in ("f16", "bf16"):  # of gfx950
    LANEWISE[f"v_cvt_pk_{_type}_f32"] = Lanewise(
        lambda t, a, b, _t=_type: _pack_small(t, a, b, type_=_t), "b32", ("f32", "f32")
    )
LANEWISE["v_cvt_f32_bf16"] = Lanewise(
    lambda t, a: numeric.from_small(t.c, t.c.resize(a, 16), "bf16"), "f32", ("b32",)
)


_EXPONENT: Final = {"fp8": (4, 3), "bf8": (5, 2)}
"""8-bit float -> bits of exponent and mantissa."""
_LARGEST: Final = {"fp8": 0x7E, "bf8": 0x7B}
"""8-bit float -> its largest finite value in OCP's format; in that of gfx942 it is 0x7F."""
_INFINITE: Final = {"fp8": 0x7F, "bf8": 0x7C}
"""8-bit float of OCP -> the result of overflow: NaN for fp8, infinity for bf8."""
_NAN, _NAN_FNUZ = 0x7F, 0x80
"""The NaN of OCP's formats, and of those of gfx942."""


def _byte(t: IsaTranslator, value: IrValue, type_: str) -> IrValue:
    """Return f32 values as 8-bit floats, an i16 for each lane."""
    c, fnuz = t.c, t.target.fnuz
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


def _overflown(t: IsaTranslator, bits: IrValue, scaled: IrValue) -> IrValue:
    """Return 0x80 (NaN) for large values and 0 for others, for the format without -0."""
    c = t.c
    large = c.fcmp("ogt", c.intrinsic("fabs", scaled), c.fconst(scaled.type, 1.0))
    return c.select(large, c.const(bits.type, _NAN_FNUZ), c.const(bits.type, 0))


def _packed(t: IsaTranslator, a: IrValue, b: IrValue, *, type_: str) -> IrValue:
    """Return two f32 as 8-bit floats, the first in the lower byte."""
    name = f"to.{type_}.{t.target.fnuz}.{t.modes & SATURATES}"
    low, high = (t.called(name, like(v.type, "i16"), lambda t, x: _byte(t, x, type_), v) for v in (a, b))
    return t.c.op("or", low, t.c.op("shl", high, 8))


def _value(t: IsaTranslator, word: IrValue, at: int, type_: str) -> IrValue:
    """Return byte number `at` of a register as f32."""
    c = t.c
    byte = c.op("and", c.op("lshr", word, 8 * at) if at else word, 0xFF)

    def compute(t: IsaTranslator, bits: IrValue) -> IrValue:
        return small_float(t.c, bits, type_, fnuz=t.target.fnuz)

    return t.called(f"of.{type_}.{t.target.fnuz}", like(word.type, "float"), compute, byte)


def _single(t: IsaTranslator, a: IrValue, *, type_: str) -> IrValue:
    """Return one byte as f32; on gfx12 op_sel selects the byte, with its bits in reverse order."""
    select = t.instruction.get("op_sel")
    return _value(t, a, (select & 1) << 1 | select >> 1 & 1, type_)


def _pair(t: IsaTranslator) -> None:
    """v_cvt_pk_f32: write two f32 from the bytes of one half of a register, which op_sel selects."""
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
