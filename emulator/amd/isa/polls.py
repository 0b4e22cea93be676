"""Loops of kernels that may wait for other waves, and the accesses to LDS with which they poll.

A loop that waits must yield, or the wave waited for never runs. Sleeps, atomics and loads that see what
other waves write say so themselves. An atomic load of LDS encodes as a plain one, and so does an atomic
store. A load that polls is told by its loop, which stores nothing and loads the same place each time. It is
atomic or volatile if what it returns decides whether the loop goes on, because a compiler takes a plain load
that never changes out of the loop. An atomic operation that returns polls as well (a lock), unless what it
stores depends on what it returned (a loop of compare-and-swaps that computes).

Not here: the yielding (`emulator.simt.wave_function`), races of what polls
(`emulator.sanitizers.shadow_shared`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical, reach
from emulator.amd.isa.operands import EXEC, SCC, VCC, Reg
from emulator.amd.isa.registers_used import used

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.amd.isa.instruction import Instruction
    from emulator.amd.isa.registers_used import Register

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
"""The registers that a conditional branch tests, by the first letters of its condition."""


def may_wait(blocks: Sequence[tuple[list[Instruction], tuple[int, ...]]], family: str) -> bool:
    """Return whether a loop of a kernel may wait for other waves, of its workgroup or of others."""
    code = [i for body, _ in blocks for i in body]
    if any(_reads_others(i, family) for i in code):
        return True
    return any(any(_rereads(loop, family)) for loop in _loops(blocks, family))


def polled(blocks: Sequence[tuple[list[Instruction], tuple[int, ...]]], family: str) -> frozenset[int]:
    """Return the addresses of the loads and atomic operations by which loops poll a place of LDS."""
    return frozenset(
        i.address
        for loop in _loops(blocks, family)
        for i in _rereads(loop, family)
        if _decides(i, loop, family)
    )


def _loops(
    blocks: Sequence[tuple[list[Instruction], tuple[int, ...]]], family: str
) -> Iterator[list[Instruction]]:
    """Yield the code of each loop that stores nothing and meets no barrier: what a backward branch spans.

    Yields none for a kernel that does not use LDS.
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
    """Yield the accesses of a loop that return what is at the same place of LDS each time."""
    written = {register for i in loop for register in used(i, family)[1]}
    for i in loop:
        name = canonical(i.stem, family)
        if _LOCAL_LOAD.match(name) or _LOCAL_ATOMIC.match(name):
            at = i.operands[1]
            if isinstance(at, Reg) and (at.file, at.index) not in written:
                yield i


def _decides(i: Instruction, loop: Sequence[Instruction], family: str) -> bool:
    """Return whether what an access returns decides a branch of its loop, and not what the access stores."""
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
