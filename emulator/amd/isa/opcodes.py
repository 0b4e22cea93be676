"""The encoding formats of AMD's targets, and the opcodes of a target with their operands and modifiers.

A format says which prefix selects it, and where its fields lie. An encoding is an integer of 32, 64 or 96 bits,
the first dword lowest. Formats are tried in order, so a longer prefix comes first. Sources: AMD's machine-readable
ISA descriptions (RDNA3, RDNA4, CDNA3) and LLVM's AMDGPU assembler syntax pages.

The opcodes are read from a table that `tools.amd_isa` makes from LLVM's disassembler; `tools/amd_isa.py` states
its format. Not here: decoding (`decode`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hcq.errors import UnsupportedError

Field = tuple[int, int]
"""Lowest bit, number of bits."""


@dataclass(frozen=True, slots=True)
class EncodingFormat:
    """One encoding format."""

    name: str
    prefix: str
    """The top bits of the first dword as text, from bit 31 down."""
    dwords: int
    """Its length without literals."""
    fields: Mapping[str, Field]
    base: int = field(init=False)
    """The encoding with every field zero."""
    known_bits: int = field(init=False)
    """The bits that the prefix or some field covers."""

    def __post_init__(self) -> None:
        """Compute `base` and `known_bits`, which decoding needs for every instruction."""
        below = 32 - len(self.prefix)
        known = (1 << 32) - (1 << below)
        for low, width in self.fields.values():
            known |= ((1 << width) - 1) << low
        object.__setattr__(self, "base", int(self.prefix, 2) << below)
        object.__setattr__(self, "known_bits", known)

    def matches(self, dword: int) -> bool:
        """Return whether an instruction's first dword has this format's prefix."""
        return (dword ^ self.base) >> (32 - len(self.prefix)) == 0

    def get(self, encoding: int, field: str) -> int:
        """Return a field of an encoding; 0 if the format does not have it."""
        if field not in self.fields:
            return 0
        low, width = self.fields[field]
        return encoding >> low & (1 << width) - 1

    def put(self, encoding: int, field: str, value: int) -> int:
        """Return the encoding with a field set; higher bits of the value are dropped."""
        low, width = self.fields[field]
        mask = (1 << width) - 1
        return encoding & ~(mask << low) | (value & mask) << low


def _format(name: str, prefix: str, dwords: int = 1, /, **fields: Field) -> EncodingFormat:
    return EncodingFormat(name, prefix, dwords, fields)


_SCALAR = (
    _format("SOP1", "101111101", op=(8, 8), sdst=(16, 7), ssrc0=(0, 8)),
    _format("SOPC", "101111110", op=(16, 7), ssrc1=(8, 8), ssrc0=(0, 8)),
    _format("SOPP", "101111111", op=(16, 7), simm16=(0, 16)),
    _format("SOPK", "1011", op=(23, 5), sdst=(16, 7), simm16=(0, 16)),
    _format("SOP2", "10", op=(23, 7), sdst=(16, 7), ssrc1=(8, 8), ssrc0=(0, 8)),
)
_VECTOR = (
    _format("VOP1", "0111111", op=(9, 8), vdst=(17, 8), src0=(0, 9)),
    _format("VOPC", "0111110", op=(17, 8), vsrc1=(9, 8), src0=(0, 9)),
    _format("VOP2", "0", op=(25, 6), vdst=(17, 8), vsrc1=(9, 8), src0=(0, 9)),
)
_SOURCES: dict[str, Field] = {"src0": (32, 9), "src1": (41, 9), "src2": (50, 9)}


def _vop3(prefix: str) -> EncodingFormat:
    return _format(
        "VOP3", prefix, 2, op=(16, 10), vdst=(0, 8), abs=(8, 3), op_sel=(11, 4), clamp=(15, 1), **_SOURCES,
        omod=(59, 2), neg=(61, 3),
    )  # fmt: skip


def _vop3sd(prefix: str) -> EncodingFormat:
    return _format(
        "VOP3SD", prefix, 2, op=(16, 10), vdst=(0, 8), sdst=(8, 7), clamp=(15, 1), **_SOURCES, omod=(59, 2), neg=(61, 3)
    )  # fmt: skip


def _vop3p(prefix: str) -> EncodingFormat:
    return _format(
        "VOP3P", prefix, 2, op=(16, 7), vdst=(0, 8), neg_hi=(8, 3), op_sel=(11, 3), op_sel_hi2=(14, 1), clamp=(15, 1),
        **_SOURCES, op_sel_hi=(59, 2), neg=(61, 3),
    )  # fmt: skip


_VOPD = _format(
    "VOPD", "110010", 2, opx=(22, 4), opy=(17, 5), vsrc1x=(9, 8), src0x=(0, 9), vdstx=(56, 8), vdsty=(49, 7),
    vsrc1y=(41, 8), src0y=(32, 9),
)  # fmt: skip
_DS: dict[str, Field] = {
    "vdst": (56, 8),
    "data1": (48, 8),
    "data0": (40, 8),
    "addr": (32, 8),
    "offset1": (8, 8),
    "offset0": (0, 8),
}
_FLAT: dict[str, Field] = {
    "vdst": (56, 8),
    "saddr": (48, 7),
    "vdata": (40, 8),
    "vaddr": (32, 8),
    "offset": (0, 13),
}
_BUFFER: dict[str, Field] = {
    "vaddr": (32, 8),
    "vdata": (40, 8),
    "srsrc": (48, 5),
    "soffset": (56, 8),
    "offset": (0, 12),
}

GFX11 = (
    *_SCALAR,
    _format("SMEM", "111101", 2, op=(18, 8), dlc=(13, 1), glc=(14, 1), sdata=(6, 7), sbase=(0, 6), offset=(32, 21),
            soffset=(57, 7)),
    *_VECTOR,
    _vop3("110101"),
    _vop3p("11001100"),
    _VOPD,
    _format("DS", "110110", 2, op=(18, 8), gds=(17, 1), **_DS),
    _format("FLAT", "110111", 2, op=(18, 7), seg=(16, 2), slc=(15, 1), glc=(14, 1), dlc=(13, 1), sve=(55, 1), **_FLAT),
    _format("MUBUF", "111000", 2, op=(18, 8), slc=(12, 1), dlc=(13, 1), glc=(14, 1), tfe=(53, 1), offen=(54, 1),
            idxen=(55, 1), **_BUFFER),
)  # fmt: skip
_GFX12_MEMORY: dict[str, Field] = {
    "op": (14, 8), "saddr": (0, 7), "vdst": (32, 8), "sve": (49, 1), "scope": (50, 2), "th": (52, 3), "vdata": (55, 8),
    "vaddr": (64, 8), "offset": (72, 24),
}  # fmt: skip
GFX12 = (
    *_SCALAR,
    _format("SMEM", "111101", 2, op=(13, 6), scope=(21, 2), th=(23, 2), sdata=(6, 7), sbase=(0, 6), offset=(32, 24),
            soffset=(57, 7)),
    *_VECTOR,
    _vop3("110101"),
    _vop3p("11001100"),
    _VOPD,
    _format("DS", "110110", 2, op=(18, 8), **_DS),
    _format("FLAT", "11101100", 3, **_GFX12_MEMORY),
    _format("SCRATCH", "11101101", 3, **_GFX12_MEMORY),
    _format("GLOBAL", "11101110", 3, **_GFX12_MEMORY),
    _format("MUBUF", "110001", 3, op=(14, 8), tfe=(22, 1), soffset=(0, 7), vdata=(32, 8), srsrc=(41, 9), scope=(50, 2),
            th=(52, 3), format=(55, 7), offen=(62, 1), idxen=(63, 1), vaddr=(64, 8), offset=(72, 24)),
)  # fmt: skip
GFX9 = (
    *_SCALAR,
    _format("SMEM", "110000", 2, op=(18, 8), imm=(17, 1), glc=(16, 1), soffset_en=(14, 1), sdata=(6, 7), sbase=(0, 6),
            offset=(32, 21), soffset=(57, 7)),
    *_VECTOR,
    _format("MFMA", "1101001111", 2, op=(16, 6), vdst=(0, 8), cbsz=(8, 3), abid=(11, 4), acc_cd=(15, 1), **_SOURCES,
            acc=(59, 2), blgp=(61, 3)),
    # Numbers 62 and 63 of VOP3P have the fields of MFMA.
    _format("XF32", "110100111011111", 2, op=(16, 1), vdst=(0, 8), cbsz=(8, 3), abid=(11, 4), acc_cd=(15, 1), **_SOURCES,
            acc=(59, 2), blgp=(61, 3)),
    _vop3p("110100111"),
    _vop3("110100"),
    _format("DS", "110110", 2, op=(17, 8), gds=(16, 1), acc=(25, 1), **_DS),
    _format("FLAT", "110111", 2, op=(18, 7), sc1=(25, 1), nt=(17, 1), sc0=(16, 1), seg=(14, 2), sve=(13, 1), acc=(55, 1),
            **_FLAT),
    _format("MUBUF", "111000", 2, op=(18, 7), offen=(12, 1), idxen=(13, 1), sc0=(14, 1), sc1=(15, 1), lds=(16, 1),
            nt=(17, 1), acc=(55, 1), **_BUFFER),
)  # fmt: skip
VOP3SD = {"gfx11": _vop3sd("110101"), "gfx12": _vop3sd("110101"), "gfx9": _vop3sd("110100")}
"""Family -> the format of a VOP3 opcode with a scalar destination; its prefix is that of VOP3."""
DPP16: dict[str, Field] = {
    "dpp_src0": (0, 8), "dpp_ctrl": (8, 9), "fi": (18, 1), "bound_ctrl": (19, 1), "neg": (20, 1), "abs": (21, 1),
    "neg1": (22, 1), "abs1": (23, 1), "bank_mask": (24, 4), "row_mask": (28, 4),
}  # fmt: skip
"""Fields of the dword after an instruction whose first source is 250."""
SDWA: dict[str, Field] = {
    "src0": (0, 8), "dst_sel": (8, 3), "dst_unused": (11, 2), "clamp": (13, 1), "omod": (14, 2), "src0_sel": (16, 3),
    "src0_sext": (19, 1), "src0_neg": (20, 1), "src0_abs": (21, 1), "s0": (23, 1), "src1_sel": (24, 3),
    "src1_sext": (27, 1), "src1_neg": (28, 1), "src1_abs": (29, 1), "s1": (31, 1),
}  # fmt: skip
"""Fields of the dword after a gfx9 instruction whose first source is 249; comparisons have sdst (8, 7) and sd (15, 1)."""


# Folder of the tables.
_TABLES = Path(__file__).parent / "tables"
FAMILIES: Final[Mapping[str, tuple[str, tuple[EncodingFormat, ...], str]]] = MappingProxyType(
    {
        "gfx1100": ("gfx11", GFX11, ""),
        "gfx1151": ("gfx11", GFX11, "gfx1100"),
        "gfx1200": ("gfx12", GFX12, "gfx1201"),
        "gfx1201": ("gfx12", GFX12, ""),
        "gfx942": ("gfx9", GFX9, ""),
        "gfx950": ("gfx9", GFX9, "gfx942"),
    }
)
"""Processor -> its family, its formats, and the processor whose table its own changes; "": none."""
_FNUZ = frozenset({"gfx942"})
"""Processors whose 8-bit floats have neither infinities nor -0; others have those of OCP."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand as an opcode declares it."""

    field: str
    """A field of the format, or a fixed word: "vcc", "off"."""
    dwords: int = 0
    """0 for a fixed word."""
    mask: bool = False
    """Whether it is a mask of lanes: one dword, or two in a wave of 64."""
    scalar: bool = False
    """Whether a field for vector registers holds a scalar register."""
    accumulator: bool = False
    """Whether it is an accumulation register."""


