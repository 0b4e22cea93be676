"""Words of AMD instructions, by name and fields, from the opcode tables of the emulated GPUs' decoders.

Names are those of gfx11; `Code` knows the older and newer ones. Source of the tables: `tools.amd_isa`.

Not here: what is recorded (`vector` and the others), kernels (`build`).
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
"""No hazard of registers outlasts these: independent cycles, and on gfx11 and later a wait for all pipelines."""


def base(arch: str) -> str:
    """Return the architecture whose tables and emulated GPU an architecture shares. Raises `UnsupportedError`."""
    for prefix, name in (("gfx94", "gfx942"), ("gfx11", "gfx1100"), ("gfx12", "gfx1201")):
        if arch.startswith(prefix):
            return name
    raise UnsupportedError(f"{arch} has no forms; there are those of gfx942, gfx1100 and gfx1201")


@functools.cache
def find(arch: str, stem: str, form: str = "") -> tuple[int, Opcode]:
    """Return the number and the opcode of an operation, by its name on gfx11. Raises `KeyError`."""
    known = target(arch)
    for (kind, number), opcode in known.opcodes.items():
        if canonical(opcode.stem, known.family) == stem and form in ("", kind):
            return number, opcode
    raise KeyError(f"{arch} has no {stem} {form}")


def packed(opcode: Opcode, number: int, fields: dict[str, int]) -> list[int]:
    """Return the words of an opcode whose fields hold these values; fields that its format lacks are left out."""
    layout = opcode.form
    encoding = layout.base
    for field, content in (fields | {"op": number}).items():
        if field in layout.fields:
            encoding = layout.put(encoding, field, content)
    return [encoding >> 32 * n & 0xFFFF_FFFF for n in range(layout.dwords)]


@dataclass(frozen=True)
class Code:
    """Instructions of one architecture of `base`."""

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
        """Waits for everything that is under way."""
        return list(_WAITS[self.family])

    @property
    def settle(self) -> list[int]:
        """No-ops behind which no hazard of registers is left."""
        return list(_SETTLE[self.family])

    def make(self, stem: str, form: str = "", *more: int, **fields: int) -> list[int]:
        """Return the words of an instruction; `more` follow it."""
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
        """Return code that sets EXEC to the low bits of 64."""
        low = self.scalar(EXEC, LITERAL, value)
        return low if self.lanes == 32 else [*low, *self.scalar(EXEC + 1, LITERAL, value >> 32)]

    def everybody(self) -> list[int]:
        """Return code after which all lanes execute."""
        return self.make(f"s_mov_b{self.lanes}", "SOP1", sdst=EXEC, ssrc0=ALL)

    def add(self, register: int, amount: int, other: int) -> list[int]:
        """Return register = amount + vector register `other`."""
        return self.make("v_add_nc_u32", "VOP2", amount, vdst=register, src0=LITERAL, vsrc1=other)

    def shift(self, register: int, by: int, other: int) -> list[int]:
        """Return register = vector register `other` << by."""
        return self.make("v_lshlrev_b32", "VOP2", vdst=register, src0=ZERO + by, vsrc1=other)

    def bit_of(self, register: int, mask: int) -> list[int]:
        """Return register = 1 in the lanes of the mask in a pair of scalar registers, 0 in others; EXEC is all."""
        return [*self.vector(register, ZERO), *self.make(f"s_mov_b{self.lanes}", "SOP1", sdst=EXEC, ssrc0=mask),
                *self.settle, *self.vector(register, ONE), *self.everybody(), *self.settle]

    def access(
        self, kind: str, stem: str, register: int, address: int, base: int, offset: int = 0
    ) -> list[int]:
        """Return an access of GLOBAL, SCRATCH or DS: `base` a pair of scalar registers or 0 for none."""
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
