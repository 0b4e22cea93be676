"""SDWA: instructions on bytes and words of registers.

Not here: their values (`values`). Next: `decode`, the user.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.formats import SDWA
from drivers.amd.emu.isa.operands import Operand, Reg, signed
from drivers.amd.emu.isa.reading import Reading, made, scalar_register, source
from drivers.amd.emu.isa.vector_operands import extra_dword, first_source, vector_operands

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction
    from drivers.amd.emu.isa.opcodes import Opcode


_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def decode_sdwa(reading: Reading, opcode: Opcode) -> Instruction:
    """Decode an instruction on bytes or words of registers, as a dword more says."""
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
