"""Barriers in shared memory (mbarrier). Source: PTX ISA 9.7.13.15.

An operation that names no scope orders the memory accesses of the whole cluster. PTX requires less, but kernels rely on
it when they arrive at mbarriers of other workgroups.

Not here: the state of an mbarrier (`phases`), copies that complete at one (`bulk_ring`), barriers of a workgroup
(`translate`). Next: `phases`.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import ATOMIC, WRITE, translate
from emulator.ir.findings import i32
from emulator.ir.state import WARP
from emulator.ir.vector import IrValue
from emulator.nv.ptx import bulk_ring
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.memory import scope_of, shared_offsets, take_space
from emulator.nv.ptx.phases import COUNT, awaited, step
from emulator.nv.ptx.statements import Operand, PtxInstruction, Special
from emulator.sanitizers import sanitize

if TYPE_CHECKING:
    from emulator.sanitizers.sanitize import OrderScope


def call(
    t: PtxTranslator,
    action: str,
    space: str,
    offsets: IrValue,
    *,
    count: IrValue | None = None,
    size: IrValue | None = None,
) -> IrValue:
    """Execute one step of the mbarrier of each active lane; return the states before it, i64.

    `action` is one of `phases.step`; it says what `count` and `size` mean (absent: 0). `space` is "shared" or "cluster",
    and `offsets` are addresses in it: an invalid one is reported, and the sanitizers see the access.
    """
    c, lib, warp, lanes = t.c, t.wf.lib, t.wf.warp, t.wf.active
    site, none = i32(t.site()), c.const(t.v("i64"), 0)
    hosts = c.call(translate(lib, space, 8), t.v("i64"), warp, offsets, lanes, site, i32(ATOMIC))
    kind = WRITE if action in {"init", "inval"} else ATOMIC
    sanitize.watch(lib, c, space, warp, offsets, lanes, site, 8, kind)
    return c.call(step(lib, action), t.v("i64"), warp, hosts, count or none, size or none, lanes, site)


def _order(m: Modifiers, word: str) -> OrderScope | None:
    """Consume an order (`word`, the default, or .relaxed) and its scope; return the scope, or None if relaxed."""
    ordered = m.one_of(word, "relaxed") != "relaxed"
    scope = scope_of(m.one_of("cta", "cluster", default="cluster"))
    return scope if ordered else None


def _count(t: PtxTranslator, operand: Operand) -> IrValue:
    """Return a 32-bit operand as i64."""
    return t.c.resize(t.bits(operand, 32), 64)


def _take_address(
    t: PtxTranslator, m: Modifiers, address: Operand, *, remote: bool = False
) -> tuple[str, IrValue]:
    """Consume the state space and the type; return the engine's space and the addresses of the mbarriers in it.

    The space is "shared", or with `remote` perhaps "cluster": then mbarriers of other workgroups are allowed, too. Raises
    `PtxError` for other spaces.
    """
    space = take_space(t, m, address)
    m.need("b64")
    if space == "cluster" and not remote:
        raise t.error("works on the workgroup's own mbarriers")
    return "shared" if space == "shared" or not remote else "cluster", shared_offsets(t, space, address)


@meaning("mbarrier")
def _mbarrier(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    what = m.need(*_MEANINGS)
    _MEANINGS[what](t, i, m)


def _init(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    address, count = operands(t, i, 2)
    call(t, "init", *_take_address(t, m, address), count=_count(t, count))


def _inval(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    (address,) = operands(t, i, 1)
    call(t, "inval", *_take_address(t, m, address))


def _bytes(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate expect_tx and complete_tx, which order no memory accesses."""
    address, size = operands(t, i, 2)
    m.one_of("relaxed")
    m.one_of("cta", "cluster")
    moved = _count(t, size)
    if "complete_tx" in i.modifiers:
        moved = t.c.op("sub", t.c.const(moved.type, 0), moved)
    call(t, "tx", *_take_address(t, m, address, remote=True), size=moved)


