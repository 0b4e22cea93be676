"""A decoded instruction, and the error of one that is not understood.

Next: `decode`, which makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivers.amd.emu.isa.opcodes import Opcode
    from drivers.amd.emu.isa.operands import Operand


class IsaError(UnsupportedError):
    """Machine code that this emulator does not run: which instruction, where, in which kernel.

    `address` is in bytes from the first instruction of the kernel.
    """

    def __init__(self, why: str, *, text: str, address: int, kernel: str) -> None:
        super().__init__(f"{kernel or 'code'}+{address:#x}: {text}: {why}")
        self.why = why
        self.text = text
        self.address = address
        self.kernel = kernel


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its opcode, operands in the assembler's order, and modifiers by field name."""

    address: int
    """Bytes from the first instruction decoded."""
    size: int
    opcode: Opcode
    name: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, int] = field(default_factory=dict)
    """Fields that are not operands: neg_hi, op_sel, clamp, offset, glc, dpp_ctrl, ...; absent ones are 0."""
    tail: str = ""
    """How the modifiers read."""
    second: Instruction | None = None
    """The other half of a dual-issue instruction."""

    @property
    def stem(self) -> str:
        """The name without suffixes of the encoding."""
        return self.opcode.stem

    @property
    def text(self) -> str:
        """The instruction as LLVM's disassembler writes it."""
        items = ", ".join(t for t in map(str, self.operands) if t)
        own = self.name + (f" {items}" if items else "") + self.tail
        return own if self.second is None else f"{own} :: {self.second.text}"

    def get(self, modifier: str) -> int:
        """Return a modifier's value, 0 when it is not there."""
        return self.modifiers.get(modifier, 0)

    @property
    def next(self) -> int:
        """The address behind it."""
        return self.address + self.size
