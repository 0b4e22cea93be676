"""Decodes machine code to instructions: format, opcode, operands and modifiers.

Every set bit must have a meaning: an encoding with a bit that its opcode does not use is an `IsaError`.

Not here: the formats and opcodes of a target (`opcodes`), the effect of an instruction (`translate`). Next:
`encodings` and `memory_operands`, the larger formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa import memory_operands
from emulator.amd.isa.encodings import decode_dpp, decode_dpp8, decode_dual, decode_sdwa
from emulator.amd.isa.immediates import RETURNED, hwreg, program_text
from emulator.amd.isa.opcodes import VOP3SD
from emulator.amd.isa.operands import Operand, Word, literal
from emulator.amd.isa.reading import Reading, made, scalar_register, source
from emulator.amd.isa.vector_operands import modifiers_of, refuse_unused, vector_operands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.amd.isa.instruction import Instruction
    from emulator.amd.isa.opcodes import IsaTarget, Opcode

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
