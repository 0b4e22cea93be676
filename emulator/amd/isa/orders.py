"""Order between workgroups in machine code: atomics and stores that release, invalidations that acquire.

The rules are those of LLVM's memory model of AMDGPU for agent scope (AMDGPUUsage).

- An atomic operation, or a strong store (`instruction.reach`), releases if no earlier write of its wave is in
flight. The code must have waited for all of them (vscnt on gfx11, storecnt on gfx12, vmcnt on gfx9), and on
gfx9 have written them back before (`buffer_wbl2 sc1`). - An invalidation of the caches at agent scope
acquires if the code has waited for all strong reads and all atomics with a result. The invalidations are:
gfx9 `buffer_inv sc1`; gfx11 `buffer_gl1_inv`, then `buffer_gl0_inv`; gfx12 `global_inv` or `global_wbinv`
with scope:SCOPE_DEV or wider.

The analysis is static, like `waits`: an access that may be in flight on one path counts as in flight. It does
not follow writes of other waves of the workgroup, nor loads in flight at a release.

On gfx11 an atomic store encodes as a plain store, because every store goes to the L2. So in gfx11 kernels
with strong loads or atomics, a store of at most 8 bytes is `addresses.UNMARKED`. It counts as strong against
strong loads and atomics, and as plain against plain accesses. Two such stores of different workgroups race,
unless the second replaces a value that its workgroup has read. It counts as a release if the code has waited
for all stores or has acquired, and wrote nothing since.

Not here: the accesses that a release and an acquire order (`emulator.sanitizers.group_order`). Next:
`translate`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import reach, reaches_agent
from emulator.amd.isa.wait_counters import COUNTERS, MEMORY, events_of, returns, waited
from emulator.ir.addresses import STRONG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.amd.isa.instruction import CodeBlock, Instruction

RELEASED: Final = "released"
"""The instruction releases: accesses before it are ordered."""
RELEASED_UNMARKED: Final = "released unmarked"
"""The instruction is a store that releases if it is atomic; its encoding does not say whether it is."""
UNMARKED_STORE: Final = "unmarked"
"""The instruction is a store that may be atomic, and does not release."""
ACQUIRED: Final = "acquired"
"""The instruction acquires: accesses after it are ordered."""
_FAR = 64
"""Ages are not counted further: no counter is larger."""
# Stores of gfx11 that may be atomic stores.
_UNMARKED = re.compile(r"(global|flat|buffer)_store_(b8|b16|b32|b64|d16_hi_b8|d16_hi_b16)$")


@dataclass(frozen=True, slots=True)
class _Flight:
    """Accesses that may be in flight."""

    writes: dict[str, int] = field(default_factory=dict)
    """Counter -> accesses of it since the last write."""
    reads: dict[str, int] = field(default_factory=dict)
    """Counter -> accesses of it since the last strong read or atomic with a result."""
    dirty: bool = False
    """gfx9: a write may not have been written back from the L2."""
    emptied: bool = False
    """gfx11: the GL1 was invalidated, and nothing was loaded since."""
    quiet: bool = False
    """gfx11: the code waited for all stores, or acquired, and wrote nothing since."""


def _reads_strongly(i: Instruction, family: str) -> bool:
    match = MEMORY.match(i.stem)
    if match is None or match[1] == "scratch" or match[2] == "store":
        return False
    return match[2] == "atomic" or reach(i, family) == STRONG


def orders(blocks: Sequence[CodeBlock], family: str) -> dict[int, str]:
    """Return address of an instruction -> one of the four constants above; only instructions that have one.

    `family` is "gfx9", "gfx11" or "gfx12".
    """
    first = blocks[0][0][0].address
    polls = family == "gfx11" and any(_reads_strongly(i, family) for body, _ in blocks for i in body)
    begins = {first: _Flight()}
    bodies = {body[0].address: (body, follow) for body, follow in blocks}
    todo = [first]
    while todo:
        at = todo.pop()
        body, follow = bodies[at]
        flight = begins[at]
        for i in body:
            flight = _step(i, flight, family)
        for target in follow:
            merged = _merged(begins[target], flight) if target in begins else flight
            if merged != begins.get(target):
                begins[target] = merged
                todo.append(target)
    found: dict[int, str] = {}
    for at, flight in begins.items():
        for i in bodies[at][0]:
            what = _order_of(i, flight, family, polls=polls)
            if what is not None:
                found[i.address] = what
            flight = _step(i, flight, family)  # noqa: PLW2901 - followed through the block
    return found


def _order_of(i: Instruction, flight: _Flight, family: str, *, polls: bool) -> str | None:
    """Return how an instruction orders workgroups, or None. With `polls` stores of gfx11 may be atomic."""
    match = MEMORY.match(i.stem)
    if match is not None and match[1] != "scratch":
        strong = match[2] == "atomic" or (match[2] == "store" and reach(i, family) == STRONG)
        if polls and _UNMARKED.match(i.stem) and not strong:
            return RELEASED_UNMARKED if flight.quiet and not flight.writes else UNMARKED_STORE
        return RELEASED if strong and not flight.writes and not flight.dirty else None
    return ACQUIRED if _invalidates(i, flight, family) and not flight.reads else None


def _invalidates(i: Instruction, flight: _Flight, family: str) -> bool:
    """Return whether an instruction completes an invalidation of all caches between the wave and the L2."""
    if family == "gfx11":
        return i.stem == "buffer_gl0_inv" and flight.emptied
    return i.stem in ("buffer_inv", "global_inv", "global_wbinv") and reaches_agent(i, family)


def _step(i: Instruction, flight: _Flight, family: str) -> _Flight:
    """Return the state after an instruction."""
    writes, reads = dict(flight.writes), dict(flight.reads)
    for counter, left in waited(i, family).items():
        for pending in (writes, reads):
            if pending.get(counter, -1) >= left:
                del pending[counter]
    for counter in events_of(i, family):
        for pending in (writes, reads):
            if counter in pending:
                pending[counter] = min(pending[counter] + 1, _FAR)
    dirty, emptied = flight.dirty, flight.emptied or i.stem == "buffer_gl1_inv"
    acquires = _invalidates(i, flight, family) and not flight.reads
    quiet = flight.quiet or acquires or waited(i, family).get("vscnt") == 0
    match = MEMORY.match(i.stem)
    if match is not None and match[1] != "scratch":
        counter = COUNTERS[family]["load" if returns(i) else "store"]
        if match[2] != "load":
            writes[counter], dirty, quiet = 0, family == "gfx9", False
        if returns(i):
            emptied = False
            if match[2] == "atomic" or reach(i, family) == STRONG:
                reads[counter] = 0
    elif i.stem == "buffer_wbl2" and reaches_agent(i, family):
        dirty = False
        writes = dict.fromkeys(writes, 0)
    return _Flight(writes, reads, dirty, emptied, quiet)


def _merged(one: _Flight, other: _Flight) -> _Flight:
    """Join the states of two paths: for each counter keep the younger access."""
    return _Flight(
        _youngest(one.writes, other.writes),
        _youngest(one.reads, other.reads),
        one.dirty or other.dirty,
        one.emptied and other.emptied,
        one.quiet and other.quiet,
    )


def _youngest(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: min(each[name] for each in (one, other) if name in each) for name in one | other}
