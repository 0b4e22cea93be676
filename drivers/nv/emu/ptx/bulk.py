"""Bulk copies (cp.async.bulk) between global and shared memory: their queue, groups and waits.

Source: PTX ISA 9.7.9.25.4.

A copy executes not when it is issued, but when it is waited for: at its mbarrier, or for its group. The copies of a
cluster are queued in one ring, in the memory of its first warp; if the ring is full, the oldest copy is executed.
A copy must lie within one allocation.

Not here: reductions (`bulk_reductions`), smaller copies (`async_copies`), boxes of a tensor (`tensor_copies`), the mbarrier (`mbarrier`).
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from drivers.emu.report import ReportKind
from drivers.emu.sanitizers import sanitize
from drivers.emu.sanitizers.clocks import COPY, LANDED
from drivers.emu.simt.addresses import ATOMIC, READ, WRITE, search, translate
from drivers.emu.simt.clusters import OFFSET, absolute, group_of_rank, peer, warp_at
from drivers.emu.simt.findings import emit_report, i32, i64, report
from drivers.emu.simt.state import GROUP, MAP_ENTRY, THREAD, WARP, Record
from drivers.emu.simt.vector import Spilled, Value
from drivers.nv.emu.ptx import tensor_copies, tensor_maps
from drivers.nv.emu.ptx.core import Modifiers, Translator, operands
from drivers.nv.emu.ptx.counted_copies import count_boxes, count_copy
from drivers.nv.emu.ptx.memory import shared_offsets
from drivers.nv.emu.ptx.phases import advanced
from drivers.nv.emu.ptx.statements import Imm, Instruction, Mem
from drivers.nv.layouts.tensor_map import BYTES, RANKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code
    from drivers.nv.emu.ptx.statements import Operand

_COPY = Record(
    "bulk copy",
    target="ptr", source="ptr", barrier="ptr", size="i32", thread="i32", group="i32", site="i32", offset="i32", waits="i32",
    map="ptr", rank="i32", place="i32", phase="i32", to="i64", x0="i32", x1="i32", x2="i32", x3="i32", x4="i32",
)  # fmt: skip
"""An entry of the ring: `barrier` is null if it belongs to a group; `offset` is -1 if shared memory is not written, else
the address of what is written, as every workgroup of the cluster understands it. `thread` is of the cluster. `phase` is that
of the mbarrier when the copy was issued: it must not end before the bytes have arrived. `to` is the target's device address. `waits`
is 1 until the copy was executed, and then 2 while bytes that it wrote to global memory may not be used.

With `rank` a box of the tensor of `map` is copied, from coordinates `x0` on, and shared memory is at `place`.
"""
_ENTRIES, _HEAD = 64, 64
_GROUPS = 4 * 32
AREA = _GROUPS + _HEAD + _ENTRIES * _COPY.size
"""Memory of a warp for bulk copies: its threads' counts of groups, then the ring (the first warp's is used)."""
_NOWHERE = -1
_STEP = 16
"""The alignment of addresses and sizes in bytes."""


def uses(instruction: Instruction) -> bool:
    """Whether an instruction needs the ring."""
    return instruction.opcode == "cp" and "bulk" in instruction.modifiers


def _ring(t: Translator) -> Value:
    first = warp_at(t.c, t.wf.thread, group_of_rank(t.c, t.wf.group, i32(0)), i32(0))
    return t.c.gep(t.area("bulk", first), _GROUPS)


def _entry(c: Code, ring: Value, number: Value) -> Value:
    at = c.op("mul", c.resize(c.op("and", number, _ENTRIES - 1), 64), _COPY.size)
    return c.gep(ring, c.op("add", at, _HEAD))


@contextmanager
def _each_waiting(c: Code, ring: Value) -> Iterator[Value]:
    """Loop over the queued copies, oldest first."""
    at = c.slot("i32")
    c.store(c.load("i32", ring), at)
    test, look, after, end = (c.fresh(name) for name in ("test", "look", "after", "end"))
    c.jump(test)
    c.label(test)
    number = c.load("i32", at)
    c.branch(c.icmp("ne", number, c.load("i32", c.gep(ring, 4))), look, end)
    c.label(look)
    entry = _entry(c, ring, number)
    with c.when(c.icmp("ne", _COPY.load(c, entry, "waits"), 0)):
        yield entry
    idle = c.icmp("eq", _COPY.load(c, entry, "waits"), 0)
    with c.when(c.op("and", idle, c.icmp("eq", c.load("i32", ring), number))):
        c.store(c.op("add", number, 1), ring)
    c.jump(after)
    c.label(after)
    c.store(c.op("add", number, 1), at)
    c.jump(test)
    c.label(end)


def _phase(c: Code, state: Value) -> Value:
    """Return the phase of an mbarrier's state, 0 or 1."""
    return c.resize(c.op("lshr", state, 63), 32)


