"""Kernels of floating-point arithmetic and of conversions between numeric types.

Not here: which targets compile them (`corpus`). Next: `ir`, the parts that they share.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.amd_golden.ir import intrinsic, kernel, short

if TYPE_CHECKING:
    from collections.abc import Iterator


FLOATS = ("half", "float", "double", "<2 x half>", "<4 x float>", "<2 x float>")


def float_kernels() -> Iterator[str]:
    """Yield kernels of each float operation and type, with input and output modifiers."""
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
            line, declare = intrinsic(name, type_, *("%x", "%y", "%z")[:count])
            yield kernel(type_, line, extra=declare)
        if type_[0] == "<":
            continue
        for predicate in ("oeq", "ogt", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "une", "uno"):
            yield kernel(
                type_, f"  %t = fcmp {predicate} {type_} %x, %y\n  %r = select i1 %t, {type_} %x, {type_} %z"
            )
        fabs = f"declare {type_} @llvm.fabs.{short(type_)}({type_})\ndeclare {type_} @llvm.fma.{short(type_)}({type_}, {type_}, {type_})\n"
        suffix = short(type_)
        yield kernel(
            type_,
            f"  %n = fneg {type_} %x\n  %u = call {type_} @llvm.fabs.{suffix}({type_} %y)\n  %r = fmul {type_} %n, %u",
            extra=fabs,
        )
        yield kernel(
            type_,
            f"  %n = fneg {type_} %x\n  %u = call {type_} @llvm.fabs.{suffix}({type_} %y)\n  %r = call {type_} @llvm.fma.{suffix}({type_} %n, {type_} %u, {type_} %z)",
            extra=fabs,
        )
        clamp = f"declare {type_} @llvm.minnum.{suffix}({type_}, {type_})\ndeclare {type_} @llvm.maxnum.{suffix}({type_}, {type_})\n"
        yield kernel(
            type_,
            f"  %m = fadd nnan {type_} %x, %y\n  %n = call nnan {type_} @llvm.maxnum.{suffix}({type_} %m, {type_} 0.0)\n  %r = call nnan {type_} @llvm.minnum.{suffix}({type_} %n, {type_} 1.0)",
            extra=clamp,
        )
        yield kernel(
            type_,
            f"  %m = call {type_} @llvm.maxnum.{suffix}({type_} %x, {type_} %y)\n  %r = call {type_} @llvm.minnum.{suffix}({type_} %m, {type_} %z)",
            extra=clamp,
        )
        yield kernel(
            type_,
            f"  %m = call {type_} @llvm.maxnum.{suffix}({type_} %x, {type_} %y)\n  %r = call {type_} @llvm.maxnum.{suffix}({type_} %m, {type_} %z)",
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
            line, declare = intrinsic(f"amdgcn.{name}", type_, "%x")
            yield kernel(type_, line, extra=extra + declare)
        yield kernel(
            type_,
            f"  %r = call i1 @llvm.is.fpclass.{suffix}({type_} %x, i32 123)",
            "i1",
            f"declare i1 @llvm.is.fpclass.{suffix}({type_}, i32)\n",
        )
        yield kernel(
            type_,
            f"  %e = fptosi {type_} %y to i32\n  %r = call {type_} @llvm.ldexp.{suffix}.i32({type_} %x, i32 %e)",
            extra=f"declare {type_} @llvm.ldexp.{suffix}.i32({type_}, i32)\n",
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


def conversion_kernels() -> Iterator[str]:
    """Yield kernels of the conversions between integers and floats of all widths."""
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
