"""The conformance kernels for this machine, as LLVM IR."""

from __future__ import annotations

import functools

from compiler.llvm import emit_object, host

BODIES = {
    "add": """
  %a = call i32 @load(i64 %args, i64 8, i64 %x)
  %b = call i32 @load(i64 %args, i64 16, i64 %x)
  %v = add i32 %a, %b
  call void @store(i64 %args, i64 0, i64 %x, i32 %v)
""",
    "copy": """
  %v = call i32 @load(i64 %args, i64 8, i64 %x)
  call void @store(i64 %args, i64 0, i64 %x, i32 %v)
""",
    "index": """
  %w = call i32 @number(i64 %args, i64 8)
  %h = call i32 @number(i64 %args, i64 12)
  %base = call i32 @number(i64 %args, i64 16)
  %w64 = zext i32 %w to i64
  %h64 = zext i32 %h to i64
  %zh = mul i64 %z, %h64
  %row = add i64 %zh, %y
  %first = mul i64 %row, %w64
  %i = add i64 %first, %x
  %i32 = trunc i64 %i to i32
  %old = call i32 @load(i64 %args, i64 0, i64 %i)
  %more = add i32 %old, %base
  %v = add i32 %more, %i32
  call void @store(i64 %args, i64 0, i64 %i, i32 %v)
""",
    "count": """
  %p = call ptr @pointer(i64 %args, i64 0, i64 0)
  %old = atomicrmw add ptr %p, i32 1 monotonic
""",
    "affine": """
  %factor = call i32 @number(i64 %args, i64 8)
  %term = call i32 @number(i64 %args, i64 12)
  %old = call i32 @load(i64 %args, i64 0, i64 0)
  %product = mul i32 %old, %factor
  %v = add i32 %product, %term
  call void @store(i64 %args, i64 0, i64 0, i32 %v)
""",
    "turn": """
  %slot = call i32 @number(i64 %args, i64 16)
  %slot64 = zext i32 %slot to i64
  %p = call ptr @pointer(i64 %args, i64 8, i64 0)
  %old = atomicrmw add ptr %p, i32 1 monotonic
  call void @store(i64 %args, i64 0, i64 %slot64, i32 %old)
""",
    "spin": """
  %n = call i32 @number(i64 %args, i64 8)
  %left = alloca i32
  store volatile i32 %n, ptr %left
  br label %head
head:
  %k = load volatile i32, ptr %left
  %over = icmp eq i32 %k, 0
  br i1 %over, label %end, label %more
more:
  %less = sub i32 %k, 1
  store volatile i32 %less, ptr %left
  br label %head
end:
  %p = call ptr @pointer(i64 %args, i64 0, i64 0)
  %old = atomicrmw add ptr %p, i32 1 monotonic
""",
}

LIBRARY = """
define internal ptr @pointer(i64 %args, i64 %slot, i64 %i) alwaysinline {
  %at = add i64 %args, %slot
  %from = inttoptr i64 %at to ptr
  %base = load ptr, ptr %from
  %p = getelementptr i32, ptr %base, i64 %i
  ret ptr %p
}
define internal i32 @number(i64 %args, i64 %slot) alwaysinline {
  %at = add i64 %args, %slot
  %from = inttoptr i64 %at to ptr
  %v = load i32, ptr %from
  ret i32 %v
}
define internal i32 @load(i64 %args, i64 %slot, i64 %i) alwaysinline {
  %p = call ptr @pointer(i64 %args, i64 %slot, i64 %i)
  %v = load i32, ptr %p
  ret i32 %v
}
define internal void @store(i64 %args, i64 %slot, i64 %i, i32 %v) alwaysinline {
  %p = call ptr @pointer(i64 %args, i64 %slot, i64 %i)
  store i32 %v, ptr %p
  ret void
}
"""


@functools.cache
def code(name: str, _arch: str) -> bytes:
    """Compile a kernel."""
    head = f"define void @{name}(i64 %args, i64 %x, i64 %y, i64 %z) {{\n"
    return emit_object(LIBRARY + head + BODIES[name] + "  ret void\n}\n", host(), level=1)