def _finish(lib: Library) -> str:
    """`ptx.bulk.finish(warp, copy)`: execute a copy and complete it at its mbarrier."""

    def body(c: Code, warp: Value, copy: Value) -> None:
        size, site = _COPY.load(c, copy, "size"), _COPY.load(c, copy, "site")
        _COPY.store(c, copy, "waits", 0)
        to, origin = _COPY.load(c, copy, "target"), _COPY.load(c, copy, "source")
        offset, rank = _COPY.load(c, copy, "offset"), _COPY.load(c, copy, "rank")
        with c.when(c.icmp("eq", rank, 0)):
            c.call("llvm.memmove.p0.p0.i64", "void", to, origin, c.resize(size, 64), Value("i1", "false"))
        with c.when(c.icmp("ne", rank, 0)):
            stores = c.icmp("eq", offset, _NOWHERE)
            place = _COPY.load(c, copy, "place")
            box = c.select(stores, origin, to)
            shared = c.gep(box, c.op("sub", i64(0), c.resize(place, 64)))
            fields = (_COPY.load(c, copy, "map"), rank, _COPY.address(c, copy, "x0"), shared)
            c.call(tensor_copies.move(lib), "void", *fields, place, c.select(stores, to, origin), stores)
        with c.when(c.icmp("ne", offset, _NOWHERE)):
            first = c.const(lib.mask, 1)
            sanitize.copy_landed(lib, c, warp, c.splat(offset, lib.lanes), first, site, size, by_proxy=True)
        barrier = _COPY.load(c, copy, "barrier")
        with c.when(c.icmp("ne", barrier, Value("ptr", "null"))):
            sanitize.publish(lib, c, warp)
            done = c.op("sub", i64(0), c.resize(size, 64))
            before = c.load("i64", barrier)
            state, bad = advanced(c, "tx", before, i64(0), done)
            bad = c.op("or", bad, c.icmp("ne", _phase(c, before), _COPY.load(c, copy, "phase")))
            with c.when(bad):
                emit_report(lib, c, warp, ReportKind.BAD_MBARRIER, site, i32(0))
            c.store(state, barrier)
        c.ret()

    return lib.define("ptx.bulk.finish", "void", {"warp": "ptr", "copy": "ptr"}, body)


def _land(lib: Library) -> str:
    """`ptx.bulk.land(warp, copy)`: what an executed copy wrote to global memory may be used from now on."""

    def body(c: Code, warp: Value, copy: Value) -> None:
        _COPY.store(c, copy, "waits", 0)
        first, site, rank = c.const(lib.mask, 1), _COPY.load(c, copy, "site"), _COPY.load(c, copy, "rank")
        with c.when(c.icmp("eq", rank, 0)):
            at, size = c.splat(_COPY.load(c, copy, "to"), lib.lanes), _COPY.load(c, copy, "size")
            sanitize.watch(lib, c, "global", warp, at, first, site, size, LANDED)
        with c.when(c.icmp("ne", rank, 0)):
            box = _COPY.load(c, copy, "map"), rank, _COPY.address(c, copy, "x0")
            c.call(tensor_copies.watch_rows(lib), "void", warp, *box, first, site, i32(LANDED))
        c.ret()

    return lib.define("ptx.bulk.land", "void", {"warp": "ptr", "copy": "ptr"}, body)


