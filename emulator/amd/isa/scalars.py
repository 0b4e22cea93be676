"""Operations of the scalar unit (SALU), written as LLVM IR: moves, logic, arithmetic, bit fields, floats.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapter of scalar ALU instructions. Docstrings say how an operation
sets SCC, the scalar condition code; without a word on it SCC is unchanged. `t` is the translator, `t.c` its code.

Not here: scalar comparisons (`compares`), scalar loads (`scalar_memory`), branches and waits (`translate`, `program`),
the vector unit (`vector_floats`, `vector_integers`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: ARG005, E501 - every computation takes the translator; tables of operations read best one a line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import EXEC, Imm, Reg
from emulator.amd.isa.meanings import MEANINGS, meaning
from emulator.amd.isa.vector_floats import fused
from emulator.ir.vector import IrValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.amd.isa.values import IsaTranslator

    Compute = Callable[..., IrValue]

_FALSE = IrValue("i1", "false")


def _sources(t: IsaTranslator, bits: int) -> list[IrValue]:
    return [t.scalar(o, bits) for o in t.instruction.operands[1:]]


def _register_logic(name: str, bits: int, compute: Compute) -> None:
    """Register a logic operation, which sets SCC to (result != 0)."""

    def act(t: IsaTranslator) -> None:
        value = compute(t, *_sources(t, bits))
        t.set_scalar(t.instruction.operands[0], value)
        t.set_scc(t.c.icmp("ne", value, 0))

    MEANINGS[f"s_{name}_b{bits}"] = act


_LOGIC: dict[str, Compute] = {
    "and": lambda t, a, b: t.c.op("and", a, b),
    "or": lambda t, a, b: t.c.op("or", a, b),
    "xor": lambda t, a, b: t.c.op("xor", a, b),
    "nand": lambda t, a, b: t.c.not_(t.c.op("and", a, b)),
    "nor": lambda t, a, b: t.c.not_(t.c.op("or", a, b)),
    "xnor": lambda t, a, b: t.c.not_(t.c.op("xor", a, b)),
    "and_not1": lambda t, a, b: t.c.op("and", a, t.c.not_(b)),
    "or_not1": lambda t, a, b: t.c.op("or", a, t.c.not_(b)),
    "and_not0": lambda t, a, b: t.c.op("and", t.c.not_(a), b),
    "or_not0": lambda t, a, b: t.c.op("or", t.c.not_(a), b),
}
for _name, _compute in _LOGIC.items():
    for _bits in (32, 64):
        _register_logic(_name, _bits, _compute)
for _bits in (32, 64):
    _register_logic("not", _bits, lambda t, a: t.c.not_(a))


def _exec_operation(t: IsaTranslator) -> None:
    """EXEC = source op EXEC; the destination gets the old EXEC (saveexec) or the new (wrexec). SCC is (result != 0)."""
    match = re.fullmatch(r"s_(\w+)_(saveexec|wrexec)_b(32|64)", t.stem)
    assert match is not None
    bits = int(match[3])
    d, x = t.instruction.operands
    whole = Reg("s", EXEC, bits // 32)
    old, source = t.scalar(whole, bits), t.scalar(x, bits)
    # and_not1 is SRC & ~EXEC, and_not0 is ~SRC & EXEC
    value = _LOGIC[match[1]](t, source, old)
    t.set_scalar(d, old if match[2] == "saveexec" else value)
    t.set_scalar(whole, value)
    t.set_scc(t.c.icmp("ne", value, 0))


for _name in _LOGIC:
    for _bits in (32, 64):
        MEANINGS[f"s_{_name}_saveexec_b{_bits}"] = _exec_operation
        MEANINGS[f"s_{_name}_wrexec_b{_bits}"] = _exec_operation


def _register(name: str, bits: int, compute: Compute, *, to: int = 0, flag: bool = False) -> None:
    """Register an operation; with `flag` it sets SCC to (result != 0). `to` is the result's bits, 0 those of sources."""

    def act(t: IsaTranslator) -> None:
        value = compute(t, *_sources(t, bits))
        if to:
            value = t.c.resize(value, to)
        t.set_scalar(t.instruction.operands[0], value)
        if flag:
            t.set_scc(t.c.icmp("ne", value, 0))

    MEANINGS[f"s_{name}"] = act


