"""Operations that a target implements with its own IR text instead of one LLVM instruction.

An `Expansion` is written once, with names of its own; the renderer inserts it into a kernel as often as
needed. It computes a scalar, and may branch. In the linear form it is one line without effects, which may be
moved out of loops and shared like any other.

Not here: which operations have an expansion (`target`). Next: `float_division`, `int_division`, `sqrt`, the
expansions; `compiler.text.llvm_ir`, which inserts them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

RECIPROCAL = "call float @llvm.nvvm.rcp.approx.ftz.f"
RECIPROCAL_DECLARED = "declare float @llvm.nvvm.rcp.approx.ftz.f(float)"
ROOT = "call float @llvm.nvvm.rsqrt.approx.ftz.f"
ROOT_DECLARED = "declare float @llvm.nvvm.rsqrt.approx.ftz.f(float)"
_NAMES = re.compile(r"%([a-z][\w.]*)|^([a-z]\w*):", re.MULTILINE)


def number(value: float) -> str:
    """Return a float constant as LLVM's text, for double, or for float if that has the value exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@dataclass(frozen=True, slots=True)
class Expansion:
    """IR text of one operation.

    The operands are `%x` and `%y`, the value is `%result`, and `%here` is the block in which it starts. Text
    with blocks of its own ends in the block `done`. `declare` lines must have the form that the renderer
    writes, so that equal ones are declared once.
    """

    text: str
    declared: tuple[str, ...] = field(init=False)
    """The lines of the text that begin with `declare`."""
    body: str = field(init=False)
    """The other lines."""

    def __post_init__(self) -> None:
        lines = [line for line in self.text.splitlines() if line.strip()]
        object.__setattr__(self, "declared", tuple([x for x in lines if x.startswith("declare ")]))
        object.__setattr__(self, "body", "\n".join([x for x in lines if not x.startswith("declare ")]))

    @property
    def ends(self) -> str:
        """The block in which the text ends; "" for text without blocks."""
        return "done" if "\ndone:\n" in self.body else ""

    def written(self, prefix: str, operands: dict[str, str], here: str) -> str:
        """Return the text with `operands` for `%x`, `%y` and `%result`, and a prefix for other names.

        `here` is the name of the block in which it starts.
        """
        given = {**operands, "here": f"%{here}"}

        def name(match: re.Match[str]) -> str:
            local, label = match.groups()
            if label is not None:
                return f"{prefix}{label}:"
            return given.get(local) or f"%{prefix}{local}"

        return _NAMES.sub(name, self.body)
