"""The matrix operations of aarch64 processors: products of four bytes, both with signs or both without.

SDOT and UDOT wrap. Source: Arm Architecture Reference Manual for A-profile (DDI 0487), FEAT_DotProd. Their
objects are checked; no machine has run them.

Not here: their text (`targets.shared.word_operations`), which machine has them (`target`, the caller).
"""

from __future__ import annotations

from compiler.dtype import dtypes
from compiler.targets.shared.word_operations import row

SIGNED = row("sdot", "llvm.aarch64.neon.sdot.v4i32.v16i8", 4, dtypes.int8, dtypes.int32)
UNSIGNED = row("udot", "llvm.aarch64.neon.udot.v4i32.v16i8", 4, dtypes.uint8, dtypes.int32)
