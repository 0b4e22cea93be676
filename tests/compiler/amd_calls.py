"""A kernel for each entry of the tables of intrinsics, and for atomics and fences of every scope."""

from __future__ import annotations

import re

from compiler.targets.amdgcn.intrinsics import NEEDS, PLAIN

_MATRIX = "{r} @{f}({a} zeroinitializer, {a} zeroinitializer, {r} zeroinitializer"
_MFMA = _MATRIX + ", i32 0, i32 0, i32 0)"
_FLOATS = {"f16": "half", "f32": "float", "f64": "double"}

CALLS: dict[str, str] = {
    **dict.fromkeys([name for name in NEEDS if ".id." in name], "i32 @{f}()"),
    **dict.fromkeys([name for name in NEEDS if name.endswith(".ptr")], "ptr addrspace(4) @{f}()"),
    "dispatch.id": "i64 @{f}()",
    "s.barrier": "void @{f}()",
    "wave.barrier": "void @{f}()",
    "s.sleep": "void @{f}(i32 1)",
    "s.getreg": "i32 @{f}(i32 1)",
    "s.setprio": "void @{f}(i16 1)",
    "sched.barrier": "void @{f}(i32 0)",
    "update.dpp": "i32 @{f}.i32(i32 poison, i32 %i, i32 177, i32 15, i32 15, i1 true)",
    "mov.dpp8": "i32 @{f}.i32(i32 %i, i32 1)",
    "ds.swizzle": "i32 @{f}(i32 %i, i32 31)",
    "ds.bpermute": "i32 @{f}(i32 %i, i32 %i)",
    "ds.permute": "i32 @{f}(i32 %i, i32 %i)",
    "readlane": "i32 @{f}.i32(i32 %i, i32 3)",
    "readfirstlane": "i32 @{f}.i32(i32 %i)",
    "writelane": "i32 @{f}.i32(i32 7, i32 1, i32 %i)",
    "ballot": "i64 @{f}.i64(i1 true)",
    "mbcnt.lo": "i32 @{f}(i32 -1, i32 0)",
    "mbcnt.hi": "i32 @{f}(i32 -1, i32 0)",
    **dict.fromkeys(("permlane16", "permlanex16"),
                    "i32 @{f}.i32(i32 %i, i32 %i, i32 1, i32 2, i1 false, i1 false)"),
    "permlane64": "i32 @{f}.i32(i32 %i)",
    **dict.fromkeys(("permlane16.swap", "permlane32.swap"),
                    "{{i32, i32}} @{f}(i32 %i, i32 %i, i1 false, i1 false)"),
    "s.barrier.signal": "void @{f}(i32 -1)",
    "s.barrier.wait": "void @{f}(i16 -1)",
    "s.memtime": "i64 @{f}()",
    "s.memrealtime": "i64 @{f}()",
    **dict.fromkeys(("rcp", "rsq", "sqrt", "fract", "frexp.mant"), "double @{f}.f64(double %f64)"),
    "frexp.exp": "i32 @{f}.i32.f32(float %f32)",
    **{f"{name}.{kind}": f"{text} @{{f}}({text} %{kind})"
       for name in ("exp2", "log", "sin", "cos") for kind, text in _FLOATS.items() if kind != "f64"},
    "fmed3.f16": "half @{f}(half %f16, half 0.0, half 1.0)",
    "fmed3.f32": "float @{f}(float %f32, float 0.0, float 1.0)",
    "cvt.pkrtz": "<2 x half> @{f}(float %f32, float %f32)",
    "fdot2": "float @{f}(<2 x half> zeroinitializer, <2 x half> zeroinitializer, float %f32, i1 false)",
    "fdot2.f32.bf16":
        "float @{f}(<2 x bfloat> zeroinitializer, <2 x bfloat> zeroinitializer, float %f32, i1 false)",
    **dict.fromkeys(("sdot4", "sdot8"), "i32 @{f}(i32 %i, i32 %i, i32 %i, i1 false)"),
    "sudot4": "i32 @{f}(i1 true, i32 %i, i1 false, i32 %i, i32 %i, i1 false)",
    **dict.fromkeys(("cvt.pk.fp8.f32", "cvt.pk.bf8.f32"),
                    "i32 @{f}(float %f32, float %f32, i32 0, i1 false)"),
}  # fmt: skip
"""The call of each intrinsic of `NEEDS`, `{f}` for its name."""

