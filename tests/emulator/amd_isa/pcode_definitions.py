"""What a form of a vector instruction makes of its inputs, and the form as words with that definition.

What the pseudo-code does not say is said here, with the manual's words: modifiers, halves, results of sixteen bits.

Not here: which forms there are and their inputs (`pcode_forms`), the evaluator (`pcode`). Next: `pcode_tally`.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.modes import KEEP_ALL, KEEPS_NAN
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.vector_floats import INEXACT
from tests.emulator.amd_isa import pcode, pcode_values, single
from tests.emulator.amd_isa.lane_cases import ROW, Case, Inputs, source_lane
from tests.emulator.amd_isa.pcode_forms import INLINE, LITERAL_WORD, bits_of, scalar_source
from tests.emulator.amd_isa.pcode_values import Value, value
from tests.emulator.amd_isa.single import EXEC, LITERAL, VECTOR
from tools.record.amd.encode import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_isa.pcode_forms import Choice, Form

Array = np.ndarray[Any, Any]
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
            return bits_of("e" if sixteen else "d" if bits == 64 else "f", 1.0)[0]
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
    "vdst": 12, "src0": VECTOR + 4, "src1": VECTOR + 6, "src2": VECTOR + 8, "vsrc1": 6, "sdst": 10,
}  # fmt: skip


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
    words = packed(opcode, form.number, used) + more
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
