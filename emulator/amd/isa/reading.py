"""One instruction being decoded: the dwords taken so far, scalar and general source operands.

Next: `decode`, the user.
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
    """One instruction being decoded."""

    target: IsaTarget
    lanes: int
    address: int
    encoding: int
    """All the dwords there are from here on, as far as an instruction can reach."""
    dwords: int
    kernel: str
    form: EncodingFormat | None = None
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
    """Return an instruction of what has been read."""
    return Instruction(
        reading.address,
        4 * reading.taken,
        opcode,
        name,
        tuple(items),
        {k: v for k, v in modifiers.items() if v},
        tail,
    )