for _name, _kinds in {
    "mfma.f32.16x16x16f16": ("<4 x float>", "<4 x half>"),
    "mfma.f32.32x32x8f16": ("<16 x float>", "<4 x half>"),
    "mfma.f32.16x16x16bf16.1k": ("<4 x float>", "<4 x i16>"),
    "mfma.f32.32x32x8bf16.1k": ("<16 x float>", "<4 x i16>"),
    "mfma.f32.16x16x32.f16": ("<4 x float>", "<8 x half>"),
    "mfma.f32.16x16x32.bf16": ("<4 x float>", "<8 x bfloat>"),
    "mfma.f32.32x32x16.f16": ("<16 x float>", "<8 x half>"),
    "mfma.f32.32x32x16.bf16": ("<16 x float>", "<8 x bfloat>"),
    "mfma.f32.16x16x8.xf32": ("<4 x float>", "<2 x float>"),
}.items():
    CALLS[_name] = _MFMA.format(r=_kinds[0], a=_kinds[1], f="{f}")
for _name, _result, _operand in (
    ("mfma.f64.16x16x4f64", "<4 x double>", "double %f64"),
    ("mfma.f32.16x16x4f32", "<4 x float>", "float %f32"),
    ("mfma.i32.16x16x16i8", "<4 x i32>", "i32 %i"),
    ("mfma.i32.16x16x32.i8", "<4 x i32>", "i64 0"),
    ("mfma.f32.16x16x32.fp8.fp8", "<4 x float>", "i64 0"),
    ("mfma.f32.16x16x32.bf8.bf8", "<4 x float>", "i64 0"),
):
    _tail = f"{_result} zeroinitializer, i32 0, i32 0, i32 0"
    CALLS[_name] = f"{_result} @{{f}}({_operand}, {_operand}, {_tail})"


def _vector(code: str) -> str:
    """Return LLVM's type for a part of an intrinsic's name, such as v8f32."""
    lanes, kind = re.fullmatch(r"(?:v(\d+))?(\w+)", code).groups()  # type: ignore[union-attr]
    scalar = _FLOATS.get(kind, kind)
    return f"<{lanes} x {scalar}>" if lanes else scalar


for _name in NEEDS:
    if _name.startswith("wmma"):
        _r, _a = (_vector(part) for part in _name.split(".")[-2:])
        _zero = f"{_a} zeroinitializer"
        CALLS[_name] = (
            f"{_r} @{{f}}(i1 true, {_zero}, i1 true, {_zero}, {_r} zeroinitializer, i1 false)"
            if "iu8" in _name
            else f"{_r} @{{f}}({_zero}, {_zero}, {_r} zeroinitializer)"
        )

OPERANDS = {"fma": 3, "copysign": 2, "minnum": 2, "maxnum": 2, "minimum": 2, "maximum": 2, "pow": 2}
FLAGGED = ("abs", "ctlz", "cttz")


def _plain() -> list[str]:
    """Return a call of every entry of `PLAIN` on every type."""
    out = []
    for name, kinds in PLAIN.items():
        for kind in sorted(kinds):
            text = _FLOATS.get(kind, kind)
            if name in ("fptosi.sat", "fptoui.sat"):
                out += [
                    f"{kind} @llvm.{name}.{kind}.{source}({_FLOATS[source]} %{source})" for source in _FLOATS
                ]
            elif name == "fptrunc.round":
                out.append(f'half @llvm.{name}.f16.f32(float %f32, metadata !"round.tonearest")')
            elif name == "vector.reduce.or":
                out.append(f"i1 @llvm.{name}.v4i1(<4 x i1> %b4)")
            elif name == "masked.gather":
                operands = f"<4 x ptr addrspace(4)> %p4, i32 4, <4 x i1> %b4, <4 x {text}> zeroinitializer"
                out.append(f"<4 x {text}> @llvm.{name}.v4{kind}.v4p4({operands})")
            elif kind in _FLOATS:
                operands = ", ".join([f"{text} %{kind}"] * OPERANDS.get(name, 1))
                out.append(f"{text} @llvm.{name}.{kind}({operands})")
            else:
                single = name in ("ctpop", "bitreverse")
                second = "" if single else ", i1 false" if name in FLAGGED else f", {kind} %{kind}"
                out.append(f"{kind} @llvm.{name}.{kind}({kind} %{kind}{second})")
    return out


