"""The node of the intermediate representation: interned, immutable, with inferred properties.

`uop(op, dtype, src, arg)` is the factory. Equal arguments give the same object, so `is` compares whole
graphs. The factory does not check its arguments.

Not here: checks of finished graphs (`verify`). Next: `ops`, the operations; `graph` and `index`, the checked
constructors of tensor graphs and of index arithmetic.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final, NoReturn

from compiler.dtype import DType, dtypes
from compiler.ir.infer import BOUNDS, LIMITS, ORDER, SHAPE
from compiler.ir.ops import Ops
from hcq.errors import UsageError

__all__ = ["Ops", "Shape", "UOp", "const", "table_size", "trim_table", "uop"]

Shape = tuple[int, ...]


class UOp:
    """One interned node, made by `uop` or a checked constructor.

    `shape` is () in kernel ASTs. `vmin` and `vmax` are inclusive bounds of index, integer and bool nodes. For
    floats both are 0, without a meaning. `id` is the order of creation; it differs between processes and must
    not be part of a key. `order` is a structural hash of index nodes, equal in every process; it is 0 for
    other nodes that are under no INDEXOF. Index nodes (dtype index) can be added and subtracted, and combined
    with numbers by `*`, `//`, `%`, `<` and `>=`; other operands raise `UsageError`.
    """

    __slots__ = ("arg", "dtype", "id", "op", "order", "shape", "src", "vmax", "vmin")

    op: str
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any  # its type depends on the operation: see compiler.ir.ops
    shape: Shape
    vmin: int
    vmax: int
    id: int
    order: int

    @property
    def min(self) -> int:
        """The inclusive lower bound."""
        return self.vmin

    @property
    def max(self) -> int:
        """The inclusive upper bound."""
        return self.vmax

    def render(self) -> str:
        """Return index arithmetic as text, such as `((idx0*4)+idx1)`; other nodes as `kernel_key` does."""
        from compiler.ir.serialize import node_text  # noqa: PLC0415 - text is built on this module

        return node_text(self)

    def __repr__(self) -> str:
        if self.dtype is dtypes.index or self.op in (Ops.ILT, Ops.IAND):
            return f"<{self.op} {self.render()}>"
        arg = "" if self.arg is None else f" arg={self.arg!r}"
        return f"<{self.op} {self.dtype.name} {self.shape}{arg} #{self.id}>"

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "nodes are interned per process and cannot be pickled; send kernel_key(ast) and parse it there"
        )

    def _arithmetic(self, operator: str, other: UOp | int) -> UOp:
        """Return the index node of a binary operator. Raises `UsageError` for wrong operands."""
        from compiler.ir import index as symbolic  # noqa: PLC0415 - index is built on this module

        x = symbolic.as_index(self, operator)
        if operator in {"+", "-"}:
            y = symbolic.as_index(other, operator)
            return symbolic.add(x, y if operator == "+" else symbolic.mul(y, -1))
        functions = {
            "*": symbolic.mul, "//": symbolic.div, "%": symbolic.mod, "<": symbolic.lt, ">=": symbolic.ge,
        }  # fmt: skip
        return functions[operator](x, symbolic.as_number(other, operator))

    def __add__(self, other: UOp | int) -> UOp:
        return self._arithmetic("+", other) if isinstance(other, UOp | int) else NotImplemented

    def __radd__(self, other: int) -> UOp:
        return self + other

    def __sub__(self, other: UOp | int) -> UOp:
        return self._arithmetic("-", other) if isinstance(other, UOp | int) else NotImplemented

    def __rsub__(self, other: int) -> UOp:
        return (-self) + other

    def __neg__(self) -> UOp:
        return self * -1

    def __mul__(self, other: int) -> UOp:
        return self._arithmetic("*", other)

    def __rmul__(self, other: int) -> UOp:
        return self * other

    def __floordiv__(self, other: int) -> UOp:
        return self._arithmetic("//", other)

    def __mod__(self, other: int) -> UOp:
        return self._arithmetic("%", other)

    def __lt__(self, other: int) -> UOp:
        return self._arithmetic("<", other)

    def __ge__(self, other: int) -> UOp:
        return self._arithmetic(">=", other)


_table: dict[tuple[str, DType, Any, tuple[UOp, ...]], UOp] = {}
_created = 0


def uop(op: str, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
    """Return the interned node of these parts, without checks. Thread-safe."""
    if op is Ops.CONST:  # as a key -0.0 equals 0.0
        return const(arg, dtype)
    key = (op, dtype, arg, src)
    node = _table.get(key)
    if node is None:
        node = _table.setdefault(key, _create(op, dtype, src, arg))  # atomic, so all threads get one node
    return node


def _create(op: str, dtype: DType, src: tuple[UOp, ...], arg: Any) -> UOp:
    """Return a new node with the shape, bounds and order that the tables of its operation give it."""
    global _created  # noqa: PLW0603 - the count of nodes of this process
    node = UOp.__new__(UOp)
    node.op = op
    node.dtype = dtype
    node.src = src
    node.arg = arg
    rule = SHAPE.get(op)
    node.shape = () if rule is None else rule(src, arg)
    if dtype.kind == "float":
        node.vmin = node.vmax = 0
    else:
        bound = BOUNDS.get(op)
        node.vmin, node.vmax = LIMITS[dtype] if bound is None else bound(dtype, src, arg)
    order = ORDER.get(op)
    node.order = 0 if order is None else order(src, arg)
    _created += 1
    node.id = _created
    return node


def const(value: float, dtype: DType) -> UOp:
    """Return a scalar constant.

    The value is converted to the dtype's Python class; floats are rounded to the dtype. 0.0 and -0.0 are
    different constants; all NaN are one. Raises `UsageError` for a number that an integer dtype does not
    have.
    """
    exact = _exact(value, dtype)
    name: Any = exact
    if exact == 0 and dtype.kind == "float" and math.copysign(1.0, exact) < 0:
        name = "-0.0"
    key = (Ops.CONST, dtype, name, ())
    node = _table.get(key)
    if node is None:
        node = _table.setdefault(key, _create(Ops.CONST, dtype, (), exact))
    return node


def table_size() -> int:
    """Return the number of interned nodes."""
    return len(_table)


def trim_table(limit: int) -> bool:
    """Empty the table if it has more than `limit` nodes; return whether it was emptied.

    Existing nodes stay usable, but are not identical to equal nodes that are made later. The caller must not
    combine graphs from before with graphs from after.
    """
    if len(_table) <= limit:
        return False
    _table.clear()
    _table.update(_PINNED)
    return True


_NAN: Final = float("nan")
_INF: Final = float("inf")


def _exact(value: float, dtype: DType) -> float:
    kind = dtype.kind
    if kind == "float":
        return round_to(float(value), dtype)
    if kind == "bool":
        return bool(value)
    if not math.isfinite(value) or int(value) != value:
        raise UsageError(f"{value!r} is not a value of {dtype.name}; expected an integer")
    low, high = LIMITS[dtype]
    if not low <= value <= high:
        raise UsageError(f"{value!r} does not fit {dtype.name}; expected {low} to {high}")
    return int(value)


def round_to(value: float, dtype: DType) -> float:
    """Return the value of a float dtype that is nearest to a float, ties to even.

    Overflow gives infinity; in a float of 8 bits it gives what `compiler.narrow_floats` says.
    """
    if math.isnan(value):
        return _NAN
    if not dtype.computes:
        from compiler.narrow_floats import encoded, values  # noqa: PLC0415 - for few programs

        return values(dtype)[encoded(value, dtype)]
    if dtype is dtypes.float64 or math.isinf(value):
        return value
    if dtype is dtypes.bfloat16:
        return _round_bfloat16(value)
    form = "f" if dtype is dtypes.float32 else "e"
    try:
        rounded: float = struct.unpack(form, struct.pack(form, value))[0]
    except OverflowError:
        return math.copysign(_INF, value)
    return rounded


def _round_bfloat16(value: float) -> float:
    """Round a float64 once; a conversion through float32 would round twice."""
    if value == 0:
        return value
    exponent = max(math.frexp(value)[1], -125)  # bfloat16 has 8 significant bits; subnormals end at 2**-133
    scaled = math.ldexp(value, 8 - exponent)
    rounded = math.copysign(math.ldexp(float(round(scaled)), exponent - 8), value)
    return rounded if abs(rounded) < 2.0**128 else math.copysign(_INF, value)


_PINNED: Final[dict[tuple[str, DType, Any, tuple[UOp, ...]], UOp]] = {
    (Ops.CONST, dtype, value, ()): const(value, dtype)
    for dtype in (dtypes.index, dtypes.bool)
    for value in (0, 1)
}
