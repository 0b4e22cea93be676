"""Atomic operations on memory and LDS; and loads, stores and atomics through buffer descriptors.

Only raw buffers are supported: without stride, index and swizzle. Each lane is checked against the buffer's size.
Sources: RDNA3, RDNA4 and CDNA3 ISA documents.

Not here: addresses and other accesses (`memory`), operands (`memory_operands`), the atomic operations themselves
(`emulator.simt.atomics`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Reg
from emulator.amd.isa.meanings import MEANINGS
from emulator.amd.isa.memory import flat_address, how, load, local_address, registers, set_registers, store
from emulator.ir.addresses import STRONG
from emulator.ir.findings import i32
from emulator.sanitizers import shadow_shared
from emulator.simt import atomics

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Operand
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

OPERATIONS = {
    "add_u": "add", "and_b": "and", "or_b": "or", "xor_b": "xor", "swap_b": "exch", "storexchg_b": "exch", "min_i": "smin",
    "max_i": "smax", "min_u": "umin", "max_u": "umax", "inc_u": "inc", "dec_u": "dec", "add_f": "fadd", "min_f": "fmin",
    "max_f": "fmax", "cmpswap_b": "cas", "cmpstore_b": "cas", "sub_u": "sub", "pk_add_f": "fadd", "pk_add_bf": "fadd",
    "min_num_f": "fmin", "max_num_f": "fmax",
}  # fmt: skip
"""Name of an operation in instructions -> the engine's name; "sub" is an "add" of the negated value."""


def _whole(t: IsaTranslator, registers: list[IrValue]) -> IrValue:
    """Return one register, or two as a 64-bit value."""
    if len(registers) == 1:
        return registers[0]
    return t.known.join(t.c, *registers)


def atomic_registers(name: str) -> int:
    """Return the dwords (1 or 2) of one value of an operation such as "add_u32"."""
    return max(int(re.findall(r"\d+$", name)[0]), 32) // 32


def atomic_values(t: IsaTranslator, name: str, data: Operand) -> list[IrValue]:
    """Return the operands of an atomic operation: one value; for cmpswap the expected and the new value."""
    count = atomic_registers(name)
    if "cmpswap" not in name:
        return [_whole(t, registers(t, data, count))]
    both = registers(t, data, 2 * count)
    return [_whole(t, both[count:]), _whole(t, both[:count])]


def apply_atomic(
    t: IsaTranslator, name: str, space: str, address: IrValue, values: list[IrValue], *,
    mask: IrValue | None = None, how: int = 0,
) -> list[IrValue]:  # fmt: skip
    """Write the code of an atomic operation such as "add_u32", and return the old values, one for each dword.

    `mask` has the lanes that take part; None: those that execute. `how` is STRONG for an operation that polls.
    """
    c = t.c
    match = re.fullmatch(r"(\w+?_b?[ufib])(16|32|64)", name)
    assert match is not None, name
    operation, bits = OPERATIONS[match[1]], max(int(match[2]), 32)
    format_ = ""
    if operation[0] == "f" and operation in ("fadd", "fmin", "fmax"):
        small = "bf16" if "bf" in match[1] else f"f{match[2]}"
        format_ = small + ("x2" if match[2] == "16" else "")
    if operation == "sub":
        operation, values = "add", [c.op("sub", c.zero(values[0].type), values[0])]
    lanes = t.active if mask is None else mask
    if t.wf.counting is not None:
        t.wf.counting.access(space, "atomic", address, bits // 8, lanes)
    helper = atomics.atomic(t.lib, space, operation, bits, format_, how=how)
    old = c.call(helper, t.v(f"i{bits}"), t.wf.warp, address, *values, lanes, i32(t.site()))
    return [old] if bits == 32 else list(t.known.split(c, old))


def _flat_atomic(t: IsaTranslator) -> None:
    i = t.instruction
    name = t.stem.split("_atomic_")[1]
    returns = bool(i.get("glc") or i.get("sc0") or i.get("th") & 1)
    at = 1 if returns else 0
    space, address = flat_address(t, at)
    old = apply_atomic(t, name, space, address, atomic_values(t, name, i.operands[at + 1]))
    if returns:
        set_registers(t, i.operands[0], old)


def _local_atomic(t: IsaTranslator) -> None:
    """An atomic operation on LDS: it publishes earlier stores; with a result it observes those of others."""
    i = t.instruction
    if i.get("gds"):
        raise t.error("global data share does not exist")
    returns = "_rtn_" in t.stem
    name = t.stem.removeprefix("ds_").replace("_rtn", "")
    count = atomic_registers(name)
    at = 1 if returns else 0
    address = local_address(t, i.operands[at], i.get("offset"))
    values = [_whole(t, registers(t, operand, count)) for operand in i.operands[at + 1 :]]
    if "cmpstore" in name and t.target.family != "gfx9":
        values.reverse()  # gfx9 has the expected value first, later targets the new value
    if returns:
        shadow_shared.observes(t.wf, address, t.active)
    how = STRONG if i.address in t.polled else 0
    old = apply_atomic(t, name, "shared", address, values, how=how)
    shadow_shared.published(t.wf)
    if returns:
        set_registers(t, i.operands[0], old)


for _operation in OPERATIONS:
    for _bits in ("16",) if _operation.startswith("pk") else ("32", "64"):
        for _segment in ("global", "flat"):
            MEANINGS[f"{_segment}_atomic_{_operation}{_bits}"] = _flat_atomic
        _stem, _, _kind = _operation.rpartition("_")
        MEANINGS[f"ds_{_operation}{_bits}"] = _local_atomic
        MEANINGS[f"ds_{_stem}_rtn_{_kind}{_bits}"] = _local_atomic


def _buffer_place(t: IsaTranslator, data: int) -> tuple[IrValue, IrValue]:
    """Return addresses, and an i1 each: the access of `data` bytes lies within the buffer.

    Raises `IsaError` for a buffer with index, and for accesses to LDS or with TFE.
    """
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


# Suffix of an access -> its bytes.
_SIZES = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "u8": 1, "i8": 1, "u16": 2, "i16": 2, "b8": 1, "b16": 2}


def _buffer_access(t: IsaTranslator) -> None:
    """A load or store; lanes outside the buffer load 0 and store nothing."""
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


def _buffer_atomic(t: IsaTranslator) -> None:
    """An atomic operation; lanes outside the buffer change nothing and get 0."""
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
        raise t.error("no register for the old value")
    for n, value in enumerate(old):
        t.set_vgpr(data.index + n, c.select(inside, value, c.zero(value.type)), data.file)


for _name in OPERATIONS:
    for _bits in ("16",) if _name.startswith("pk") else ("32", "64"):
        MEANINGS[f"buffer_atomic_{_name}{_bits}"] = _buffer_atomic
for _what in ("b32", "b64", "b96", "b128", "u8", "i8", "u16", "i16"):
    MEANINGS[f"buffer_load_{_what}"] = _buffer_access
for _what in ("b32", "b64", "b96", "b128", "b8", "b16"):
    MEANINGS[f"buffer_store_{_what}"] = _buffer_access
