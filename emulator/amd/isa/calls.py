"""Calls and returns of machine code: the possible targets of `s_swappc_b64` and `s_setpc_b64`.

Compilers compute a function's address from `s_getpc_b64` and a distance, added to both halves. A call may use
a pair of registers that another basic block sets. Then every address that the kernel computes in this pair is
a possible target. A return may lead to the instruction after any call. Addresses that come from memory are
not known.

Not here: the jump itself (`translate`, which compares the address at run time with the possible targets).
Next: `translate`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import Imm, Reg

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from emulator.amd.isa.instruction import Instruction

CALL: Final = "s_swappc_b64"
JUMPS: Final = frozenset({CALL, "s_setpc_b64"})
# Instructions that copy an address, and those that add a distance to it.
_MOVES: Final = frozenset({"s_mov_b64", "s_cselect_b32", "s_cselect_b64"})
_ADDS: Final = frozenset({"s_add_u32", "s_add_co_u32"})

Addresses = frozenset[int]


def leads(instructions: Iterable[Instruction], joins: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Return the address of each call and return -> the sorted addresses of its possible targets.

    Unknown targets give (). `instructions` are in the order of addresses, `joins` are the targets of
    branches.
    """
    now: dict[int, Addresses] = {}
    """The lower register of a pair -> the addresses that it may hold here."""
    ever: dict[int, Addresses] = defaultdict(frozenset)
    """The lower register of a pair -> all addresses that the code computes in it."""
    jumps: list[tuple[Instruction, int, Addresses | None]] = []
    for i in instructions:
        if i.address in joins:
            now.clear()
        if not i.operands or not isinstance(d := i.operands[0], Reg) or d.file != "s":
            continue
        if i.stem in JUMPS:
            source = i.operands[-1]
            assert isinstance(source, Reg)
            jumps.append((i, source.index, now.get(source.index)))
            continue
        held = frozenset({i.next}) if i.stem == "s_getpc_b64" else _made(i, now)
        for index in range(d.index, d.index + d.count):
            now.pop(index, None)
        if held:
            now[d.index] = held
            ever[d.index] |= held if i.stem != "s_getpc_b64" else frozenset()
    behind = frozenset(i.next for i, _, _ in jumps if i.stem == CALL)
    return {
        i.address: tuple(sorted(known or ever[index] | (behind if i.stem != CALL else frozenset())))
        for i, index, known in jumps
    }


def _made(i: Instruction, now: Mapping[int, Addresses]) -> Addresses:
    """Return the addresses that an instruction may compute from the known ones; empty if it computes none."""
    sources = i.operands[1:]
    held = [now.get(o.index) for o in sources if isinstance(o, Reg) and o.file == "s"]
    known = frozenset[int]().union(*(one for one in held if one))
    if i.stem in _MOVES:
        return known if all(held) else frozenset()
    distance = next((o.bits for o in sources if isinstance(o, Imm)), None)
    if i.stem not in _ADDS or distance is None:
        return frozenset()
    return frozenset(at + distance - (1 << 32 if distance >> 31 else 0) for at in known)
