"""Every vector instruction of a target as cases whose definition is the ISA documents' pseudo-code.

A form is an operation in one encoding with one choice of operands and modifiers. Of each operation there is the
plain form, each operand as a scalar register, an inline constant and a literal, each half that true16 encodings and
op_sel name, and rows of modifiers in which every three bits of neg, abs, op_sel, clamp and omod meet in all ways.
Inputs are edge values: all pairs of 30 of two sources, all triples of 10 of three.

What the pseudo-code does not say is said here, with the manual's words: modifiers, halves, results of sixteen bits.

Not here: the evaluator (`pcode`), the run (`lane_cases`), the verdicts (`test_pcode`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.modes import KEEP_ALL, KEEPS_NAN
from emulator.amd.isa.opcodes import Opcode, Slot, target
from emulator.amd.isa.vector_floats import INEXACT
from tests.emulator.amd_isa import pcode, pcode_values, single
from tests.emulator.amd_isa.lane_cases import ROW, Case, Inputs, source_lane
from tests.emulator.amd_isa.pcode_decisions import decided
from tests.emulator.amd_isa.pcode_values import Value, value
from tests.emulator.amd_isa.single import EXEC, LITERAL, VECTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, Any]
LANES = 1024
VECTOR_FORMATS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P")
PARTIAL = 0xBFFD_FFFB_FFF7_FF7F
"""EXEC: few lanes do not execute; the inputs of each are those of others, too."""
MASK, CARRY = 0x8000_3C00_C080_3F81, 0x5A5A_F00F_1234_8001
"""s[8:9] and VCC."""


# Inputs


def _bits(code: str, *values: float) -> list[int]:
    size = {"e": "H", "f": "I", "d": "Q"}[code]
    return [struct.unpack(f"<{size}", struct.pack(f"<{code}", v))[0] for v in values]


_NUMBERS = (
    0.0,
    -1.5,
    1.0,
    -0.0,
    float("inf"),
    0.5,
    2.5,
    -float("inf"),
    3.0,
    -2.0,
    1.0 / 3,
    255.5,
    0.25,
    -0.75,
)
EDGES: dict[str, list[int]] = {
    "f16": [*_bits("e", *_NUMBERS[:5]), 0x0001, 0x7E01, 0x7BFF, 0x8400, 0x7D01, *_bits("e", *_NUMBERS[5:]), 0x03FF,
            0x83FF, 0x0400, 0xFBFF, 0xFE00, 0x3BFF, 0x3801, 0x6400, 0xE801, 0x7800, 0x1001],
    "f32": [*_bits("f", *_NUMBERS[:5]), 0x0000_0001, 0x7FC0_0001, 0x7F7F_FFFF, 0x8080_0000, 0x7FA0_0001,
            *_bits("f", *_NUMBERS[5:], 65520.0, -(2.0**31), 2.0**31, 2.0**32, 1e-8, 8388609.0, 0.49999997),
            0x807F_FFFF, 0x0080_0000, 0xFF7F_FFFF, 0x7E80_0000],
    "f64": [*_bits("d", *_NUMBERS[:5]), 1, 0x7FF8_0000_0000_0001, 0x7FEF_FFFF_FFFF_FFFF, 1 << 63 | 1 << 52,
            0x7FF4_0000_0000_0001, *_bits("d", *_NUMBERS[5:], 2.0**31, -(2.0**31) - 1, 2.0**32, 2.0**52 + 1, 1e-300,
            0.49999999999999994), 0x800F_FFFF_FFFF_FFFF, 1 << 52, 0xFFEF_FFFF_FFFF_FFFF, 0x7FD0_0000_0000_0000, 0xC3E0 << 48],
    "w16": [0, 1, 0xFFFF, 0x7FFF, 0x8000, 0xFF, 0x80, 15, 16, 0x1234, 2, 3, 0x7F, 0x100, 0xFF80, 0xFFFE, 0x8001, 0x5555,
            0xAAAA, 7, 8, 31, 32, 0x4000, 0xC000, 0x00F0, 0x0FFF, 0xF000, 255 << 7, 33],
    "w32": [0, 1, 0xFFFF_FFFF, 0x7FFF_FFFF, 0x8000_0000, 31, 0x0102_0304, 0x80FF_7F00, 24, 0x00FF_FFFF, 2, 3, 32, 33, 0x7F,
            0xFF, 0x8000, 0xFFFF, 0x1_0000, 0x7F_FFFF, 0x80_0000, 0x0C0D_0E0F, 0x0809_0A0B, 0xFFFF_FF80, 0x8000_0001,
            0xFFFF_FFFE, 0x5555_5555, 0x4008_0010, 0x0000_0200, 0x0014_0007],
    "w64": [0, 1, (1 << 64) - 1, (1 << 63) - 1, 1 << 63, 0xFFFF_FFFF, 1 << 32, 63, 0x0123_4567_89AB_CDEF, 0x8000_0000,
            2, 31, 32, 33, 64, (1 << 64) - 2, 0x7FFF_FFFF, 0xFFFF_FFFF_8000_0000, 0x8000_0000_7FFF_FFFF, 0x5555_5555_5555_5555,
            (1 << 63) + 1, 1 << 62, 3, 0x0000_0001_FFFF_FFFF, 0x7F, 0xFFFF_FFFF_0000_0000, 255, 1 << 24, 5, 7],
}  # fmt: skip
EDGES["bf16"] = [v >> 16 for v in EDGES["f32"]]


def columns(kinds: tuple[str, ...]) -> list[Array]:
    """Return sources of 64 bits a lane: all pairs or triples of edges, the rest random; halves differ."""
    rng = np.random.default_rng(sum(map(ord, "".join(kinds))))
    live = max(1, sum(kind != "" for kind in kinds))
    count = {1: len(EDGES["f32"]), 2: 30}.get(live, 10)
    made = []
    at = np.arange(LANES)
    place = 0
    for kind in kinds:
        random = rng.integers(0, 1 << 64, LANES, "u8")
        if not kind:
            made.append(random)
            continue
        edges = np.array(EDGES[kind], "u8")
        index = at // count**place % count % len(edges)
        column = np.where(at < count**live, edges[index], random)
        if kind in ("f16", "w16", "bf16"):
            other = edges[(index * 7 + at // 3 + place) % len(edges)]
            column = np.where(at < count**live, column | other << np.uint64(16), random)
        elif kind in ("f32", "w32"):
            column = column & np.uint64(0xFFFF_FFFF) | random & np.uint64(0xFFFF_FFFF_0000_0000)
        made.append(column)
        place += 1
    return made


def inputs(name: str, kinds: tuple[str, ...], *, masked: bool = True, wave: int = 0) -> Inputs:
    """Return registers of 1,024 lanes for these kinds of sources and of the old destination."""
    wave = wave or target(name).lanes
    mask = (1 << wave) - 1
    given = columns(kinds)
    words = np.stack(
        [half for c in given for half in (c & np.uint64(0xFFFF_FFFF), c >> np.uint64(32))], 1
    ).astype("u4")
    return Inputs(words, CARRY & mask, (PARTIAL if masked else mask) & mask, MASK & mask, wave)


# Forms


@dataclass(frozen=True, eq=False)
class Form:
    """An operation in one encoding, and its pseudo-code."""

    target: str
    kind: str
    number: int
    opcode: Opcode
    stem: str
    """Its name on gfx11."""
    text: str

    @cached_property
    def sources(self) -> list[tuple[str, int]]:
        """Return the fields that hold sources, with their dwords."""
        return [
            (s.field, s.dwords)
            for s in self.opcode.operands
            if s.field in ("src0", "src1", "src2", "vsrc1") and not self.is_mask(s)
        ]

    def is_mask(self, slot: Slot) -> bool:
        """Return whether an operand is a mask of lanes that the operation reads: of gfx9 the table does not say so."""
        return slot.mask or (
            slot.field == "src2" and bool(re.fullmatch(r"v_cndmask_b32|v_\w+_co_ci_u32", self.stem))
        )

    def type_of(self, number: int) -> str:
        """Return the type in which the text reads a source: "f16", "u32", ...; "" where it does not."""
        name = "D0" if number == 3 else f"S{number}"
        body = re.sub(r"//[^\n]*", "", self.text)
        if number == 3:
            body = re.sub(r"D0(\[[^\]]*\])?(\.\w+)? = ", "", body)
        if re.search(r"\bS\[i\]", body) and number < 3:
            return "mix"
        found = re.findall(rf"\b{name}(?:\[[^\]]*\])?\.(bf16|[fiub]\d+)", body)
        if not found and re.search(rf"\b{name}\b|SRC{number}\b", body):
            return "b32"
        return str(found[0]) if found else ""

    def column_kind(self, number: int) -> str:
        """Return which edges a source takes."""
        type_ = self.type_of(number)
        if type_ in ("", "mix"):
            return {"": "", "mix": "f16" if number == 2 else "f32"}[type_]
        if type_ in EDGES:
            return type_
        bits = int(type_[1:])
        return "w64" if bits == 64 else "w16" if bits == 16 else "w32"

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.column_kind(n) for n in range(4))

    @cached_property
    def small(self) -> tuple[bool, bool, bool]:
        """Return which sources are sixteen bits, not pairs of them."""
        body = self.text
        return tuple(  # type: ignore[return-value]
            bool(re.search(rf"\bS{n}\.(bf16|[fiub]16)", body)) and not re.search(rf"\bS{n}\[", body)
            for n in range(3)
        )

    @cached_property
    def small_result(self) -> bool:
        return bool(re.search(r"\bD0\.(bf16|[fiub]16)", self.text)) and "D0[" not in self.text

    @cached_property
    def type_of_result(self) -> str:
        """Return the type of the destination, or of each of its parts; "" for masks."""
        names = "D0|tmp" if self.kind == "VOP3P" else "D0"
        found = re.findall(rf"\b(?:{names})(?:\[[^\]]*\])?\.(bf16|[fiub]\d+) [-+]?=", self.text)
        found = found or re.findall(r"D0 = \{ 16'0, tmp\.([fiu]16) \}", self.text)
        exact = [type_ for type_ in found if type_[0] == "f"] or found
        return str(exact[0]) if exact and "laneId" not in self.text.split("D0")[-1][:12] else "b32"

    def signs(self, what: str) -> int:
        """Return which sources of a short encoding take neg or abs in DPP and SDWA: floats; neg of the second alone."""
        floats = [
            n for n in range(len(self.sources)) if self.type_of(n)[:1] == "f" and "dot2" not in self.stem
        ]
        return sum(1 << n for n in floats if what == "abs" or n == floats[-1])

    @property
    def refuses_clamp(self) -> bool:
        """Return whether the emulator refuses clamp and omod: signalling comparisons, and most results of integers."""
        if self.kind == "VOP3P":
            return self.integer and not self.stem.startswith(("v_pk_add", "v_pk_sub"))
        if self.stem.startswith("v_cmp"):
            return True
        return self.type_of_result[0] != "f" and not re.fullmatch(
            r"v_(add|sub|subrev)_nc_[iu](16|32)", self.stem
        )

    @cached_property
    def integer(self) -> bool:
        return not re.search(r"\.(bf16|f16|f32|f64)", self.text)


def forms(name: str) -> list[Form]:
    """Return every vector operation of a target for which there is pseudo-code, of the same name and number."""
    known, found = pcode.table(name), []
    for (kind, number), opcode in target(name).opcodes.items():
        if kind not in VECTOR_FORMATS:
            continue
        entry = known.get((kind, number)) or known.get(("VOP3" if kind == "VOP3SD" else kind, number))
        if (
            entry is None and name == "gfx942" and kind == "VOP3"
        ):  # its documents number VOP1's long forms by rule
            entry = known.get(("VOP1", number - 0x140))
        if entry is not None and same_name(entry[0], opcode.stem):
            stem = canonical(opcode.stem, target(name).family)
            found.append(Form(name, kind, number, opcode, stem, decided(stem, entry[1])))
    return found


def without(name: str) -> list[str]:
    """Return vector operations of a target that have no pseudo-code."""
    named = {(form.kind, form.number) for form in forms(name)}
    return [
        f"{kind} {o.stem}"
        for (kind, n), o in target(name).opcodes.items()
        if kind in VECTOR_FORMATS and (kind, n) not in named
    ]


def same_name(theirs: str, ours: str) -> bool:
    """Return whether a name of the documents is LLVM's."""
    theirs = theirs.replace("_tru_", "_t_").replace(
        "v_mad_mix", "v_fma_mix"
    )  # gfx942 has LLVM's +fma-mix-insts
    return theirs == ours.replace("_tru_", "_t_")


