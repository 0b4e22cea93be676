"""Loads, stores, atomics, fences and hints. Source: PTX ISA 9.7.9 (ld, st, prefetch), 9.7.13 (membar, fence, atom, red).

Cache operators, eviction priorities and prefetch sizes are hints: they are known by name, and change
nothing. Ordering modifiers change nothing for one lane either: the host's own ordering is stronger, and
every loop that may wait re-reads memory. They are told to the sanitizers.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.emu import atomics, sanitize
from drivers.emu.addresses import NARROW, STRONG
from drivers.emu.vector import Value
from drivers.nv.emu.ptx_core import Modifiers, Translator, meaning, operands
from drivers.nv.emu.ptx_int import is_signed
from drivers.nv.emu.ptx_statements import TYPES, Instruction, Mem, Operand, Reg, Sym, Vec

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPACES = {
    "global": "global",
    "const": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}
_SCOPES = ("cta", "cluster", "gpu", "sys")
_NARROW = ("cta", "cluster")
"""Scopes that no other workgroup is in: a cluster has one here."""
_HINTS = (
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "unified",
)


def take_space(t: Translator, m: Modifiers, address: Operand) -> str:
    """Take the state space; without one, the variable's own or generic."""
    for word in list(m.rest):
        if word in _SPACES:
            m.rest.remove(word)
            return _SPACES[word]
    if isinstance(address, Mem) and isinstance(address.base, Sym):
        return t.space_of(address.base.name)
    return "generic"


def take_hints(m: Modifiers) -> None:
    """Take everything that only advises the caches."""
    for word in _HINTS:
        m.flag(word)


def address_bits(space: str) -> int:
    """Return the width of the engine's addresses in a space."""
    return 32 if space in ("shared", "local", "param") else 64


@dataclass(frozen=True, slots=True)
class Order:
    """How an access to memory is ordered with others: what it publishes and learns, and who is in its scope."""

    strong: bool = False
    acquires: bool = False
    releases: bool = False
    wide: bool = True
    """Whether other workgroups are in its scope."""

    @property
    def how(self) -> int:
        """What the engine wants to know of a load or store."""
        return (STRONG if self.wide else STRONG | NARROW) if self.strong else 0


def _take_order(t: Translator, m: Modifiers, *words: str, scoped: bool) -> Order:
    """Take .weak, .volatile, .mmio or an order and its scope; `scoped`: a scope must stand with an order, and only there."""
    if m.flag("weak"):
        return Order()
    if m.flag("volatile"):
        return Order(strong=True)
    if m.flag("mmio"):
        m.need("relaxed")
        m.need("sys")
        return Order(strong=True)
    word = m.one_of(*words)
    scope = m.one_of(*_SCOPES)
    if scoped and bool(word) != bool(scope):
        raise t.error("an order needs a scope, and a scope an order")
    acquires, releases = word in ("acquire", "acq_rel"), word in ("release", "acq_rel")
    return Order(bool(word), acquires, releases, scope not in _NARROW)


def _take_common(t: Translator, m: Modifiers, address: Operand) -> tuple[str, int]:
    space = take_space(t, m, address)
    take_hints(m)
    count = {"v2": 2, "v4": 4, "v8": 8, "": 1}[m.one_of("v2", "v4", "v8")]
    return space, count


def _plain(t: Translator, i: Instruction, m: Modifiers, fixed: int) -> tuple[Operand, ...]:
    """Return the operands without a cache-policy operand."""
    return operands(t, i, fixed + 1)[:fixed] if m.flag("L2::cache_hint") else operands(t, i, fixed)


@meaning("ld", "ldu")
def _ld(t: Translator, i: Instruction, m: Modifiers) -> None:
    d, a = _plain(t, i, m, 2)
    order = _take_order(t, m, "relaxed", "acquire", scoped=True)
    space, count = _take_common(t, m, a)
    type_ = m.type()
    bits = TYPES[type_]
    targets = d.items if isinstance(d, Vec) else (d,)
    if len(targets) != count or bits > 64:
        raise t.error(f"{len(targets)} destinations of {bits} bits")
    if space == "param":
        values = _parameters(t, a, bits, count)
    else:
        values = t.wf.load(space, bits, count, t.address(a, address_bits(space)), t.site(), how=order.how)
    if order.acquires:
        sanitize.acquired(t.wf, wide=order.wide)
    for target, value in zip(targets, values, strict=True):
        t.write(target, value, signed=is_signed(type_), relaxed=True)


