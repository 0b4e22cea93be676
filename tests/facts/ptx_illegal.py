"""Forms that the PTX manual does not have: an assembler refuses them, and so does the emulated GPU."""

# ruff: noqa: E501 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.facts.ptx_convert import INTEGERS, register
from tests.facts.ptx_form import Form
from tests.facts.ptx_numbers import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPES = (
    "u8",
    "s8",
    "b16",
    "u16",
    "s16",
    "b32",
    "u32",
    "s32",
    "b64",
    "u64",
    "s64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "f16x2",
    "bf16x2",
    "u16x2",
    "s16x2",
)
_ROUNDINGS = ("", ".rn", ".rz", ".rm", ".rp")


def forms() -> Iterator[Form]:
    """Forms that the manual excludes by name."""
    for target in INTEGERS:
        for source in INTEGERS:
            if bounds(target)[0] <= bounds(source)[0] and bounds(source)[1] <= bounds(target)[1]:
                yield _illegal(
                    f"cvt.sat.{target}.{source}", "cvt: .sat where nothing can saturate", source, target
                )
    for integer in INTEGERS:
        yield _illegal(f"cvt.rzi.sat.{integer}.bf16", "cvt: .sat of bf16", "bf16", integer)
        if integer[1:] == "8":
            yield _illegal(f"cvt.rzi.{integer}.bf16", "cvt: bf16 and 8 bits", "bf16", integer)
            yield _illegal(f"cvt.rn.bf16.{integer}", "cvt: bf16 and 8 bits", integer, "bf16")
    for half in ("f16", "bf16"):
        code = f"setp.lt.{half} %p|%q, %a, %b; selp.b32 %d, 1, 0, %p;"
        yield Form(f"setp.lt.{half} p|q", code, ("i16", "i16"), (32,), lambda *_: None, "setp (half)")
    yield Form(
        "set.lt.ftz.bf16.f32",
        "set.lt.ftz.bf16.f32 %d, %a, %b;",
        ("i32", "i32"),
        (16,),
        lambda *_: None,
        "set (half)",
    )


def products() -> Iterator[Form]:
    """Every instruction of arithmetic with every type and modifier, most of them illegal: who refuses what is compared."""
    for name, count, marks in _INSTRUCTIONS:
        for mark in marks:
            for type_ in TYPES:
                yield _product(name, count, mark, type_)


