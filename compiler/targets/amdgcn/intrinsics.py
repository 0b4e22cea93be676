"""Which calls of an IR text LLVM can select on a processor; the others are refused before LLVM sees them.

On an intrinsic that a processor lacks, on a function that nothing defines and on inline assembly LLVM ends
the process. So every call is looked up here first: intrinsics of AMDGPU by what the processor has, LLVM's own
ones by element type (LLVM has no library for this target). A name that is not in a table is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.errors import CompileError

if TYPE_CHECKING:
    from compiler.targets.amdgcn.rows import Choice

EVERYWHERE = """
workitem.id.x workitem.id.y workitem.id.z workgroup.id.x workgroup.id.y workgroup.id.z
dispatch.ptr queue.ptr dispatch.id implicitarg.ptr kernarg.segment.ptr
s.barrier wave.barrier s.sleep
update.dpp ds.swizzle ds.bpermute ds.permute readlane readfirstlane writelane ballot mbcnt.lo mbcnt.hi
rcp rsq sqrt frexp.mant frexp.exp fract fmed3 exp2 log cvt.pkrtz
"""
NEEDS: dict[str, str] = {
    **dict.fromkeys(EVERYWHERE.split(), ""),
    "permlane16": "permlane16",
    "permlanex16": "permlane16",
    "permlane64": "permlane64",
}
"""AMDGPU's intrinsic, without its prefix and types -> what a processor must have; empty: all have it."""

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
}  # fmt: skip
"""LLVM's own intrinsic -> the element types it is selected for; of conversions, the result's."""
_CALLED = re.compile(r"\bcall\b[^@\n]*@([\w.$-]+)\(")
_DEFINED = re.compile(r"^define [^@\n]*@([\w.$-]+)\(", re.MULTILINE)
_ASSEMBLY = re.compile(r"\bcall\b[^@\n\"]*\basm\b")
_TYPES = re.compile(r"(?:\.(?:v\d+)?(?:[ifp]\d+|bf16))+$")
_AMD, _LLVM = "llvm.amdgcn.", "llvm."


def check(ir: str, choice: Choice) -> None:
    """Raise CompileError when the text calls what LLVM cannot select for the choice."""
    if _ASSEMBLY.search(ir):
        raise CompileError("LLVM here has no assembler for AMDGPU: inline assembly cannot be emitted", ast=ir)
    for name in sorted(set(_CALLED.findall(ir))):
        problem = _problem(name, choice) if name.startswith(_LLVM) else _undefined(name, ir)
        if problem:
            raise CompileError(f"the kernel calls @{name}, but {problem}", ast=ir)


def _undefined(name: str, ir: str) -> str:
    return "" if name in _DEFINED.findall(ir) else "nothing defines it: kernels are not linked with a library"


def _problem(name: str, choice: Choice) -> str:
    """What keeps an intrinsic from being selected; empty when nothing does."""
    types = _TYPES.search(name)
    stem = name[: types.start()] if types else name
    here = "compiler.targets.amdgcn.intrinsics"
    if stem.startswith(_AMD):
        need = NEEDS.get(stem.removeprefix(_AMD))
        if need is None:
            return f"it is not in the table of intrinsics ({here}.NEEDS)"
        return "" if not need or need in choice.row.features else f"{choice.arch} has no {need}"
    kinds = PLAIN.get(stem.removeprefix(_LLVM))
    if kinds is None:
        return f"it is not in the table of functions that LLVM selects ({here}.PLAIN)"
    element = re.sub(r"^v\d+", "", types.group().split(".")[1]) if types else ""
    if element in kinds:
        return ""
    return f"on {element or 'no type'} LLVM makes it a library call; it selects {', '.join(sorted(kinds))}"
