"""Loads, stores, fences and cache hints. Source: PTX ISA 9.7.9 (ld, st, prefetch, ...), 9.7.13 (membar, fence).

Cache operators, eviction priorities and prefetch sizes are hints: their names are checked, and they have no effect.
Ordering modifiers have no effect on values either: the host's ordering is stronger, and every loop that may wait reads
memory again. The sanitizers use these modifiers.

Instructions that are hints do not change values, but their form is checked. As on hardware, a prefetch of an unmapped
address is no error. Priorities and `discard` must name mapped memory. `discard` is no hint: it overwrites the line with a
fixed pattern.

Not here: address checks (`emulator.simt.access`), atomics (`atomics`), asynchronous copies (`async_copies`, `bulk`).
Next: `core`, how an instruction is defined.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir.addresses import PRIVATE, READ, STRONG, VOLATILE, WRITE, split_generic, translate
from emulator.ir.findings import i32
from emulator.ir.report import ReportKind
from emulator.ir.vector import Spilled
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.integers import is_signed
from emulator.nv.ptx.statements import TYPES, Mem, Operand, PtxImm, PtxInstruction, PtxReg, Sym, Vec
from emulator.sanitizers import sanitize
from emulator.sanitizers.sanitize import OrderScope

if TYPE_CHECKING:
    from emulator.ir.vector import IrValue

_TENSOR_MAP = 128
"""Bytes of a tensor map."""
_NOWHERE = 0xFFFF_FF00
"""An offset outside every workgroup's shared memory."""
_SPACES = {
    "global": "global",
    "const": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "cluster",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}
"""PTX state space -> the engine's address space."""
_SCOPES = ("cta", "cluster", "gpu", "sys")
_L1 = ("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate")
_L2 = ("L2::evict_normal", "L2::evict_first", "L2::evict_last")
_LOAD_HINTS = ("ca", "cg", "cs", "lu", "cv", "nc", "unified", *_L1, *_L2, "L2::64B", "L2::128B", "L2::256B")
_STORE_HINTS = ("wb", "cg", "cs", "wt", *_L1, *_L2)
_OF_GLOBAL = {"nc", "unified", *_L1, *_L2}
"""Hints that are valid for global memory only."""


def take_space(t: PtxTranslator, m: Modifiers, address: Operand) -> str:
    """Consume the state space; return the engine's: "global", "shared", "cluster", "local", "param" or "generic".

    Without a state space it is that of the variable that `address` names; for other addresses it is "generic".
    """
    for word in list(m.rest):
        if word in _SPACES:
            m.rest.remove(word)
            return _SPACES[word]
    if isinstance(address, Mem) and isinstance(address.base, Sym):
        return t.space_of(address.base.name)
    return "generic"


def take_hints(m: Modifiers, *words: str) -> set[str]:
    """Consume the modifiers among `words`; return those that were present."""
    return {word for word in words if m.flag(word)}


def shared_offsets(t: PtxTranslator, space: str, address: Operand) -> IrValue:
    """Return an address in `space` as offsets in shared memory, i32; in "cluster" they contain a rank.

    A generic address outside shared memory becomes an invalid offset, which the access reports. Raises `PtxError` for other
    spaces.
    """
    if space not in ("shared", "cluster", "generic"):
        raise t.error(f"works in shared memory, not in .{space}")
    if space != "generic":
        return t.address(address, 32)
    c = t.c
    offsets, inside = split_generic(t.wf.lib, c, t.wf.warp, t.address(address, 64), "shared")
    return c.select(inside, offsets, c.const(offsets.type, _NOWHERE))


def address_bits(space: str) -> int:
    """Return the width of the engine's addresses in a space."""
    return 32 if space in ("shared", "cluster", "local", "param") else 64


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """The order of a memory access. The default is a weak access, which orders nothing."""

    strong: bool = False
    """Whether it is atomic with respect to other strong accesses in its scope."""
    acquires: bool = False
    releases: bool = False
    scope: OrderScope = OrderScope.ALL
    volatile: bool = False
    """Whether it was written as .volatile; then it is also strong."""

    @property
    def wide(self) -> bool:
        """Whether its scope includes other clusters."""
        return self.scope is OrderScope.ALL

    @property
    def how(self) -> int:
        """The flags of a load or store in `emulator.ir.addresses`: 0, or STRONG with its scope, perhaps VOLATILE."""
        flags = STRONG | self.scope.flags if self.strong else 0
        return flags | VOLATILE if self.volatile else flags


