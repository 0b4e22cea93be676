"""`Reading`, the state of decoding one instruction: the dwords taken so far; and scalar and general operands.

Not here: vector operands (`vector_operands`), memory operands (`memory_operands`). Next: `decode`, the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Instruction, IsaError
from emulator.amd.isa.operands import VCC, Operand, Reg, inline, literal

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
