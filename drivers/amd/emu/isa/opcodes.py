"""The opcodes of a target, read from its table: names, operands, and the modifiers that each understands.

The tables are made by `tools.amd_isa` from LLVM's disassembler; `tools/amd_isa.py` states their format.

Not here: the encodings (`formats`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from drivers.amd.emu.isa.formats import GFX9, GFX11, GFX12, VOP3SD, Format
from hcq.errors import UnsupportedError

_TABLES = Path(__file__).parent / "tables"
_FAMILIES = {"gfx1100": ("gfx11", GFX11), "gfx1201": ("gfx12", GFX12), "gfx942": ("gfx9", GFX9)}


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand as an opcode declares it: the field that names it, its dwords, and what kind the field holds."""

    field: str
    """A field of the format, or a fixed word: "vcc", "off"."""
    dwords: int = 0
    mask: bool = False
    """A mask of lanes: one dword, or two in a wave of 64."""
    scalar: bool = False
    """A field of vector registers that names a scalar one."""
    accumulator: bool = False


@dataclass(frozen=True, slots=True)
class Opcode:
    """One opcode of one format."""

    form: Format
    name: str
    """As the assembler writes it, with its suffix for the encoding."""
    operands: tuple[Slot, ...]
    literal: bool
    """Whether a dword of constant always follows."""
    modifiers: dict[str, str]
    """Modifier fields it understands; for those of several bits, which bits."""

    @property
    def stem(self) -> str:
        """The name without the suffix of the encoding."""
        return self.name.removesuffix("_e32").removesuffix("_e64")


@dataclass(frozen=True, slots=True)
class Target:
    """A processor: its formats in the order in which their prefixes are tried, and its opcodes."""

    name: str
    family: str
    """"gfx9", "gfx11" or "gfx12"."""
    formats: tuple[Format, ...]
    opcodes: dict[tuple[str, int], Opcode]

    @property
    def lanes(self) -> int:
        """Lanes of a wave where the kernel does not choose."""
        return 64 if self.family == "gfx9" else 32

    @property
    def halves(self) -> bool:
        """Whether 16-bit operands are halves of registers: in short encodings bit 7 of a register says which."""
        return self.family != "gfx9"

    @property
    def null(self) -> int:
        """The encoding of the null register; -1 where there is none."""
        return -1 if self.family == "gfx9" else 124


def _slot(word: str) -> Slot:
    if ":" not in word:
        return Slot(word)
    field, _, rest = word.partition(":")
    size, *kinds = rest.split("@")
    mask = size == "m"
    return Slot(field, 1 if mask else int(size), mask, "s" in kinds, "a" in kinds)


def _line(line: str, formats: dict[str, Format]) -> tuple[tuple[str, int], Opcode]:
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
def target(name: str) -> Target:
    """Return a processor's opcodes; raises UnsupportedError for one without a table."""
    if name not in _FAMILIES:
        raise UnsupportedError(f"{name}: no instruction table; there are tables of {', '.join(_FAMILIES)}")
    family, formats = _FAMILIES[name]
    by_name = {f.name: f for f in formats} | {"VOP3SD": VOP3SD[family]}
    text = (_TABLES / f"{name}.txt").read_text()
    return Target(name, family, formats, dict(_line(line, by_name) for line in text.splitlines()))