@dataclass(frozen=True)
class Choice:
    """Operands and modifiers of a form."""

    operand: tuple[int, str] | None = None
    """A source that is not a vector register: its number, what it is."""
    high: int = 0
    """Of short encodings of true16: which operands are upper halves, bit 3 the destination."""
    neg: int = 0
    abs: int = 0
    neg_hi: int = 0
    op_sel: int = 0
    op_sel_hi: int = 7
    clamp: int = 0
    omod: int = 0
    moved: tuple[int, int, int, int, int] | None = None
    """DPP: its control, bound_ctrl, whether lanes that do not execute are sources, rows, banks."""
    eight: tuple[int, ...] = ()
    """DPP8: which of its eight lanes each of them takes, and whether lanes that do not execute are sources."""
    parts: tuple[int, int, int, int, int, int] | None = None
    """SDWA: part of the first source, extended or not, of the second, of the destination, what is around it."""

    @property
    def moves(self) -> bool:
        return self.moved is not None or bool(self.eight)

    def __str__(self) -> str:
        return " ".join(f"{k} {v}" for k, v in vars(self).items() if v != getattr(_PLAIN, k))


_PLAIN = Choice()


INLINE = {"int 1": 129, "int -16": 208, "1.0": 242, "1/2pi": 248}
LITERAL_WORD = 0xC123_4567


