"""Asynchronous copies to shared memory and loads of matrix fragments: their LLVM IR text.

Sources: PTX ISA 9.7.9.25, `cp.async`, its groups and waits; 9.7.14.5.15, `ldmatrix`. LLVM folds the casts
between address spaces.

Not here: when tiles are copied (`compiler.emit.staged_sum`), the matrix operations (`matrix`).
"""

from __future__ import annotations

from compiler.targets.nvptx import matrix
from compiler.targets.shared.dialect import Staging

_COPY = "llvm.nvvm.cp.async.cg.shared.global.16"
_COMMIT = "llvm.nvvm.cp.async.commit.group"
_WAIT = "llvm.nvvm.cp.async.wait.group"
_LOAD = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4"


def _near(register: str, pointer: str, space: int) -> str:
    """Return the cast of a generic pointer to an address space."""
    return f"  {register} = addrspacecast ptr {pointer} to ptr addrspace({space})"


def _copy(register: str, to: str, origin: str, size: str) -> tuple[list[str], str]:
    """Return the copy of 16 bytes; if a size is given, of the first `size` bytes and zeros."""
    lines = [_near(f"{register}.to", to, 3), _near(f"{register}.from", origin, 1)]
    kinds, values = "ptr addrspace(3), ptr addrspace(1)", (f"{register}.to", f"{register}.from")
    operands = f"ptr addrspace(3) {values[0]}, ptr addrspace(1) {values[1]}"
    name = _COPY
    if size:
        lines.append(f"  {register}.size = trunc i64 {size} to i32")
        name, kinds, operands = f"{_COPY}.s", f"{kinds}, i32", f"{operands}, i32 {register}.size"
    lines.append(f"  call void @{name}({operands})")
    return lines, f"declare void @{name}({kinds})"


def _fragments(register: str, pointer: str, *, turned: bool) -> tuple[list[str], str]:
    """Return the load of four 8 x 8 matrices of 16-bit values as <4 x i32>, transposed if `turned`."""
    name = f"{_LOAD}{'.trans' * turned}.b16.p3"
    result = "{i32, i32, i32, i32}"
    lines = [
        _near(f"{register}.at", pointer, 3),
        f"  {register}.d = call {result} @{name}(ptr addrspace(3) {register}.at)",
        *matrix.as_vector(register, result, "i32", 4),
    ]
    return lines, f"declare {result} @{name}(ptr addrspace(3))"


STAGING = Staging(
    copy=_copy,
    commit=(f"call void @{_COMMIT}()", f"declare void @{_COMMIT}()"),
    wait=lambda groups: (f"call void @{_WAIT}(i32 {groups})", f"declare void @{_WAIT}(i32 immarg)"),
    fragments=_fragments,
    publish='call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()',
    issue=matrix.issue,
    settle=matrix.settle,
)
"""For sm_80 and newer; `publish`, `issue` and `settle` only for sm_90a."""