def _arrive(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate arrive and arrive_drop, with or without expected bytes."""
    expects, quiet = m.flag("expect_tx"), m.flag("noComplete")
    target, *items = operands(t, i, 3) if expects or quiet else operands(t, i, 2, 3)
    scope = _order(m, "release")
    if scope is not None:
        sanitize.released(t.wf, scope)
    remote = "shared::cluster" in m.rest
    if remote and target != Special("_"):
        raise t.error("an mbarrier of another workgroup gives no state")
    where = _take_address(t, m, items[0], remote=True)
    one = t.c.const(t.v("i64"), 1)
    action = ("drop" if "arrive_drop" in i.modifiers else "arrive") + (".quiet" if quiet else "")
    if expects:
        before = call(t, action, *where, count=one, size=_count(t, items[1]))
    else:
        before = call(t, action, *where, count=_count(t, items[1]) if len(items) > 1 else one)
    t.write(target, before)


def _wait(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate test_wait and try_wait, which does not wait either: the time that it may take is a hint."""
    parity = m.flag("parity")
    target, address, state, *hint = operands(t, i, 3, 4) if "try_wait" in i.modifiers else operands(t, i, 3)
    for operand in hint:
        t.bits(operand, 32)
    scope = _order(m, "acquire")
    c = t.c
    space, offsets = _take_address(t, m, address)
    then = c.op("and", _count(t, state), 1) if parity else c.op("lshr", t.bits(state, 64), 63)
    before = call(t, "read", space, offsets)
    after = _after_copies(t, offsets, before, then)
    now = c.op("lshr", after, 63)
    if scope is not None:
        sanitize.acquired(t.wf, scope)
    passed = c.icmp("ne", now, then)
    _note_test(t, passed, offsets, after)
    t.write(target, passed)
    c.emit("fence seq_cst")


def _note_test(t: PtxTranslator, passed: IrValue, offsets: IrValue, state: IrValue) -> None:
    """Record whether the warp advances: whether some lane passed. Note a lane that did not, for reports of deadlocks.

    `state` is what the mbarriers at `offsets` held at the test.
    """
    c, warp = t.c, t.wf.warp
    failed = c.op("and", t.wf.active, c.not_(c.mask_bits(passed)))
    t.wf.acted(c.icmp("ne", failed, t.wf.active))
    with c.when(c.icmp("ne", failed, 0)):
        lane = c.resize(c.intrinsic("cttz", failed, extra=(IrValue("i1", "false"),)), 32)
        WARP.store(c, warp, "poll_site", i32(t.site()))
        WARP.store(c, warp, "poll_lane", lane)
        WARP.store(c, warp, "poll_address", c.extract(offsets, lane))
        WARP.store(c, warp, "poll_wants", awaited(c, c.extract(state, lane)))


def _after_copies(t: PtxTranslator, offsets: IrValue, states: IrValue, then: IrValue) -> IrValue:
    """Execute the bulk copies that lanes wait for; return the states after them.

    `states` are those before, and `then` the phases for whose end the lanes wait (0 or 1). A lane whose phase is over
    waits for no copy. A kernel that tests the wrong parity therefore finds that its bytes have not arrived.
    """
    if not t.has_area("bulk"):
        return states
    c, lib = t.c, t.wf.lib
    waiting = c.op("and", t.wf.active, c.mask_bits(c.icmp("eq", c.op("lshr", states, 63), then)))
    arguments = (t.wf.warp, offsets, waiting, i32(t.site()), i32(ATOMIC))
    hosts = c.call(translate(lib, "shared", 8), t.v("i64"), *arguments)
    bulk_ring.settle(t, hosts, waiting)
    return call(t, "read", "shared", offsets)


def _pending_count(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("b64")
    target, state = operands(t, i, 2)
    pending = t.c.op("and", t.c.op("lshr", t.bits(state, 64), 23), COUNT)
    t.write(target, t.c.resize(pending, 32))


_MEANINGS = {
    "init": _init,
    "inval": _inval,
    "expect_tx": _bytes,
    "complete_tx": _bytes,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "test_wait": _wait,
    "try_wait": _wait,
    "pending_count": _pending_count,
}
