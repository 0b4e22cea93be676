"""The recording of a captured call: the launches made during it, and nested containers of tensors.

Not here: what a capture guarantees (`jit`), replays (`captured`).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from frontend.launch import Kernel
from frontend.symbolic.tensor import SymbolicTensor
from frontend.tensor import Tensor
from frontend.variable import Bound, Variable
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable

    import hcq
    from frontend.plan import Plan
    from frontend.storage import Leaf


@dataclass(slots=True)
class Capture:
    """The record of a captured call: launches, new memory, assignments and random draws."""

    steps: list[tuple[Plan | None, list[hcq.Buffer], list[hcq.Buffer]]] = field(default_factory=list)
    """(plan, input buffers, output buffers) of each launch; plan None: a copy."""
    leaves: dict[hcq.Buffer, weakref.ref[Leaf]] = field(default_factory=dict)
    """New memory -> its leaf."""
    states: dict[hcq.Buffer, Tensor] = field(default_factory=dict)
    """Memory from before the call that is assigned to -> the tensor that it belongs to."""
    draws: list[hcq.Buffer] = field(default_factory=list)
    """The words of each random draw, in order."""
    snapshots: set[hcq.Buffer] = field(default_factory=set)
    """Copies of old contents, made by copy-on-write."""

    def record(self, plan: Plan, inputs: list[hcq.Buffer], outputs: list[hcq.Buffer]) -> None:
        """Record a launch."""
        self.steps.append((plan, inputs, outputs))

    def made(self, leaf: Leaf) -> None:
        """Record new memory."""
        self.leaves[leaf.buffer] = weakref.ref(leaf)

    def assigned(self, t: Tensor, leaf: Leaf) -> None:
        """Record that the memory of a tensor was written."""
        if leaf.buffer not in self.leaves:
            self.states[leaf.buffer] = t

    def copied(self, new: hcq.Buffer, old: hcq.Buffer) -> None:
        """Record a copy-on-write of the contents of `old` to `new`."""
        self.steps.append((None, [old], [new]))
        self.snapshots.add(new)

    def drew(self, buffer: hcq.Buffer) -> None:
        """Record the words of a random draw."""
        self.draws.append(buffer)


NUMBERS: Final = "numbers"
_NUMBERS: Final = frozenset({bool, int, float})


def flattened(
    value: Any, out: list[Tensor], what: str, *, strict: bool, known: dict[Any, Any] | None = None
) -> Any:
    """Append the tensors of a nested container to `out`; return the container with a `Place` for each.

    `strict`: other values than None raise `UsageError`, which `what` starts. `known` takes the places of
    bound variables; those of one variable with one value have one place. Under `NUMBERS` it takes the class
    of each number, or the text of a zero, in order.
    """
    known = {} if known is None else known
    if value.__class__ is Tensor:
        out.append(value)
        return Place(len(out) - 1)
    if isinstance(value, Bound):
        key = value.variable, value.part if value.bound is None else value.bound
        if key not in known:
            out.append(Tensor.of_part(value.part))
            known[key] = len(out) - 1
        return BoundPlace(known[key], value.variable, value.factor, value.offset)
    if isinstance(value, SymbolicTensor):
        whole = flattened(value.whole, out, what, strict=strict)
        return SizedPlace(whole, flattened(value.sizes, out, what, strict=False, known=known))
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
    return a is b or bool(a == b)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a tensor in a container: its index among the tensors."""

    number: int

    def __repr__(self) -> str:
        return f"<tensor {self.number}>"


@dataclass(frozen=True, slots=True)
class BoundPlace:
    """The place of a bound variable in a container: its index among the tensors, and its arithmetic."""

    number: int
    variable: Variable
    factor: int
    offset: int


@dataclass(frozen=True, slots=True)
class SizedPlace:
    """The place of a tensor with symbolic sizes: that of its capacity, and its sizes with places."""

    whole: Place
    sizes: tuple[int | BoundPlace, ...]


def filled(nest: Any, tensors: list[Tensor]) -> Any:
    """Return the container that `flattened` gave, with tensors in their places again."""
    if nest.__class__ is Place:
        return tensors[nest.number]
    if nest.__class__ is BoundPlace:
        t = tensors[nest.number]
        return Bound(nest.variable, (t.expr, t.leaves), nest.factor, nest.offset)
    if nest.__class__ is SizedPlace:
        return SymbolicTensor(filled(nest.whole, tensors), filled(nest.sizes, tensors))
    if isinstance(nest, (list, tuple)):
        parts = [filled(v, tensors) for v in nest]
        return type(nest)(parts) if not hasattr(nest, "_fields") else type(nest)(*parts)
    if isinstance(nest, dict):
        return {k: filled(v, tensors) for k, v in nest.items()}
    return nest


def kernels_of(capture: Capture) -> list[Kernel]:
    """Return all kernels of a capture. Keys of memory are buffers; temporaries are (launch number, key)."""
    kernels: list[Kernel] = []
    for number, (plan, inputs, outputs) in enumerate(capture.steps):
        if plan is None:
            size = min(inputs[0].size, outputs[0].size)
            kernels.append(Kernel(None, (1, 1, 1), (1, 1, 1), (outputs[0], inputs[0]), (size, size), (0,)))
            continue
        names: dict[Hashable, Hashable] = {("in", i): b for i, b in enumerate(inputs)}
        names |= {("out", n): b for (n, _), b in zip(plan.outputs, outputs, strict=True)}
        for kernel in plan.kernels:
            local = {key: (number, key) for key in kernel.memory if key not in names}
            kernels.append(kernel.renamed({**names, **local}))
    read = {key for k in kernels for i, key in enumerate(k.memory) if i not in k.stores}
    return [k for k in kernels if k.program is not None or k.memory[0] in read]
