"""LIMIT: checks of integer tensors - indices that must lie in a range, divisors that must not be 0.

LIMIT src=(x) arg=IndexLimit or Divisor has the value of x, and is removed before compilation
(`frontend.evaluation.expr`), so it costs nothing. Values that the host knows are checked when the method is
called: constants, and for indices the extremes of data from lists and arrays (`Leaf.known`). Other values are
checked under validation (`HCQ_VALIDATE=1`): before a launch, every LIMIT that it depends on is computed and
read. Without validation an index outside reads 0 and writes nothing, and an integer divided by 0 gives 0.

A replay of a captured function checks values that depend only on its arguments and on outside tensors that it
does not assign to. Values that depend on anything else were checked once, at the capture.

Not here: which methods set limits (`frontend.ops.indexing`, `frontend.ops.arithmetic`). Next: `plan`.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.dtype import DType
from compiler.ir.ops import Ops
from frontend.evaluation.base import T
from frontend.evaluation.expr import (
    LIMIT, PARAM, Leaves, Part, TensorExpr, constant_of, inside, join, source_expr,
)  # fmt: skip
from frontend.evaluation.storage import unpack
from frontend.evaluation.trace import apply
from hcq.errors import UsageError, UsageIndexError, UsageZeroDivisionError

_SAME_VALUES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.FLIP, Ops.CONTIGUOUS, LIMIT})
"""Operations whose result has the same set of values as their source."""


@dataclass(frozen=True, slots=True)
class IndexLimit:
    """A limit on each element of an integer tensor: low <= element < high."""

    what: str
    """The operation and its axis, for the message."""
    low: int
    high: int
    besides: int | None = None
    """One more valid value, outside the range, such as the class that a loss ignores; None: there is none."""

    def takes(self, value: int) -> bool:
        """Return whether the value is valid for an element."""
        return self.low <= value < self.high or value == self.besides

    def error(self, value: int) -> UsageError:
        """Return the exception for an element with this value."""
        return UsageIndexError(f"{self.what}: index {value} is outside the {self.high} elements there")


@dataclass(frozen=True, slots=True)
class Divisor:
    """A limit on each element of an integer divisor: it is not 0."""

    what: str
    """The operation, for the message."""

    def takes(self, value: int) -> bool:
        """Return whether the value is valid for an element."""
        return value != 0

    def error(self, value: int) -> UsageError:
        """Return the exception for an element with this value."""
        return UsageZeroDivisionError(
            f"{self.what}: an integer divisor is {value}\n"
            "hint: floats give inf or nan; or replace it with where()"
        )


Demand = IndexLimit | Divisor
"""The requirement for each element: the argument of a LIMIT."""


def limited(x: T, demand: Demand) -> T:
    """Return x with a limit on each element, for use inside traced methods.

    Raises `UsageIndexError` or `UsageZeroDivisionError` for a constant that breaks the limit.
    """
    value = constant_of(x.expr)
    if value is None:
        return apply(LIMIT, demand, x)
    if 0 not in x.expr.shape and not demand.takes(value):
        raise demand.error(value)
    return x


def refuse_known(x: Any, demand: Demand) -> None:
    """Raise as `limited` if a value of x that the host knows (`Leaf.known`) breaks the limit; never waits.

    Operations that keep the set of values (`_SAME_VALUES`, widening casts) are skipped to find the leaf.
    """
    e = x.expr
    leaves = x.leaves
    while e.op in _SAME_VALUES or (
        e.op is Ops.CAST and e.src[0].dtype.is_int and _holds(e.dtype, e.src[0].dtype)
    ):
        if e.op is Ops.EXPAND and 0 in e.shape:
            return
        e, leaves = inside((e, leaves))
    if e.op is not PARAM:
        return
    known = getattr(leaves[0], "known", None)  # the leaves of an abstract tensor are integers
    for value in known or ():
        if not demand.takes(value):
            raise demand.error(value)


def _holds(wide: DType, dtype: DType) -> bool:
    return wide.is_int and wide.min <= dtype.min and dtype.max <= wide.max


class Checks:
    """The LIMITs of one launch, as (LIMIT expression, numbers of its leaves among the launch's leaves)."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: list[tuple[TensorExpr, tuple[int, ...]]]) -> None:
        self.nodes = nodes

    def over(self, known: Collection[int]) -> Checks | None:
        """Return the checks that depend only on leaves with numbers in `known`; None if there are none."""
        found = [node for node in self.nodes if all(i in known for i in node[1])]
        return Checks(found) if found else None

    def verify(self, leaves: Leaves, value: Callable[[TensorExpr, Leaves], memoryview]) -> None:
        """Compute every limited tensor over the launch's leaves, and wait; raise for an invalid element.

        `value` computes an expression over leaves and returns its bytes. Raises `UsageIndexError` or
        `UsageZeroDivisionError`.
        """
        for e, numbers in self.nodes:
            outside, order = _outside(e)
            own = tuple([leaves[i] for i in numbers])
            if not value(outside, tuple([own[i] for i in order]))[0]:
                continue
            x, inner = inside((e, own))
            wrong = next(v for v in unpack(value(x, inner), x.dtype) if not e.arg.takes(v))
            raise e.arg.error(wrong)


def limits_of(parts: Sequence[tuple[TensorExpr, tuple[int, ...]]]) -> Checks | None:
    """Return the checks that expressions over joint leaves depend on; None where nothing is limited."""
    seen: set[tuple[TensorExpr, tuple[int, ...]]] = set()
    found: list[tuple[TensorExpr, tuple[int, ...]]] = []
    stack = list(parts)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        e, leaves = node
        if e.op is LIMIT and 0 not in e.shape:
            found.append(node)
        stack += [(s, tuple([leaves[i] for i in m])) for s, m in zip(e.src, e.maps, strict=True)]
    return Checks(found) if found else None


def _outside(e: TensorExpr) -> Part:
    """Return the expression "some element of a LIMIT is invalid", over numbers of the LIMIT's leaves."""
    x = inside((e, tuple(range(e.n))))
    shape, dtype, demand = e.shape, e.dtype, e.arg

    def number(value: int) -> Part:
        scalar = join(Ops.RESHAPE, (1,) * len(shape), (source_expr(Ops.CONST, value, dtype, e.device), ()))
        return join(Ops.EXPAND, shape, scalar)

    if isinstance(demand, Divisor):
        bad = join(Ops.EQ, None, x, number(0))
    else:
        bad = join(Ops.EQ if demand.high <= dtype.min else Ops.NE, None, x, x)  # all, or none so far
        if demand.low > dtype.min:
            bad = join(Ops.OR, None, bad, join(Ops.LT, None, x, number(demand.low)))
        if dtype.min < demand.high <= dtype.max:
            bad = join(Ops.OR, None, bad, join(Ops.LT, None, number(demand.high - 1), x))
        if demand.besides is not None and dtype.min <= demand.besides <= dtype.max:
            bad = join(Ops.AND, None, bad, join(Ops.NE, None, x, number(demand.besides)))
    return join(Ops.REDUCE, (Ops.MAX, tuple(range(len(shape)))), bad)
