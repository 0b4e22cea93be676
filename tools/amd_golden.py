"""Golden text of AMD machine code: kernels compiled by LLVM, which writes beside each instruction how it reads.

`python -m tools.amd_golden` writes TARGET.txt in tests/golden/amd_isa: one line an instruction, its dwords and its
text, each shape of an instruction once. LLVM's AMDGPU target (llvmlite) does both, with its feature `dumpcode`.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Iterator

_GOLDEN = Path(__file__).parents[1] / "tests/golden/amd_isa"
TARGETS = ("gfx1100", "gfx1201", "gfx942")
_LINE = re.compile(rb"^\t([a-z]\w+[^;\n]*?) *; ((?:[0-9A-F]{8} ?)+)$", re.MULTILINE)
_SHAPE = re.compile(r"\d+")

HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
"""
_BODY = """define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, ptr addrspace(1) %o, {T} %s) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {T}, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr {T}, ptr addrspace(1) %b, i32 %i
  %pc = getelementptr {T}, ptr addrspace(1) %c, i32 %i
  %x = load {T}, ptr addrspace(1) %pa
  %y = load {T}, ptr addrspace(1) %pb
  %z = load {T}, ptr addrspace(1) %pc
{code}
  %po = getelementptr {R}, ptr addrspace(1) %o, i32 %i
  store {R} %r, ptr addrspace(1) %po
  ret void
}}
"""
INTEGERS = ("i8", "i16", "i32", "i64", "<2 x i16>", "<4 x i32>", "<2 x i32>", "i1")
FLOATS = ("half", "float", "double", "<2 x half>", "<4 x float>", "<2 x float>")


def _short(type_: str) -> str:
    match = re.match(r"<(\d+) x (\w+)>", type_)
    stem = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}
    return f"v{match[1]}{stem.get(match[2], match[2])}" if match else stem.get(type_, type_)


def kernel(type_: str, code: str, result: str = "", extra: str = "") -> str:
    """Return a kernel that loads x, y, z of a type, has s as an argument, and stores r."""
    return HEAD + extra + _BODY.format(T=type_, R=result or type_, code=code)


def kernels() -> Iterator[str]:
    """Yield the IR of every kernel of the corpus."""
    yield from _integer_kernels()
    yield from _float_kernels()
    yield from _conversions()
    yield from _memory_kernels()
    yield from _wave_kernels()
    yield from _control_kernels()


def _call(name: str, type_: str, *args: str, result: str = "") -> tuple[str, str]:
    full = f"@llvm.{name}.{_short(type_)}"
    types = ", ".join(type_ if a[0] == "%" else a.split()[0] for a in args)
    given = ", ".join(f"{type_} {a}" if a[0] == "%" else a for a in args)
    return f"  %r = call {result or type_} {full}({given})", f"declare {result or type_} {full}({types})\n"