def choices(form: Form) -> Iterator[Choice]:
    """Yield the plain form, and rows in which operands of other kinds, halves and modifiers meet."""
    yield Choice()
    long = form.kind in ("VOP3", "VOP3SD", "VOP3P")
    halves = [1 << n for n, small in enumerate(form.small) if small and n < len(form.sources)]
    if form.small_result and form.kind != "VOPC":
        halves.append(8)
    operands: list[tuple[int, str] | None] = list(other_operands(form))
    if long:
        rows = list(modified(form, halves))
    elif target(form.target).halves:
        chosen = [
            sum(b for b, on in zip(halves, bits, strict=True) if on)
            for bits in product((0, 1), repeat=len(halves))
        ]
        rows = [Choice(high=high) for high in chosen if high]
    else:
        rows = []
    longest = max(len(operands), len(rows))
    for n in range(longest):
        row = rows[n % len(rows)] if rows else Choice()
        operand = operands[n] if n < len(operands) else None
        if (
            operand is not None and (operand[1] != "scalar" or not long) and form.kind != "VOP3P"
        ):  # which half of a constant
            place = ~(1 << operand[0])
            row = replace(row, high=row.high & place, op_sel=row.op_sel & place)
        yield replace(row, operand=operand)


def other_operands(form: Form) -> Iterator[tuple[int, str]]:
    """Yield each source as a scalar register, a constant or a literal."""
    gfx9 = target(form.target).family == "gfx9"
    for number, (name, _) in enumerate(form.sources):
        type_ = form.type_of(number)
        if (
            name == "vsrc1"
            or not type_
            or "VGPR" in form.text
            or form.opcode.literal
            or form.stem.startswith("v_swap")
        ):
            continue
        yield number, "scalar"
        if form.kind == "VOP3P" and form.sources[number][1] == 2:
            continue  # which part of a pair a constant is, no document says
        if not (gfx9 and form.kind[:4] == "VOP3"):
            yield number, "literal"
        if type_ == "mix":
            continue
        yield number, "int 1"
        yield number, "int -16"
        if type_ in ("f16", "f32", "f64") or (
            type_[1:] in ("32", "64")
            and form.kind != "VOP3P"
            and not re.search(r"[biu]16|class_f16", form.stem)
        ):
            yield number, "1.0"
            yield number, "1/2pi"


