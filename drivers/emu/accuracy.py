"""Where results of instructions that hardware rounds otherwise may go: the report of an emulated run.

An emulated GPU computes most instructions to the bit. Some (reciprocals, roots, exponentials) are documented
with an error only, so that hardware's bits are unknown; the emulator's lie within the bounds. `steerings`
follows their results through a kernel, and finds where they decide which lanes run, where a branch goes or
which memory is accessed: there hardware may do something else altogether. A `Ledger` counts, a machine.

    ledger = Ledger("gfx1100")
    ledger.launched("name", counts={"exact": {...}}, found=steerings(blocks))
    ledger.write(path)                     # appends a line of JSON

Not here: which instructions those are, and which registers they use (the front ends).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

EXACT: Final = "exact"
"""The bound of an instruction that is computed to the bit, the payload of NaNs excepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction, as far as `steerings` looks at it."""

    address: int
    name: str
    text: str
    reads: frozenset[Hashable]
    writes: frozenset[Hashable]
    inexact: bool = False
    """Whether its result is known within bounds only, and those matter behind it."""
    settles: bool = False
    """Whether its result is exact whatever its sources were made of, within their bounds."""
    masked: bool = False
    """Whether it may leave some lanes of what it writes as they were."""
    masks: bool = False
    """Whether it changes which lanes run."""
    steers: tuple[tuple[str, frozenset[Hashable]], ...] = ()
    """What it decides (such as "a branch"), and by which registers."""


@dataclass(frozen=True, slots=True)
class Steering:
    """An instruction that decides something by what is known within bounds only."""

    address: int
    text: str
    decides: str
    origins: tuple[str, ...]
    """Names of the instructions whose results reach it."""

    def __str__(self) -> str:
        return (
            f"+{self.address:#x}: {self.text}: {self.decides} depends on results of {', '.join(self.origins)}"
        )


_Mask = tuple[str, int]
"""Which lanes run: as some instruction left it, or as several did before a block."""
_Stains = dict["Hashable", frozenset[tuple[str, _Mask]]]
"""What inexact results a register may hold, and the lanes that ran when it got them."""
_START: Final = ("start", 0)


def steerings(blocks: Sequence[tuple[Sequence[Step], Sequence[int]]]) -> tuple[Steering, ...]:
    """Return what inexact results decide in a kernel.

    `blocks` are instructions in a row and the addresses of the blocks behind them; the first is the entry. A
    write replaces what the same lanes wrote before; results that a comparison only selects by are data.
    """
    by_address = {body[0].address: (body, follow) for body, follow in blocks}
    first = blocks[0][0][0].address
    begins: dict[int, tuple[_Mask, _Stains]] = {first: (_START, {})}
    todo = [first]
    found: dict[tuple[int, str], Steering] = {}
    while todo:
        body, follow = by_address[todo.pop()]
        mask, stains = begins[body[0].address]
        stains = dict(stains)
        for step in body:
            for steering in _decided(step, stains):
                found[steering.address, steering.decides] = steering
            _pass(step, mask, stains)
            if step.masks:
                mask = ("after", step.address)
        for target in follow:
            merged = _merged(target, begins.get(target), (mask, stains))
            if merged != begins.get(target):
                begins[target] = merged
                todo.append(target)
    return tuple(found[key] for key in sorted(found))


def _decided(step: Step, stains: _Stains) -> list[Steering]:
    found = []
    for decides, registers in step.steers:
        origins = {name for register in registers for name, _ in stains.get(register, ())}
        if origins:
            found.append(Steering(step.address, step.text, decides, tuple(sorted(origins))))
    return found


def _pass(step: Step, mask: _Mask, stains: _Stains) -> None:
    """Change what registers hold as an instruction does."""
    names = set() if step.settles else {name for r in step.reads for name, _ in stains.get(r, ())}
    if step.inexact:
        names.add(step.name)
    fresh = frozenset((name, mask) for name in names)
    for register in step.writes:
        old = stains.pop(register, frozenset())
        kept = frozenset(stain for stain in old if step.masked and stain[1] != mask)
        if fresh | kept:
            stains[register] = fresh | kept


def _merged(
    target: int, before: tuple[_Mask, _Stains] | None, now: tuple[_Mask, _Stains]
) -> tuple[_Mask, _Stains]:
    if before is None:
        return now[0], dict(now[1])
    mask = before[0] if before[0] == now[0] else ("before", target)
    stains = dict(before[1])
    for register, new in now[1].items():
        stains[register] = stains.get(register, frozenset()) | new
    return mask, stains


class Ledger:
    """What one emulated machine ran, by the accuracy of its instructions. Not thread-safe."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._launches: Counter[str] = Counter()
        self._counts: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._found: dict[str, tuple[Steering, ...]] = {}
        self._unsupported: dict[str, None] = {}

    def launched(
        self, kernel: str, counts: Mapping[str, Mapping[str, int]], found: tuple[Steering, ...]
    ) -> None:
        """Count a launch: `counts` are how often its code has each instruction, by bound and name."""
        self._launches[kernel] += 1
        self._counts[kernel] = counts
        self._found[kernel] = found

    def refused(self, why: str) -> None:
        """Take note of an instruction that is not supported."""
        self._unsupported[why] = None

    def report(self) -> dict[str, object]:
        """Return the report, ready for JSON.

        `instructions` are the names by bound, and in how many launches of kernels that have them.
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
            "steered": [
                {
                    "kernel": kernel, "address": one.address, "instruction": one.text, "decides": one.decides,
                    "by": list(one.origins),
                }
                for kernel, found in sorted(self._found.items())
                for one in found
            ],
        }  # fmt: skip

    def write(self, path: Path) -> None:
        """Append the report to a file, a line of JSON; nothing where nothing ran."""
        if self._launches or self._unsupported:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.report()) + "\n")
