"""A decoded instruction, its operands, the canonical name of its operation, and the error for unsupported code.

Operands are registers (`Reg`), constants (`Imm`) and fixed words (`Word`). Texts are those of LLVM's disassembler.

The canonical name is that of gfx11. An operation whose meaning differs between targets keeps its own name.
The name also decides which operands are 16 bits wide (`halves`, for the true16 encodings of gfx11 and gfx12).
The bits of a load, store or cache instruction decide its scope (`reach`).

Not here: values of operands (`values`), accesses (`memory`), order between workgroups (`orders`). Next: `decode`; `opcodes`, a target's table.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from emulator.ir.addresses import NARROW, STRONG
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.amd.isa.opcodes import Opcode

# Scalar encoding -> name of a special register: of all families, of gfx9, of gfx11 and gfx12.
_SPECIAL = {
    106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi", 235: "src_shared_base", 236: "src_shared_limit",
    237: "src_private_base", 238: "src_private_limit", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
}  # fmt: skip
_GFX9_OPERANDS = {
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
        name = (_GFX9_OPERANDS if self.gfx9 else _GFX11).get(self.index) or _SPECIAL[self.index]
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


class IsaError(UnsupportedError):
    """Machine code that this emulator does not run. `address` is in bytes from the kernel's first instruction."""

    def __init__(self, why: str, *, text: str, address: int, kernel: str) -> None:
        super().__init__(f"{kernel or 'code'}+{address:#x}: {text}: {why}")
        self.why = why
        self.text = text
        self.address = address
        self.kernel = kernel


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its opcode, operands in the assembler's order, and modifiers by field name."""

    address: int
    """Bytes from the kernel's first instruction; negative for functions before it."""
    size: int
    """Bytes of the encoding, with its literal."""
    opcode: Opcode
    name: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, int] = field(default_factory=dict)
    """Fields that are not operands, such as neg_hi, op_sel, clamp, offset, glc, dpp_ctrl; those of 0 are absent."""
    tail: str = ""
    """The text of the modifiers."""
    second: Instruction | None = None
    """The second half of a dual-issue instruction (VOPD), else None."""

    @property
    def stem(self) -> str:
        """The name without the suffix of the encoding."""
        return self.opcode.stem

    @property
    def text(self) -> str:
        """The instruction as LLVM's disassembler writes it."""
        items = ", ".join(t for t in map(str, self.operands) if t)
        own = self.name + (f" {items}" if items else "") + self.tail
        return own if self.second is None else f"{own} :: {self.second.text}"

    def get(self, modifier: str) -> int:
        """Return a modifier's value; 0 if the instruction does not have it."""
        return self.modifiers.get(modifier, 0)

    @property
    def next(self) -> int:
        """The address of the next instruction."""
        return self.address + self.size


CodeBlock = tuple[list[Instruction], tuple[int, ...]]
"""Instructions, the last of which may branch, and the addresses of the next blocks (`translate.cut`)."""

# Names of operations of gfx9 and of gfx12 -> those of gfx11.
_GFX9 = {
    "v_add_u32": "v_add_nc_u32", "v_sub_u32": "v_sub_nc_u32", "v_subrev_u32": "v_subrev_nc_u32", "v_add_i32": "v_add_nc_i32",
    "v_sub_i32": "v_sub_nc_i32", "v_add_u16": "v_add_nc_u16", "v_sub_u16": "v_sub_nc_u16", "v_subrev_u16": "v_subrev_nc_u16",
    "v_add_i16": "v_add_nc_i16", "v_sub_i16": "v_sub_nc_i16", "v_addc_co_u32": "v_add_co_ci_u32",
    "v_subb_co_u32": "v_sub_co_ci_u32", "v_subbrev_co_u32": "v_subrev_co_ci_u32", "v_ffbh_u32": "v_clz_i32_u32",
    "v_ffbl_b32": "v_ctz_i32_b32", "v_ffbh_i32": "v_cls_i32", "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32",
    "v_cvt_pknorm_i16_f16": "v_cvt_pk_norm_i16_f16", "v_cvt_pknorm_u16_f16": "v_cvt_pk_norm_u16_f16",
    "v_cvt_pknorm_i16_f32": "v_cvt_pk_norm_i16_f32", "v_cvt_pknorm_u16_f32": "v_cvt_pk_norm_u16_f32",
    "v_dot2c_f32_f16": "v_dot2acc_f32_f16", "s_flbit_i32_b32": "s_clz_i32_u32", "s_flbit_i32_b64": "s_clz_i32_u64",
    "s_ff1_i32_b32": "s_ctz_i32_b32", "s_ff1_i32_b64": "s_ctz_i32_b64", "s_flbit_i32": "s_cls_i32",
    "v_mul_legacy_f32": "v_mul_dx9_zero_f32", "ds_wrxchg_rtn_b32": "ds_storexchg_rtn_b32",
    "ds_wrxchg_rtn_b64": "ds_storexchg_rtn_b64", "v_mad_legacy_u16": "v_mad_u16", "v_mad_legacy_i16": "v_mad_i16",
    "v_fma_legacy_f16": "v_fma_f16", "v_div_fixup_legacy_f16": "v_div_fixup_f16",
}  # fmt: skip
_GFX12 = {
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32",
    "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32", "v_mad_co_u64_u32": "v_mad_u64_u32",
    "v_mad_co_i64_i32": "v_mad_i64_i32", "s_addk_co_i32": "s_addk_i32",
}  # fmt: skip
# Parts of gfx9's names of memory operations -> those of gfx11.
_SIZES = (("dwordx4", "b128"), ("dwordx3", "b96"), ("dwordx2", "b64"), ("dword", "b32"))
_PARTS = {
    "ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16", "byte": "b8", "short": "b16", "ubyte_d16": "d16_u8",
    "ubyte_d16_hi": "d16_hi_u8", "sbyte_d16": "d16_i8", "sbyte_d16_hi": "d16_hi_i8", "short_d16": "d16_b16",
    "short_d16_hi": "d16_hi_b16", "byte_d16_hi": "d16_hi_b8",
}  # fmt: skip
_ATOMICS = {"smin": "min_i", "umin": "min_u", "smax": "max_i", "umax": "max_u", "add": "add_u", "sub": "sub_u", "inc": "inc_u",
            "dec": "dec_u", "swap": "swap_b", "cmpswap": "cmpswap_b", "and": "and_b", "or": "or_b", "xor": "xor_b"}  # fmt: skip


