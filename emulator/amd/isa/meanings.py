"""The registry of operations: `LANEWISE` has vector operations of one lane, `MEANINGS` all others.

    @lanewise("v_add3_u32", "u32", "u32", "u32", "u32")      # result, sources
    def _add3(t, a, b, d): ...                               # returns the result
    @meaning("v_swap_b32")
    def _swap(t): ...                                        # reads and writes operands itself

Not here: the operations (`vector_floats`, `vector_integers`, `scalars`, `memory` and others), control flow
(`translate`). Next: `vector_integers`, the simplest operations.
"""

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
    """An operation that each lane does for itself."""

    compute: Callable[..., IrValue]
    """Called with the translator and the sources; returns the result."""
    result: str
    """A type of `IsaTranslator.source`."""
    sources: tuple[str, ...]
    clamps: bool = False
    """Whether `compute` handles the clamp modifier (integers that saturate)."""
    accumulates: bool = False
    """Whether the destination is also the last source."""


LANEWISE: dict[str, Lanewise] = {}
"""Canonical name of an operation (`instruction.canonical`) -> its definition."""
MEANINGS: dict[str, Meaning] = {}
"""Canonical name of an operation -> the function that writes its code."""


def lanewise(
    name: str, result: str, *sources: str, clamps: bool = False, accumulates: bool = False
) -> Callable[[Callable[..., IrValue]], Callable[..., IrValue]]:
    """Register the decorated function as `Lanewise.compute` of an operation."""

    def register(compute: Callable[..., IrValue]) -> Callable[..., IrValue]:
        LANEWISE[name] = Lanewise(compute, result, sources, clamps, accumulates)
        return compute

    return register


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Register the decorated function in `MEANINGS` for each name."""

    def register(act: Meaning) -> Meaning:
        for name in names:
            MEANINGS[name] = act
        return act

    return register


def run_lanewise(t: IsaTranslator, entry: Lanewise) -> None:
    """Write the code of the current instruction, an operation of `LANEWISE`.

    Raises `IsaError` for another number of sources, or an output modifier of an integer.
    """
    i = t.instruction
    destination, *rest = i.operands
    if entry.accumulates and len(rest) == len(entry.sources) - 1:
        rest.append(destination)
    rest = [operand for operand in rest if str(operand) != "off"]
    if len(rest) != len(entry.sources):
        raise t.error(f"wanted {len(entry.sources)} sources, saw {len(rest)}")
    values = [t.source(o, s, k) for k, (o, s) in enumerate(zip(rest, entry.sources, strict=True))]
    result = entry.compute(t, *values)
    if entry.result[0] == "f":
        t.finish(destination, t.saturated(result, values) if entry.result == "f16" else result)
        return
    if (i.get("clamp") and not entry.clamps) or i.get("omod"):
        raise t.error("output modifier of an integer result")
    t.write(destination, result)
