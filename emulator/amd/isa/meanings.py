"""The registry of operations: vector operations by the types of their operands, all others as functions.

Not here: the operations (`vector_floats`, `vector_integers`, `scalars`, `memory` and others), control flow
(`translate`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

    Meaning = Callable[[IsaTranslator], None]


@dataclass(frozen=True, slots=True)
class Lanewise:
    """An operation that each lane does for itself: `compute` gets the sources as `sources` says and gives the result."""

    compute: Callable[..., IrValue]
    result: str
    sources: tuple[str, ...]
    clamps: bool = False
    """Whether `compute` itself sees to the clamp modifier (integers that saturate)."""
    accumulates: bool = False
    """Whether the destination is the last source as well."""


LANEWISE: dict[str, Lanewise] = {}
MEANINGS: dict[str, Meaning] = {}


def lanewise(
    name: str, result: str, *sources: str, clamps: bool = False, accumulates: bool = False
) -> Callable[[Callable[..., IrValue]], Callable[..., IrValue]]:
    """Register what an operation computes: `compute(t, *sources)`."""

    def register(compute: Callable[..., IrValue]) -> Callable[..., IrValue]:
        LANEWISE[name] = Lanewise(compute, result, sources, clamps, accumulates)
        return compute

    return register


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Register a function that writes the code of an instruction."""

    def register(act: Meaning) -> Meaning:
        for name in names:
            MEANINGS[name] = act
        return act

    return register


def run_lanewise(t: IsaTranslator, entry: Lanewise) -> None:
    """Write the code of an operation that each lane does for itself."""
    i = t.instruction
    destination, *rest = i.operands
    if entry.accumulates and len(rest) == len(entry.sources) - 1:
        rest.append(destination)
    rest = [operand for operand in rest if str(operand) != "off"]
    if len(rest) != len(entry.sources):
        raise t.error(f"{len(rest)} sources where {len(entry.sources)} are known")
    values = [t.source(o, s, k) for k, (o, s) in enumerate(zip(rest, entry.sources, strict=True))]
    result = entry.compute(t, *values)
    if entry.result[0] == "f":
        t.finish(destination, t.saturated(result, values) if entry.result == "f16" else result)
        return
    if (i.get("clamp") and not entry.clamps) or i.get("omod"):
        raise t.error("output modifier of an integer result")
    t.write(destination, result)
