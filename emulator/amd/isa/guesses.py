"""Accesses that are stronger than their encoding: guesses of compare-and-swap loops, and polling loads.

A *guess* is a plain load whose value a compare-and-swap of the same address validates, the first of its loop.
LLVM expands an atomic operation that a GPU lacks to a loop of compare-and-swaps. The loop begins with a plain
load from memory or LDS; a scalar load if all lanes have one address in memory. The code uses the value only
if the compare-and-swap finds it unchanged, so the load does not race with atomics. A load counts as a guess
if its register reaches the comparison, with the same address, on a straight path. The path has no store,
barrier or call, and no branch except the one that skips code without active lanes.

A loop that waits for other waves must yield, or the other wave never runs. A sleep, an atomic, or a load with
a scope beyond the wave shows that a kernel may wait. Loads of LDS have no scope: an atomic load encodes as a
plain load. So a polling load is recognised by its loop, which stores nothing and loads the same address each
time. It counts as atomic or volatile if its result decides whether the loop continues: a compiler would move
a plain load out of the loop. An atomic operation with a result polls, too (a lock), unless its operand
depends on its result (a loop of compare-and-swaps).

Not here: accesses that order workgroups (`orders`), yielding (`emulator.simt.wave_function`). Next: `memory`,
which makes such loads strong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import EXEC, SCC, VCC, Reg, canonical, reach
from emulator.amd.isa.registers_used import Register, used
from emulator.amd.isa.wait_counters import returns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.amd.isa.instruction import CodeBlock, Instruction, Operand

# Instructions of loops that wait; loads; loads and atomics of LDS; stores and barriers, which mean progress.
_WAITS = re.compile(r"s_sleep|(global|flat|ds|buffer)_atomic|ds_\w+_rtn_")
_LOAD = re.compile(r"(global|flat|buffer)_load_")
_LOCAL_LOAD = re.compile(r"ds_load_")
_ATOMIC_LOAD = re.compile(r"ds_load_(u8|i8|u16|i16|b32|b64)$")
_LOCAL_ATOMIC = re.compile(r"ds_\w+_rtn_")
_PROGRESS = re.compile(r"\w+_store_|s_barrier")
_DECIDERS: Final = {
    "scc": frozenset({("s", SCC)}),
    "vcc": frozenset({("s", VCC), ("s", VCC + 1)}),
    "exe": frozenset({("s", EXEC), ("s", EXEC + 1)}),
}
"""The first letters of a branch's condition -> the scalar registers that the branch tests."""


def may_wait(blocks: Sequence[CodeBlock], family: str) -> bool:
    """Return whether a kernel may wait for other waves, of its workgroup or of others."""
    code = [i for body, _ in blocks for i in body]
    if any(_reads_others(i, family) for i in code):
        return True
    return any(any(_rereads(loop, family)) for loop in _loops(blocks, family))


def polled(blocks: Sequence[CodeBlock], family: str) -> frozenset[int]:
    """Return the addresses of the loads and atomic operations by which loops poll an address of LDS."""
    return frozenset(
        i.address
        for loop in _loops(blocks, family)
        for i in _rereads(loop, family)
        if _decides(i, loop, family)
    )


def _loops(blocks: Sequence[CodeBlock], family: str) -> Iterator[list[Instruction]]:
    """Yield the code of each loop without store and barrier: the instructions that a backward branch spans.

    Yields nothing for a kernel that does not use LDS.
    """
    code = [i for body, _ in blocks for i in body]
    if not any(i.stem.startswith("ds_") for i in code):
        return
    for body, follow in blocks:
        for target in follow:
            if target <= body[0].address:
                loop = [i for i in code if target <= i.address <= body[-1].address]
                if not any(_PROGRESS.match(canonical(i.stem, family)) for i in loop):
                    yield loop


def _reads_others(i: Instruction, family: str) -> bool:
    name = canonical(i.stem, family)
    return bool(_WAITS.match(name) or (_LOAD.match(name) and reach(i, family)))


