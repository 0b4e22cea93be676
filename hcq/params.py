"""Parameters: numbers and buffers that a command buffer leaves open, and that are given at submission.

A `Param` is a number, or the address of a buffer, that is not known yet. An `Expr` is `(value + add) >>
shift`. A `Patch` is the location of an Expr in encoded words or in argument memory. `resolve` checks the
value of a Param.

Not here: the code that writes values at a replay (`hcq.replay.relocations`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hcq.errors import UsageError, UsageTypeError
from hcq.memory import Buffer, Owner

_FLOATS = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """A number, or a buffer's address, that is given at submission. Equal only to itself.

    Raises `UsageTypeError` for `bits` or `size` that are no ints of at least 1 and 0. `+` and `>>` make an
    `Expr`.
    """

    name: str
    bits: int = 64
    """Number of bits that a number must fit."""
    signed: bool = False
    size: int = 0
    """Least number of bytes of a buffer given for it."""

    def __post_init__(self) -> None:
        for what, number, least in (("bits", self.bits, 1), ("size", self.size, 0)):
            if not isinstance(number, int) or number < least:
                wanted = f"an int of at least {least}"
                raise UsageTypeError(f"parameter {self.name}, {what}: wanted {wanted}, seen {number!r}")

    def __add__(self, k: int) -> Expr:
        return Expr(self, add=_number(self, k))

    def __rshift__(self, k: int) -> Expr:
        return Expr(self, shift=_distance(self, k))

    def range(self) -> tuple[int, int]:
        """Return the least and the greatest number that may be given."""
        if self.signed:
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class Expr:
    """`(param + add) >> shift`, or the bits of a floating-point number.

    `+` and `>>` raise `UsageTypeError` for a number that is no int, and for a negative shift; `+` after a
    shift raises `UsageError`.
    """

    param: Param
    add: int = 0
    shift: int = 0
    float_bits: Literal[0, 16, 32, 64] = 0
    """Width of an IEEE number, of which the expression gives the bits; 0: an integer."""

    def __add__(self, k: int) -> Expr:
        if self.shift:
            raise UsageError(f"{self} + {k}: add before shifting, as in (param + k) >> n")
        return replace(self, add=self.add + _number(self, k))

    def __rshift__(self, k: int) -> Expr:
        return replace(self, shift=self.shift + _distance(self, k))

    def range(self) -> tuple[int, int]:
        """Return the least and the greatest integer that it gives."""
        lowest, highest = self.param.range()
        return self.evaluate(lowest), self.evaluate(highest)

    def evaluate(self, value: float) -> int:
        """Return the integer to store for `value`, not yet masked to the width of its location.

        Raises `UsageError` for a float where an integer is wanted, or one too large, and for other
        `float_bits`; `UsageTypeError` for another class of `param`, `add` or `shift`.
        """
        if not isinstance(self.param, Param):
            raise UsageTypeError(f"wanted a Param in an Expr, seen {self.param!r}")
        if not isinstance(self.shift, int) or not isinstance(self.add, int) or self.shift < 0:
            wanted = "an int to add and a shift that is an int of at least 0"
            raise UsageTypeError(f"{self.param.name}: wanted {wanted}, seen {self.add!r} and {self.shift!r}")
        if not isinstance(self.float_bits, int) or self.float_bits not in {0, *_FLOATS}:
            raise UsageError(
                f"{self.param.name}: wanted 0, 16, 32 or 64 float_bits, seen {self.float_bits!r}"
            )
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


def _number(word: Param | Expr, k: int) -> int:
    if not isinstance(k, int):
        raise UsageTypeError(f"{word} + {k!r}: wanted an int")
    return k


def _distance(word: Param | Expr, k: int) -> int:
    if not isinstance(k, int) or k < 0:
        raise UsageTypeError(f"{word} >> {k!r}: wanted an int of at least 0")
    return k


Word = int | Param | Expr
"""A number in a command: known, or *open*, which is given at submission."""


def as_expr(word: Param | Expr) -> Expr:
    """Return a Param or Expr as an Expr."""
    return word if isinstance(word, Expr) else Expr(word)


@dataclass(frozen=True, slots=True)
class Patch:
    """The location of an Expr: bits [lo, lo + width), counted from byte `offset` of the target."""

    target: Literal["words", "memory"]
    offset: int
    """Bytes from the first word of the push buffer, or a device address when `target` is "memory"."""
    lo: int
    width: int
    expr: Expr


Value = Buffer | int | float
"""A value for a Param."""


def resolve(param: Param, value: object, device: Owner, *, least: int = 0) -> float:
    """Return the address of a buffer, which must have at least `least` bytes, or the number itself.

    Raises `UsageError` for a buffer that is closed, too small or not accessible to `device`, a number out of
    range, and any other class.
    """
    if isinstance(value, Buffer):
        value.live()
        least = max(param.size, least)
        if value.size < least:
            raise UsageError(f"{param.name}: wanted at least {least} bytes, seen {value!r}")
        if not value.visible_to(device):
            raise UsageError(f"{param.name}: seen {value!r}, {value.unseen_by(device)}")
        return value.va
    if isinstance(value, int):
        lowest, highest = param.range()
        if not lowest <= value <= highest:
            raise UsageError(f"{param.name}: wanted {lowest} to {highest}, seen {value}")
        return value
    if isinstance(value, float):
        return value
    raise UsageError(f"{param.name}: wanted a Buffer or a number, seen {value!r}")


def check_values(values: Mapping[Param, Value]) -> None:
    """Raise `UsageTypeError` for values that do not belong to parameters."""
    if not isinstance(values, Mapping) or not all(key.__class__ is Param for key in values):
        hint = "hint: values={param: 7}"
        raise UsageTypeError(f"values= takes a dict from Param to value, seen {values!r}\n{hint}")


def look_up(param: Param, values: Mapping[Param, Value] | None) -> Value:
    """Return the value given for `param`. Raises `UsageError` if there is none, or no `values` are."""
    value = None if values is None else values.get(param)
    if value is None:
        given = ", ".join(other.name for other in values or ()) or "nothing"
        raise UsageError(f"no value was given for the parameter {param.name}; given: {given}")
    return value


def piece(patch: Patch, value: float) -> int:
    """Return the bits that a patch stores for a value."""
    return patch.expr.evaluate(value) & ((1 << patch.width) - 1)


def reaches(patches: Sequence[Patch]) -> list[int]:
    """Return for each patch the number of bits that its value may have.

    A value in several words has one patch for each word, the lowest first; all get the total width.
    """
    out: list[int] = []
    first = 0
    for i, patch in enumerate(patches):
        if i:
            last = patches[i - 1]
            joined = (
                patch.expr.param is last.expr.param
                and patch.expr.add == last.expr.add
                and patch.expr.shift == last.expr.shift + last.width
            )
            if not joined:
                out += [patches[i - 1].expr.shift + patches[i - 1].width] * (i - first)
                first = i
    if patches:
        out += [patches[-1].expr.shift + patches[-1].width] * (len(patches) - first)
    return out


def check_reach(patch: Patch, reach: int, value: float) -> None:
    """Raise `UsageError` for a number that does not fit the `reach` bits of its location."""
    patch.expr.evaluate(value)  # raises for a float where an integer is wanted, or one too large
    if patch.expr.float_bits or not isinstance(value, int):
        return
    number, signed = value + patch.expr.add, patch.expr.param.signed
    lowest, end = (-(1 << reach - 1), 1 << reach - 1) if signed else (0, 1 << reach)
    if not lowest <= number < end:
        raise UsageError(f"{patch.expr.param.name}: {number} does not fit the {reach} bits where it is used")
