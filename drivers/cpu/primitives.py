"""Primitives of the native subset: atomic accesses, raw memory, calls by address.

`drivers.cpu.native` translates calls of these functions by name. For a parameter `field` the caller writes
`record.field`. The primitive determines the memory order; a plain `record.field` is a monotonic access.
Python can also execute `acquire`, `view` of a `Record`, and `pause`; the other functions raise
`NotImplementedError`.

`pause`, the floating-point control and `on_stack` are functions in IR, whose text depends on the machine.

Not here: the translation of primitives to one instruction (`native`). Next: `processor`, the user.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from drivers.cpu.layouts import Record
from hcq.layout import BitStruct

if TYPE_CHECKING:
    from collections.abc import Mapping

u64 = int
"""The type of every value of the subset: an unsigned 64-bit integer, or an address."""

LayoutT = TypeVar("LayoutT", bound=Record | BitStruct)


def acquire(field: u64) -> u64:
    """Load a field with sequential consistency."""
    return field


def release(field: u64, value: u64) -> None:
    """Store to a field with release order: a thread that acquires the value sees all earlier stores."""
    raise _native_only("release", field, value)


def swap(field: u64, value: u64) -> u64:
    """Store to a field with sequential consistency; return the old value."""
    raise _native_only("swap", field, value)


def fetch_add(field: u64, value: u64) -> u64:
    """Add to a field with sequential consistency; return the old value."""
    raise _native_only("fetch_add", field, value)


def cas(field: u64, old: u64, new: u64) -> bool:
    """Replace `old` by `new` in a field with sequential consistency; return whether it held `old`."""
    raise _native_only("cas", field, old, new)


def address(field: u64) -> u64:
    """Return the address of a field."""
    raise _native_only("address", field)


def base(record: Record | BitStruct) -> u64:
    """Return the address of a record or packet."""
    raise _native_only("base", record)


def view(kind: type[LayoutT], at: u64) -> LayoutT:
    """Return the record or packet at an address."""
    if issubclass(kind, Record):
        return kind(at)
    raise _native_only("view", kind, at)


def stack(size: u64) -> u64:
    """Return the address of `size` bytes, a constant, in this call's stack frame, aligned to 16 bytes."""
    raise _native_only("stack", size)


def store8(at: u64, value: u64) -> None:
    """Store the low byte of a value at an address."""
    raise _native_only("store8", at, value)


def store32(at: u64, value: u64) -> None:
    """Store the low 32 bits of a value at an address of any alignment."""
    raise _native_only("store32", at, value)


def store64(at: u64, value: u64) -> None:
    """Store all 64 bits of a value at an address of any alignment."""
    raise _native_only("store64", at, value)


def load64(at: u64) -> u64:
    """Load a u64 from an address of any alignment."""
    raise _native_only("load64", at)


def pause() -> None:
    """Hint to the core that this is a spin loop (PAUSE, YIELD)."""


def call(function: u64, *arguments: u64) -> u64:
    """Call the C function at address `function`, whose parameters and result are 64 bits wide."""
    raise _native_only("call", function, *arguments)


def syscall(function: u64, number: u64, *arguments: u64) -> u64:
    """Call libc's variadic `syscall`, whose address is `function`; a failure returns -1, as 2^64 - 1."""
    raise _native_only("syscall", function, number, *arguments)


def float_mode() -> u64:
    """Return this thread's floating-point control: rounding and denormals (MXCSR, FPCR)."""
    raise _native_only("float_mode")


def set_float_mode(mode: u64) -> None:
    """Set this thread's floating-point control."""
    raise _native_only("set_float_mode", mode)


def on_stack(top: u64, function: u64, a: u64, b: u64, c: u64, d: u64) -> u64:  # noqa: PLR0917
    """Call the function at an address with four arguments on another stack.

    `top` is the address after the stack's highest byte, a multiple of 16; the stack grows down.
    """
    raise _native_only("on_stack", top, function, a, b, c, d)


def _native_only(name: str, *arguments: object) -> NotImplementedError:
    return NotImplementedError(f"{name}{arguments} is available in compiled code only")


_PAUSE: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "x86_64": ("llvm.x86.sse2.pause", "", ""),
        "aarch64": ("llvm.aarch64.hint", "i32", "i32 1"),
    }
)
"""Machine -> intrinsic of the spin-loop hint, types of its arguments, the arguments."""
MACHINES: Final = tuple(_PAUSE)
"""The machines that the native subset supports, by `os.uname().machine`."""

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
"""The allocation of dynamic size makes LLVM address this frame by the frame pointer, because the function
changes the stack pointer. `optnone`: no pass may change the function."""


def intrinsics(machine: str) -> str:
    """Return the IR of `pause`, the floating-point control and `on_stack` for one of `MACHINES`."""
    name, kinds, arguments = _PAUSE[machine]
    pause = f"define internal void @pause() alwaysinline {{\ncall void @{name}({arguments})\nret void\n}}"
    return "\n".join((f"declare void @{name}({kinds})", pause, _FLOAT_MODE[machine], _ON_STACK))
