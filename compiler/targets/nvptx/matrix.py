"""The matrix operations of NVIDIA GPUs, asynchronous copies to shared memory, and the text of both.

Sources: PTX ISA 9.7.14, `mma.sync.m16n8k16` with operands of 16 bits: its figures of the fragments; 9.7.15,
`wgmma.mma_async`: the registers of D and the matrix descriptor; 9.7.9.25, `cp.async`, its groups and waits;
9.7.14.5.15, `ldmatrix`. LLVM folds the casts between address spaces.

Not here: operations of tensor memory (tcgen05), when tiles are copied (`compiler.emit.staged_sum`). Next:
`target`, the caller.
"""

from __future__ import annotations

from functools import cache

from compiler.dtype import DType, dtypes
from compiler.targets.shared.dialect import Staging
from compiler.targets.shared.matrix import Digit, LaneMap, MatrixOp, SharedOperand, SharedProducts

_GROUP, _IN_GROUP = Digit("lane", 4, 8, 1), Digit("lane", 1, 4, 1)
_MAPS = (
    LaneMap(4, (_GROUP, Digit("register", 1, 2, 8)), (_IN_GROUP, Digit("register", 2, 2, 4))),
    LaneMap(2, (_GROUP,), (_IN_GROUP, Digit("register", 1, 2, 4))),
    LaneMap(4, (_GROUP, Digit("register", 2, 2, 8)), (Digit("lane", 1, 4, 2), Digit("register", 1, 2, 1))),
)
_STEM = "llvm.nvvm.mma.m16n8k16.row.col"
OPERATIONS = (
    MatrixOp("mma.sync.m16n8k16.f16", f"{_STEM}.f32.f32", (16, 8, 16), dtypes.float16, 32, *_MAPS, rows=True),
    MatrixOp("mma.sync.m16n8k16.bf16", f"{_STEM}.bf16", (16, 8, 16), dtypes.bfloat16, 32, *_MAPS, rows=True),
)
"""The operations of a warp, from sm_80 on."""

_LEAST_GROUP, _SWIZZLED = 128, 1
"""Lanes of a warpgroup; the code in a descriptor for swizzled rows of 128 bytes."""