def scope_of(word: str) -> OrderScope:
    """Return what a scope modifier means; `OrderScope.ALL` for .gpu, .gl and .sys, and for "" (none)."""
    return {"cta": OrderScope.GROUP, "cluster": OrderScope.CLUSTER}.get(word, OrderScope.ALL)


def _private(space: str) -> int:
    """Return PRIVATE if an access to `space` may reach local memory, else 0."""
    return PRIVATE if space in ("local", "generic") else 0


def take_order(t: PtxTranslator, m: Modifiers, *words: str, scoped: bool) -> MemoryOrder:
    """Consume .weak, .volatile, .mmio, or one of the orders `words` and its scope; without any the access is weak.

    With `scoped`, raise `PtxError` for an order without a scope, and for a scope without an order.
    """
    if m.flag("weak"):
        return MemoryOrder()
    if m.flag("volatile"):
        return MemoryOrder(strong=True, volatile=True)
    if m.flag("mmio"):
        m.need("relaxed")
        m.need("sys")
        return MemoryOrder(strong=True)
    word = m.one_of(*words)
    scope = m.one_of(*_SCOPES)
    if scoped and bool(word) != bool(scope):
        raise t.error("an order needs a scope, and a scope an order")
    acquires, releases = word in ("acquire", "acq_rel"), word in ("release", "acq_rel")
    return MemoryOrder(bool(word), acquires, releases, scope_of(scope))


def take_count(m: Modifiers) -> int:
    """Consume the vector modifier (.v2, .v4, .v8); return the number of elements, 1 without one."""
    return {"v2": 2, "v4": 4, "v8": 8, "": 1}[m.one_of("v2", "v4", "v8")]


def _take_place(t: PtxTranslator, m: Modifiers, address: Operand, hints: tuple[str, ...]) -> tuple[str, int]:
    """Consume the state space, the cache hints and the vector modifier; return the space and the number of elements.

    Raises `PtxError` for a hint that the space does not take.
    """
    space = take_space(t, m, address)
    if take_hints(m, *hints) & _OF_GLOBAL and space not in ("global", "generic"):
        raise t.error(f"a cache hint for global memory is not valid with .{space}")
    return space, take_count(m)


def plain_operands(t: PtxTranslator, i: PtxInstruction, m: Modifiers, fixed: int) -> tuple[Operand, ...]:
    """Return the operands, `fixed` of them, without the cache policy of .L2::cache_hint, which has no effect.

    Raises `PtxError` for another number of operands.
    """
    if not m.flag("L2::cache_hint"):
        return operands(t, i, fixed)
    *found, policy = operands(t, i, fixed + 1)
    t.bits(policy, 64)
    return tuple(found)