@dataclass(frozen=True, slots=True)
class Opcode:
    """One opcode of one format."""

    form: EncodingFormat
    name: str
    """The assembler's name, with the suffix of the encoding ("_e32", "_e64")."""
    operands: tuple[Slot, ...]
    literal: bool
    """Whether a dword of constant always follows."""
    modifiers: dict[str, str]
    """Modifier field that the opcode uses -> the bits that it uses of a field of several, else ""."""
    stem: str = field(init=False)
    """The name without the suffix of the encoding."""

    def __post_init__(self) -> None:
        """Compute `stem`, which translation needs often."""
        object.__setattr__(self, "stem", self.name.removesuffix("_e32").removesuffix("_e64"))


@dataclass(frozen=True, slots=True)
class IsaTarget:
    """A processor: its formats, in the order in which they are tried, and its opcodes by (format, number)."""

    name: str
    family: str
    """"gfx9", "gfx11" or "gfx12"."""
    formats: tuple[EncodingFormat, ...]
    opcodes: dict[tuple[str, int], Opcode]

    @property
    def fnuz(self) -> bool:
        """Whether 8-bit floats have neither infinities nor -0."""
        return self.name in _FNUZ

    @property
    def lanes(self) -> int:
        """Lanes of a wave if the kernel's descriptor does not say."""
        return 64 if self.family == "gfx9" else 32

    @property
    def halves(self) -> bool:
        """Whether 16-bit operands are halves of registers; in short encodings bit 7 of a register selects the half."""
        return self.family != "gfx9"

    @property
    def null(self) -> int:
        """The encoding of the null register; -1 if the family has none."""
        return -1 if self.family == "gfx9" else 124


