"""Decodes machine code to instructions: format, opcode, operands and modifiers.

Every set bit must have a meaning: an encoding with a bit that its opcode does not use is an `IsaError`.

Not here: the formats and opcodes of a target (`opcodes`), the effect of an instruction (`translate`). Next:
`memory_operands`, the formats of memory accesses. Source of VOPD, SDWA and DPP: as `opcodes`.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.amd.isa import memory_operands
from emulator.amd.isa.immediates import RETURNED, hwreg, program_text
from emulator.amd.isa.instruction import Imm, Instruction, Operand, Reg, Word, literal, signed
from emulator.amd.isa.opcodes import DPP16, SDWA, VOP3SD
from emulator.amd.isa.vector_operands import (
    LITERAL,
    Reading,
    extra_dword,
    first_source,
    made,
    modifiers_of,
    refuse_unused,
    scalar_register,
    source,
    vector_operands,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.amd.isa.opcodes import IsaTarget, Opcode


def decode_dual(reading: Reading) -> Instruction:
    """Decode VOPD: two vector operations, which both read before either writes; the second is `Instruction.second`."""
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
    own = made(reading, x, x.name, x_items, {})
    return replace(own, second=other)


# Texts of SDWA selections, and of the treatment of the destination's other bits, by number.
_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def decode_sdwa(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode an SDWA instruction: a further dword selects bytes or words of registers."""
    extra = extra_dword(reading, opcode)
    found = {name: extra >> low & (1 << bits) - 1 for name, (low, bits) in SDWA.items()}
    compares = opcode.form.name == "VOPC"

    def item(code: int, number: int, *, scalar: int) -> Operand:
        operand: Operand = source(reading, code, 1) if scalar else Reg("v", code)
        operand = signed(
            operand, neg=bool(found[f"src{number}_neg"]), absolute=bool(found[f"src{number}_abs"])
        )
        return (
            replace(operand, sext=bool(found[f"src{number}_sext"])) if isinstance(operand, Reg) else operand
        )

    items = vector_operands(reading, opcode, item(found["src0"], 0, scalar=found["s0"]))
    at = first_source(opcode)
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
    return made(
        reading, opcode, opcode.name.removesuffix("_e32") + "_sdwa", items, modifiers | {"sdwa": 1}, tail
    )


def dpp_text(control: int) -> str:
    """Return the text of a DPP control; "" for a control that does not exist."""
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


