"""LLVM IR text of the primitives that are functions: `pause`, the floating-point control, `on_stack`.

They depend on the machine. Not here: primitives that are one instruction (`native`), their contracts
(`primitives`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAUSE: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "x86_64": ("llvm.x86.sse2.pause", "", ""),
        "aarch64": ("llvm.aarch64.hint", "i32", "i32 1"),
    }
)
"""Machine -> intrinsic of the spin-loop hint, types of its arguments, the arguments."""
MACHINES: Final = tuple(_PAUSE)

_FLOAT_MODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "x86_64": """declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @float_mode() alwaysinline {
%word = alloca i32
call void @llvm.x86.sse.stmxcsr(ptr %word)
%mode = load i32, ptr %word
%wide = zext i32 %mode to i64
ret i64 %wide
}
define internal void @set_float_mode(i64 %wide) alwaysinline {
%word = alloca i32
%mode = trunc i64 %wide to i32
store i32 %mode, ptr %word
call void @llvm.x86.sse.ldmxcsr(ptr %word)
ret void
}""",
        "aarch64": """declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @float_mode() alwaysinline {
%mode = call i64 @llvm.aarch64.get.fpcr()
ret i64 %mode
}
define internal void @set_float_mode(i64 %mode) alwaysinline {
call void @llvm.aarch64.set.fpcr(i64 %mode)
ret void
}""",
    }
)
_ON_STACK: Final = """declare ptr @llvm.stacksave.p0()
declare void @llvm.stackrestore.p0(ptr)
define internal i64 @on_stack(i64 %top, i64 %function, i64 %a, i64 %b, i64 %c, i64 %d) #1 {
%more = and i64 %top, 15
%size = add i64 %more, 16
%dynamic = alloca i8, i64 %size, align 16
store volatile ptr %dynamic, ptr %dynamic
%old = call ptr @llvm.stacksave.p0()
%new = inttoptr i64 %top to ptr
%target = inttoptr i64 %function to ptr
call void @llvm.stackrestore.p0(ptr %new)
%result = call i64 %target(i64 %a, i64 %b, i64 %c, i64 %d)
call void @llvm.stackrestore.p0(ptr %old)
ret i64 %result
}
attributes #1 = { noinline optnone nounwind "frame-pointer"="all" }"""
"""The allocation of dynamic size makes LLVM address this frame by the frame pointer and not by the stack
pointer, which the function sets; no pass may change the function."""


def intrinsics(machine: str) -> str:
    """Return the definitions of these functions for one of `MACHINES`."""
    name, kinds, arguments = _PAUSE[machine]
    pause = f"define internal void @pause() alwaysinline {{\ncall void @{name}({arguments})\nret void\n}}"
    return "\n".join((f"declare void @{name}({kinds})", pause, _FLOAT_MODE[machine], _ON_STACK))
