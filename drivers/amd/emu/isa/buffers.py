"""Loads and stores through buffer descriptors: raw buffers, whose bounds are checked lane by lane.

Not here: operands (`memory_operands`), other memory (`memory`). Next: `meanings`, how an operation is
defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import MEANINGS
from drivers.amd.emu.isa.memory import how, load, store
from drivers.amd.emu.isa.memory_atomics import OPERATIONS, apply_atomic, atomic_registers, atomic_values
from drivers.amd.emu.isa.operands import Reg

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value


def _buffer_place(t: Translator, data: int) -> tuple[Value, Value]:
    """Return addresses and which lanes' accesses lie within the buffer (raw: stride 0, no swizzle)."""
    c, i = t.c, t.instruction
    _, vector, resource, base = i.operands
    if i.get("idxen") or i.get("lds") or i.get("tfe") or not isinstance(resource, Reg):
        raise t.error("only raw buffers are supported: no index, LDS or TFE")
    low, high, records = (t.sgpr(resource.index + k) for k in range(3))
    start = c.op("or", c.resize(low, 64), c.op("shl", c.resize(c.op("and", high, 0xFFFF), 64), 32))
    offset = t.raw(vector) if isinstance(vector, Reg) else c.zero(t.v("i32"))
    wide = c.op("add", c.resize(offset, 64), i.get("offset"))
    inside = c.icmp("ule", c.op("add", wide, data), c.splat(c.resize(records, 64), t.lanes))
    first = c.op("add", start, c.resize(t.scalar(base), 64))
    return c.op("add", wide, c.splat(first, t.lanes)), inside


_SIZES = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "u8": 1, "i8": 1, "u16": 2, "i16": 2, "b8": 1, "b16": 2}


def _buffer_access(t: Translator) -> None:
    """Lanes outside the buffer load zero and store nothing."""
    c = t.c
    verb, what = t.stem.split("_", 2)[1:]
    address, inside = _buffer_place(t, _SIZES[what])
    mask = c.op("and", t.active, c.mask_bits(inside))
    data = t.instruction.operands[0]
    if verb == "store":
        store(t, what, data, "global", address, mask, how(t))
        return
    if not isinstance(data, Reg):
        raise t.error("no register to load")
    for n in range(max(_SIZES[what] // 4, 1)):
        t.set_vgpr(data.index + n, c.zero(t.v("i32")), data.file)
    keep = [t.vgpr(data.index + n, data.file) for n in range(max(_SIZES[what] // 4, 1))]
    load(t, what, data, "global", address, mask, how(t))
    for n, zero in enumerate(keep):
        t.set_vgpr(data.index + n, c.select(inside, t.vgpr(data.index + n, data.file), zero), data.file)


def _buffer_atomic(t: Translator) -> None:
    """Lanes outside the buffer change nothing and get zero."""
    c, i = t.c, t.instruction
    name = t.stem.split("_atomic_")[1]
    data = i.operands[0]
    returns = bool(i.get("glc") or i.get("sc0") or i.get("th") & 1)
    count = atomic_registers(name)
    address, inside = _buffer_place(t, 4 * count)
    mask = c.op("and", t.active, c.mask_bits(inside))
    values = atomic_values(t, name, data)
    old = apply_atomic(t, name, "global", address, values, mask=mask)
    if not returns:
        return
    if not isinstance(data, Reg):
        raise t.error("no register for what was there before")
    for n, value in enumerate(old):
        t.set_vgpr(data.index + n, c.select(inside, value, c.zero(value.type)), data.file)


for _name in OPERATIONS:
    for _bits in ("16",) if _name.startswith("pk") else ("32", "64"):
        MEANINGS[f"buffer_atomic_{_name}{_bits}"] = _buffer_atomic
for _what in ("b32", "b64", "b96", "b128", "u8", "i8", "u16", "i16"):
    MEANINGS[f"buffer_load_{_what}"] = _buffer_access
for _what in ("b32", "b64", "b96", "b128", "b8", "b16"):
    MEANINGS[f"buffer_store_{_what}"] = _buffer_access