for _bits in (32, 64):
    _register(f"mov_b{_bits}", _bits, lambda t, a: a)
    _register(f"brev_b{_bits}", _bits, lambda t, a: t.c.intrinsic("bitreverse", a))
    _register(f"bcnt1_i32_b{_bits}", _bits, lambda t, a: t.c.intrinsic("ctpop", a), to=32, flag=True)
    _register(
        f"bcnt0_i32_b{_bits}", _bits, lambda t, a: t.c.intrinsic("ctpop", t.c.not_(a)), to=32, flag=True
    )
_register("mul_i32", 32, lambda t, a, b: t.c.op("mul", a, b))
_register("mul_u64", 64, lambda t, a, b: t.c.op("mul", a, b))
_register("add_nc_u64", 64, lambda t, a, b: t.c.op("add", a, b))
_register("sub_nc_u64", 64, lambda t, a, b: t.c.op("sub", a, b))
_register("sext_i32_i8", 32, lambda t, a: t.c.resize(t.c.resize(a, 8), 32, signed=True))
_register("sext_i32_i16", 32, lambda t, a: t.c.resize(t.c.resize(a, 16), 32, signed=True))
_register("abs_i32", 32, lambda t, a: t.c.intrinsic("abs", a, extra=[_FALSE]), flag=True)
_register(
    "absdiff_i32", 32, lambda t, a, b: t.c.intrinsic("abs", t.c.op("sub", a, b), extra=[_FALSE]), flag=True
)
_register("pack_ll_b32_b16", 32, lambda t, a, b: t.c.op("or", t.c.op("and", a, 0xFFFF), t.c.op("shl", b, 16)))
_register(
    "pack_lh_b32_b16",
    32,
    lambda t, a, b: t.c.op("or", t.c.op("and", a, 0xFFFF), t.c.op("and", b, 0xFFFF_0000)),
)
_register(
    "pack_hh_b32_b16", 32, lambda t, a, b: t.c.op("or", t.c.op("lshr", a, 16), t.c.op("and", b, 0xFFFF_0000))
)
_register("pack_hl_b32_b16", 32, lambda t, a, b: t.c.op("or", t.c.op("lshr", a, 16), t.c.op("shl", b, 16)))
for _sign in "iu":
    _register(
        f"mul_hi_{_sign}32", 32,
        lambda t, a, b, _s=_sign == "i": t.c.resize(t.c.op("lshr", t.c.op("mul", t.c.resize(a, 64, signed=_s), t.c.resize(b, 64, signed=_s)), 32), 32),
    )  # fmt: skip


def _register_count(name: str, bits: int, function: str) -> None:
    """Register a count of leading or trailing zeros; the result is -1 for a source of 0."""

    def act(t: IsaTranslator) -> None:
        c = t.c
        (a,) = _sources(t, bits)
        found = c.resize(c.intrinsic(function, a, extra=[_FALSE]), 32)
        t.set_scalar(t.instruction.operands[0], c.select(c.icmp("eq", a, 0), c.const("i32", -1), found))

    MEANINGS[f"s_{name}"] = act


for _bits in (32, 64):
    _register_count(f"ctz_i32_b{_bits}", _bits, "cttz")
    _register_count(f"clz_i32_u{_bits}", _bits, "ctlz")


@meaning("s_cls_i32")
def _count_sign_bits(t: IsaTranslator) -> None:
    """Count the leading bits that equal the sign bit; the result is -1 for 0 and -1."""
    c = t.c
    (a,) = _sources(t, 32)
    flipped = c.op("xor", a, c.op("ashr", a, 31))
    found = c.intrinsic("ctlz", flipped, extra=[_FALSE])
    t.set_scalar(t.instruction.operands[0], c.select(c.icmp("eq", flipped, 0), c.const("i32", -1), found))