@meaning("ld", "ldu")
def _ld(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    d, a = plain_operands(t, i, m, 2)
    order = take_order(t, m, "relaxed", "acquire", scoped=True)
    space, count = _take_place(t, m, a, _LOAD_HINTS)
    type_ = m.type()
    bits = TYPES[type_]
    targets = d.items if isinstance(d, Vec) else (d,)
    if len(targets) != count or (bits > 64 and count > 1) or bits < 8:
        raise t.error(f"{len(targets)} destinations of {bits} bits")
    pieces = 2 if bits > 64 else count
    if space == "param":
        values = _parameters(t, a, min(bits, 64), pieces)
    else:
        address, site = t.address(a, address_bits(space)), t.site()
        if t.wf.counting is not None:
            t.wf.counting.access(space, "load", address, count * bits // 8, t.wf.active)
        how = STRONG if id(i) in t.guesses else order.how
        values = t.wf.load(space, min(bits, 64), pieces, address, site, how=how | _private(space))
        if order.strong and order.wide:
            sanitize.observed(t.wf, space, address, count * bits // 8)
    if order.acquires:
        sanitize.acquired(t.wf, order.scope)
    if bits > 64:
        values = [t.c.op("or", t.c.resize(values[0], 128), t.c.op("shl", t.c.resize(values[1], 128), 64))]
    for target, value in zip(targets, values, strict=True):
        t.write(target, value, signed=is_signed(type_), relaxed=True)


def _parameters(t: PtxTranslator, a: Operand, bits: int, count: int) -> list[IrValue]:
    """Return `count` neighbouring kernel parameters of `bits` bits each.

    They are the same for every lane, unless the address contains a register. Raises `PtxError` for an address outside the
    parameters, if it is a constant.
    """
    if isinstance(a, Mem) and isinstance(a.base, PtxReg):
        return _indexed_parameters(t, a, bits, count)
    if not isinstance(a, Mem):
        raise t.error(f"{a} is no address")
    if isinstance(a.base, Sym) and a.base.name not in t.flat.params:
        raise t.error(f"{a.base.name} is no parameter of the kernel")
    at = a.offset + (t.flat.params[a.base.name][0] if isinstance(a.base, Sym) else 0)
    if at < 0 or at + count * bits // 8 > t.flat.param_bytes:
        raise t.error(f"reads {count * bits // 8} bytes at {at} of {t.flat.param_bytes} bytes of parameters")
    base = t.wf.of_thread("params")
    return [
        t.wf.uniform(t.c.load(f"i{bits}", t.c.gep(base, at + k * bits // 8), align=1)) for k in range(count)
    ]


def _indexed_parameters(t: PtxTranslator, a: Mem, bits: int, count: int) -> list[IrValue]:
    """Return what `_parameters` does, for addresses that may differ between lanes; one outside is reported."""
    c, size = t.c, count * bits // 8
    at, lanes = t.address(a, 32), t.wf.active
    steps = max(t.flat.param_bytes - size + 1, 0)
    bad = c.op("and", lanes, c.not_(c.mask_bits(c.icmp("ult", at, steps))))
    with c.when(c.icmp("ne", bad, 0), likely=False):
        t.wf.report(ReportKind.PARAM_OUT_OF_BOUNDS, t.site(), bad)
    good = c.op("and", lanes, c.not_(bad))
    found = [Spilled(c, t.v(f"i{bits}")) for _ in range(count)]
    where, base = Spilled(c, at), t.wf.of_thread("params")
    with c.each_lane(good) as lane:
        place = c.gep(base, c.resize(where.get(lane), 64))
        for k, values in enumerate(found):
            values.set(lane, c.load(f"i{bits}", c.gep(place, k * bits // 8), align=1))
    return [values.whole() for values in found]


@meaning("st")
def _st(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    a, s = plain_operands(t, i, m, 2)
    order = take_order(t, m, "relaxed", "release", scoped=True)
    space, count = _take_place(t, m, a, _STORE_HINTS)
    bits = TYPES[m.type()]
    sources = s.items if isinstance(s, Vec) else (s,)
    if len(sources) != count or (bits > 64 and count > 1) or bits < 8:
        raise t.error(f"{len(sources)} sources of {bits} bits")
    if space == "param":
        raise t.error("kernel parameters cannot be written")
    values = [t.bits(source, bits, relaxed=True) for source in sources]
    if bits > 64:
        values = [t.c.resize(values[0], 64), t.c.resize(t.c.op("lshr", values[0], 64), 64)]
    if order.releases:
        sanitize.released(t.wf, order.scope)
    address = t.address(a, address_bits(space))
    if t.wf.counting is not None:
        t.wf.counting.access(space, "store", address, count * bits // 8, t.wf.active)
    t.wf.store(space, address, values, t.site(), how=order.how | _private(space))


@meaning("membar")
def _membar(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    operands(t, i, 0)
    if m.flag("proxy"):
        m.need("alias")
        return
    level = m.need("cta", "gl", "sys")
    t.c.emit("fence seq_cst")
    sanitize.fenced(t.wf, scope_of(level))


@meaning("fence")
def _fence(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate a fence; fences between proxies have no effect on values."""
    if m.flag("proxy"):
        if m.flag("tensormap::generic"):
            _fence_of_tensor_maps(t, i, m)
            return
        operands(t, i, 0)
        which = m.need("alias", "async", "async::generic")
        if which == "async":
            space = m.one_of("global", "shared::cta", "shared::cluster")
            if space != "global":
                sanitize.proxy_fenced(t.wf)
        elif which == "async::generic":
            m.need("acquire", "release")
            m.need("sync_restrict::shared::cta", "sync_restrict::shared::cluster")
            m.need("cluster")
        return
    operands(t, i, 0)
    if m.flag("mbarrier_init"):
        m.need("release")
        m.need("cluster")
        sanitize.released(t.wf, OrderScope.CLUSTER)
        return
    word = m.one_of("sc", "acq_rel", "acquire", "release", default="acq_rel")
    if word in ("acquire", "release"):
        m.one_of("sync_restrict::shared::cta", "sync_restrict::shared::cluster")
    scope = scope_of(m.need(*_SCOPES))
    t.c.emit("fence seq_cst")
    {"acquire": sanitize.acquired, "release": sanitize.released}.get(word, sanitize.fenced)(t.wf, scope)


def _fence_of_tensor_maps(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate fence.proxy.tensormap::generic: a release, or an acquire of the 128 bytes at an address."""
    acquires = m.need("acquire", "release") == "acquire"
    scope = scope_of(m.need(*_SCOPES))
    if acquires:
        address, size = operands(t, i, 2)
        t.address(address, 64)
        if not isinstance(size, PtxImm) or size.value != _TENSOR_MAP:
            raise t.error(f"the size must be {_TENSOR_MAP}")
    else:
        operands(t, i, 0)
    t.c.emit("fence seq_cst")
    (sanitize.acquired if acquires else sanitize.released)(t.wf, scope)


_LINE = 128
"""The unit of priorities and discard in bytes."""
_PRIMARY = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
_SECONDARY = ("L2::evict_first", "L2::evict_unchanged")
_DISCARDED = 0xA5A5_A5A5_A5A5_A5A5
"""The pattern that `discard` stores, so that a kernel which reads the old contents fails visibly."""


@meaning("prefetch", "prefetchu")
def _prefetch(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    (address,) = operands(t, i, 1)
    t.address(address, 64)
    if m.flag("tensormap"):
        m.one_of("const", "param")
        return
    if i.opcode == "prefetchu":
        m.need("L1")
    elif "L2::evict_last" in m.rest or "L2::evict_normal" in m.rest:
        m.need("global")
        m.need("L2::evict_last", "L2::evict_normal")
    else:
        m.one_of("global", "local")
        m.need("L1", "L2")


def _line(t: PtxTranslator, m: Modifiers, items: tuple[Operand, ...], access: int) -> tuple[str, IrValue]:
    """Check the 128-byte line of global memory that `items` name; return the state space and the address."""
    address, size = items
    if not isinstance(size, PtxImm) or size.value != _LINE:
        raise t.error(f"the size must be {_LINE}")
    space = take_space(t, m, address)
    if space not in ("global", "generic"):
        raise t.error(f"works on global memory, not on .{space}")
    where, lanes, site = t.address(address, 64), t.wf.active, i32(t.site())
    t.c.call(translate(t.wf.lib, "global", _LINE), t.v("i64"), t.wf.warp, where, lanes, site, i32(access))
    return space, where


@meaning("applypriority")
def _applypriority(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    _line(t, m, operands(t, i, 2), READ)
    m.need("L2::evict_normal")


@meaning("discard")
def _discard(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Overwrite the line: its contents are undefined afterwards."""
    space, where = _line(t, m, operands(t, i, 2), WRITE)
    m.need("L2")
    pattern, site = t.c.const(t.v("i64"), _DISCARDED), t.site()
    for at in range(0, _LINE, 32):
        t.wf.store(space, t.c.op("add", where, at) if at else where, [pattern] * 4, site)


@meaning("createpolicy")
def _createpolicy(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Write a cache policy, which is opaque; here it is 0."""
    kind = m.need("fractional", "range", "cvt")
    target, *items = operands(t, i, 1, 2, 4)
    if kind == "cvt":
        m.need("L2")
        operands(t, i, 2)
        t.bits(items[0], 64)
    else:
        m.one_of("global")
        m.need(*_PRIMARY)
        m.one_of(*_SECONDARY)
        if kind == "range":
            operands(t, i, 4)
            t.address(items[0], 64)
        else:
            operands(t, i, 1, 2)
        for size in items[1:] if kind == "range" else items:
            t.bits(size, 32)
    m.need("b64")
    t.write(target, t.c.const(t.v("i64"), 0))