def _integer_kernels() -> Iterator[str]:
    for type_ in INTEGERS:
        for op in ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "srem"):
            if type_ == "i1" and op in ("shl", "lshr", "ashr", "udiv", "srem"):
                continue
            if op in ("udiv", "srem") and type_ not in ("i32", "i64", "i16"):
                continue
            yield kernel(type_, f"  %r = {op} {type_} %x, %y")
            yield kernel(type_, f"  %m = {op} {type_} %x, %s\n  %r = {op} {type_} %m, %z")
        for name in (
            "smin",
            "smax",
            "umin",
            "umax",
            "ctpop",
            "bitreverse",
            "bswap",
            "fshl",
            "fshr",
            "uadd.sat",
            "ssub.sat",
            "abs",
            "ctlz",
            "cttz",
        ):
            if type_ == "i1" or (name == "bswap" and "8" in type_):
                continue
            if name in ("abs", "ctlz", "cttz"):
                line, declare = _call(name, type_, "%x", "i1 0")
            else:
                args = {"ctpop": 1, "bitreverse": 1, "bswap": 1, "fshl": 3, "fshr": 3}.get(name, 2)
                line, declare = _call(name, type_, *("%x", "%y", "%z")[:args])
            yield kernel(type_, line, extra=declare)
        lanes = type_.split(" x")[0] + " x i1>" if type_[0] == "<" else "i1"
        for predicate in ("eq", "ne", "slt", "ule", "sge", "ugt"):
            yield kernel(
                type_,
                f"  %t = icmp {predicate} {type_} %x, %y\n  %r = select {lanes} %t, {type_} %x, {type_} %z",
            )
            if type_[0] != "<":
                yield kernel(
                    type_,
                    f"  %t = icmp {predicate} {type_} %s, 7\n  %r = select i1 %t, {type_} %s, {type_} %z",
                )
    for code in (
        "  %m = mul i32 %x, %y\n  %r = add i32 %m, %z", "  %m = shl i32 %x, 3\n  %r = add i32 %m, %z",
        "  %m = and i32 %x, 16777215\n  %n = and i32 %y, 16777215\n  %p = mul i32 %m, %n\n  %r = add i32 %p, %z",
        "  %m = and i32 %x, %y\n  %r = or i32 %m, %z", "  %m = or i32 %x, %y\n  %r = or i32 %m, %z",
        "  %m = xor i32 %x, %y\n  %r = xor i32 %m, %z", "  %m = add i32 %x, %y\n  %r = add i32 %m, %z",
        "  %m = lshr i32 %x, 5\n  %r = and i32 %m, 255", "  %m = shl i32 %x, 20\n  %r = ashr i32 %m, 24",
        "  %n = xor i32 %y, -1\n  %m = and i32 %x, %n\n  %q = and i32 %z, %y\n  %r = or i32 %m, %q",
        "  %m = shl i32 %x, 4\n  %r = or i32 %m, %y", "  %m = add i32 %x, %y\n  %r = shl i32 %m, 2",
        "  %m = sub i32 0, %x\n  %r = sub i32 %m, 1234567", "  %m = and i32 %x, 65535\n  %n = shl i32 %y, 16\n  %r = or i32 %m, %n",
        "  %m = mul i32 %x, 12345\n  %n = mul i32 %s, 77777\n  %r = sub i32 %m, %n",
        "  %m = xor i32 %x, %y\n  %r = xor i32 %m, -1", "  %m = add i32 %x, 100\n  %n = xor i32 %m, %y\n  %r = add i32 %n, %z",
    ):  # fmt: skip
        yield kernel("i32", code)
    for sign in ("s", "z"):
        wide = f"  %p = {sign}ext i32 %x to i64\n  %q = {sign}ext i32 %y to i64\n  %m = mul i64 %p, %q\n"
        yield kernel("i32", wide + "  %h = lshr i64 %m, 32\n  %r = trunc i64 %h to i32")
        yield kernel("i32", wide + f"  %w = {sign}ext i32 %z to i64\n  %r = add i64 %m, %w", "i64")


