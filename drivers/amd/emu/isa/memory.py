"""Loads and stores: flat, global, scratch, LDS.

Memory answers at once; whether code waits for it where it must is judged apart (`waits`). Accesses may have
any alignment, atomic operations and scalar loads excepted: Linux sets SH_MEM_CONFIG.ALIGNMENT_MODE to UNALIGNED,
as code objects of HSA have it (LLVM's `unaligned-access-mode`).

Not here: atomic operations (`memory_atomics`), scalar loads (`scalar_memory`), `buffers`, operands
(`memory_operands`), address checks (`drivers.emu.simt.access`).
"""

# ruff: noqa: E501, PLR0917 - an access has that many parts; tables of operations read best one a line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import MEANINGS
from drivers.amd.emu.isa.operands import Operand, Reg
from drivers.emu.simt import access
from drivers.emu.simt.addresses import STRONG, address_type
from drivers.emu.simt.findings import i32
from drivers.emu.simt.ir_types import bits_of
from drivers.emu.simt.rows import structure, try_load, try_store

if TYPE_CHECKING:
    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code, Value

_SPACES = {"global": "global", "scratch": "local", "flat": "generic"}
_AGENT = 2
"""The first scope of gfx12 that reaches other compute units."""


def how(t: Translator) -> int:
    """Return how far an access is seen: STRONG beyond the compute unit, else 0."""
    i = t.instruction
    wide = i.get("glc") or i.get("dlc") or i.get("sc0") or i.get("sc1") or i.get("scope") >= _AGENT
    return STRONG if wide else 0


def flat_address(t: Translator, at: int) -> tuple[str, Value]:
    """Return the space and the addresses of a FLAT instruction whose address operand is number `at`."""
    c, i = t.c, t.instruction
    space = _SPACES[t.stem.split("_", 1)[0]]
    vector, base = i.operands[at], _base(t)
    offset = i.get("offset")
    if space == "local":
        address = t.raw(vector) if isinstance(vector, Reg) else c.zero(t.v("i32"))
        if base is not None:
            address = c.op("add", address, c.splat(t.scalar(base), t.lanes))
        return space, c.op("add", address, offset) if offset else address
    if base is None:
        address = t.raw(vector, 64)
    else:
        address = c.op("add", c.resize(t.raw(vector), 64), c.splat(t.scalar(base, 64), t.lanes))
    return space, c.op("add", address, offset) if offset else address


def _base(t: Translator) -> Operand | None:
    last = t.instruction.operands[-1]
    return last if isinstance(last, Reg) and last.file == "s" else None


def local_address(t: Translator, operand: Operand, offset: int) -> Value:
    """Return addresses in LDS."""
    address = t.raw(operand)
    return t.c.op("add", address, offset) if offset else address


