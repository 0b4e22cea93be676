"""Operands of a decoded instruction: registers (`Reg`), constants (`Imm`), fixed words (`Word`), and their texts.

Texts are those of LLVM's disassembler. Not here: the values of operands (`values`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

# Scalar encoding -> name of a special register: of all families, of gfx9, of gfx11 and gfx12.
_SPECIAL = {
    106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi", 235: "src_shared_base", 236: "src_shared_limit",
    237: "src_private_base", 238: "src_private_limit", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
}  # fmt: skip
_GFX9 = {
    102: "flat_scratch_lo",
    103: "flat_scratch_hi",
    104: "xnack_mask_lo",
    105: "xnack_mask_hi",
    124: "m0",
}
_GFX11 = {124: "null", 125: "m0"}
VCC, TTMP, EXEC, M0_GFX9, NULL, M0, SHARED_BASE, PRIVATE_BASE, SCC = (
    106,
    108,
    126,
    124,
    124,
    125,
    235,
    237,
    253,
)
_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_INLINE_TEXT = {value & 0xFFFF_FFFF: str(value) for value in range(-16, 65)} | {
    struct.unpack("<I", struct.pack("<f", value))[0]: str(value) for value in _FLOATS
}
"""Bits of a constant that the instruction itself could encode -> its text when it follows as a literal."""
_INVERSE_TURN = {16: 0x3118, 32: 0x3E22_F983, 64: 0x3FC4_5F30_6DC9_C882}
"""Width -> bits of 1 / (2 pi)."""


@dataclass(frozen=True, slots=True)
class Reg:
    """Consecutive registers of one file, or a half of one."""

    file: str
    """"v" vector, "a" accumulation, "s" scalar and special registers."""
    index: int
    """The number; in file "s" the scalar encoding."""
    count: int = 1
    half: str = ""
    """"l" or "h" for 16 bits of the register; "" for the whole register."""
    neg: bool = False
    abs: bool = False
    sext: bool = False
    """Whether SDWA sign-extends it."""
    gfx9: bool = False
    """Whether it has the names of gfx9, in which some encodings differ."""

    def __str__(self) -> str:
        return _signs(self._name(), neg=self.neg, absolute=self.abs, sext=self.sext)

    def _name(self) -> str:
        if self.file != "s":
            half = f".{self.half}" if self.half else ""
            return _range(self.file, self.index, self.count) + half
        if self.index < 102 or (self.index < 106 and not self.gfx9):
            return _range("s", self.index, self.count)
        if TTMP <= self.index < TTMP + 16:
            return _range("ttmp", self.index - TTMP, self.count)
        name = (_GFX9 if self.gfx9 else _GFX11).get(self.index) or _SPECIAL[self.index]
        return name.removesuffix("_lo") if self.count == 2 else name


@dataclass(frozen=True, slots=True)
class Imm:
    """A constant, with its bits for each width of operand."""

    text: str
    bits: int
    """Its bits in a 32-bit operand."""
    wide: int
    """Its bits in a 64-bit operand; of a literal the 32 bits, which `values` extends by the operand's type."""
    half: int
    """Its bits in a 16-bit operand."""
    literal: bool = False
    """Whether it is a dword that follows the instruction."""
    neg: bool = False
    abs: bool = False

    def __str__(self) -> str:
        return _signs(self.text, neg=self.neg, absolute=self.abs, sext=False, constant=True)


@dataclass(frozen=True, slots=True)
class Word:
    """A fixed word in place of an operand: "off", a message, a hardware register; `value` are its bits."""

    text: str
    value: int = 0

    def __str__(self) -> str:
        return self.text


Operand = Reg | Imm | Word


def _range(stem: str, first: int, count: int) -> str:
    return f"{stem}{first}" if count == 1 else f"{stem}[{first}:{first + count - 1}]"


def _signs(text: str, *, neg: bool, absolute: bool, sext: bool, constant: bool = False) -> str:
    if sext:
        text = f"sext({text})"
    if absolute:
        text = f"|{text}|"
    if neg:
        text = f"neg({text})" if constant and not absolute else f"-{text}"
    return text


def signed(operand: Operand, *, neg: bool, absolute: bool) -> Operand:
    """Return an operand with source modifiers; a `Word` is unchanged."""
    if isinstance(operand, Word) or not (neg or absolute):
        return operand
    return replace(operand, neg=neg, abs=absolute)


def number(value: int) -> Imm:
    """Return an inline integer constant."""
    return Imm(str(value), value & 0xFFFF_FFFF, value & (1 << 64) - 1, value & 0xFFFF)


def literal(value: int) -> Imm:
    """Return a literal: a constant of 32 bits that follows its instruction."""
    return Imm(_INLINE_TEXT.get(value, f"{value:#x}"), value, value, value & 0xFFFF, literal=True)


def inline(code: int, bits: int) -> Imm | None:
    """Return the inline constant of a source encoding for an operand of `bits`; None for other encodings."""
    if 128 <= code <= 192:
        return number(code - 128)
    if 193 <= code <= 208:
        return number(192 - code)
    if 240 <= code <= 247:
        return _float(_FLOATS[code - 240])
    if code == 248:
        text = "0.15915494309189532" if bits == 64 else "0.15915494"
        return Imm(text, _INVERSE_TURN[32], _INVERSE_TURN[64], _INVERSE_TURN[16])
    return None


def _float(value: float) -> Imm:
    half, single, double = (int.from_bytes(struct.pack(f"<{f}", value), "little") for f in "efd")
    return Imm(str(value), single, double, half)