def _float_kernels() -> Iterator[str]:
    for type_ in FLOATS:
        for op in ("fadd", "fsub", "fmul", "fdiv"):
            if op == "fdiv" and type_[0] == "<":
                continue
            yield kernel(type_, f"  %r = {op} {type_} %x, %y")
            yield kernel(type_, f"  %m = {op} {type_} %x, %s\n  %r = fadd {type_} %m, %z")
        for name, count in (
            ("fma", 3), ("minnum", 2), ("maxnum", 2), ("fabs", 1), ("floor", 1), ("ceil", 1), ("trunc", 1), ("rint", 1),
            ("sqrt", 1), ("copysign", 2), ("canonicalize", 1), ("exp2", 1), ("log2", 1), ("sin", 1), ("roundeven", 1),
        ):  # fmt: skip
            if (type_ in ("double", "<4 x float>", "<2 x float>") and name in ("exp2", "log2", "sin")) or (
                type_ == "<4 x float>" and name == "sqrt"
            ):
                continue
            line, declare = _call(name, type_, *("%x", "%y", "%z")[:count])
            yield kernel(type_, line, extra=declare)
        if type_[0] == "<":
            continue
        for predicate in ("oeq", "ogt", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "une", "uno"):
            yield kernel(
                type_, f"  %t = fcmp {predicate} {type_} %x, %y\n  %r = select i1 %t, {type_} %x, {type_} %z"
            )
        fabs = f"declare {type_} @llvm.fabs.{_short(type_)}({type_})\ndeclare {type_} @llvm.fma.{_short(type_)}({type_}, {type_}, {type_})\n"
        short = _short(type_)
        yield kernel(
            type_,
            f"  %n = fneg {type_} %x\n  %u = call {type_} @llvm.fabs.{short}({type_} %y)\n  %r = fmul {type_} %n, %u",
            extra=fabs,
        )
        yield kernel(
            type_,
            f"  %n = fneg {type_} %x\n  %u = call {type_} @llvm.fabs.{short}({type_} %y)\n  %r = call {type_} @llvm.fma.{short}({type_} %n, {type_} %u, {type_} %z)",
            extra=fabs,
        )
        clamp = f"declare {type_} @llvm.minnum.{short}({type_}, {type_})\ndeclare {type_} @llvm.maxnum.{short}({type_}, {type_})\n"
        yield kernel(
            type_,
            f"  %m = fadd nnan {type_} %x, %y\n  %n = call nnan {type_} @llvm.maxnum.{short}({type_} %m, {type_} 0.0)\n  %r = call nnan {type_} @llvm.minnum.{short}({type_} %n, {type_} 1.0)",
            extra=clamp,
        )
        yield kernel(
            type_,
            f"  %m = call {type_} @llvm.maxnum.{short}({type_} %x, {type_} %y)\n  %r = call {type_} @llvm.minnum.{short}({type_} %m, {type_} %z)",
            extra=clamp,
        )
        yield kernel(
            type_,
            f"  %m = call {type_} @llvm.maxnum.{short}({type_} %x, {type_} %y)\n  %r = call {type_} @llvm.maxnum.{short}({type_} %m, {type_} %z)",
            extra=clamp,
        )
        for name, extra in (
            ("rcp", ""),
            ("rsq", ""),
            ("fract", ""),
            ("frexp.mant", ""),
            ("sin", ""),
            ("cos", ""),
            ("log", ""),
            ("exp2", ""),
        ):
            if type_ == "double" and name in ("sin", "cos", "log", "exp2"):
                continue
            if name in ("log", "exp2") and type_ != "float":
                continue
            line, declare = _call(f"amdgcn.{name}", type_, "%x")
            yield kernel(type_, line, extra=extra + declare)
        yield kernel(
            type_,
            f"  %r = call i1 @llvm.is.fpclass.{short}({type_} %x, i32 123)",
            "i1",
            f"declare i1 @llvm.is.fpclass.{short}({type_}, i32)\n",
        )
        yield kernel(
            type_,
            f"  %e = fptosi {type_} %y to i32\n  %r = call {type_} @llvm.ldexp.{short}.i32({type_} %x, i32 %e)",
            extra=f"declare {type_} @llvm.ldexp.{short}.i32({type_}, i32)\n",
        )
        yield kernel(
            type_,
            f"  %m = fmul contract {type_} %x, %y\n  %n = fadd contract {type_} %m, %z\n  %r = fmul contract {type_} %n, 4.0",
        )
        yield kernel(type_, f"  %m = fmul contract {type_} %x, 3.0\n  %r = fadd contract {type_} %m, %z")
        yield kernel(type_, f"  %m = fmul contract {type_} %x, %y\n  %r = fadd contract {type_} %m, 7.0")
    for shape in ("half", "<2 x half>"):
        yield kernel(shape, f"  %n = fneg {shape} %x\n  %r = fadd {shape} %n, %y")
    yield kernel(
        "half",
        "  %p = fpext half %x to float\n  %q = fpext half %y to float\n  %w = fpext half %z to float\n  %m = fmul contract float %p, %q\n  %n = fadd contract float %m, %w\n  %r = fptrunc float %n to half",
    )
    yield kernel(
        "half",
        "  %p = fpext half %x to float\n  %q = fpext half %y to float\n  %w = fpext half %z to float\n  %m = fmul contract float %p, %q\n  %r = fadd contract float %m, %w",
        "float",
    )
    yield kernel(
        "<2 x half>",
        "  %r = call float @llvm.amdgcn.fdot2(<2 x half> %x, <2 x half> %y, float 1.0, i1 0)",
        "float",
        "declare float @llvm.amdgcn.fdot2(<2 x half>, <2 x half>, float, i1)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.udot4(i32 %x, i32 %y, i32 %z, i1 0)",
        extra="declare i32 @llvm.amdgcn.udot4(i32, i32, i32, i1)\n",
    )


