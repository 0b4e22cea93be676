"""Matrix operations of host processors, products of one word with a vector of words: description and text.

One thread has all lanes of a vector, so in a lane map they count as registers.

Not here: the machines that have them (`compiler.targets.host.target`). Next:
`compiler.targets.host.x86_matrix`, `compiler.targets.host.arm_matrix`, the operations.
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


def row(  # one row of a table
    name: str,
    intrinsic: str,
    lanes: int,
    dtype: DType,
    total: DType,
    *,
    other: DType | None = None,
    narrower: MatrixOp | None = None,
) -> MatrixOp:
    """Return the operation on `lanes` columns; `MatrixOp` describes the other arguments."""
    columns = LaneMap(lanes, (Digit("register", 1, lanes, 1),), ())
    sums = LaneMap(lanes, (), (Digit("register", 1, lanes, 1),))
    return MatrixOp(
        name, intrinsic, (1, lanes, 4 // dtype.itemsize), dtype, 1, _WORD, columns, sums,
        total=total, other=other, narrower=narrower,
    )  # fmt: skip


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
