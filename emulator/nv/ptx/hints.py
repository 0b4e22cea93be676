"""Cache hints: prefetch, priorities, policies, discard. Source: PTX ISA 9.7.9.13 to 9.7.9.17.

A hint other than `discard` does not change values, but its form is checked. As on hardware, a prefetch of an
unmapped address is no error. Priorities and `discard` must name mapped memory. `discard` overwrites the line
with a fixed pattern.

Not here: fences (`memory`). Next: `core`, how an instruction is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import READ, WRITE, translate
from emulator.ir.findings import i32
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.memory import take_space
from emulator.nv.ptx.statements import PtxImm, PtxInstruction

if TYPE_CHECKING:
    from emulator.ir.vector import IrValue
    from emulator.nv.ptx.statements import Operand

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
