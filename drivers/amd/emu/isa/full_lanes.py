"""Where every lane that a wave began with executes: there results need no mask.

EXEC is followed through the code, and through copies of it in scalar registers, as "what it was at first". A
lane that the workgroup does not have may then get results, too; nothing defines what its registers hold.

Next: `translate`, the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.operands import EXEC, VCC, Imm, Operand, Reg

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction

_NO_DESTINATION = (
    "s_cmp",
    "s_bitcmp",
    "s_cbranch",
    "s_branch",
    "s_wait",
    "s_barrier",
    "s_setreg",
    "s_sendmsg",
)


def everywhere(blocks: list[tuple[list[Instruction], tuple[int, ...]]], lanes: int) -> frozenset[int]:
    """Return the addresses of instructions at which EXEC is what it was when the wave began."""
    width = lanes // 32
    begins: dict[int, frozenset[int]] = {blocks[0][0][0].address: frozenset([EXEC])}
    by_address = {body[0].address: (body, follow) for body, follow in blocks}
    todo = [blocks[0][0][0].address]
    full: dict[int, bool] = {}
    while todo:
        body, follow = by_address[todo.pop()]
        known = begins[body[0].address]
        for instruction in body:
            full[instruction.address] = EXEC in known
            known = _after(instruction, known, width)
        for target in follow:
            merged = known if target not in begins else begins[target] & known
            if begins.get(target) != merged:
                begins[target] = merged
                todo.append(target)
    return frozenset(address for address, yes in full.items() if yes)


def _index(operand: Operand) -> int | None:
    return operand.index if isinstance(operand, Reg) and operand.file == "s" else None


def _after(i: Instruction, known: frozenset[int], width: int) -> frozenset[int]:
    """Return which scalar registers hold the first EXEC behind an instruction."""
    stem = i.stem
    if stem.startswith("v_cmpx"):
        return known - {EXEC, VCC}
    if not i.operands or stem.startswith(_NO_DESTINATION):
        return known
    written = {
        r
        for operand in i.operands[: 2 if stem.startswith("v_") else 1]
        if isinstance(operand, Reg) and operand.file == "s"
        for r in range(operand.index - 1, operand.index + operand.count)
    }
    whole = stem.endswith("b64" if width == 2 else "b32")
    d = _index(i.operands[0])
    sources = [_index(o) in known for o in i.operands[1:] if not isinstance(o, Imm)]
    if stem.endswith(("saveexec_b32", "saveexec_b64")):
        kept = known - written - {EXEC}
        if whole and EXEC in known and d is not None:
            kept |= {d}
        if whole and stem.startswith("s_or_save") and (EXEC in known or any(sources)):
            kept |= {EXEC}
        return kept
    after = known - written - ({EXEC} if "wrexec" in stem else set())
    if whole and d is not None:
        if stem.startswith("s_mov_b") and any(sources):
            return after | {d}
        if stem.startswith("s_or_b") and any(sources):
            return after | {d}
        if stem.startswith("s_and_b") and len(sources) == 2 and all(sources):
            return after | {d}
    return after