def _complete(lib: Library, c: Code, warp: Value, copy: Value, *, only_read: bool = False) -> None:
    """Append code that executes a copy if it was not, and ends it; with `only_read` its target may not be used yet."""
    if not lib.checks.shadows:
        c.call(_finish(lib), "void", warp, copy)
        return
    with c.when(c.icmp("eq", _COPY.load(c, copy, "waits"), 1)):
        c.call(_finish(lib), "void", warp, copy)
        with c.when(c.icmp("eq", _COPY.load(c, copy, "offset"), _NOWHERE)):
            _COPY.store(c, copy, "waits", 2)
    if not only_read:
        with c.when(c.icmp("ne", _COPY.load(c, copy, "waits"), 0)):
            c.call(_land(lib), "void", warp, copy)


def _settle(lib: Library) -> str:
    """`ptx.bulk.settle(warp, ring, hosts, lanes)`: execute the copies that complete at the mbarriers of some lanes."""

    def body(c: Code, warp: Value, ring: Value, hosts: Value, lanes: Value) -> None:
        with _each_waiting(c, ring) as entry:
            barrier = c.let("i64", f"ptrtoint {_COPY.load(c, entry, 'barrier')} to i64")
            same = c.mask_bits(c.icmp("eq", hosts, c.splat(barrier, lib.lanes)))
            with c.when(c.icmp("ne", c.op("and", same, lanes), 0)):
                c.call(_finish(lib), "void", warp, entry)
        c.ret()

    parameters = {"warp": "ptr", "ring": "ptr", "hosts": lib.v("i64"), "lanes": lib.mask}
    return lib.define("ptx.bulk.settle", "void", parameters, body)


def settle(t: Translator, hosts: Value, lanes: Value) -> None:
    """Execute the copies that complete at the mbarriers, given by host addresses, that some lanes wait for."""
    if t.has_area("bulk"):
        t.c.call(_settle(t.wf.lib), "void", t.wf.warp, _ring(t), hosts, lanes)


def _wait(lib: Library, *, only_read: bool) -> str:
    """`ptx.bulk.wait(warp, ring, groups, keep, lanes)`: execute the copies of all groups except the newest `keep`.

    With `only_read` they have read their sources; what they write may not be used yet.
    """

    def body(c: Code, warp: Value, ring: Value, groups: Value, keep: Value, lanes: Value) -> None:
        before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
        with _each_waiting(c, ring) as entry:
            lane = c.op("sub", _COPY.load(c, entry, "thread"), before)
            none = c.icmp("eq", _COPY.load(c, entry, "barrier"), Value("ptr", "null"))
            with c.when(c.op("and", none, c.icmp("ult", lane, lib.lanes))):
                count = c.load("i32", c.gep(groups, c.op("mul", c.resize(lane, 64), 4)))
                old = c.icmp("slt", _COPY.load(c, entry, "group"), c.op("sub", count, keep))
                here = c.op("and", c.op("lshr", lanes, c.resize(lane, lib.lanes)), 1)
                with c.when(c.op("and", old, c.icmp("ne", here, 0))):
                    _complete(lib, c, warp, entry, only_read=only_read)
        c.ret()

    parameters = {"warp": "ptr", "ring": "ptr", "groups": "ptr", "keep": "i32", "lanes": lib.mask}
    name = "ptx.bulk.wait.read" if only_read else "ptx.bulk.wait"
    return lib.define(name, "void", parameters, body)


