"""Decodes operands and modifiers of the memory formats: SMEM, DS, FLAT with its segments, MUBUF.

Errors are `IsaError`s that name the dwords. Texts are those of LLVM's disassembler. Source: as `opcodes`.

Not here: the accesses (`memory`, `scalar_memory`, `memory_atomics`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.amd.isa.immediates import swizzle
from emulator.amd.isa.instruction import NULL, Operand, Reg, Word, inline, number
from emulator.amd.isa.vector_operands import made

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction
    from emulator.amd.isa.opcodes import Opcode, Slot
    from emulator.amd.isa.vector_operands import Reading

_SCOPES = ("SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
_LOAD_HINTS = ("RT", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT")
_STORE_HINTS = ("RT", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT")
_TWO = re.compile(r"2addr|read2|write2|wrxchg2")
"""DS instructions with two offsets."""
_CACHE = ("glc", "slc", "dlc", "sc0", "nt", "sc1")
"""The cache bits of targets before gfx12."""
_OFF = 0x7F
"""The encoding of a scalar base that does not exist."""


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _cache(reading: Reading, opcode: Opcode) -> tuple[dict[str, int], str]:
    """Return the fields of the cache policy, and their text."""
    if reading.target.family != "gfx12":
        found = {name: reading.field(name) for name in _CACHE}
        return found, "".join(f" {name}" for name, on in found.items() if on)
    scope, hint = reading.field("scope"), reading.field("th")
    text = ""
    if hint and "atomic" in opcode.name:
        names = {1: "RETURN", 2: "NT", 3: "NT_RETURN", 4: "CASCADE_RT", 6: "CASCADE_NT"}
        text = f" th:TH_ATOMIC_{names[hint]}" if hint in names else f" th:{hint:#x}"
    elif hint:
        kind, table = ("STORE", _STORE_HINTS) if "store" in opcode.name else ("LOAD", _LOAD_HINTS)
        word = "BYPASS" if hint == scope == 3 else table[hint] if hint < len(table) else ""
        text = f" th:TH_{kind}_{word}" if word else f" th:{hint:#x}"
    return {"scope": scope, "th": hint}, text + (f" scope:{_SCOPES[scope]}" if scope else "")


def _scalar_source(reading: Reading, code: int, count: int = 1) -> Operand:
    constant = inline(code, 32)
    if constant is not None:
        return constant
    if code > 127:
        raise reading.error(f"{code} is no scalar register")
    return Reg("s", code, count, gfx9=reading.target.family == "gfx9")


def decode(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode the operands and modifiers of an instruction of a memory format. Raises `IsaError`."""
    form = opcode.form.name if reading.form is None else reading.form.name
    if form == "SMEM":
        return _smem(reading, opcode)
    if form == "DS":
        return _ds(reading, opcode)
    if form == "MUBUF":
        return _mubuf(reading, opcode)
    return _flat(reading, opcode)