@meaning("s_add_u32", "s_sub_u32", "s_addc_u32", "s_subb_u32")
def _add_with_carry(t: IsaTranslator) -> None:
    """Unsigned sum or difference; addc and subb add or subtract SCC, too. SCC becomes the carry or borrow."""
    c = t.c
    a, b = (c.resize(v, 64) for v in _sources(t, 32))
    op = "add" if t.stem.startswith("s_add") else "sub"
    total = c.op(op, a, b)
    if t.stem in ("s_addc_u32", "s_subb_u32"):
        total = c.op(op, total, c.resize(t.scc(), 64))
    t.set_scalar(t.instruction.operands[0], c.resize(total, 32))
    t.set_scc(c.icmp("ne", c.op("lshr", total, 32), 0))


@meaning("s_add_i32", "s_sub_i32")
def _add_signed(t: IsaTranslator) -> None:
    """Signed sum or difference. SCC becomes signed overflow."""
    c = t.c
    a, b = _sources(t, 32)
    op = "add" if t.stem == "s_add_i32" else "sub"
    wide = c.op(op, *(c.resize(v, 64, signed=True) for v in (a, b)))
    value = c.resize(wide, 32)
    t.set_scalar(t.instruction.operands[0], value)
    t.set_scc(c.icmp("ne", c.resize(value, 64, signed=True), wide))


@meaning("s_addk_i32", "s_mulk_i32", "s_movk_i32", "s_cmovk_i32")
def _small_constant(t: IsaTranslator) -> None:
    """Operations with a 16-bit constant, sign-extended. s_addk sets SCC to signed overflow; s_cmovk moves if SCC."""
    c, d = t.c, t.instruction.operands[0]
    value = t.instruction.get("simm16")
    constant = c.const("i32", value - 0x10000 if value >> 15 else value)
    if t.stem == "s_movk_i32":
        t.set_scalar(d, constant)
    elif t.stem == "s_cmovk_i32":
        t.set_scalar(d, c.select(t.scc(), constant, t.scalar(d)))
    elif t.stem == "s_mulk_i32":
        t.set_scalar(d, c.op("mul", t.scalar(d), constant))
    else:
        wide = c.op("add", *(c.resize(v, 64, signed=True) for v in (t.scalar(d), constant)))
        low = c.resize(wide, 32)
        t.set_scalar(d, low)
        t.set_scc(c.icmp("ne", c.resize(low, 64, signed=True), wide))


def _shifts() -> None:
    """Register the shifts, by the second source modulo the width. SCC becomes (result != 0)."""
    for name, op, kind in (("lshl", "shl", "b"), ("lshr", "lshr", "b"), ("ashr", "ashr", "i")):
        for bits in (32, 64):

            def act(t: IsaTranslator, *, op: str = op, bits: int = bits) -> None:
                d, x, y = t.instruction.operands
                amount = t.c.op("and", t.scalar(y), bits - 1)
                value = t.c.op(op, t.scalar(x, bits), t.c.resize(amount, bits))
                t.set_scalar(d, value)
                t.set_scc(t.c.icmp("ne", value, 0))

            MEANINGS[f"s_{name}_{kind}{bits}"] = act


_shifts()


def _shift_add(t: IsaTranslator) -> None:
    """(first << k) + second; k is the digit in the name. SCC becomes 1 if the sum exceeds 32 bits."""
    c = t.c
    a, b = (c.resize(v, 64) for v in _sources(t, 32))
    total = c.op("add", c.op("shl", a, int(t.stem[len("s_lshl")])), b)
    t.set_scalar(t.instruction.operands[0], c.resize(total, 32))
    t.set_scc(c.icmp("ne", c.op("lshr", total, 32), 0))


for _k in "1234":
    MEANINGS[f"s_lshl{_k}_add_u32"] = _shift_add


