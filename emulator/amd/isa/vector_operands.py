"""Decodes scalar and general operands, and operands and modifiers of the vector formats.

`Reading` is the state of decoding one instruction: the dwords taken so far.

Errors are `IsaError`s that name the dwords. Texts are those of LLVM's disassembler. Source: as `opcodes`.

Not here: VOPD, SDWA and DPP (`decode`), the effect of modifiers (`values`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import (
    VCC,
    Imm,
    Instruction,
    IsaError,
    Operand,
    Reg,
    halves,
    inline,
    literal,
    signed,
)

if TYPE_CHECKING:
    from emulator.amd.isa.opcodes import EncodingFormat, IsaTarget, Opcode, Slot

LITERAL, ZERO = 255, 128
"""Encodings of a general source: a dword that follows, and the constant 0."""


@dataclass(slots=True)
class Reading:
    """The state of decoding one instruction."""

    target: IsaTarget
    lanes: int
    """Lanes of the wave: 32 or 64."""
    address: int
    """Bytes from the kernel's first instruction."""
    encoding: int
    """The next dwords of the code, at most 5, the first lowest."""
    dwords: int
    """The number of dwords in `encoding`."""
    kernel: str
    form: EncodingFormat | None = None
    """The format; None until it is found."""
    taken: int = 0
    """Dwords decoded so far."""

    def error(self, why: str) -> IsaError:
        """Return an error that names the dwords taken so far, at least the first."""
        count = max(self.taken, 1)
        words = " ".join(f"{self.encoding >> 32 * k & 0xFFFF_FFFF:08x}" for k in range(count))
        form = f"{self.form.name} " if self.form else ""
        return IsaError(why, text=f"{form}[{words}]", address=self.address, kernel=self.kernel)

    def next_dword(self) -> int:
        """Take the next dword, and return it. Raises `IsaError` at the end of the code."""
        if self.taken >= self.dwords:
            raise self.error("the code ends within the instruction")
        value = self.encoding >> 32 * self.taken & 0xFFFF_FFFF
        self.taken += 1
        return value

    def field(self, name: str) -> int:
        """Return a field of the format; 0 if the format does not have it."""
        assert self.form is not None
        return self.form.get(self.encoding, name)


def scalar_register(reading: Reading, code: int, count: int) -> Reg:
    """Return `count` scalar registers by their encoding. Raises `IsaError` for an encoding of no register."""
    gfx9 = reading.target.family == "gfx9"
    known = code < 128 or code in (235, 236, 237, 238, 251, 252, 253)
    if not known:
        raise reading.error(f"{code} is no scalar register")
    return Reg("s", code, count, gfx9=gfx9)


def source(reading: Reading, code: int, count: int, *, bits: int = 32) -> Operand:
    """Return a source operand of `count` dwords by its 8- or 9-bit encoding; a literal takes the next dword.

    `bits` is the operand's width, for the texts of constants. Raises `IsaError` for an unknown encoding.
    """
    if code >= 256:
        return Reg("v", code - 256, count)
    if code == LITERAL:
        return literal(reading.next_dword())
    constant = inline(code, bits)
    return constant if constant is not None else scalar_register(reading, code, count)


