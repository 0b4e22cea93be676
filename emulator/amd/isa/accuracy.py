"""The error bound of each instruction.

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

from emulator.amd.isa.instruction import canonical
from emulator.shared.accuracy import EXACT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.amd.isa.instruction import Instruction

_FUNCTION: Final = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|sin|cos|rcp_iflag)_(f16|f32|f64)")
"""The operations that are exact only within a bound."""
_BOUNDS: Final = {"f16": "0.51 ulp", "f32": "1 ulp", "f64": "2^29 ulp"}
_NO_BOUND: Final = "no bound documented"
_SUMS: Final = "order of additions not documented"
_SUMMED: Final = re.compile(r"v_(dot\d\w*_(f|bf)16\w*|(wmma|swmmac)_b?f\w*|s?mfmac?_f\w*)")


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
