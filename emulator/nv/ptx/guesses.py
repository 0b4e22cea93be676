"""Plain loads whose value a compare-and-swap at the same address validates: the first guess of a loop of atomicCAS.

CUDA's programming guide builds other atomic operations from atomicCAS:
`old = *p; do { seen = old; old = atomicCAS(p, seen, f(seen)); } while (seen != old);`
The code relies on the first value only if the comparison finds it unchanged, so the plain load does not race with
atomics. A load counts as a guess if its register reaches the comparison, with the same address, on an unbranched path.
No store, barrier, fence or reduction may lie on that path.

Not here: the orders that instructions state (`memory`). Next: `translate`, the user.
"""

# ruff: noqa: E501 - summaries read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.nv.ptx.blocks import NO_RESULT, sleeps, writes
from emulator.nv.ptx.statements import TYPES, Mem, PtxReg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.nv.ptx.blocks import BasicBlock
    from emulator.nv.ptx.statements import PtxInstruction

_SPACES = frozenset({"global", "shared", "shared::cta", "shared::cluster"})
_OTHERS = frozenset({"volatile", "relaxed", "acquire", "mmio", "nc", "v2", "v4", "v8"})
"""Modifiers of loads that are not plain, not coherent with atomics, or of several elements."""
_STOPS = NO_RESULT - {"bra", "prefetch", "prefetchu", "nanosleep", "pmevent"}
"""Opcodes that end the search along a path."""


def guesses(cut: Sequence[BasicBlock]) -> frozenset[int]:
    """Return the `id`s of the load instructions of a kernel, in blocks from `blocks.blocks`, that are guesses."""
    if not any(_swaps(i) for block in cut for i in block.instructions):
        return frozenset()
    return frozenset(
        id(i)
        for number, block in enumerate(cut)
        for n, i in enumerate(block.instructions)
        if _loads(i) and _validated(i, _path(cut, number, n + 1))
    )


def _swaps(i: PtxInstruction) -> bool:
    return i.opcode == "atom" and "cas" in i.modifiers


def _loads(i: PtxInstruction) -> bool:
    """Return whether an instruction is a plain load of one element, from an address in a register."""
    if i.opcode != "ld" or i.guard is not None or _OTHERS & set(i.modifiers):
        return False
    target, at = i.operands[:2]
    return isinstance(target, PtxReg) and isinstance(at, Mem) and isinstance(at.base, PtxReg) and at.base != target


def _width(i: PtxInstruction) -> int:
    """Return the bits of the last type that an instruction names; 0 if it names none."""
    return next((TYPES[word] for word in reversed(i.modifiers) if word in TYPES), 0)


def _path(cut: Sequence[BasicBlock], number: int, begin: int) -> list[PtxInstruction]:
    """Return the instructions of block `number` from `begin` on, and of the blocks after it while there is one successor."""
    found, seen = list(cut[number].instructions[begin:]), {number}
    while len(cut[number].successors) == 1 and cut[number].successors[0] not in seen:
        number = cut[number].successors[0]
        seen.add(number)
        found += cut[number].instructions
    return found


def _validated(load: PtxInstruction, path: Sequence[PtxInstruction]) -> bool:
    """Return whether a compare-and-swap on the path after a load compares with the value that the load returned."""
    target, at = load.operands[:2]
    assert isinstance(target, PtxReg)
    assert isinstance(at, Mem)
    space, width, held = _SPACES & set(load.modifiers), _width(load), {target.name}
    for i in path:
        if _swaps(i) and i.guard is None and i.operands[1] == at and _SPACES & set(i.modifiers) == space:
            compared = i.operands[2]
            return _width(i) == width and isinstance(compared, PtxReg) and compared.name in held
        if i.opcode in _STOPS or sleeps(i):
            return False
        written = {one.name for one in writes(i)}
        if isinstance(at.base, PtxReg) and at.base.name in written:
            return False
        source = i.operands[1] if i.opcode == "mov" and i.guard is None and len(i.operands) > 1 else None
        if isinstance(source, PtxReg) and source.name in held:
            held |= written
        else:
            held -= written
    return False
