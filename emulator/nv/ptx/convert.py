"""Conversions and moves: cvt, cvta, mov, isspacep. Source: PTX ISA 9.7.9.

Not here: rounding to small formats (`emulator.ir.numeric`). Next: `core`, how an instruction is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir import numeric
from emulator.ir.addresses import split_generic
from emulator.ir.clusters import RANK_SHIFT
from emulator.ir.ir_text import bits_of, like, mangle
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.floats import ROUNDING, flushed, saturate
from emulator.nv.ptx.integers import INTEGERS, is_signed, join_halves
from emulator.nv.ptx.statements import TYPES, Operand, PtxInstruction, PtxReg, Sym, Vec

if TYPE_CHECKING:
    from emulator.ir.vector import CodeBuilder, IrValue

_TO_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_BF16_PAIRS = 100
"""The lowest architecture that converts 8-bit floats to and from pairs of bf16, and to finite tf32."""
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F80_0000}
"""Type -> the bits of its infinity."""
_FP8 = {"e4m3x2": (4, 3, 0x7E), "e5m2x2": (5, 2, 0x7B)}
"""Type -> its bits of exponent and of mantissa, and the bits of its largest finite value."""


@meaning("cvt")
def _cvt(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    if m.flag("pack"):
        _pack(t, i, m)
        return
    source, target = m.type(), m.type()
    if len(i.operands) == 3:
        _cvt_pair(t, i, m, target, source)
        return
    d, x = operands(t, i, 2)
    if target in INTEGERS and source in INTEGERS:
        value = _integer_to_integer(
            t, t.bits(x, TYPES[source], relaxed=True), target, source, saturating=m.flag("sat")
        )
    elif target in INTEGERS:
        value = _float_to_integer(t, m, x, target, source)
    elif source in INTEGERS:
        mode = m.need(*ROUNDING)
        sat = m.flag("sat")
        value = _integer_to_float(t, t.bits(x, TYPES[source], relaxed=True), target, source, mode)
        if sat:
            value = t.c.as_int(saturate(t, t.c.as_float(value)))
    else:
        value = _float_to_float(t, m, x, target, source)
    t.write(d, value, signed=is_signed(target) and target in INTEGERS, relaxed=True)


def _integer_to_integer(
    t: PtxTranslator, value: IrValue, target: str, source: str, *, saturating: bool
) -> IrValue:
    if saturating:
        value = _clamp(t, value, target, source)
    return t.c.resize(value, TYPES[target], signed=is_signed(source))


def _clamp(t: PtxTranslator, value: IrValue, target: str, source: str) -> IrValue:
    """Clamp an integer of type `source` to the range of `target`."""
    c, bits, signed = t.c, TYPES[target], is_signed(source)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed(target) else (0, (1 << bits) - 1)
    width = TYPES[source]
    have_low, have_high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    kind = "s" if signed else "u"
    if high < have_high:
        value = c.intrinsic(f"{kind}min", value, c.const(value.type, high))
    if low > have_low:
        value = c.intrinsic(f"{kind}max", value, c.const(value.type, low))
    return value


def _wide_source(t: PtxTranslator, x: Operand, type_: str) -> IrValue:
    """Return a floating-point source as float or double. Raises `PtxError` for other types."""
    if type_ in ("f16", "bf16"):
        return numeric.from_small(t.c, t.bits(x, 16, relaxed=True), type_)
    if type_ in ("f32", "f64"):
        return t.float(x, type_)
    raise t.error(f"cannot convert from .{type_}")


def _float_to_integer(t: PtxTranslator, m: Modifiers, x: Operand, target: str, source: str) -> IrValue:
    """Return a float rounded to an integer that saturates; NaN is 0, or 2^(bits - 1) if one has 64 bits."""
    how = m.one_of(*_TO_INTEGRAL)
    if not how:
        raise t.error("a conversion to an integer needs .rni, .rzi, .rmi or .rpi")
    m.flag("sat")
    c, value = t.c, _wide_source(t, x, source)
    if m.flag("ftz"):
        value = flushed(t, value)
    whole = c.intrinsic(_TO_INTEGRAL[how], value)
    type_ = like(value.type, f"i{TYPES[target]}")
    name = "fptosi.sat" if is_signed(target) else "fptoui.sat"
    result = c.call(f"llvm.{name}.{mangle(type_)}.{mangle(value.type)}", type_, whole)
    if source == "f64" or TYPES[target] == 64:
        nan = c.fcmp("uno", value, value)
        result = c.select(nan, c.const(type_, 1 << (TYPES[target] - 1)), result)
    return result


def _integer_to_float(t: PtxTranslator, value: IrValue, target: str, source: str, mode: str) -> IrValue:
    """Return integers as floating-point numbers, rounded by `mode`; the result is their bits."""
    c, name = t.c, "sitofp" if is_signed(source) else "uitofp"
    if target in ("f32", "f64"):
        element = "float" if target == "f32" else "double"
        type_ = like(value.type, element)
        exact = mode == "rn" or TYPES[source] < (24 if target == "f32" else 53)
        if exact:
            return c.as_int(c.cast(name, value, element))
        made = numeric.rounded(t.wf.lib, c, name, mode, type_, value)
        # Hosts without an instruction for it subtract equal numbers, which is -0 where rounding goes down.
        return c.as_int(c.select(c.icmp("eq", value, 0), c.fconst(type_, 0.0), made))
    if target not in ("f16", "bf16"):
        raise t.error(f"cannot convert to .{target}")
    wide = c.cast(name, value, "double")
    if TYPES[source] == 64:
        wide = numeric.rounded(t.wf.lib, c, name, "rz", like(value.type, "double"), value)
        back = c.cast("fptosi" if name == "sitofp" else "fptoui", wide, "i64")
        lost = c.resize(c.icmp("ne", back, value), 64)
        wide = c.as_float(c.op("or", c.as_int(wide), lost))
    return numeric.to_small(c, numeric.odd_float(c, wide), target, mode)


def _float_to_float(t: PtxTranslator, m: Modifiers, x: Operand, target: str, source: str) -> IrValue:
    """Return a floating-point operand in another type; the result is its bits."""
    c = t.c
    if source in _FP8 or target in _FP8:
        return _fp8(t, m, x, target, source)
    integral, mode = m.one_of(*_TO_INTEGRAL), m.one_of(*ROUNDING, "rna")
    ftz, sat, relu, finite = m.flag("ftz"), m.flag("sat"), m.flag("relu"), m.flag("satfinite")
    if target == "tf32":
        return _tf32(t, x, mode, relu=relu, finite=finite)
    if mode == "rna" or (finite and (target not in _INFINITY or source != "f32")):
        given = " ".join(f".{word}" for word in (mode, "satfinite" * finite) if word)
        raise t.error(f"{given} does not go with a conversion of .{source} to .{target}")
    value = _wide_source(t, x, source)
    if ftz and source == "f32":
        value = flushed(t, value)
    if integral:
        value = c.intrinsic(_TO_INTEGRAL[integral], value)
    if sat:
        value = saturate(t, value)
    if relu:
        value = _relu(t, value)
    bits = _narrowed(t, value, target, mode or "rn", ftz=ftz)
    return _finite(t, bits, target) if finite else bits


def _finite(t: PtxTranslator, bits: IrValue, target: str) -> IrValue:
    """Replace infinities by the largest finite value of their sign, in bits of type `target`."""
    c, infinity = t.c, _INFINITY[target]
    size = c.op("and", bits, 0x7FFF_FFFF if target == "tf32" else 0x7FFF)
    return c.select(c.icmp("eq", size, infinity), c.op("sub", bits, 0x2000 if target == "tf32" else 1), bits)


def _relu(t: PtxTranslator, value: IrValue) -> IrValue:
    c = t.c
    keep = c.op("or", c.fcmp("ogt", value, c.fconst(value.type, 0.0)), c.fcmp("uno", value, value))
    return c.select(keep, value, c.fconst(value.type, 0.0))


def _narrowed(t: PtxTranslator, value: IrValue, target: str, mode: str, *, ftz: bool) -> IrValue:
    """Round float or double to a type and return its bits, with canonical NaNs."""
    c, wide = t.c, bits_of(value.type) == 64
    if target == "f64":
        return t.canonical(c.as_int(c.cast("fpext", value, "double")))
    if target == "f32":
        if wide and mode == "rn":
            value = c.cast("fptrunc", value, "float")
        elif wide:
            value = numeric.rounded(t.wf.lib, c, "fptrunc", mode, like(value.type, "float"), value)
        return t.canonical(c.as_int(flushed(t, value) if ftz else value))
    if target not in ("f16", "bf16"):
        raise t.error(f"cannot convert to .{target}")
    return numeric.to_small(c, numeric.odd_float(c, value) if wide else value, target, mode)


def _tf32(t: PtxTranslator, x: Operand, mode: str, *, relu: bool, finite: bool) -> IrValue:
    """Round float32 to 10 bits of mantissa; the result is a pattern of 32 bits."""
    if mode not in ("rna", "rn", "rz") or (finite and mode != "rna" and t.arch < _BF16_PAIRS):
        given = " ".join(f".{word}" for word in (mode, "satfinite" * finite) if word) or "no rounding"
        raise t.error(f"{given} to .tf32 is not supported on sm_{t.arch}; .rna is")
    c, value = t.c, t.float(x, "f32")
    value = _relu(t, value) if relu else value
    bits = c.as_int(value)
    if mode == "rna":
        step = c.const(bits.type, 0x1000)
    elif mode == "rn":
        step = c.op("add", c.op("and", c.op("lshr", bits, 13), 1), 0xFFF)
    else:
        step = c.const(bits.type, 0)
    special = c.icmp("eq", c.op("and", bits, 0x7F80_0000), 0x7F80_0000)
    near = c.op("and", c.op("add", bits, step), ~0x1FFF)
    nan = c.fcmp("uno", value, value)
    near = c.select(special, bits, near)
    return c.select(nan, c.const(bits.type, 0x7FFF_FFFF), _finite(t, near, "tf32") if finite else near)


def _cvt_pair(t: PtxTranslator, i: PtxInstruction, m: Modifiers, target: str, source: str) -> None:
    """Convert two float32 into a packed pair: the first operand goes to the upper half."""
    d, high, low = i.operands
    if source != "f32":
        raise t.error(f"cannot convert pairs of .{source}")
    if target in _FP8:
        m.need("rn")
        m.need("satfinite")
        relu = m.flag("relu")
        parts = [_to_fp8(t, t.float(x, "f32"), target, relu=relu) for x in (low, high)]
        t.write(d, t.c.op("or", parts[0], t.c.op("shl", parts[1], 8)))
        return
    if target not in ("f16x2", "bf16x2"):
        raise t.error(f"cannot convert a pair to .{target}")
    mode, relu, finite = m.need("rn", "rz"), m.flag("relu"), m.flag("satfinite")
    values = [t.float(x, "f32") for x in (low, high)]
    if relu:
        values = [_relu(t, v) for v in values]
    halves = [numeric.to_small(t.c, v, target[:-2], mode) for v in values]
    t.write(d, join_halves(t, *([_finite(t, half, target[:-2]) for half in halves] if finite else halves)))


def _to_fp8(t: PtxTranslator, value: IrValue, target: str, *, relu: bool) -> IrValue:
    exponent, mantissa, largest = _FP8[target]
    if relu:
        value = _relu(t, value)
    bits = numeric.small_float(t.c, value, exponent, mantissa, "rn", largest=largest)
    return t.c.select(t.c.fcmp("uno", value, value), t.c.const(bits.type, 0x7F), bits)


def _fp8(t: PtxTranslator, m: Modifiers, x: Operand, target: str, source: str) -> IrValue:
    """Return a pair of numbers converted to or from 8-bit floats; the result is their bits."""
    c = t.c
    m.need("rn")
    if target in _FP8:
        _need_halves(t, source, target, source)
        m.need("satfinite")
        relu = m.flag("relu")
        raw = t.bits(x, 32)
        halves = [numeric.from_small(c, c.resize(c.op("lshr", raw, at), 16), source[:-2]) for at in (0, 16)]
        parts = [_to_fp8(t, half, target, relu=relu) for half in halves]
        return c.op("or", parts[0], c.op("shl", parts[1], 8))
    _need_halves(t, target, target, source)
    relu, raw = m.flag("relu"), t.bits(x, 16)
    parts = [small_to_f16(c, c.op("and", c.op("lshr", raw, at), 255), source[:-2]) for at in (0, 8)]
    if relu or target == "bf16x2":
        wide = [numeric.from_small(c, p, "f16") for p in parts]
        parts = [numeric.to_small(c, _relu(t, v) if relu else v, target[:-2]) for v in wide]
    return join_halves(t, *parts)


def _need_halves(t: PtxTranslator, pair: str, target: str, source: str) -> None:
    """Check the type that is converted to or from 8-bit floats: a pair of f16, or from sm_100 on of bf16."""
    if pair != "f16x2" and (pair != "bf16x2" or t.arch < _BF16_PAIRS):
        raise t.error(f"cannot convert .{source} to .{target} on sm_{t.arch}")


def small_to_f16(c: CodeBuilder, byte: IrValue, source: str) -> IrValue:
    """Convert a pattern of e4m3 or e5m2, as i16, to the f16 pattern of the same value; NaN becomes 0x7fff."""
    if source == "e5m2":
        half = c.op("shl", byte, 8)
        nan = c.icmp("ugt", c.op("and", half, 0x7FFF), 0x7C00)
        return c.select(nan, c.const(half.type, 0x7FFF), half)
    sign = c.op("shl", c.op("and", byte, 128), 8)
    size = c.op("and", byte, 127)
    exponent, mantissa = c.op("lshr", size, 3), c.op("and", size, 7)
    normal = c.op("or", c.op("shl", c.op("add", exponent, 8), 10), c.op("shl", mantissa, 7))
    scaled = c.op(
        "fmul", c.cast("uitofp", c.resize(mantissa, 32), "float"), c.fconst(like(byte.type, "float"), 2.0**-9)
    )
    small = numeric.to_small(c, scaled, "f16")
    value = c.select(c.icmp("eq", exponent, 0), small, normal)
    value = c.op("or", value, sign)
    return c.select(c.icmp("eq", size, 127), c.const(byte.type, 0x7FFF), value)


def _pack(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate cvt.pack.sat: two s32 clamped and packed.

    For types below 16 bits, with a third operand above them.
    """
    m.need("sat")
    rest = m.one_of("b32") if len(i.operands) == 4 else ""
    source, target = m.type(), m.need(*_PACKED)
    bits = int(target[1:])
    if source != "s32" or bool(rest) != (bits < 16):
        raise t.error("cvt.pack takes .s32 to 16 bits, or with .b32 and a third operand to 2, 4 or 8")
    d, x, y, *more = i.operands
    c, low = t.c, -(1 << (bits - 1)) if is_signed(target) else 0
    high = low + (1 << bits) - 1
    values = []
    for operand in (x, y):
        value = t.bits(operand, 32)
        value = c.intrinsic(
            "smax", c.intrinsic("smin", value, c.const(value.type, high)), c.const(value.type, low)
        )
        values.append(c.op("and", value, (1 << bits) - 1))
    packed = c.op("or", c.op("shl", values[0], bits), values[1])
    if rest:
        packed = c.op("or", c.op("shl", t.bits(more[0], 32), 2 * bits), packed)
    t.write(d, packed)


