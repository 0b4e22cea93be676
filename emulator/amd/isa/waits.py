"""The static verifier of waits: `s_waitcnt`, and the split counters of gfx12.

A load returns after it was issued. Its destination register must not be read or written before the code has
waited for the load. The verifier follows each pending register, on RDNA each half, through the code, and counts
the accesses issued since. It costs nothing while the code runs, and is exact for code without indirect register
access. Stores to LDS must have completed at a barrier, because a barrier does not wait for them
(docs/sources-amd.md). Scalar loads return out of order, so only a wait for 0 retires them. `s_delay_alu` and
`s_waitcnt_depctr` concern hazards of the ALUs, which are not modelled.

Not here: the registers of an instruction (`registers_used`). Next: `wait_counters`, the counters.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Reg
from emulator.amd.isa.registers_used import Half, used_halves
from emulator.amd.isa.translate import cut
from emulator.amd.isa.wait_counters import events_of, waited
from emulator.ir.report import KernelReport, ReportKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.amd.isa.instruction import Instruction

_FAR = 64
"""Ages are not counted further: no counter is larger."""
_STORED: Half = ("lds", 0, "l")
"""The key of stores to LDS that may not have completed."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """One access that may not have returned."""

    counter: str
    age: int
    """Accesses of the same counter since."""
    ordered: bool
    """Whether the access returns in the order of issue."""
    issued: int
    """Address of the instruction."""


_State = dict[Half, frozenset[_Pending]]
"""Half of a register -> the accesses that may still fill it."""
_Early = tuple["Instruction", Half, _Pending]
"""An instruction, a half of a register that it uses too early, and the access that will fill it."""


def _step(i: Instruction, state: _State, family: str, found: dict[int, _Early] | None) -> _State:
    """Return the state after an instruction; add its first early use to `found`, unless None."""
    for counter, left in waited(i, family).items():
        state = _without(state, counter, left)
    read, written = used_halves(i, family)
    if i.stem in ("s_barrier", "s_barrier_signal"):
        read = {_STORED}
    events = events_of(i, family)
    loads = bool(written) and bool(events)
    names = set(events)
    for register in sorted(read | written):
        for pending in sorted(state.get(register, ()), key=lambda p: p.issued):
            again = loads and register not in read and pending.counter in names and pending.ordered
            if found is not None and not again:
                found.setdefault(i.address, (i, register, pending))
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
    """Return the accesses pending after a wait.

    If any pending access may return out of order, only a wait for 0 retires them.
    """
    mixed = any(p.counter == counter and not p.ordered for entries in state.values() for p in entries)
    result = {}
    for register, entries in state.items():
        kept = frozenset(p for p in entries if p.counter != counter or (left > 0 and (mixed or p.age < left)))
        if kept:
            result[register] = kept
    return result


def _text(register: Half) -> str:
    """Return a register as the assembler writes it; "LDS" for `_STORED`."""
    return "LDS" if register == _STORED else str(Reg(*register[:2]))


def missing_waits(instructions: list[Instruction], family: str, *, kernel: str) -> list[KernelReport]:
    """Return a report for each instruction that uses a register too early, and each barrier before LDS stores end.

    The reports are in the order of addresses, at most one for an instruction. `instructions` are those of `read_kernel`, `family` is "gfx9",
    "gfx11" or "gfx12", `kernel` names the kernel in reports.
    """
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
    found: dict[int, _Early] = {}
    for at, state in begins.items():
        for instruction in bodies[at][0]:
            state = _step(instruction, state, family, found)  # noqa: PLW2901 - followed through the block
    texts = {i.address: i.text for i in instructions}
    return [_report(*found[address], texts, kernel) for address in sorted(found)]


def _report(
    i: Instruction, register: Half, pending: _Pending, texts: Mapping[int, str], kernel: str
) -> KernelReport:
    return KernelReport(
        kind=ReportKind.MISSING_WAIT, kernel=kernel, line=i.address, instruction=i.text, block=None, thread=None,
        access="", address=None, size=0, nearest="",
        other=f"line {pending.issued}: {texts[pending.issued]}; {_text(register)} needs a wait for {pending.counter}",
    )  # fmt: skip


def _merged(old: _State | None, new: _State) -> _State:
    """Join the states of two paths: of the same access keep the one with fewer accesses since."""
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
