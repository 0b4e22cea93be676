"""The row of an operator: its name, the opsets that it has, and its function.

A function takes the operator's inputs by position (None for one that is left out) and its attributes by
keyword, under the names of the specification (https://onnx.ai/onnx/operators/), and returns a value or a
tuple of them. Keywords that begin with an underscore are no attributes:

- `_outputs`: how many outputs the node uses
- `_types`: the element types of the inputs, as numbers of the file; None if unknown
- `_scope`: the values that a subgraph may read, by name

Not here: the table (`table`).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from frontend.onnx.values import SMALL, Value, as_array, as_tensor, is_host
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Callee(Protocol):
    """A graph among the attributes of a node; implemented by `frontend.onnx.graph.ModelGraph`."""

    outputs: tuple[str, ...]

    def call(self, scope: Mapping[str, Value | None], values: Sequence[Value | None]) -> list[Value | None]:
        """Return the outputs for inputs by position."""


_KINDS: Final = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An operator of a range of opsets."""

    name: str
    since: int
    function: Callable[..., Any]
    until: int = 1 << 30
    """The last opset that has this meaning."""
    host: tuple[int, ...] = ()
    """Inputs that are read on the host, such as shapes."""
    both: bool = False
    """Whether the function takes arrays of the host instead of tensors, if all inputs are arrays."""
    mixed: bool = False
    """Whether the function takes arrays beside tensors."""
    random: bool = False
    """Whether another call gives other values."""
    moved: tuple[str, ...] = ()
    """Attributes that are inputs in later opsets; the function takes them behind its only other input."""
    domain: str = ""
    _parameters: Mapping[str, inspect.Parameter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parameters", inspect.signature(self.function).parameters)

    @property
    def takes(self) -> frozenset[str]:
        """The keywords of the function that are no attributes."""
        return frozenset([n for n in self._parameters if n.startswith("_")])

    def check(self, count: int, attributes: Mapping[str, Any]) -> None:
        """Raise `UsageError` for attributes or a number of inputs that the operator does not have."""
        known = {
            n: p for n, p in self._parameters.items() if p.kind is p.KEYWORD_ONLY and not n.startswith("_")
        }
        places = [
            p for p in self._parameters.values() if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
        ]
        known |= dict(zip(self.moved, places[1:], strict=False))
        places = places[:1] if self.moved else places
        free = any(p.kind is p.VAR_KEYWORD for p in self._parameters.values())
        for name, value in attributes.items():
            if name not in known and free:
                continue
            if name not in known:
                raise UsageError(f"there is no attribute {name!r}; there are: {', '.join(known) or 'none'}")
            default = known[name].default
            if type(default) in _KINDS and type(value) is not type(default):
                raise UsageError(f"attribute {name!r}: wanted {type(default).__name__}, saw {value!r:.40}")
        if missing := [n for n, p in known.items() if p.default is p.empty and n not in attributes]:
            raise UsageError(f"the attribute {missing[0]!r} is missing")
        least = sum([p.default is p.empty for p in places])
        most = None if any(p.kind is p.VAR_POSITIONAL for p in self._parameters.values()) else len(places)
        if count < least or (most is not None and count > most):
            raise UsageError(f"wanted {least} to {most} inputs, saw {count}")

    def run(self, inputs: Sequence[Value | None], keywords: Mapping[str, Any]) -> tuple[Value | None, ...]:
        """Return the outputs for inputs, which become arrays or tensors as the function wants them."""
        inputs = [*inputs, *[_array(keywords.get(name)) for name in self.moved]]
        keywords = {n: v for n, v in keywords.items() if n not in self.moved}
        others = [x for i, x in enumerate(inputs) if x is not None and i not in self.host]
        keep = self.mixed or (self.both and all(is_host(x) for x in others))
        given = [
            x if x is None else as_array(x) if i in self.host else x if keep else as_tensor(x)
            for i, x in enumerate(inputs)
        ]
        with np.errstate(all="ignore"):
            found = self.function(*given, **keywords)
        return tuple([_kept(x) for x in (found if isinstance(found, (tuple, list)) else (found,))])


def _array(x: Any) -> Value | None:
    """Return an attribute, a number or a list of them, as an array. Raises `UsageError` for others."""
    if x is None:
        return None
    found = np.array(x) if isinstance(x, float) or (isinstance(x, list) and x) else np.array(x, np.int64)
    if found.dtype.kind not in "if":
        raise UsageError(f"wanted numbers, saw {x!r:.40}")
    return found


def _kept(x: Any) -> Value | None:
    """Return an output: an array of the host becomes a tensor if it is large."""
    if isinstance(x, (np.generic, np.ndarray)):
        x = np.asarray(x)
        return as_tensor(x) if x.size > SMALL else x
    found: Value | None = x
    return found
