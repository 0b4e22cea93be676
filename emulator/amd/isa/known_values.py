"""How the values of a basic block were computed: halves of wide values, lanes of masks, parts of addresses.

Instructions split values that the next instruction joins again: 64-bit values in two registers, carries and
comparisons in masks. The translator looks up the original value, and uses it instead. Values are in
single-assignment form, so an entry stays valid. It is used only in its own block.

Not here: reading and writing registers (`values`). Next: `values`, the user.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emulator.ir.ir_text import element, lanes_of
from emulator.simt import rows
from emulator.simt.rows import PLAIN, SIGNED, UNSIGNED

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

_LEAST_FREE_BITS = 32
"""The upper bits of 64 that an extended 32-bit value leaves free: shifts by fewer lose nothing."""
_ZEROS = ("0", "zeroinitializer", "splat (i32 0)")
"""The texts of the constant 0 in IR."""


@dataclass(frozen=True, slots=True)
class Carry:
    """A sum or difference of 32 bits whose carries went to a mask."""

    total: IrValue
    a: IrValue
    b: IrValue
    active: IrValue
    """The lanes that executed, as a mask."""
    adds: bool
    """Whether it is a sum a + b; else it is a - b."""


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """A vector value as (`register`, extended to 64 bits) << `shift`, plus `offset`."""

    register: IrValue
    """A vector; of 32 bits if it is extended."""
    extended: str
    """How the register is extended (`rows.UNSIGNED`, `SIGNED` or `PLAIN`: not at all)."""
    shift: int = 0
    """Bits."""
    offset: IrValue | None = None
    """A scalar of the value's width; None for 0."""


