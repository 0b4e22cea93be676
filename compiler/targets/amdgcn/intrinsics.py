"""The calls that LLVM can compile for a processor; IR text with other calls is refused.

LLVM ends the process on an intrinsic that the processor lacks, on an undefined function and on inline
assembly. Therefore every call is looked up first: intrinsics of AMDGPU by the processor's features, LLVM's
generic ones by element type (LLVM has no library for this target). A name that is in no table is refused.

Not here: choosing instructions (`lanes`), the processors (`rows`). Next: `target`, the caller.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.errors import CompileError

if TYPE_CHECKING:
    from compiler.targets.amdgcn.rows import Choice

NEEDS: dict[str, str] = {
    intrinsic: need
    for need, intrinsics in {
        "": """workitem.id.x workitem.id.y workitem.id.z workgroup.id.x workgroup.id.y workgroup.id.z
            dispatch.ptr queue.ptr dispatch.id implicitarg.ptr kernarg.segment.ptr
            s.barrier wave.barrier s.sleep s.getreg s.setprio sched.barrier
            update.dpp ds.swizzle ds.bpermute ds.permute readlane readfirstlane writelane ballot
            mbcnt.lo mbcnt.hi rcp rsq sqrt fract frexp.mant frexp.exp exp2.f16 exp2.f32
            log.f16 log.f32 sin.f16 sin.f32 cos.f16 cos.f32 fmed3.f16 fmed3.f32
            cvt.pkrtz fdot2 sdot4 sdot8""",
        "dpp8": "mov.dpp8",
        "permlane16": "permlane16 permlanex16",
        "permlane64": "permlane64",
        "permlane-swap": "permlane16.swap permlane32.swap",
        "split-barrier": "s.barrier.signal s.barrier.wait",
        "memtime": "s.memtime s.memrealtime",
        "dot-bf16": "fdot2.f32.bf16",
        "dot-mixed-sign": "sudot4",
        "cvt-fp8": "cvt.pk.fp8.f32 cvt.pk.bf8.f32",
        "mfma": """mfma.f32.16x16x16f16 mfma.f32.32x32x8f16 mfma.f32.16x16x16bf16.1k mfma.f32.32x32x8bf16.1k
            mfma.f32.16x16x4f32 mfma.f64.16x16x4f64""",
        "mfma-i8-k16": "mfma.i32.16x16x16i8",
        "mfma-i8-k32": "mfma.i32.16x16x32.i8",
        "mfma-fp8": "mfma.f32.16x16x32.fp8.fp8 mfma.f32.16x16x32.bf8.bf8",
        "mfma-xf32": "mfma.f32.16x16x8.xf32",
        "mfma-k32": """mfma.f32.16x16x32.f16 mfma.f32.16x16x32.bf16 mfma.f32.32x32x16.f16
            mfma.f32.32x32x16.bf16""",
        "wmma-gfx11 wave32": """wmma.f32.16x16x16.f16.v8f32.v16f16 wmma.f32.16x16x16.bf16.v8f32.v16i16
            wmma.i32.16x16x16.iu8.v8i32.v4i32""",
        "wmma-gfx11 wave64": """wmma.f32.16x16x16.f16.v4f32.v16f16 wmma.f32.16x16x16.bf16.v4f32.v16i16
            wmma.i32.16x16x16.iu8.v4i32.v4i32""",
        "wmma-gfx12 wave32": """wmma.f32.16x16x16.f16.v8f32.v8f16 wmma.f32.16x16x16.bf16.v8f32.v8i16
            wmma.i32.16x16x16.iu8.v8i32.v2i32 wmma.f32.16x16x16.fp8.fp8.v8f32.v2i32""",
        "wmma-gfx12 wave64": """wmma.f32.16x16x16.f16.v4f32.v4f16 wmma.f32.16x16x16.bf16.v4f32.v4i16
            wmma.i32.16x16x16.iu8.v4i32.i32 wmma.f32.16x16x16.fp8.fp8.v4f32.i32""",
    }.items()
    for intrinsic in intrinsics.split()
}
"""AMDGPU intrinsic without its prefix -> the features that the processor must have, separated by spaces.