def place(lib: Library, space: str) -> str:
    """`ptx.bulk.at.SPACE(warp, address, size, site, lane, access) -> host`: null where the piece is not good, and reported."""

    def body(
        c: Code, warp: Value, address: Value, size: Value, site: Value, lane: Value, access: Value
    ) -> None:
        thread, wide = WARP.load(c, warp, "thread"), c.resize(size, 64)
        outside: Value
        if space == "shared":
            allowed, outside = Value("i1", "true"), i32(ReportKind.SHARED_OUT_OF_BOUNDS)
            room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
            inside = c.icmp("ule", c.op("add", address, wide), room)
            host = c.gep(WARP.load(c, warp, "shared"), address)
        elif space == "cluster":
            allowed, group = Value("i1", "true"), WARP.load(c, warp, "group")
            one = c.call(peer(lib), "ptr", group, c.resize(address, 32))
            there = c.icmp("ne", one, Value("ptr", "null"))
            one, offset = c.select(there, one, group), c.op("and", address, OFFSET)
            room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
            inside = c.op("and", there, c.icmp("ule", c.op("add", offset, wide), room))
            host = c.gep(GROUP.load(c, one, "shared"), offset)
            gone = c.icmp("eq", GROUP.load(c, one, "live_warps"), 0)
            outside = c.select(
                c.op("and", inside, gone), i32(ReportKind.EXITED_PEER), i32(ReportKind.SHARED_OUT_OF_BOUNDS)
            )
            inside = c.op("and", inside, c.not_(gone))
        else:
            outside = i32(ReportKind.OUT_OF_BOUNDS)
            entry = c.call(search(lib), "ptr", thread, address)
            offset, length = (
                c.op("sub", address, MAP_ENTRY.load(c, entry, "start")),
                MAP_ENTRY.load(c, entry, "size"),
            )
            inside = c.op(
                "and", c.icmp("ule", offset, length), c.icmp("ule", wide, c.op("sub", length, offset))
            )
            inside = c.op("and", inside, c.icmp("ne", THREAD.load(c, thread, "map_count"), 0))
            want = c.resize(access, 64)
            allowed = c.icmp("eq", c.op("and", MAP_ENTRY.load(c, entry, "flags"), want), want)
            at = c.op("add", address, MAP_ENTRY.load(c, entry, "delta"))
            host = c.let("ptr", f"inttoptr {at} to ptr")
        aligned = c.icmp("eq", c.op("and", c.op("or", address, wide), _STEP - 1), 0)
        kind = c.select(inside, i32(ReportKind.FORBIDDEN), outside)
        kind = c.select(aligned, kind, i32(ReportKind.MISALIGNED))
        good = c.op("and", c.op("and", aligned, inside), allowed)
        with c.otherwise(good):
            c.call(report(lib), "void", warp, kind, site, lane, address, size, c.resize(access, 64))
        c.ret(c.select(good, host, Value("ptr", "null")))

    parameters = {
        "warp": "ptr",
        "address": "i64",
        "size": "i32",
        "site": "i32",
        "lane": "i32",
        "access": "i32",
    }
    return lib.define(f"ptx.bulk.at.{space}", "ptr", parameters, body)


def _issue(lib: Library, target: str, source: str) -> str:
    """`ptx.bulk.SOURCE.TARGET(warp, ring, groups, targets, sources, sizes, barriers, lanes, site)`.

    Queue copies. Addresses are 64 bits wide in every space; a barrier is the host address of an mbarrier, or 0.
    """

    def body(
        c: Code, warp: Value, ring: Value, groups: Value, targets: Value, sources: Value, sizes: Value, barriers: Value,
        lanes: Value, site: Value,
    ) -> None:  # fmt: skip
        given = [Spilled(c, v) for v in (targets, sources, sizes, barriers)]
        before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
        with c.each_lane(lanes) as lane:
            to, origin, size, barrier = (v.get(lane) for v in given)
            there = c.call(place(lib, target), "ptr", warp, to, size, site, lane, i32(WRITE))
            here = c.call(place(lib, source), "ptr", warp, origin, size, site, lane, i32(READ))
            good = c.op(
                "and", c.icmp("ne", there, Value("ptr", "null")), c.icmp("ne", here, Value("ptr", "null"))
            )
            with c.when(good):
                own = c.op("shl", c.const(lib.mask, 1), c.resize(lane, lib.lanes))
                _watch(lib, c, source, warp, origin, own, site, size, READ)
                _watch(lib, c, target, warp, to, own, site, size, COPY if target == "global" else WRITE)
                count = c.load("i32", c.gep(groups, c.op("mul", c.resize(lane, 64), 4)))
                fields = {
                    "target": there, "source": here, "barrier": c.let("ptr", f"inttoptr {barrier} to ptr"), "size": size,
                    "thread": c.op("add", before, lane), "group": count, "site": site,
                    "offset": i32(_NOWHERE) if target == "global" else absolute(c, WARP.load(c, warp, "group"), c.resize(to, 32)),
                    "waits": i32(1), "rank": i32(0), "to": to,
                }  # fmt: skip
                _push(lib, c, warp, ring, fields)
        c.ret()

    wide = lib.v("i64")
    parameters = {"warp": "ptr", "ring": "ptr", "groups": "ptr", "targets": wide, "sources": wide}
    parameters |= {"sizes": lib.v("i32"), "barriers": wide, "lanes": lib.mask, "site": "i32"}
    return lib.define(f"ptx.bulk.{source}.{target}", "void", parameters, body)