_PACKED = ("u2", "s2", "u4", "s4", "u8", "s8", "u16", "s16")


def _width(t: PtxTranslator, type_: str, vector: Vec) -> int:
    """Return the width of the elements of a vector moved as `type_`. Raises `PtxError` if it has none."""
    if not vector.items or TYPES[type_] % len(vector.items):
        raise t.error(f"cannot divide {TYPES[type_]} bits among {len(vector.items)} registers")
    return TYPES[type_] // len(vector.items)


@meaning("mov")
def _mov(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    type_ = m.type()
    d, x = operands(t, i, 2)
    c = t.c
    if type_ == "pred":
        t.write(d, t.pred(x))
    elif isinstance(x, Vec):
        width = _width(t, type_, x)
        value = c.resize(t.bits(x.items[0], width), TYPES[type_])
        for k, item in enumerate(x.items[1:], 1):
            value = c.op("or", value, c.op("shl", c.resize(t.bits(item, width), TYPES[type_]), k * width))
        t.write(d, value)
    elif isinstance(d, Vec):
        width, value = _width(t, type_, d), t.bits(x, TYPES[type_])
        for k, item in enumerate(d.items):
            t.write(item, c.resize(c.op("lshr", value, k * width) if k else value, width))
    elif isinstance(d, PtxReg) and t.is_lazy(d, x):
        t.wf.write(d.name, t.wf.read(x.name) if isinstance(x, PtxReg) else t.bits(x, d.bits))
    else:
        t.write(d, t.bits(x, TYPES[type_]))


@meaning("move_param")
def _move_param(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate the move of a parameter of an inlined call that is in registers (`flat`)."""
    m.rest.clear()
    d, x = operands(t, i, 2)
    targets = d.items if isinstance(d, Vec) else (d,)
    sources = x.items if isinstance(x, Vec) else (x,)
    values = []
    for target, source in zip(targets, sources, strict=True):
        bits = target.bits if isinstance(target, PtxReg) else 0
        narrow = source.bits if isinstance(source, PtxReg) else bits
        values.append(t.bits(source, min(bits, narrow), relaxed=True))
    for target, value in zip(targets, values, strict=True):
        t.write(target, value, relaxed=True)


_WINDOWS = ("shared", "local")


@meaning("cvta")
def _cvta(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    back = m.flag("to")
    words = ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry")
    space = m.need(*words).split("::")[0]
    bits = TYPES[m.type()]
    d, x = operands(t, i, 2)
    value = t.address_of(x, bits) if isinstance(x, Sym) else t.bits(x, bits)
    if space == "param":
        if bits != 64 or (isinstance(x, Sym) and x.name not in t.flat.params):
            raise t.error("takes 64-bit addresses of the kernel's parameters")
        value = t.c.op("sub" if back else "add", value, t.flat.param_address)
    elif space in _WINDOWS:
        window = t.c.resize(t.wf.uniform(t.wf.of_thread(f"{space}_window")), bits)
        value = t.c.op("sub" if back else "add", value, window)
    t.write(d, value)


@meaning("isspacep")
def _isspacep(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    shared = ("shared", "shared::cta", "shared::cluster")
    word = m.need("global", *shared, "local", "const", "param", "param::entry")
    d, x = operands(t, i, 2)
    address, c, space = t.bits(x, 64), t.c, word.split("::")[0]
    inside = {name: split_generic(t.wf.lib, c, t.wf.warp, address, name)[1] for name in _WINDOWS}
    if space in _WINDOWS:
        own = t.c.const(t.v("i1"), 1)
        if word in ("shared", "shared::cta"):
            offset = split_generic(t.wf.lib, c, t.wf.warp, address, "shared")[0]
            upper = c.op("lshr", offset, RANK_SHIFT)
            rank = t.wf.uniform(c.op("add", t.wf.of_group("rank"), 1))
            own = c.op("or", c.icmp("eq", upper, 0), c.icmp("eq", upper, rank))
        t.write(d, c.op("and", inside[space], own))
    elif space == "const":
        t.write(d, c.const(t.v("i1"), 0))
    else:
        of_params = c.icmp("ult", c.op("sub", address, t.flat.param_address), max(t.flat.param_bytes, 1))
        elsewhere = c.not_(c.op("or", of_params, c.op("or", inside["shared"], inside["local"])))
        t.write(d, of_params if space == "param" else elsewhere)
