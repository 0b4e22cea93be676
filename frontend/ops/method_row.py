"""A row of the tables of elementwise methods (`ROWS` in `functions`, `elementwise`, `division`, `powers`).

It declares the primitive of a method and its gradient, which `frontend.autograd.table` reads, and the oracle
of its values, which tests read. The meaning, dtypes and constants of the primitive are a row of
`compiler.ir.ops`.

To add a method: docs/how-to/add-an-elementwise-operation.md.

Not here: operations of the compiler (`compiler.ir.ops`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

from compiler.ir.ops import FLOATS
from frontend.tensor_base import TensorBase

Fn = TypeVar("Fn", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One elementwise method of one or two numbers.

    `oracle` is an expression in NumPy (`np`), `math` and the operands x and y, for dtypes of these `kinds`
    (`DType.kind`). Tests compare values at numbers of both signs, and gradients with central differences at
    numbers of `domain`; where that is positive, all are.

    `op` is the primitive of the method. `gradient(g, result, x)`, or (g, result, x, y), is what
    its operands get from the gradient g of the result: one tensor, or a tuple of two. Both are None of a
    method that is made of others: it has their gradients, or none. A `predicate` gives bools.
    """

    method: Callable[..., TensorBase]
    oracle: str
    op: str | None = None
    gradient: Callable[..., TensorBase | tuple[TensorBase, ...]] | None = None
    domain: tuple[float, float] = (-2.0, 2.0)
    kinds: frozenset[str] = FLOATS
    predicate: bool = False

    @property
    def operands(self) -> int:
        """How many numbers the method is of: 1 or 2."""
        every = signature(self.method).parameters.values()
        return len([p for p in every if p.default is p.empty])


def named(name: str, text: str, fn: Fn) -> Fn:
    """Give a function that was made for a table its name and its docstring; return it."""
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = text
    return fn
