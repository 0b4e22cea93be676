"""Shared memory of a cluster: st.async, red.async, mapa, getctarank. Source: PTX ISA 9.7.9, 9.7.13.

A cluster has one workgroup here, so this is the workgroup's own shared memory. An asynchronous operation
executes immediately, and its mbarrier completes in the same step.

Not here: the mbarrier (`mbarrier`), bulk copies (`bulk`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.sanitizers import sanitize
from drivers.nv.emu.ptx import atomics, mbarrier
from drivers.nv.emu.ptx.core import Modifiers, Translator, meaning, operands
from drivers.nv.emu.ptx.memory import Order, shared_offsets, take_count
from drivers.nv.emu.ptx.statements import TYPES, Instruction, Operand, Vec

if TYPE_CHECKING:
    from drivers.emu.simt.vector import Value

_STORED = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
_REDUCED = {
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "add": ("u32", "s32", "u64"),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}
_BYTES = "mbarrier::complete_tx::bytes"


def _take_space(m: Modifiers) -> str:
    return "cluster" if m.flag("shared::cluster") else "generic"


def _told(t: Translator, space: str, barrier: Operand, size: int) -> None:
    """Complete bytes at an mbarrier."""
    sanitize.released(t.wf, wide=False)
    mbarrier.call(t, "tx", shared_offsets(t, space, barrier), size=t.c.const(t.v("i64"), -size))


@meaning("st.async")
def _store(t: Translator, i: Instruction, m: Modifiers) -> None:
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
    t.wf.store("shared", offsets, values, t.site())
    _told(t, space, barrier, count * bits // 8)


@meaning("red.async")
def _reduce(t: Translator, i: Instruction, m: Modifiers) -> None:
    for word in ("async", "relaxed", "cluster", _BYTES):
        m.need(word)
    space, operation = _take_space(m), m.need(*_REDUCED)
    type_ = m.type()
    if type_ not in (*_REDUCED[operation], "s64" if operation == "add" else ""):
        raise t.error(f".{operation} of .{type_} is not defined")
    a, s, barrier = operands(t, i, 3)
    offsets = shared_offsets(t, space, a)
    if t.wf.counting is not None:
        t.wf.counting.access("shared", "atomic", offsets, TYPES[type_] // 8, t.wf.active)
    atomics.apply(t, "shared", operation, type_, offsets, [(s,)], order=Order())
    _told(t, space, barrier, TYPES[type_] // 8)


def _own_rank(t: Translator, rank: Value) -> None:
    """Check a rank: a cluster of one workgroup has rank 0 only. Only constants are checked."""
    if not rank.ref.startswith("%") and rank.ref != t.c.const(rank.type, 0).ref:
        raise t.error("a cluster has one workgroup here, of rank 0")


@meaning("mapa")
def _mapa(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.one_of("shared::cluster")
    bits = TYPES[m.need("u32", "u64")]
    d, a, rank = operands(t, i, 3)
    _own_rank(t, t.bits(rank, 32))
    t.write(d, t.bits(a, bits))


@meaning("getctarank")
def _getctarank(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.one_of("shared::cluster")
    bits = TYPES[m.need("u32", "u64")]
    d, a = operands(t, i, 2)
    t.bits(a, bits)
    t.write(d, t.c.const(t.v("i32"), 0))
