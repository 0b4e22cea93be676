"""Numbers left open while recording, and where they land.

A `Param` stands for a buffer's address or a number that is given at submit. An `Expr` is what can be done to
it on the way: `(value + add) >> shift`. A `Patch` is the place of the result in encoded words or in argument
memory.

Not here: which values a Param accepts (`binding`), writing them into encoded words
(`hcq.replay.relocations`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Literal

from hcq.errors import UsageError

_FLOATS = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """A number, or a buffer's address, left open while recording, given at submit. Equal only to itself."""

    name: str
    bits: int = 64
    """A number must fit so many bits."""
    signed: bool = False
    size: int = 0
    """Bytes that a buffer given for it has at least."""

    def __add__(self, k: int) -> Expr:
        return Expr(self, add=k)

    def __rshift__(self, k: int) -> Expr:
        return Expr(self, shift=k)

    def range(self) -> tuple[int, int]:
        """The least and the greatest number that may be given."""
        if self.signed:
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class Expr:
    """`(param + add) >> shift`; for a floating-point place the bits of the number."""

    param: Param
    add: int = 0
    shift: int = 0
    float_bits: Literal[0, 16, 32, 64] = 0
    """The place holds an IEEE number of so many bits; 0: an integer."""

    def __add__(self, k: int) -> Expr:
        if self.shift:
            raise UsageError(f"{self} + {k}: add before shifting, as in (param + k) >> n")
        return replace(self, add=self.add + k)

    def __rshift__(self, k: int) -> Expr:
        return replace(self, shift=self.shift + k)

    def evaluate(self, value: float) -> int:
        """Return the integer that stands for `value` here; a negative one is not yet cut to the place."""
        if self.float_bits:
            of_float, of_int = _FLOATS[self.float_bits]
            try:
                bits: int = struct.unpack(of_int, struct.pack(of_float, value))[0]
            except (struct.error, OverflowError):
                raise UsageError(f"{self.param.name} = {value!r} is no float{self.float_bits}") from None
            return bits >> self.shift
        if not isinstance(value, int):
            raise UsageError(f"{self.param.name} is used as an integer, {value!r} was given")
        return (value + self.add) >> self.shift


Word = int | Param | Expr
"""The values that a command accepts for a number."""


def as_expr(word: Param | Expr) -> Expr:
    """Return an open number as an Expr."""
    return word if isinstance(word, Expr) else Expr(word)


@dataclass(frozen=True, slots=True)
class Patch:
    """Where an Expr lands: bits [lo, lo + width) counted from byte `offset` of the target."""

    target: Literal["words", "memory"]
    offset: int
    """Bytes from the first word of the push buffer, or a device address when `target` is "memory"."""
    lo: int
    width: int
    expr: Expr
