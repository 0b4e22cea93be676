"""Variables: whole numbers in slices, indices and arithmetic, with one kernel for all their values.

    position = Variable("position", 0, 127)
    for i in range(128):
        cache[position.bind(i)] = keys          # the same kernel each time, also inside a TinyJit

A bound variable has its value in a one-element buffer, so that another value uses the same structure and
kernel. It combines with whole numbers by +, - and *, and can be used in slices (`x[v : v + 4]`), as an index,
with tensors in arithmetic, and as an argument of a captured function. As a size (`x[:n]`,
`Tensor.zeros(n, 3)`) it makes a tensor with symbolic sizes. The value is checked against the variable's
bounds when it is bound. The bounds are checked against the axis when the variable is used in a slice or an
index.

Unbound variables are symbols of the compiler's index arithmetic: `(a * 40 + b) // 20` is simplified, and has
bounds (`.min`, `.max`) and a text (`.render()`).

Not here: reading at a bound variable (`frontend.ops.indexing`), captured functions (`frontend.capture`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from frontend.arguments.checks import whole
from frontend.device import Device
from frontend.evaluation.base import T
from frontend.evaluation.expr import Part, leaf_expr
from frontend.evaluation.plan import refuse
from frontend.evaluation.storage import in_memory
from frontend.evaluation.trace import make
from frontend.ops.elementwise import add, mul
from hcq.errors import UsageError

if TYPE_CHECKING:
    from compiler.ir.uop import UOp


@dataclass(frozen=True, slots=True)
class Variable:
    """A whole number between two bounds, both included, whose value is given later by `bind`.

    Raises `UsageError` unless low <= high, both in 32 bits, `UsageTypeError` for bounds that are no whole
    numbers. Arithmetic with whole numbers and other variables gives expressions of the compiler.
    """

    name: str
    low: int
    high: int

    def __post_init__(self) -> None:
        low, high = whole(self.low, self.name), whole(self.high, self.name)
        if not dtypes.int32.min <= low <= high <= dtypes.int32.max:
            raise UsageError(f"{self.name}: wanted low <= high in 32 bits, saw {low} and {high}")

    @property
    def symbol(self) -> UOp:
        """The unbound variable in the compiler's index arithmetic."""
        return symbolic.Variable(self.name, self.low, self.high)

    @property
    def min(self) -> int:
        """The least value."""
        return self.low

    @property
    def max(self) -> int:
        """The greatest value."""
        return self.high

    def render(self) -> str:
        """Return the variable as text: its name."""
        return self.symbol.render()

    def __add__(self, other: Variable | UOp | int) -> UOp:
        return self.symbol + _symbol(other)

    def __radd__(self, other: UOp | int) -> UOp:
        return _symbol(other) + self.symbol

    def __sub__(self, other: Variable | UOp | int) -> UOp:
        return self.symbol - _symbol(other)

    def __rsub__(self, other: UOp | int) -> UOp:
        return _symbol(other) - self.symbol

    def __neg__(self) -> UOp:
        return -self.symbol

    def __mul__(self, other: int) -> UOp:
        return self.symbol * other

    def __rmul__(self, other: int) -> UOp:
        return self.symbol * other

    def __floordiv__(self, other: int) -> UOp:
        return self.symbol // other

    def __mod__(self, other: int) -> UOp:
        return self.symbol % other

    def __lt__(self, other: int) -> UOp:
        return self.symbol < other

    def __ge__(self, other: int) -> UOp:
        return self.symbol >= other

    def bind(self, value: int, *, device: str | None = None) -> Bound:
        """Return the variable with a value, in memory of a device (None: the default device).

        Raises `UsageError` for a value outside the bounds, for an unknown device, and inside a captured
        function; `UsageTypeError` for a value that is no whole number.
        """
        number = whole(value, self.name)
        if not self.low <= number <= self.high:
            raise UsageError(f"{self.name} must lie in {self.low}..{self.high}, saw {number}")
        refuse(
            f"{self.name} was bound inside a captured function: replays would see this one value\n"
            "hint: bind it outside, and pass it as an argument"
        )
        opened = Device[Device.DEFAULT if device is None else device]
        leaf = in_memory(opened, number, dtypes.int32)
        return Bound(self, (leaf_expr((), dtypes.int32, opened.name), (leaf,)))


def _symbol(value: Variable | UOp | int) -> UOp | int:
    return value.symbol if isinstance(value, Variable) else value


def _is_tensor(value: object) -> bool:
    return hasattr(value, "operand") or hasattr(value, "whole")


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of two bound variables: the end of a slice `x[a : a + n]`."""

    parts: tuple[Bound, Bound]

    def beyond(self, start: Bound) -> Bound | None:
        """Return the part that is not `start`; None if neither is."""
        a, b = self.parts
        return b if a == start else a if b == start else None

    def __repr__(self) -> str:
        return f"{self.parts[0]} + {self.parts[1]}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound variable times a number plus a number; made by `Variable.bind` and by arithmetic.

    Arithmetic with tensors gives tensors. Any other operand that is no whole number raises `UsageTypeError`.
    """

    variable: Variable
    part: Part
    """The expression and the leaf of the variable's value."""
    factor: int = 1
    offset: int = 0

    @property
    def low(self) -> int:
        """The least value that it may have."""
        return min(self.variable.low * self.factor, self.variable.high * self.factor) + self.offset

    @property
    def high(self) -> int:
        """The greatest value that it may have."""
        return max(self.variable.low * self.factor, self.variable.high * self.factor) + self.offset

    @property
    def bound(self) -> int | None:
        """The value of the variable; None inside a captured function, where each replay has its own."""
        known = self.part[1][0].known
        return None if known is None else int(known[0])

    @property
    def value(self) -> int | None:
        """The value, factor and offset included; None where `bound` is None."""
        bound = self.bound
        return None if bound is None else bound * self.factor + self.offset

    @overload
    def __add__(self, number: int) -> Bound: ...
    @overload
    def __add__(self, number: Bound) -> Sum: ...
    def __add__(self, number: int | Bound) -> Bound | Sum:
        if _is_tensor(number):
            return NotImplemented  # the tensor's __radd__ handles it
        if isinstance(number, Bound):
            return Sum((self, number))
        return replace(self, offset=self.offset + whole(number, self.variable.name))

    __radd__ = __add__

    def __sub__(self, number: int) -> Bound:
        if _is_tensor(number):
            return NotImplemented
        return self + -whole(number, self.variable.name)

    def __rsub__(self, number: int) -> Bound:
        if _is_tensor(number):
            return NotImplemented
        return self * -1 + whole(number, self.variable.name)

    def __neg__(self) -> Bound:
        return self * -1

    def __mul__(self, number: int) -> Bound:
        if _is_tensor(number):
            return NotImplemented
        by = whole(number, self.variable.name)
        return replace(self, factor=self.factor * by, offset=self.offset * by)

    __rmul__ = __mul__

    def beyond(self, other: Bound) -> int | None:
        """Return self - other if it is the same number for all values of the variable, else None."""
        same = self.variable == other.variable and self.part == other.part and self.factor == other.factor
        return self.offset - other.offset if same else None

    def scalar(self, like: T) -> T:
        """Return the value as an int32 tensor of shape (), of the class of `like`."""
        t = make(like, self.part)
        t = mul(t, self.factor) if self.factor != 1 else t
        return add(t, self.offset) if self.offset else t

    def __repr__(self) -> str:
        times = f"{self.factor} * " if self.factor != 1 else ""
        plus = f" + {self.offset}" if self.offset else ""
        return f"{times}{self.variable.name}{plus}"