def covering(count: int) -> list[tuple[int, ...]]:
    """Return rows of bits: all of them up to 5 columns, else rows in which every three columns have all combinations.

    Columns are vectors whose top bit is set: no three of them sum to zero, and no two.
    """
    if count <= 5:
        return list(product((0, 1), repeat=count))
    size = 1
    while size < count:
        size *= 2
    return [
        tuple((row & (size | column)).bit_count() & 1 for column in range(count)) for row in range(2 * size)
    ]


def modified(form: Form, halves: list[int]) -> Iterator[Choice]:
    """Yield rows of modifiers that the opcode takes."""
    known = form.opcode.modifiers
    fields: list[tuple[str, int]] = []
    for what in ("neg", "abs", "neg_hi"):
        if what in known and not (form.kind == "VOP3P" and form.integer and "iu" not in form.stem):
            fields += [
                (what, 1 << n) for n in range(len(form.sources)) if not known[what] or str(n) in known[what]
            ]
    if form.kind == "VOP3P" and "op_sel" in known and not re.search("dot[48]", form.stem):
        fields += [("op_sel", 1 << n) for n in range(len(form.sources))]
    if form.kind == "VOP3P" and "op_sel_hi" in known and not re.search("dot[48]", form.stem):
        fields += [("op_sel_hi", 1 << n) for n in range(len(form.sources))]
    if form.kind == "VOP3" and (target(form.target).halves or "op_sel" in known):
        fields += [
            ("op_sel", bit)
            for bit in halves
            if target(form.target).halves or str(bit.bit_length() - 1) in known["op_sel"]
        ]
    if form.stem.startswith("v_permlane"):
        fields += [("op_sel", 1), ("op_sel", 2)]
    if re.search("cvt_(pk_|sr_)?(f32_)?[fb][pf]8", form.stem) and "op_sel" in known:
        places = {"v_cvt_f32": (1, 2), "v_cvt_pk_f32": (1,), "v_cvt_pk": (8,), "v_cvt_sr": (4, 8)}
        fields += [("op_sel", bit) for bit in places[re.split("_[fb][pf]8", form.stem)[0]]]
    if "clamp" in known and not form.refuses_clamp:
        fields.append(("clamp", 1))
    if "omod" in known and not form.refuses_clamp:
        fields += [("omod", 1), ("omod", 2)]
    for row in covering(len(fields)) if fields else ():
        made: dict[str, Any] = {"op_sel_hi": 7}
        for (what, bit), on in zip(fields, row, strict=True):
            made[what] = made.get(what, 0) ^ bit if on else made.get(what, 0)
        choice = replace(_PLAIN, **made)
        if choice != _PLAIN:
            yield choice


def scalar_source(form: Form, number: int) -> bool:
    """Return whether a source must be scalar: lane numbers, and what is written to a lane."""
    return form.stem.startswith(("v_writelane", "v_s_")) or (
        number > 0 and bool(re.fullmatch(r"v_readlane_b32|v_permlanex?16_b32", form.stem))
    )


# Definitions


KEEPS = (
    r"v_cvt_f32_f16|v_cmpx?_class_f\d+|v_cndmask_b\d+",
    r"v_(pk_)?(min|max|med3|minmax|maxmin)(3|_num|imum3?)?\w*_f\d+|v_pack_b32_f16",
)
"""Operations that take subnormal sources, and those that return them, whatever MODE says: docs/sources-amd.md."""