The name includes types if LLVM selects the intrinsic only with these."""

INTEGERS = frozenset(("i8", "i16", "i32", "i64"))
FLOATS = frozenset(("f16", "f32", "f64"))
SINGLE = frozenset(("f16", "f32"))
PLAIN: dict[str, frozenset[str]] = {
    **dict.fromkeys(("fma", "fabs", "copysign", "sqrt", "floor", "ceil", "trunc", "rint", "roundeven",
                     "round", "nearbyint", "minnum", "maxnum", "minimum", "maximum", "canonicalize"), FLOATS),
    **dict.fromkeys(("exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "pow"), SINGLE),
    **dict.fromkeys(("smax", "smin", "umax", "umin", "abs", "bitreverse", "ctpop", "ctlz", "cttz"),
                    INTEGERS),
    **dict.fromkeys(("fptosi.sat", "fptoui.sat", "sadd.sat", "ssub.sat", "uadd.sat", "usub.sat"), INTEGERS),
    "fptrunc.round": frozenset(("f16",)), "vector.reduce.or": frozenset(("i1",)),
    "masked.gather": FLOATS | INTEGERS,
}  # fmt: skip
"""LLVM's generic intrinsic -> the element types with which LLVM selects it; of conversions, the result's."""
_CALLED = re.compile(r"\bcall\b[^@\n]*@([\w.$-]+)\(")
_DEFINED = re.compile(r"^define [^@\n]*@([\w.$-]+)\(", re.MULTILINE)
_ASSEMBLY = re.compile(r"\bcall\b[^@\n\"]*\basm\b")
_TYPES = re.compile(r"(?:\.(?:v\d+)?(?:[ifp]\d+|bf16))+$")
_AMD, _LLVM = "llvm.amdgcn.", "llvm."


def check(ir: str, choice: Choice) -> None:
    """Raise `CompileError` if the text has a call that LLVM cannot select for the choice."""
    if _ASSEMBLY.search(ir):
        raise CompileError("LLVM here has no assembler for AMDGPU: inline assembly cannot be emitted", ast=ir)
    for name in sorted(set(_CALLED.findall(ir))):
        problem = _problem(name, choice) if name.startswith(_LLVM) else _undefined(name, ir)
        if problem:
            raise CompileError(f"the kernel calls @{name}, but {problem}", ast=ir)


def _undefined(name: str, ir: str) -> str:
    return "" if name in _DEFINED.findall(ir) else "it is not defined: kernels are not linked with a library"


def _problem(name: str, choice: Choice) -> str:
    """Return why LLVM cannot select an intrinsic, "" if it can."""
    types = _TYPES.search(name)
    stem = name[: types.start()] if types else name
    here = "compiler.targets.amdgcn.intrinsics"
    if stem.startswith(_AMD):
        need = NEEDS.get(name.removeprefix(_AMD), NEEDS.get(stem.removeprefix(_AMD)))
        if need is None:
            return f"it is not in the table of intrinsics ({here}.NEEDS)"
        missing = set(need.split()) - choice.row.features - {f"wave{choice.wave}"}
        return f"{choice.arch} with wave{choice.wave} has no {', '.join(sorted(missing))}" if missing else ""
    kinds = PLAIN.get(stem.removeprefix(_LLVM))
    if kinds is None:
        return f"it is not in the table of functions that LLVM selects ({here}.PLAIN)"
    element = re.sub(r"^v\d+", "", types.group().split(".")[1]) if types else ""
    if element in kinds:
        return ""
    return f"on {element or 'no type'} LLVM makes it a library call; it selects {', '.join(sorted(kinds))}"