def _slot(word: str) -> Slot:
    """Parse an operand of the table: FIELD, or FIELD:DWORDS with "m" for a mask, and @s or @a."""
    if ":" not in word:
        return Slot(word)
    field, _, rest = word.partition(":")
    size, *kinds = rest.split("@")
    mask = size == "m"
    return Slot(field, 1 if mask else int(size), mask, "s" in kinds, "a" in kinds)


def _line(line: str, formats: dict[str, EncodingFormat]) -> tuple[tuple[str, int], Opcode]:
    """Parse a line of the table: FORMAT NUMBER NAME OPERANDS | MODIFIERS."""
    head, _, tail = line.partition(" | ")
    form, number, name, *operands = head.split()
    modifiers = dict(m.partition("=")[::2] for m in tail.split() if m != "literal")
    key = {"VOPDX": "VOPD", "VOPDY": "VOPD"}.get(form, form)
    where = formats.get(key) or formats["FLAT"]
    if key == "VOPD":
        slots: tuple[Slot, ...] = ()
    else:
        slots = tuple(_slot(w) for w in operands)
    return (form, int(number)), Opcode(where, name, slots, "literal" in tail.split(), modifiers)


@functools.cache
def target(name: str) -> IsaTarget:
    """Return the target of a processor, such as "gfx1100". Raises `UnsupportedError` for one without a table."""
    if name not in FAMILIES:
        raise UnsupportedError(f"{name}: no instruction table; there are tables of {', '.join(FAMILIES)}")
    family, formats, base = FAMILIES[name]
    by_name = {f.name: f for f in formats} | {"VOP3SD": VOP3SD[family]}
    opcodes = dict(target(base).opcodes) if base else {}
    path = _TABLES / f"{name}.txt"
    lines = [] if base and not path.exists() else path.read_text().splitlines()  # it adds nothing
    for gone in (line.split()[1:] for line in lines if line[0] == "-"):
        del opcodes[gone[0], int(gone[1])]
    own = dict(_line(line, by_name) for line in lines if line[0] != "-")
    return IsaTarget(name, family, formats, opcodes | own)
