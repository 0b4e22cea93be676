"""What a kernel loads, by the cache that it loads through: from the SIMT engine's record of each dword.

Scalar loads go through the scalar cache, vector loads through the vector cache (L0 and GL1; L1 on gfx9)
unless their scope bits say otherwise, all of them through the L2. Source: LLVM, AMDGPUUsage, memory model of
gfx942, gfx11 and gfx12. Next: `coherence`, which compares these loads with earlier stores.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from drivers.emu.races import CELL_BYTES
from drivers.emu.sanitizers.shadow_global import RACE_CELL, THREAD_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.emu.memory import Mapping
    from drivers.emu.races import Touched

_PAST_VECTOR = re.compile(r" (glc|sc0|sc1|scope:SCOPE_(SE|DEV|SYS))\b")
_INVALIDATES = re.compile(r"\b(buffer_gl0_inv|buffer_gl1_inv|buffer_inv|global_inv|global_wbinv)")
_NARROW_STORE = re.compile(r"_store_(d16_hi_)?(b8|b16|byte|short)")
_NUMBERS: Final = {"l2": 0, "scalar": 1, "vector": 2}
Masks = dict[tuple[int, int], int]
"""Allocation (by host address) and number of the chunk -> a byte of 1 for each dword, lowest first."""


def through(text: str) -> str:
    """Return which cache an instruction reads: "scalar", "vector", or "" for one that reads the L2 itself."""
    opcode = text.split(None, 1)[0]
    if opcode.startswith(("s_load", "s_buffer_load")):
        return "scalar"
    if "_load" not in opcode or _PAST_VECTOR.search(text):
        return ""
    return "vector"


class Loads:
    """The dwords that one kernel loaded, by cache (`drivers.emu.races.Observer`)."""

    def __init__(self, instructions: Sequence[str]) -> None:
        """`instructions` are the texts of those that are noted, by number."""
        self._caches = bytes([_NUMBERS.get(through(text), 0) for text in instructions] or [0])
        self.acquires = any(_INVALIDATES.search(text) for text in instructions)
        """Whether the kernel invalidates the vector cache itself."""
        self.stores_parts = any(_NARROW_STORE.search(text) for text in instructions)
        """Whether it stores bytes or halves: the shadows record whole dwords alone."""
        self.seen: dict[str, Masks] = {"scalar": {}, "vector": {}, "l2": {}}
        self.mappings: dict[int, Mapping] = {}
        """By host address."""

    def add(self, mapping: Mapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Take the notes of a chunk of an allocation."""
        import numpy as np  # noqa: PLC0415 - only where caches are checked

        places = np.frombuffer(raw, "<u4")[RACE_CELL["read_at"] // 4 :: CELL_BYTES // 4].astype(np.int64)
        reads = np.frombuffer(seen.read, np.uint8) | np.frombuffer(seen.polled, np.uint8)
        read = (reads != 0) & (places > 0)
        if not read.any():
            return
        key = (mapping.host, chunk)
        self.mappings[mapping.host] = mapping
        caches = np.frombuffer(self._caches, np.uint8)[np.maximum(places - 1, 0) >> THREAD_BITS]
        for name, number in _NUMBERS.items():
            mask = (read if name == "l2" else read & (caches == number)).tobytes()
            if any(mask):
                masks = self.seen[name]
                masks[key] = masks.get(key, 0) | int.from_bytes(mask, "little")