def _group_operation(columns: int, dtype: DType) -> MatrixOp:
    none = LaneMap(0, (), ())
    kind = "f16" if dtype is dtypes.float16 else "bf16"
    d = LaneMap(
        columns // 2,
        (_GROUP, Digit("lane", 32, 4, 16), Digit("register", 2, 2, 8)),
        (Digit("lane", 1, 4, 2), Digit("register", 1, 2, 1), Digit("register", 4, columns // 8, 8)),
    )
    name = f"wgmma.m64n{columns}k16.{kind}"
    instruction = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}"
    return MatrixOp(name, instruction, (64, columns, 16), dtype, _LEAST_GROUP, none, none, d, shared=True)


GROUPED = {
    "sm_90a": tuple(
        [_group_operation(n, dtype) for dtype in (dtypes.float16, dtypes.bfloat16) for n in (256, 128)]
    )
}
"""Architecture -> the operations of a warpgroup, with A and B in shared memory."""


def _descriptor(operand: SharedOperand) -> int:
    """Return the constant part of a matrix descriptor: strides and swizzle.

    One stride is that of eight rows of 128 bytes, along m (n), or along k if the operand is turned. The
    leading stride is that between panels; it is used only if the operand is turned.
    """
    leading = operand.panel if operand.turned else _EIGHT_ROWS
    return leading >> 4 << 16 | _EIGHT_ROWS >> 4 << 32 | _SWIZZLED << 62


_EIGHT_ROWS = 1024
_STEP, _STEP_TURNED = 32, 2048
"""Bytes from the elements of one operation to those of the next along k; of a turned operand."""


def issue(register: str, left: str, right: str, sums: str, what: SharedProducts) -> list[str]:
    """Return the instructions that start successive operations as one group."""
    lines, places = [], []
    for letter, pointer, operand in (("a", left, what.a), ("b", right, what.b)):
        name = f"{register}.{letter}"
        constant = _descriptor(operand)
        lines += [
            f"  {name}p = addrspacecast ptr {pointer} to ptr addrspace(3)",
            f"  {name}i = ptrtoint ptr addrspace(3) {name}p to i32",
            f"  {name}s = lshr i32 {name}i, 4",
            f"  {name}l = zext i32 {name}s to i64",
        ]
        step = (_STEP_TURNED if operand.turned else _STEP) >> 4
        for n in range(what.steps):
            lines.append(f"  {name}k{n} = add i64 {name}l, {constant + n * step}")
            places.append(f"i64 {name}k{n}")
    count = what.op.d.registers
    d = "{" + ", ".join([f"${n}" for n in range(count)]) + "}"
    asm = ["{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.fence.sync.aligned;"]
    for n in range(what.steps):
        a, b = f"${2 * count + n}", f"${2 * count + what.steps + n}"
        turned = f"{int(what.a.turned)}, {int(what.b.turned)}"
        asm.append(f"{what.op.intrinsic} {d}, {a}, {b}, p, 1, 1, {turned};")
    asm.append("wgmma.commit_group.sync.aligned; }")
    return lines + _tied(register, sums, count, " ".join(asm), places)


def settle(register: str, sums: str, count: int) -> list[str]:
    """Return the instruction that waits for all groups of operations."""
    return _tied(register, sums, count, "wgmma.wait_group.sync.aligned 0;", [])


def _tied(register: str, sums: str, count: int, asm: str, others: list[str]) -> list[str]:
    """Return a call of inline assembly that updates accumulators in their registers.

    `count` is their number, `others` are further operands.
    """
    lines = [f"  {register}.c{n} = extractelement <{count} x float> {sums}, i32 {n}" for n in range(count)]
    kind = "{" + ", ".join(["float"] * count) + "}"
    kinds = ["=f"] * count + [str(n) for n in range(count)] + ["l"] * len(others)
    constraints = ",".join([*kinds, "~{memory}"])
    given = ", ".join([*[f"float {register}.c{n}" for n in range(count)], *others])
    lines.append(f'  {register}.d = call {kind} asm sideeffect "{asm}", "{constraints}"({given})')
    return lines + as_vector(register, kind, "float", count)


def as_vector(register: str, kind: str, scalar: str, count: int) -> list[str]:
    """Return instructions that make a vector of the values in the structure `REGISTER.d` of type `kind`."""
    lines, vector = [], "poison"
    for n in range(count):
        name, into = f"{register}.d{n}", register if n == count - 1 else f"{register}.v{n}"
        lines.append(f"  {name} = extractvalue {kind} {register}.d, {n}")
        lines.append(f"  {into} = insertelement <{count} x {scalar}> {vector}, {scalar} {name}, i32 {n}")
        vector = into
    return lines


def text(op: MatrixOp, register: str, words: list[str], sums: str) -> tuple[list[str], str]:
    """Return the instructions of one operation, and the intrinsic's declaration."""
    lines, declared = _template(op)
    return [lines.format(*words, r=register, sums=sums)], declared


@cache
def _template(op: MatrixOp) -> tuple[str, str]:
    """Return the instructions of an operation, with places for its registers, and the declaration."""
    kind = "<2 x half>" if op.dtype is dtypes.float16 else "i32"
    count, number = op.d.registers, op.a.registers + op.b.registers
    lines, operands = [], []
    for n in range(number):
        name = f"{{{n}}}"
        if op.dtype is dtypes.float16:
            name = f"{{r}}.w{n}"
            lines.append(f"  {name} = bitcast i32 {{{n}}} to {kind}")
        operands.append(f"{kind} {name}")
    for n in range(count):
        lines.append(f"  {{r}}.c{n} = extractelement <{count} x float> {{sums}}, i32 {n}")
        operands.append(f"float {{r}}.c{n}")
    result = "{" + ", ".join(["float"] * count) + "}"
    escaped = f"{{{result}}}"
    lines.append(f"  {{r}}.d = call {escaped} @{op.intrinsic}({', '.join(operands)})")
    lines += as_vector("{r}", escaped, "float", count)
    kinds = ", ".join([kind] * number + ["float"] * count)
    return "\n".join(lines), f"declare {result} @{op.intrinsic}({kinds})"


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
        *as_vector(register, result, "i32", 4),
    ]
    return lines, f"declare {result} @{name}(ptr addrspace(3))"


STAGING = Staging(
    copy=_copy,
    commit=(f"call void @{_COMMIT}()", f"declare void @{_COMMIT}()"),
    wait=lambda groups: (f"call void @{_WAIT}(i32 {groups})", f"declare void @{_WAIT}(i32 immarg)"),
    fragments=_fragments,
    publish='call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()',
    issue=issue,
    settle=settle,
)
"""For sm_80 and newer; `publish`, `issue` and `settle` only for sm_90a."""
