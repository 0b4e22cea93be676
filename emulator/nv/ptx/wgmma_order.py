"""Checks of the registers of wgmma: used before wgmma.wait_group, or written without wgmma.fence.

Source: PTX ISA 9.7.15.7. An analysis of the data flow between the blocks of a kernel. At each instruction it
knows which registers a product may still write (D) or read (A), with the number of groups that were committed
since, and which registers were written since the last fence. Where paths join, a register counts as used if
it is on one of them.

Not here: shared memory that a product reads (`emulator.sanitizers.shadow_shared`), the products (`wgmma`).
Next: `translate`, which emits the reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.ir.report import ReportKind
from emulator.nv.ptx.blocks import BasicBlock, reads, registers_of, writes
from emulator.nv.ptx.statements import PtxImm, PtxInstruction, Vec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_GROUPS = 16
"""Groups are counted up to here, so that the analysis ends; wait_group names fewer."""


@dataclass(slots=True)
class _State:
    """What holds before an instruction."""

    sums: dict[str, int] = field(default_factory=dict[str, int])
    """Register that a product may still write -> number of groups committed since the product, at least."""
    operands: dict[str, int] = field(default_factory=dict[str, int])
    """The same for registers that a product may still read."""
    written: set[str] = field(default_factory=set[str])
    """Registers written since the last fence."""

    def copy(self) -> _State:
        """Return an independent copy."""
        return _State(dict(self.sums), dict(self.operands), set(self.written))

    def merge(self, other: _State) -> bool:
        """Add what may hold on another path to the same instruction; return whether anything changed."""
        before = (dict(self.sums), dict(self.operands), len(self.written))
        for mine, theirs in ((self.sums, other.sums), (self.operands, other.operands)):
            for name, groups in theirs.items():
                mine[name] = min(groups, mine.get(name, groups))
        self.written |= other.written
        return before != (self.sums, self.operands, len(self.written))


def hazards(cut: Sequence[BasicBlock]) -> Mapping[int, tuple[ReportKind, ...]]:
    """Return the kinds of report at each instruction that has any; the keys are `id(instruction)`.

    `cut` are the blocks of a kernel, the first of which is its entry. Empty for a kernel without wgmma.
    """
    if not any(i.opcode == "wgmma" for block in cut for i in block.instructions):
        return {}
    begins: list[_State | None] = [None] * len(cut)
    begins[0] = _State()
    todo = [0]
    while todo:
        number = todo.pop()
        state = begins[number]
        assert state is not None
        after = state.copy()
        for instruction in cut[number].instructions:
            _step(after, instruction)
        for target in cut[number].successors:
            known = begins[target]
            if known is None:
                begins[target] = after.copy()
                todo.append(target)
            elif known.merge(after):
                todo.append(target)
    found: dict[int, tuple[ReportKind, ...]] = {}
    for block, begin in zip(cut, begins, strict=True):
        state = (begin or _State()).copy()
        for instruction in block.instructions:
            kinds = _step(state, instruction)
            if kinds:
                found[id(instruction)] = kinds
    return found


def _step(state: _State, i: PtxInstruction) -> tuple[ReportKind, ...]:
    """Change the state by one instruction; return the kinds of report for it."""
    if i.opcode != "wgmma":
        return _ordinary(state, i)
    what = i.modifiers[0]
    if what == "fence":
        state.written.clear()
    elif what == "commit_group":
        for used in (state.sums, state.operands):
            for name in used:
                used[name] = min(used[name] + 1, _MOST_GROUPS)
    elif what == "wait_group":
        keep = i.operands[0].value if isinstance(i.operands[0], PtxImm) else 0
        for used in (state.sums, state.operands):
            for name in [name for name, groups in used.items() if groups > keep]:
                del used[name]
    else:
        return _product(state, i)
    return ()


def _ordinary(state: _State, i: PtxInstruction) -> tuple[ReportKind, ...]:
    """Do what `_step` does, for an instruction other than wgmma."""
    changed = {reg.name for reg in writes(i)}
    touched = changed | {reg.name for reg in reads(i)}
    state.written |= changed
    late = not touched.isdisjoint(state.sums) or not changed.isdisjoint(state.operands)
    return (ReportKind.UNWAITED_WGMMA,) if late else ()


def _product(state: _State, i: PtxInstruction) -> tuple[ReportKind, ...]:
    """Do what `_step` does, for wgmma.mma_async; products may share the registers of D."""
    sums = {reg.name for reg in registers_of(i.operands[0])}
    left = {reg.name for reg in registers_of(i.operands[1])} if isinstance(i.operands[1], Vec) else set()
    others = {reg.name for operand in i.operands[2:] for reg in registers_of(operand)}
    kinds = []
    if not (left | others).isdisjoint(state.sums) or not sums.isdisjoint(state.operands):
        kinds.append(ReportKind.UNWAITED_WGMMA)
    if not (left | sums).isdisjoint(state.written):
        kinds.append(ReportKind.MISSING_WGMMA_FENCE)
    state.sums |= dict.fromkeys(sums, 0)
    state.operands |= dict.fromkeys(left, 0)
    return tuple(kinds)
