"""The matrix operations of aarch64 processors: sums of four products of signed, or of unsigned, bytes.

SDOT and UDOT wrap. Source: Arm Architecture Reference Manual for A-profile (DDI 0487), FEAT_DotProd. Tests
check objects with them, but no machine has run these.

Not here: their text (`compiler.targets.shared.word_operations`). Next: `target`, the machines that have them.
"""

from __future__ import annotations

from compiler.dtype import dtypes
from compiler.targets.shared.word_operations import row

SIGNED = row("sdot", "llvm.aarch64.neon.sdot.v4i32.v16i8", 4, dtypes.int8, dtypes.int32)
UNSIGNED = row("udot", "llvm.aarch64.neon.udot.v4i32.v16i8", 4, dtypes.uint8, dtypes.int32)
