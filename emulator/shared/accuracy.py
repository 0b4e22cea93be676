"""The report on inexact instructions of an emulated run: launches, and instructions by their error bound.

An emulated GPU computes most instructions exactly. For some (reciprocals, roots, exponentials) only an error
bound is documented. The emulator's results are within the bound, but may differ from hardware's.

    ledger = AccuracyLedger("gfx1100")
    ledger.launched("name", {"exact": {...}})
    ledger.write(path)                     # appends a line of JSON

Not here: the bounds (`emulator.nv.ptx.accuracy`, `emulator.amd.isa.accuracy`).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXACT: Final = "exact"
"""The bound of an instruction that is computed exactly, except for the payload of NaNs."""


class AccuracyLedger:
    """The launches and instructions of one emulated machine, by accuracy. Not thread-safe."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._launches: Counter[str] = Counter()
        self._counts: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._unsupported: dict[str, None] = {}

    def launched(self, kernel: str, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Count a launch of the kernel named `kernel`.

        `counts` has the number of each instruction in the code, by bound and name. It replaces that of
        earlier launches of that name.
        """
        self._launches[kernel] += 1
        self._counts[kernel] = counts

    def refused(self, why: str) -> None:
        """Record an unsupported instruction, or another reason of a refusal."""
        self._unsupported[why] = None

    def report(self) -> dict[str, object]:
        """Return the report as data for JSON.

        `instructions` has, by bound and name, the number of launches of kernels with that instruction.
        """
        instructions: dict[str, Counter[str]] = {EXACT: Counter()}
        for kernel, times in self._launches.items():
            for bound, names in self._counts[kernel].items():
                instructions.setdefault(bound, Counter()).update(dict.fromkeys(names, times))
        return {
            "device": self._device,
            "launches": dict(self._launches),
            "instructions": {bound: dict(sorted(names.items())) for bound, names in instructions.items()},
            "unsupported": list(self._unsupported),
        }

    def write(self, path: Path) -> None:
        """Append the report to a file as one line of JSON, unless nothing ran."""
        if self._launches or self._unsupported:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.report()) + "\n")