@meaning("s_min_i32", "s_min_u32", "s_max_i32", "s_max_u32")
def _minmax(t: IsaTranslator) -> None:
    """Minimum or maximum. SCC becomes 1 if the first source is the result; of equal sources in s_max only."""
    c = t.c
    a, b = _sources(t, 32)
    sign = "s" if t.stem.endswith("i32") else "u"
    first = c.icmp(f"{sign}{'lt' if '_min_' in t.stem else 'ge'}", a, b)
    t.set_scalar(t.instruction.operands[0], c.select(first, a, b))
    t.set_scc(first)


@meaning("s_cselect_b32", "s_cselect_b64", "s_cmov_b32", "s_cmov_b64")
def _select(t: IsaTranslator) -> None:
    """The first source if SCC is 1; else s_cselect gives the second source, s_cmov the old destination."""
    bits = int(t.stem[-2:])
    d, *rest = t.instruction.operands
    values = [t.scalar(o, bits) for o in rest] + ([t.scalar(d, bits)] if len(rest) == 1 else [])
    t.set_scalar(d, t.c.select(t.scc(), *values))


@meaning("s_bfe_u32", "s_bfe_i32", "s_bfe_u64", "s_bfe_i64")
def _bit_field_extract(t: IsaTranslator) -> None:
    """Extract a bit field, with the sign for _i. SCC becomes (result != 0).

    The second source has the offset in its low bits (4:0, or 5:0 for 64 bits), and the width in bits 22:16.
    """
    c, bits = t.c, int(t.stem[-2:])
    d, x, y = t.instruction.operands
    a, how = t.scalar(x, bits), t.scalar(y)
    offset = c.resize(c.op("and", how, bits - 1), bits)
    width = c.resize(c.op("and", c.op("lshr", how, 16), 127), bits)
    width = c.intrinsic("umin", width, c.const(a.type, bits))
    shift = "ashr" if "_i" in t.stem else "lshr"
    rest = c.op("and", c.op("sub", c.const(a.type, bits), width), bits - 1)
    value = c.op(shift, c.op("shl", c.op(shift, a, offset), rest), rest)
    value = c.select(c.icmp("eq", width, 0), c.const(a.type, 0), value)
    t.set_scalar(d, value)
    t.set_scc(c.icmp("ne", value, 0))


@meaning("s_bfm_b32", "s_bfm_b64")
def _bit_field_mask(t: IsaTranslator) -> None:
    """((1 << first) - 1) << second, both sources modulo the width."""
    c, bits = t.c, int(t.stem[-2:])
    width, offset = (c.resize(c.op("and", t.scalar(o), bits - 1), bits) for o in t.instruction.operands[1:])
    ones = c.op("sub", c.op("shl", c.const(f"i{bits}", 1), width), 1)
    t.set_scalar(t.instruction.operands[0], c.op("shl", ones, offset))


@meaning("s_bitset0_b32", "s_bitset1_b32", "s_bitset0_b64", "s_bitset1_b64")
def _set_bit(t: IsaTranslator) -> None:
    """Set or clear bit (source modulo the width) of the destination."""
    c, bits = t.c, int(t.stem[-2:])
    d, x = t.instruction.operands
    bit = c.op("shl", c.const(f"i{bits}", 1), c.resize(c.op("and", t.scalar(x), bits - 1), bits))
    old = t.scalar(d, bits)
    t.set_scalar(d, c.op("or", old, bit) if "set1" in t.stem else c.op("and", old, c.not_(bit)))


@meaning("s_bitcmp0_b32", "s_bitcmp1_b32", "s_bitcmp0_b64", "s_bitcmp1_b64")
def _test_bit(t: IsaTranslator) -> None:
    """SCC becomes 1 if bit (second source modulo the width) of the first equals the digit in the name."""
    c, bits = t.c, int(t.stem[-2:])
    x, y = t.instruction.operands
    at = c.resize(c.op("and", t.scalar(y), bits - 1), bits)
    bit = c.op("and", c.op("lshr", t.scalar(x, bits), at), 1)
    t.set_scc(c.icmp("eq", bit, 1 if "cmp1" in t.stem else 0))


