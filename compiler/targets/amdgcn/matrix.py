"""The matrix operations of AMD processors, and their text.

Sources: AMD's matrix instruction calculator (register layouts) and the instruction-set manuals of MI300,
RDNA3 and RDNA4. On gfx11 both halves of a wave hold the same words of A and B.

Not here: the processors that have them (`rows`). Next: `target`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.targets.shared.matrix import Digit, LaneMap, MatrixOp

if TYPE_CHECKING:
    from compiler.targets.amdgcn.rows import Choice

_LANE16 = Digit("lane", 1, 16, 1)
_HIGH = (Digit("lane", 16, 2, 8),)

_GFX11 = LaneMap(8, (_LANE16,), (Digit("register", 1, 8, 1),))
_GFX11_D = LaneMap(8, (Digit("lane", 16, 2, 1), Digit("register", 1, 8, 2)), (_LANE16,))
_GFX12 = LaneMap(
    4, (_LANE16,), (Digit("register", 1, 2, 1), Digit("lane", 16, 2, 2), Digit("register", 2, 2, 4))
)
_GFX12_D = LaneMap(8, (Digit("register", 1, 8, 1), *_HIGH), (_LANE16,))
_MFMA = LaneMap(2, (_LANE16,), (Digit("register", 1, 2, 1), Digit("lane", 16, 4, 2)))
_MFMA_D = LaneMap(4, (Digit("register", 1, 4, 1), Digit("lane", 16, 4, 4)), (_LANE16,))
_SHAPE = (16, 16, 16)


def _wmma(kind: str, dtype: DType, operand: str, a: LaneMap, d: LaneMap) -> MatrixOp:
    name = f"wmma.f32.16x16x16.{kind}"
    return MatrixOp(f"v_{name.replace('.', '_')}", f"llvm.amdgcn.{name}.v8f32.{operand}", _SHAPE, dtype, 32,
                    a, a, d)  # fmt: skip


OPERATIONS = {
    "wmma-gfx11": (
        _wmma("f16", dtypes.float16, "v16f16", _GFX11, _GFX11_D),
        _wmma("bf16", dtypes.bfloat16, "v16i16", _GFX11, _GFX11_D),
    ),
    "wmma-gfx12": (
        _wmma("f16", dtypes.float16, "v8f16", _GFX12, _GFX12_D),
        _wmma("bf16", dtypes.bfloat16, "v8i16", _GFX12, _GFX12_D),
    ),
    "mfma": (
        MatrixOp("v_mfma_f32_16x16x16_f16", "llvm.amdgcn.mfma.f32.16x16x16f16", _SHAPE, dtypes.float16, 64,
                 _MFMA, _MFMA, _MFMA_D),
        MatrixOp("v_mfma_f32_16x16x16_bf16", "llvm.amdgcn.mfma.f32.16x16x16bf16.1k", _SHAPE,
                 dtypes.bfloat16, 64, _MFMA, _MFMA, _MFMA_D),
    ),
}  # fmt: skip
"""Feature of a processor -> its operations."""


def operations(choice: Choice) -> tuple[MatrixOp, ...]:
    """Return the operations of a processor with its wave size."""
    known = [op for feature, ops in OPERATIONS.items() if feature in choice.row.features for op in ops]
    return tuple([op for op in known if op.lanes == choice.wave])


def text(op: MatrixOp, register: str, words: list[str], sums: str) -> tuple[list[str], str]:
    """Return the instructions of one operation, and the intrinsic's declaration."""
    lines, operands, kinds = [], [], []
    element = "half" if op.dtype is dtypes.float16 else "i16"
    at = 0
    for letter, count in (("a", op.a.registers), ("b", op.b.registers)):
        vector = "poison"
        for n in range(count):
            name = f"{register}.{letter}{n}"
            lines.append(f"  {name} = insertelement <{count} x i32> {vector}, i32 {words[at + n]}, i32 {n}")
            vector = name
        at += count
        kind = f"<{2 * count} x {element}>"
        lines.append(f"  {register}.{letter} = bitcast <{count} x i32> {vector} to {kind}")
        operands.append(f"{kind} {register}.{letter}")
        kinds.append(kind)
    result = f"<{op.d.registers} x float>"
    operands.append(f"{result} {sums}")
    kinds.append(result)
    if "mfma" in op.intrinsic:  # no broadcast of blocks, no permutation of lanes
        operands += ["i32 0"] * 3
        kinds += ["i32 immarg"] * 3
    lines.append(f"  {register} = call {result} @{op.intrinsic}({', '.join(operands)})")
    return lines, f"declare {result} @{op.intrinsic}({', '.join(kinds)})"
