"""Scopes of a PTX body: names within braces, and their replacements, unique in the function.

Next: `syntax`, the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drivers.nv.emu.ptx.statements import Args, Instruction, Mem, Operand, Reg, Sym, Vec


@dataclass(slots=True)
class Scope:
    """The registers, variables and labels of one pair of braces."""

    parent: Scope | None
    number: int
    registers: dict[str, Reg] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def renamed(instruction: Instruction, names: dict[str, str]) -> Instruction:
    """Replace the labels and variables of a scope by their unique names."""

    def rename(operand: Operand) -> Operand:
        match operand:
            case Sym(name, offset) if name in names:
                return Sym(names[name], offset)
            case Mem(Sym(name), offset, coordinates) if name in names:
                return Mem(Sym(names[name]), offset, tuple(map(rename, coordinates)))
            case Vec(items):
                return Vec(tuple(map(rename, items)))
            case Args(items):
                return Args(tuple(map(rename, items)))
            case _:
                return operand

    operands = tuple(map(rename, instruction.operands))
    if operands == instruction.operands:
        return instruction
    return Instruction(
        instruction.opcode,
        instruction.modifiers,
        operands,
        instruction.guard,
        instruction.negated,
        instruction.line,
        instruction.text,
    )