def _conversions() -> Iterator[str]:
    for source in ("half", "float", "double"):
        for to in ("i8", "i16", "i32", "i64"):
            for op in ("fptosi", "fptoui"):
                yield kernel(source, f"  %r = {op} {source} %x to {to}", to)
        for to in ("half", "float", "double"):
            order = ("half", "float", "double")
            if source != to:
                op = "fpext" if order.index(to) > order.index(source) else "fptrunc"
                yield kernel(source, f"  %r = {op} {source} %x to {to}", to)
    for source in ("i8", "i16", "i32", "i64"):
        for to in ("half", "float", "double"):
            for op in ("sitofp", "uitofp"):
                yield kernel(source, f"  %r = {op} {source} %x to {to}", to)
        for to in ("i8", "i16", "i32", "i64"):
            if to != source:
                wider = int(to[1:]) > int(source[1:])
                for op in ("sext", "zext") if wider else ("trunc",):
                    yield kernel(source, f"  %r = {op} {source} %x to {to}", to)
    yield kernel(
        "float",
        "  %r = call <2 x half> @llvm.amdgcn.cvt.pkrtz(float %x, float %y)",
        "<2 x half>",
        "declare <2 x half> @llvm.amdgcn.cvt.pkrtz(float, float)\n",
    )
    yield kernel(
        "float",
        "  %r = call <2 x i16> @llvm.amdgcn.cvt.pknorm.i16(float %x, float %y)",
        "<2 x i16>",
        "declare <2 x i16> @llvm.amdgcn.cvt.pknorm.i16(float, float)\n",
    )
    yield kernel("bfloat", "  %r = fadd bfloat %x, %y")
    yield kernel("float", "  %r = fptrunc float %x to bfloat", "bfloat")
    yield kernel("i32", "  %q = and i32 %x, 255\n  %r = uitofp i32 %q to float", "float")
    yield kernel(
        "i32", "  %q = lshr i32 %x, 8\n  %c1 = and i32 %q, 255\n  %r = uitofp i32 %c1 to float", "float"
    )


