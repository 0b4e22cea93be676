"""VOPD: two instructions in one.

Not here: how both are run (`translate`). Next: `decode`, the user.
"""

from __future__ import annotations

from dataclasses import replace

from drivers.amd.emu.isa.instruction import Instruction
from drivers.amd.emu.isa.operands import Imm, Operand, Reg, literal
from drivers.amd.emu.isa.reading import LITERAL, Reading, made, source


def decode_dual(reading: Reading) -> Instruction:
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
    own = made(reading, x, x.name, x_items, {})
    return replace(own, second=other)