def decode_dpp(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode a DPP16 instruction: a further dword says from which lanes the first source comes."""
    extra = extra_dword(reading, opcode)
    control = {name: extra >> low & (1 << bits) - 1 for name, (low, bits) in DPP16.items()}
    first: Operand = Reg(
        "v", control["dpp_src0"], opcode.operands[1].dwords if len(opcode.operands) > 1 else 1
    )
    text = dpp_text(control["dpp_ctrl"])
    if not text or extra >> 17 & 1:
        raise reading.error(f"DPP control {control['dpp_ctrl']:#x} does not exist")
    if reading.target.family == "gfx9":
        text = text.replace("row_share", "row_newbcast")
    items = vector_operands(reading, opcode, first)
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        if any(control[k] for k in ("neg", "abs", "neg1", "abs1")):
            raise reading.error("neg or abs is set in both dwords")
        modifiers, tail = modifiers_of(reading, opcode, items)
    else:
        modifiers, tail = {}, ""
        at = first_source(opcode)
        if at >= len(items):
            raise reading.error(f"{opcode.name} has no source that DPP could move")
        items[at] = signed(items[at], neg=bool(control["neg"]), absolute=bool(control["abs"]))
        if control["neg1"] or control["abs1"]:
            if at + 1 >= len(items):
                raise reading.error(f"{opcode.name} has no second source that takes a sign")
            items[at + 1] = signed(items[at + 1], neg=bool(control["neg1"]), absolute=bool(control["abs1"]))
    tail += f" {text} row_mask:{control['row_mask']:#x} bank_mask:{control['bank_mask']:#x}"
    tail += (" bound_ctrl:1" if control["bound_ctrl"] else "") + (" fi:1" if control["fi"] else "")
    modifiers |= {"dpp": 1, "bank_mask": control["bank_mask"], "row_mask": control["row_mask"], "fi": control["fi"],
                  "bound_ctrl": control["bound_ctrl"], "dpp_ctrl": control["dpp_ctrl"]}  # fmt: skip
    return made(reading, opcode, _moved_name(opcode), items, modifiers, tail)


def decode_dpp8(reading: Reading, opcode: Opcode, *, fetch: bool) -> Instruction:
    """Decode a DPP8 instruction: a further dword selects a lane of each group of eight for the first source."""
    extra = extra_dword(reading, opcode)
    lanes = [extra >> 8 + 3 * k & 7 for k in range(8)]
    items = vector_operands(reading, opcode, Reg("v", extra & 255))
    modifiers: dict[str, int] = {}
    tail = ""
    if opcode.form.name in ("VOP3", "VOP3SD", "VOP3P"):
        modifiers, tail = modifiers_of(reading, opcode, items)
    tail += f" dpp8:[{','.join(map(str, lanes))}]" + (" fi:1" if fetch else "")
    modifiers |= {"dpp8": 1, "dpp8_lanes": extra >> 8, "fi": int(fetch)}
    return made(reading, opcode, _moved_name(opcode), items, modifiers, tail)


DPP, DPP8, DPP8_FETCH, SDWA_CODE = 250, 233, 234, 249
"""First sources that announce a further dword."""
_MEMORY = {"SMEM", "DS", "FLAT", "SCRATCH", "GLOBAL", "MUBUF"}


def decode(code: bytes, target: IsaTarget, *, lanes: int = 0, kernel: str = "") -> list[Instruction]:
    """Decode code from its start to its end; `lanes` is 32 or 64, 0 the target's own. Raises `IsaError`."""
    return list(instructions(code, target, lanes=lanes, kernel=kernel))


def instructions(
    code: bytes, target: IsaTarget, *, lanes: int = 0, kernel: str = ""
) -> Iterator[Instruction]:
    """Yield the instructions of code one after another, as `decode`."""
    at = 0
    while at < len(code):
        found = one(code, at, target, lanes=lanes or target.lanes, kernel=kernel)
        yield found
        at += found.size


def one(
    code: bytes, at: int, target: IsaTarget, *, lanes: int, kernel: str = "", before: int = 0
) -> Instruction:
    """Decode the instruction at `at`, in bytes from the kernel's first, which is at `code[before]`.

    Raises `IsaError` for an unknown encoding, and at the end of the code.
    """
    raw = code[at + before : at + before + 20] if at + before >= 0 else b""
    reading = Reading(target, lanes, at, int.from_bytes(raw, "little"), len(raw) // 4, kernel)
    if not reading.dwords:
        raise reading.error("the code ends within the instruction")
    first = reading.encoding & 0xFFFF_FFFF
    reading.form = form = next((f for f in target.formats if f.matches(first)), None)
    if form is None:
        reading.taken = 1
        raise reading.error(f"no format of {target.name} has this prefix")
    reading.taken = form.dwords
    if form.dwords > reading.dwords:
        raise reading.error("the code ends within the instruction")
    if form.name == "VOPD":
        return decode_dual(reading)
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
    """Return the opcode of the format and number; may change the format from VOP3 to VOP3SD."""
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


_INDEXED = ("SRC0", "SRC1", "SRC2", "DST")
"""The operands of index mode, by bit."""


def _scalar(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode an instruction of the formats SOP1, SOP2, SOPC, SOPK and SOPP."""
    name, family = opcode.name, reading.target.family
    items: list[Operand] = []
    value = reading.field("simm16")
    if reading.form is not None and reading.form.name == "SOPP":
        text = program_text(name, value, family)
        return made(reading, opcode, name, [Word(text, value)] if text else [], {"simm16": value})
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
    if name == "s_set_gpr_idx_on":
        mode = reading.field("ssrc1")
        if mode >> len(_INDEXED):
            raise reading.error(f"{mode:#x} names no operands to index")
        shown = ",".join(name for bit, name in enumerate(_INDEXED) if mode >> bit & 1)
        items.append(Word(f"gpr_idx({shown})", mode))
    if opcode.literal:
        constant = reading.next_dword()
        if name == "s_setreg_imm32_b32":
            items.append(Word(str(constant) if constant < 65 else f"{constant:#x}", constant))
        elif name == "s_fmamk_f32":
            items.insert(2, literal(constant))
        else:
            items.append(literal(constant))
    return made(reading, opcode, name, items, {"simm16": value})


def _vector(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode an instruction of a vector format; its first source may announce DPP or SDWA."""
    form = opcode.form
    code = reading.field("src0")
    if form.name not in ("MFMA", "XF32") and any(s.field == "src0" for s in opcode.operands):
        if code == DPP:
            return decode_dpp(reading, opcode)
        if code in (DPP8, DPP8_FETCH) and reading.target.family != "gfx9":
            return decode_dpp8(reading, opcode, fetch=code == DPP8_FETCH)
        if code == SDWA_CODE and reading.target.family == "gfx9":
            return decode_sdwa(reading, opcode)
    refuse_unused(reading, opcode)
    items = vector_operands(reading, opcode)
    modifiers, tail = modifiers_of(reading, opcode, items)
    return made(reading, opcode, opcode.name, items, modifiers, tail)