def _memory_kernels() -> Iterator[str]:
    for type_ in ("i8", "i16", "i32", "i64", "<3 x i32>", "<4 x i32>", "<8 x i32>", "<2 x i16>"):
        yield kernel(type_, f"  %r = freeze {type_} %x")
        yield (
            HEAD
            + f"""define amdgpu_kernel void @k(ptr %a, ptr %o) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {type_}, ptr %a, i32 %i
  %po = getelementptr {type_}, ptr %o, i32 %i
  %x = load {type_}, ptr %pa
  store {type_} %x, ptr %po
  ret void
}}
"""
        )
        yield (
            HEAD
            + f"""@lds = internal addrspace(3) global [2048 x {type_}] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, i32 %n) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {type_}, ptr addrspace(1) %a, i32 %i
  %x = load {type_}, ptr addrspace(1) %pa
  %l = getelementptr [2048 x {type_}], ptr addrspace(3) @lds, i32 0, i32 %i
  store {type_} %x, ptr addrspace(3) %l
  %j = xor i32 %i, %n
  call void @llvm.amdgcn.s.barrier()
  %m = getelementptr [2048 x {type_}], ptr addrspace(3) @lds, i32 0, i32 %j
  %y = load {type_}, ptr addrspace(3) %m
  %m2 = getelementptr {type_}, ptr addrspace(3) %m, i32 64
  %y2 = load {type_}, ptr addrspace(3) %m2
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  store {type_} %y, ptr addrspace(1) %po
  %po2 = getelementptr {type_}, ptr addrspace(1) %po, i32 100
  store {type_} %y2, ptr addrspace(1) %po2
  ret void
}}
"""
        )
        yield (
            HEAD
            + f"""define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, i32 %n) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %s = alloca [64 x {type_}], addrspace(5)
  %pa = getelementptr {type_}, ptr addrspace(1) %a, i32 %i
  %x = load {type_}, ptr addrspace(1) %pa
  %j = and i32 %i, 63
  %l = getelementptr [64 x {type_}], ptr addrspace(5) %s, i32 0, i32 %j
  store volatile {type_} %x, ptr addrspace(5) %l
  %m = getelementptr [64 x {type_}], ptr addrspace(5) %s, i32 0, i32 5
  store volatile {type_} %x, ptr addrspace(5) %m
  %l2 = getelementptr [64 x {type_}], ptr addrspace(5) %s, i32 0, i32 %n
  %y = load volatile {type_}, ptr addrspace(5) %l2
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  store {type_} %y, ptr addrspace(1) %po
  ret void
}}
"""
        )
    for type_ in ("i32", "i64"):
        for space in (1, 3, 0):
            for op in (
                "add",
                "sub",
                "and",
                "or",
                "xor",
                "max",
                "min",
                "umax",
                "umin",
                "xchg",
                "uinc_wrap",
                "udec_wrap",
            ):
                for scope, used in (("agent", True), ("workgroup", False)):
                    if used or op in ("add", "umax", "xchg"):
                        yield _atomic(
                            type_,
                            space,
                            f'atomicrmw {op} ptr addrspace({space}) %p, {type_} %v syncscope("{scope}") seq_cst',
                            used=used,
                        )
            yield _atomic(
                type_,
                space,
                f'cmpxchg ptr addrspace({space}) %p, {type_} %v, {type_} 7 syncscope("agent") seq_cst seq_cst',
                used=True,
                pair=True,
            )
    for type_, op in (("float", "fadd"), ("float", "fmax"), ("double", "fadd"), ("<2 x half>", "fadd")):
        for space in (1, 3):
            for used in (True, False):
                yield _atomic(
                    type_,
                    space,
                    f'atomicrmw {op} ptr addrspace({space}) %p, {type_} %v syncscope("agent") monotonic, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0',
                    used=used,
                )
    for order in ("acquire", "release", "seq_cst"):
        for scope in ("workgroup", "agent", "system"):
            scoped = "" if scope == "system" else f'syncscope("{scope}") '
            yield kernel("i32", f"  fence {scoped}{order}\n  %r = add i32 %x, 1")
    for hint in ("load i32, ptr addrspace(1) %pa, !nontemporal !0", 'load atomic i32, ptr addrspace(1) %pa syncscope("agent") acquire, align 4',
                 "load volatile i32, ptr addrspace(1) %pa", "load atomic i32, ptr addrspace(1) %pa seq_cst, align 4"):  # fmt: skip
        yield kernel("i32", f"  %r = {hint}") + "!0 = !{i32 1}\n"
    yield (
        kernel("half", "  %r = insertelement <2 x half> poison, half %x, i32 0\n", "<2 x half>")
        .replace("%r = ins", "%v = ins")
        .replace("\n\n  %po", "\n  %r = insertelement <2 x half> %v, half %y, i32 1\n  %po")
    )
    for builtin in ("load", "store"):
        body = ("  %r = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %d, i32 %x, i32 %y2, i32 0)" if builtin == "load" else
                "  call void @llvm.amdgcn.raw.buffer.store.i32(i32 %y, <4 x i32> %d, i32 %x, i32 16, i32 1)\n  %r = add i32 %x, 1")  # fmt: skip
        code = (
            "  %d = load <4 x i32>, ptr addrspace(4) null\n  %y2 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %y)\n"
            + body
        )
        yield kernel(
            "i32",
            code,
            extra="declare i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32>, i32, i32, i32)\ndeclare void @llvm.amdgcn.raw.buffer.store.i32(i32, <4 x i32>, i32, i32, i32)\ndeclare i32 @llvm.amdgcn.readfirstlane.i32(i32)\n",
        )