@dataclass(frozen=True)
class Definition:
    """What a form makes of its inputs, by the pseudo-code."""

    form: Form
    choice: Choice
    modes: int = KEEP_ALL

    def registers(self, one: Inputs) -> dict[str, Any]:
        form, choice = self.form, self.choice
        found: dict[str, Any] = {}
        for number in range(3):
            slots = form.sources
            dwords = slots[number][1] if number < len(slots) else 2
            found[f"S{number}"] = value(
                "b", 32 * max(dwords, 1), self.source(one, number, 32 * max(dwords, 1))
            )
        if form.opcode.literal:
            found["SIMM32"] = found["SIMM16"] = value("b", 32, LITERAL_WORD)
        found["laneId"] = value("u", 32, np.arange(one.lanes) % one.wave)
        for name, mask in (("VCC", one.vcc), ("EXEC", one.active)):
            found[name] = value("b", 64, np.full(one.lanes, mask, "u8"))
        found["EXEC_LO"] = value("b", 32, np.full(one.lanes, one.active & 0xFFFF_FFFF, "u8"))
        if any(form.is_mask(slot) and slot.field == "src2" for slot in form.opcode.operands):
            found["VCC"] = value("b", 64, np.full(one.lanes, one.mask, "u8"))
        old = one.column(3)
        if form.small_result and self.high_result:
            old = old >> np.uint64(16)
        if re.match(r"v_(fmac|mac)", form.stem):  # the destination is a source
            old = self.flushed(old, form.type_of(3), 0)
        found["D0"] = value("b", 64, old)
        found["WAVE_MODE.IEEE"] = value("u", 1, self.modes >> 9 & 1)
        found["WAVE32"] = value("u", 1, int(one.wave == 32))
        found["wave32"] = found["WAVE32"]
        found["WAVE64"] = value("u", 1, int(one.wave == 64))
        wide = re.search(r"OPSEL\[3", form.text)
        found["OPSEL"] = value("u", 4, choice.op_sel & (15 if wide else 7))
        found["SDWA_SRC0_SEL"] = value("u", 3, choice.parts[0] if choice.parts else 6)
        if target(form.target).family == "gfx9":
            found["FNUZ"] = True
        found["OPSEL_HI"] = value("u", 3, choice.op_sel_hi)
        found["NEG"] = value("u", 3, choice.neg)
        found["TRAPSTS"] = value("b", 32, 0)
        if "rndne" in form.stem:
            found["exact sums"] = True
        return found

    @property
    def high_result(self) -> bool:
        return bool(self.choice.high & 8 or (self.form.kind == "VOP3" and self.choice.op_sel & 8))

    def source(self, one: Inputs, number: int, bits: int) -> Array:
        """Return a source as the operation gets it: selected, with signs."""
        form, choice = self.form, self.choice
        type_ = form.type_of(number)
        raw = one.column(number)
        if number < 3 and scalar_source(form, number):
            raw = np.full(one.lanes, one.mask, "u8")
        if choice.operand is not None and choice.operand[0] == number:
            raw = np.full(one.lanes, self.constant(one, choice.operand[1], type_, bits), "u8")
        if number == 0 and choice.moves:
            raw = np.where(self.there(one), raw[np.maximum(self.from_lanes(one), 0)], np.uint64(0))
        if choice.parts is not None and number < 2 and "SDWA_SRC0_SEL" not in form.text:
            raw = part_of(raw, *choice.parts[2 * number : 2 * number + 2])
        if form.kind == "VOP3P" and type_ != "mix":
            return self.pair(raw, number, type_, bits)
        small = number < 3 and form.small[number]
        if small and (choice.high >> number & 1 or (form.kind == "VOP3" and choice.op_sel >> number & 1)):
            raw = raw >> np.uint64(16)
        if type_ == "mix":
            at = [15, 31] if choice.op_sel_hi >> number & 1 else [31]
        else:
            at = [15] if small else [bits - 1]
        for place in at:
            if (choice.neg_hi if type_ == "mix" else choice.abs) >> number & 1:
                raw = raw & ~np.uint64(1 << place)
            if choice.neg >> number & 1:
                raw = raw ^ np.uint64(1 << place)
        return self.flushed(raw, type_, 0)

    def from_lanes(self, one: Inputs) -> Array:
        """Return which lane DPP takes the first source from, -1 for none."""
        if self.choice.moved is None:
            wave = [lane // 8 * 8 + self.choice.eight[lane % 8] for lane in range(one.wave)]
        else:
            wave = [source_lane(self.choice.moved[0], lane, one.wave) for lane in range(one.wave)]
        first = np.arange(one.lanes) // one.wave * one.wave
        own = np.tile(np.array(wave), one.lanes // one.wave)
        return np.where(own >= 0, own + first, -1)

    def there(self, one: Inputs) -> Array:
        """Return in which lanes DPP finds a source."""
        inactive = self.choice.eight[8] if self.choice.moved is None else self.choice.moved[2]
        lanes = self.from_lanes(one)
        return (lanes >= 0) & (one.lanes_of(one.active)[np.maximum(lanes, 0)] | bool(inactive))

    def writes(self, one: Inputs) -> Array:
        """Return in which lanes DPP writes the destination."""
        assert self.choice.moved is not None
        _, bound, _, rows, banks = self.choice.moved
        lane = np.arange(one.lanes) % one.wave
        return (rows >> lane // ROW & banks >> lane % ROW // 4 & 1).astype(bool) & (
            self.there(one) | bool(bound)
        )

    def pair(self, raw: Array, number: int, type_: str, bits: int) -> Array:
        """Return both parts of a packed source, as op_sel and op_sel_hi name them, with their signs."""
        choice, size = self.choice, np.uint64(bits // 2)
        if not re.search(rf"S{number}(\.u32)?\[", self.form.text) or re.search(
            "dot[48]|pk_mov", self.form.stem
        ):
            return raw ^ np.uint64((choice.neg >> number & 1) << 31) if type_ == "f32" else raw
        part = np.uint64((1 << bits // 2) - 1)
        low, high = (
            raw >> size * np.uint64(sel >> number & 1) & part for sel in (choice.op_sel, choice.op_sel_hi)
        )
        sign = np.uint64(1) << size - np.uint64(1)
        low = low ^ sign if choice.neg >> number & 1 else low
        high = high ^ sign if choice.neg_hi >> number & 1 else high
        both: Array = self.flushed(low, type_, 0) | self.flushed(high, type_, 0) << size
        return both

    def flushed(self, raw: Array, type_: str, of_results: int) -> Array:
        """Return floats with zeros for subnormals where MODE's FP_DENORM says so, of sources (0) or results (1)."""
        if type_ not in ("f16", "f32", "f64") or re.fullmatch(KEEPS[of_results], self.form.stem):
            return raw
        bits = int(type_[1:])
        if self.modes >> (4 if bits == 32 else 6) + of_results & 1:
            return raw
        part = np.uint64((1 << bits) - 1 if bits < 64 else (1 << 64) - 1)
        small = raw << np.uint64(65 - bits) < np.uint64(1 << pcode_values.MANTISSA[bits] + 65 - bits)
        kept: Array = np.where(small, raw & (~part | np.uint64(1 << bits - 1)), raw)
        return kept

    def constant(self, one: Inputs, kind: str, type_: str, bits: int) -> int:
        """Return a scalar register or a constant as an operand of a type has it."""
        if kind == "scalar":
            return one.mask
        if kind.startswith("int"):
            return int(kind[4:]) & (1 << 64) - 1
        if kind == "literal":
            if bits == 64:
                wide = LITERAL_WORD << 32 if type_ == "f64" else LITERAL_WORD
                return wide | (0xFFFF_FFFF << 32 if type_ == "i64" else 0)
            return LITERAL_WORD
        sixteen = type_ == "f16"
        if kind == "1.0":
            return _bits("e" if sixteen else "d" if bits == 64 else "f", 1.0)[0]
        return 0x3118 if sixteen else 0x3FC4_5F30_6DC9_C882 if bits == 64 else 0x3E22_F983

    def run(self, one: Inputs) -> dict[str, Any]:
        form = self.form
        exact = bool(self.choice.clamp) and form.integer
        with np.errstate(all="ignore"):
            return pcode.program(form.text).run(
                self.registers(one), one.lanes, one.wave, texts_by_name(form.target), exact=exact
            )

    def result(self, after: dict[str, Any], one: Inputs) -> Array:
        """Return v[12:13]: as the operation makes it, placed as SDWA says, in the lanes that DPP writes."""
        raw = self.placed(after, one)
        return raw if self.choice.moved is None else np.where(self.writes(one), raw, one.column(3))

    def placed(self, after: dict[str, Any], one: Inputs) -> Array:
        """Return the result, modified, placed in its half or part."""
        found: Value = after["D0"]
        form, raw = self.form, found.raw
        raw = np.broadcast_to(raw, (one.lanes,)).astype("u8")
        type_ = form.type_of_result
        if type_[0] == "f" and form.kind != "VOP3P":
            size = int(type_[1:])
            part = np.uint64((1 << size) - 1) if size < 64 else np.uint64(0xFFFF_FFFF_FFFF_FFFF)
            done = self.modified(Value("f", size, raw & part))
            raw = raw & ~part | done
        elif form.kind == "VOP3P" and (self.choice.clamp or self.modes != KEEP_ALL):
            raw = self.clamped_parts(raw)
        if self.choice.parts is not None:
            low = raw & np.uint64(0xFFFF if form.small_result else 0xFFFF_FFFF)
            return placed_part(low, one.column(3), *self.choice.parts[4:])
        if form.small_result:
            old = one.column(3)
            low, whole = raw & np.uint64(0xFFFF), old & np.uint64(0xFFFF_FFFF)
            if self.high_result:
                return whole & np.uint64(0xFFFF) | low << np.uint64(16)
            if target(form.target).family == "gfx9" and "3" not in form.opcode.modifiers.get("op_sel", ""):
                return low
            return whole & np.uint64(0xFFFF_0000) | low
        return raw

    def modified(self, v: Value) -> Array:
        """Return a float with omod and clamp.

        omod (section "Output Operand Modifiers"): CDNA3 and RDNA3 ignore it where results may be subnormal or MODE has
        IEEE; RDNA4 takes it. It flushes subnormals and makes -0 of it +0. clamp (MODE's DX10_CLAMP): NaN becomes 0, or stays.
        """
        x = pcode_values.floats(v)
        flushes = not self.modes >> (5 if v.bits == 32 else 7) & 1
        with np.errstate(all="ignore"):
            if self.choice.omod and (
                target(self.form.target).family == "gfx12" or (flushes and not self.modes >> 9 & 1)
            ):
                x = x * x.dtype.type((1, 2, 4, 0.5)[self.choice.omod])
                x = np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x)
                v = pcode_values.of_floats(x, v.bits)
            if not self.choice.clamp:
                return self.flushed(v.raw, f"{v.kind}{v.bits}", 1)
            kept = np.where(np.isnan(x) | (x <= 0), x.dtype.type(0), np.minimum(x, x.dtype.type(1)))
            if self.modes & KEEPS_NAN:
                kept = np.where(np.isnan(x), x, kept)
        return self.flushed(pcode_values.of_floats(kept, v.bits).raw, f"{v.kind}{v.bits}", 1)

    def clamped_parts(self, raw: Array) -> Array:
        type_ = self.form.type_of_result
        if type_[0] != "f":
            return raw
        bits = int(type_[1:])
        part = np.uint64((1 << bits) - 1)
        low, high = raw & part, raw >> np.uint64(bits) & part
        if "mixhi" not in self.form.stem:
            low = self.modified(Value("f", bits, low))
        if "mixlo" not in self.form.stem:
            high = self.modified(Value("f", bits, high))
        if bits == 32 and self.form.opcode.operands[0].dwords == 1:
            return low
        return low | high << np.uint64(bits)


def _bounds(select: int) -> tuple[int, int]:
    """Return where a part of SDWA begins, and its bits."""
    return (8 * select, 8) if select < 4 else (16 * (select - 4), 16) if select < 6 else (0, 32)


def part_of(raw: Array, select: int, extended: int) -> Array:
    """Return a byte or word of a source, extended by zeros or its sign to 32 bits."""
    low, bits = _bounds(select)
    part: Array = raw >> np.uint64(low) & np.uint64((1 << bits) - 1)
    shift = np.uint64(64 - bits)
    wide: Array = ((part << shift).view("i8") >> shift.astype("i8")).view("u8") & np.uint64(0xFFFF_FFFF)
    return wide if extended else part


def placed_part(result: Array, old: Array, select: int, unused: int) -> Array:
    """Return a result in a byte or word of a register: zeros, its sign or the old bits around it."""
    low, bits = _bounds(select)
    if select == 6:
        return result
    part = (result & np.uint64((1 << bits) - 1)) << np.uint64(low)
    if unused == 2:
        return old & np.uint64(0xFFFF_FFFF ^ ((1 << bits) - 1) << low) | part
    sign = result >> np.uint64(bits - 1) & np.uint64(unused)
    return part | sign * np.uint64(-1 << low + bits & 0xFFFF_FFFF)


@cache
def texts_by_name(name: str) -> dict[str, str]:
    """Return the texts that others call by name."""
    return {stem: text for (kind, _), (stem, text) in pcode.table(name).items() if kind.startswith("VOP")}


_DESTINATIONS = {
    "vdst": 12,
    "src0": VECTOR + 4,
    "src1": VECTOR + 6,
    "src2": VECTOR + 8,
    "vsrc1": 6,
    "sdst": 10,
}


def case(form: Form, choice: Choice, modes: int = KEEP_ALL) -> Case:
    """Return a form as words and what they make."""
    name, opcode = form.target, form.opcode
    layout = opcode.form
    fields, more = dict(_DESTINATIONS), []
    compare = form.stem.startswith("v_cmp")
    executes = form.stem.startswith("v_cmpx")
    gfx9 = target(name).family == "gfx9"
    lane_result = any(s.field in ("vdst", "sdst") and s.scalar for s in opcode.operands) and not compare
    if compare:
        fields["vdst"] = EXEC if executes and not gfx9 else 10
    elif lane_result:
        fields["vdst"] = fields["sdst"] = 10
    for slot in opcode.operands:
        if slot.field == "src2" and form.is_mask(slot):
            fields["src2"] = 8
    for number, (source, _) in enumerate(form.sources):
        if scalar_source(form, number):
            fields[source] = 8
    if choice.operand is not None:
        number, kind = choice.operand
        code = 8 if kind == "scalar" else LITERAL if kind == "literal" else INLINE.get(kind, 0)
        code = {"int 1": 129, "int -16": 208}.get(kind, code)
        fields[form.sources[number][0]] = code
        if kind == "literal":
            more.append(LITERAL_WORD)
    if opcode.literal:
        more.append(LITERAL_WORD)
    for number, (field, _) in enumerate(form.sources):
        if choice.high >> number & 1:
            fields[field] += 128
    fields["vdst"] += 128 if choice.high & 8 else 0
    fields |= {"neg": choice.neg, "abs": choice.abs, "neg_hi": choice.neg_hi, "op_sel": choice.op_sel,
               "clamp": choice.clamp, "omod": choice.omod, "op_sel_hi": choice.op_sel_hi & 3,
               "op_sel_hi2": choice.op_sel_hi >> 2}  # fmt: skip
    short = form.kind in ("VOP1", "VOP2", "VOPC")
    if choice.moved is not None:
        control, bound, inactive, rows, banks = choice.moved
        fields["src0"] = 250
        extra = 4 | control << 8 | inactive << 18 | bound << 19 | banks << 24 | rows << 28
        for n in range(2) if short else ():
            extra |= (choice.neg >> n & 1) << 20 + 2 * n | (choice.abs >> n & 1) << 21 + 2 * n
        more.append(extra)
    if choice.eight:
        fields["src0"] = 233 + choice.eight[8]
        more.append(4 | sum(n << 8 + 3 * at for at, n in enumerate(choice.eight[:8])))
    if choice.parts is not None:
        s0, x0, s1, x1, to, unused = choice.parts
        fields["src0"] = 249
        extra = 4 | s0 << 16 | x0 << 19 | s1 << 24 | x1 << 27 | (0 if compare else to << 8 | unused << 11)
        extra |= choice.clamp << 13
        for n in range(2):
            extra |= (choice.neg >> n & 1) << 20 + 8 * n | (choice.abs >> n & 1) << 21 + 8 * n
        more.append(extra)
    named = {s.field for s in opcode.operands}
    used = {
        k: v
        for k, v in fields.items()
        if k in layout.fields and (k in named or k not in _DESTINATIONS or (k == "vdst" and compare))
    }
    encoding = layout.base
    for field, content in (used | {"op": form.number}).items():
        encoding = layout.put(encoding, field, content)
    words = [encoding >> 32 * n & 0xFFFF_FFFF for n in range(layout.dwords)] + more
    definition = Definition(form, choice, modes)
    memory: list[tuple[int, dict[str, Any]]] = []

    def after(one: Inputs) -> dict[str, Any]:
        if not memory or memory[0][0] != id(one):
            memory[:] = [(id(one), definition.run(one))]
        return memory[0][1]

    def bit(of: str) -> Callable[[Inputs], Array]:
        def bits(one: Inputs) -> Array:
            raw = np.broadcast_to(after(one)[of].raw, (one.lanes,)).astype("u8")
            if form.stem.startswith("v_div_scale"):
                return raw & np.uint64(1)
            if of == "D1":
                return raw & np.uint64(1)
            own: Array = raw >> (np.arange(one.lanes) % one.wave).astype("u8") & np.uint64(1)
            return own

        return bits

    text = f"{form.kind} {form.stem} {choice}"
    if compare:
        made = bit("EXEC" if executes else "D0")
        long = form.kind == "VOP3"
        return Case(words, None, vcc=made if not long and (gfx9 or not executes) else None,
                    other=made if long and (gfx9 or not executes) else None, active=made if executes else None, text=text)  # fmt: skip
    if form.stem.startswith("v_swap"):  # the source keeps its value for the forms behind
        words = [*single.move(name, 14, VECTOR + 4), *words, *single.move(name, 4, VECTOR + 14)]
    if lane_result:
        words = [
            *words,
            *single.move(name, 12, 10),
            *single.encode(name, "s_mov_b64", "SOP1", sdst=10, ssrc0=128),
        ]

    def result(one: Inputs) -> Array:
        return definition.result(after(one), one)

    carry = form.kind == "VOP3SD" or any(s.field == "vcc" for s in opcode.operands[:2])
    mask_of = "D1" if form.stem.startswith(("v_mad_u64", "v_mad_i64")) else "VCC"
    slots = [s for s in opcode.operands if s.field == "vdst"]
    wide = bool(slots) and slots[0].dwords == 2
    return Case(words, result, vcc=bit(mask_of) if carry and form.kind != "VOP3SD" else None,
                other=bit(mask_of) if form.kind == "VOP3SD" else None, wide=wide, text=text, same=same(form),
                reads_vcc="VCC" in form.text)  # fmt: skip


def same(form: Form) -> Callable[[Array, Array], Array]:
    """Return when two results are alike: equal bits, two NaNs, or 1 ulp where the documents give a bound."""
    type_ = form.type_of_result
    if form.kind in ("VOP1", "VOP2", "VOP3") and "pk_rtz" in form.stem:
        type_ = "f16"
    if type_[0] != "f":
        return np.equal
    bits = int(type_[1:])
    part = np.uint64((1 << bits) - 1) if bits < 64 else np.uint64(0xFFFF_FFFF_FFFF_FFFF)

    def alike(got: Array, wanted: Array) -> Array:
        found = np.ones(got.shape, bool)
        for low in range(0, 64, bits):
            a, b = (v >> np.uint64(low) & part for v in (got, wanted))
            x, y = (pcode_values.floats(Value("f", bits, v)) for v in (a, b))
            equal = (a == b) | (np.isnan(x) & np.isnan(y))
            if form.stem in INEXACT:
                sign = np.uint64(1 << bits - 1)
                near = (a & sign == b & sign) & (np.abs(a.astype("i8") - b.astype("i8")) <= 1)
                equal |= near & ~np.isnan(x) & ~np.isnan(y)
            found &= equal
        return found

    return alike
