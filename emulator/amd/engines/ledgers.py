"""The report of an emulated machine: what its GPUs ran, by the accuracy of instructions (`HCQ_EMU_REPORT`).

Not here: how accuracy is judged (`emulator.amd.isa.accuracy`), the report's form
(`emulator.shared.accuracy`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from emulator.amd.isa import accuracy
from emulator.amd.isa.opcodes import target
from emulator.shared.accuracy import AccuracyLedger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from emulator.amd.isa.programs import Decoded
    from emulator.shared.accuracy import Steering

_KEPT = 1024


@functools.lru_cache(maxsize=_KEPT)
def _judged(
    processor: str, lanes: int, kernel: Decoded
) -> tuple[Mapping[str, Mapping[str, int]], tuple[Steering, ...]]:
    family = target(processor).family
    found = accuracy.decided(kernel.instructions, family, lanes)
    return accuracy.counts(kernel.instructions, family), found


class Ledgers:
    """A ledger a target, written when the machine closes. With the machine's lock held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ledgers: dict[str, AccuracyLedger] = {}

    def launched(self, processor: str, lanes: int, name: str, kernel: Decoded) -> None:
        """Count a launch."""
        self._of(processor).launched(name, *_judged(processor, lanes, kernel))

    def refused(self, processor: str, why: str) -> None:
        """Record a kernel that is not supported, with the instruction."""
        self._of(processor).refused(why)

    def close(self) -> None:
        """Append what was noted to the file, and begin anew."""
        for ledger in self._ledgers.values():
            ledger.write(self._path)
        self._ledgers.clear()

    def _of(self, processor: str) -> AccuracyLedger:
        if processor not in self._ledgers:
            self._ledgers[processor] = AccuracyLedger(f"amd-emu {processor}")
        return self._ledgers[processor]
