"""Checked loads and stores of every width, in every address space.

Lanes are processed in rows of 16. If in every row the addresses are consecutive, or in every row equal, a row is one
vector load, store or broadcast. Otherwise the lanes gather and scatter. Most accesses are such rows within the allocation
that their instruction last accessed. That case is tried first (`rows`).

Not here: address checks (`emulator.ir.addresses`), race checks (`emulator.sanitizers.sanitize`), rows (`rows`). Next:
`atomics`.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import (
    READ,
    SPACES,
    UNCHANGED,
    WRITE,
    address_type,
    inside_shared,
    known_hosts,
    translate,
)
from emulator.ir.findings import i32
from emulator.ir.ir_text import bits_of
from emulator.ir.state import WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.sanitizers import sanitize
from emulator.simt.rows import (
    ROW,
    contiguous,
    load_rows,
    row_mask,
    rows_of,
    spread_rows,
    structure,
    try_load,
    try_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

SHAPES = ((8, 1), (16, 1), (32, 1), (64, 1), (32, 2), (32, 4), (64, 2))
"""Common accesses: bits of an element, number of elements. Each adds about 0.4 s to the first compilation of the core library."""


def load_each(lib: Library, bits: int) -> str:
    """`emu.load_each.BITS(hosts, mask) -> values`: one load for each lane, for hosts without fast gathers."""

    def body(c: CodeBuilder, hosts: IrValue, mask: IrValue) -> None:
        all_in, all_out = Spilled(c, hosts), Spilled(c, lib.v(f"i{bits}"))
        c.branch(c.icmp("eq", mask, -1), "whole", "some")
        c.label("whole")
        for number in range(lib.lanes):
            pointer = c.let("ptr", f"inttoptr {all_in.get(i32(number))} to ptr")
            all_out.set(i32(number), c.load(f"i{bits}", pointer))
        c.ret(all_out.whole())
        c.label("some")
        with c.each_lane(mask) as lane:
            pointer = c.let("ptr", f"inttoptr {all_in.get(lane)} to ptr")
            all_out.set(lane, c.load(f"i{bits}", pointer))
        c.ret(all_out.whole())

    return lib.define(f"emu.load_each.{bits}", lib.v(f"i{bits}"), "i64 each, mask", body, core=True)


def store_each(lib: Library, bits: int) -> str:
    """`emu.store_each.BITS(hosts, values, mask)`: one store for each lane, lowest lane first."""

    def body(c: CodeBuilder, hosts: IrValue, values: IrValue, mask: IrValue) -> None:
        all_in, data = Spilled(c, hosts), Spilled(c, values)
        c.branch(c.icmp("eq", mask, -1), "whole", "some")
        c.label("whole")
        for number in range(lib.lanes):
            pointer = c.let("ptr", f"inttoptr {all_in.get(i32(number))} to ptr")
            c.store(data.get(i32(number)), pointer)
        c.ret()
        c.label("some")
        with c.each_lane(mask) as lane:
            pointer = c.let("ptr", f"inttoptr {all_in.get(lane)} to ptr")
            c.store(data.get(lane), pointer)

    return lib.define(f"emu.store_each.{bits}", "void", f"i64 each, {lib.v(f'i{bits}')}, mask", body, core=True)


def scattered(lib: Library, bits: int) -> bool:
    """Return whether elements of `bits` use the host's gather and scatter instructions."""
    return bits >= 32 and lib.target.gathers