def _atomic(type_: str, space: int, operation: str, *, used: bool, pair: bool = False) -> str:
    lds = f"@lds = internal addrspace(3) global [256 x {type_}] poison, align 16\n" if space == 3 else ""
    base = {0: f"getelementptr {type_}, ptr %g, i32 %i", 1: f"getelementptr {type_}, ptr addrspace(1) %a, i32 %i",
            3: f"getelementptr {type_}, ptr addrspace(3) @lds, i32 %i"}[space]  # fmt: skip
    taken = f"  %w = extractvalue {{ {type_}, i1 }} %t, 0" if pair else f"  %w = freeze {type_} %t"
    store = (
        f"{taken}\n  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i\n  store {type_} %w, ptr addrspace(1) %po"
        if used
        else ""
    )
    metadata = "!0 = !{}\n" if "!0" in operation else ""
    return (
        HEAD
        + lds
        + f"""define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, ptr %g) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pv = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  %v = load {type_}, ptr addrspace(1) %pv
  %p = {base}
  %t = {operation}
{store}
  ret void
}}
{metadata}"""
    )


def _wave_kernels() -> Iterator[str]:
    declare = "declare i32 @llvm.amdgcn.{}\n"
    for name, signature, code in (
        ("readfirstlane.i32", "readfirstlane.i32(i32)", "i32 %x"), ("readlane.i32", "readlane.i32(i32, i32)", "i32 %x, i32 %s"),
        ("writelane.i32", "writelane.i32(i32, i32, i32)", "i32 %s, i32 3, i32 %x"), ("ds.bpermute", "ds.bpermute(i32, i32)", "i32 %x, i32 %y"),
        ("ds.permute", "ds.permute(i32, i32)", "i32 %x, i32 %y"), ("ds.swizzle", "ds.swizzle(i32, i32 immarg)", "i32 %x, i32 1055"),
        ("ds.swizzle", "ds.swizzle(i32, i32 immarg)", "i32 %x, i32 32853"), ("mbcnt.lo", "mbcnt.lo(i32, i32)", "i32 %x, i32 %y"),
        ("mbcnt.hi", "mbcnt.hi(i32, i32)", "i32 %x, i32 %y"), ("perm", "perm(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"),
        ("alignbyte", "alignbyte(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"), ("lerp", "lerp(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"),
        ("sad.u8", "sad.u8(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"), ("mul.i24.i32", "mul.i24.i32(i32, i32)", "i32 %x, i32 %y"),
        ("sffbh.i32", "sffbh.i32(i32)", "i32 %x"), ("ubfe.i32", "ubfe.i32(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"),
        ("s.getreg", "s.getreg(i32 immarg)", "i32 2177"), ("wave.reduce.umax.i32", "wave.reduce.umax.i32(i32, i32 immarg)", "i32 %x, i32 0"),
    ):  # fmt: skip
        yield kernel("i32", f"  %r = call i32 @llvm.amdgcn.{name}({code})", extra=declare.format(signature))
    for control, rows, banks, bound in (
        (0x1B, 15, 15, 1), (0x101, 15, 15, 0), (0x118, 15, 15, 1), (0x121, 10, 15, 0), (0x140, 15, 15, 1), (0x141, 15, 5, 1),
        (0x142, 15, 15, 0), (0x143, 12, 15, 0), (0x150, 15, 15, 1), (0x161, 15, 15, 1),
    ):  # fmt: skip
        for op in ("add i32 %u, %y", "or i32 %u, 0"):
            code = f"  %u = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %x, i32 {control}, i32 {rows}, i32 {banks}, i1 {bound})\n  %r = {op}"
            yield kernel(
                "i32", code, extra="declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n"
            )
    yield kernel(
        "float",
        "  %q = bitcast float %x to i32\n  %u = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %q, i32 273, i32 15, i32 15, i1 1)\n  %f = bitcast i32 %u to float\n  %n = fneg float %f\n  %r = fadd float %n, %y",
        extra="declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n",
    )
    yield kernel(
        "i32",
        "  %u = call i32 @llvm.amdgcn.mov.dpp8.i32(i32 %x, i32 2016)\n  %r = add i32 %u, %y",
        extra="declare i32 @llvm.amdgcn.mov.dpp8.i32(i32, i32)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.permlane16.i32(i32 %x, i32 %y, i32 %s, i32 %s, i1 0, i1 1)",
        extra="declare i32 @llvm.amdgcn.permlane16.i32(i32, i32, i32, i32, i1, i1)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.permlanex16.i32(i32 %x, i32 %y, i32 %s, i32 %s, i1 0, i1 0)",
        extra="declare i32 @llvm.amdgcn.permlanex16.i32(i32, i32, i32, i32, i1, i1)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.permlane64.i32(i32 %x)",
        extra="declare i32 @llvm.amdgcn.permlane64.i32(i32)\n",
    )
    yield kernel(
        "i32",
        "  %t = icmp slt i32 %x, %y\n  %q = call i32 @llvm.amdgcn.ballot.i32(i1 %t)\n  %r = call i32 @llvm.ctpop.i32(i32 %q)",
        extra="declare i32 @llvm.amdgcn.ballot.i32(i1)\ndeclare i32 @llvm.ctpop.i32(i32)\n",
    )
    yield kernel(
        "i32",
        "  call void @llvm.amdgcn.s.sleep(i32 2)\n  call void @llvm.amdgcn.s.setprio(i16 1)\n  call void @llvm.amdgcn.s.sethalt(i32 0)\n  call void @llvm.amdgcn.sched.barrier(i32 0)\n  %r = add i32 %x, 1",
        extra="declare void @llvm.amdgcn.s.sleep(i32)\ndeclare void @llvm.amdgcn.s.setprio(i16)\ndeclare void @llvm.amdgcn.s.sethalt(i32)\ndeclare void @llvm.amdgcn.sched.barrier(i32)\n",
    )
    for a, c in (("half", "float"), ("half", "half")):
        name = f"wmma.{_short(c)}.16x16x16.f16"
        yield _matrix(
            name,
            f"<16 x {a}>",
            f"<8 x {c}>" if c == "float" else f"<16 x {c}>",
            ", i1 0" if c == "half" else "",
            "v16f16",
        )
        yield _matrix(name, f"<8 x {a}>", f"<8 x {c}>", ", i1 0" if c == "half" else "", "v8f16")
    for name, a, c in (("mfma.f32.32x32x8f16", "<4 x half>", "<16 x float>"), ("mfma.f32.16x16x16f16", "<4 x half>", "<4 x float>"),
                       ("mfma.f32.32x32x8bf16.1k", "<4 x i16>", "<16 x float>"), ("mfma.f32.32x32x2f32", "float", "<16 x float>"),
                       ("mfma.f32.4x4x4f16", "<4 x half>", "<4 x float>"), ("mfma.i32.32x32x16.i8", "i64", "<16 x i32>"),
                       ("mfma.f32.16x16x32.fp8.fp8", "i64", "<4 x float>"), ("mfma.f64.16x16x4f64", "double", "<4 x double>")):  # fmt: skip
        yield _mfma(name, a, c)


