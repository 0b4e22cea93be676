"""The matrix operations of NVIDIA's warps, and the text of one.

Source: PTX ISA 9.7.14, `mma.sync.m16n8k16` with operands of 16 bits: its figures of the fragments.

Not here: operations of several warps (wgmma, tcgen05). Next: `target`, the caller.
"""

from __future__ import annotations

from compiler.dtype import dtypes
from compiler.targets.matrix import Digit, LaneMap, MatrixOp

_GROUP, _IN_GROUP = Digit("lane", 4, 8, 1), Digit("lane", 1, 4, 1)
_MAPS = (
    LaneMap(4, (_GROUP, Digit("register", 1, 2, 8)), (_IN_GROUP, Digit("register", 2, 2, 4))),
    LaneMap(2, (_GROUP,), (_IN_GROUP, Digit("register", 1, 2, 4))),
    LaneMap(
        4,
        (_GROUP, Digit("register", 2, 2, 8)),
        (Digit("lane", 1, 4, 2), Digit("register", 1, 2, 1)),
    ),
)
_STEM = "llvm.nvvm.mma.m16n8k16.row.col"
OPERATIONS = (
    MatrixOp(
        "mma.sync.m16n8k16.f16", f"{_STEM}.f32.f32", (16, 8, 16), dtypes.float16, 32, *_MAPS, rows=True
    ),
    MatrixOp("mma.sync.m16n8k16.bf16", f"{_STEM}.bf16", (16, 8, 16), dtypes.bfloat16, 32, *_MAPS, rows=True),
)
"""For sm_80 and newer."""


def text(op: MatrixOp, register: str, words: list[str], sums: str) -> tuple[list[str], str]:
    """Return the instructions of one operation, and the intrinsic's declaration."""
    kind = "<2 x half>" if op.dtype is dtypes.float16 else "i32"
    lines, operands = [], []
    for n, word in enumerate(words):
        name = word
        if op.dtype is dtypes.float16:
            name = f"{register}.w{n}"
            lines.append(f"  {name} = bitcast i32 {word} to {kind}")
        operands.append(f"{kind} {name}")
    count = op.d.registers
    for n in range(count):
        lines.append(f"  {register}.c{n} = extractelement <{count} x float> {sums}, i32 {n}")
        operands.append(f"float {register}.c{n}")
    result = "{" + ", ".join(["float"] * count) + "}"
    lines.append(f"  {register}.d = call {result} @{op.intrinsic}({', '.join(operands)})")
    vector = "poison"
    for n in range(count):
        lines.append(f"  {register}.d{n} = extractvalue {result} {register}.d, {n}")
        name = register if n == count - 1 else f"{register}.v{n}"
        lines.append(
            f"  {name} = insertelement <{count} x float> {vector}, float {register}.d{n}, i32 {n}"
        )
        vector = name
    kinds = ", ".join([kind] * len(words) + ["float"] * count)
    return lines, f"declare {result} @{op.intrinsic}({kinds})"
