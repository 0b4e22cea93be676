"""Nested containers of tensors, taken apart and put together: what captured functions take and return.

`flattened` takes a list, tuple or dict apart into its tensors and the same container with a `Placeholder` for
each; `filled` puts tensors in their places again.

Not here: what a captured function may take and return (`capture.jit`), containers in a file
(`capture.files`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from frontend.symbolic.tensor import SymbolicTensor
from frontend.tensor import Tensor
from frontend.variable import Bound, Variable
from hcq.errors import UsageError

NUMBERS: Final = "numbers"
_NUMBERS: Final = frozenset({bool, int, float})


def flattened(
    value: Any, out: list[Tensor], what: str, *, strict: bool, known: dict[Any, Any] | None = None
) -> Any:
    """Append the tensors of a nested container to `out`; return the container with a `Placeholder` for each.

    `strict`: other values than None raise `UsageError`, which `what` starts. `known` takes the places of
    bound variables; those of one variable with one value have one place. Under `NUMBERS` it takes the class
    of each number, or the text of a zero, in order.
    """
    known = {} if known is None else known
    if value.__class__ is Tensor:
        if strict:  # a tensor that is returned twice is one tensor
            for number, other in enumerate(out):
                if other is value:
                    return Placeholder(number)
        out.append(value)
        return Placeholder(len(out) - 1)
    if isinstance(value, Bound):
        key = value.variable, value.part if value.bound is None else value.bound
        if key not in known:
            out.append(Tensor.of_part(value.part))
            known[key] = len(out) - 1
        return BoundPlaceholder(known[key], value.variable, value.factor, value.offset)
    if isinstance(value, SymbolicTensor):
        whole = flattened(value.whole, out, what, strict=strict)
        return SizedPlaceholder(whole, flattened(value.sizes, out, what, strict=False, known=known))
    if isinstance(value, (list, tuple)):
        parts = [flattened(v, out, what, strict=strict, known=known) for v in value]
        return type(value)(parts) if not hasattr(value, "_fields") else type(value)(*parts)
    if isinstance(value, dict):
        # numbered in one order, whatever the order of the items
        keys = sorted(value, key=lambda k: (type(k).__name__, repr(k)))
        each = {k: flattened(value[k], out, what, strict=strict, known=known) for k in keys}
        return {k: each[k] for k in value}
    if not strict and hasattr(value, "__array__"):
        raise UsageError(
            "an array was passed to a captured function\n"
            "hint: make it a Tensor: then its values may change from call to call"
        )
    if strict and value is not None:
        raise UsageError(
            f"{what} {value!r}, which a replay could not compute; return tensors, containers of them, or None"
        )
    if value.__class__ in _NUMBERS:
        known.setdefault(NUMBERS, []).append(value.__class__ if value else repr(value))
    return value


def numbers_of(value: Any) -> list[Any]:
    """Return what `flattened` adds to `known[NUMBERS]` for a container that it returned."""
    known: dict[Any, Any] = {}
    flattened(value, [], "", strict=False, known=known)
    found: list[Any] = known.get(NUMBERS, [])
    return found


def others_of(value: Any) -> list[Any]:
    """Return what nested containers hold besides tensors."""
    if isinstance(value, (list, tuple, dict)):
        return [x for v in (value.values() if isinstance(value, dict) else value) for x in others_of(v)]
    return [] if isinstance(value, (Tensor, SymbolicTensor, Bound)) else [value]


def alike(a: Any, b: Any) -> bool:
    """Return whether two containers of `flattened` stand for the same computation.

    Numbers are equal in value, kind and sign; NaN is NaN.
    """
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(alike(v, b[k]) for k, v in a.items())
    for kind in (bool, int, float):
        if isinstance(a, kind) or isinstance(b, kind):
            return isinstance(a, kind) and isinstance(b, kind) and kind.__repr__(a) == kind.__repr__(b)
    return a is b or (not holds_tensors(a) and bool(a == b))


def holds_tensors(value: Any) -> bool:
    """Return whether an object has tensors, which its equality may leave out, or compare by element."""
    slots = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
    every = [*getattr(value, "__dict__", {}).values(), *[getattr(value, n, None) for n in slots]]
    return any(isinstance(v, Tensor) for v in every)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A tensor of a container: its index among the tensors."""

    number: int

    def __repr__(self) -> str:
        return f"<tensor {self.number}>"


@dataclass(frozen=True, slots=True)
class BoundPlaceholder:
    """A bound variable of a container: its index among the tensors, and its arithmetic."""

    number: int
    variable: Variable
    factor: int
    offset: int


@dataclass(frozen=True, slots=True)
class SizedPlaceholder:
    """A tensor with symbolic sizes: the placeholder of its capacity, and its sizes with placeholders."""

    whole: Placeholder
    sizes: tuple[int | BoundPlaceholder, ...]


def filled(nest: Any, tensors: list[Tensor]) -> Any:
    """Return the container that `flattened` gave, with tensors in their places again."""
    if nest.__class__ is Placeholder:
        return tensors[nest.number]
    if nest.__class__ is BoundPlaceholder:
        t = tensors[nest.number]
        return Bound(nest.variable, (t.expr, t.leaves), nest.factor, nest.offset)
    if nest.__class__ is SizedPlaceholder:
        return SymbolicTensor(filled(nest.whole, tensors), filled(nest.sizes, tensors))
    if isinstance(nest, (list, tuple)):
        parts = [filled(v, tensors) for v in nest]
        return type(nest)(parts) if not hasattr(nest, "_fields") else type(nest)(*parts)
    if isinstance(nest, dict):
        return {k: filled(v, tensors) for k, v in nest.items()}
    return nest
