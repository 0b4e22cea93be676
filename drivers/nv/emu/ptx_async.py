"""Asynchronous copies to shared memory (cp.async) and mbarriers. Source: PTX ISA 9.7.9.25, 9.7.13.15.

A copy is not made when it is issued but when somebody waits for it, or when 32 newer ones are waiting: a
kernel that forgets to wait reads what was there before. An mbarrier is our own layout of its 64 opaque
bits: phase, expected and pending arrivals, pending bytes.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu import sanitize
from drivers.emu.addresses import ATOMIC, READ, WRITE, translate
from drivers.emu.findings import emit_report, i32, i64
from drivers.emu.report import ReportKind
from drivers.emu.vector import Spilled, Value
from drivers.nv.emu.ptx_core import Modifiers, Translator, meaning, operands
from drivers.nv.emu.ptx_memory import address_bits, take_hints, take_space
from drivers.nv.emu.ptx_statements import Imm, Instruction, Mem, Operand, Special

if TYPE_CHECKING:
    from drivers.emu.library import Library
    from drivers.emu.vector import Code

_ENTRIES = 32
_HEAD = 64
_TARGETS, _SOURCES, _TAKEN, _OFFSETS = 64, 64 + 8 * 32, 64 + 16 * 32, 64 + 20 * 32
_ENTRY = _OFFSETS + 4 * 32
"""Lanes, size, group and site of a copy; then by lane target, source, bytes to take, offset of the target."""
QUEUE_BYTES = _HEAD + _ENTRIES * _ENTRY
"""Memory of a warp for copies in flight: oldest, newest and group counters, then a ring of entries."""


def uses_copies(opcode: str) -> bool:
    """Whether an instruction needs the queue of copies."""
    return opcode == "cp"


def _entry(c: Code, queue: Value, number: Value) -> Value:
    at = c.op("mul", c.resize(c.op("and", number, _ENTRIES - 1), 64), _ENTRY)
    return c.gep(queue, c.op("add", at, _HEAD))


def _finish(lib: Library) -> str:
    """`ptx.copy.finish(warp, queue, number, lanes)`: make the copies of an entry for some lanes."""

    def body(c: Code, warp: Value, queue: Value, number: Value, lanes: Value) -> None:
        entry = _entry(c, queue, number)
        waiting = c.load(lib.mask, entry)
        c.store(c.op("and", waiting, c.not_(lanes)), entry)
        size = c.load("i32", c.gep(entry, 8))
        with c.each_lane(c.op("and", waiting, lanes)) as lane:
            wide = c.op("mul", c.resize(lane, 64), 8)
            target = c.load("i64", c.gep(c.gep(entry, _TARGETS), wide))
            source = c.load("i64", c.gep(c.gep(entry, _SOURCES), wide))
            taken = c.load("i32", c.gep(c.gep(entry, _TAKEN), c.op("mul", c.resize(lane, 64), 4)))
            to = c.let("ptr", f"inttoptr {target} to ptr")
            c.call(
                "llvm.memset.p0.i64", "void", to, Value("i8", "0"), c.resize(size, 64), Value("i1", "false")
            )
            origin = c.let("ptr", f"inttoptr {source} to ptr")
            c.call("llvm.memmove.p0.p0.i64", "void", to, origin, c.resize(taken, 64), Value("i1", "false"))
        offsets = c.load(lib.v("i32"), c.gep(entry, _OFFSETS), align=4)
        site = c.load("i32", c.gep(entry, 16))
        sanitize.copy_landed(lib, c, warp, offsets, c.op("and", waiting, lanes), site, size)
        c.ret()

    parameters = {"warp": "ptr", "queue": "ptr", "number": "i32", "lanes": lib.mask}
    return lib.define("ptx.copy.finish", "void", parameters, body)


def _push(lib: Library) -> str:
    """`ptx.copy.push(warp, queue, targets, sources, taken, offsets, size, site, lanes)`: remember a copy.

    Without room for it the oldest is made first.
    """

    def body(
        c: Code,
        warp: Value,
        queue: Value,
        targets: Value,
        sources: Value,
        taken: Value,
        offsets: Value,
        size: Value,
        site: Value,
        lanes: Value,
    ) -> None:
        oldest, newest = c.load("i32", queue), c.load("i32", c.gep(queue, 4))
        with c.when(c.icmp("eq", c.op("sub", newest, oldest), _ENTRIES)):
            c.call(_finish(lib), "void", warp, queue, oldest, c.const(lib.mask, -1))
            c.store(c.op("add", oldest, 1), queue)
        entry = _entry(c, queue, newest)
        c.store(lanes, entry)
        c.store(size, c.gep(entry, 8))
        c.store(c.load("i32", c.gep(queue, 8)), c.gep(entry, 12))
        c.store(site, c.gep(entry, 16))
        fields = ((targets, _TARGETS), (sources, _SOURCES), (taken, _TAKEN), (offsets, _OFFSETS))
        for value, at in fields:
            c.store(value, c.gep(entry, at), align=4)
        c.store(c.op("add", newest, 1), c.gep(queue, 4))
        c.ret()

    parameters = {
        "warp": "ptr",
        "queue": "ptr",
        "targets": lib.v("i64"),
        "sources": lib.v("i64"),
        "taken": lib.v("i32"),
        "offsets": lib.v("i32"),
        "size": "i32",
        "site": "i32",
        "lanes": lib.mask,
    }
    return lib.define("ptx.copy.push", "void", parameters, body)


def _wait(lib: Library) -> str:
    """`ptx.copy.wait(warp, queue, keep, lanes)`: make the copies of all groups but the newest `keep`.

    -1 makes uncommitted ones too.
    """

    def body(c: Code, warp: Value, queue: Value, keep: Value, lanes: Value) -> None:
        oldest, newest, group = (
            c.load("i32", queue),
            c.load("i32", c.gep(queue, 4)),
            c.load("i32", c.gep(queue, 8)),
        )
        at = c.slot("i32")
        c.store(oldest, at)
        limit = c.op("sub", group, keep)
        c.jump("test")
        c.label("test")
        number = c.load("i32", at)
        c.branch(c.icmp("slt", number, newest), "look", "end")
        c.label("look")
        belongs = c.load("i32", c.gep(_entry(c, queue, number), 12))
        c.branch(c.icmp("slt", belongs, limit), "make", "end")
        c.label("make")
        c.call(_finish(lib), "void", warp, queue, number, lanes)
        left = c.load(lib.mask, _entry(c, queue, number))
        head = c.load("i32", queue)
        with c.when(c.op("and", c.icmp("eq", left, 0), c.icmp("eq", head, number))):
            c.store(c.op("add", number, 1), queue)
        c.store(c.op("add", number, 1), at)
        c.jump("test")
        c.label("end")
        c.ret()

    parameters = {"warp": "ptr", "queue": "ptr", "keep": "i32", "lanes": lib.mask}
    return lib.define("ptx.copy.wait", "void", parameters, body)


@meaning("cp")
def _cp(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.need("async")
    queue = t.wf.reserved()
    if m.flag("commit_group"):
        at = t.c.gep(queue, 8)
        moves = t.c.resize(t.c.icmp("ne", t.wf.active, 0), 32)
        t.c.store(t.c.op("add", t.c.load("i32", at), moves), at)
    elif m.flag("wait_group"):
        (count,) = operands(t, i, 1)
        if not isinstance(count, Imm):
            raise t.error("the number of groups must be a constant")
        t.c.call(_wait(t.wf.lib), "void", t.wf.warp, queue, i32(count.value), t.wf.active)
    elif m.flag("wait_all"):
        t.c.call(_wait(t.wf.lib), "void", t.wf.warp, queue, i32(-1), t.wf.active)
    elif m.flag("mbarrier"):
        m.need("arrive")
        noinc = m.flag("noinc")
        take_space(t, m, i.operands[0])
        m.need("b64")
        if not noinc:
            raise t.error("cp.async.mbarrier.arrive without .noinc is not supported")
        t.c.call(_wait(t.wf.lib), "void", t.wf.warp, queue, i32(-1), t.wf.active)
        sanitize.released(t.wf, wide=False)
        _call_barrier(t, "arrive", i.operands[0], i64(1))
    else:
        _copy(t, i, m, queue)


def _copy(t: Translator, i: Instruction, m: Modifiers, queue: Value) -> None:
    m.need("ca", "cg")
    if m.one_of("bulk"):
        raise t.error("bulk copies are not supported")
    target, source, size, *more = i.operands[:-1] if m.flag("L2::cache_hint") else i.operands
    if (m.need("shared", "shared::cta"), m.need("global")) and not isinstance(size, Imm):
        raise t.error("the size must be a constant")
    take_hints(m)
    assert isinstance(size, Imm)
    if size.value not in (4, 8, 16) or len(more) > 1:
        raise t.error("copies 4, 8 or 16 bytes")
    c, lib, site = t.c, t.wf.lib, i32(t.site())
    taken = t.bits(more[0], 32) if more else c.const(t.v("i32"), size.value)
    taken = c.intrinsic("umin", taken, c.const(taken.type, size.value))
    reading = c.op("and", t.wf.active, c.mask_bits(c.icmp("ne", taken, 0)))
    offsets, sources = t.address(target, 32), t.address(source, 64)
    to = c.call(
        translate(lib, "shared", size.value),
        t.v("i64"),
        t.wf.warp,
        offsets,
        t.wf.active,
        site,
        i32(WRITE),
    )
    origin = c.call(
        translate(lib, "global", size.value),
        t.v("i64"),
        t.wf.warp,
        sources,
        reading,
        site,
        i32(READ),
    )
    sanitize.watch(lib, c, "global", t.wf.warp, sources, reading, site, size.value, READ)
    sanitize.copy_begins(lib, c, t.wf.warp, offsets, t.wf.active, site, size.value)
    warp, lanes = t.wf.warp, t.wf.active
    c.call(_push(lib), "void", warp, queue, to, origin, taken, offsets, i32(size.value), site, lanes)


# ---- mbarriers: bit 63 phase, 62:43 expected arrivals, 42:23 pending arrivals, 22:0 pending bytes (biased by 2^22)

_BIAS = 1 << 22
_COUNT = (1 << 20) - 1


def _barrier_step(lib: Library, action: str) -> str:
    """`ptx.mbarrier.ACTION(warp, hosts, operands, lanes, site) -> states before`: lane by lane."""

    def body(c: Code, warp: Value, hosts: Value, values: Value, lanes: Value, site: Value) -> None:
        where, given, before = Spilled(c, hosts), Spilled(c, values), Spilled(c, lib.v("i64"))
        with c.each_lane(lanes) as lane:
            pointer = c.let("ptr", f"inttoptr {where.get(lane)} to ptr")
            value = given.get(lane)
            old = c.load("i64", pointer)
            before.set(lane, old)
            if action == "init":
                count = c.op("and", value, _COUNT)
                state = c.op("or", c.op("shl", count, 43), c.op("or", c.op("shl", count, 23), _BIAS))
                c.store(state, pointer)
            elif action == "inval":
                c.store(i64(0), pointer)
            elif action != "look":
                _advance(lib, c, action, warp, pointer, old, value, lane, site)
        c.ret(before.whole())

    parameters = {
        "warp": "ptr",
        "hosts": lib.v("i64"),
        "values": lib.v("i64"),
        "lanes": lib.mask,
        "site": "i32",
    }
    return lib.define(f"ptx.mbarrier.{action}", lib.v("i64"), parameters, body)


def _advance(
    lib: Library,
    c: Code,
    action: str,
    warp: Value,
    pointer: Value,
    old: Value,
    value: Value,
    lane: Value,
    site: Value,
) -> None:
    expected = c.op("and", c.op("lshr", old, 43), _COUNT)
    pending, tx = c.op("and", c.op("lshr", old, 23), _COUNT), c.op("and", old, 2 * _BIAS - 1)
    if action == "arrive":
        bad = c.op("or", c.icmp("ult", pending, value), c.icmp("eq", expected, 0))
        with c.when(bad):
            emit_report(lib, c, warp, ReportKind.BAD_MBARRIER, site, lane)
        pending = c.op("and", c.op("sub", pending, value), _COUNT)
    elif action == "expect":
        tx = c.op("add", tx, value)
    elif action == "complete":
        tx = c.op("sub", tx, value)
    done = c.op("and", c.icmp("eq", pending, 0), c.icmp("eq", tx, _BIAS))
    phase = c.op("xor", c.op("lshr", old, 63), c.resize(done, 64))
    pending = c.select(done, expected, pending)
    state = c.op(
        "or",
        c.op("shl", phase, 63),
        c.op("or", c.op("shl", expected, 43), c.op("or", c.op("shl", pending, 23), tx)),
    )
    c.store(state, pointer)


def _call_barrier(t: Translator, action: str, address: Operand, value: Value) -> Value:
    """Do one step of the mbarrier at an address in every active lane; `value` may be a scalar."""
    space = "shared"
    c, lib, site = t.c, t.wf.lib, i32(t.site())
    offsets = t.address(address, address_bits(space))
    hosts = c.call(translate(lib, space, 8), t.v("i64"), t.wf.warp, offsets, t.wf.active, site, i32(ATOMIC))
    values = value if value.type != "i64" else t.wf.uniform(value)
    kind = WRITE if action in {"init", "inval"} else ATOMIC
    sanitize.watch(lib, c, space, t.wf.warp, offsets, t.wf.active, site, 8, kind)
    return c.call(_barrier_step(lib, action), t.v("i64"), t.wf.warp, hosts, values, t.wf.active, site)


@meaning("mbarrier")
def _mbarrier(t: Translator, i: Instruction, m: Modifiers) -> None:
    what = m.need(
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "expect_tx",
        "complete_tx",
        "test_wait",
        "try_wait",
        "pending_count",
    )
    expects = what == "arrive" and m.flag("expect_tx")
    parity = m.flag("parity")
    ordered = m.one_of("relaxed", "acquire", "release") != "relaxed"
    m.one_of("cta", "cluster")
    for word in ("shared", "shared::cta"):
        m.flag(word)
    m.need("b64")
    c = t.c
    items = list(i.operands)
    if what in ("init", "expect_tx", "complete_tx"):
        address, count = items
        action = {"init": "init", "expect_tx": "expect", "complete_tx": "complete"}[what]
        _call_barrier(t, action, address, c.resize(t.bits(count, 32), 64))
    elif what == "inval":
        _call_barrier(t, "inval", items[0], i64(0))
    elif what == "arrive":
        if ordered:
            sanitize.released(t.wf, wide=False)
        target = items.pop(0) if not isinstance(items[0], Mem) else Special("_")
        if expects:
            before = _call_barrier(t, "expect", items[0], c.resize(t.bits(items[1], 32), 64))
            _call_barrier(t, "arrive", items[0], i64(1))
        else:
            arrivals = c.resize(t.bits(items[1], 32), 64) if len(items) > 1 else i64(1)
            before = _call_barrier(t, "arrive", items[0], arrivals)
        t.write(target, before)
    elif what in ("test_wait", "try_wait"):
        target, address, state = items[:3]
        now = c.op("lshr", _call_barrier(t, "look", address, i64(0)), 63)
        if ordered:
            sanitize.acquired(t.wf, wide=False)
        then = (
            c.op("and", c.resize(t.bits(state, 32), 64), 1) if parity else c.op("lshr", t.bits(state, 64), 63)
        )
        t.write(target, c.icmp("ne", now, then))
        c.emit("fence seq_cst")
    elif what == "pending_count":
        target, state = items
        t.write(target, c.resize(c.op("and", c.op("lshr", t.bits(state, 64), 23), _COUNT), 32))
    else:
        raise t.error(f"mbarrier.{what} is not supported")