def _smem(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode SMEM: scalar loads, prefetches and cache instructions."""
    items: list[Operand] = []
    tail = ""
    cache, cache_text = _cache(reading, opcode)
    offset, family = reading.field("offset"), reading.target.family
    bits = {"gfx9": 21, "gfx11": 21, "gfx12": 24}[family]
    offset = _signed(offset, bits)
    modifiers = dict(cache)
    for slot in opcode.operands:
        if slot.field == "sdata":
            items.append(_scalar_source(reading, reading.field("sdata"), slot.dwords))
        elif slot.field == "sbase":
            items.append(Reg("s", 2 * reading.field("sbase"), slot.dwords, gfx9=family == "gfx9"))
    if any(slot.field == "soffset" for slot in opcode.operands):
        code = reading.field("soffset")
        if family == "gfx9":
            used = bool(reading.field("soffset_en")) or not reading.field("imm")
            shown = bool(reading.field("imm"))
        else:
            used, shown = code != NULL, True
        sign = "-" if offset < 0 else ""
        text = f"{sign}{abs(offset):#x}"
        if used:
            items.append(_scalar_source(reading, code))
            if offset and shown:
                tail += f" offset:{text}"
        else:
            items.append(Word(text, offset))
        modifiers |= {"offset": offset if shown else 0, "soffset": int(used)}
    return made(reading, opcode, opcode.name, items, modifiers, tail + cache_text)


def _data(reading: Reading, slot: Slot) -> Reg:
    file = "a" if reading.field("acc") else "v"
    return Reg(file, reading.field(slot.field), slot.dwords)


def _ds(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode DS: LDS and permutations."""
    items: list[Operand] = [
        _data(reading, s) if s.field != "addr" else Reg("v", reading.field("addr"), s.dwords)
        for s in opcode.operands
    ]
    low, high = reading.field("offset0"), reading.field("offset1")
    offset = low | high << 8
    tail = ""
    if _TWO.search(opcode.name):
        tail += f" offset0:{low}" if low else ""
        tail += f" offset1:{high}" if high else ""
    elif opcode.name == "ds_swizzle_b32":
        tail += f" offset:{swizzle(offset)}" if offset else ""
    elif offset:
        tail += f" offset:{offset}"
    gds = reading.field("gds")
    modifiers = {"offset0": low, "offset1": high, "offset": offset, "gds": gds}
    return made(reading, opcode, opcode.name, items, modifiers, tail + (" gds" if gds else ""))


def _returns(reading: Reading, opcode: Opcode) -> bool:
    """Return whether an instruction is an atomic operation that returns the old value."""
    if "atomic" not in opcode.name:
        return False
    return bool(reading.field("glc") or reading.field("sc0") or reading.field("th") & 1)


def _flat(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode FLAT, SCRATCH and GLOBAL."""
    cache, cache_text = _cache(reading, opcode)
    family = reading.target.family
    scratch, flat = opcode.name.startswith("scratch_"), opcode.name.startswith("flat_")
    base = reading.field("saddr")
    off = base in ({NULL, _OFF} if family != "gfx9" else {_OFF})
    if flat and family == "gfx9" and base == 0:
        off = True
    if flat and not off:
        raise reading.error("a flat address takes no scalar base")
    items: list[Operand] = []
    if _returns(reading, opcode):
        data = next(s for s in opcode.operands if s.field == "vdata")
        count = data.dwords // 2 if "cmpswap" in opcode.name else data.dwords
        items.append(Reg("a" if reading.field("acc") else "v", reading.field("vdst"), count))
    addressed = True
    for slot in opcode.operands:
        if slot.field in ("vdst", "vdata"):
            items.append(_data(reading, slot))
        elif slot.field in ("vaddr", "off"):
            addressed = _address(reading, items, off=off, scratch=scratch)
        elif slot.field == "saddr":
            count = 1 if scratch else 2
            items.append(Word("off") if off else _scalar_source(reading, base, count))
    offset = _signed(reading.field("offset"), 24 if family == "gfx12" else 13)
    if flat and family != "gfx12":  # the field's top bit is ignored: docs/sources-amd.md
        offset &= 0xFFF
    tail = f" offset:{offset}" if offset else ""
    modifiers = cache | {
        "offset": offset,
        "off": int(off),
        "addressed": int(addressed),
        "lds": reading.field("lds"),
    }
    return made(reading, opcode, opcode.name, items, modifiers, tail + cache_text)


def _address(reading: Reading, items: list[Operand], *, off: bool, scratch: bool) -> bool:
    """Append the vector part of an address, or "off"; return whether there is one."""
    register = reading.field("vaddr")
    if not scratch:
        items.append(Reg("v", register, 2 if off else 1))
        return True
    used = bool(reading.field("sve"))
    items.append(Reg("v", register) if used else Word("off"))
    return used


def _mubuf(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode MUBUF: accesses through buffer descriptors."""
    cache, cache_text = _cache(reading, opcode)
    by_offset, by_index = reading.field("offen"), reading.field("idxen")
    items: list[Operand] = []
    for slot in opcode.operands:
        if slot.field == "vdata":
            items.append(_data(reading, slot))
        elif slot.field in ("off", "vaddr"):
            count = by_offset + by_index
            items.append(Reg("v", reading.field("vaddr"), count) if count else Word("off"))
        elif slot.field == "srsrc":
            first = reading.field("srsrc") * (1 if reading.target.family == "gfx12" else 4)
            items.append(Reg("s", first, 4, gfx9=reading.target.family == "gfx9"))
        elif slot.field == "soffset":
            code = reading.field("soffset")
            items.append(number(0) if code == 128 else _scalar_source(reading, code))
    offset = reading.field("offset")
    tail = (
        (" idxen" if by_index else "")
        + (" offen" if by_offset else "")
        + (f" offset:{offset}" if offset else "")
    )
    tail += cache_text + (" lds" if reading.field("lds") else "") + (" tfe" if reading.field("tfe") else "")
    modifiers = cache | {
        "offen": by_offset, "idxen": by_index, "offset": offset, "lds": reading.field("lds"), "tfe": reading.field("tfe")
    }  # fmt: skip
    return made(reading, opcode, opcode.name, items, modifiers, tail)