def _mfma(name: str, a: str, c: str) -> str:
    return (
        HEAD
        + f"""declare {c} @llvm.amdgcn.{name}({a}, {a}, {c}, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %x = load {a}, ptr addrspace(1) %pa
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %z = load {c}, ptr addrspace(1) %po
  %r = call {c} @llvm.amdgcn.{name}({a} %x, {a} %x, {c} %z, i32 0, i32 0, i32 0)
  store {c} %r, ptr addrspace(1) %po
  ret void
}}
"""
    )


def _matrix(name: str, a: str, c: str, tail: str, suffix: str) -> str:
    out = "v" + c[1:].split(maxsplit=1)[0] + _short(c.split()[2].rstrip(">"))
    bools = ", i1" if tail else ""
    full = f"@llvm.amdgcn.{name}.{out}.{suffix}"
    return (
        HEAD
        + f"""declare {c} {full}({a}, {a}, {c}{bools})
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %x = load {a}, ptr addrspace(1) %pa
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %z = load {c}, ptr addrspace(1) %po
  %r = call {c} {full}({a} %x, {a} %x, {c} %z{tail})
  store {c} %r, ptr addrspace(1) %po
  ret void
}}
"""
    )


def _control_kernels() -> Iterator[str]:
    yield (
        HEAD
        + """define amdgpu_kernel void @k(ptr addrspace(1) %a, i32 %n) {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %p
  br label %loop
loop:
  %v = phi i32 [ %x, %entry ], [ %w, %next ]
  %c = phi i32 [ 0, %entry ], [ %d, %next ]
  %odd = and i32 %v, 1
  %t = icmp eq i32 %odd, 0
  br i1 %t, label %even, label %other
even:
  %h = lshr i32 %v, 1
  br label %next
other:
  %m = mul i32 %v, 3
  %k = add i32 %m, 1
  br label %next
next:
  %w = phi i32 [ %h, %even ], [ %k, %other ]
  %d = add i32 %c, 1
  %e = icmp ugt i32 %w, %n
  br i1 %e, label %loop, label %done
done:
  store i32 %d, ptr addrspace(1) %p
  ret void
}
"""
    )
    yield (
        HEAD
        + """define amdgpu_kernel void @k(ptr addrspace(1) %a, i32 %n, i64 %m) {
entry:
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %t = icmp slt i32 %g, %n
  br i1 %t, label %yes, label %no
yes:
  %q = sext i32 %g to i64
  %u = mul i64 %q, %m
  %z = call i64 @llvm.ctpop.i64(i64 %u)
  %w = lshr i64 %z, 3
  %f = call i32 @llvm.abs.i32(i32 %g, i1 0)
  %h = call i32 @llvm.ctlz.i32(i32 %f, i1 0)
  %h64 = zext i32 %h to i64
  %s = add i64 %w, %h64
  %r = call i64 @llvm.smax.i64(i64 %s, i64 %m)
  %v = ashr i64 %r, 5
  %p = getelementptr i64, ptr addrspace(1) %a, i64 %q
  store i64 %v, ptr addrspace(1) %p
  br label %no
no:
  ret void
}
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.abs.i32(i32, i1)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i64 @llvm.smax.i64(i64, i64)
"""
    )


