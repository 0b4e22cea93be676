"""The matrix operations of x86 processors: sums of two products of 16-bit values, or of four of bytes.

VDPBF16PS rounds each of its additions to nearest even. It takes operands below 2**-126 as zeros, and makes
zeros of such sums. VPDPBUSD multiplies unsigned bytes by signed bytes; it and VPDPWSSD wrap. Source: Intel 64
and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS, VPDPBUSD and VPDPWSSD.

Not here: their text (`compiler.targets.shared.word_operations`). Next: `target`, the machines that have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.targets.shared.word_operations import row

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.targets.shared.matrix import MatrixOp

_BITS = {4: "128", 8: "256", 16: "512"}


def _rows(name: str, intrinsic: str, dtype: DType, total: DType, other: DType | None = None) -> MatrixOp:
    """Return the operation on 16 columns, with its narrower ones."""
    made: MatrixOp | None = None
    for lanes, bits in _BITS.items():
        made = row(name, f"{intrinsic}.{bits}", lanes, dtype, total, other=other, narrower=made)
    assert made is not None
    return made


BF16 = _rows("vdpbf16ps", "llvm.x86.avx512bf16.dpbf16ps", dtypes.bfloat16, dtypes.float32)
BYTES = _rows("vpdpbusd", "llvm.x86.avx512.vpdpbusd", dtypes.uint8, dtypes.int32, dtypes.int8)
SHORT = _rows("vpdpwssd", "llvm.x86.avx512.vpdpwssd", dtypes.int16, dtypes.int32)
