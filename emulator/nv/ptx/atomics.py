"""Atomics (atom, red), and shared memory of a cluster (st.async, red.async, mapa, getctarank).

An asynchronous operation executes immediately, and then completes its bytes at the mbarrier. The result of mapa is the same
in every workgroup of a cluster, so that it can be passed to another. Source: PTX ISA 9.7.9, 9.7.13.

Not here: the mbarrier (`mbarrier`), bulk copies (`bulk`). Next: `emulator.simt.atomics`, the host's atomic operations;
`emulator.ir.clusters`, the addresses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import OFFSET, RANK_SHIFT
from emulator.ir.findings import i32
from emulator.nv.ptx import mbarrier
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands, vector_elements
from emulator.nv.ptx.integers import is_signed
from emulator.nv.ptx.memory import (
    MemoryOrder,
    address_bits,
    plain_operands,
    shared_offsets,
    take_count,
    take_order,
    take_space,
)
from emulator.nv.ptx.statements import TYPES, Operand, PtxInstruction, Sym, Vec
from emulator.sanitizers import sanitize
from emulator.simt import atomics

if TYPE_CHECKING:
    from emulator.ir.vector import IrValue

_LOGIC, _ORDERED = ("b32", "b64"), ("u32", "s32", "u64", "s64")
_SMALL = ("f16", "f16x2", "bf16", "bf16x2")
SCALARS = {
    "and": _LOGIC,
    "or": _LOGIC,
    "xor": _LOGIC,
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
    "add": ("u32", "s32", "u64", "f32", "f64", *_SMALL),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": _ORDERED,
    "max": _ORDERED,
}
"""The types of each operation on one element."""
_VECTORS = {"add": ("f32", *_SMALL), "min": _SMALL, "max": _SMALL}
"""The types of each operation on a vector."""
_MOST_BITS = 128
"""The most bits of a vector."""


@meaning("atom", "red")
def _atom(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate atom and red. A vector is one atomic operation for each element."""
    with_result = i.opcode == "atom"
    words = ("relaxed", "acquire", "release", "acq_rel") if with_result else ("relaxed", "release")
    order = take_order(t, m, *words, scoped=False)
    operation = m.need(*SCALARS)
    found = plain_operands(t, i, m, 1 + with_result + (2 if operation == "cas" else 1))
    a, *values = found[1:] if with_result else found
    space, count = take_space(t, m, a), take_count(m)
    type_ = _take_type(t, m, operation, space, count)
    elements = [v.items if isinstance(v, Vec) else (v,) for v in values]
    if any(len(e) != count for e in elements):
        raise t.error(f"takes {count} values")
    if order.releases:
        sanitize.released(t.wf, order.scope)
    address = t.address(a, address_bits(space))
    if t.wf.counting is not None:
        t.wf.counting.access(space, "atomic", address, count * TYPES[type_] // 8, t.wf.active)
    old = apply(t, space, operation, type_, address, elements, order=order)
    if order.wide:
        sanitize.observed(t.wf, space, address, count * TYPES[type_] // 8)
    if order.acquires:
        sanitize.acquired(t.wf, order.scope)
    elif order.wide:
        sanitize.after_atomic(t.wf, space)
    if with_result:
        d = found[0]
        for target, value in zip(vector_elements(t, d, len(old)), old, strict=True):
            t.write(target, value)


def _take_type(t: PtxTranslator, m: Modifiers, operation: str, space: str, count: int) -> str:
    """Consume the type and return it. Raises `PtxError` if the operation does not have it in this space."""
    type_ = m.type()
    if type_ not in (SCALARS if count == 1 else _VECTORS).get(operation, ()):
        raise t.error(f".{operation} of {'vectors of ' if count > 1 else ''}.{type_} is not defined")
    if (type_ in _SMALL) != m.flag("noftz"):
        raise t.error(f".noftz stands with 16-bit floats and only there, not with .{type_}")
    if space not in ("global", "shared", "cluster", "generic") or (
        count > 1 and space in ("shared", "cluster")
    ):
        raise t.error(f"not in .{space}")
    if count * TYPES[type_] > _MOST_BITS:
        raise t.error(f"a vector has {_MOST_BITS} bits at most")
    return type_


def apply(
    t: PtxTranslator, space: str, operation: str, type_: str, address: IrValue, elements: list[tuple[Operand, ...]], *,
    order: MemoryOrder,
) -> list[IrValue]:  # fmt: skip
    """Append an atomic operation for each element of a vector; return the old values.

    `elements` has, for each source operand, its elements. `operation` is a key of `SCALARS`.
    """
    bits, floating = TYPES[type_], type_.lstrip("b").startswith("f")
    if floating:
        operation = f"f{operation}"
    elif operation in ("min", "max"):
        operation = ("s" if is_signed(type_) else "u") + operation
    how = order.scope.flags
    name = atomics.atomic(t.wf.lib, space, operation, bits, type_ if floating else "", how=how)
    site, old = i32(t.site()), []
    for k in range(len(elements[0])):
        place = t.c.op("add", address, k * bits // 8) if k else address
        given = [t.bits(e[k], bits) for e in elements]
        old.append(t.c.call(name, t.v(f"i{bits}"), t.wf.warp, place, *given, t.wf.active, site))
    return old


_STORED = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
"""The types that st.async stores."""
_REDUCED = {
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "add": ("u32", "s32", "u64", "s64"),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}
"""Operation of red.async -> its types."""
_BYTES = "mbarrier::complete_tx::bytes"


def _take_space(m: Modifiers) -> str:
    """Consume the state space; return "cluster" or, without one, "generic"."""
    return "cluster" if m.flag("shared::cluster") else "generic"


def _complete_bytes(t: PtxTranslator, space: str, barrier: Operand, size: int) -> None:
    """Complete `size` bytes at the mbarrier of each active lane.

    What it wrote before is released to the cluster.
    """
    sanitize.released(t.wf, sanitize.OrderScope.CLUSTER)
    mbarrier.call(t, "tx", "cluster", shared_offsets(t, space, barrier), size=t.c.const(t.v("i64"), -size))


@meaning("st.async")
def _store(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("async")
    m.flag("weak")
    if "mmio" in m.rest or _BYTES not in m.rest:
        raise t.error("st.async without an mbarrier is not supported")
    m.need(_BYTES)
    space, count = _take_space(m), take_count(m)
    type_ = m.need(*_STORED)
    a, s, barrier = operands(t, i, 3)
    sources = s.items if isinstance(s, Vec) else (s,)
    bits = TYPES[type_]
    if len(sources) != count or count > 4:
        raise t.error(f"{len(sources)} sources")
    values = [t.bits(source, bits) for source in sources]
    offsets = shared_offsets(t, space, a)
    if t.wf.counting is not None:
        t.wf.counting.access("shared", "store", offsets, count * bits // 8, t.wf.active)
    t.wf.store("cluster", offsets, values, t.site())
    _complete_bytes(t, space, barrier, count * bits // 8)


@meaning("red.async")
def _reduce(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    for word in ("async", "relaxed", "cluster", _BYTES):
        m.need(word)
    space, operation = _take_space(m), m.need(*_REDUCED)
    type_ = m.type()
    if type_ not in _REDUCED[operation]:
        raise t.error(f".{operation} of .{type_} is not defined")
    a, s, barrier = operands(t, i, 3)
    offsets = shared_offsets(t, space, a)
    if t.wf.counting is not None:
        t.wf.counting.access("shared", "atomic", offsets, TYPES[type_] // 8, t.wf.active)
    apply(
        t, "cluster", operation, type_, offsets, [(s,)], order=MemoryOrder(scope=sanitize.OrderScope.CLUSTER)
    )
    _complete_bytes(t, space, barrier, TYPES[type_] // 8)


@meaning("mapa")
def _mapa(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    in_window = m.flag("shared::cluster")
    bits = TYPES[m.need("u32", "u64")]
    d, a, rank = operands(t, i, 3)
    c, lanes = t.c, t.wf.lanes
    offset, window = _offset(t, a, bits, in_window=in_window)
    ranks = t.bits(rank, 32)
    alone = c.icmp("eq", t.wf.of_thread("cluster"), 1)
    ranked = c.op("add", c.intrinsic("umin", ranks, c.const(ranks.type, 254)), 1)
    ranked = c.op("shl", ranked, RANK_SHIFT)
    here = c.op("and", c.splat(alone, lanes), c.icmp("eq", ranks, 0))
    upper = c.select(here, c.const(ranks.type, 0), ranked)
    place = c.op("or", upper, c.op("and", offset, OFFSET))
    t.write(d, c.op("add", c.resize(place, bits), window))


@meaning("getctarank")
def _getctarank(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    in_window = m.flag("shared::cluster")
    bits = TYPES[m.need("u32", "u64")]
    d, a = operands(t, i, 2)
    c = t.c
    upper = c.op("lshr", _offset(t, a, bits, in_window=in_window)[0], RANK_SHIFT)
    own = t.wf.uniform(t.wf.of_group("rank"))
    t.write(d, c.select(c.icmp("eq", upper, 0), own, c.op("sub", upper, 1)))


def _offset(t: PtxTranslator, a: Operand, bits: int, *, in_window: bool) -> tuple[IrValue, IrValue]:
    """Return an address in the shared memory of a cluster, as i32, and what the operand counts from.

    That is 0 for a variable and with `in_window` (.shared::cluster); a generic address counts from the
    window.
    """
    c = t.c
    if in_window or isinstance(a, Sym):
        window = c.const(t.v(f"i{bits}"), 0)
    else:
        window = c.resize(t.wf.uniform(t.wf.of_thread("shared_window")), bits)
    value = t.address_of(a, bits) if isinstance(a, Sym) else t.bits(a, bits)
    return c.resize(c.op("sub", value, window), 32), window