def _watch(
    lib: Library,
    c: Code,
    space: str,
    warp: Value,
    address: Value,
    lane: Value,
    site: Value,
    size: Value,
    access: int,
) -> None:
    """Report one lane's part to the sanitizers."""
    if space == "global":
        sanitize.watch(lib, c, space, warp, c.splat(address, lib.lanes), lane, site, size, access)
        return
    offsets = c.splat(c.resize(address, 32), lib.lanes)
    if access == READ:
        assert space == "shared"
        sanitize.proxy_reads(lib, c, warp, offsets, lane, site, size)
    else:
        sanitize.copy_begins(lib, c, warp, offsets, lane, site, size)


def _push(lib: Library, c: Code, warp: Value, ring: Value, fields: dict[str, Value]) -> None:
    oldest, newest = c.load("i32", ring), c.load("i32", c.gep(ring, 4))
    with c.when(c.icmp("eq", c.op("sub", newest, oldest), _ENTRIES)):
        first = _entry(c, ring, oldest)
        with c.when(c.icmp("ne", _COPY.load(c, first, "waits"), 0)):
            _complete(lib, c, warp, first)
        c.store(c.op("add", oldest, 1), ring)
    entry = _entry(c, ring, newest)
    for name, value in fields.items():
        _COPY.store(c, entry, name, value)
    with c.when(c.icmp("ne", fields["barrier"], Value("ptr", "null"))):
        _COPY.store(c, entry, "phase", _phase(c, c.load("i64", fields["barrier"])))
    c.store(c.op("add", newest, 1), c.gep(ring, 4))


def _issue_box(lib: Library, *, stores: bool) -> str:
    """`ptx.bulk.box.HOW(warp, ring, groups, maps, rank, coordinates, offsets, barriers, lanes, site)`.

    Queue copies of boxes; `coordinates` points to vectors of all lanes, one for each dimension.
    """

    def body(
        c: Code, warp: Value, ring: Value, groups: Value, maps: Value, rank: Value, coordinates: Value, offsets: Value,
        barriers: Value, lanes: Value, site: Value,
    ) -> None:  # fmt: skip
        given = [Spilled(c, v) for v in (maps, offsets, barriers)]
        before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
        own_coordinates = c.slot("[5 x i32]")
        with c.each_lane(lanes) as lane:
            map_va, offset, barrier = (v.get(lane) for v in given)
            tensor_copies.take_coordinates(lib, c, coordinates, lane, own_coordinates)
            map_at = c.call(place(lib, "global"), "ptr", warp, map_va, i32(BYTES), site, lane, i32(READ))
            with c.when(c.icmp("ne", map_at, Value("ptr", "null"))):
                access = i32(WRITE if stores else READ)
                tensor = c.call(
                    tensor_copies.place(lib), "i64", warp, map_at, rank, own_coordinates, site, lane, access
                )
                size = c.call(tensor_copies.box_bytes(lib), "i32", map_at, rank)
                wide, shared_access = c.resize(offset, 64), i32(READ if stores else WRITE)
                space = "shared" if stores else "cluster"
                here = c.call(place(lib, space), "ptr", warp, wide, size, site, lane, shared_access)
                good = c.op("and", c.icmp("ne", tensor, 0), c.icmp("ne", here, Value("ptr", "null")))
                straight = tensor_copies.aligned(c, offset)
                with c.when(c.op("and", good, c.not_(straight))):
                    emit_report(lib, c, warp, ReportKind.MISALIGNED, site, lane, address=wide, size=size)
                with c.when(c.op("and", good, straight)):
                    own = c.op("shl", c.const(lib.mask, 1), c.resize(lane, lib.lanes))
                    if lib.checks.any:
                        c.call(
                            tensor_copies.watch_rows(lib), "void", warp, map_at, rank, own_coordinates, own, site,
                            i32(COPY if stores else READ),
                        )
                    _watch(lib, c, space, warp, wide, own, site, size, READ if stores else WRITE)
                    count = c.load("i32", c.gep(groups, c.op("mul", c.resize(lane, 64), 4)))
                    base = c.let("ptr", f"inttoptr {tensor} to ptr")
                    fields = {
                        "target": base if stores else here, "source": here if stores else base,
                        "barrier": c.let("ptr", f"inttoptr {barrier} to ptr"), "size": size,
                        "thread": c.op("add", before, lane), "group": count, "site": site,
                        "offset": i32(_NOWHERE) if stores else absolute(c, WARP.load(c, warp, "group"), offset),
                        "waits": i32(1), "map": map_at, "rank": rank, "place": c.op("and", offset, OFFSET),
                    } | {f"x{n}": c.load("i32", c.gep(own_coordinates, 4 * n)) for n in range(RANKS)}  # fmt: skip
                    _push(lib, c, warp, ring, fields)
        c.ret()

    parameters = {"warp": "ptr", "ring": "ptr", "groups": "ptr", "maps": lib.v("i64"), "rank": "i32", "coordinates": "ptr"}
    parameters |= {"offsets": lib.v("i32"), "barriers": lib.v("i64"), "lanes": lib.mask, "site": "i32"}
    return lib.define(f"ptx.bulk.box.{'store' if stores else 'load'}", "void", parameters, body)


