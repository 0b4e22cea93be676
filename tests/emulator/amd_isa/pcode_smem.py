"""Every load of the scalar unit against the ISA documents' pseudo-code: each form of offset, each low bit, each end.

The pseudo-code says which dwords of memory go to which registers, from an address on. That address is here, as "Scalar
Memory Addressing" of the RDNA3, RDNA4 and CDNA3 documents has it: bits below a unit are ignored in each of its parts;
of a buffer before gfx12 the two offsets are added first. A buffer's dwords behind its end are zero.

Not here: loads of vectors (`pcode_memory`), counting (`pcode_tally`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.opcodes import Opcode, target
from emulator.shared.memory import AddressSpace
from tests.emulator.amd_isa import pcode, single
from tests.emulator.amd_isa.pcode_values import value
from tests.emulator.amd_isa.single import LITERAL, encode, move
from tools.record.amd.encode import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = 256
"""Bytes from the region's begin to what is loaded."""
SCALAR, DESTINATION = 12, 16
"""s12 is the offset's register; s[16:31] is written."""
NO_LIMIT = 1 << 30


@dataclass(frozen=True)
class Load:
    """One load: its constant, its register with what that holds, what the base has in its low bits, a buffer's end."""

    opcode: Opcode
    number: int
    text: str
    offset: int
    register: int | None
    """The register's content; without one there is no register."""
    m0: bool
    low: int
    short: int = 0
    """Bytes that a buffer lacks of what is loaded."""

    @property
    def buffer(self) -> bool:
        return self.opcode.name.startswith("s_buffer_")

    @property
    def unit(self) -> int:
        bits = re.search(r"MEM\[\w+\]\.[ui](8|16)", self.text)
        return int(bits[1]) // 8 if bits else 4

    @property
    def dwords(self) -> int:
        return next(s.dwords for s in self.opcode.operands if s.field == "sdata")

    @property
    def label(self) -> str:
        return f"{self.opcode.name} {self.offset:#x} {self.register} {'m0' * self.m0} low {self.low} short {self.short}"


def ends(family: str) -> tuple[int, int]:
    """Return the least and the largest constant: 21 bits with a sign, or 24."""
    bits = 24 if family == "gfx12" else 21
    return -1 << bits - 1, (1 << bits - 1) - 1


def loads(name: str) -> Iterator[Load]:
    """Yield every load with every form of its offset."""
    family, known = target(name).family, pcode.table(name)
    least, most = ends(family)
    for (kind, number), opcode in target(name).opcodes.items():
        entry = known.get((kind, number))
        if kind != "SMEM" or entry is None or not re.match(r"s_(buffer_)?load", opcode.name):
            continue
        some = Load(opcode, number, entry[1], 0, None, m0=False, low=0)
        far = 0x2000_0006 if some.buffer else 0xFFFF_FFF6
        registers: tuple[tuple[int | None, bool], ...] = ((None, False), (6, False), (3, True), (far, False))
        for offset, (register, m0), low in product((0, 1, 3, 4, most), registers, range(4)):
            yield Load(opcode, number, entry[1], offset, register, m0, low)
        if some.buffer:
            for short, low in product((4, 4 * some.dwords), (0, 3)):
                yield Load(opcode, number, entry[1], 5, 2, m0=False, low=low, short=short)
        else:
            yield from (
                Load(opcode, number, entry[1], n, 1 - least, m0, 1)
                for n in (-1, least)
                for m0 in (False, True)
            )


def undefined(name: str) -> Iterator[Load]:
    """Yield loads whose offset the documents call illegal: a negative one, of a buffer also with a register."""
    for one in loads(name):
        if (
            (one.offset, one.low) == (1, 0)
            and one.register in (None, 6)
            and (one.buffer or one.register is None)
        ):
            yield Load(one.opcode, one.number, one.text, -4, one.register, one.m0, 0)


