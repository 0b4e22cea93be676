"""Every vector instruction of a target as cases whose definition is the ISA documents' pseudo-code.

A form is an operation in one encoding with one choice of operands and modifiers. Of each operation there is the
plain form, each operand as a scalar register, an inline constant and a literal, each half that true16 encodings and
op_sel name, and rows of modifiers in which every three bits of neg, abs, op_sel, clamp and omod meet in all ways.
Inputs are edge values: all pairs of 30 of two sources, all triples of 10 of three.

Not here: what a form makes of its inputs (`pcode_definitions`), the run (`lane_cases`), the verdicts (`test_pcode`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.opcodes import Opcode, Slot, target
from tests.emulator.amd_isa import pcode
from tests.emulator.amd_isa.lane_cases import Inputs
from tests.emulator.amd_isa.pcode_decisions import decided
from tools.record.amd.vector import CARRY, KINDS, MASK, PARTIAL

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]
LANES = 1024


# Inputs


def bits_of(code: str, *values: float) -> list[int]:
    """Return floats of a size as `struct` names it ("e", "f", "d") as integers."""
    size = {"e": "H", "f": "I", "d": "Q"}[code]
    return [struct.unpack(f"<{size}", struct.pack(f"<{code}", v))[0] for v in values]


_NUMBERS = (
    0.0, -1.5, 1.0, -0.0, float("inf"), 0.5, 2.5, -float("inf"), 3.0, -2.0, 1.0 / 3, 255.5, 0.25, -0.75,
)  # fmt: skip
EDGES: dict[str, list[int]] = {
    "f16": [*bits_of("e", *_NUMBERS[:5]), 0x0001, 0x7E01, 0x7BFF, 0x8400, 0x7D01, *bits_of("e", *_NUMBERS[5:]), 0x03FF,
            0x83FF, 0x0400, 0xFBFF, 0xFE00, 0x3BFF, 0x3801, 0x6400, 0xE801, 0x7800, 0x1001],
    "f32": [*bits_of("f", *_NUMBERS[:5]), 0x0000_0001, 0x7FC0_0001, 0x7F7F_FFFF, 0x8080_0000, 0x7FA0_0001,
            *bits_of("f", *_NUMBERS[5:], 65520.0, -(2.0**31), 2.0**31, 2.0**32, 1e-8, 8388609.0, 0.49999997),
            0x807F_FFFF, 0x0080_0000, 0xFF7F_FFFF, 0x7E80_0000],
    "f64": [*bits_of("d", *_NUMBERS[:5]), 1, 0x7FF8_0000_0000_0001, 0x7FEF_FFFF_FFFF_FFFF, 1 << 63 | 1 << 52,
            0x7FF4_0000_0000_0001, *bits_of("d", *_NUMBERS[5:], 2.0**31, -(2.0**31) - 1, 2.0**32, 2.0**52 + 1, 1e-300,
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
        if kind not in KINDS:
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
        if kind in KINDS and (kind, n) not in named
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
