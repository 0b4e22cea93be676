"""Whether machine code waits where it must: the static verifier of `s_waitcnt` and of gfx12's split counters.

Loads return later than they are issued, and a register that a load will fill must be neither read nor written
before the code has waited for it. The verifier follows each pending register through the code with how many
accesses were counted since, so it costs nothing while the code runs. It is exact for code without indirect
register access.

Counters: gfx9 has vmcnt (all vector memory) and lgkmcnt (LDS, scalar memory); gfx11 counts stores apart
(vscnt); gfx12 has loadcnt, storecnt, dscnt and kmcnt. Scalar loads return out of order: only a wait for zero
tells that one is there. A flat access counts on both sides. `s_delay_alu` and `s_waitcnt_depctr` concern
hazards of the ALUs, which are not modelled.

Not here: the operands that it follows (`registers_used`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.immediates import waits as fields_of_waitcnt
from drivers.amd.emu.isa.operands import Reg
from drivers.amd.emu.isa.registers_used import Register, used
from drivers.amd.emu.isa.translate import cut

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction

_FAR = 64
"""No counter counts further."""
_STORED: Register = ("lds", 0)
"""Stands for stores to LDS that may not have arrived."""
_MEMORY = re.compile(r"(global|flat|scratch|buffer)_(load|store|atomic)")
_MAINTENANCE = {
    "gfx12": {"global_inv": "load", "global_wb": "store", "global_wbinv": "store"},
    "gfx9": {"buffer_inv": "load", "buffer_wbl2": "load"},
}
_SPLIT = {"s_wait_loadcnt": "load", "s_wait_storecnt": "store", "s_wait_dscnt": "ds", "s_wait_kmcnt": "km"}
_NAMES = {
    "gfx9": {"load": "vmcnt", "store": "vmcnt", "ds": "lgkmcnt", "km": "lgkmcnt"},
    "gfx11": {"load": "vmcnt", "store": "vscnt", "ds": "lgkmcnt", "km": "lgkmcnt"},
    "gfx12": {"load": "loadcnt", "store": "storecnt", "ds": "dscnt", "km": "kmcnt"},
}


@dataclass(frozen=True, slots=True)
class MissingWait:
    """An instruction that uses a register before an access to memory has filled it."""

    address: int
    text: str
    register: str
    """As the assembler writes it; "LDS" where stores must have arrived at a barrier."""
    counter: str
    """The counter that the code should have waited for."""
    issued: int
    """The address of the access."""

    def __str__(self) -> str:
        return f"+{self.address:#x}: {self.text}: {self.register} is pending since +{self.issued:#x}; wait for {self.counter}"


@dataclass(frozen=True, slots=True)
class _Pending:
    """One access that has not returned for sure: its counter, how many were counted since, whether it returns in order."""

    counter: str
    age: int
    ordered: bool
    issued: int


_State = dict[Register, frozenset[_Pending]]


def waited(i: Instruction, family: str) -> dict[str, int]:
    """Return the counters that an instruction waits for and how many accesses each may have left."""
    value = i.get("simm16")
    if i.stem == "s_waitcnt":
        return fields_of_waitcnt(value, family)
    if i.stem.startswith("s_waitcnt_") and i.stem != "s_waitcnt_depctr":
        return {i.stem.removeprefix("s_waitcnt_"): value}
    names = _NAMES[family]
    if i.stem in _SPLIT:
        return {names[_SPLIT[i.stem]]: value}
    if i.stem in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        first = "load" if "load" in i.stem else "store"
        return {names[first]: value >> 8 & 63, names["ds"]: value & 63}
    return {}


def _events(i: Instruction, family: str) -> list[str]:
    """Return the counters that an instruction is counted by."""
    name, names = i.stem, _NAMES[family]
    if name in _MAINTENANCE.get(family, {}):
        return [names[_MAINTENANCE[family][name]]]
    match = _MEMORY.match(name)
    if match:
        returns = match[2] == "load" or (
            match[2] == "atomic" and bool(i.get("glc") or i.get("sc0") or i.get("th") & 1)
        )
        found = [names["load" if returns else "store"]]
        return [*found, names["ds"]] if match[1] == "flat" else found
    if name.startswith("ds_"):
        return [names["ds"]]
    if name.startswith(("s_load_", "s_buffer_load_")):
        return [names["km"]]
    return [names["km"]] if name.startswith("s_sendmsg") else []


def _step(i: Instruction, state: _State, family: str, found: dict[int, MissingWait] | None) -> _State:
    for counter, left in waited(i, family).items():
        state = _without(state, counter, left)
    read, written = used(i, family)
    if i.stem in ("s_barrier", "s_barrier_signal"):
        read = {_STORED}
    events = _events(i, family)
    loads = bool(written) and bool(events)
    names = set(events)
    for register in sorted(read | written):
        for pending in sorted(state.get(register, ()), key=lambda p: p.issued):
            again = loads and register not in read and pending.counter in names and pending.ordered
            if found is not None and not again:
                found.setdefault(
                    i.address,
                    MissingWait(i.address, i.text, _text(register), pending.counter, pending.issued),
                )
    after = {r: p for r, p in state.items() if r not in written}
    if not events:
        return after
    ordered = not i.stem.startswith(("s_", "flat_"))
    for register, entries in list(after.items()):
        after[register] = frozenset(
            _Pending(p.counter, min(p.age + 1, _FAR), p.ordered, p.issued) if p.counter in names else p
            for p in entries
        )
    fresh = frozenset(_Pending(counter, 0, ordered, i.address) for counter in events)
    for register in written:
        after[register] = fresh
    if i.stem.startswith("ds_") and not written:
        after[_STORED] = after.get(_STORED, frozenset()) | fresh
    return after


def _without(state: _State, counter: str, left: int) -> _State:
    """Return what is pending behind a wait. While something that returns out of order is pending only zero tells."""
    mixed = any(p.counter == counter and not p.ordered for entries in state.values() for p in entries)
    result = {}
    for register, entries in state.items():
        kept = frozenset(p for p in entries if p.counter != counter or (left > 0 and (mixed or p.age < left)))
        if kept:
            result[register] = kept
    return result


def _text(register: Register) -> str:
    return "LDS" if register == _STORED else str(Reg(*register))


def missing_waits(instructions: list[Instruction], family: str) -> list[MissingWait]:
    """Return the instructions that use registers too early, by address. `instructions` are a kernel's (`read_kernel`)."""
    blocks = cut(instructions)
    begins: dict[int, _State] = {blocks[0][0][0].address: {}}
    bodies = {body[0].address: (body, follow) for body, follow in blocks}
    todo = [blocks[0][0][0].address]
    while todo:
        at = todo.pop()
        body, follow = bodies[at]
        state = begins[at]
        for instruction in body:
            state = _step(instruction, state, family, None)
        for target in follow:
            merged = _merged(begins.get(target), state)
            if merged != begins.get(target):
                begins[target] = merged
                todo.append(target)
    found: dict[int, MissingWait] = {}
    for at, state in begins.items():
        for instruction in bodies[at][0]:
            state = _step(instruction, state, family, found)  # noqa: PLW2901 - followed through the block
    return [found[address] for address in sorted(found)]


def _merged(old: _State | None, new: _State) -> _State:
    """Join two ways: of the same access the one that was counted less since."""
    if old is None:
        return new
    result = dict(old)
    for register, entries in new.items():
        youngest: dict[tuple[str, int], _Pending] = {}
        for pending in (*result.get(register, ()), *entries):
            key = (pending.counter, pending.issued)
            if key not in youngest or pending.age < youngest[key].age:
                youngest[key] = pending
        result[register] = frozenset(youngest.values())
    return result
