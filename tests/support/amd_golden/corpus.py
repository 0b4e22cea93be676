"""All kernels of the corpus, and which of them a target can compile.

Next: `integers`, `floats`, `memory`, `waves`, the kernels.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.amd_golden.floats import conversion_kernels, float_kernels
from tests.support.amd_golden.integers import integer_kernels
from tests.support.amd_golden.memory import memory_kernels
from tests.support.amd_golden.waves import control_kernels, wave_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator


def kernels() -> Iterator[str]:
    """Yield the IR of every kernel of the corpus."""
    yield from integer_kernels()
    yield from float_kernels()
    yield from conversion_kernels()
    yield from memory_kernels()
    yield from wave_kernels()
    yield from control_kernels()


def selectable(text: str, target: str) -> bool:
    """Return whether LLVM can compile a kernel of the corpus for a target; for others it ends the process."""
    gfx9 = target == "gfx942"
    gfx12 = target == "gfx1201"
    if "wmma" in text:
        return not gfx9 and ("<16 x half> %x" in text) != gfx12
    if "mfma" in text or "row_bcast" in text:
        return gfx9
    if re.search(r"i32 (322|323),", text):
        return gfx9
    if re.search(r"permlane|dpp8|i32 353,|permlane64", text):
        return not gfx9
    if "i32 336," in text:
        return True
    return not (gfx9 and "ballot.i32" in text)
