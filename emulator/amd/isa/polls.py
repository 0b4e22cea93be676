"""Loops of kernels that may wait for other waves, and the accesses to LDS by which loops poll.

A loop that waits must yield, or the other wave never runs. A sleep, an atomic, or a load with a scope beyond
the wave shows that a kernel may wait. Loads of LDS have no scope: an atomic load encodes as a plain load. So
a polling load is recognised by its loop, which stores nothing and loads the same address each time. It counts
as atomic or volatile if its result decides whether the loop continues: a compiler would move a plain load out
of the loop. An atomic operation with a result polls, too (a lock), unless its operand depends on its result
(a loop of compare-and-swaps).

Not here: yielding (`emulator.simt.wave_function`), races of polling accesses
(`emulator.sanitizers.shadow_shared`). Next: `translate`, the user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical, reach
from emulator.amd.isa.operands import EXEC, SCC, VCC, Reg
from emulator.amd.isa.registers_used import used

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.amd.isa.instruction import CodeBlock, Instruction
    from emulator.amd.isa.registers_used import Register

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
