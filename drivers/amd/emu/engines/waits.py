"""What a queue waits for, and what packets ahead of it would store: parts of the search for deadlocks.

Compares are unsigned and masked. Not here: the search (`drivers.emu.waits`).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.pm4 import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMPARES: Final[Mapping[int, Callable[[int, int], bool]]] = {
    Function.ALWAYS: lambda _value, _reference: True,
    Function.LT: operator.lt,
    Function.LE: operator.le,
    Function.EQ: operator.eq,
    Function.NE: operator.ne,
    Function.GE: operator.ge,
    Function.GT: operator.gt,
}
"""PM4 and SDMA number their compares alike."""
_EXACT: Final = (Function.ALWAYS, Function.EQ, Function.NE)


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a word of memory."""

    name: str
    va: int
    payload: int
    function: int
    bits: int = 32
    mask: int = (1 << 64) - 1

    @property
    def equality(self) -> bool:
        """Whether the payload alone ends it."""
        whole = (1 << self.bits) - 1
        return self.function == Function.EQ and self.mask & whole == whole

    def satisfied(self, value: int) -> bool:
        """Return whether a value of the word ends it."""
        return COMPARES[self.function](value & self.mask, self.payload)

    @property
    def unordered(self) -> bool:
        """Whether the mask hides low bits from a comparison that orders values."""
        whole = self.mask & (1 << self.bits) - 1
        return self.function not in _EXACT and bool(whole & (whole + 1))

    @property
    def vain(self) -> bool:
        """Whether every value of the word ends it."""
        whole = self.mask & (1 << self.bits) - 1
        low, high = self.satisfied(0), self.satisfied(whole)
        ordered = {Function.GE: low, Function.GT: low, Function.LE: high, Function.LT: high}
        return ordered.get(Function(self.function), self.function is Function.ALWAYS)

    def __str__(self) -> str:
        how = Function(self.function).name
        return f"{self.name} for {self.bits} bits at {self.va:#x} {how} {self.payload:#x}"


@dataclass(frozen=True, slots=True)
class Promise:
    """A store that a queue has not reached yet."""

    va: int
    payload: int