def lines(text: str, target: str, *, features: str = "", opt: int = 2) -> list[tuple[str, str]]:
    """Compile IR and return the dwords and the text of its instructions."""
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(
        cpu=target, features=",".join(filter(None, ("+dumpcode", features))), opt=opt
    )
    module = llvm.parse_assembly(text)
    module.verify()
    found = _LINE.findall(machine.emit_object(module))
    return [(code.decode().strip(), re.sub(r"\s+", " ", read.decode())) for read, code in found]


def corpus(target: str) -> tuple[dict[str, str], int]:
    """Return dwords -> text of every shape of an instruction in the corpus, and how many kernels it had."""
    shapes: dict[str, tuple[str, str]] = {}
    count = 0
    for text in kernels():
        if not selectable(text, target):
            continue
        count += 1
        for code, read in lines(text, target):
            if '""' not in read:  # else a branch whose target is not known yet
                shapes.setdefault(_SHAPE.sub("#", read), (code, read))
    return dict(sorted(shapes.values(), key=lambda p: p[1])), count


def selectable(text: str, target: str) -> bool:
    """Return whether LLVM can select a kernel of the corpus for a target: what it cannot, ends the process."""
    gfx9 = target == "gfx942"
    gfx12 = target == "gfx1201"
    if "wmma" in text:
        return not gfx9 and ("<16 x half> %x" in text) != gfx12
    if "mfma" in text or "row_bcast" in text:
        return gfx9
    if re.search(r"i32 (322|323),", text):
        return gfx9
    if re.search(r"permlane|dpp8|i32 353,|permlane64", text):
        return not gfx9
    if "i32 336," in text:
        return True
    if "mfma" in text:
        return gfx9
    if "ballot.i32" in text:
        return not gfx9
    return True


def main() -> int:
    """Write the golden files."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _GOLDEN.mkdir(parents=True, exist_ok=True)
    for target in sys.argv[1:] or TARGETS:
        found, count = corpus(target)
        (_GOLDEN / f"{target}.txt").write_text("".join(f"{code}: {read}\n" for code, read in found.items()))
        print(f"{target}: {len(found)} shapes of instructions of {count} kernels", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