@meaning("s_getpc_b64")
def _program_counter(t: IsaTranslator) -> None:
    """The address of the next instruction; code uses it to address data and functions near itself."""
    t.set_scalar(t.instruction.operands[0], t.c.op("add", code_start(t), t.instruction.next))


def code_start(t: IsaTranslator) -> IrValue:
    """Return the device address of the kernel's first instruction, an i64. Raises `IsaError` if it is not known."""
    if t.code_at is None:
        raise t.error("this launch does not give the address of the code")
    return t.c.load("i64", t.c.gep(t.wf.of_thread("params"), t.code_at), align=4)


def _register_float(
    name: str, sources: tuple[str, ...], to: str, compute: Compute, *, accumulates: bool = False
) -> None:
    """Register a float operation on sources of these types; with `accumulates` the destination is the last source."""

    def act(t: IsaTranslator) -> None:
        d, *rest = t.instruction.operands
        if accumulates and len(rest) < len(sources):
            rest.append(d)
        values = []
        for operand, type_ in zip(rest, sources, strict=True):
            if type_ == "f16" and isinstance(operand, Imm):
                bits = t.c.const("i16", operand.half)
            else:
                bits = t.c.resize(t.scalar(operand), int(type_[1:]))
            values.append(t.as_source(t.c.as_float(bits)) if type_[0] == "f" else bits)
        result = compute(t, *values)
        if to == "f16":
            result = t.saturated(result, values)
        t.set_scalar(d, t.c.resize(t.c.as_int(t.as_result(result)) if to[0] == "f" else result, 32))

    MEANINGS[f"s_{name}"] = act


for _type in ("f16", "f32"):
    for _name, _op in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul")):
        _register_float(f"{_name}_{_type}", (_type, _type), _type, lambda t, a, b, _op=_op: t.c.op(_op, a, b))
    _register_float(f"fmac_{_type}", (_type,) * 3, _type, fused, accumulates=True)
    for _name, _op in (
        ("min", "minimumnum"),
        ("max", "maximumnum"),
        ("min_num", "minimumnum"),
        ("max_num", "maximumnum"),
    ):
        _register_float(
            f"{_name}_{_type}", (_type, _type), _type, lambda t, a, b, _op=_op: t.c.intrinsic(_op, a, b)
        )
    for _name, _op in (("ceil", "ceil"), ("floor", "floor"), ("trunc", "trunc"), ("rndne", "roundeven")):
        _register_float(f"{_name}_{_type}", (_type,), _type, lambda t, a, _op=_op: t.c.intrinsic(_op, a))
_register_float("fmaak_f32", ("f32",) * 3, "f32", lambda t, a, b, k: t.c.intrinsic("fma", a, b, k))
_register_float("fmamk_f32", ("f32",) * 3, "f32", lambda t, a, k, b: t.c.intrinsic("fma", a, k, b))
_register_float("cvt_f32_i32", ("i32",), "f32", lambda t, a: t.c.cast("sitofp", a, "float"))
_register_float("cvt_f32_u32", ("u32",), "f32", lambda t, a: t.c.cast("uitofp", a, "float"))
_register_float("cvt_i32_f32", ("f32",), "i32", lambda t, a: t.c.call("llvm.fptosi.sat.i32.f32", "i32", a))
_register_float("cvt_u32_f32", ("f32",), "u32", lambda t, a: t.c.call("llvm.fptoui.sat.i32.f32", "i32", a))
_register_float("cvt_f32_f16", ("f16",), "f32", lambda t, a: t.c.cast("fpext", a, "float"))
_register_float("cvt_f16_f32", ("f32",), "f16", lambda t, a: t.c.cast("fptrunc", a, "half"))
_register_float(
    "cvt_hi_f32_f16",
    ("b32",),
    "f32",
    lambda t, a: t.c.cast("fpext", t.c.as_float(t.c.resize(t.c.op("lshr", a, 16), 16)), "float"),
)