def _parameters(t: Translator, a: Operand, bits: int, count: int) -> list[Value]:
    """Load kernel parameters: every lane gets the same."""
    if not isinstance(a, Mem) or isinstance(a.base, Reg):
        raise t.error("kernel parameters are read at constant addresses only")
    at = a.offset + (t.flat.params[a.base.name][0] if isinstance(a.base, Sym) else 0)
    if at < 0 or at + count * bits // 8 > t.flat.param_bytes:
        raise t.error(f"reads {count * bits // 8} bytes at {at} of {t.flat.param_bytes} bytes of parameters")
    base = t.wf.of_thread("params")
    return [
        t.wf.uniform(t.c.load(f"i{bits}", t.c.gep(base, at + k * bits // 8), align=1)) for k in range(count)
    ]


@meaning("st")
def _st(t: Translator, i: Instruction, m: Modifiers) -> None:
    a, s = _plain(t, i, m, 2)
    order = _take_order(t, m, "relaxed", "release", scoped=True)
    space, count = _take_common(t, m, a)
    bits = TYPES[m.type()]
    sources = s.items if isinstance(s, Vec) else (s,)
    if len(sources) != count or bits > 64:
        raise t.error(f"{len(sources)} sources of {bits} bits")
    if space == "param":
        raise t.error("kernel parameters cannot be written")
    values = [t.bits(source, bits, relaxed=True) for source in sources]
    if order.releases:
        sanitize.released(t.wf, wide=order.wide)
    t.wf.store(space, t.address(a, address_bits(space)), values, t.site(), how=order.how)


@meaning("atom", "red")
def _atom(t: Translator, i: Instruction, m: Modifiers) -> None:
    """Read, modify, write. A vector is one atomic an element."""
    with_result = i.opcode == "atom"
    items: Sequence[Operand] = i.operands[1:] if with_result else i.operands
    hint = m.flag("L2::cache_hint")
    items = items[:-1] if hint else items
    a, values = items[0], items[1:]
    order = _take_order(t, m, "relaxed", "acquire", "release", "acq_rel", scoped=False)
    space, count = _take_common(t, m, a)
    if m.one_of("async"):
        raise t.error("asynchronous atomics are not supported")
    operation = m.need("and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max")
    m.flag("noftz")
    type_ = m.type()
    bits = TYPES[type_]
    floating = type_.lstrip("b").startswith("f")
    if (floating and operation != "add") or space in ("param", "local") or bits < 16 or bits > 64:
        raise t.error(f".{operation} of .{type_} in .{space} is not supported")
    if operation in ("min", "max"):
        operation = ("s" if is_signed(type_) else "u") + operation
    if len(values) != (2 if operation == "cas" else 1):
        raise t.error(f"takes {'two values' if operation == 'cas' else 'one value'}")
    how = 0 if order.wide else NARROW
    name = atomics.atomic(
        t.wf.lib, space, "fadd" if floating else operation, bits, type_ if floating else "", how=how
    )
    if order.releases:
        sanitize.released(t.wf, wide=order.wide)
    address, site = t.address(a, address_bits(space)), t.site()
    elements = [v.items if isinstance(v, Vec) else (v,) for v in values]
    old = []
    for k in range(count):
        place = t.c.op("add", address, k * bits // 8) if k else address
        given = [t.bits(e[k], bits) for e in elements]
        old.append(
            t.c.call(name, t.v(f"i{bits}"), t.wf.warp, place, *given, t.wf.active, Value("i32", str(site)))
        )
    if order.acquires:
        sanitize.acquired(t.wf, wide=order.wide)
    elif order.wide:
        sanitize.after_atomic(t.wf, space)
    if with_result:
        d = i.operands[0]
        for target, value in zip(d.items if isinstance(d, Vec) else (d,), old, strict=True):
            t.write(target, value)


@meaning("membar")
def _membar(t: Translator, i: Instruction, m: Modifiers) -> None:
    operands(t, i, 0)
    if m.flag("proxy"):
        m.need("alias")
        return
    level = m.need("cta", "gl", "sys")
    t.c.emit("fence seq_cst")
    sanitize.fenced(t.wf, wide=level != "cta")


@meaning("fence")
def _fence(t: Translator, i: Instruction, m: Modifiers) -> None:
    """Order one thread's accesses; between proxies there is nothing to do."""
    operands(t, i, 0)
    if m.flag("proxy"):
        if m.need("alias", "async") == "async":
            m.one_of("global", "shared::cta", "shared::cluster")
        return
    if m.flag("mbarrier_init"):
        m.need("release")
        m.need("cluster")
        sanitize.released(t.wf, wide=False)
        return
    word = m.one_of("sc", "acq_rel", "acquire", "release", default="acq_rel")
    if word in ("acquire", "release"):
        m.one_of("sync_restrict::shared::cta", "sync_restrict::shared::cluster")
    wide = m.need(*_SCOPES) not in _NARROW
    t.c.emit("fence seq_cst")
    {"acquire": sanitize.acquired, "release": sanitize.released}.get(word, sanitize.fenced)(t.wf, wide=wide)


@meaning("prefetch", "prefetchu", "applypriority", "discard")
def _prefetch(t: Translator, i: Instruction, m: Modifiers) -> None:
    """Hints without an effect; their address is not checked because hardware ignores a bad one."""
    if i.opcode == "discard":
        raise t.error("discard is not supported")
    m.rest.clear()
    del t


@meaning("createpolicy")
def _createpolicy(t: Translator, i: Instruction, m: Modifiers) -> None:
    """A cache policy is an opaque hint: zero here."""
    m.rest.clear()
    t.write(i.operands[0], t.c.const(t.v("i64"), 0))
