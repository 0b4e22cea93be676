"""The matrix operations of host processors, products of one word with a vector of words: rows and text.

One thread has all lanes of a vector, so in a lane map they count as registers.

x86: VDPBF16PS rounds each of its additions to nearest even. It takes operands below 2**-126 as zeros, and
makes zeros of such sums. VPDPBUSD multiplies unsigned bytes by signed bytes; it and VPDPWSSD wrap. aarch64:
SDOT and UDOT wrap. Tests check objects with them, but no machine has run these.
Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS, VPDPBUSD and
VPDPWSSD; Arm Architecture Reference Manual for A-profile (DDI 0487), FEAT_DotProd.

Not here: the multiply-adds of a register tile (`compiler.emit.products`). Next: `target`, the machines that
have the operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.targets.shared.matrix import Digit, LaneMap, MatrixOp

if TYPE_CHECKING:
    from compiler.dtype import DType

_WORD = LaneMap(1, (), ())
"""The one word of A, for all columns."""
_ELEMENTS = {
    dtypes.bfloat16: ("bfloat", "float"),
    dtypes.int8: ("i8", "i32"),
    dtypes.uint8: ("i8", "i32"),
    dtypes.int16: ("i16", "i32"),
}


def _rows(
    name: str, widths: dict[int, str], dtype: DType, total: DType, other: DType | None = None
) -> MatrixOp:
    """Return the operation on the most columns, with its narrower ones.

    `widths` has LLVM's intrinsic for each number of columns, the fewest first; `MatrixOp` describes the other
    arguments.
    """
    made: MatrixOp | None = None
    for lanes, intrinsic in widths.items():
        columns = LaneMap(lanes, (Digit("register", 1, lanes, 1),), ())
        sums = LaneMap(lanes, (), (Digit("register", 1, lanes, 1),))
        made = MatrixOp(
            name, intrinsic, (1, lanes, 4 // dtype.itemsize), dtype, 1, _WORD, columns, sums,
            total=total, other=other, narrower=made,
        )  # fmt: skip
    assert made is not None
    return made


def _x86(intrinsic: str) -> dict[int, str]:
    return {lanes: f"llvm.x86.{intrinsic}.{32 * lanes}" for lanes in (4, 8, 16)}


BF16 = _rows("vdpbf16ps", _x86("avx512bf16.dpbf16ps"), dtypes.bfloat16, dtypes.float32)
BYTES = _rows("vpdpbusd", _x86("avx512.vpdpbusd"), dtypes.uint8, dtypes.int32, dtypes.int8)
SHORT = _rows("vpdpwssd", _x86("avx512.vpdpwssd"), dtypes.int16, dtypes.int32)
SIGNED = _rows("sdot", {4: "llvm.aarch64.neon.sdot.v4i32.v16i8"}, dtypes.int8, dtypes.int32)
UNSIGNED = _rows("udot", {4: "llvm.aarch64.neon.udot.v4i32.v16i8"}, dtypes.uint8, dtypes.int32)


def text(op: MatrixOp, register: str, words: list[str], sums: str) -> tuple[list[str], str]:
    """Return the instructions of one operation on vectors of words, and the intrinsic's declaration."""
    lanes = op.d.registers
    element, total = _ELEMENTS[op.dtype]
    kind, result = f"<{op.shape[2] * lanes} x {element}>", f"<{lanes} x {total}>"
    lines = [
        f"  {register}.{letter} = bitcast <{lanes} x i32> {word} to {kind}"
        for letter, word in zip("ab", words, strict=True)
    ]
    operands = f"{result} {sums}, {kind} {register}.a, {kind} {register}.b"
    lines.append(f"  {register} = call {result} @{op.intrinsic}({operands})")
    return lines, f"declare {result} @{op.intrinsic}({result}, {kind}, {kind})"
