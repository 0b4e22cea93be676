"""The accuracy of PTX instructions: exact to the bit, or within a bound; and the use of inexact results.

The bounds are those of the PTX ISA (9.7.3, 9.7.4), which states them only for the `.approx` and `.full` forms.
No document states the order in which matrix operations add their products.

Not here: the arithmetic (`roots`, `mma`). Next: `emulator.shared.accuracy`, the analysis and the report.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from emulator.nv.ptx.blocks import blocks, reads, registers_of, writes
from emulator.nv.ptx.statements import Mem
from emulator.shared.accuracy import EXACT, AccuracyStep, Steering, steerings

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
    """Return the number of each instruction in a kernel's code, by bound and name."""
    found: dict[str, Counter[str]] = {}
    for block in blocks(flat):
        for instruction in block.instructions:
            found.setdefault(bound(instruction), Counter())[name_of(instruction)] += 1
    return found


def decided(flat: Flat) -> tuple[Steering, ...]:
    """Return the branches and addresses that depend on results within a bound; `Steering.address` is the PTX line.

    Sums of matrix operations are not followed.
    """
    found = blocks(flat)
    numbers = itertools.count()
    bodies = [[(next(numbers), i) for i in block.instructions] for block in found]
    lines = {number: i.line for body in bodies for number, i in body}
    result = steerings(
        [
            (
                [_step(i, number) for number, i in body],
                tuple(bodies[s][0][0] for s in block.successors if bodies[s]),
            )
            for block, body in zip(found, bodies, strict=True)
            if body
        ]
    )
    return tuple(replace(one, address=lines[one.address]) for one in result)


def _step(i: PtxInstruction, number: int) -> AccuracyStep:
    """Return an instruction as a step of the analysis; `number` stands for its address."""
    written, read = frozenset(r.name for r in writes(i)), frozenset(r.name for r in reads(i))
    steers: list[tuple[str, frozenset[str]]] = []
    if i.opcode in ("bra", "brx"):
        steers.append(("a branch", read))
    based = frozenset(r.name for o in i.operands if isinstance(o, Mem) for r in registers_of(o))
    if based:
        steers.append(("an address", based))
    return AccuracyStep(
        address=number,
        name=name_of(i),
        text=i.text,
        reads=frozenset[Hashable](read | written if i.guard else read),  # a guarded write keeps some lanes
        writes=frozenset[Hashable](written),
        inexact=bound(i) not in (EXACT, _SUMS),
        steers=tuple((what, frozenset[Hashable](by)) for what, by in steers),
    )
