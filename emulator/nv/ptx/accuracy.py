"""The accuracy of PTX instructions: exact to the bit, or within a bound.

The bounds are those of the PTX ISA (9.7.3, 9.7.4). It states them only for the `.approx` and `.full` forms.
No document states the order in which matrix operations add their products.

Not here: the arithmetic (`roots`, `mma`). Next: `emulator.shared.accuracy`, the report.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from emulator.nv.ptx.blocks import blocks
from emulator.shared.accuracy import EXACT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.nv.ptx.flat import Flat
    from emulator.nv.ptx.statements import PtxInstruction

_BOUNDS: Final = {
    "div": "2 ulp", "rcp": "1 ulp", "sqrt": "relative 2^-23", "rsqrt": "relative 2^-22.9", "ex2": "2 ulp",
    "lg2": "2^-22", "sin": "absolute 2^-20.5", "cos": "absolute 2^-20.5", "tanh": "relative 2^-11",
}  # fmt: skip
"""Opcode -> the error of its `.approx` and `.full` forms."""
_ALWAYS: Final = frozenset({"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"})
"""Opcodes that have no exact form."""
_SUMS: Final = "order of additions not documented"
"""The bound of matrix operations on floats."""
_FLOATS: Final = frozenset({"f16", "bf16", "tf32", "e4m3", "e5m2", "f64"})
"""Factor types of matrix operations whose sums are rounded."""


def name_of(instruction: PtxInstruction) -> str:
    """Return an instruction's name: opcode and modifiers."""
    return ".".join((instruction.opcode, *instruction.modifiers))


def bound(instruction: PtxInstruction) -> str:
    """Return the largest difference of a result from hardware's, as text; `EXACT` if there is none."""
    opcode, modifiers = instruction.opcode, set(instruction.modifiers)
    if opcode in _BOUNDS and (opcode in _ALWAYS or modifiers & {"approx", "full"}):
        return _BOUNDS[opcode]
    if opcode in ("mma", "wgmma", "wmma") and modifiers & _FLOATS:
        return _SUMS
    return EXACT


def counts(flat: Flat) -> Mapping[str, Mapping[str, int]]:
    """Return the number of each instruction in a kernel's code, by bound and name. Raises as `blocks`."""
    found: dict[str, Counter[str]] = {}
    for block in blocks(flat):
        for instruction in block.instructions:
            found.setdefault(bound(instruction), Counter())[name_of(instruction)] += 1
    return found
