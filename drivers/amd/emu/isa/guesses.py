"""Loads whose value a compare-and-swap of the same address validates: the first guess of its loop.

LLVM expands an atomic operation that a GPU lacks to a loop of compare-and-swaps, and begins it with a plain
load. The code relies on the value only if the compare-and-swap finds it unchanged, so the load does not
race with atomics. A load counts if its register reaches the comparison, with the same address, on the one
path from it: no store and no barrier comes between, and no branch but the one that skips code without
lanes.

Not here: what the other accesses order (`orders`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.operands import Reg
from drivers.amd.emu.isa.registers_used import Register, used
from drivers.amd.emu.isa.wait_counters import returns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.amd.emu.isa.instruction import Instruction
    from drivers.amd.emu.isa.operands import Operand

_LOAD = re.compile(r"(global|flat)_load_(dword|dwordx2|b32|b64)$")
_SWAP = re.compile(r"(global|flat)_atomic_cmpswap")
_STOPS = re.compile(r"\w+_store|s_barrier|s_endpgm|s_trap|s_setpc|s_swappc")
_MOVES = ("v_mov_b32", "v_dual_mov_b32")


@dataclass(frozen=True, slots=True)
class _Address:
    """An address: its lowest vector register, its scalar base, its offset; `kept` must not change."""

    low: Register
    base: Register | None
    offset: int
    kept: frozenset[Register]

    def same(self, other: _Address) -> bool:
        """Return whether two addresses name the same registers and offset."""
        return (self.low, self.base, self.offset) == (other.low, other.base, other.offset)


def _registers(operand: Operand) -> frozenset[Register]:
    if not isinstance(operand, Reg):
        return frozenset()
    return frozenset((operand.file, operand.index + n) for n in range(operand.count))


def _address(i: Instruction, at: int) -> _Address | None:
    vector, last = i.operands[at], i.operands[-1]
    if not isinstance(vector, Reg):
        return None
    scalar = last if isinstance(last, Reg) and last.file == "s" else None
    base = None if scalar is None else (scalar.file, scalar.index)
    kept = _registers(vector) | (frozenset() if scalar is None else _registers(scalar))
    return _Address((vector.file, vector.index), base, i.get("offset"), kept)


def guesses(blocks: Sequence[tuple[list[Instruction], tuple[int, ...]]], family: str) -> frozenset[int]:
    """Return the addresses of the loads of a kernel that a compare-and-swap validates."""
    bodies = {body[0].address: (body, follow) for body, follow in blocks}
    if not any(_SWAP.match(i.stem) for body, _ in blocks for i in body):
        return frozenset()
    return frozenset(
        i.address
        for body, _ in blocks
        for n, i in enumerate(body)
        if _LOAD.match(i.stem) and _validated(i, _path(bodies, body, n + 1), family)
    )


def _path(
    bodies: dict[int, tuple[list[Instruction], tuple[int, ...]]], body: list[Instruction], begin: int
) -> list[Instruction]:
    """Return the instructions behind a place up to the first branch that splits the path, each once."""
    found, seen = body[begin:], {body[0].address}
    while True:
        last, follow = body[-1], bodies[body[0].address][1]
        target = last.next if last.stem == "s_cbranch_execz" else follow[0] if len(follow) == 1 else None
        if target is None or target in seen or target not in bodies:
            return found
        seen.add(target)
        body = bodies[target][0]
        found += body


def _validated(load: Instruction, path: list[Instruction], family: str) -> bool:
    first = _address(load, 1)
    destination = load.operands[0]
    if first is None or not isinstance(destination, Reg):
        return False
    count = 2 if load.stem.endswith(("b64", "x2")) else 1
    addresses = [first]
    held = {(destination.file, destination.index)}
    for i in path:
        _, written = used(i, family)
        if _SWAP.match(i.stem):
            at = 1 if returns(i) else 0
            place, data = _address(i, at), i.operands[at + 1]
            wide = isinstance(data, Reg) and data.count == 2 * count
            if place is not None and wide and isinstance(data, Reg):
                compared = (data.file, data.index + count) in held
                if compared and any(place.same(one) for one in addresses):
                    return True
        if _STOPS.match(i.stem):
            return False
        moved = _moved(i, held) if count == 1 else set()
        added = [one for each in addresses if (one := _sum(i, each)) is not None]
        result = {(destination.file, destination.index + n) for n in range(count)} if count == 2 else set()
        if result & written:
            return False
        held = (held - written) | moved
        addresses = [one for one in addresses if not one.kept & written] + added
        if not held or not addresses:
            return False
    return False


def _moved(i: Instruction, held: set[Register]) -> set[Register]:
    """Return the registers to which an instruction copies a value held."""
    return {
        target
        for part in (i, i.second)
        if part is not None and part.stem in _MOVES and _registers(part.operands[1]) & held
        for target in _registers(part.operands[0])
    }


def _sum(i: Instruction, address: _Address) -> _Address | None:
    """Return the address that an instruction computes, or begins to, from a scalar base and an offset."""
    if address.base is None:
        return None
    if i.stem == "v_add_co_u32":
        parts = i.operands[2:4]
    elif i.stem == "v_lshl_add_u64" and str(i.operands[2]) == "0":
        parts = (i.operands[1], i.operands[3])
    else:
        return None
    if {(one.file, one.index) for one in parts if isinstance(one, Reg)} != {address.low, address.base}:
        return None
    target = i.operands[0]
    if not isinstance(target, Reg):
        return None
    low = (target.file, target.index)
    return _Address(low, None, address.offset, frozenset({low}))