SCOPES = ("", "agent", "workgroup", "wavefront")
ATOMICS = [
    f"{line}, align {8 if '64' in line or 'double' in line else 4}"
    for scope in SCOPES
    for where in (f'syncscope("{scope}") ' if scope else "",)
    for line in (
        f"%r = atomicrmw add ptr addrspace(1) %p, i32 %i {where}monotonic",
        f"%r = atomicrmw umax ptr addrspace(1) %p, i64 %i64 {where}acq_rel",
        f"%r = atomicrmw fadd ptr addrspace(1) %p, float %f32 {where}monotonic",
        f"%r = atomicrmw fadd ptr addrspace(1) %p, double %f64 {where}monotonic",
        f"%r = atomicrmw add ptr addrspace(3) @lds, i32 %i {where}monotonic",
        f"%r = cmpxchg ptr addrspace(1) %p, i32 %i, i32 7 {where}seq_cst monotonic",
        f"%r = load atomic i32, ptr addrspace(1) %p {where}acquire",
        f"store atomic i32 %i, ptr addrspace(1) %p {where}release",
    )
] + [
    f'fence syncscope("{scope}") {order}'
    for scope in SCOPES
    if scope
    for order in ("release", "acquire", "seq_cst")
]

_HEAD = """define amdgpu_kernel void @k{n}(ptr addrspace(1) %p, float %f, i32 %j, double %d, half %h,
    i8 %i8, i16 %i16, i64 %i64) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = add i32 %t, %j
  %i32 = add i32 %i, 1
  %x = uitofp i32 %i to float
  %f32 = fadd float %x, %f
  %y = uitofp i32 %i to half
  %f16 = fadd half %y, %h
  %z = uitofp i32 %i to double
  %f64 = fadd double %z, %d
  %v4 = insertelement <4 x i32> zeroinitializer, i32 %i, i32 1
  %b4 = icmp sgt <4 x i32> %v4, splat (i32 2)
  %p4 = getelementptr i8, ptr addrspace(4) @table, <4 x i32> %v4
"""


def _result_and_kinds(call: str) -> tuple[str, str, str]:
    """Return the type of the result, the function and the types of the operands of a call's text."""
    result, function, operands = re.fullmatch(r"(.*?) (@[\w.]+)\((.*)\)", call).groups()  # type: ignore[union-attr]
    parts = re.split(r", (?![^<{]*[>}])", operands) if operands else []
    return result, function, ", ".join([part.rsplit(" ", 1)[0] for part in parts])


def module(calls: list[str], others: list[str]) -> str:
    """Return IR text with a kernel for each call and each other instruction."""
    declared = {"@llvm.amdgcn.workitem.id.x": "declare i32 @llvm.amdgcn.workitem.id.x()"}
    kernels = []
    for call in calls:
        result, function, kinds = _result_and_kinds(call)
        declared[function] = f"declare {result} {function}({kinds})"
        body = f"  call {call}\n" if result == "void" else f"  %r = call {call}\n"
        if result.startswith("ptr"):
            body += "  %o = load i32, ptr addrspace(4) %r\n  store i32 %o, ptr addrspace(1) %p\n"
        elif result != "void":
            body += f"  store {result} %r, ptr addrspace(1) %p\n"
        kernels.append(body)
    kernels += [f"  {line}\n" for line in others]
    texts = [_HEAD.format(n=n) + body + "  ret void\n}\n" for n, body in enumerate(kernels)]
    table = "@table = internal addrspace(4) constant [2 x i64] [i64 3, i64 5]"
    return "\n".join(["@lds = internal addrspace(3) global i32 poison", table, *texts, *declared.values()])


def calls_of(names: list[str]) -> list[str]:
    """Return the calls of entries of `NEEDS`."""
    return [CALLS[name].format(f=f"llvm.amdgcn.{name}") for name in names]


PLAIN_CALLS = _plain()