def bulk(t: Translator, i: Instruction, m: Modifiers) -> None:
    """cp.async.bulk, with its groups and waits; `m` has consumed these words."""
    groups = t.area("bulk")
    if m.flag("commit_group"):
        operands(t, i, 0)
        counts = t.c.load(t.v("i32"), groups, align=4)
        t.c.store(t.c.op("add", counts, t.c.resize(t.wf.active_lanes, 32)), groups, align=4)
    elif m.flag("wait_group"):
        only_read = m.flag("read")
        (count,) = operands(t, i, 1)
        if not isinstance(count, Imm):
            raise t.error("the number of groups must be a constant")
        t.c.call(_wait(t.wf.lib, only_read=only_read), "void", t.wf.warp, _ring(t), groups, i32(count.value), t.wf.active)
        sanitize.proxy_waited(t.wf)
    elif m.flag("prefetch"):
        _prefetch(t, i, m)
    elif m.rest[:1] == ["tensor"]:
        _tensor(t, i, m, groups)
    else:
        _copy(t, i, m, groups)


def _prefetch(t: Translator, i: Instruction, m: Modifiers) -> None:
    """Check a prefetch: of bytes, or of a box of a tensor."""
    of_tensor = m.flag("tensor")
    rank = rank_of(t, m) if of_tensor else 0
    m.need("L2")
    m.need("global")
    fixed = 1 if of_tensor else 2
    address, *rest = operands(t, i, fixed + 1 if m.flag("L2::cache_hint") else fixed)
    if of_tensor:
        tile_only(t, m)
        coordinates_of(t, address, rank)
    else:
        t.address(address, 64)
    for operand in rest:
        t.bits(operand, 64 if operand is not rest[0] or of_tensor else 32)


def rank_of(t: Translator, m: Modifiers) -> int:
    """Consume the number of dimensions."""
    word = m.need("1d", "2d", "3d", "4d", "5d")
    if t.arch < tensor_maps.ARCH:
        raise t.error(f"needs sm_{tensor_maps.ARCH}")
    return int(word[0])


REFUSED = ("multicast::cluster", "cp_mask", "ignore_oob", "cta_group::1", "cta_group::2")


def tile_only(t: Translator, m: Modifiers) -> None:
    """Consume the mode of a load or store: whole boxes only."""
    m.flag("tile")
    for word in m.rest:
        if word.startswith(("im2col", "tile::")) or word in REFUSED:
            raise t.error(f".{word} of copies of tensors is not supported")


def coordinates_of(t: Translator, address: Operand, rank: int) -> tuple[Value, Value]:
    """Return the tensor maps' addresses, and the address of the vectors of coordinates."""
    if not isinstance(address, Mem) or len(address.coordinates) != rank:
        raise t.error(f"needs an address with {rank} coordinates")
    found = t.scratch("coordinates", f"[{RANKS} x {t.v('i32')}]")
    for n in range(RANKS):
        value = t.bits(address.coordinates[n], 32) if n < rank else t.c.const(t.v("i32"), 0)
        t.c.store(value, t.c.gep(found, 4 * t.wf.lib.lanes * n))
    return t.address(address, 64), found


