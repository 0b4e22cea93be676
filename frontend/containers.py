"""Nested containers of tensors: the arguments and results of captured and checkpointed functions.

`flattened` splits a list, tuple or dict into its tensors and a container of the same form with a
`Placeholder` for each tensor. `filled` puts tensors in place of the placeholders.

Not here: containers in a file (`frontend.capture.files`). Next: `frontend.capture.jit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import CO_VARKEYWORDS
from typing import Any, Final

from frontend.symbolic.tensor import SymbolicTensor
from frontend.tensor import Tensor
from frontend.variable import Bound, Variable
from hcq.errors import UsageError

NUMBERS: Final = "numbers"
"""The key of `known` under which `flattened` lists numbers."""
_NUMBERS: Final = frozenset({bool, int, float})


def flattened(
    value: Any, out: list[Tensor], what: str, *, strict: bool, known: dict[Any, Any] | None = None
) -> Any:
    """Append the tensors of a nested container to `out`; return the container with a `Placeholder` for each.

    With `strict`, any other value but None raises `UsageError`, whose message starts with `what`, and a
    tensor that occurs twice is one tensor. Without, an array of another library raises `UsageError`, and
    other values stay. `known` is filled: bound variables -> their index in `out`, one for each variable and
    value; `NUMBERS` -> the class of each number, or the text of a zero, and the keys of each dictionary.
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
        if len(value) > 1 and not strict:
            known.setdefault(NUMBERS, []).append(tuple(value))
        return {k: flattened(v, out, what, strict=strict, known=known) for k, v in value.items()}
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


def by_name(function: Any, names: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments in the order of their names, unless the function can see their order."""
    code = getattr(function, "__code__", None)
    if len(names) < 2 or code is None or code.co_flags & CO_VARKEYWORDS:
        return names
    return {name: names[name] for name in sorted(names)}


def numbers_of(value: Any) -> list[Any]:
    """Return the list that `flattened` stores as `known[NUMBERS]` for a container that it returned."""
    known: dict[Any, Any] = {}
    flattened(value, [], "", strict=False, known=known)
    found: list[Any] = known.get(NUMBERS, [])
    return found


def others_of(value: Any) -> list[Any]:
    """Return the values of nested containers that are neither tensors nor bound variables."""
    if isinstance(value, (list, tuple, dict)):
        return [x for v in (value.values() if isinstance(value, dict) else value) for x in others_of(v)]
    return [] if isinstance(value, (Tensor, SymbolicTensor, Bound)) else [value]


def alike(a: Any, b: Any) -> bool:
    """Return whether two containers of `flattened` give the same computation.

    Numbers must be equal in value, class and sign; NaN equals NaN. Dictionaries must have one order. An
    object that has tensors is equal to itself only.
    """
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and [*a] == [*b] and all(alike(v, b[k]) for k, v in a.items())
    for kind in (bool, int, float):
        if isinstance(a, kind) or isinstance(b, kind):
            return isinstance(a, kind) and isinstance(b, kind) and kind.__repr__(a) == kind.__repr__(b)
    return a is b or (not holds_tensors(a) and bool(a == b))


def holds_tensors(value: Any) -> bool:
    """Return whether an object has tensors as attributes, so that its `==` cannot be relied on."""
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
    """Return a container of `flattened` with tensors in place of the placeholders."""
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
