"""Scalar loads: s_load and s_buffer_load to scalar registers.

Addresses are aligned down to the unit of the access. Sources: RDNA3, RDNA4 and CDNA3 ISA documents, "Scalar
Memory Addressing"; docs/sources-amd.md.

Not here: operands (`memory_operands`), loads of lanes (`memory`). Next: `meanings`, how an operation is
defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Reg, Word
from emulator.amd.isa.meanings import MEANINGS
from emulator.ir.addresses import STRONG
from emulator.ir.findings import i32, site_record
from emulator.ir.report import ReportKind
from emulator.ir.state import SITE
from emulator.simt import access

if TYPE_CHECKING:
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue


_STRIDE_AT, _STRIDE = 16, 0x3FFF
"""Position and mask of the stride in dword 1 of a buffer descriptor."""


def _buffer_start(t: IsaTranslator, base: Reg) -> IrValue:
    """Return the first address of a buffer, an i64."""
    c = t.c
    low, high = (c.resize(t.sgpr(base.index + k), 64) for k in range(2))
    return c.op("or", low, c.op("shl", c.op("and", high, 0xFFFF), 32))


def _buffer_size(t: IsaTranslator, base: Reg) -> IrValue:
    """Return the bytes of a buffer: records times stride; a record is a byte if the stride is 0."""
    c = t.c
    stride = c.op("and", c.op("lshr", t.sgpr(base.index + 1), _STRIDE_AT), _STRIDE)
    each = c.select(c.icmp("eq", stride, 0), c.const("i32", 1), stride)
    return c.op("mul", c.resize(t.sgpr(base.index + 2), 64), c.resize(each, 64))


def _dwords(lib: Library, count: int) -> str:
    """Return the helper `amd.scalar.COUNT(warp, address, site) -> dwords`: one check and one load.

    The check uses the allocation of the instruction's last load. If it does not contain the whole access,
    each lane loads a dword. This finds the allocation, or reports the dword that lies in none.
    """

    def body(c: CodeBuilder, warp: IrValue, address: IrValue, site: IrValue) -> None:
        record = site_record(c, warp, site)
        offset = c.op("sub", address, SITE.load(c, record, "start"))
        room = c.intrinsic("usub.sat", SITE.load(c, record, "bytes"), c.const("i64", 4 * count - 1))
        inside = c.icmp("ult", offset, room)
        c.emit(f"br {inside}, label %good, label %look, !prof !0")
        c.label("look")
        c.ret(c.call(far, result, warp, address, site))
        c.label("good")
        host = c.let("ptr", f"inttoptr {c.op('add', address, SITE.load(c, record, 'delta'))} to ptr")
        c.ret(c.load(f"<{count} x i32>", host, align=4))

    def look(c: CodeBuilder, warp: IrValue, address: IrValue, site: IrValue) -> None:
        steps = c.ints(lib.v("i64"), [4 * lane for lane in range(lib.lanes)])
        places = c.op("add", c.splat(address, lib.lanes), steps)
        name = access.load(lib, "global", 32, 1)
        wanted = c.const(lib.mask, (1 << count) - 1)
        found = c.call(name, lib.v("i32"), warp, places, wanted, site)
        c.ret(c.shuffle(found, None, range(count)))

    parameters, result = {"warp": "ptr", "address": "i64", "site": "i32"}, f"<{count} x i32>"
    far = lib.define(f"amd.scalar.{count}.any", result, parameters, look, core=True)
    return lib.define(f"amd.scalar.{count}", result, parameters, body, core=True, small=True)


def define_core(lib: Library) -> None:
    """Write the helpers of `_dwords` at the start of an engine, unless sanitizers check accesses."""
    if not lib.checks.any:
        for count in (1, 2, 3, 4, 8, 16):
            _dwords(lib, count)


def _address(t: IsaTranslator, start: IrValue, size: int) -> IrValue:
    """Return the address of a load in units of `size` bytes: base plus offsets, each aligned down to a unit.

    The two offsets of a buffer are added before the alignment, except on gfx12. Two offsets are refused,
    because the ISA documents call them illegal: a negative constant of a buffer, and a sum below the base (a
    run-time report if a register is part of it).
    """
    c, i, buffer = t.c, t.instruction, t.stem.startswith("s_buffer_")
    offset = i.get("offset")
    registers = [c.resize(t.scalar(o), 64) for o in i.operands[2:] if not isinstance(o, Word)]
    if offset < 0 and (buffer or not registers):
        raise t.error(f"an offset of {offset} is below the base, which AMD's ISA documents call undefined")
    total = c.const("i64", 0)
    for part in (*registers, c.const("i64", offset)):
        kept = part if buffer and t.target.family != "gfx12" else c.op("and", part, -size)
        total = c.op("add", total, kept)
    if offset < 0:
        site = t.site()
        with c.when(c.icmp("slt", total, 0), likely=False):
            t.wf.report(ReportKind.OUT_OF_BOUNDS, site, i32(0))
    return c.op("add", start, c.op("and", total, -size))


def _scalar_load(t: IsaTranslator) -> None:
    """Load dwords to consecutive scalar registers; dwords beyond the end of a buffer are 0.

    A load that a compare-and-swap validates (`guesses`) is strong.
    """
    c, i = t.c, t.instruction
    d, base = i.operands[:2]
    count = int(t.stem.rsplit("b", 1)[1]) // 32
    if not isinstance(d, Reg) or not isinstance(base, Reg):
        raise t.error("no register to load")
    buffer = t.stem.startswith("s_buffer_")
    start = c.op("and", _buffer_start(t, base) if buffer else t.scalar(base, 64), -4)
    address = _address(t, start, 4)
    if not buffer and not t.lib.checks.any:
        loaded = c.call(_dwords(t.lib, count), f"<{count} x i32>", t.wf.warp, address, i32(t.site()))
        for n in range(count):
            t.set_sgpr(d.index + n, c.extract(loaded, n))
        return
    steps = c.ints(t.v("i64"), [4 * lane for lane in range(t.lanes)])
    places = c.op("add", c.splat(address, t.lanes), steps)
    wanted = c.const(t.lib.mask, (1 << count) - 1)
    inside = c.mask_lanes(wanted)
    if buffer:
        ends = c.op("add", c.op("sub", places, c.splat(start, t.lanes)), 4)
        inside = c.icmp("ule", ends, c.splat(_buffer_size(t, base), t.lanes))
        wanted = c.op("and", wanted, c.mask_bits(inside))
    how = STRONG if i.address in t.guesses else 0
    found = t.wf.load("global", 32, places, wanted, t.site(), how=how)
    if buffer:
        found = c.select(inside, found, c.zero(found.type))
    for n in range(count):
        t.set_sgpr(d.index + n, c.extract(found, n))


for _size in (32, 64, 96, 128, 256, 512):
    MEANINGS[f"s_load_b{_size}"] = _scalar_load
    MEANINGS[f"s_buffer_load_b{_size}"] = _scalar_load


def _scalar_part(t: IsaTranslator) -> None:
    """Load a byte or 16 bits (gfx12), extended to 32 bits."""
    c, i = t.c, t.instruction
    d, base = i.operands[:2]
    if not isinstance(d, Reg) or not isinstance(base, Reg):
        raise t.error("no register to load")
    kind = t.stem.rsplit("_", 1)[1]
    bits = int(kind[1:])
    address = _address(t, c.op("and", t.scalar(base, 64), -(bits // 8)), bits // 8)
    found = t.wf.load("global", bits, c.splat(address, t.lanes), c.const(t.lib.mask, 1), t.site())
    t.set_sgpr(d.index, c.resize(c.extract(found, 0), 32, signed=kind[0] == "i"))


for _kind in ("u8", "i8", "u16", "i16"):
    MEANINGS[f"s_load_{_kind}"] = _scalar_part
