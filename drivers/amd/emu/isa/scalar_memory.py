"""Loads of the scalar unit.

Not here: operands (`memory_operands`). Next: `meanings`, how an operation is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import MEANINGS
from drivers.amd.emu.isa.operands import Reg, Word

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator


def _scalar_load(t: Translator) -> None:
    """Load dwords into consecutive scalar registers; the address's two lowest bits do not count."""
    c, i = t.c, t.instruction
    d, base, *more = i.operands
    count = int(t.stem.rsplit("b", 1)[1]) // 32
    if t.stem.startswith("s_buffer_"):
        raise t.error("scalar loads through buffer descriptors are not supported")
    if not isinstance(d, Reg):
        raise t.error("no register to load")
    address = t.scalar(base, 64)
    for operand in more:
        if not isinstance(operand, Word):
            address = c.op("add", address, c.resize(t.scalar(operand), 64))
    if i.get("offset"):
        address = c.op("add", address, i.get("offset"))
    address = c.op("and", address, -4)
    steps = c.ints(t.v("i64"), [4 * lane for lane in range(t.lanes)])
    places = c.op("add", c.splat(address, t.lanes), steps)
    found = t.wf.load("global", 32, places, c.const(t.lib.mask, (1 << count) - 1), t.site())
    for n in range(count):
        t.set_sgpr(d.index + n, c.extract(found, n))


for _size in (32, 64, 96, 128, 256, 512):
    MEANINGS[f"s_load_b{_size}"] = _scalar_load
    MEANINGS[f"s_buffer_load_b{_size}"] = _scalar_load
