"""The report of an emulated machine (`HCQ_EMU_REPORT`): launches, by the accuracy of their instructions.

Not here: the accuracy of each instruction (`emulator.amd.isa.accuracy`), the report's form
(`emulator.shared.accuracy`). Next: `kernels`, which fills it.
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

_KEPT = 1024
"""Kernels whose counts are kept."""


@functools.lru_cache(maxsize=_KEPT)
def _counted(processor: str, kernel: Decoded) -> Mapping[str, Mapping[str, int]]:
    """Return the number of each instruction of a kernel by bound and name."""
    return accuracy.counts(kernel.instructions, target(processor).family)


class Ledgers:
    """One ledger for each target, written when the machine closes. Callers hold the machine's lock."""

    def __init__(self, path: Path) -> None:
        """`path` is the file to which `close` appends; the directory must exist."""
        self._path = path
        self._ledgers: dict[str, AccuracyLedger] = {}

    def launched(self, processor: str, name: str, kernel: Decoded) -> None:
        """Count a launch of kernel `name` on target `processor`."""
        self._of(processor).launched(name, _counted(processor, kernel))

    def refused(self, processor: str, why: str) -> None:
        """Record a kernel that cannot be translated; `why` names the instruction."""
        self._of(processor).refused(why)

    def close(self) -> None:
        """Append a line of JSON for each target to the file, and start with empty ledgers."""
        for ledger in self._ledgers.values():
            ledger.write(self._path)
        self._ledgers.clear()

    def _of(self, processor: str) -> AccuracyLedger:
        if processor not in self._ledgers:
            self._ledgers[processor] = AccuracyLedger(f"amd-emu {processor}")
        return self._ledgers[processor]