def load_one(lib: Library, c: CodeBuilder, hosts: IrValue, mask: IrValue, bits: int) -> IrValue:
    """Load one element of `bits` for each lane of a mask from valid host addresses; zero in other lanes."""
    if scattered(lib, bits):
        return c.gather(lib.v(f"i{bits}"), c.cast("inttoptr", hosts, "ptr"), c.mask_lanes(mask), bits // 8)
    return c.call(load_each(lib, bits), lib.v(f"i{bits}"), hosts, mask)


def store_one(lib: Library, c: CodeBuilder, hosts: IrValue, value: IrValue, mask: IrValue) -> None:
    """Store one element for each lane of a mask to valid host addresses; of equal addresses the highest lane's stays."""
    bits = bits_of(value.type)
    if scattered(lib, bits):
        c.scatter(value, c.cast("inttoptr", hosts, "ptr"), c.mask_lanes(mask), bits // 8)
    else:
        c.call(store_each(lib, bits), "void", hosts, value, mask)


def _named(lib: Library, stem: str, how: int) -> str:
    """Return the name of a helper. With sanitizers, each value of `how` has helpers of its own."""
    return f"{stem}.{how}" if how and lib.checks.any else stem


def load(lib: Library, space: str, bits: int, count: int, how: int = 0, *, any_place: bool = False) -> str:
    """`emu.load.SPACE.BITSxCOUNT(warp, addresses, mask, site) -> values`, a struct of vectors if COUNT > 1.

    `how` is the flags of the access (`emulator.ir.addresses`), 0 for a plain one. `any_place`: leave out the attempt with
    rows (`rows.try_load`), because the caller has made it.
    """
    one = lib.v(f"i{bits}")
    result = one if count == 1 else "{ " + ", ".join([one] * count) + " }"
    size = bits // 8 * count
    rows_first = not any_place and quick(lib, space)

    def body(c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue) -> None:
        if rows_first:
            try_load(lib, c, space, warp, addresses, mask, site, bits, count)
            if lib.target.gathers:  # hot helpers are inlined there, so the rest is a call
                c.ret(c.call(load(lib, space, bits, count, any_place=True), result, warp, addresses, mask, site))
                return
        (single if count == 1 else several)(c, warp, addresses, mask, site)

    def several(c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue) -> None:
        hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(READ))
        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, READ | how)
        base, same = contiguous(lib, c, hosts, size)
        c.branch(c.icmp("eq", c.op("and", same, mask), -1), "near", "far")
        c.label("near")
        pointer = c.let("ptr", f"inttoptr {base} to ptr")
        block = c.load(f"<{lib.lanes * count} x i{bits}>", pointer, align=bits // 8)
        c.ret(
            structure(c, [c.shuffle(block, None, range(i, lib.lanes * count, count)) for i in range(count)])
        )
        c.label("far")
        steps = [c.op("add", hosts, i * bits // 8) if i else hosts for i in range(count)]
        c.ret(structure(c, [load_one(lib, c, step, mask, bits) for step in steps]))

    def single(c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue) -> None:
        def rest(hosts: IrValue) -> None:
            c.ret(load_one(lib, c, hosts, mask, bits))

        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, READ | how)
        places, pointer, far = _placed(lib, c, space, warp, addresses, mask, site, size, READ, rest)
        rows = rows_of(lib, c, places, size)
        idle = c.not_(mask)
        c.branch(c.icmp("eq", c.op("or", rows.following, idle), -1), "near", "look")
        c.label("near")
        c.ret(load_rows(c, [pointer(base) for base in rows.bases], mask, bits))
        c.label("look")
        c.branch(c.icmp("eq", c.op("or", rows.same, idle), -1), "spread", "far")
        c.label("spread")
        c.ret(spread_rows(c, [pointer(base) for base in rows.bases], mask, bits))
        c.label("far")
        if scattered(lib, bits):
            c.ret(c.gather(one, far(), c.mask_lanes(mask), bits // 8))
        else:
            rest(c.cast("ptrtoint", far(), "i64"))

    hot = count == 1 and space == "global" and not any_place
    name = _named(lib, f"emu.load.{space}.{bits}x{count}{'.any' if any_place else ''}", how)
    return lib.define(name, result, f"ptr, {address_type(lib, space)}, mask, i32", body, core=True, hot=hot)


def _placed(
    lib: Library, c: CodeBuilder, space: str, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, size: int, access: int,
    rest: Callable[[IrValue], None],
) -> tuple[IrValue, Callable[[IrValue], IrValue], Callable[[], IrValue]]:  # fmt: skip
    """Append the check of addresses; return places, a function from one place to a pointer, and one that makes all pointers.

    The places are host addresses, or, in shared memory, 32-bit offsets, which halves the work. In shared memory `rest`
    appends the code for host addresses, which runs if a lane is invalid.
    """
    if space != "shared":
        hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(access))
        return (
            hosts,
            lambda base: c.let("ptr", f"inttoptr {base} to ptr"),
            lambda: c.cast("inttoptr", hosts, "ptr"),
        )
    shared = WARP.load(c, warp, "shared")
    bad = c.op("and", mask, c.not_(inside_shared(lib, c, warp, addresses, size)))
    c.emit(f"br {c.icmp('eq', bad, 0)}, label %good, label %astray, !prof !0")
    c.label("astray")
    rest(c.call(translate(lib, "shared", size), lib.v("i64"), warp, addresses, mask, site, i32(access)))
    c.label("good")
    return (
        addresses,
        lambda base: c.gep(shared, c.resize(base, 64, signed=True)),  # lane 0 may be idle and before it
        lambda: c.gep(shared, c.resize(addresses, 64, signed=True)),
    )


def _watch_store(
    lib: Library, c: CodeBuilder, space: str, warp: IrValue, addresses: IrValue, values: Sequence[IrValue], mask: IrValue, site: IrValue, access: int
) -> None:  # fmt: skip
    """Append the checks of a store. Lanes that do not change memory get the flag UNCHANGED: they race with no write."""
    bits = bits_of(values[0].type)
    size = bits // 8 * len(values)
    if space == "local" or not lib.checks.shared_races:
        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, access)
        return
    hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(WRITE))
    same = mask
    for i, value in enumerate(values):
        old = load_one(lib, c, c.op("add", hosts, i * bits // 8) if i else hosts, mask, bits)
        same = c.op("and", same, c.mask_bits(c.icmp("eq", old, value)))
    sanitize.watch(lib, c, space, warp, addresses, c.op("and", mask, c.not_(same)), site, size, access)
    sanitize.watch(lib, c, space, warp, addresses, same, site, size, access | UNCHANGED)


def store(lib: Library, space: str, bits: int, count: int, how: int = 0, *, any_place: bool = False) -> str:
    """`emu.store.SPACE.BITSxCOUNT(warp, addresses, values..., mask, site)`; `how` and `any_place` as for `load`."""
    size = bits // 8 * count
    rows_first = not any_place and quick(lib, space)

    def body(c: CodeBuilder, warp: IrValue, addresses: IrValue, *rest: IrValue) -> None:
        if rows_first:
            values, mask, site = list(rest[:count]), rest[count], rest[count + 1]
            try_store(lib, c, space, warp, addresses, values, mask, site)
            if lib.target.gathers:
                c.call(store(lib, space, bits, count, any_place=True), "void", warp, addresses, *rest)
                c.ret()
                return
        (single if count == 1 else several)(c, warp, addresses, *rest)

    def several(c: CodeBuilder, warp: IrValue, addresses: IrValue, *rest: IrValue) -> None:
        values, mask, site = rest[:count], rest[count], rest[count + 1]
        hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(WRITE))
        _watch_store(lib, c, space, warp, addresses, values, mask, site, WRITE | how)
        for i, value in enumerate(values):
            store_one(lib, c, c.op("add", hosts, i * bits // 8) if i else hosts, value, mask)
        c.ret()

    def single(c: CodeBuilder, warp: IrValue, addresses: IrValue, *parts: IrValue) -> None:
        value, mask, site = parts

        def rest(hosts: IrValue) -> None:
            store_one(lib, c, hosts, value, mask)
            c.ret()

        _watch_store(lib, c, space, warp, addresses, (value,), mask, site, WRITE | how)
        places, pointer, far = _placed(lib, c, space, warp, addresses, mask, site, size, WRITE, rest)
        rows = rows_of(lib, c, places, size)
        c.branch(c.icmp("eq", c.op("or", rows.following, c.not_(mask)), -1), "near", "far")
        c.label("near")
        for row, base in enumerate(rows.bases):
            part = c.shuffle(value, None, range(row * ROW, (row + 1) * ROW))
            c.masked_store(part, pointer(base), c.mask_lanes(row_mask(c, mask, row)), size)
        c.ret()
        c.label("far")
        if scattered(lib, bits):
            c.scatter(value, far(), c.mask_lanes(mask), size)
            c.ret()
        else:
            rest(c.cast("ptrtoint", far(), "i64"))

    parameters = {"warp": "ptr", "addresses": address_type(lib, space)}
    parameters |= {f"value{i}": lib.v(f"i{bits}") for i in range(count)} | {"mask": lib.mask, "site": "i32"}
    hot = count == 1 and space == "global" and not any_place
    name = _named(lib, f"emu.store.{space}.{bits}x{count}{'.any' if any_place else ''}", how)
    return lib.define(name, "void", parameters, body, core=True, hot=hot)


def try_any_place(
    lib: Library, c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, bits: int, *, values: list[IrValue] | None = None
) -> None:  # fmt: skip
    """Append code that makes an access to global memory and returns, if all lanes are in the instruction's last allocation.

    With `values` the access stores them, the values of a lane consecutively; else it loads one element. The code that
    follows is for all other accesses.
    """
    size = bits // 8 * len(values or [0])
    hosts, good = known_hosts(lib, c, warp, addresses, mask, site, size)
    c.emit(f"br {good}, label %nearby, label %distant, !prof !0")
    c.label("nearby")
    for n, value in enumerate(values or []):
        store_one(lib, c, c.op("add", hosts, n * bits // 8), value, mask)
    c.ret(load_one(lib, c, hosts, mask, bits) if values is None else None)
    c.label("distant")


def quick(lib: Library, space: str) -> bool:
    """Return whether accesses of a space first try rows in the instruction's last allocation: only without checks."""
    return space in ("global", "shared") and not lib.checks.any


def define_core(lib: Library, shapes: tuple[tuple[int, int], ...] = SHAPES) -> None:
    """Define the loads and stores that kernels commonly use; `shapes` are as in `SHAPES`."""
    for space in SPACES:
        for bits, count in shapes:
            load(lib, space, bits, count)
            store(lib, space, bits, count)