_INSTRUCTIONS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    *((name, 2, (*_ROUNDINGS, ".sat", ".ftz", ".relu", ".cc", ".rn.ftz", ".rn.sat", ".rn.ftz.sat", ".ftz.sat", ".rz.ftz",
                 ".rn.relu", ".sat.ftz", ".rna")) for name in ("add", "sub")),
    *((name, 2, ("", ".cc", ".sat", ".rn")) for name in ("addc", "subc")),
    ("mul", 2, ("", ".lo", ".hi", ".wide", ".rn", ".rz", ".rm", ".sat", ".ftz", ".rn.ftz", ".rn.sat", ".rn.ftz.sat", ".relu",
                ".lo.sat", ".hi.sat", ".lo.cc")),
    ("mad", 3, ("", ".lo", ".hi", ".wide", ".rn", ".rz", ".sat", ".ftz", ".rn.ftz", ".lo.sat", ".hi.sat", ".lo.cc", ".hi.cc",
                ".wide.cc", ".rn.relu")),
    ("madc", 3, ("", ".lo", ".hi", ".wide", ".lo.cc", ".hi.cc", ".hi.sat")),
    ("fma", 3, ("", ".rn", ".rz", ".rm", ".rp", ".rn.ftz", ".rn.sat", ".rn.ftz.sat", ".rn.relu", ".rn.ftz.relu",
                ".rn.sat.relu", ".rz.relu", ".ftz", ".sat", ".rn.oob")),
    *((name, 2, ("", ".lo", ".hi", ".wide", ".hi.sat")) for name in ("mul24",)),
    ("mad24", 3, ("", ".lo", ".hi", ".wide", ".hi.sat", ".lo.sat")),
    ("sad", 3, ("", ".sat", ".ftz")),
    ("div", 2, ("", ".rn", ".rz", ".rm", ".rp", ".approx", ".full", ".rn.ftz", ".approx.ftz", ".full.ftz", ".sat", ".ftz")),
    ("rem", 2, ("", ".rn", ".sat")),
    *((name, 1, ("", ".ftz", ".sat", ".rn", ".NaN")) for name in ("abs", "neg")),
    *((name, 2, ("", ".ftz", ".NaN", ".relu", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.NaN.xorsign.abs",
                 ".ftz.xorsign.abs", ".abs", ".sat", ".rn", ".NaN.ftz")) for name in ("min", "max")),
    *((name, 1, ("", ".rn", ".rz", ".rm", ".rp", ".approx", ".rn.ftz", ".approx.ftz", ".ftz", ".sat")) for name in
      ("rcp", "sqrt", "rsqrt")),
    *((name, 1, ("", ".approx", ".approx.ftz", ".ftz", ".rn")) for name in ("sin", "cos", "lg2", "ex2", "tanh")),
    *((name, 1, ("", ".ftz", ".sat")) for name in ("popc", "clz", "brev", "cnot", "not")),
    ("bfind", 1, ("", ".shiftamt", ".sat")),
    *((name, 2, ("", ".sat", ".ftz")) for name in ("and", "or", "xor", "copysign")),
    *((name, 2, ("", ".wrap", ".clamp", ".l", ".r")) for name in ("shl", "shr", "szext", "bmsk")),
    ("shf", 3, ("", ".l", ".r", ".l.wrap", ".r.wrap", ".l.clamp", ".r.clamp", ".wrap")),
    ("bfe", 3, ("", ".sat")),
    ("prmt", 3, ("", ".f4e", ".rc16", ".ecl")),
    ("fns", 3, ("", ".sat")),
    *((f"testp{kind}", 1, ("", ".ftz")) for kind in (".finite", ".normal", ".subnormal")),
    *((f"setp{kind}", 2, ("", ".ftz", ".sat")) for kind in (".eq", ".lt", ".lo", ".hs", ".ltu", ".num", ".equ")),
    *((f"set.{kind}.u32", 2, ("", ".ftz")) for kind in ("eq", "ltu", "hi", "nan")),
    ("selp", 3, ("", ".ftz")),
    ("dp4a.s32", 3, ("",)),
    ("dp2a.lo.u32", 3, ("",)),
)  # fmt: skip


def _bits(type_: str) -> int:
    return {"f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32}.get(type_) or max(
        16, int("".join(c for c in type_ if c.isdigit()))
    )


def _product(name: str, count: int, mark: str, type_: str) -> Form:
    bits = _bits(type_)
    out = 2 * bits if ".wide" in mark and bits < 64 else bits
    if name in ("popc", "clz", "bfind") or name.startswith(("set.", "dp")):
        out = 32
    kinds = [f"i{bits}"] * count
    if ".wide" in mark and count == 3:
        kinds[2] = f"i{out}"
    if name in ("shl", "shr", "bfe", "szext", "bmsk"):
        kinds[1:] = ["i32"] * (count - 1)
    if name in ("shf", "prmt"):
        kinds[2] = "i32"
    if name == "selp":
        kinds[2] = "pred"
    operands = ", ".join(("%a", "%b", "%c")[:count])
    # set.CMP.u32 with .ftz is written before the types.
    full = name.replace(".u32", f"{mark}.u32.{type_}") if name.startswith("set.") else f"{name}{mark}.{type_}"
    if name == "prmt":
        full = f"{name}.{type_}{mark}"
    code = f"{full} %d, {operands};"
    if name.startswith(("setp", "testp")):
        code, out = f"{full} %p, {operands}; selp.b32 %d, 1, 0, %p;", 32
    return Form(f"product {full}", code, tuple(kinds), (out,), lambda *_: None, name)


def _illegal(name: str, why: str, source: str, target: str) -> Form:
    return Form(name, f"{name} %d, %a;", (f"i{register(source)}",), (register(target),), lambda *_: None, why)
