"""The dwords that a grid loaded through the L1, from the SIMT engine's shadow cells.

Sources: PTX ISA, cache operators and memory consistency; docs/facts/nv-caches.md, the loads that count.

Not here: the shadow cells (`emulator.sanitizers.shadow_global`). Next: `emulator.nv.engines.caches`, which
compares these loads with later writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.sanitizers.shadow_global import RACE_CELL, race_place
from emulator.shared.races import CELL_BYTES, DWORDS, Touched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.shared.memory import GpuMapping

_PAST_L1 = frozenset({"cg", "cv", "volatile", "mmio", "const"})
_WRITES = ("st", "atom", "red")
_INVALIDATES = re.compile(r"\b(fence|membar)\b|\.(acquire|acq_rel)\b")
_BYTE = bytes([0] + [255] * 255)


def through_l1(text: str) -> bool:
    """Return whether an instruction, given as PTX text, may read a line of the L1."""
    first, *words = _opcode(text)
    if first == "cp":
        return "ca" in words
    if first not in ("ld", "ldu") or not _PAST_L1.isdisjoint(words):
        return False
    return "cta" in words or ("relaxed" not in words and "acquire" not in words)


def _opcode(text: str) -> list[str]:
    return next((word for word in text.split() if not word.startswith("@")), "").rstrip(";").split(".")


def may_invalidate(ptx: str) -> bool:
    """Return whether a PTX module has instructions that may invalidate the L1: fences and acquires."""
    return _INVALIDATES.search(ptx) is not None


class GridLoads:
    """The dwords that one grid loaded through the L1, and whether it stored any (`stored`)."""

    def __init__(self, instructions: Sequence[str]) -> None:
        """`instructions` are the texts of instructions, by the number in the shadows."""
        self._past = frozenset(
            i
            for i, text in enumerate(instructions)
            if not through_l1(text) and _opcode(text)[0] not in _WRITES
        )
        self._read: dict[tuple[int, int], tuple[GpuMapping, int]] = {}
        self.stored = False

    def add(self, mapping: GpuMapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Process the accesses to a chunk of an allocation (`emulator.shared.races.Observer`)."""
        read = seen.read
        if self._past:
            places = memoryview(raw).cast("I")[RACE_CELL["read_at"] // 4 :: CELL_BYTES // 4].tolist()
            read = bytes(bool(place) and race_place(place)[0] not in self._past for place in places)
        self.stored |= any(seen.stored) or any(seen.atomic)
        key = (id(mapping), chunk)
        _, old = self._read.get(key, (mapping, 0))
        self._read[key] = (mapping, old | int.from_bytes(read, "little"))

    def pieces(self) -> Iterator[tuple[GpuMapping, int, bytes]]:
        """Yield pieces with loads: allocation, address, and a byte for each byte, 0xff if it was loaded."""
        for (_, chunk), (mapping, read) in self._read.items():
            if not read:
                continue
            dwords = read.to_bytes(DWORDS, "little").translate(_BYTE)
            mask = bytearray(4 * DWORDS)
            for byte in range(4):
                mask[byte::4] = dwords
            va = mapping.va + 4 * DWORDS * chunk
            yield mapping, va, bytes(mask[: mapping.end - va])
