"""The error bound of each instruction, and the decisions of a kernel that depend on inexact results.

Most instructions are exact to the bit. The others have the bounds of AMD's ISA documents
(docs/sources-amd.md, "errors of reciprocals"). Reciprocals, roots, exponentials and logarithms have 1 ulp in
f32, 0.51 ulp in f16 and 2^29 ulp in f64. Sines and cosines have no documented bound. No document gives the
order in which dot products and matrix operations add.

Not here: the report (`emulator.shared.accuracy`). Next: `emulator.amd.engines.ledgers`, the user.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import EXEC, SCC, VCC, Reg, canonical
from emulator.amd.isa.observed_lanes import everywhere
from emulator.amd.isa.registers_used import Register, used
from emulator.amd.isa.translate import cut
from emulator.shared.accuracy import EXACT, AccuracyStep, Steering, steerings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.amd.isa.instruction import Instruction

_FUNCTION: Final = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|sin|cos|rcp_iflag)_(f16|f32|f64)")
"""The operations that are exact only within a bound."""
_BOUNDS: Final = {"f16": "0.51 ulp", "f32": "1 ulp", "f64": "2^29 ulp"}
_NO_BOUND: Final = "no bound documented"
_SUMS: Final = "order of additions not documented"
_SUMMED: Final = re.compile(r"v_(dot\d\w*_(f|bf)16\w*|(wmma|swmmac)_b?f\w*|s?mfmac?_f\w*)")
_SETTLED: Final = ("v_div_fixup_",)
"""Its quotient is rounded as IEEE 754 says, for every reciprocal within the bound."""
_INTEGER: Final = "v_rcp_iflag_f32"
"""Compilers correct the integer quotient that they compute from it, so its error reaches no result."""
_ADDRESSES: Final = frozenset({"addr", "vaddr", "saddr", "sbase", "soffset", "srsrc"})
"""The fields of operands that are part of an address."""
_SCALAR_FLAG: Final = frozenset({("s", SCC)})
_EXEC: Final = frozenset({("s", EXEC), ("s", EXEC + 1)})
_VCC: Final = frozenset({("s", VCC), ("s", VCC + 1)})


def bound(stem: str) -> str:
    """Return the bound of an operation's error, as text; `EXACT` for most. `stem` is a canonical name."""
    function = _FUNCTION.fullmatch(stem)
    if function is not None:
        return _NO_BOUND if function[2] in ("sin", "cos") else _BOUNDS[function[3]]
    return _SUMS if _SUMMED.fullmatch(stem) else EXACT


def counts(instructions: list[Instruction], family: str) -> Mapping[str, Mapping[str, int]]:
    """Return bound -> canonical name -> number of such instructions in the code (not of executions)."""
    found: dict[str, Counter[str]] = {}
    for one in instructions:
        for part in (one, one.second):
            if part is not None:
                stem = canonical(part.stem, family).replace("v_dual_", "v_")
                found.setdefault(bound(stem), Counter())[stem] += 1
    return found


def decided(instructions: list[Instruction], family: str, lanes: int) -> tuple[Steering, ...]:
    """Return the instructions at which inexact results decide active lanes, a branch or an address."""
    blocks = cut(instructions)
    full = everywhere(blocks, lanes)
    return steerings(
        [([_step(i, family, full=i.address in full) for i in body], follow) for body, follow in blocks]
    )


def _step(i: Instruction, family: str, *, full: bool) -> AccuracyStep:
    """Return an instruction as `steerings` needs it."""
    stem = canonical(i.stem, family)
    parts = [stem] if i.second is None else [stem, canonical(i.second.stem, family)]
    parts = [part.replace("v_dual_", "v_") for part in parts]
    reads, writes = used(i, family)
    reads, writes = set(reads), set(writes)
    if stem.startswith(("s_cselect", "s_addc", "s_subb", "s_cmov")):
        reads |= _SCALAR_FLAG
    if stem.startswith("s_") and not stem.startswith(("s_load", "s_mov", "s_wait", "s_cselect")):
        writes |= _SCALAR_FLAG
    inexact = [part for part in parts if bound(part) not in (EXACT, _SUMS) and part != _INTEGER]
    steers = [(what, by) for what, by in (_deciders(i, stem), _addresses(i)) if by]
    if writes & _EXEC:
        steers.append(("which lanes run", frozenset(reads - _EXEC)))
    return AccuracyStep(
        address=i.address,
        name=inexact[0] if inexact else stem,
        text=i.text,
        reads=frozenset(reads),
        writes=frozenset(writes),
        inexact=bool(inexact),
        settles=stem.startswith(_SETTLED),
        masked=not full and not stem.startswith("s_"),
        masks=bool(writes & _EXEC),
        steers=tuple(steers),
    )


def _deciders(i: Instruction, stem: str) -> tuple[str, frozenset[Register]]:
    by: frozenset[Register] = frozenset()
    if stem.startswith("s_cbranch_"):
        by = {"scc": _SCALAR_FLAG, "vcc": _VCC, "exe": frozenset()}[i.stem.removeprefix("s_cbranch_")[:3]]
    return "a branch", by


def _addresses(i: Instruction) -> tuple[str, frozenset[Register]]:
    """Return the registers of which an access takes its address."""
    fields = [slot.field for slot in i.opcode.operands]
    behind = i.operands[len(i.operands) - len(fields) :]  # an atomic operation may have a result in front
    registers = {
        (operand.file, operand.index + k)
        for field, operand in zip(fields, behind, strict=False)
        if field in _ADDRESSES and isinstance(operand, Reg) and "permute" not in i.stem
        for k in range(operand.count)
    }
    return "an address", frozenset(registers)