def _tensor(t: Translator, i: Instruction, m: Modifiers, groups: Value) -> None:
    """cp.async.bulk.tensor: a box of a tensor, to or from shared memory."""
    m.need("tensor")
    rank = rank_of(t, m)
    spaces = [SPACES[m.need(*SPACES)] for _ in ("target", "source")]
    if spaces not in (["global", "shared"], ["shared", "global"], ["cluster", "global"]):
        raise t.error("copies between global and shared memory")
    tile_only(t, m)
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    stores = spaces[0] == "global"
    m.need("bulk_group" if stores else "mbarrier::complete_tx::bytes")
    barrier = None if stores else items.pop()
    if len(items) != 2:
        raise t.error("takes a place in shared memory and a tensor map with coordinates")
    tensor, tile = items if stores else items[::-1]
    maps, coordinates = coordinates_of(t, tensor, rank)
    hosts = t.c.const(t.v("i64"), 0) if barrier is None else host_of_barrier(t, barrier)
    site = i32(t.site())
    count_tiles(t, maps, coordinates, i32(rank), "store" if stores else "load", site)
    arguments = (maps, i32(rank), coordinates, t.address(tile, 32), hosts, t.wf.active, site)
    t.c.call(_issue_box(t.wf.lib, stores=stores), "void", t.wf.warp, _ring(t), groups, *arguments)


def count_tiles(
    t: Translator, maps: Value, coordinates: Value, rank: Value, what: str, site: Value
) -> None:
    """Count copies of boxes, if the kernel counts; `what` is load, store or atomic."""

    def host(address: Value, lane: Value) -> Value:
        name = place(t.wf.lib, "global")
        return t.c.call(name, "ptr", t.wf.warp, address, i32(BYTES), site, lane, i32(READ))

    count_boxes(t, maps, coordinates, rank, what, host)


def _copy(t: Translator, i: Instruction, m: Modifiers, groups: Value) -> None:
    for word in REFUSED:
        if word in m.rest:
            raise t.error(f".{word} of bulk copies is not supported")
    spaces = [SPACES[m.need(*SPACES)] for _ in ("target", "source")]
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    barrier: Operand | None = None
    if spaces[0] == "global":
        m.need("bulk_group")
    else:
        m.need("mbarrier::complete_tx::bytes")
        barrier = items.pop()
    if spaces[0] == spaces[1] or spaces[1] == "cluster" or len(items) != 3:
        raise t.error("copies between global and shared memory, of an address to an address, and a size")
    c = t.c
    where = [wide_address(t, space, item) for space, item in zip(spaces, items, strict=False)]
    hosts = c.const(t.v("i64"), 0) if barrier is None else host_of_barrier(t, barrier)
    if "global" in spaces:
        stores = spaces[0] == "global"
        count_copy(t, where[0 if stores else 1], t.bits(items[2], 32), "store" if stores else "load")
    arguments = (*where, t.bits(items[2], 32), hosts, t.wf.active, i32(t.site()))
    c.call(_issue(t.wf.lib, *spaces), "void", t.wf.warp, _ring(t), groups, *arguments)


SPACES = {"global": "global", "shared::cta": "shared", "shared::cluster": "cluster"}
"""State space of an operand -> where it is."""


def wide_address(t: Translator, space: str, address: Operand) -> Value:
    """Return an address or an offset in shared memory as 64 bits."""
    return t.address(address, 64) if space == "global" else t.c.resize(t.address(address, 32), 64)


def host_of_barrier(t: Translator, address: Operand) -> Value:
    """Return the host addresses of the mbarriers."""
    c, lib, warp, lanes = t.c, t.wf.lib, t.wf.warp, t.wf.active
    offsets, site = shared_offsets(t, "cluster", address), i32(t.site())
    return c.call(translate(lib, "cluster", 8), t.v("i64"), warp, offsets, lanes, site, i32(ATOMIC))