class Known:
    """The origins of the values of one basic block, by the texts of the values (`IrValue.ref`)."""

    def __init__(self) -> None:
        self._wide: dict[tuple[str, str], IrValue] = {}
        self._lanes: dict[str, IrValue] = {}
        self._compared: dict[str, tuple[IrValue, IrValue]] = {}
        self._splats: dict[tuple[str, int], IrValue] = {}
        self._signs: dict[str, str] = {}
        self._scalars: dict[str, IrValue] = {}
        self._origins: dict[str, ValueOrigin] = {}
        self._shapes: dict[tuple[str, str, int, str], IrValue] = {}
        self.carries: dict[str, Carry] = {}
        """Mask of carries -> the addition or subtraction."""

    def join(self, c: CodeBuilder, low: IrValue, high: IrValue) -> IrValue:
        """Return the 64-bit integer, or vector, that has these halves."""
        found = self._wide.get((low.ref, high.ref))
        if found is not None:
            return found
        lower, upper = self.scalar(low), self.scalar(high)
        if high.ref in _ZEROS:
            whole = self.extended(c, low)
        elif self._signs.get(high.ref) == low.ref:
            whole = self.extended(c, low, signed=True)
        elif lower is not None and upper is not None:
            whole = self.splat(c, self.join(c, lower, upper), lanes_of(low.type))
        else:
            whole = c.op("or", c.resize(low, 64), c.op("shl", c.resize(high, 64), 32))
        self._wide[low.ref, high.ref] = whole
        return whole

    def split(self, c: CodeBuilder, whole: IrValue) -> tuple[IrValue, IrValue]:
        """Return the halves of a 64-bit integer, or vector, the lower first, and record them."""
        low, high = c.resize(whole, 32), c.resize(c.op("lshr", whole, 32), 32)
        self.same(low, high, whole)
        return low, high

    def same(self, low: IrValue, high: IrValue, whole: IrValue) -> None:
        """Record that two values are the halves of a third."""
        self._wide[low.ref, high.ref] = whole

    def sign(self, value: IrValue, high: IrValue) -> None:
        """Record that every bit of `high` is the sign of `value`."""
        self._signs[high.ref] = value.ref

    def splat(self, c: CodeBuilder, value: IrValue, count: int) -> IrValue:
        """Return a vector of `count` lanes that all have a scalar, and record its scalar."""
        found = self._splats.get((value.ref, count))
        if found is None or found.type != f"<{count} x {value.type}>":
            found = self._splats[value.ref, count] = c.splat(value, count)
            self._scalars[found.ref] = value
        return found

    def scalar(self, value: IrValue) -> IrValue | None:
        """Return the scalar that all lanes of a vector have; None if it is not known."""
        return self._scalars.get(value.ref)

    def extended(self, c: CodeBuilder, value: IrValue, *, signed: bool = False) -> IrValue:
        """Return a 32-bit integer, or vector, extended to 64 bits, and record the origin of a vector."""
        whole = c.resize(value, 64, signed=signed)
        if lanes_of(value.type):
            self._origins[whole.ref] = ValueOrigin(value, SIGNED if signed else UNSIGNED)
        return whole

    def shifted(self, value: IrValue, amount: int, result: IrValue) -> None:
        """Record that a 64-bit vector `result` is `value` shifted left, if no bit can be lost."""
        origin = self.origin(value)
        if origin.extended and origin.offset is None and origin.shift + amount < _LEAST_FREE_BITS:
            self._origins[result.ref] = replace(origin, shift=origin.shift + amount)

    def moved(self, c: CodeBuilder, value: IrValue, offset: IrValue, result: IrValue) -> None:
        """Record that a vector `result` is `value` plus a scalar `offset`."""
        origin = self.origin(value)
        total = offset if origin.offset is None else c.op("add", offset, origin.offset)
        self._origins[result.ref] = replace(origin, offset=total)

    def sum(self, c: CodeBuilder, a: IrValue, b: IrValue) -> IrValue:
        """Return the sum of two 64-bit vectors, and record it if one of them has a known scalar."""
        total = c.op("add", a, b)
        for value, other in ((a, b), (b, a)):
            scalar = self.scalar(other)
            if scalar is not None:
                self.moved(c, value, scalar, total)
                break
        return total

    def plus(self, c: CodeBuilder, value: IrValue, number: int) -> IrValue:
        """Return a vector plus a constant, and record it."""
        if not number:
            return value
        total = c.op("add", value, number)
        self.moved(c, value, c.const(element(value.type), number), total)
        return total

    def origin(self, value: IrValue) -> ValueOrigin:
        """Return the recorded origin of a vector; without record the value itself as the register."""
        return self._origins.get(value.ref) or ValueOrigin(value, PLAIN)

    def shape(self, lib: Library, c: CodeBuilder, origin: ValueOrigin, mask: IrValue, size: int) -> IrValue:
        """Return `rows.shape` of an address's register, for accesses of `size` bytes."""
        step = size >> origin.shift
        key = origin.register.ref, mask.ref, step, origin.extended
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = rows.shape(lib, c, origin.register, mask, step, origin.extended)
        return found

    def lanes(self, c: CodeBuilder, bits: IrValue) -> IrValue:
        """Return a mask (an integer) as an i1 for each lane."""
        found = self._lanes.get(bits.ref)
        if found is None:
            found = self._lanes[bits.ref] = c.mask_lanes(bits)
        return found

    def mask(self, c: CodeBuilder, lanes: IrValue, active: IrValue) -> IrValue:
        """Return `lanes`, an i1 each, as a mask without the lanes that do not execute, and record it."""
        bits = c.op("and", c.mask_bits(lanes), active)
        assert lanes_of(lanes.type), lanes
        self._compared[bits.ref] = (lanes, active)
        return bits

    def condition(self, c: CodeBuilder, bits: IrValue, active: IrValue) -> IrValue:
        """Return a mask as an i1 for each lane; undefined in lanes outside `active`."""
        found = self._compared.get(bits.ref)
        if found is not None and found[1].ref == active.ref:
            return found[0]
        return self.lanes(c, bits)