def _access(lib: Library, space: str, bits: int, count: int, *, stores: bool, how: int) -> str:
    """Return a helper that loads or stores `count` integers of `bits` a lane: at once where all lanes are aligned.

    Else dword by dword, and dwords and halves that are not aligned themselves byte by byte. Rows of lanes that
    follow one another may have any alignment.
    """
    plain = access.store if stores else access.load
    how = how if lib.checks.any else 0
    if bits == 8:
        return plain(lib, space, bits, count, how)
    one = lib.v(f"i{bits}")
    result = "void" if stores else _result(lib, bits, count)
    parameters = {"warp": "ptr", "addresses": address_type(lib, space)}
    if stores:
        parameters |= {f"value{k}": one for k in range(count)}
    pieces = (8, bits // 8) if count == 1 else (bits, count)
    rows_first = access.quick(lib, space)

    def body(k: Code, warp: Value, addresses: Value, *rest: Value) -> None:
        values, (mask, site) = rest[:-2], rest[-2:]
        if rows_first and stores:
            try_store(lib, k, space, warp, addresses, list(values), mask, site, aligned=False)
        elif rows_first:
            try_load(lib, k, space, warp, addresses, mask, site, bits, count, aligned=False)
        if rows_first and lib.target.gathers:  # where helpers are inlined, all else is a call
            far = lib.define(f"{name}.any", result, parameters, others, core=True)
            found = k.call(far, result, warp, addresses, *rest)
            k.ret(None if stores else found)
            return
        others(k, warp, addresses, *rest)

    def others(k: Code, warp: Value, addresses: Value, *rest: Value) -> None:
        values, (mask, site) = rest[:-2], rest[-2:]
        if rows_first and space == "global" and (stores or count == 1):
            access.try_any_place(
                lib, k, warp, addresses, mask, site, bits, values=list(values) if stores else None
            )
        odd = k.mask_bits(k.icmp("ne", k.op("and", addresses, bits // 8 * count - 1), 0))
        aligned = k.icmp("eq", k.op("and", odd, mask), 0)
        k.emit(f"br {aligned}, label %aligned, label %apart, !prof !0")
        k.label("aligned")
        inner = plain(lib, space, bits, count, how, any_place=rows_first)
        whole = k.call(inner, result, warp, addresses, *values, mask, site)
        k.ret(None if stores else whole)
        k.label("apart")
        single = _access(lib, space, pieces[0], 1, stores=stores, how=how)
        places = [k.op("add", addresses, n * pieces[0] // 8) if n else addresses for n in range(pieces[1])]
        if stores:
            parts = values if count > 1 else [
                k.resize(k.op("lshr", values[0], 8 * n), 8) for n in range(pieces[1])
            ]  # fmt: skip
            for place, part in zip(places, parts, strict=True):
                k.call(single, "void", warp, place, part, mask, site)
            k.ret()
            return
        found = [k.call(single, lib.v(f"i{pieces[0]}"), warp, place, mask, site) for place in places]
        k.ret(structure(k, found) if count > 1 else _joined(k, bits, found))

    hot = count == 1 and space == "global"
    name = f"amd.{'store' if stores else 'load'}.{space}.{bits}x{count}.{how}"
    parameters |= {"mask": lib.mask, "site": "i32"}
    return lib.define(name, result, parameters, body, core=True, hot=hot)


def _result(lib: Library, bits: int, count: int) -> str:
    one = lib.v(f"i{bits}")
    return one if count == 1 else "{ " + ", ".join([one] * count) + " }"


def _joined(c: Code, bits: int, parts: list[Value]) -> Value:
    """Join bytes, the lowest first."""
    whole = c.resize(parts[0], bits)
    for n, part in enumerate(parts[1:], 1):
        whole = c.op("or", whole, c.op("shl", c.resize(part, bits), 8 * n))
    return whole


def define_core(lib: Library) -> None:
    """Write the accesses that kernels commonly use."""
    for space in ("global", "shared", "local"):
        for bits, count in ((16, 1), (32, 1), (32, 2), (32, 4)):
            for stores in (False, True):
                _access(lib, space, bits, count, stores=stores, how=0)


def _load(t: Translator, space: str, bits: int, address: Value, mask: Value, how: int) -> Value:
    """Return one integer a lane."""
    helper = _access(t.lib, space, bits, 1, stores=False, how=how)
    return t.c.call(helper, t.v(f"i{bits}"), t.wf.warp, address, mask, i32(t.site()))


def _store(t: Translator, space: str, address: Value, value: Value, mask: Value, how: int) -> None:
    """Store one integer a lane."""
    helper = _access(t.lib, space, bits_of(value.type), 1, stores=True, how=how)
    t.c.call(helper, "void", t.wf.warp, address, value, mask, i32(t.site()))


def load_dwords(
    t: Translator, space: str, address: Value, count: int, mask: Value, how: int = 0
) -> list[Value]:
    """Return `count` dwords a lane."""
    if count == 1:
        return [_load(t, space, 32, address, mask, how)]
    if count == 3:
        last = t.c.op("add", address, 8)
        return load_dwords(t, space, address, 2, mask, how) + load_dwords(t, space, last, 1, mask, how)
    result = _result(t.lib, 32, count)
    helper = _access(t.lib, space, 32, count, stores=False, how=how)
    whole = t.c.call(helper, result, t.wf.warp, address, mask, i32(t.site()))
    return [t.c.let(t.v("i32"), f"extractvalue {whole}, {n}") for n in range(count)]


def store_dwords(
    t: Translator, space: str, address: Value, values: list[Value], mask: Value, how: int = 0
) -> None:
    """Store dwords, one after another, a lane."""
    if len(values) == 1:
        _store(t, space, address, values[0], mask, how)
    elif len(values) == 3:
        store_dwords(t, space, address, values[:2], mask, how)
        store_dwords(t, space, t.c.op("add", address, 8), values[2:], mask, how)
    else:
        helper = _access(t.lib, space, 32, len(values), stores=True, how=how)
        t.c.call(helper, "void", t.wf.warp, address, *values, mask, i32(t.site()))


def registers(t: Translator, operand: Operand, count: int) -> list[Value]:
    """Return the data of an access, a register each."""
    if not isinstance(operand, Reg):
        raise t.error(f"{operand} holds no data")
    return [t.vgpr(operand.index + n, operand.file) for n in range(count)]


def set_registers(t: Translator, operand: Operand, values: list[Value]) -> None:
    """Write what was loaded, a register each."""
    if not isinstance(operand, Reg):
        raise t.error(f"{operand} takes no data")
    for n, value in enumerate(values):
        t.set_vgpr(operand.index + n, value, operand.file)


def load(
    t: Translator, what: str, destination: Operand, space: str, address: Value, mask: Value, how: int
) -> None:
    """Load as a suffix says: b32 to b128; u8, i8, u16, i16; d16_*, d16_hi_* into a half."""
    c = t.c
    if what in ("b32", "b64", "b96", "b128"):
        set_registers(t, destination, load_dwords(t, space, address, int(what[1:]) // 32, mask, how))
        return
    match = re.fullmatch(r"(d16_hi_|d16_)?([uib])(8|16)(_d16_hi|_d16)?", what)
    if match is None or not isinstance(destination, Reg):
        raise t.error("this access is not supported")
    bits = int(match[3])
    value = _load(t, space, bits, address, mask, how)
    half = (match[1] or match[4] or "").strip("_")
    if not half:
        t.set_vgpr(destination.index, c.resize(value, 32, signed=match[2] == "i"), destination.file)
        return
    wide = c.resize(c.resize(value, 16, signed=match[2] == "i"), 32)
    old = t.vgpr(destination.index, destination.file)
    if half == "d16_hi":
        both = c.op("or", c.op("and", old, 0xFFFF), c.op("shl", wide, 16))
    else:
        both = c.op("or", c.op("and", old, 0xFFFF_0000), wide)
    t.set_vgpr(destination.index, both, destination.file)


def store(
    t: Translator, what: str, source: Operand, space: str, address: Value, mask: Value, how: int
) -> None:
    """Store as a suffix says: b8 to b128; d16_hi_* from the upper half."""
    c = t.c
    if what in ("b32", "b64", "b96", "b128"):
        store_dwords(t, space, address, registers(t, source, int(what[1:]) // 32), mask, how)
        return
    match = re.fullmatch(r"(d16_hi_)?b(8|16)(_d16_hi)?", what)
    if match is None:
        raise t.error("this access is not supported")
    (value,) = registers(t, source, 1)
    if match[1] or match[3]:
        value = c.op("lshr", value, 16)
    _store(t, space, address, c.resize(value, int(match[2])), mask, how)


def _flat_access(t: Translator) -> None:
    verb, what = t.stem.split("_", 2)[1:]
    if t.instruction.get("lds"):
        raise t.error("loads into LDS are not supported")
    first, second = t.instruction.operands[:2]
    space, address = flat_address(t, 1 if verb == "load" else 0)
    if verb == "load":
        load(t, what, first, space, address, t.active, how(t))
    else:
        store(t, what, second, space, address, t.active, how(t))


for _segment in _SPACES:
    for _what in (
        "b32",
        "b64",
        "b96",
        "b128",
        "u8",
        "i8",
        "u16",
        "i16",
        "d16_u8",
        "d16_i8",
        "d16_b16",
        "d16_hi_u8",
        "d16_hi_i8",
        "d16_hi_b16",
    ):
        MEANINGS[f"{_segment}_load_{_what}"] = _flat_access
    for _what in ("b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16"):
        MEANINGS[f"{_segment}_store_{_what}"] = _flat_access


def _local_access(t: Translator) -> None:
    verb, what = t.stem.split("_", 2)[1:]
    i = t.instruction
    if i.get("gds"):
        raise t.error("global data share does not exist")
    first, second = i.operands[:2]
    address = local_address(t, second if verb == "load" else first, i.get("offset"))
    if verb == "load":
        load(t, what, first, "shared", address, t.active, 0)
    else:
        store(t, what, second, "shared", address, t.active, 0)


for _what in (
    "b32",
    "b64",
    "b96",
    "b128",
    "u8",
    "i8",
    "u16",
    "i16",
    "u8_d16",
    "u8_d16_hi",
    "i8_d16",
    "i8_d16_hi",
    "u16_d16",
    "u16_d16_hi",
):
    MEANINGS[f"ds_load_{_what}"] = _local_access
for _what in ("b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi"):
    MEANINGS[f"ds_store_{_what}"] = _local_access


def _local_pair(t: Translator) -> None:
    """Two accesses whose offsets count elements, or 64 of them."""
    i, c = t.instruction, t.c
    if i.get("gds"):
        raise t.error("global data share does not exist")
    bits = int(t.stem[-2:])
    step = bits // 8 * (64 if "stride64" in t.stem else 1)
    count = bits // 32
    loads = "_load_" in t.stem
    base = t.raw(i.operands[1] if loads else i.operands[0])
    places = [c.op("add", base, i.get(f"offset{k}") * step) for k in range(2)]
    if not loads:
        data = [registers(t, operand, count) for operand in i.operands[1:3]]
        for place, values in zip(places, data, strict=True):
            store_dwords(t, "shared", place, values, t.active)
        return
    found = [value for place in places for value in load_dwords(t, "shared", place, count, t.active)]
    set_registers(t, i.operands[0], found)


for _bits in ("32", "64"):
    for _verb in ("load", "store"):
        for _stride in ("", "_stride64"):
            MEANINGS[f"ds_{_verb}_2addr{_stride}_b{_bits}"] = _local_pair
