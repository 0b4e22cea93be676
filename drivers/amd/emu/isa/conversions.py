"""Vector conversions (v_cvt_*): between integers and floating point, and between widths of either.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapter of vector instructions.

Not here: conversions of the scalar unit (`scalars`), arithmetic (`vector_floats`, `vector_integers`). Next: `meanings`, how an operation is defined; `drivers.emu.simt.numeric`, the rounding.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import LANEWISE, Lanewise, lanewise
from drivers.amd.emu.isa.values import FLOATS
from drivers.emu.simt import numeric
from drivers.emu.simt.ir_types import like, mangle

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value


def _to_integer(name: str, source: str, to: str, rounding: str = "") -> None:
    """Register a conversion that truncates, or applies `rounding` first; it saturates, and a NaN becomes 0.

    `rounding` is "" or "floor", LLVM's intrinsic, or "nearest": floor(a + 0.5), as the ISA defines it.
    """

    def compute(t: Translator, a: Value) -> Value:
        c = t.c
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
    def compute(t: Translator, a: Value) -> Value:
        return t.c.cast("sitofp" if source[0] == "i" else "uitofp", a, FLOATS[to])

    LANEWISE[name] = Lanewise(compute, to, (source,))


def _resized(name: str, source: str, to: str) -> None:
    def compute(t: Translator, a: Value) -> Value:
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
def _pk_rtz(t: Translator, a: Value, b: Value) -> Value:
    """Two halves, rounded towards zero."""
    c = t.c
    low, high = (_half_toward_zero(t, v) for v in (a, b))
    return c.op("or", c.resize(low, 32), c.op("shl", c.resize(high, 32), 16))


def _half_toward_zero(t: Translator, a: Value) -> Value:
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
                t: Translator, a: Value, b: Value, *, sign: str = sign, scale: float = scale
            ) -> Value:
                c = t.c
                halves = []
                for value in (a, b):
                    wide = value if value.type.endswith("float>") else c.cast("fpext", value, "float")
                    low = c.fconst(wide.type, -1.0 if sign == "i" else 0.0)
                    kept = c.intrinsic("minnum", c.intrinsic("maxnum", wide, low), c.fconst(wide.type, 1.0))
                    kept = c.select(c.fcmp("uno", wide, wide), c.fconst(wide.type, 0.0), kept)
                    rounded = c.intrinsic("roundeven", c.op("fmul", kept, c.fconst(wide.type, scale)))
                    halves.append(c.op("and", c.cast("fptosi", rounded, "i32"), 0xFFFF))
                return c.op("or", halves[0], c.op("shl", halves[1], 16))

            LANEWISE[f"v_cvt_pk_norm_{sign}16_{source}"] = Lanewise(compute, "b32", (source, source))


_normalised()
