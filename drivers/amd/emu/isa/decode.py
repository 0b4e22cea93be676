"""Machine code to instructions: which format, which opcode, which operands and modifiers.

Every set bit must be understood: an encoding with a bit that its opcode has no meaning for is an `IsaError`.

Not here: the encodings (`formats`), the opcodes of a target (`opcodes`), what an instruction does
(`translate`).
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drivers.amd.emu.isa import memory_operands
from drivers.amd.emu.isa.formats import DPP16, SDWA, VOP3SD, Format
from drivers.amd.emu.isa.halves import halves
from drivers.amd.emu.isa.immediates import RETURNED, hwreg, program_text
from drivers.amd.emu.isa.instruction import Instruction, IsaError
from drivers.amd.emu.isa.operands import VCC, Imm, Operand, Reg, Word, inline, literal, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.amd.emu.isa.opcodes import Opcode, Slot, Target

DPP, DPP8, DPP8_FETCH, SDWA_CODE, LITERAL, ZERO = 250, 233, 234, 249, 255, 128
_MEMORY = {"SMEM", "DS", "FLAT", "SCRATCH", "GLOBAL", "MUBUF"}
_SOPK_NO_VALUE = {"s_version", "s_setreg_b32", "s_setreg_imm32_b32", "s_getreg_b32"}


@dataclass(slots=True)
class Reading:
    """One instruction being decoded."""

    target: Target
    lanes: int
    address: int
    encoding: int
    """All the dwords there are from here on, as far as an instruction can reach."""
    dwords: int
    kernel: str
    form: Format | None = None
    taken: int = 0
    """Dwords read so far."""

    def error(self, why: str) -> IsaError:
        """Return the error that these bits are not understood."""
        count = max(self.taken, 1)
        words = " ".join(f"{self.encoding >> 32 * k & 0xFFFF_FFFF:08x}" for k in range(count))
        form = f"{self.form.name} " if self.form else ""
        return IsaError(why, text=f"{form}[{words}]", address=self.address, kernel=self.kernel)

    def next_dword(self) -> int:
        """Take the dword behind those read so far."""
        if self.taken >= self.dwords:
            raise self.error("the code ends within the instruction")
        value = self.encoding >> 32 * self.taken & 0xFFFF_FFFF
        self.taken += 1
        return value

    def field(self, name: str) -> int:
        """Read a field of the format."""
        assert self.form is not None
        return self.form.get(self.encoding, name)


def decode(code: bytes, target: Target, *, lanes: int = 0, kernel: str = "") -> list[Instruction]:
    """Decode code from its start to its end; `lanes` is 32 or 64 where the kernel chooses."""
    return list(instructions(code, target, lanes=lanes, kernel=kernel))


def instructions(code: bytes, target: Target, *, lanes: int = 0, kernel: str = "") -> Iterator[Instruction]:
    """Yield the instructions of code, one behind another."""
    at = 0
    while at < len(code):
        found = one(code, at, target, lanes=lanes or target.lanes, kernel=kernel)
        yield found
        at += found.size


def one(code: bytes, at: int, target: Target, *, lanes: int, kernel: str = "") -> Instruction:
    """Decode the instruction at a byte offset."""
    raw = code[at : at + 20]
    reading = Reading(target, lanes, at, int.from_bytes(raw, "little"), len(raw) // 4, kernel)
    if not reading.dwords:
        raise reading.error("the code ends within the instruction")
    first = reading.encoding & 0xFFFF_FFFF
    reading.form = form = next((f for f in target.formats if f.matches(first)), None)
    if form is None:
        reading.taken = 1
        raise reading.error("no format of this target begins so")
    reading.taken = form.dwords
    if form.dwords > reading.dwords:
        raise reading.error("the code ends within the instruction")
    if form.name == "VOPD":
        return _dual(reading)
    opcode = _opcode(reading)
    own = reading.encoding & (1 << 32 * form.dwords) - 1
    if own & ~opcode.form.known_bits:
        raise reading.error("reserved bits are set")
    if form.name in _MEMORY:
        return memory_operands.decode(reading, opcode)
    if form.name in ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"):
        return _scalar(reading, opcode)
    return _vector(reading, opcode)


def _opcode(reading: Reading) -> Opcode:
    form = reading.form
    assert form is not None
    name, op = form.name, reading.field("op")
    if name == "FLAT" and "seg" in form.fields:
        segment = reading.field("seg")
        if segment == 3:
            raise reading.error("segment 3 does not exist")
        name = ("FLAT", "SCRATCH", "GLOBAL")[segment]
    found = reading.target.opcodes.get((name, op))
    if found is None and name == "VOP3":
        found = reading.target.opcodes.get(("VOP3SD", op))
        if found is not None:
            reading.form = VOP3SD[reading.target.family]
    if found is None:
        raise reading.error(f"opcode {op} of {name} is not in the table of {reading.target.name}")
    return found


# ---- sources


def scalar_register(reading: Reading, code: int, count: int) -> Reg:
    """Return a scalar register by its encoding."""
    gfx9 = reading.target.family == "gfx9"
    known = code < 128 or code in (235, 236, 237, 238, 251, 252, 253)
    if not known:
        raise reading.error(f"{code} is no scalar register")
    return Reg("s", code, count, gfx9=gfx9)


def source(reading: Reading, code: int, count: int, *, bits: int = 32) -> Operand:
    """Return a source operand by its 8- or 9-bit encoding."""
    if code >= 256:
        return Reg("v", code - 256, count)
    if code == LITERAL:
        return literal(reading.next_dword())
    constant = inline(code, bits)
    return constant if constant is not None else scalar_register(reading, code, count)


def width(reading: Reading, opcode: Opcode, slot: Slot) -> int:
    """Return the dwords of an operand: those of masks and of matrices depend on the size of the wave."""
    if slot.mask:
        return reading.lanes // 32
    if reading.lanes == 64 and opcode.name.startswith("v_wmma"):
        return (
            slot.dwords // 2
            if slot.field in ("vdst", "src2") or reading.target.family == "gfx12"
            else slot.dwords
        )
    return slot.dwords


def _lane_mask(reading: Reading) -> Reg:
    return Reg("s", VCC, reading.lanes // 32, gfx9=reading.target.family == "gfx9")


# ---- scalar formats


def _scalar(reading: Reading, opcode: Opcode) -> Instruction:
    name, family = opcode.name, reading.target.family
    items: list[Operand] = []
    value = reading.field("simm16")
    if reading.form is not None and reading.form.name == "SOPP":
        text = program_text(name, value, family)
        return _made(reading, opcode, name, [Word(text, value)] if text else [], {"simm16": value})
    for slot in opcode.operands:
        code = reading.field(slot.field)
        if slot.field == "sdst":
            items.append(scalar_register(reading, code, slot.dwords))
        elif name.startswith("s_sendmsg_rtn"):
            items.append(Word(f"sendmsg({RETURNED.get(code, code)})", code))
        else:
            items.append(source(reading, code, slot.dwords, bits=32 * slot.dwords))
    if reading.form is not None and reading.form.name == "SOPK":
        field = Word(hwreg(value, family), value) if name.startswith(("s_getreg", "s_setreg")) else None
        if field is None:
            items.append(
                Word(str(value) if name.startswith(("s_call", "s_subvector")) else f"{value:#x}", value)
            )
        elif name == "s_getreg_b32":
            items.append(field)
        else:
            items.insert(0, field)
    if opcode.literal:
        constant = reading.next_dword()
        if name == "s_setreg_imm32_b32":
            items.append(Word(str(constant) if constant < 65 else f"{constant:#x}", constant))
        elif name == "s_fmamk_f32":
            items.insert(2, literal(constant))
        else:
            items.append(literal(constant))
    return _made(reading, opcode, name, items, {"simm16": value})


def _made(  # noqa: PLR0917 - the parts of an instruction, in order
    reading: Reading,
    opcode: Opcode,
    name: str,
    items: list[Operand],
    modifiers: dict[str, int],
    tail: str = "",
) -> Instruction:
    return Instruction(
        reading.address,
        4 * reading.taken,
        opcode,
        name,
        tuple(items),
        {k: v for k, v in modifiers.items() if v},
        tail,
    )


# ---- vector formats


def _vector(reading: Reading, opcode: Opcode) -> Instruction:
    form = opcode.form
    code = reading.field("src0")
    if form.name != "MFMA" and any(s.field == "src0" for s in opcode.operands):
        if code == DPP:
            return _dpp(reading, opcode)
        if code in (DPP8, DPP8_FETCH) and reading.target.family != "gfx9":
            return _dpp8(reading, opcode, fetch=code == DPP8_FETCH)
        if code == SDWA_CODE and reading.target.family == "gfx9":
            return _sdwa(reading, opcode)
    _refuse_unused(reading, opcode)
    items = _vector_operands(reading, opcode)
    modifiers, tail = _modifiers(reading, opcode, items)
    return _made(reading, opcode, opcode.name, items, modifiers, tail)


def _refuse_unused(reading: Reading, opcode: Opcode) -> None:
    """Refuse operands that the opcode has no use for; a source of VOP3 may be the constant 0, as newer LLVMs write it."""
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
        if code and not (code == ZERO and form.name == "VOP3" and field.startswith("src")):
            raise reading.error(f"{opcode.name} has no operand {field}")


def _vector_operands(reading: Reading, opcode: Opcode, first: Operand | None = None) -> list[Operand]:
    """Return the operands; `first` stands for the first source where another dword tells it."""
    short = opcode.form.name in ("VOP1", "VOP2", "VOPC")
    to_half, from_half = halves(opcode.stem) if reading.target.halves else (False, (False, False, False))
    items: list[Operand] = []
    number = 0
    op_sel = reading.field("op_sel") if opcode.form.name == "VOP3" else 0
    constant: Imm | None = None
    for slot in opcode.operands:
        field, count = slot.field, width(reading, opcode, slot)
        if field == "vcc":
            items.append(_lane_mask(reading))
        elif field in ("vdst", "sdst"):
            items.append(_destination(reading, slot, count, half=to_half, short=short, op_sel=op_sel))
        else:
            half = from_half[number] and not slot.mask
            item = first if field == "src0" and first is not None else _source(reading, slot, count, constant)
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


def _source(reading: Reading, slot: Slot, count: int, constant: Imm | None) -> Operand:
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
            or (number < 2 and reading.field("acc") >> number & 1)
            or (number == 2 and reading.field("acc_cd"))
        ):
            return replace(item, file="a")
    return item


def _half(item: Reg, *, short: bool, high: bool) -> Reg:
    if short:
        high = bool(item.index >> 7)
        return replace(item, index=item.index & 127, half="h" if high else "l")
    return replace(item, half="h" if high else "l")


def _modifiers(reading: Reading, opcode: Opcode, items: list[Operand]) -> tuple[dict[str, int], str]:
    """Take the modifiers of VOP3, VOP3P and MFMA; signs go to the sources, the rest is returned with its text."""
    form, known = opcode.form, opcode.modifiers
    found = {
        f: reading.field(f)
        for f in ("neg", "abs", "neg_hi", "op_sel", "clamp", "omod", "cbsz", "abid", "blgp")
        if f in form.fields
    }
    tail = ""
    if form.name == "VOP3P":
        return _packed_modifiers(reading, opcode, items, found)
    for field in ("clamp", "omod", "cbsz", "abid", "blgp"):
        if found.get(field) and field not in known:
            raise reading.error(f"{opcode.name} takes no {field}")
    sources = len(opcode.operands) - 1 if not opcode.name.startswith("v_cmpx") else len(opcode.operands)
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
            tail += f" {field}:{found[field]}"
    tail += " clamp" if found.get("clamp") else ""
    tail += ("", " mul:2", " mul:4", " div:2")[found.get("omod", 0)]
    return found, tail


def _op_sel_text(reading: Reading, opcode: Opcode, sources: list[Operand], op_sel: int) -> str:
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


# ---- lanes moved by the encoding, parts of registers


def dpp_text(control: int) -> str:
    """Return how a DPP control reads, or an empty text."""
    if control < 0x100:
        return f"quad_perm:[{','.join(str(control >> 2 * k & 3) for k in range(4))}]"
    for first, name in (
        (0x100, "row_shl"), (0x110, "row_shr"), (0x120, "row_ror"), (0x150, "row_share"), (0x160, "row_xmask"),
    ):  # fmt: skip
        if first <= control < first + 16 and (control != first or first >= 0x150):
            return f"{name}:{control - first}"
    return {
        0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1", 0x140: "row_mirror",
        0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31",
    }.get(control, "")  # fmt: skip


def _moved_name(opcode: Opcode) -> str:
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        return opcode.name + ("_dpp" if opcode.name.endswith("_e64") else "_e64_dpp")
    return opcode.name.removesuffix("_e32") + "_dpp"


def _dpp(reading: Reading, opcode: Opcode) -> Instruction:
    extra = _extra_dword(reading, opcode)
    control = {name: extra >> low & (1 << bits) - 1 for name, (low, bits) in DPP16.items()}
    first: Operand = Reg(
        "v", control["dpp_src0"], opcode.operands[1].dwords if len(opcode.operands) > 1 else 1
    )
    text = dpp_text(control["dpp_ctrl"])
    if not text or extra >> 17 & 1:
        raise reading.error(f"DPP control {control['dpp_ctrl']:#x} does not exist")
    if reading.target.family == "gfx9":
        text = text.replace("row_share", "row_newbcast")
    items = _vector_operands(reading, opcode, first)
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        if any(control[k] for k in ("neg", "abs", "neg1", "abs1")):
            raise reading.error("signs stand in both dwords")
        modifiers, tail = _modifiers(reading, opcode, items)
    else:
        modifiers, tail = {}, ""
        at = _first_source(opcode)
        items[at] = signed(items[at], neg=bool(control["neg"]), absolute=bool(control["abs"]))
        if control["neg1"] or control["abs1"]:
            items[at + 1] = signed(items[at + 1], neg=bool(control["neg1"]), absolute=bool(control["abs1"]))
    tail += f" {text} row_mask:{control['row_mask']:#x} bank_mask:{control['bank_mask']:#x}"
    tail += (" bound_ctrl:1" if control["bound_ctrl"] else "") + (" fi:1" if control["fi"] else "")
    modifiers |= {"dpp": 1, "bank_mask": control["bank_mask"], "row_mask": control["row_mask"], "fi": control["fi"],
                  "bound_ctrl": control["bound_ctrl"], "dpp_ctrl": control["dpp_ctrl"]}  # fmt: skip
    return _made(reading, opcode, _moved_name(opcode), items, modifiers, tail)


def _first_source(opcode: Opcode) -> int:
    return next(k for k, slot in enumerate(opcode.operands) if slot.field == "src0")


def _extra_dword(reading: Reading, opcode: Opcode) -> int:
    if opcode.literal:
        raise reading.error(f"{opcode.name} has a constant where another dword should say how lanes move")
    return reading.next_dword()


def _dpp8(reading: Reading, opcode: Opcode, *, fetch: bool) -> Instruction:
    extra = _extra_dword(reading, opcode)
    lanes = [extra >> 8 + 3 * k & 7 for k in range(8)]
    items = _vector_operands(reading, opcode, Reg("v", extra & 255))
    modifiers: dict[str, int] = {}
    tail = ""
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        modifiers, tail = _modifiers(reading, opcode, items)
    tail += f" dpp8:[{','.join(map(str, lanes))}]" + (" fi:1" if fetch else "")
    modifiers |= {"dpp8": 1, "dpp8_lanes": extra >> 8, "fi": int(fetch)}
    return _made(reading, opcode, _moved_name(opcode), items, modifiers, tail)


_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def _sdwa(reading: Reading, opcode: Opcode) -> Instruction:
    extra = _extra_dword(reading, opcode)
    found = {name: extra >> low & (1 << bits) - 1 for name, (low, bits) in SDWA.items()}
    compares = opcode.form.name == "VOPC"

    def item(code: int, number: int, *, scalar: int) -> Operand:
        made: Operand = source(reading, code, 1) if scalar else Reg("v", code)
        made = signed(made, neg=bool(found[f"src{number}_neg"]), absolute=bool(found[f"src{number}_abs"]))
        return replace(made, sext=bool(found[f"src{number}_sext"])) if isinstance(made, Reg) else made

    items = _vector_operands(reading, opcode, item(found["src0"], 0, scalar=found["s0"]))
    at = _first_source(opcode)
    two = len(opcode.operands) > at + 1 and opcode.operands[at + 1].field == "vsrc1"
    if two:
        items[at + 1] = item(reading.field("vsrc1"), 1, scalar=found["s1"])
    tail = " clamp" if found["clamp"] and not compares else ""
    if compares:
        if extra >> 15 & 1:
            items[0] = scalar_register(reading, extra >> 8 & 127, 2)
    else:
        tail += ("", " mul:2", " mul:4", " div:2")[found["omod"]]
        if found["dst_sel"] > 6 or found["dst_unused"] > 2:
            raise reading.error("part of the destination does not exist")
        tail += f" dst_sel:{_PARTS[found['dst_sel']]} dst_unused:{_UNUSED[found['dst_unused']]}"
    if max(found["src0_sel"], found["src1_sel"]) > 6:
        raise reading.error("part of a source does not exist")
    tail += f" src0_sel:{_PARTS[found['src0_sel']]}" + (
        f" src1_sel:{_PARTS[found['src1_sel']]}" if two else ""
    )
    modifiers = {k: found[k] for k in ("clamp", "omod", "dst_sel", "dst_unused", "src0_sel", "src1_sel")}
    if compares:
        modifiers |= {"clamp": 0, "omod": 0, "dst_sel": 6, "dst_unused": 0}
    return _made(
        reading, opcode, opcode.name.removesuffix("_e32") + "_sdwa", items, modifiers | {"sdwa": 1}, tail
    )


# ---- two instructions in one


def _dual(reading: Reading) -> Instruction:
    """VOPD: two vector operations that read everything before they write."""
    parts = []
    literals: list[Imm] = []

    def item(code: int) -> Operand:
        if code == LITERAL:
            if not literals:
                literals.append(literal(reading.next_dword()))
            return literals[0]
        return source(reading, code, 1)

    first = Reg("v", reading.field("vdstx"))
    second = Reg("v", reading.field("vdsty") << 1 | (first.index & 1 ^ 1))
    for side, op, target in (("X", reading.field("opx"), first), ("Y", reading.field("opy"), second)):
        opcode = reading.target.opcodes.get((f"VOPD{side}", op))
        if opcode is None:
            raise reading.error(f"opcode {op} of VOPD {side} is not in the table of {reading.target.name}")
        low = side.lower()
        items: list[Operand] = [target, item(reading.field(f"src0{low}"))]
        if "_mov_" not in opcode.name:
            items.append(Reg("v", reading.field(f"vsrc1{low}")))
        if "fmamk" in opcode.name:
            items.insert(2, item(LITERAL))
        elif "fmaak" in opcode.name:
            items.append(item(LITERAL))
        parts.append((opcode, items))
    (x, x_items), (y, y_items) = parts
    other = Instruction(reading.address, 0, y, y.name, tuple(y_items))
    made = _made(reading, x, x.name, x_items, {})
    return replace(made, second=other)
