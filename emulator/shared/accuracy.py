"""The report on inexact instructions of an emulated run: their counts, and the decisions that depend on them.

An emulated GPU computes most instructions exactly. For some (reciprocals, roots, exponentials) only an error
bound is documented. The emulator's results are within the bound, but may differ from hardware's. `steerings`
follows inexact results through a kernel. It finds the instructions whose active lanes, branch or address
depend on an inexact result: there, hardware may take another path. An `AccuracyLedger` counts the launches
and instructions of one machine.

    ledger = AccuracyLedger("gfx1100")
    ledger.launched("name", counts={"exact": {...}}, found=steerings(blocks))
    ledger.write(path)                     # appends a line of JSON

Not here: the bounds and the registers of instructions, which the front ends supply
(`emulator.nv.ptx.accuracy`, `emulator.amd.isa.accuracy`). Next: `emulator.nv.ptx.accuracy`.
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
"""The bound of an instruction that is computed exactly, except for the payload of NaNs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyStep:
    """One instruction as `steerings` uses it; registers are any hashable values."""

    address: int
    name: str
    text: str
    reads: frozenset[Hashable]
    writes: frozenset[Hashable]
    inexact: bool = False
    """Whether only an error bound of its result is documented."""
    settles: bool = False
    """Whether its result is the same for all source values within their error bounds."""
    masked: bool = False
    """Whether it may leave some lanes of its target registers unchanged."""
    masks: bool = False
    """Whether it changes the mask of active lanes."""
    steers: tuple[tuple[str, frozenset[Hashable]], ...] = ()
    """Its decisions: each a description (such as "a branch"), and the registers that the decision depends
    on."""


@dataclass(frozen=True, slots=True)
class Steering:
    """An instruction with a decision that depends on inexact results."""

    address: int
    text: str
    decides: str
    """The description of the decision, from `AccuracyStep.steers`."""
    origins: tuple[str, ...]
    """Names of the inexact instructions whose results it uses."""

    def __str__(self) -> str:
        return (
            f"+{self.address:#x}: {self.text}: {self.decides} depends on results of {', '.join(self.origins)}"
        )


_Mask = tuple[str, int]
"""An identity of the mask of active lanes: after an instruction, or at the start of a block."""
_Stains = dict["Hashable", frozenset[tuple[str, _Mask]]]
"""Register -> the inexact results that it may hold, each with the mask under which it was written."""
_START: Final = ("start", 0)


def steerings(blocks: Sequence[tuple[Sequence[AccuracyStep], Sequence[int]]]) -> tuple[Steering, ...]:
    """Return the decisions of a kernel that depend on inexact results, sorted by address.

    `blocks` are the basic blocks, the entry first, none empty. Each has its instructions, and the addresses
    of the first instructions of its successors. A write replaces the earlier results of a register, except
    that a masked write keeps results of another mask. A comparison that only selects between values is no
    decision.
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


def _decided(step: AccuracyStep, stains: _Stains) -> list[Steering]:
    found = []
    for decides, registers in step.steers:
        origins = {name for register in registers for name, _ in stains.get(register, ())}
        if origins:
            found.append(Steering(step.address, step.text, decides, tuple(sorted(origins))))
    return found


def _pass(step: AccuracyStep, mask: _Mask, stains: _Stains) -> None:
    """Apply the writes of an instruction to the results that registers hold."""
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


class AccuracyLedger:
    """The launches and instructions of one emulated machine, by accuracy. Not thread-safe."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._launches: Counter[str] = Counter()
        self._counts: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._found: dict[str, tuple[Steering, ...]] = {}
        self._unsupported: dict[str, None] = {}

    def launched(
        self, kernel: str, counts: Mapping[str, Mapping[str, int]], found: tuple[Steering, ...]
    ) -> None:
        """Count a launch of the kernel named `kernel`.

        `counts` has the number of each instruction in the code, by bound and name. `counts` and `found`
        replace those of earlier launches of that name.
        """
        self._launches[kernel] += 1
        self._counts[kernel] = counts
        self._found[kernel] = found

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
        """Append the report to a file as one line of JSON, unless nothing ran."""
        if self._launches or self._unsupported:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.report()) + "\n")