def distance(one: Load, family: str) -> int:
    """Return how far behind the aligned base a load begins."""
    parts = (one.offset, one.register or 0)
    if one.buffer and family != "gfx12":
        return sum(parts) & -4
    return sum(part & -one.unit for part in parts)


def words_of(name: str, one: Load) -> list[int]:
    """Return code that makes the base, loads, and stores what came."""
    family = target(name).family
    base = AT - distance(one, family) & -one.unit | one.low & one.unit - 1
    size = distance(one, family) + 4 * one.dwords - one.short if one.short else NO_LIMIT
    stride = 4 if one.short and one.low else 0  # the size then counts structures
    m0 = 124 if family == "gfx9" else 125
    fields = {"sdata": DESTINATION, "sbase": 8 // 2, "offset": one.offset}
    if one.register is not None:
        fields |= {"soffset": m0 if one.m0 else SCALAR, "soffset_en": 1, "imm": 1}
        if not one.offset:
            fields["imm"] = 0
            if one.low & 1:  # the register's number instead of the constant
                fields |= {"soffset_en": 0, "offset": fields["soffset"]} if family == "gfx9" else {}
    else:
        fields |= {"soffset": 124 if family != "gfx9" else 0, "imm": 1}
    words = [
        *encode(name, "s_add_u32", "SOP2", base, sdst=8, ssrc0=0, ssrc1=LITERAL),
        *encode(name, "s_addc_u32", "SOP2", (base >> 32) + (stride << 16), sdst=9, ssrc0=1, ssrc1=LITERAL),
        *encode(name, "s_mov_b32", "SOP1", size // (stride or 1), sdst=10, ssrc0=LITERAL),
        *encode(name, "s_mov_b32", "SOP1", one.register or 0, sdst=m0 if one.m0 else SCALAR, ssrc0=LITERAL),
        *packed(one.opcode, one.number, fields),
        0xBF8C_0000 if family == "gfx9" else 0xBF89_0000 if family == "gfx11" else 0xBFC7_0000,
    ]
    for n in range(one.dwords):
        words += [*move(name, 2, DESTINATION + n), *single.access(name, "global_store_b32", 2, 4 * n, 2)]
    return [*words, *encode(name, "v_add_nc_u32", "VOP2", 4 * one.dwords, vdst=1, src0=LITERAL, vsrc1=1)]


def wanted(some: list[Load], region: np.ndarray[Any, Any], family: str) -> list[list[int]]:
    """Return the registers that loads of one operation write, by its text."""
    contents = []
    for one in some:
        start = (AT - distance(one, family) & -one.unit) + distance(one, family)
        kept = region.tobytes()[start:][: 4 * one.dwords - one.short]
        contents.append(int.from_bytes(kept.ljust(64, b"\0")[:64], "little"))
    count = len(some)
    registers = {"MEM": value("b", 512, np.array(contents, object)), "ADDR": value("u", 64, 0),
                 "SDATA": value("b", 512, np.zeros(count, object))}  # fmt: skip
    after = pcode.program(some[0].text).run(registers, count, 64, {})["SDATA"].raw
    return [
        [int(v) >> 32 * n & 0xFFFF_FFFF for n in range(one.dwords)]
        for one, v in zip(some, after, strict=True)
    ]


def differences(name: str, some: list[Load]) -> list[str]:
    """Run loads of one operation; return those that differ."""
    code = [word for one in some for word in words_of(name, one)]
    ready, memory = single.program(name, [*move(name, 1, 128), *code]), AddressSpace()
    region = np.random.default_rng(3).integers(0, 1 << 32, 256, dtype="u4")
    region[AT // 4] |= 0x8080  # negative as 8 and as 16 bits
    out = np.zeros((len(some), some[0].dwords), "u4")
    single.run(ready, memory, [*single.mapped(memory, region), *single.mapped(memory, out)], 1)
    meant = wanted(some, region, target(name).family)
    return [
        f"{one.label}: {[hex(v) for v in got]}, wanted {[hex(v) for v in right]}"
        for one, got, right in zip(some, out.tolist(), meant, strict=True)
        if got != right
    ]
