"""One call of PyTorch's operator database, and what PyTorch answers to it, without PyTorch.

Not here: evaluation (`ours`, `theirs`), comparison (`judge`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor among the arguments. bfloat16 is held as float32."""

    array: Any
    dtype: str
    grad: bool = False


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype among the arguments, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function by the name of its entry, and its arguments; tensors are `Given`."""

    entry: str
    """The name, and the variant behind a colon if there is one: "std_mean:unbiased"."""
    dtype: str
    args: tuple[Any, ...]
    names: dict[str, Any] = field(default_factory=dict)
    error: bool = False
    """Whether it is one of those that must be refused."""

    @property
    def name(self) -> str:
        """The name of the function, as below `torch`."""
        return self.entry.partition(":")[0]

    def __str__(self) -> str:
        texts = [shown(a) for a in self.args] + [f"{k}={shown(v)}" for k, v in self.names.items()]
        return f"{self.entry}[{self.dtype}]({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class Result:
    """One tensor of an answer: some of its elements, at `places` (None: all).

    `values` are PyTorch's, `truth` those of float64 (None for other kinds), `error` the greatest absolute
    error of PyTorch's over all elements.
    """

    shape: tuple[int, ...]
    dtype: str
    values: Any
    truth: Any = None
    error: float = 0.0
    places: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What PyTorch gives: results, and gradients by the number of the tensor argument; or an error.

    `form` is the structure of the results: "T" is a tensor, "(TT)" a sequence of two.
    """

    form: str = ""
    results: tuple[Result, ...] = ()
    gradients: dict[int, Result | None] = field(default_factory=dict)
    error: str = ""


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested arguments with `change` applied to what is no list, tuple or slice."""
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(v, change) for v in value])
    if isinstance(value, slice):
        return slice(*[mapped(v, change) for v in (value.start, value.stop, value.step)])
    return change(value)


def leaves(call: Call) -> list[Given]:
    """Return the tensors among the arguments, in order."""
    found: list[Given] = []
    mapped([*call.args, *call.names.values()], lambda v: found.append(v) if isinstance(v, Given) else None)
    return found


def shown(value: Any) -> str:
    """Return an argument as text; of a tensor its dtype and shape."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join([shown(v) for v in value])})"
    if isinstance(value, Given):
        return f"{value.dtype}{list(value.array.shape)}"
    return value.name if isinstance(value, Dtype) else repr(value)