def width(reading: Reading, opcode: Opcode, slot: Slot) -> int:
    """Return the dwords of an operand. Those of masks and matrices depend on the lanes of the wave."""
    if slot.mask:
        return reading.lanes // 32
    if reading.lanes == 64 and opcode.name.startswith("v_swmmac"):
        return max(1, slot.dwords // 2)
    if reading.lanes == 64 and opcode.name.startswith("v_wmma"):
        return (
            slot.dwords // 2
            if slot.field in ("vdst", "src2") or reading.target.family == "gfx12"
            else slot.dwords
        )
    return slot.dwords


def lane_mask(reading: Reading) -> Reg:
    """Return VCC as a mask of the wave's lanes."""
    return Reg("s", VCC, reading.lanes // 32, gfx9=reading.target.family == "gfx9")


def made(  # noqa: PLR0917 - the parts of an instruction, in order
    reading: Reading,
    opcode: Opcode,
    name: str,
    items: list[Operand],
    modifiers: dict[str, int],
    tail: str = "",
) -> Instruction:
    """Return the decoded instruction; modifiers of 0 are left out."""
    return Instruction(
        reading.address,
        4 * reading.taken,
        opcode,
        name,
        tuple(items),
        {k: v for k, v in modifiers.items() if v},
        tail,
    )


_LONG = ("VOP3", "VOP3SD", "VOP3P")
"""The formats with three sources."""


def refuse_unused(reading: Reading, opcode: Opcode) -> None:
    """Raise `IsaError` for an operand field that the opcode does not use and that is not 0.

    An unused source of VOP3 may also be the constant 0, which newer LLVMs encode.
    """
    form = opcode.form
    if form.name == "VOPC":
        return
    named = {slot.field for slot in opcode.operands}
    for field in ("src0", "src1", "src2", "vsrc1", "vdst"):
        if (
            field in named
            or field not in form.fields
            or (field == "vdst" and opcode.name.startswith("v_cmp"))
        ):
            continue
        code = reading.field(field)
        if code and not (code == ZERO and form.name in _LONG and field.startswith("src")):
            raise reading.error(f"{opcode.name} has no operand {field}")


def vector_operands(reading: Reading, opcode: Opcode, first: Operand | None = None) -> list[Operand]:
    """Return the operands in the assembler's order, without modifiers; a literal takes the next dword.

    `first` replaces the first source, if a further dword (DPP, SDWA) gives it.
    """
    short = opcode.form.name in ("VOP1", "VOP2", "VOPC")
    to_half, from_half = halves(opcode.stem) if reading.target.halves else (False, (False, False, False))
    items: list[Operand] = []
    number = 0
    op_sel = reading.field("op_sel") if opcode.form.name == "VOP3" else 0
    constant: Imm | None = None
    for slot in opcode.operands:
        field, count = slot.field, width(reading, opcode, slot)
        if field == "vcc":
            items.append(lane_mask(reading))
        elif field in ("vdst", "sdst"):
            items.append(_destination(reading, slot, count, half=to_half, short=short, op_sel=op_sel))
        else:
            half = from_half[number] and not slot.mask
            item = (
                first
                if field == "src0" and first is not None
                else _source(reading, opcode, slot, count, constant)
            )
            if isinstance(item, Imm) and item.literal:
                constant = item
            if half and isinstance(item, Reg) and item.file == "v":
                item = _half(item, short=short, high=bool(op_sel >> number & 1))
            items.append(item)
            number += 1
    if opcode.literal:
        value = constant or literal(reading.next_dword())
        if "fmamk" in opcode.name or "madmk" in opcode.name:
            items.insert(2, value)
        else:
            items.append(value)
    return items


def _destination(reading: Reading, slot: Slot, count: int, *, half: bool, short: bool, op_sel: int) -> Reg:
    code = reading.field(slot.field)
    if slot.field == "sdst" or slot.scalar:
        return scalar_register(reading, code & 127, count)
    accumulates = slot.accumulator or (slot.field == "vdst" and reading.field("acc_cd"))
    found = Reg("a" if accumulates else "v", code, count)
    return _half(found, short=short, high=bool(op_sel >> 3)) if half else found


_WRITES = "v_accvgpr_write_b32"
"""An operation whose source is a vector register or a constant, although assemblers set ACC (a bit of op_sel_hi)."""


def _source(reading: Reading, opcode: Opcode, slot: Slot, count: int, constant: Imm | None) -> Operand:
    """Return a source operand; ACC and ACC_CD select accumulation registers."""
    code = reading.field(slot.field)
    if slot.field == "vsrc1":
        if slot.scalar:
            return source(reading, code, count)
        return Reg("v", code, count)
    if code == LITERAL and constant is not None:
        return constant
    item = source(reading, code, count, bits=32 * count)
    if isinstance(item, Reg) and item.file == "v":
        number = int(slot.field[-1])
        if (
            slot.accumulator
            or (number < 2 and reading.field("acc") >> number & 1 and opcode.name != _WRITES)
            or (number == 2 and reading.field("acc_cd"))
        ):
            return replace(item, file="a")
    return item


def _half(item: Reg, *, short: bool, high: bool) -> Reg:
    """Return a half of a register: bit 7 of its number selects it in `short` encodings, else `high` does."""
    if short:
        high = bool(item.index >> 7)
        return replace(item, index=item.index & 127, half="h" if high else "l")
    return replace(item, half="h" if high else "l")


OP_SEL_HI_2 = 8
"""A bit of `abid` without meaning in moves to and from accumulation registers. LLVM sets it, because it encodes
them as packed instructions, in which it is the last bit of op_sel_hi."""


def modifiers_of(reading: Reading, opcode: Opcode, items: list[Operand]) -> tuple[dict[str, int], str]:
    """Return the modifiers of VOP3, VOP3P and MFMA, and their text; neg and abs are also put into `items`.

    Raises `IsaError` for a modifier that the opcode or the source does not have.
    """
    form, known = opcode.form, opcode.modifiers
    found = {
        f: reading.field(f)
        for f in ("neg", "abs", "neg_hi", "op_sel", "clamp", "omod", "cbsz", "abid", "blgp")
        if f in form.fields
    }
    tail = ""
    if opcode.name.startswith("v_accvgpr_") and found.get("abid") == OP_SEL_HI_2:
        found["abid"] = 0
    if form.name == "VOP3P":
        return _packed_modifiers(reading, opcode, items, found)
    if opcode.name.startswith("v_accvgpr_") and form.name == "MFMA":
        found["abid"] &= 7  # bit 14 is op_sel_hi of VOP3P, which assemblers set and nothing reads
    for field in ("clamp", "omod", "cbsz", "abid", "blgp"):
        if found.get(field) and field not in known:
            raise reading.error(f"{opcode.name} takes no {field}")
    alone = opcode.name.startswith("v_cmpx") and reading.target.family != "gfx9"  # has no destination operand
    sources = len(opcode.operands) if alone else max(len(opcode.operands) - 1, 0)
    first = len(items) - (sources - (1 if form.name == "VOP3SD" else 0))
    count = len(items) - first
    for what in ("neg", "abs"):
        if found.get(what, 0) >> count:
            raise reading.error(f"{opcode.name} has no source {found[what].bit_length() - 1} to take {what}")
    for number in range(count):
        neg, absolute = found.get("neg", 0) >> number & 1, found.get("abs", 0) >> number & 1
        for what, on in (("neg", neg), ("abs", absolute)):
            if on and str(number) not in known.get(what, ""):
                raise reading.error(f"source {number} of {opcode.name} takes no {what}")
        items[first + number] = signed(items[first + number], neg=bool(neg), absolute=bool(absolute))
    tail += _op_sel_text(reading, opcode, items[first:], found.get("op_sel", 0))
    for field in ("cbsz", "abid", "blgp"):
        if found.get(field):
            negates = field == "blgp" and opcode.name.startswith("v_mfma_f64")
            tail += (
                f" neg:[{','.join(str(found[field] >> n & 1) for n in range(3))}]"
                if negates
                else f" {field}:{found[field]}"
            )
    tail += " clamp" if found.get("clamp") else ""
    tail += ("", " mul:2", " mul:4", " div:2")[found.get("omod", 0)]
    return found, tail


def _op_sel_text(reading: Reading, opcode: Opcode, sources: list[Operand], op_sel: int) -> str:
    """Return the text of op_sel; "" if it is 0, or if the operands' halves say the same."""
    if not op_sel:
        return ""
    if not reading.target.halves or halves(opcode.stem) == (False, (False, False, False)):
        known = opcode.modifiers.get("op_sel", "")
        if any(op_sel >> k & 1 and str(k) not in known for k in range(4)):
            raise reading.error(f"{opcode.name} takes no op_sel {op_sel:#x}")
        shown = 2 if opcode.name.startswith("v_permlane") else len(sources)
        bits = [op_sel >> k & 1 for k in range(shown)] + ([op_sel >> 3] if "3" in known else [])
        return f" op_sel:[{','.join(map(str, bits))}]"
    odd = [k for k, s in enumerate(sources) if op_sel >> k & 1 and not (isinstance(s, Reg) and s.half)]
    if not odd:
        return ""
    bits = [op_sel >> k & 1 for k in range(len(sources))] + [op_sel >> 3]
    return f" op_sel:[{','.join(map(str, bits))}]"


def _packed_modifiers(
    reading: Reading, opcode: Opcode, items: list[Operand], found: dict[str, int]
) -> tuple[dict[str, int], str]:
    """Return the modifiers of VOP3P and their text, as `modifiers_of`."""
    count = len(items) - 1
    found["op_sel_hi"] = reading.field("op_sel_hi") | reading.field("op_sel_hi2") << 2
    if opcode.stem.startswith(("v_fma_mix", "v_mad_mix")):
        found["abs"] = found.pop("neg_hi")
        for k in range(count):
            items[1 + k] = signed(
                items[1 + k], neg=bool(found["neg"] >> k & 1), absolute=bool(found["abs"] >> k & 1)
            )
        names: tuple[tuple[str, str, int], ...] = (("op_sel", "op_sel", 0), ("op_sel_hi", "op_sel_hi", 0))
    else:
        names = (
            ("op_sel", "op_sel", 0),
            ("op_sel_hi", "op_sel_hi", -1),
            ("neg_lo", "neg", 0),
            ("neg_hi", "neg_hi", 0),
        )
    tail = ""
    for text, field, plain in names:
        bits = [found[field] >> k & 1 for k in range(count)]
        known = field in opcode.modifiers or field == "op_sel_hi"
        if not known and any(bits):
            raise reading.error(f"{opcode.name} takes no {text}")
        if field == "op_sel_hi" and "op_sel_hi" not in opcode.modifiers:
            continue
        if any(bit != plain & 1 for bit in bits):
            tail += f" {text}:[{','.join(map(str, bits))}]"
    if found["clamp"] and "clamp" not in opcode.modifiers:
        raise reading.error(f"{opcode.name} takes no clamp")
    return found, tail + (" clamp" if found["clamp"] else "")


def first_source(opcode: Opcode) -> int:
    """Return the index of the first source among the operands."""
    return next(k for k, slot in enumerate(opcode.operands) if slot.field == "src0")


def extra_dword(reading: Reading, opcode: Opcode) -> int:
    """Take the further dword of DPP or SDWA. Raises `IsaError` for an opcode that has a literal."""
    if opcode.literal:
        raise reading.error(f"{opcode.name} has a literal, and so no dword of DPP or SDWA")
    return reading.next_dword()