@functools.cache
def canonical(stem: str, family: str) -> str:
    """Return the canonical name of an operation, the key of `LANEWISE` and `MEANINGS`."""
    if family == "gfx12":
        name = _GFX12.get(stem, stem)
        return name.replace("_num_", "_") if re.match(r"v_|ds_|global_|flat_|s_m", name) else name
    if family == "gfx11":
        return stem
    stem = _GFX9.get(stem, stem).replace("_tru_", "_t_")
    for old, new in (("andn2", "and_not1"), ("orn2", "or_not1"), ("andn1", "and_not0"), ("orn1", "or_not0")):
        if stem.startswith(f"s_{old}_"):
            return stem.replace(old, new)
    match = re.fullmatch(r"(global|flat|scratch|buffer)_(load|store)_(\w+)", stem)
    if match:
        rest = match[3]
        for old, new in _SIZES:
            rest = rest.replace(old, new)
        return f"{match[1]}_{match[2]}_{_PARTS.get(rest, rest)}"
    match = re.fullmatch(r"(global|flat|buffer)_atomic_(\w+?)(_x2)?", stem)
    if match and match[2] in _ATOMICS:
        return f"{match[1]}_atomic_{_ATOMICS[match[2]]}{64 if match[3] else 32}"
    match = re.fullmatch(r"s_(buffer_)?load_(dword)(x\d+)?", stem)
    if match:
        return f"s_{match[1] or ''}load_b{32 * int((match[3] or 'x1')[1:])}"
    return _local(stem)


def _local(stem: str) -> str:
    match = re.fullmatch(r"ds_(read|write)(2|2st64)?_(\w+)", stem)
    if match:
        verb = "load" if match[1] == "read" else "store"
        pair = {None: "", "2": "_2addr", "2st64": "_2addr_stride64"}[match[2]]
        return f"ds_{verb}{pair}_{match[3]}"
    return stem.replace("ds_cmpst_", "ds_cmpstore_")


AGENT = 2
"""The narrowest scope of gfx12 that reaches other compute units."""


def reaches_agent(i: Instruction, family: str) -> bool:
    """Return whether a load, store or cache instruction has agent scope or wider.

    gfx11 encodes no scopes; there glc and dlc, which all scopes wider than a wave set, decide.
    """
    if family == "gfx9":
        return bool(i.get("sc1"))
    return bool(i.get("glc") or i.get("dlc") or i.get("scope") >= AGENT)


def reach(i: Instruction, family: str) -> int:
    """Return the scope of a load or store: STRONG for the agent, STRONG | NARROW for the workgroup, else 0."""
    if reaches_agent(i, family):
        return STRONG
    return STRONG | NARROW if i.get("sc0") or i.get("scope") else 0


# Ends of names of 16-bit operations; operations whose operands are never halves.
_SMALL = {"f16", "i16", "u16", "b16", "bf16"}
_PACKED = re.compile(
    r"v_pk_|v_dot|v_fma_mix|v_wmma|v_swmmac|v_cvt_pk_|v_perm|v_mfma|v_cvt_pknorm|v_mad_mix|v_dual"
)


@functools.cache
def halves(stem: str) -> tuple[bool, tuple[bool, bool, bool]]:
    """Return whether the destination is 16 bits wide, and for each of three sources whether it is."""
    no = (False, False, False)
    if stem in ("v_dot2_f16_f16", "v_dot2_bf16_bf16"):
        return True, (False, False, True)
    if stem in ("v_mad_i32_i16", "v_mad_u32_u16"):
        return False, (True, True, False)
    if stem in ("v_alignbit_b32", "v_alignbyte_b32"):
        return False, (False, False, True)
    if stem == "v_pack_b32_f16":
        return False, (True, True, False)
    if stem == "v_sat_pk_u8_i16":
        return True, no
    if stem == "v_cndmask_b16":
        return True, (True, True, False)
    if stem.startswith(("v_cvt_pk_norm", "v_cvt_pk_")) and stem.endswith("_f16"):
        return False, (True, True, False)
    if stem.startswith(("v_interp", "v_cvt_sr")) or _PACKED.match(stem):
        return False, no
    parts = stem.split("_")
    if stem.startswith("v_cvt_"):
        return _convert(parts[2:])
    if stem.startswith("v_cmp"):
        return False, (True, True, False) if parts[-1] in _SMALL else no
    if parts[-1] not in _SMALL:
        return False, no
    return True, (True, True, True)


def _convert(parts: list[str]) -> tuple[bool, tuple[bool, bool, bool]]:
    types = [p for p in parts if re.fullmatch(r"b?[fiu]\d+", p)]
    if len(types) != 2:
        return False, (False, False, False)
    return types[0] in _SMALL, (types[1] in _SMALL, False, False)
