"""Remember how values of a basic block were made: halves of wide values, lanes of masks, parts of addresses.

Instructions take apart what the next one joins again: 64-bit values in two registers, carries and comparisons
in masks. The translator looks up the value from which another was made, and uses it instead. Values are in
single-assignment form, so an entry stays valid; it is used in its own block alone.

Next: `values`, the user.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emulator.ir.ir_text import element, lanes_of
from emulator.simt import row_access
from emulator.simt.row_access import PLAIN, SIGNED, UNSIGNED

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

_LEAST_FREE_BITS = 32
"""Bits that a value of 64 has above one of 32: shifts by fewer lose nothing."""
_ZEROS = ("0", "zeroinitializer", "splat (i32 0)")


@dataclass(frozen=True, slots=True)
class Carry:
    """A sum or difference of 32 bits that gave a mask of carries."""

    total: IrValue
    a: IrValue
    b: IrValue
    active: IrValue
    adds: bool


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """A value a lane that is (`register`, extended) << `shift`, plus `offset`."""

    register: IrValue
    """One value a lane, of 32 bits if it is extended."""
    extended: str
    """How the register is extended (`row_access.UNSIGNED`, `SIGNED` or `PLAIN`)."""
    shift: int = 0
    offset: IrValue | None = None
    """A scalar of the value's width."""


class Known:
    """The values of one basic block, by the values from which they were made."""

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
        """Return 64-bit integers (one, or one a lane) made of their halves."""
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
        """Return the halves of 64-bit integers, the lower first."""
        low, high = c.resize(whole, 32), c.resize(c.op("lshr", whole, 32), 32)
        self.same(low, high, whole)
        return low, high

    def same(self, low: IrValue, high: IrValue, whole: IrValue) -> None:
        """Remember that two values are the halves of a third."""
        self._wide[low.ref, high.ref] = whole

    def sign(self, value: IrValue, high: IrValue) -> None:
        """Remember that `high` is a copy of the sign of `value` in all bits."""
        self._signs[high.ref] = value.ref

    def splat(self, c: CodeBuilder, value: IrValue, count: int) -> IrValue:
        """Return a scalar in every lane."""
        found = self._splats.get((value.ref, count))
        if found is None or found.type != f"<{count} x {value.type}>":
            found = self._splats[value.ref, count] = c.splat(value, count)
            self._scalars[found.ref] = value
        return found

    def scalar(self, value: IrValue) -> IrValue | None:
        """Return the scalar of which a vector has a copy in every lane, None where it is not known."""
        return self._scalars.get(value.ref)

    def extended(self, c: CodeBuilder, value: IrValue, *, signed: bool = False) -> IrValue:
        """Return 32-bit integers (one, or one a lane) as 64-bit integers."""
        whole = c.resize(value, 64, signed=signed)
        if lanes_of(value.type):
            self._origins[whole.ref] = ValueOrigin(value, SIGNED if signed else UNSIGNED)
        return whole

    def shifted(self, value: IrValue, amount: int, result: IrValue) -> None:
        """Remember that a 64-bit value a lane is another one shifted left."""
        origin = self.origin(value)
        if origin.extended and origin.offset is None and origin.shift + amount < _LEAST_FREE_BITS:
            self._origins[result.ref] = replace(origin, shift=origin.shift + amount)

    def moved(self, c: CodeBuilder, value: IrValue, offset: IrValue, result: IrValue) -> None:
        """Remember that a value a lane is another one plus a scalar."""
        origin = self.origin(value)
        total = offset if origin.offset is None else c.op("add", offset, origin.offset)
        self._origins[result.ref] = replace(origin, offset=total)

    def sum(self, c: CodeBuilder, a: IrValue, b: IrValue) -> IrValue:
        """Return the sum of 64-bit values, one a lane."""
        total = c.op("add", a, b)
        for value, other in ((a, b), (b, a)):
            scalar = self.scalar(other)
            if scalar is not None:
                self.moved(c, value, scalar, total)
                break
        return total

    def plus(self, c: CodeBuilder, value: IrValue, number: int) -> IrValue:
        """Return a value a lane plus a constant."""
        if not number:
            return value
        total = c.op("add", value, number)
        self.moved(c, value, c.const(element(value.type), number), total)
        return total

    def origin(self, value: IrValue) -> ValueOrigin:
        """Return the parts of an address; of one of which nothing is known it is the register."""
        return self._origins.get(value.ref) or ValueOrigin(value, PLAIN)

    def shape(self, lib: Library, c: CodeBuilder, origin: ValueOrigin, mask: IrValue, size: int) -> IrValue:
        """Return the shape of an address's register, for accesses of `size` bytes in the lanes of a mask."""
        step = size >> origin.shift
        key = origin.register.ref, mask.ref, step, origin.extended
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = row_access.shape(lib, c, origin.register, mask, step, origin.extended)
        return found

    def lanes(self, c: CodeBuilder, bits: IrValue) -> IrValue:
        """Return a mask as one bit a lane."""
        found = self._lanes.get(bits.ref)
        if found is None:
            found = self._lanes[bits.ref] = c.mask_lanes(bits)
        return found

    def mask(self, c: CodeBuilder, lanes: IrValue, active: IrValue) -> IrValue:
        """Return the bits of `lanes` as a mask without the lanes that do not execute."""
        bits = c.op("and", c.mask_bits(lanes), active)
        assert lanes_of(lanes.type), lanes
        self._compared[bits.ref] = (lanes, active)
        return bits

    def condition(self, c: CodeBuilder, bits: IrValue, active: IrValue) -> IrValue:
        """Return a mask as one bit a lane, of any value in lanes that do not execute (`active`)."""
        found = self._compared.get(bits.ref)
        if found is not None and found[1].ref == active.ref:
            return found[0]
        return self.lanes(c, bits)
