"""Words of AMD instructions, by name and fields, from the opcode tables of the emulated GPUs' decoders.

Instructions have their names of gfx11; `find` also finds them under the names of gfx9 and gfx12. Source of
the tables: `tools.amd_isa`.

An unknown architecture raises `UnsupportedError`.

Not here: what is recorded (`vector` and the others). Next: `build`, kernels.
"""

# ruff: noqa: E501, PLR0917 - tables and words of code read best on one line

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.opcodes import Opcode, target
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

VCC, EXEC, LITERAL, VECTOR = 106, 126, 255, 256
"""Codes of source operands: VCC, EXEC, a literal that follows, and vector register 0."""
ZERO, ONE, ALL = 128, 129, 193
"""Inline constants 0, 1 and -1."""
_WAITS: Final = {
    "gfx9": (0xBF8C_0000,),
    "gfx11": (0xBF89_0000, 0xBC7C_0000),
    "gfx12": (0xBFC0_0000, 0xBFC1_0000, 0xBFC6_0000, 0xBFC7_0000),
}
_SETTLE: Final = {
    "gfx9": (0xBF80_000F, 0xBF80_000F),
    "gfx11": (0xBF88_0000, 0xBF80_000F),
    "gfx12": (0xBF88_0000, 0xBF80_000F),
}
"""Code after which no hazard of registers is left: idle cycles, and from gfx11 on a wait for all pipelines."""


def base(arch: str) -> str:
    """Return the architecture whose tables and emulated GPU an architecture shares: "gfx1100" for gfx11.

    Raises `UnsupportedError` for an architecture other than gfx94x, gfx11 and gfx12.
    """
    for prefix, name in (("gfx94", "gfx942"), ("gfx11", "gfx1100"), ("gfx12", "gfx1201")):
        if arch.startswith(prefix):
            return name
    raise UnsupportedError(f"{arch} has no forms; there are those of gfx942, gfx1100 and gfx1201")


@functools.cache
def find(arch: str, stem: str, form: str = "") -> tuple[int, Opcode]:
    """Return the number and the opcode of an operation, by its name on gfx11 and the format `form` or any.

    Raises `KeyError` if the architecture lacks it.
    """
    known = target(arch)
    for (kind, number), opcode in known.opcodes.items():
        if canonical(opcode.stem, known.family) == stem and form in ("", kind):
            return number, opcode
    raise KeyError(f"{arch} has no {stem} {form}")


def packed(opcode: Opcode, number: int, fields: dict[str, int]) -> list[int]:
    """Return the words of an opcode with these values in its fields; fields that its format lacks are ignored."""
    layout = opcode.form
    encoding = layout.base
    for field, content in (fields | {"op": number}).items():
        if field in layout.fields:
            encoding = layout.put(encoding, field, content)
    return [encoding >> 32 * n & 0xFFFF_FFFF for n in range(layout.dwords)]


@dataclass(frozen=True)
class Code:
    """Instructions of one architecture, a result of `base`. Methods return their words."""

    arch: str

    @property
    def family(self) -> str:
        """The family: "gfx9", "gfx11" or "gfx12"."""
        return target(self.arch).family

    @property
    def lanes(self) -> int:
        """Lanes of a wave."""
        return target(self.arch).lanes

    @property
    def waits(self) -> list[int]:
        """Waits until all memory accesses are complete."""
        return list(_WAITS[self.family])

    @property
    def settle(self) -> list[int]:
        """Code after which no hazard of registers is left."""
        return list(_SETTLE[self.family])

    def make(self, stem: str, form: str = "", *more: int, **fields: int) -> list[int]:
        """Return the words of an instruction, and `more` words after it, such as a literal.

        Raises `KeyError` as `find`.
        """
        number, opcode = find(self.arch, stem, form)
        return packed(opcode, number, fields) + [m & 0xFFFF_FFFF for m in more]

    def vector(self, register: int, source: int, *more: int) -> list[int]:
        """Return v_mov_b32."""
        return self.make("v_mov_b32", "VOP1", *more, vdst=register, src0=source)

    def scalar(self, register: int, source: int, *more: int) -> list[int]:
        """Return s_mov_b32."""
        return self.make("s_mov_b32", "SOP1", *more, sdst=register, ssrc0=source)

    def constant(self, register: int, value: int) -> list[int]:
        """Return code that sets two scalar registers to 64 bits."""
        low, high = value & 0xFFFF_FFFF, value >> 32
        return [*self.scalar(register, LITERAL, low), *self.scalar(register + 1, LITERAL, high)]

    def executes(self, value: int) -> list[int]:
        """Return code that sets EXEC to the low 32 or 64 bits of a mask, as many as a wave has lanes."""
        low = self.scalar(EXEC, LITERAL, value)
        return low if self.lanes == 32 else [*low, *self.scalar(EXEC + 1, LITERAL, value >> 32)]

    def everybody(self) -> list[int]:
        """Return code after which all lanes execute."""
        return self.make(f"s_mov_b{self.lanes}", "SOP1", sdst=EXEC, ssrc0=ALL)

    def add(self, register: int, amount: int, other: int) -> list[int]:
        """Return code for register = amount + vector register `other`."""
        return self.make("v_add_nc_u32", "VOP2", amount, vdst=register, src0=LITERAL, vsrc1=other)

    def shift(self, register: int, by: int, other: int) -> list[int]:
        """Return code for register = vector register `other` << by."""
        return self.make("v_lshlrev_b32", "VOP2", vdst=register, src0=ZERO + by, vsrc1=other)

    def bit_of(self, register: int, mask: int) -> list[int]:
        """Return code that sets a vector register to 1 in the lanes of a mask and to 0 in the others.

        `mask` is the first of the mask's scalar registers. Afterwards all lanes execute.
        """
        return [*self.vector(register, ZERO), *self.make(f"s_mov_b{self.lanes}", "SOP1", sdst=EXEC, ssrc0=mask),
                *self.settle, *self.vector(register, ONE), *self.everybody(), *self.settle]

    def access(
        self, kind: str, stem: str, register: int, address: int, base: int, offset: int = 0
    ) -> list[int]:
        """Return a load or store of the format `kind`: GLOBAL, SCRATCH or DS.

        `register` is the first vector register of the data, `address` that of the address, `base` the first
        scalar register of a base address, 0 for none, `offset` bytes.
        """
        family, fields = self.family, {}
        if kind == "DS":
            fields = {"addr": address, "vdst": register, "data0": register, "offset0": offset & 255, "offset1": offset >> 8}  # fmt: skip
            return self.make(stem, "DS", **{k: v for k, v in fields.items() if k != ("data0" if "load" in stem else "vdst")})  # fmt: skip
        off = 0x7F if family == "gfx9" else 124
        fields = {"vaddr": address, "saddr": base or off, "offset": offset, "vdst": register, "vdata": register,
                  "seg": {"GLOBAL": 2, "SCRATCH": 1}[kind], "sve": int(kind == "SCRATCH")}
        del fields["vdata" if "load" in stem else "vdst"]
        return self.make(stem, kind, **fields)


def text_of(name: str, words: Sequence[int]) -> str:
    """Return a form's text: a label, and the words of its code in hexadecimal."""
    return f"{name}: " + " ".join(f"{word:08x}" for word in words)
