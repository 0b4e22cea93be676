"""Vector clocks of the warps of a workgroup, one row for each warp, and the shadow memory that holds them.

The second half of a row says up to which clock a warp's writes are fenced for the asynchronous proxy, as far as the row's
owner is ordered behind the fences. Joins take both halves.

The shadow cells of shared memory, one for each byte (`shadow_shared`), follow the clocks.

Next: `sanitize`, which joins clocks at barriers; `shadow_shared`, which compares them.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.simt.state import BARRIERS, GROUP, THREAD, WARP

if TYPE_CHECKING:
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code, Value

FENCES = BARRIERS
"""The row, counted from the barriers' first row, of the clock that fences join."""
CELL = 32
"""Bytes of shadow for a byte of shared memory: the stamps of a writer and two readers, whether the asynchronous proxy wrote
it, then the instructions of the stamps."""
BY_PROXY = 12
"""Offset of the word that is not 0 if the asynchronous proxy wrote last."""
PLACES = 16
"""Offset of the instruction words in a cell, in the order of the stamps."""
STRONG_CLOCK = 1 << 23
CLOCK = STRONG_CLOCK - 1


def clocks_bytes(warps: int) -> int:
    """Return the size in bytes of the clocks of a workgroup, a multiple of 8."""
    return -(-8 * warps * (warps + BARRIERS + 1) // 8) * 8


def warps_of(c: Code, group: Value) -> Value:
    """Return the number of warps of a workgroup, as i32."""
    return THREAD.load(c, GROUP.load(c, group, "thread"), "warps")


def clock(c: Code, group: Value, row: Value, column: Value) -> Value:
    """Return the address of one component of a clock. Rows of barriers and of fences follow those of warps."""
    at = c.op("add", c.op("mul", row, c.op("shl", warps_of(c, group), 1)), column)
    return c.gep(GROUP.load(c, group, "shadow"), c.op("shl", c.resize(at, 64), 2))


def fenced(c: Code, group: Value, row: Value, column: Value) -> Value:
    """Return the address of the clock up to which warp `column`'s writes are fenced for the asynchronous proxy."""
    return clock(c, group, row, c.op("add", column, warps_of(c, group)))


def cells(c: Code, group: Value) -> Value:
    """Return the address of the first cell of shared memory."""
    warps = warps_of(c, group)
    size = c.op("shl", c.op("mul", warps, c.op("add", warps, BARRIERS + 1)), 3)
    return c.gep(GROUP.load(c, group, "shadow"), c.resize(size, 64))


def join(lib: Library) -> str:
    """`emu.join(group, to, source)`: set each component of row `to` to the maximum of both rows."""

    def body(c: Code, group: Value, to: Value, source: Value) -> None:
        with c.count(c.op("shl", warps_of(c, group), 1)) as column:
            here, there = clock(c, group, to, column), clock(c, group, source, column)
            c.store(c.intrinsic("umax", c.load("i32", here), c.load("i32", there)), here)
        c.ret()

    return lib.define("emu.join", "void", {"group": "ptr", "to": "i32", "source": "i32"}, body, core=True)


def tick(c: Code, group: Value, index: Value) -> None:
    """Increment a warp's own component of its clock."""
    at = clock(c, group, index, index)
    c.store(c.op("and", c.op("add", c.load("i32", at), 1), CLOCK), at)


def proxy_fence(lib: Library) -> str:
    """`emu.proxy_fence(warp)`: everything before is fenced for the asynchronous proxy."""

    def body(c: Code, warp: Value) -> None:
        group, index = WARP.load(c, warp, "group"), WARP.load(c, warp, "index")
        with c.count(warps_of(c, group)) as column:
            here, there = fenced(c, group, index, column), clock(c, group, index, column)
            c.store(c.intrinsic("umax", c.load("i32", here), c.load("i32", there)), here)
        tick(c, group, index)
        c.ret()

    return lib.define("emu.proxy_fence", "void", {"warp": "ptr"}, body)


def barrier_arrive(lib: Library, c: Code, warp: Value, group: Value, number: Value) -> None:
    """Append code for a warp that arrives at a barrier: join its clock to the barrier's."""
    if not lib.checks.shared_races:
        return
    index = WARP.load(c, warp, "index")
    c.call(join(lib), "void", group, c.op("add", number, warps_of(c, group)), index)
    tick(c, group, index)


def warp_released(lib: Library, c: Code, thread: Value, group: Value, number: Value, index: Value) -> None:
    """Append code for a warp that leaves a barrier: join the barrier's clock to its own."""
    if lib.checks.shared_races:
        c.call(join(lib), "void", group, index, c.op("add", number, THREAD.load(c, thread, "warps")))
