"""The matrix operations of x86 processors, and the text of one: products of a word with a vector of words.

The lane of a vector is the register's number of a lane map, as the one thread has all of them. VDPBF16PS
rounds each of its additions to nearest even; it takes operands below 2**-126 as zeros, and such sums become
zeros. VPDPBUSD multiplies bytes without a sign by bytes with one; it and VPDPWSSD wrap. Source: Intel 64 and
IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS, VPDPBUSD and VPDPWSSD.

Not here: which machine has which (`host`, the caller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.targets.matrix import Digit, LaneMap, MatrixOp

if TYPE_CHECKING:
    from compiler.dtype import DType

_WORD = LaneMap(1, (), ())
"""The one word of A, for all columns."""
_BITS = {4: "128", 8: "256", 16: "512"}


def _rows(name: str, intrinsic: str, dtype: DType, total: DType) -> MatrixOp:
    """Return the operation on 16 columns, with its narrower ones."""
    narrower: MatrixOp | None = None
    for lanes, bits in _BITS.items():
        columns = LaneMap(lanes, (Digit("register", 1, lanes, 1),), ())
        sums = LaneMap(lanes, (), (Digit("register", 1, lanes, 1),))
        narrower = MatrixOp(
            name, f"{intrinsic}.{bits}", (1, lanes, 4 // dtype.itemsize), dtype, 1, _WORD, columns, sums,
            total=total, narrower=narrower,
        )  # fmt: skip
    assert narrower is not None
    return narrower


BF16 = _rows("vdpbf16ps", "llvm.x86.avx512bf16.dpbf16ps", dtypes.bfloat16, dtypes.float32)
BYTES = _rows("vpdpbusd", "llvm.x86.avx512.vpdpbusd", dtypes.int8, dtypes.int32)
"""A has bytes without a sign, B bytes with one."""
SHORT = _rows("vpdpwssd", "llvm.x86.avx512.vpdpwssd", dtypes.int16, dtypes.int32)
_ELEMENTS = {dtypes.bfloat16: ("bfloat", "float"), dtypes.int8: ("i8", "i32"), dtypes.int16: ("i16", "i32")}


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
