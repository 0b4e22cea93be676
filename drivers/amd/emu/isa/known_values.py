"""Remember how the values of a basic block were made: halves of a wide value, lanes of a mask.

Instructions take apart what the next one joins again: 64-bit values in two registers, carries and comparisons
in masks. The translator looks up the value from which another was made, and uses it instead. Values are in
single-assignment form, so an entry stays valid; it is used in its own block alone.

Next: `values`, the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.emu.simt.ir_types import lanes_of

if TYPE_CHECKING:
    from drivers.emu.simt.vector import Code, Value

_ZEROS = ("0", "zeroinitializer", "splat (i32 0)")


@dataclass(frozen=True, slots=True)
class Carry:
    """A sum or difference of 32 bits that gave a mask of carries."""

    total: Value
    a: Value
    b: Value
    active: Value
    adds: bool


class Known:
    """The values of one basic block, by the values from which they were made."""

    def __init__(self) -> None:
        self._wide: dict[tuple[str, str], Value] = {}
        self._lanes: dict[str, Value] = {}
        self._compared: dict[str, tuple[Value, Value]] = {}
        self._splats: dict[tuple[str, int], Value] = {}
        self._signs: dict[str, str] = {}
        self.carries: dict[str, Carry] = {}
        """Mask of carries -> the addition or subtraction."""

    def join(self, c: Code, low: Value, high: Value) -> Value:
        """Return 64-bit integers (one, or one a lane) made of their halves."""
        found = self._wide.get((low.ref, high.ref))
        if found is not None:
            return found
        if high.ref in _ZEROS:
            whole = c.resize(low, 64)
        elif self._signs.get(high.ref) == low.ref:
            whole = c.resize(low, 64, signed=True)
        else:
            whole = c.op("or", c.resize(low, 64), c.op("shl", c.resize(high, 64), 32))
        self._wide[low.ref, high.ref] = whole
        return whole

    def split(self, c: Code, whole: Value) -> tuple[Value, Value]:
        """Return the halves of 64-bit integers, the lower first."""
        low, high = c.resize(whole, 32), c.resize(c.op("lshr", whole, 32), 32)
        self.same(low, high, whole)
        return low, high

    def same(self, low: Value, high: Value, whole: Value) -> None:
        """Remember that two values are the halves of a third."""
        self._wide[low.ref, high.ref] = whole

    def sign(self, value: Value, high: Value) -> None:
        """Remember that `high` is a copy of the sign of `value` in all bits."""
        self._signs[high.ref] = value.ref

    def splat(self, c: Code, value: Value, count: int) -> Value:
        """Return a scalar in every lane."""
        found = self._splats.get((value.ref, count))
        if found is None or found.type != f"<{count} x {value.type}>":
            found = self._splats[value.ref, count] = c.splat(value, count)
        return found

    def lanes(self, c: Code, bits: Value) -> Value:
        """Return a mask as one bit a lane."""
        found = self._lanes.get(bits.ref)
        if found is None:
            found = self._lanes[bits.ref] = c.mask_lanes(bits)
        return found

    def mask(self, c: Code, lanes: Value, active: Value) -> Value:
        """Return the bits of `lanes` as a mask without the lanes that do not execute."""
        bits = c.op("and", c.mask_bits(lanes), active)
        assert lanes_of(lanes.type), lanes
        self._compared[bits.ref] = (lanes, active)
        return bits

    def condition(self, c: Code, bits: Value, active: Value) -> Value:
        """Return a mask as one bit a lane, of any value in lanes that do not execute (`active`)."""
        found = self._compared.get(bits.ref)
        if found is not None and found[1].ref == active.ref:
            return found[0]
        return self.lanes(c, bits)