def _rereads(loop: Sequence[Instruction], family: str) -> Iterator[Instruction]:
    """Yield the loads and returning atomics of a loop that access the same address of LDS each time."""
    written = {register for i in loop for register in used(i, family)[1]}
    for i in loop:
        name = canonical(i.stem, family)
        if _LOCAL_LOAD.match(name) or _LOCAL_ATOMIC.match(name):
            at = i.operands[1]
            if isinstance(at, Reg) and (at.file, at.index) not in written:
                yield i


def _decides(i: Instruction, loop: Sequence[Instruction], family: str) -> bool:
    """Return whether an access's result decides a branch of its loop, and does not reach its own operands."""
    name = canonical(i.stem, family)
    if not (_ATOMIC_LOAD.match(name) or _LOCAL_ATOMIC.match(name)):
        return False
    reads, follow = used(i, family)
    found: set[Register] = set(follow)
    while True:
        before = len(found)
        for one in loop:
            sources, targets = used(one, family)
            if one is not i and not found.isdisjoint(sources):
                found |= targets
                if one.stem.startswith("s_"):
                    found.add(("s", SCC))
        if len(found) == before:
            break
    jumps = (one.stem for one in loop if one.stem.startswith("s_cbranch_"))
    branches = [stem.removeprefix("s_cbranch_")[:3] for stem in jumps]
    return found.isdisjoint(reads) and any(not found.isdisjoint(_DECIDERS[how]) for how in branches)


# Loads that may be guesses, and compare-and-swaps with a result or on memory.
_GUESS = re.compile(r"((global|flat|s)_load_(dword|dwordx2|b32|b64)|ds_(load|read)_b(32|64))$")
_SWAP = re.compile(r"(global|flat)_atomic_cmpswap|ds_cmpst(ore)?_rtn_b(32|64)$")
# Instructions that end the straight path from a load.
_STOPS = re.compile(r"\w+_store|s_barrier|s_endpgm|s_trap|s_setpc|s_swappc")
_MOVES = ("v_mov_b32", "v_dual_mov_b32")


@dataclass(frozen=True, slots=True)
class _Address:
    """An address as an instruction names it."""

    low: Register | None
    """The lowest vector register; None if only the base gives the address."""
    base: Register | None
    """The lowest scalar register of the base; None for an address in vector registers."""
    offset: int
    """Bytes."""
    kept: frozenset[Register]
    """The registers that must not change meanwhile."""

    def same(self, other: _Address) -> bool:
        """Return whether two addresses have the same registers and offset."""
        return (self.low, self.base, self.offset) == (other.low, other.base, other.offset)


def _registers(operand: Operand) -> frozenset[Register]:
    if not isinstance(operand, Reg):
        return frozenset()
    return frozenset((operand.file, operand.index + n) for n in range(operand.count))


def _address(i: Instruction, at: int) -> _Address | None:
    """Return the address in operand `at` of a vector access; None if it is no vector register."""
    vector, last = i.operands[at], i.operands[-1]
    if not isinstance(vector, Reg):
        return None
    scalar = last if isinstance(last, Reg) and last.file == "s" else None
    base = None if scalar is None else (scalar.file, scalar.index)
    kept = _registers(vector) | (frozenset() if scalar is None else _registers(scalar))
    return _Address((vector.file, vector.index), base, i.get("offset"), kept)


def _scalar_address(i: Instruction) -> _Address | None:
    """Return the address of a scalar load; None if a register adds an offset."""
    base, *more = i.operands[1:]
    if not isinstance(base, Reg) or any(isinstance(one, Reg) for one in more):
        return None
    return _Address(None, (base.file, base.index), i.get("offset"), _registers(base))


