"""The class and the floating-point operations of each PTX instruction, for the counters.

An addition, subtraction or multiplication of floating-point numbers is one operation, a fused one two; a
packed instruction has as many for each element. Divisions, roots and transcendental functions are of the
class "special" and have none. A matrix instruction has 2 M N K operations, of which a warp of a warp group
does a quarter.

Not here: the code that counts (`drivers.emu.simt.counting`). Next: `translate`, the user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from drivers.emu.simt.counting import Operation

if TYPE_CHECKING:
    from drivers.nv.emu.ptx.statements import Instruction

SECTOR: Final = 32
"""Bytes of a sector, the unit in which memory is moved (CUDA C++ Best Practices Guide, 10.2.1)."""
_SPECIAL: Final = frozenset({"div", "rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh"})
_ARITHMETIC: Final = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
_FLOATS: Final = {
    "f16": ("f16", 1), "f16x2": ("f16", 2), "bf16": ("bf16", 1), "bf16x2": ("bf16", 2),
    "f32": ("f32", 1), "f32x2": ("f32", 2), "f64": ("f64", 1),
}  # fmt: skip
"""Type -> the type of its elements, and their number."""
_KINDS: Final = {
    "ld": "load", "ldu": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store", "atom": "atomic",
    "red": "atomic", "cp": "copy", "bar": "barrier", "barrier": "barrier", "mbarrier": "barrier",
    "bra": "branch", "brx": "branch", "ret": "branch", "exit": "branch", "trap": "branch", "brkpt": "branch",
    "cvt": "convert", "cvta": "convert", "mov": "move", "movmatrix": "shuffle", "selp": "move",
    "shfl": "shuffle",
    "vote": "shuffle", "match": "shuffle", "redux": "shuffle", "activemask": "shuffle", "elect": "shuffle",
    "prefetch": "load", "prefetchu": "load", "membar": "fence", "fence": "fence",
}  # fmt: skip
_MATRIX_TYPES: Final = frozenset(
    ("f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "s32")
)
_WARPS_OF_GROUP: Final = 4


def operation(instruction: Instruction) -> Operation:
    """Return an instruction's class and operations."""
    opcode, words = instruction.opcode, instruction.modifiers
    if opcode in ("mma", "wgmma", "wmma"):
        return _matrix(opcode, words)
    if opcode in _SPECIAL:
        return Operation(kind="special")
    found = [word for word in words if word in _FLOATS]
    if opcode in _KINDS:
        return Operation(kind=_KINDS[opcode])
    if not found:
        return Operation(kind="integer")
    type_, count = _FLOATS[found[-1]]
    return Operation(kind="float", flops=_ARITHMETIC.get(opcode, 0) * count, type=type_)


def _matrix(opcode: str, words: tuple[str, ...]) -> Operation:
    shape = next((found for word in words if (found := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word))), None)
    if shape is None or (opcode == "wmma" and "mma" not in words):
        kind = {"load": "load", "store": "store"}.get(words[0] if words else "", "barrier")
        return Operation(kind=kind)
    types = [word for word in words if word in _MATRIX_TYPES]
    factor = types[1] if len(types) > 2 else "f16"  # wmma of f16 names only the types of D and C
    total = 2 * int(shape[1]) * int(shape[2]) * int(shape[3])
    return Operation(
        kind="matrix", matrix=total // _WARPS_OF_GROUP if opcode == "wgmma" else total, type=factor
    )
