"""Order by atomics in shared memory where a warp's accesses are executed in their order, as AMD's LDS does.

An atomic that returns what was there is ordered after the last one of another warp at the same place, and
after all that this warp had done before. The clock of a warp advances behind each of its atomics, so that
they do not order what it does later. The clocks that the other warp had joined since then count, too,
which is more than hardware promises.

Not here: barriers (`clocks`), PTX, where fences order (`sanitize`). Next: `shadow_shared`, which asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.sanitizers import clocks
from drivers.emu.sanitizers.clocks import CELL, CLOCK, PARTY_SHIFT, STRONG_CLOCK
from drivers.emu.simt.library import helper
from drivers.emu.simt.state import THREAD, WARP
from drivers.emu.simt.vector import Spilled

if TYPE_CHECKING:
    from drivers.emu.sanitizers.sanitize import Ordering
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code, Value


def observes(wf: Ordering, offsets: Value, lanes: Value) -> None:
    """Append code for an atomic of some lanes that is about to return what is at some offsets."""
    if wf.lib.checks.shared_races:
        wf.c.call(_observe(wf.lib), "void", wf.warp, offsets, lanes)


def published(wf: Ordering) -> None:
    """Append code for a warp behind an atomic."""
    if wf.lib.checks.shared_races:
        c = wf.c
        clocks.tick(c, WARP.load(c, wf.warp, "group"), WARP.load(c, wf.warp, "party"))


@helper("emu.observe.shared", "ptr", "i32 each", "mask")
def _observe(lib: Library, c: Code, warp: Value, offsets: Value, mask: Value) -> None:
    """`emu.observe.shared(warp, offsets, mask)`: order a warp after the atomics that wrote there last."""
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
    cells, all_in = clocks.cells(c, group), Spilled(c, offsets)
    with c.each_lane(mask) as lane:
        offset = all_in.get(lane)
        with c.when(c.icmp("ult", offset, limit)):
            stamp = c.load("i32", c.gep(cells, c.op("mul", c.resize(offset, 64), CELL)))
            other, then = c.op("sub", c.op("lshr", stamp, PARTY_SHIFT), 1), c.op("and", stamp, CLOCK)
            strong = c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0)
            with c.when(c.op("and", strong, c.icmp("ne", other, party))):
                known = clocks.clock(c, group, party, other)
                with c.when(c.icmp("ugt", then, c.load("i32", known))):
                    c.call(clocks.join(lib), "void", group, party, other)
                    c.store(then, known)  # what the other warp did behind its atomic is not ordered