def guesses(blocks: Sequence[CodeBlock], family: str) -> frozenset[int]:
    """Return the addresses of a kernel's loads that a compare-and-swap validates."""
    bodies = {body[0].address: (body, follow) for body, follow in blocks}
    if not any(_SWAP.match(i.stem) for body, _ in blocks for i in body):
        return frozenset()
    return frozenset(
        i.address
        for body, _ in blocks
        for n, i in enumerate(body)
        if _GUESS.match(i.stem) and _validated(i, body[:n], _path(bodies, body, n + 1), family)
    )


def _path(bodies: dict[int, CodeBlock], body: list[Instruction], begin: int) -> list[Instruction]:
    """Return the instructions from index `begin` of a block up to the first branch that splits the path."""
    found, seen = body[begin:], {body[0].address}
    while True:
        last, follow = body[-1], bodies[body[0].address][1]
        target = last.next if last.stem == "s_cbranch_execz" else follow[0] if len(follow) == 1 else None
        if target is None or target in seen or target not in bodies:
            return found
        seen.add(target)
        body = bodies[target][0]
        found += body


def _validated(load: Instruction, before: list[Instruction], path: list[Instruction], family: str) -> bool:
    """Return whether a compare-and-swap on the path after a load validates it.

    `before` has the instructions of the load's block that precede the load.
    """
    scalar = load.stem.startswith("s_")
    first = _scalar_address(load) if scalar else _address(load, 1)
    zeros = _zeros(before, set(), family) if scalar else set()
    destination = load.operands[0]
    if first is None or not isinstance(destination, Reg) or first.kept & _registers(destination):
        return False
    count = 2 if load.stem.endswith(("b64", "x2")) else 1
    addresses = [first]
    held = [{(destination.file, destination.index + n)} for n in range(count)]
    for i in path:
        if _SWAP.match(i.stem) and _compares(i, held, addresses, zeros):
            return True
        if _STOPS.match(i.stem):
            return False
        _, written = used(i, family)
        added = [one for each in addresses if (one := _sum(i, each)) is not None]
        held = [(each - written) | _moved(i, each) for each in held]
        zeros = _zeros([i], zeros, family)
        addresses = [one for one in addresses if not one.kept & written] + added
        if not all(held) or not addresses:
            return False
    return False


def _compares(
    i: Instruction, held: list[set[Register]], addresses: list[_Address], zeros: set[Register]
) -> bool:
    """Return whether a compare-and-swap at one of the addresses compares with the loaded value.

    `held` has, for each dword of the value, the registers that hold it.
    """
    local, count = i.stem.startswith("ds_"), len(held)
    at = 1 if local or returns(i) else 0
    # The expected value is the upper half of an operand; in LDS the first operand on gfx9, later the second.
    place, data = _address(i, at), i.operands[at + (2 if "cmpstore" in i.stem else 1)]
    if place is None or not isinstance(data, Reg) or data.count != (count if local else 2 * count):
        return False
    first = data.index + (0 if local else count)
    places = [place, replace(place, low=None)] if place.low in zeros else [place]
    compared = all((data.file, first + n) in each for n, each in enumerate(held))
    return compared and any(one.same(each) for one in places for each in addresses)


def _zeros(code: Sequence[Instruction], zeros: set[Register], family: str) -> set[Register]:
    """Return the vector registers that are zero after instructions; `zeros` are those before."""
    for i in code:
        zeros = zeros - used(i, family)[1]
        for part in (i, i.second):
            if part is not None and part.stem in _MOVES and str(part.operands[1]) == "0":
                zeros |= _registers(part.operands[0])
    return zeros


def _moved(i: Instruction, held: set[Register]) -> set[Register]:
    """Return the registers to which an instruction copies one of `held`."""
    return {
        target
        for part in (i, i.second)
        if part is not None and part.stem in _MOVES and _registers(part.operands[1]) & held
        for target in _registers(part.operands[0])
    }


def _sum(i: Instruction, address: _Address) -> _Address | None:
    """Return the address as a sum in vector registers, if an instruction adds base and offset; else None."""
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
